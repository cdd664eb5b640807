"""Engines on eight virtual devices beside one on a single device; prints what it found as JSON.

    python many_engines.py MESH ...

Started by test_engine_mesh.py in a process of its own, since the number of devices is fixed when
jax begins.
"""

import json
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import engine, handover, programs, sampling
from mimesis_jax.runs import compiles
from mimesis_jax.sharding import layout, mesh

SPEC = specs.tiny(64, 60, periods=2, width=32, mlp=48)
END = 5
CONFIG = engine.Config(slots=8, length=80, block=4, buckets=(8, 24), rows=(1,), share=6)
MESHES = {  # name -> (preset, data, fsdp, tensor)
    "rows": ("fsdp", 1, 8, 1),
    "slices": ("multislice", 2, 2, 2),
    "heads beyond kv heads": ("fsdp_tp", 1, 2, 4),  # two kv heads over four devices
}


def weights():
    """Random weights whose linear heads forget slowly."""
    params = decoder.init(SPEC, jax.random.key(1))
    slow = jnp.log(jnp.array([0.01, 0.05, 0.1, 0.3]))
    mixer = params["periods"]["layer0"]["mixer"]
    mixer["a_log"] = jnp.broadcast_to(slow, mixer["a_log"].shape)
    return jax.tree.map(lambda x: x * 3 if x.ndim > 2 else x, params)


def layout_of(name, use="decode", devices=None):
    preset, *sizes = MESHES[name]
    return layout.Layout(mesh.make(mesh.Config(preset, *sizes), devices), preset, use)


def words(seed, n):
    return np.random.default_rng(seed).integers(8, 60, n).tolist()


def played(held, temperature):
    """Twelve conversations over eight slots (evictions), the first four with one prompt, the next
    three with a beginning of it; a private reply, a round on its branch, the user, a reply on the
    line. Returns tokens and log-probs in order."""
    prompt = words(0, 14)
    extend = {n: prompt if n < 4 else prompt[:7] + words(n, 5) if n < 7 else words(n, 3 + n)
              for n in range(12)}  # fmt: skip
    found = []
    for turn, (private, onward) in enumerate(((True, False), (True, True), (False, False))):
        for n, ids in extend.items():
            held.submit(engine.Request(
                n, ids, (2, 3), private, (0, n, 0, turn), (END,), 4 + n % 5,
                temperature=temperature, top_k=n % 3 * 20, onward=onward,
            ))  # fmt: skip
        done = {}
        while held.open_requests:
            done |= {d.request.conversation: d for d in held.advance()}
        found += [done[n] for n in sorted(done)]
        extend = {n: words(100 * turn + n, 2 + n % 4) for n in extend}
    for n in extend:
        held.close(n)
    return [d.ids.tolist() for d in found], np.concatenate([d.logp for d in found])


def compared(name, params, alone):
    place = layout_of(name)
    held = engine.Engine(SPEC, params, CONFIG, seed=7, layout=place)
    held.warm()
    out = {"tokens": True, "logp": 0.0}
    other = jax.tree.map(lambda x: x * 1.01, params)
    with compiles.Compiles() as late:
        for temperature, (ids, logp) in alone.items():
            mine, values = played(held, temperature)
            out["tokens"] &= mine == ids
            out["logp"] = max(out["logp"], float(np.abs(values - logp).max()) if mine == ids else 9)
        held.load(other, 1)
        held.submit(engine.Request(0, [9, 9], (2,), True, (0, 0, 0, 0), (END,), 3))
        while held.open_requests:
            held.advance()
    cache = held._state.cache
    out |= {
        "late": late.count, "counts": {k: int(v) for k, v in held.counts.items()},
        "keys_on_a_device": cache.keys["layer1"].addressable_data(0).nbytes,
        "state_on_a_device": cache.now.state["layer0"].addressable_data(0).nbytes,
        "traffic": traffic(held),
    }  # fmt: skip
    return out


def traffic(held):
    """Shapes of what the devices exchange in a block of decoding, by kind of collective."""
    rows = held._rows.choose([], held._rows.local)
    knobs = sampling.idle(CONFIG.slots)
    text = programs.decode.lower(
        SPEC, held._params, held._state, None, knobs, held._stop, rows.real, np.uint32(0),
        np.int32(1), CONFIG.block, CONFIG.length, held._layout,
    ).compile().as_text()  # fmt: skip
    found = {}
    for shape, kind in re.findall(
        r"= \(?(\w+\[[\d,]*\])[^=]*? (all-gather|all-reduce|all-to-all|collective-permute)", text
    ):
        found.setdefault(kind, []).append(shape)
    return found


def no_host(run):
    """Runs something while no array may be read on the host."""
    kind = type(jnp.zeros(1))
    read = kind._value
    kind._value = property(lambda self: (_ for _ in ()).throw(AssertionError("read on the host")))
    try:
        return jax.block_until_ready(run())
    finally:
        kind._value = read


def handed_over(params):
    """Weights from several trainers' layouts to decode layouts: equal, and never on the host."""
    wanted = jax.device_get(handover.caches.apart(params))
    devices = jax.devices()
    trainers = {
        "one device": None,
        "the same mesh": layout_of("heads beyond kv heads", "train"),
        "the same devices, otherwise": layout_of("rows", "train", devices[::-1]),
        "four other devices": layout.Layout(
            mesh.make(mesh.Config("fsdp_tp", 1, 2, 2), devices[4:]), "fsdp_tp", "train"
        ),
    }
    targets = {
        "eight": layout_of("heads beyond kv heads"),
        "four": layout.Layout(
            mesh.make(mesh.Config("fsdp_tp", 1, 2, 2), devices[:4]), "fsdp_tp", "decode"
        ),
    }
    out = {}
    for source, train in trainers.items():
        held = params
        if train is not None:
            held = jax.device_put(params, train.params(decoder.axes(SPEC), decoder.abstract(SPEC)))
        for target, place in targets.items():
            moved = no_host(lambda held=held, place=place: handover.local(SPEC, held, place))
            same = jax.tree.map(np.array_equal, jax.device_get(moved), wanted)
            lies = jax.tree.map(place.named, handover.lies(SPEC, place))
            laid = jax.tree.map(lambda x, s: x.sharding == s, moved, lies)
            out[f"{source} to {target}"] = [all(jax.tree.leaves(same)), all(jax.tree.leaves(laid))]
    return out


def refused():
    """What cannot be laid out says what to change."""
    out = {}
    for name, config, spec in (
        ("slots", engine.Config(slots=6, buckets=(8,)), SPEC),
        ("heads", CONFIG, specs.tiny(66, width=32, mlp=48)),
    ):
        place = layout_of("heads beyond kv heads" if name == "heads" else "rows")
        try:
            engine.Engine(spec, None, config, layout=place)
        except ValueError as error:
            out[name] = str(error)
    return out


def main():
    jax.config.update("jax_disable_most_optimizations", True)
    params = weights()
    one = engine.Engine(SPEC, params, CONFIG, seed=7)
    alone = {temperature: played(one, temperature) for temperature in (0.0, 1.0)}
    names = sys.argv[1:]
    found = {name: compared(name, params, alone) for name in names}
    once = {"handed_over": handed_over(params), "refused": refused()} if "slices" in names else {}
    print(json.dumps({
        "alone": {k: int(v) for k, v in one.counts.items()}, "meshes": found, **once,
        "keys": one._state.cache.keys["layer1"].nbytes,
        "state": one._state.cache.now.state["layer0"].nbytes,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
