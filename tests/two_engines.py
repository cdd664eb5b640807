"""One of two processes with two devices each: weights that both hold reach each one's own engine.

    python two_engines.py INDEX PORT

Started by test_engine_mesh.py; prints what it found as JSON.
"""

import json
import os
import sys

INDEX, PORT = int(sys.argv[1]), int(sys.argv[2])
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import numpy as np  # noqa: E402

from mimesis_jax.models import decoder  # noqa: E402
from mimesis_jax.models import spec as specs  # noqa: E402
from mimesis_jax.rollouts import engine, handover  # noqa: E402
from mimesis_jax.sharding import layout, mesh  # noqa: E402

SPEC = specs.tiny(64, 60, periods=2, width=32, mlp=48)
CONFIG = engine.Config(slots=2, length=32, block=4, buckets=(8,), rows=())


def spoken(held, count):
    """What some conversations are answered, in order."""
    for n in range(count):
        held.submit(engine.Request(n, [9 + n, 8, 30 + n], (2,), True, (0, n, 0, 0), (5,), 5))
    done = {}
    while held.open_requests:
        done |= {d.request.conversation: d.ids.tolist() for d in held.advance()}
    return [done[n] for n in range(count)]


def refusal(make):
    try:
        make()
    except ValueError as error:
        return str(error)
    return ""


def main():
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{PORT}", 2, INDEX, initialization_timeout=120)
    own = layout.Layout(
        mesh.make(mesh.Config("fsdp_tp", 1, 1, 2), jax.local_devices()), "fsdp_tp", "decode"
    )
    with jax.default_device(jax.local_devices()[0]):
        alone = decoder.init(SPEC, jax.random.key(1))
        single = engine.Engine(SPEC, alone, CONFIG, seed=3)
        count = 3 + 2 * INDEX  # the processes' schedules differ
        wanted = spoken(single, count)
        form = jax.device_get(handover.local(SPEC, alone, None))
    host = jax.device_get(alone)
    out = {"count": count, "tokens": [], "equal": [], "mine": []}
    for devices in (jax.devices(), jax.devices()[::-1]):
        train = layout.Layout(mesh.make(mesh.Config("fsdp"), devices), "fsdp")
        places = train.params(decoder.axes(SPEC), decoder.abstract(SPEC))
        spread = jax.tree.map(
            lambda x, place: jax.make_array_from_callback(x.shape, place, lambda i, x=x: x[i]),
            host, places,
        )  # fmt: skip
        moved = handover.local(SPEC, spread, own)
        leaves = jax.tree.leaves(moved)
        out["mine"].append(all(leaf.is_fully_addressable for leaf in leaves))
        out["equal"].append(
            all(map(np.array_equal, map(np.asarray, leaves), jax.tree.leaves(form)))
        )
        held = engine.Engine(SPEC, spread, CONFIG, seed=3, layout=own)
        out["tokens"].append(spoken(held, count) == wanted)
    out["no layout"] = refusal(lambda: engine.Engine(SPEC, spread, CONFIG))
    out["everybody's"] = refusal(lambda: engine.Engine(SPEC, None, CONFIG, layout=train))
    jax.distributed.shutdown()
    print(json.dumps(out))


if __name__ == "__main__":
    main()
