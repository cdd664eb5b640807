"""One process of several in test_processes_jax.py: joins, does what its case says, ends as it ends.

    python processes_worker.py CASE INDEX COUNT PORT OUT

It answers in OUT/CASE-INDEX.json; its exit status is that of the command line.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from mimesis_jax.runs import processes  # noqa: E402

QUICK = processes.Settings(arrive=200, beat=1, silent=15, grace=5)
BIG = 3 << 20
OUT = Path()  # where the results go


def meet() -> dict:
    """Small and large things are exchanged; the batch of a stream is the same everywhere."""
    me, count = processes.index(), processes.count()
    processes.barrier("begin", timeout=60)
    assert processes.agree({"me": me}, "who") == [{"me": i} for i in range(count)]
    assert processes.exchange(bytes([me]) * me, "small") == [bytes([i]) * i for i in range(count)]
    sizes = [BIG + 17 * i for i in range(count)]
    found = processes.exchange(bytes([me]) * sizes[me], "big")
    assert [(len(f), set(f)) for f in found] == [(n, {i}) for i, n in enumerate(sizes)]
    return {"lead": processes.is_lead()}


def losses() -> dict:
    """Largest distance of each update over all devices from the update on one device."""
    import across
    import jax

    count = jax.device_count()
    got = across.run(across.compute("fsdp", 1, count, 1), 8 if count == 8 else 16)
    out = {"devices": count}
    if processes.is_lead():  # on a device of its own, while the others wait
        from mimesis_jax.models import decoder

        distances = across.distances(got, across.run(decoder.Compute(), 32))
        out |= {"worst": max(distances.values()), "tensors": len(distances)}
        out |= {"losses": sorted(got), "at": max(distances, key=distances.__getitem__)}
    processes.barrier("compared", timeout=400)
    return out


def hang(how: int, who: int) -> dict:
    """Collectives for ever; one process gets a signal in the middle of them."""
    import numpy as np
    from jax.experimental import multihost_utils

    for step in range(100_000):
        multihost_utils.process_allgather(np.full(1000, step))
        if step == 20 and processes.index() == who:
            print("now", time.time(), flush=True)
            os.kill(os.getpid(), how)
    return {}


def stuck() -> dict:
    """Process 0, which holds a lock, waits where nothing wakes it, as in a collective; 1 dies."""
    from mimesis_jax.runs import lock

    if processes.is_lead():
        lock.Lock(OUT / "lock")
    processes.barrier("locked")
    if processes.is_lead():
        for_ever = threading.Lock()
        for_ever.acquire()
        for_ever.acquire()
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def fault() -> dict:
    """One process raises while the others wait for it."""
    if processes.index() == 1:
        raise ValueError("planted: batch 48 is not a multiple of 32")
    processes.barrier("never")
    return {}


def trained() -> dict:
    """A small supervised run of STEPS steps, saved every second one, that goes on where it was.

    With KILL=I:N in the environment process I kills itself after step N.
    """
    import across
    import jax
    import numpy as np

    from mimesis_jax.data import pipeline
    from mimesis_jax.forest import pack
    from mimesis_jax.models import decoder
    from mimesis_jax.runs import checkpoint, processes_folder
    from mimesis_jax.trainers import optimizer, supervised

    who, when = map(int, os.environ.get("KILL", "-1:-1").split(":"))
    compute = across.compute("fsdp", 1, jax.device_count(), 1)
    spec, config = across.SPEC, supervised.Config(steps=6, save_every=2, optimizer=across.ADAM)
    shape = pack.Shape(8, 64, 8, 48, 2)
    sources = [pipeline.Source("trees", across.trees(40), lambda tree: tree)]
    batches = pipeline.Batches(sources, shape, seed=0)
    lies = compute.layout.params(decoder.axes(spec), decoder.abstract(spec))
    with processes_folder.opened(OUT / "run", {"steps": 6}) as run:
        if (done := run.done("sft")) is None:
            start = jax.device_put(across.params(), lies)
            state = optimizer.init(start, config.optimizer, spec, compute)
            with run.store("sft") as store:
                restored = store.restore(state)
                first, meta = 0, {}
                if restored is not None:
                    state, first, meta = restored.state, restored.step, restored.meta
                    batches.set_state(meta["data"])
                run.begin("sft", meta.get("mark"))

                def report(step, metrics):
                    run.metrics("sft", step, metrics)
                    if processes.index() == who and step == when:
                        os.kill(os.getpid(), signal.SIGKILL)

                def save(step, state):
                    mark = {"mark": run.mark("sft"), "data": batches.get_state()}
                    store.save(step, jax.block_until_ready(state), mark)
                    store.wait()  # so that the test knows which one is there

                state = supervised.train(
                    spec, state, ([forest] for forest in batches), config, compute=compute,
                    first=first, report=report, save=save,
                )  # fmt: skip
            digest = checkpoint.save_frozen(run.path / "models" / "sft", state.params)
            run.finish("sft", {"hash": digest, "first": first})
            done = run.done("sft")
        template = jax.tree.map(
            lambda leaf, place: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place),
            decoder.abstract(spec), lies,
        )  # fmt: skip
        frozen = checkpoint.load_frozen(run.path / "models" / "sft", template, done["hash"])
    whole = {key: across.fetch(leaf) for key, leaf in across._flat(frozen.params, "").items()}
    if processes.is_lead():
        np.savez(OUT / f"params-{processes.count()}.npz", **whole)
    return {"first": done["first"], "hash": done["hash"]}


CASES = {
    "trained": trained,
    "meet": meet,
    "losses": losses,
    "killed": lambda: hang(signal.SIGKILL, 1),
    "lead_killed": lambda: hang(signal.SIGKILL, 0),
    "stopped": lambda: hang(signal.SIGSTOP, 1),
    "stuck": stuck,
    "fault": fault,
}


def main(case: str, index: int, count: int, port: int, out: Path) -> int:
    global OUT
    OUT = out
    place = processes.find(count, index, f"127.0.0.1:{port}")
    told = {"case": case}
    try:
        with processes.joined(place, told, QUICK):
            found = [CASES[name]() for name in case.split("+")]
            merged = {key: value for one in found for key, value in one.items()}
            (out / f"{case}-{index}.json").write_text(json.dumps(merged))
    except processes.ProcessError as error:
        print(f"mimesis: {error}", file=sys.stderr, flush=True)
        return error.status
    except ValueError as error:
        print(f"mimesis: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


if __name__ == "__main__":
    case, index, count, port, out = sys.argv[1:]
    status = main(case, int(index), int(count), int(port), Path(out))
    processes.quit_if_broken(status)
    sys.exit(status)
