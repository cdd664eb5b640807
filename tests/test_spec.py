"""Specs and parameters: counts of the real models, axes, initial values, faults that are named."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_decoder import small

from mimesis_jax.models import decoder, rope
from mimesis_jax.models import spec as specs


@pytest.mark.parametrize(
    "make, count",
    [
        (specs.qwen35_0_8b, 752_393_024),
        (specs.qwen35_2b, 1_881_825_088),
        (specs.qwen35_4b, 4_205_751_296),
        (specs.qwen35_9b, 8_953_803_264),
    ],
)
def test_parameter_counts(make, count):
    assert decoder.parameter_count(make()) == count


FULL = dict(period=("full",), norm="plain", attn_output_gate=False)
FAMILIES = {
    "qwen3-4b": (
        dict(vocab=151936, width=2560, mlp=9728, periods=36, heads=32, kv_heads=8, head_dim=128),
        dict(qk_norm="plain", rope_theta=1e6),
        4_022_468_096,
    ),
    "qwen2.5-7b": (
        dict(vocab=152064, width=3584, mlp=18944, periods=28, heads=28, kv_heads=4, head_dim=128),
        dict(qk_norm=None, qkv_bias=True, tied=False),
        7_615_616_512,
    ),
    "llama-3.1-8b": (
        dict(vocab=128256, width=4096, mlp=14336, periods=32, heads=32, kv_heads=8, head_dim=128),
        dict(qk_norm=None, tied=False, rope_scaling=specs.Llama3Scaling()),
        8_030_261_248,
    ),
    "smollm2-135m": (
        dict(vocab=49152, width=576, mlp=1536, periods=30, heads=9, kv_heads=3, head_dim=64),
        dict(qk_norm=None),
        134_515_008,
    ),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_switches_cover_the_other_families(name):
    sizes, switches, count = FAMILIES[name]
    spec = specs.Spec(
        vocab_real=sizes["vocab"], rotary_dim=sizes["head_dim"], **sizes, **switches, **FULL
    )
    assert decoder.parameter_count(spec) == count


def test_axes_name_every_dimension():
    spec = small(8, tied=False, qkv_bias=True)
    shapes, axes = decoder.abstract(spec), decoder.axes(spec)
    is_axes = lambda x: isinstance(x, tuple)
    assert jax.tree.structure(axes, is_leaf=is_axes) == jax.tree.structure(shapes)
    for name, leaf in zip(
        jax.tree.leaves(axes, is_leaf=is_axes), jax.tree.leaves(shapes), strict=True
    ):
        assert len(name) == leaf.ndim
    assert axes["periods"]["layer0"]["mixer"]["a_log"] == ("periods", "linear_values")


def test_init_depends_on_key_and_path_only():
    one = decoder.init(small(8), jax.random.key(0))
    two = decoder.init(small(8, tied=False), jax.random.key(0))
    assert bool((one["embed"] == two["embed"]).all())
    assert bool((two["head"] != two["embed"]).any())
    other = decoder.init(small(8), jax.random.key(1))
    assert bool((one["embed"] != other["embed"]).any())
    kept = decoder.init(small(8, param_dtype="bfloat16"), jax.random.key(0))
    mixer = kept["periods"]["layer0"]["mixer"]
    assert (mixer["q"].dtype, mixer["a_log"].dtype) == (jnp.bfloat16, jnp.float32)


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(vocab_real=99), "vocab_real 99 exceeds"),
        (dict(heads=3), "heads 3 is not a multiple of kv_heads 2"),
        (dict(rotary_dim=5), "rotary_dim 5"),
        (dict(chunk=12), "chunk 12 is not a power of two"),
        (dict(period=("sparse",)), "sparse"),
        (dict(linear_value_heads=3), "linear_value_heads 3"),
        (dict(norm="layer"), "norm 'layer'"),
        (dict(dtype="float16"), "float16"),
        (dict(periods=0), "periods is 0"),
    ],
)
def test_bad_specs_name_the_fault(changes, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(small(8), **changes)


def test_rope_by_hand():
    spec = small(8)  # rotary_dim 4, theta 1e4: frequencies 1 and 0.01
    np.testing.assert_allclose(rope.frequencies(spec), [1.0, 0.01], rtol=1e-6)
    cos, sin = rope.angles(spec, jnp.asarray([np.pi / 2 * 2]))
    x = jnp.arange(1.0, 9.0).reshape(1, 1, 8)
    out = rope.rotate(x, cos, sin)[0, 0]
    small_turn = np.pi * 0.01
    want = [-1.0, 2 * np.cos(small_turn) - 4 * np.sin(small_turn), -3.0]
    want += [4 * np.cos(small_turn) + 2 * np.sin(small_turn), 5.0, 6.0, 7.0, 8.0]
    np.testing.assert_allclose(out, want, atol=1e-5)


def test_llama3_scaling_by_hand():
    scaling = specs.Llama3Scaling(factor=8.0, original_length=100)
    spec = dataclasses.replace(small(8), rope_theta=1e4, rope_scaling=scaling)
    # Wavelengths 6.28 (< 100 / 4: kept) and 628 (> 100 / 1: slowed eightfold).
    np.testing.assert_allclose(rope.frequencies(spec), [1.0, 0.01 / 8], rtol=1e-6)
