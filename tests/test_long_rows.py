"""Long rows: block lists against the mask they stand for, block attention against the dense one."""

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax.forest import blocks, pack
from mimesis_jax.models import attention, block_attention, decoder, splash
from mimesis_jax.models import spec as specs
from mimesis_jax.types import segment

CHUNK, SIZE = 4, 16
SPEC = dataclasses.replace(
    specs.tiny(40, periods=2, chunk=CHUNK, width=32, mlp=32),
    heads=4, kv_heads=2, head_dim=8, rotary_dim=4, linear_key_heads=2, linear_value_heads=4,
    linear_key_dim=8, linear_value_dim=8, init_std=0.2,
)  # fmt: skip
SHAPE = pack.Shape(rows=2, length=128, chunk=CHUNK, learned=1, slots=4)


def grown(rng, count=7):
    """A random tree of random ids; nothing is scored."""
    parents = [-1] + [int(rng.integers(max(0, i - 3), i)) for i in range(1, count)]
    return tuple(segment(rng.integers(0, 40, rng.integers(1, 15)), parent) for parent in parents)


def packed(seed, shape=SHAPE):
    """One forest of random trees that fill most of two rows."""
    rng = np.random.default_rng(seed)
    trees = [grown(rng) for _ in range(int(rng.integers(1, 4)))]
    return pack.pack(trees, shape).forests[0]


def mask_of(forest):
    """[B, T, T] bool by the definition: t sees s; padding sees itself."""
    token = np.arange(forest.tokens.shape[1])
    last = blocks.seen(forest)
    return (token[None, :, None] >= token) & (token[None, :, None] < last[:, None, :])


def tiles(mask, size):
    """[B, n, n, size, size], the mask cut into blocks."""
    rows, length = mask.shape[:2]
    count = length // size
    return mask.reshape(rows, count, size, count, size).swapaxes(2, 3)


# --- the lists --------------------------------------------------------------------------------


def test_plan_by_hand():
    """Trunk of 3, a branch of 2 and a continuation of 3 in blocks of 4; then a tree of 2."""
    trunk, branch, after = segment([1, 2, 3]), segment([4, 5], 0), segment([6, 7, 8], 0)
    other = (segment([9, 10]),)
    shape = pack.Shape(rows=1, length=16, chunk=4, learned=1, slots=1)
    (forest,) = pack.pack([(trunk, branch, after), other], shape).forests
    lists = blocks.plan(forest, size=4).blocks
    # Block 0 (trunk) is seen by 1 and 2; block 1 (branch) by itself; block 3 is the other tree.
    assert lists.count.tolist() == [6] and lists.query.shape == (1, 10)
    pairs = list(zip(lists.query[0, :6].tolist(), lists.key[0, :6].tolist(), strict=True))
    assert pairs == [(0, 0), (1, 1), (1, 0), (2, 2), (2, 0), (3, 3)]
    assert lists.query[0, 6:].tolist() == [3] * 4 and lists.edges is None


@given(st.integers(0, 10_000), st.sampled_from([4, 16, 32]))
@settings(max_examples=60, deadline=None)
def test_lists_are_the_blocks_with_an_allowed_pair(seed, size):
    forest = packed(seed)
    cut = tiles(mask_of(forest), size)
    lists = blocks.plan(forest, size=size, kernel="loop").blocks
    assert lists.query.shape == (2, blocks.pair_count(128, size))
    for b in range(2):
        count = int(lists.count[b])
        pairs = list(zip(lists.query[b, :count], lists.key[b, :count], strict=True))
        assert set(pairs) == {tuple(p) for p in np.argwhere(cut[b].any((2, 3)))}
        assert len(set(pairs)) == count
        queries = [q for q, _ in pairs]
        assert queries == sorted(queries)
        firsts = [pairs[queries.index(q)] for q in range(128 // size)]
        assert firsts == [(q, q) for q in range(128 // size)]


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_edges_are_the_partly_visible_blocks(seed):
    shape = dataclasses.replace(SHAPE, length=512)
    rng = np.random.default_rng(seed)
    one = (segment(np.arange(200)), *(segment(np.arange(rng.integers(1, 140)), 0) for _ in "ab"))
    forest = pack.pack([one], shape).forests[0]
    cut = tiles(mask_of(forest), 128)
    lists = blocks.plan(forest, size=128, kernel="splash").blocks
    assert lists.edges.shape[1] & (lists.edges.shape[1] - 1) == 0
    for b in range(2):
        own = lists.edges[b][lists.edges[b] < lists.query.shape[1]]
        assert (own < lists.count[b]).all()
        partial = {(int(lists.query[b, e]), int(lists.key[b, e])) for e in own}
        some, every = cut[b].any((2, 3)), cut[b].all((2, 3))
        assert partial == {tuple(p) for p in np.argwhere(some & ~every).tolist()}


def test_long_rows_are_packed_with_their_lists():
    line = (segment(np.arange(600) % 40),)
    short = pack.Shape(rows=1, length=1024, chunk=8, learned=1, slots=1)
    assert pack.pack([line], short).forests[0].blocks is None
    (forest,) = pack.pack([line], dataclasses.replace(short, dense=512)).forests
    assert forest.blocks.size == blocks.SIZE
    assert forest.blocks.count.tolist() == [1 + 2 + 3 + 1]
    with pytest.raises(ValueError, match=r"length 1000 is more than dense \(512\).*use 1024"):
        dataclasses.replace(short, length=1000, dense=512)
    (fine,) = pack.pack([line], dataclasses.replace(short, dense=512, block=64)).forests
    assert fine.blocks.size == 64
    assert fine.blocks.count.tolist() == [sum(range(1, 11)) + 6]  # 600 tokens, then 6 empty blocks
    with pytest.raises(ValueError, match=r"length 992 .* not a multiple of 64.*use 1024"):
        dataclasses.replace(short, length=992, dense=512, block=64)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (dict(size=48), "blocks of 48 tokens do not divide a row of 128"),
        (dict(size=16, kernel="splash"), "takes multiples of 128"),
        (dict(size=16, kernel="flash"), "kernel 'flash' is unknown"),
    ],
)
def test_plan_refuses(wrong, words):
    with pytest.raises(ValueError, match=words):
        blocks.plan(packed(0), **wrong)


# --- attention --------------------------------------------------------------------------------


def inputs(rng, length, heads=4, keys=2, dim=8, batch=2):
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    own = draw(batch, length, heads, dim), draw(batch, keys, length, dim)
    return (*own, draw(batch, keys, length, dim)), draw(batch, length, heads * dim)


def with_gradients(attend, xs, weight):
    """attend(*xs) and the gradients of its sum weighted by weight."""

    def total(xs):
        out = attend(*xs)
        return jnp.sum(out * weight), out

    grads, out = jax.grad(total, has_aux=True)(xs)
    return out, grads


LISTED = jax.jit(
    lambda xs, weight, last, lists: with_gradients(
        lambda *xs: block_attention.attend(*xs, last, lists), xs, weight
    )
)
DENSE = jax.jit(
    lambda xs, weight, mask: with_gradients(
        lambda *xs: attention._attend_causally(*xs, mask), xs, weight
    )
)


@given(st.integers(0, 10_000))
@settings(max_examples=25, deadline=None)
def test_block_attention_equals_dense(seed):
    forest = packed(seed)
    xs, weight = inputs(np.random.default_rng(seed), 128)
    got = LISTED(xs, weight, blocks.seen(forest), blocks.plan(forest, size=SIZE).blocks)
    want = DENSE(xs, weight, mask_of(forest))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * max(1.0, float(jnp.abs(b).max())))
    assert LISTED._cache_size() == 1  # rows differ, programs do not


def test_one_token_a_block_by_hand():
    """Two keys seen with scores ln 1 and ln 3, then a branch's token that sees the first only."""
    one = (segment([1]), segment([2], 0), segment([3], 0))
    shape = pack.Shape(rows=1, length=3, chunk=1, learned=1, slots=1)
    (forest,) = pack.pack([one], shape).forests
    keys = jnp.asarray([0.0, np.log(3.0), 9.0]).reshape(1, 1, 3, 1)
    values = jnp.asarray([1.0, 5.0, 2.0]).reshape(1, 1, 3, 1)
    q = jnp.ones((1, 3, 1, 1))
    lists = blocks.plan(forest, size=1).blocks
    out = block_attention.attend(q, keys, values, jnp.asarray(forest.last), lists)
    third = (1.0 + 2.0 * np.exp(9.0)) / (1.0 + np.exp(9.0))
    np.testing.assert_allclose(out[0, :, 0], [1.0, (1.0 + 3.0 * 5.0) / 4.0, third], rtol=1e-6)


def test_the_decoder_is_the_same_over_lists():
    """Scan over periods, remat, grouped heads, output gates and RoPE included."""
    forest = packed(3)
    params = decoder.init(SPEC, jax.random.key(0))
    weight = np.random.default_rng(0).normal(size=(2, 128, 32)) * forest.valid[..., None]

    def run(forest, remat):
        loss = lambda p: jnp.sum(weight * decoder.hidden(SPEC, p, forest, remat=remat))
        return jax.jit(jax.value_and_grad(loss))(params)

    got, want = run(blocks.plan(forest, size=SIZE), True), run(forest, False)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * float(np.abs(b).max()) + 1e-7)


def test_bfloat16_scores_are_summed_wide():
    forest = packed(5)
    xs, weight = inputs(np.random.default_rng(5), 128)
    narrow = jax.tree.map(lambda x: x.astype(jnp.bfloat16), xs)
    lists = blocks.plan(forest, size=SIZE).blocks
    got = jax.jit(block_attention.attend)(*narrow, blocks.seen(forest), lists)
    assert got.dtype == jnp.bfloat16
    want = attention._attend(*(x.astype(jnp.float32) for x in narrow), mask_of(forest))
    assert float(jnp.abs(got - want).max()) < 0.03


def big(text, length):
    """Shapes in a program's text that have two axes of the row's length, or one of its square."""
    shapes = {tuple(map(int, found.split(","))) for found in re.findall(r"\[([\d,]+)\]", text)}
    return [s for s in shapes if sum(d == length for d in s) > 1 or length**2 in s]


def test_no_array_has_two_axes_of_the_row():
    length = 384  # no other size of the program
    forest = packed(1, dataclasses.replace(SHAPE, length=length))
    params = decoder.init(SPEC, jax.random.key(0))
    loss = lambda p, f: jnp.sum(decoder.hidden(SPEC, p, f) ** 2)
    text = lambda f: jax.jit(jax.grad(loss)).lower(params, f).as_text("hlo")
    assert big(text(forest), length)
    assert not big(text(blocks.plan(forest, size=SIZE)), length)


# --- the kernel for TPUs ----------------------------------------------------------------------


def splash_case():
    shape = pack.Shape(rows=2, length=512, chunk=CHUNK, learned=1, slots=2)
    rng = np.random.default_rng(7)
    grow = lambda *sizes: tuple(
        segment(rng.integers(0, 9, n), parent) for n, parent in zip(sizes, (-1, 0, 0), strict=True)
    )
    forest = pack.pack([grow(150, 90, 200), grow(40, 300, 100)], shape).forests[0]
    planned = blocks.plan(forest, size=128, kernel="splash")
    return planned, *inputs(rng, 512, heads=2, keys=1, dim=128)


def test_the_splash_kernel_takes_the_tree_mask():
    forest, xs, weight = splash_case()
    last = jnp.asarray(blocks.seen(forest))
    run = lambda *xs: splash.attend(*xs, last, forest.blocks, interpret=True)
    got = jax.jit(lambda xs: with_gradients(run, xs, weight))(xs)
    want = DENSE(xs, weight, mask_of(forest))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5 * max(1.0, float(jnp.abs(b).max())))


def test_the_splash_kernel_lowers_for_a_tpu():
    forest, xs, weight = splash_case()

    def run(xs, last, lists):
        return with_gradients(lambda *xs: splash.attend(*xs, last, lists), xs, weight)[1]

    exported = jax.export.export(jax.jit(run), platforms=["tpu"])(
        xs, jnp.asarray(blocks.seen(forest)), jax.tree.map(jnp.asarray, forest.blocks)
    )
    assert exported.mlir_module().count("tpu_custom_call") >= 3


def test_splash_needs_edges():
    forest, xs, _ = splash_case()
    lists = dataclasses.replace(forest.blocks, edges=None)
    with pytest.raises(ValueError, match="plan them with kernel='splash'"):
        splash.attend(*xs, jnp.asarray(blocks.seen(forest)), lists)
