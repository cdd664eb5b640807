"""Run by tests/test_plan_hlo.py in a process of its own: small real programs on 8 CPU devices.

Writes to standard output one json object: for each case its program's collectives and hints.
"""

import dataclasses
import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from mimesis_jax.models import heads, vocabulary
from mimesis_jax.models import spec as specs
from mimesis_jax.plan import collectives, faults
from mimesis_jax.sharding.layout import Layout

SIZES = {"data": 1, "fsdp": 4, "tensor": 2}
MESH = jax.make_mesh((1, 4, 2), tuple(SIZES), axis_types=(AxisType.Auto,) * 3)
VOCAB, WIDTH, CHUNKS, TOKENS = 512, 64, 8, 32
HEAD = faults.Parameter("head", (VOCAB, WIDTH), False, "None, fsdp", 4 * VOCAB * WIDTH,
                        VOCAB * WIDTH)  # fmt: skip


def struct(shape, *spec, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


def mapped(body, into, out):
    return jax.shard_map(body, mesh=MESH, in_specs=into, out_specs=out, check_vma=False)


def chunk(head, h, target):
    """The gradient of a head by one chunk of this device's tokens."""
    loss = lambda head: -jnp.sum(jax.nn.log_softmax(h @ head.T)[jnp.arange(len(h)), target])
    return jax.grad(loss)(head)


def faulty(head, h, target):
    """The planted fault: every chunk's gradient is made to lie as the parameter does."""

    def body(head, h, target):
        whole = jax.lax.all_gather(head, "fsdp", axis=1, tiled=True)

        def one(total, xs):
            part = chunk(whole, *xs)
            part = jax.lax.psum_scatter(part, "fsdp", scatter_dimension=1, tiled=True)
            return total + part, None

        return jax.lax.scan(one, jnp.zeros_like(head), (h, target))[0]

    rows = P(None, "fsdp")
    return mapped(body, (P(None, "fsdp"), rows, rows), P(None, "fsdp"))(head, h, target)


def mended(head, h, target):
    """Added up on the device, scattered once after the loop."""

    def body(head, h, target):
        whole = jax.lax.all_gather(head, "fsdp", axis=1, tiled=True)
        one = lambda total, xs: (total + chunk(whole, *xs), None)
        total = jax.lax.scan(one, jnp.zeros_like(whole), (h, target))[0]
        return jax.lax.psum_scatter(total, "fsdp", scatter_dimension=1, tiled=True)

    rows = P(None, "fsdp")
    return mapped(body, (P(None, "fsdp"), rows, rows), P(None, "fsdp"))(head, h, target)


def constrained(head, h, target):
    """The same fault without shard_map: a constraint on the loop's carry that asks for it."""
    lies = NamedSharding(MESH, P(None, "fsdp"))

    def one(total, xs):
        part = jax.lax.with_sharding_constraint(chunk(head, *xs), lies)
        return total + part, None

    return jax.lax.scan(one, jnp.zeros_like(head), (h, target))[0]


def gathered_in_a_loop(head, h, target):
    """The head is gathered anew for every chunk."""

    def body(head, h):
        def one(total, h):
            # The carry is in what is gathered, so that the compiler cannot move it out.
            whole = jax.lax.all_gather(head + total, "fsdp", axis=1, tiled=True)
            return jnp.sum(h @ whole.T), None

        return jax.lax.psum(jax.lax.scan(one, jnp.float32(0), h)[0], "fsdp")

    return mapped(body, (P(None, "fsdp"), P(None, "fsdp")), P())(head, h)


def real(head, h, target):
    """The project's own head: gathered once before the walk, scattered once after it."""
    spec = specs.tiny(VOCAB, width=WIDTH, mlp=64)
    lies = Layout(MESH, "fsdp_tp")
    source = jnp.broadcast_to(jnp.arange(TOKENS), (CHUNKS, TOKENS))

    def loss(head):
        objective = lambda logp, entropy, columns, knobs: (-jnp.sum(logp * columns), ())
        params = {"head": head}
        weight = jnp.ones(target.shape)
        total, *_ = heads.learn(
            spec, params, h, source, target, objective, weight, shard=heads.shard(lies)
        )
        return total

    return jax.grad(loss)(head)


def planted(head, h, target):
    """The same with a reduction put where each chunk's gradient is made."""
    pull = vocabulary.pull_chunk

    def wrong(*args):
        into, dh = pull(*args)
        return jax.lax.pmean(into, "fsdp"), dh

    vocabulary.pull_chunk = wrong
    try:
        return real(head, h, target)
    finally:
        vocabulary.pull_chunk = pull


def nested(x):
    """A gather in a loop of 3 in a loop of 5, over both axes; and a permutation after it."""

    def body(x):
        def inner(c, _):
            return jnp.sum(jax.lax.all_gather(x + c, ("fsdp", "tensor"), tiled=True)), None

        def outer(c, _):
            return jax.lax.scan(inner, c, None, length=3)[0], None

        c = jax.lax.scan(outer, jnp.float32(0), None, length=5)[0]
        turned = jax.lax.ppermute(x + c, "tensor", [(0, 1), (1, 0)])
        return jax.lax.all_to_all(turned, "fsdp", 0, 0, tiled=True)

    return mapped(body, (P(("fsdp", "tensor")),), P(("fsdp", "tensor")))(x)


def bounded(x):
    """A loop that may end early: at most 7 turns, the compiler knows no count."""

    def body(x):
        going = lambda c: (c[0] < 7) & (jnp.sum(c[1]) < 1e6)
        step = lambda c: (c[0] + 1, c[1] + jax.lax.psum(c[1], "tensor"))
        return jax.lax.while_loop(going, step, (0, x))[1]

    return mapped(body, (P("fsdp"),), P("fsdp"))(x)


def main():
    tokens = (
        struct((VOCAB, WIDTH), None, "fsdp"),
        struct((CHUNKS, TOKENS, WIDTH), None, "fsdp"),
        struct((CHUNKS, TOKENS), None, "fsdp", dtype=jnp.int32),
    )
    cases = {
        "faulty": (faulty, tokens),
        "mended": (mended, tokens),
        "constrained": (constrained, tokens),
        "gathered": (gathered_in_a_loop, tokens),
        "nested": (nested, (struct((64, 16), ("fsdp", "tensor")),)),
        "bounded": (bounded, (struct((64, 16), "fsdp"),)),
    }
    heads.HELD = 16 * VOCAB  # so that the few tokens here are several chunks
    split = (
        struct((VOCAB, WIDTH), "tensor", "fsdp"),
        struct((CHUNKS, TOKENS, WIDTH), "fsdp"),
        struct((CHUNKS, TOKENS), "fsdp", dtype=jnp.int32),
    )
    cases |= {"real": (real, split), "planted": (planted, split)}
    told = {}
    for name, (program, arguments) in cases.items():
        text = jax.jit(program).lower(*arguments).compile().as_text()
        found = collectives.walk(text, SIZES)
        told[name] = {
            "collectives": [dataclasses.asdict(one) | {"moved": one.moved} for one in found],
            "hints": [
                dataclasses.asdict(one) for one in faults.hints(found, [HEAD], SIZES, worth=1)
            ],
        }
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
