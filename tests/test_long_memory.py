"""A linear layer over a long row in parts: equal to the row at once, in less of the memory."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_long_rows import SPEC, big, packed

from mimesis_jax import types
from mimesis_jax.models import context, deltanet, long_rows
from mimesis_jax.models import spec as specs

MIB = 1 << 20


def layer_gradient(spec):
    """A linear layer with its gradients: f(params, x [B*T, D], forest, dy) -> y, (dparams, dx)."""

    def gradient(params, x, forest, dy):
        def run(params, x):
            mixer = deltanet.DeltaNet(spec, lambda path, _: params[path.split(".")[-1]], "mixer")
            return mixer(x, context.trees(spec, forest))

        y, back = jax.vjp(run, params, x)
        return y, back(dy)

    return gradient


def abstract_case(spec, length, slots=2):
    """Shapes of what `layer_gradient` takes, for one row of `length` tokens."""
    made = lambda shape, dtype: jax.ShapeDtypeStruct(shape, jnp.dtype(dtype))
    count = length // spec.chunk
    ints = lambda *shape: made((1, *shape), jnp.int32)
    token, chunk, none = ints(length), ints(count), ints(1)
    # With block lists there is no dense mask; a linear layer reads neither.
    lists = types.Blocks(none, none, ints(), None, size=256)
    forest = types.Forest(
        tokens=token, valid=made((1, length), bool), position=token, last=token,
        halo=ints(count, 3), load=chunk, store=chunk, source=none, target=none, weight=none,
        old_logp=none, advantage=none, gate=none, coached=none, slots=slots, blocks=lists,
    )  # fmt: skip
    table = deltanet.table(spec)
    params = {name: made(w.shape, w.dtype or spec.param_dtype) for name, w in table.items()}
    x = made((length, spec.width), spec.dtype)
    return params, x, forest, x


def compiled(spec, length):
    return jax.jit(layer_gradient(spec)).lower(*abstract_case(spec, length)).compile()


def cut_small(monkeypatch, spec, tokens, heads):
    """Rows of any length go in groups of `tokens` tokens, with `heads` key heads at once."""
    width = spec.linear_value_heads * spec.linear_value_dim
    monkeypatch.setattr(long_rows, "WHOLE", 0)
    monkeypatch.setattr(long_rows, "GROUP", tokens * width)
    monkeypatch.setattr(long_rows, "SHARE", tokens * width * heads // spec.linear_key_heads)


def test_parts_of_the_4b():
    spec = specs.qwen35_4b()
    assert long_rows.parts(spec, 8192, 64) is None
    assert long_rows.parts(spec, 32768, 64) == long_rows.Parts(8, 8, 512, 8)
    # 24,576 = 48 groups; 6 is the largest divisor of 48 below its root.
    assert long_rows.parts(spec, 24576, 64) == long_rows.Parts(8, 6, 512, 8)
    assert long_rows.parts(specs.tiny(64), 65536, 8) is None


@pytest.mark.parametrize("tokens, heads", [(16, 1), (32, 2)])
def test_parts_equal_the_row_at_once(monkeypatch, tokens, heads):
    """Random trees in two rows: forks and slots across groups, tails of one to three tokens."""
    forest = packed(11)
    rng = np.random.default_rng(0)
    draw = lambda shape: jnp.asarray(0.4 * rng.normal(size=shape), jnp.float32)
    params = {name: draw(w.shape) for name, w in deltanet.table(SPEC).items()}
    params["a_log"] = jnp.log(jnp.asarray(rng.uniform(0.01, 0.3, 4), jnp.float32))
    x = draw((256, SPEC.width))
    dy = draw(x.shape) * forest.valid.reshape(-1, 1)
    want = jax.jit(layer_gradient(SPEC))(params, x, forest, dy)
    cut_small(monkeypatch, SPEC, tokens, heads)
    cut = long_rows.parts(SPEC, 128, 4)
    assert (cut.tokens, cut.shares) == (tokens, 2 // heads) and cut.stages > 1
    got = jax.jit(layer_gradient(SPEC))(params, x, forest, dy)
    real = forest.valid.reshape(-1, 1)
    np.testing.assert_allclose(got[0] * real, want[0] * real, atol=1e-5)
    for name, a in got[1][0].items():
        b = want[1][0][name]
        assert float(jnp.abs(b).max()) > 0
        np.testing.assert_allclose(a, b, atol=1e-5 * float(jnp.abs(b).max()), err_msg=name)
    np.testing.assert_allclose(got[1][1], want[1][1], atol=1e-5 * float(jnp.abs(want[1][1]).max()))


def test_parts_take_an_eighth_of_the_memory(monkeypatch):
    """At an eighth of the 4B's heads."""
    spec = dataclasses.replace(
        specs.qwen35_4b(),
        linear_key_heads=2,
        linear_value_heads=4,
        width=320,
        dtype="float32",
        param_dtype="float32",
    )
    whole = compiled(spec, 4096).memory_analysis().temp_size_in_bytes
    cut_small(monkeypatch, spec, 256, 1)
    program = compiled(spec, 4096)
    assert program.memory_analysis().temp_size_in_bytes < whole / 8
    assert not big(program.as_text(), 4096)


def test_a_row_of_32k_at_the_shapes_of_the_4b():
    """fp32: twice the bytes of the 4B's bf16, which the CPU's compiler would widen whole.

    Compiled only, 12 seconds of one core.
    """
    spec = dataclasses.replace(specs.qwen35_4b(), dtype="float32", param_dtype="float32")
    program = compiled(spec, 32768)
    assert program.memory_analysis().temp_size_in_bytes <= 256 * MIB
    assert not big(program.as_text(), 32768)
