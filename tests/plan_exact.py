"""Run by tests/test_plan_exact.py in a process of its own: one block compiled by libtpu.

The environment says which compiler; nothing is run and no device is needed. Argument: a topology.
Writes to standard output what the update, a decode and the splash kernel measured, as json.
"""

import dataclasses
import json
import re
import sys

import jax
import jax.numpy as jnp

from mimesis_jax import config, types
from mimesis_jax.forest import blocks
from mimesis_jax.models import splash
from mimesis_jax.plan import child, exact, measure, programs, settings, topology


def small(plan: settings.Settings) -> settings.Settings:
    """One layer of each model, narrow and on short rows."""
    fields = {"periods": 1, "width": 512, "mlp": 1024, "vocab": 2048, "vocab_real": 2000}

    def thin(model):
        few = dataclasses.replace(model.spec, heads=8, kv_heads=4, **fields)
        return dataclasses.replace(model, spec=few)

    rows = dataclasses.replace(plan.shape, rows=4, length=512, learned=256)
    engine = dataclasses.replace(plan.engine, slots=8, length=512, buckets=(128,), rows=(4,))
    return dataclasses.replace(
        plan, model=thin(plan.model), opposite=thin(plan.opposite), shape=rows, engine=engine
    )


def kernel(device):
    """The forest's attention by the splash kernel, forward and backward, for one chip."""
    place = jax.sharding.SingleDeviceSharding(device)
    array = lambda shape, dtype=jnp.int32: jax.ShapeDtypeStruct(shape, dtype, sharding=place)
    pairs = blocks.pair_count(512, 256)
    lists = types.Blocks(array((1, pairs)), array((1, pairs)), array((1,)), array((1, 4)),
                         size=256, kernel="splash")  # fmt: skip
    q = array((1, 512, 8, 128), jnp.bfloat16)
    keys = array((1, 4, 512, 128), jnp.bfloat16)

    def loss(q, keys, values, last, lists):
        return jnp.sum(splash.attend(q, keys, values, last, lists).astype(jnp.float32))

    lowered = jax.jit(jax.grad(loss, (0, 1, 2))).lower(q, keys, keys, array((1, 512)), lists)
    text = lowered.compile().as_text()
    return {"calls": sorted(set(re.findall(r'custom_call_target="([^"]*)"', text)))}


def main(machines: str, *names: str) -> None:
    found = topology.parse(machines)
    if (why := exact.missing(found)) is not None:
        json.dump({"skipped": why}, sys.stdout)
        return
    plan = small(settings.of(config.read("agent_csd_9b", {"mesh.fsdp": "-1", "shape.rows": "4"})))
    devices = exact.devices(found)
    told = {"splash": kernel(devices[0])} if "splash" in names else {}
    for one in programs.build(plan, found, devices):
        if one.name in names:
            told[one.name] = child.described(one, measure.exactly(one), found)
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
