"""Operations of a model: worked by hand, from its parameters, and from its traced program."""

import dataclasses
import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimesis_jax import types
from mimesis_jax.forest import pack
from mimesis_jax.models import decoder, flops, heads
from mimesis_jax.models import spec as specs

DENSE = specs.Spec(
    vocab=50, vocab_real=50, width=16, mlp=24, period=("full",), periods=1, heads=4, kv_heads=2,
    head_dim=8, rotary_dim=8, norm="plain", qk_norm="plain", attn_output_gate=False, chunk=8,
)  # fmt: skip


def test_a_dense_layer_worked_by_hand():
    # q 16 x 32, k and v 16 x 16 each, out 32 x 16: 512 + 256 + 256 + 512 weights.
    found = flops.count(DENSE, tokens=10, pairs=55, learned=3)
    assert found.projections == 2 * 10 * 1536
    assert found.mlp == 2 * 10 * 3 * 16 * 24
    assert found.attention == 55 * (2 * 4 * 8 + 2 * 4 * 8)
    assert found.delta == 0
    assert found.head == 2 * 3 * 16 * 50
    assert found.total == 30720 + 23040 + 7040 + 4800
    assert flops.forward(DENSE, tokens=10, pairs=55, learned=3) == 65600
    assert flops.train(DENSE, tokens=10, pairs=55, learned=3) == 3 * 65600


def test_a_hybrid_worked_by_hand():
    spec = specs.tiny(64, width=8, mlp=16)  # one linear and one full layer, 4 heads of 32
    found = flops.count(spec, tokens=1, pairs=1, learned=1)
    full = 8 * (4 * 2 * 32) + 2 * 8 * (2 * 32) + 4 * 32 * 8  # q with its gate, k, v, out
    linear = 8 * (128 + 128 + 128 + 128 + 4 + 4) + 128 * 8  # q, k, v, z, a, b, out
    assert found.projections == 2 * (full + linear)
    assert found.mlp == 2 * 2 * 3 * 8 * 16
    assert found.attention == 4 * 4 * 32
    assert found.delta == 8 * 4 * 32 * 32
    assert found.head == 2 * 8 * 64


@pytest.mark.parametrize("name", sorted(specs.PRESETS))
def test_without_pairs_it_is_twice_the_weights_of_products(name):
    spec = specs.PRESETS[name]()
    vectors = ("norm", "norm_in", "norm_post", "q_norm", "k_norm", "a_log", "dt_bias")
    taps = ("conv_q", "conv_k", "conv_v", "q_bias", "k_bias", "v_bias")
    weights = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(decoder.abstract(spec)):
        last = path[-1].key
        if last not in (*vectors, *taps) and not (last == "embed" and not spec.tied):
            weights += leaf.size
    core = 8 * spec.linear_value_heads * spec.linear_key_dim * spec.linear_value_dim
    linear = spec.periods * spec.period.count("linear")
    assert flops.forward(spec, tokens=1, pairs=0, learned=1) == 2 * weights + linear * core


def test_decoding_a_line_is_reading_it():
    whole = flops.forward(DENSE, tokens=12, pairs=flops.line(12), learned=12)
    assert whole == sum(flops.decode(DENSE, context=n) for n in range(1, 13))
    assert flops.line(12) == flops.line(5) + flops.line(7, after=5) == 78


@given(st.integers(0, 40), st.integers(0, 40))
def test_pairs_of_a_line_are_counted_one_by_one(tokens, after):
    assert flops.line(tokens, after) == sum(after + i + 1 for i in range(tokens))


def test_a_negative_number_is_refused():
    with pytest.raises(ValueError, match="pairs -1: there are none or some, use 0 or more"):
        flops.forward(DENSE, tokens=1, pairs=-1, learned=1)


@given(st.data())
def test_pairs_of_a_forest_are_those_of_its_mask(data):
    """A token sees its own earlier tokens and those of its segment's ancestors."""
    count = data.draw(st.integers(1, 6))
    segments: list[types.Segment] = []
    for i in range(count):
        parent = data.draw(st.integers(-1 if i == 0 else 0, i - 1)) if i else -1
        ids = np.arange(1, 1 + data.draw(st.integers(1, 9)))
        segments.append(types.segment(ids, parent, scored=ids > 1))
    wanted, depth = 0, []
    for one in segments:
        before = 0 if one.parent < 0 else depth[one.parent]
        wanted += flops.line(len(one), before)
        depth.append(before + len(one))
    packed = pack.pack([tuple(segments)], pack.Shape(2, 256, 8, 128, 8))
    assert sum(flops.pairs(f.valid, f.last) for f in packed.forests) == wanted


# --- against the traced program -----------------------------------------------------------------


def products(jaxpr, batched=True) -> int:
    """Operations of every dot_general of a jaxpr, a scan's body as often as it runs."""
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (inner, _), (batch, _) = equation.params["dimension_numbers"]
            if batched or not batch:
                shape = equation.invars[0].aval.shape
                out = math.prod(equation.outvars[0].aval.shape)
                total += 2 * out * math.prod(shape[i] for i in inner)
        times = equation.params.get("length", 1) if equation.primitive.name == "scan" else 1
        for value in equation.params.values():
            for part in value if isinstance(value, (list, tuple)) else [value]:
                closed = getattr(part, "jaxpr", part)
                if hasattr(closed, "eqns"):
                    total += times * products(closed, batched)
    return total


def traced(spec, length=32):
    ids = np.ones(length, np.int32)
    packed = pack.pack(
        [(types.segment(ids, scored=np.arange(length) > 0),)],
        pack.Shape(1, length, 8, length - 1, 2),
    )

    def forward(params, forest):
        hidden = decoder.hidden(spec, params, forest)
        return heads.score(spec, params, hidden, forest.source, forest.target)

    return jax.make_jaxpr(forward)(decoder.abstract(spec), packed.forests[0]).jaxpr


def test_a_dense_model_does_the_products_that_are_counted():
    # A row this short is one block of attention, so all of its square is done.
    found = products(traced(DENSE))
    assert found == flops.forward(DENSE, tokens=32, pairs=32 * 32, learned=31)


def test_periods_are_counted_as_often_as_they_run():
    three = dataclasses.replace(DENSE, periods=3)
    assert products(traced(three)) == flops.forward(three, tokens=32, pairs=32 * 32, learned=31)


def test_a_hybrid_does_the_products_with_weights_that_are_counted():
    spec = specs.tiny(64, width=16, mlp=32)
    count = flops.count(spec, tokens=32, pairs=0, learned=31)
    assert products(traced(spec), batched=False) == count.projections + count.mlp + count.head
    # The chunked form of the delta rule does more than the recurrence that is counted.
    assert products(traced(spec)) > flops.forward(spec, tokens=32, pairs=32 * 32, learned=31)
