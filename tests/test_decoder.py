"""The decoder: recurrence against chunks, forests against single paths, scan against a loop."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mimesis_jax import types
from mimesis_jax.models import context, decoder, heads
from mimesis_jax.models import spec as specs

VOCAB = 40


def small(chunk=8, **changes):
    spec = specs.tiny(VOCAB, periods=changes.pop("periods", 1), chunk=chunk, width=32, mlp=48)
    return dataclasses.replace(
        spec,
        heads=4,
        head_dim=8,
        rotary_dim=4,
        linear_key_heads=2,
        linear_value_heads=4,
        linear_key_dim=8,
        linear_value_dim=6,
        init_std=0.2,
        **changes,
    )


# These programs run for milliseconds, and compile twice as fast without optimisations.
FAST = {"xla_backend_optimization_level": 0}


def draw(spec, seed=0):
    """Random parameters, drawn by numpy (nothing to compile), decay heads slow."""
    rng = np.random.default_rng(seed)
    fill = lambda leaf: jnp.asarray(0.2 * rng.normal(size=leaf.shape), leaf.dtype)
    return slow(jax.tree.map(fill, decoder.abstract(spec)), seed)


def slow(params, seed=7):
    """Params with slow-decay heads (A_log = log of 0.01..0.3): fast decay would hide leaks."""

    def change(path, leaf):
        if path[-1].key != "a_log":
            return leaf
        rng = np.random.default_rng(seed)
        return jnp.asarray(np.log(rng.uniform(0.01, 0.3, leaf.shape)), jnp.float32)

    return jax.tree_util.tree_map_with_path(change, params)


def forest(rows, chunk, width=None):
    """A plain packer for tests: every segment that has children stores in a slot of its own.

    rows: per row a list of (ids, parent index), already in depth-first order.
    """
    sized = [[-(-len(ids) // chunk) * chunk for ids, _ in row] for row in rows]
    width = width or max(sum(sizes) for sizes in sized)
    slots = max(len(row) for row in rows)
    count = width // chunk
    new = lambda fill, *shape: np.full((len(rows), *shape), fill, np.int32)
    tokens, position, last = new(0, width), new(0, width), new(0, width)
    halo, load, store = new(width, count, 3), new(-1, count), new(-1, count)
    valid = np.zeros((len(rows), width), bool)
    for b, (row, sizes) in enumerate(zip(rows, sized, strict=True)):
        starts = np.cumsum([0, *sizes])
        ends = list(starts[1:])
        for i in reversed(range(len(row))):  # a parent ends where its last descendant does
            if row[i][1] >= 0:
                ends[row[i][1]] = max(ends[row[i][1]], ends[i])
        paths = []
        for i, (ids, parent) in enumerate(row):
            above = paths[parent] if parent >= 0 else []
            own = list(range(starts[i], starts[i] + len(ids)))
            paths.append(above + own)
            tokens[b, own], valid[b, own] = ids, True
            position[b, own] = np.arange(len(above), len(above) + len(ids))
            last[b, starts[i] : starts[i + 1]] = ends[i]
            for c in range(starts[i] // chunk, starts[i + 1] // chunk):
                before = (above + own[: c * chunk - starts[i]])[-3:]
                if before:
                    halo[b, c, 3 - len(before) :] = before
            load[b, starts[i] // chunk] = parent if parent >= 0 else slots
            if any(p == i for _, p in row):
                store[b, starts[i + 1] // chunk - 1] = i
    zero = np.zeros((len(rows), 1), np.int32)
    arrays = [tokens, valid, position, last, halo, load, store, zero, zero, *[zero * 0.0] * 5]
    return types.Forest(*(jnp.asarray(a) for a in arrays), slots=slots)


def ids(rng, *lengths):
    return [rng.integers(0, VOCAB, n) for n in lengths]


def line(tokens, chunk):
    """One sequence alone in a row."""
    return forest([[(tokens, -1)]], chunk)


def _logits(spec, params, trees):
    return heads.logits(spec, params, decoder.hidden(spec, params, trees))


logits = jax.jit(_logits, static_argnums=0, compiler_options=FAST)


# --- forests ----------------------------------------------------------------------------------


def example(rng, chunk):
    """Trunk, branch, continuation; forks after 1 and 2 tokens; a segment exactly C long."""
    a, b, c, d, e, f, g = ids(rng, 11, 5, chunk, 1, 2, 2 * chunk + 1, 3)
    first = [(a, -1), (b, 0), (c, 0), (d, 2), (e, 3), (f, 3)]
    second = [(d, -1), (e, 0), (g, 1), (c, 1), (b, -1), (f, 4)]
    return [first, second]


def alone(row, index):
    """The ids of a segment's whole path, and how many of them lie above it."""
    parts, at = [], index
    while at >= 0:
        parts.append(row[at][0])
        at = row[at][1]
    above = sum(len(p) for p in parts[1:])
    return np.concatenate(parts[::-1]), above


def starts(row, chunk):
    return np.cumsum([0, *(-(-len(ids) // chunk) * chunk for ids, _ in row)])


@functools.partial(jax.jit, static_argnums=0, compiler_options=FAST)
def weighed(spec, params, trees, weight):
    """Gradient of the weighted sum of all logits, and the logits."""

    def total(params):
        out = _logits(spec, params, trees)
        return jnp.sum(out * weight), out

    return jax.grad(total, has_aux=True)(params)


def compare(spec, rows, widths, seed=0):
    """Asserts logits and gradients of the forest equal those of every path run alone.

    widths: of the forest's rows and of the lone paths' rows (fixed, so that jit compiles once).
    """
    chunk = spec.chunk
    params = draw(spec, seed)
    rng = np.random.default_rng(seed)
    trees = forest(rows, chunk, widths[0])
    paths = [(b, i, *alone(row, i)) for b, row in enumerate(rows) for i in range(len(row))]
    # Two empty-handed rows pad the batch of paths to a fixed count.
    lone = [[(path, -1)] for _, _, path, _ in paths]
    lone += [[(np.zeros(1, int), -1)]] * (12 - len(lone))
    batch = forest(lone, chunk, widths[1])
    weight = np.zeros((*trees.tokens.shape, VOCAB), np.float32)
    apart = np.zeros((*batch.tokens.shape, VOCAB), np.float32)
    for n, (b, i, path, above) in enumerate(paths):
        at = starts(rows[b], chunk)[i]
        own = rng.normal(size=(len(path) - above, VOCAB))
        weight[b, at : at + len(own)] = own
        apart[n, above : len(path)] = own
    # In numpy from here: slices of many shapes would each be compiled.
    got, out = jax.tree.map(np.asarray, weighed(spec, params, trees, weight))
    want, single = jax.tree.map(np.asarray, weighed(spec, params, batch, apart))
    for n, (b, i, path, above) in enumerate(paths):
        at = starts(rows[b], chunk)[i]
        here = out[b, at : at + len(path) - above]
        np.testing.assert_allclose(here, single[n, above : len(path)], atol=1e-4)
    for (path, a), b in zip(
        jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True
    ):
        error, scale = np.linalg.norm(a - b), np.linalg.norm(b)
        assert error <= 1e-4 * scale + 1e-6, f"gradient of {path} is off by {error / scale}"


@pytest.mark.parametrize("chunk", [8, 16])
def test_forest_equals_paths_alone(chunk):
    spec = small(chunk, periods=2 if chunk == 8 else 1)
    compare(spec, example(np.random.default_rng(chunk), chunk), (112 * chunk // 8, 64))


@settings(max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate])
@given(st.integers(0, 10_000))
def test_random_forests_equal_paths_alone(seed):
    rng = np.random.default_rng(seed)
    row = []

    def grow(parent, depth):
        row.append((rng.integers(0, VOCAB, rng.choice([1, 2, 3, 4, 7, 8, 9])), parent))
        me = len(row) - 1
        while depth < 6 and len(row) < 8 and rng.random() < 0.6:
            grow(me, depth + 1)

    grow(-1, 0)
    while len(row) < 8:  # more trees in the row
        grow(-1, 0)
    compare(small(4), [row], (96, 56))


def test_chunk_sizes_agree():
    rng = np.random.default_rng(5)
    (tokens,) = ids(rng, 70)
    spec = small(8)
    params = draw(spec, 1)
    outs = [np.asarray(logits(spec, params, line(tokens, c)))[0, :70] for c in (8, 16, 32)]
    np.testing.assert_allclose(outs[1], outs[0], atol=2e-5)
    np.testing.assert_allclose(outs[2], outs[0], atol=2e-5)


def test_other_paths_change_nothing():
    chunk = 8
    rng = np.random.default_rng(6)
    rows = example(rng, chunk)
    spec = small(chunk)
    params = draw(spec, 2)
    run = jax.jit(lambda trees: decoder.hidden(spec, params, trees))
    plain = np.asarray(run(forest(rows, chunk)))
    row = rows[0]
    poisoned = list(row)
    for i in (1, 3, 4, 5):  # all but the path of segment 2: itself and its parent 0
        poisoned[i] = (rng.integers(0, VOCAB, len(row[i][0])), row[i][1])
    other = np.asarray(run(forest([poisoned, rows[1]], chunk)))
    for i in (0, 2):
        at, size = starts(row, chunk)[i], len(row[i][0])
        assert bool((plain[0, at : at + size] == other[0, at : at + size]).all())
    at = starts(row, chunk)[5]
    assert bool((plain[0, at] != other[0, at]).any())


def test_padding_rows_are_finite():
    spec = small(8)
    params = draw(spec, 3)
    trees = forest([[(np.arange(5), -1)]], 8, width=32)
    trees = dataclasses.replace(trees, valid=trees.valid & False)
    grads, out = weighed(spec, params, trees, jnp.ones((1, 32, VOCAB)))
    assert bool(jnp.isfinite(out).all())
    assert all(bool(jnp.isfinite(g).all()) for g in jax.tree.leaves(grads))


def test_scan_and_remat_equal_a_plain_loop():
    spec = small(8, periods=2)
    params = draw(spec, 4)
    trees = forest(example(np.random.default_rng(7), 8)[:1], 8)
    weight = jnp.asarray(np.random.default_rng(8).normal(size=(*trees.tokens.shape, 32)))
    weight = weight * trees.valid[..., None]

    def plain(params):
        model = decoder.module(spec, params)
        shared = context.trees(spec, trees)
        x = model.lookup(trees.tokens.reshape(-1))
        for i in range(spec.periods):
            x = model.period(i)(x, shared)
        return model.normed(x).reshape(weight.shape)

    def run(hidden):
        loss = lambda p: jnp.sum(weight * hidden(p))
        return jax.jit(jax.value_and_grad(loss), compiler_options=FAST)(params)

    value, want = run(plain)
    for remat in (False, True, "dots"):
        got = run(lambda p, r=remat: decoder.hidden(spec, p, trees, remat=r))
        np.testing.assert_allclose(got[0], value, rtol=1e-5, atol=1e-4)
        for a, b in zip(jax.tree.leaves(got[1]), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-4 * np.abs(b).max() + 1e-7)


def test_bfloat16_stays_near_float32():
    spec = small(8)
    params = draw(spec, 5)
    trees = forest(example(np.random.default_rng(9), 8), 8)
    wide = logits(spec, params, trees)
    narrow = dataclasses.replace(spec, dtype="bfloat16")
    shape = jax.eval_shape(lambda: decoder.hidden(narrow, params, trees))
    assert shape.dtype == jnp.bfloat16
    gap = jnp.where(trees.valid[..., None], logits(narrow, params, trees) - wide, 0.0)
    assert 0 < float(jnp.abs(gap).mean()) < 0.03 * float(jnp.abs(wide).mean()) + 0.01


def test_bad_chunk_is_named():
    spec = small(8)
    trees = line(np.arange(24), 8)
    trees = dataclasses.replace(trees, load=trees.load[:, :2])
    with pytest.raises(ValueError, match="24 tokens in 2 chunks"):
        decoder.hidden(spec, draw(spec), trees)
    with pytest.raises(ValueError, match="remat 'some' is unknown: use 'none', 'full' or 'dots'"):
        decoder.hidden(spec, draw(spec), line(np.arange(24), 8), remat="some")
