"""What must hold of forests through the decoder: every segment scores as on its path alone.

All shapes are fixed, so that nothing compiles anew for an example; decay is slow, so that a state
that leaks is still there to be seen; weights are large, so that a leak moves a log-prob.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax.forest import pack, tree
from mimesis_jax.models import cache, decoder, heads
from mimesis_jax.models import spec as specs
from mimesis_jax.types import segment

CHUNK, VOCAB = 4, 61
SPEC = dataclasses.replace(
    specs.tiny(64, VOCAB, chunk=CHUNK, width=32, mlp=32),
    heads=2, kv_heads=1, head_dim=16, rotary_dim=8, linear_key_heads=2, linear_value_heads=2,
    linear_key_dim=8, linear_value_dim=8, init_std=0.2,
)  # fmt: skip
SHAPE = pack.Shape(rows=2, length=192, chunk=CHUNK, learned=160, slots=4)
INSIDE = dataclasses.replace(SHAPE, inside=True)
ALONE = pack.Shape(rows=8, length=72, chunk=CHUNK, learned=72, slots=1)  # 6 generations of 3C
LENGTHS = (1, 2, 3, 4, 5, 8, 11, 12)


def parameters():
    """Random parameters with slow decay: A in 0.01..0.3, where fast decay would hide leaks."""
    params = decoder.init(SPEC, jax.random.key(0))
    params["periods"]["layer0"]["mixer"]["a_log"] = jnp.log(jnp.array([[0.01, 0.3]]))
    return params


PARAMS = parameters()


@functools.partial(jax.jit, static_argnums=0)
def plainly(spec, params, forest):
    """Log-probs [B, M] alone: a program that compiles sooner, for shapes used once."""
    hidden = decoder.hidden(spec, params, forest)
    return heads.score(spec, params, hidden, forest.source, forest.target)[0]


@functools.partial(jax.jit, static_argnums=0)
def graded(spec, params, forest):
    """Log-probs [B, M], and the gradient of their sum weighted by the forest's weights."""

    def total(params):
        hidden = decoder.hidden(spec, params, forest)
        logp, _ = heads.score(spec, params, hidden, forest.source, forest.target)
        return jnp.sum(logp * forest.weight), logp

    grads, logp = jax.grad(total, has_aux=True)(params)
    return logp, grads


def run(trees, shape, spec=SPEC):
    """Log-probs [n_scored] and gradients of the weighted sum, over all micro-batches."""
    packed = pack.pack(trees, shape)
    results = [graded(spec, PARAMS, forest) for forest in packed.forests]
    grads = jax.tree.map(lambda *g: sum(g), *(g for _, g in results))
    return pack.gather([logp for logp, _ in results], packed), grads


def forward(trees, shape, spec=SPEC):
    """Log-probs [n_scored] only."""
    packed = pack.pack(trees, shape)
    return pack.gather([plainly(spec, PARAMS, forest) for forest in packed.forests], packed)


def apart(trees):
    """The naive expansion: each segment's path as a line of its own, only its own tokens scored."""
    lines = []
    for one in trees:
        for i, part in enumerate(one):
            path = tree.path(one, i)
            marks = np.zeros(len(path.ids), bool)
            marks[path.scored] = True
            weight = np.zeros(len(path.ids))
            weight[path.scored] = part.weight[part.scored]
            lines.append((segment(path.ids, scored=marks, weight=weight),))
    return [line for line in lines if line[0].scored.any()]


def grown(rng, parents, lengths):
    """A tree with random ids and weights, everything scored but the root's first token."""
    made = []
    for parent, size in zip(parents, lengths, strict=True):
        scored = np.ones(size, bool)
        scored[0] = parent >= 0
        ids, weight = rng.integers(0, VOCAB, size), rng.normal(size=size)
        made.append(segment(ids, parent, scored=scored, weight=weight))
    return tuple(made)


@st.composite
def forests(draw, most=3):
    """Depth up to 6, up to 4 children, lengths 1..3C with 1 and C among them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    trees = []
    for _ in range(draw(st.integers(1, most))):
        parents, depth, children = [-1], [1], [0]
        for i in range(1, draw(st.integers(1, 10))):
            open_ = [k for k in range(i) if depth[k] < 6 and children[k] < 4]
            parent = draw(st.sampled_from(open_))
            parents.append(parent)
            depth.append(depth[parent] + 1)
            children[parent] += 1
            children.append(0)
        lengths = [draw(st.sampled_from(LENGTHS)) for _ in parents]
        lengths[0] += sum(lengths) == 1  # a tree of one token scores nothing
        trees.append(grown(rng, parents, lengths))
    return trees


def close(found, wanted, tolerance):
    """Each gradient within `tolerance` of the largest entry of the wanted one's whole pytree."""
    scale = max(float(jnp.abs(g).max()) for g in jax.tree.leaves(wanted))
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance * scale)


HAND = {
    "fork after a root of one token": ([-1, 0, 0], [1, 5, 6]),
    "fork after parents of one and two tokens": ([-1, 0, 0, 1, 1, 3, 3], [2, 1, 4, 2, 3, 1, 5]),
    "segments exactly a chunk long": ([-1, 0, 0, 2, 2], [4, 4, 8, 4, 12]),
    "thinking turns": ([-1, 0, 0, 2, 2, 4, 4], [9, 6, 3, 7, 3, 5, 2]),
    "a shared prompt": ([-1, 0, 0, 0, 0, 1, 1, 2, 2], [7, 4, 5, 6, 8, 3, 3, 2, 9]),
}


@pytest.mark.parametrize("shape", [SHAPE, INSIDE], ids=["ends", "inside"])
@pytest.mark.parametrize("name", HAND)
def test_hand_made_forests_score_as_their_paths(name, shape):
    trees = [grown(np.random.default_rng(1), *HAND[name])] * 4  # two a row: the second reuses slots
    logp, grads = run(trees, shape)
    wanted, wanted_grads = run(apart(trees), ALONE)
    np.testing.assert_allclose(logp, wanted, atol=1e-4)
    close(grads, wanted_grads, 1e-4)


@pytest.mark.parametrize("shape", [SHAPE, INSIDE], ids=["ends", "inside"])
@given(trees=forests())
@settings(max_examples=60, deadline=None)
def test_random_forests_score_as_their_paths(shape, trees):
    logp, grads = run(trees, shape)
    wanted, wanted_grads = run(apart(trees), ALONE)
    np.testing.assert_allclose(logp, wanted, atol=1e-4)
    close(grads, wanted_grads, 1e-4)


def test_a_tree_cut_over_rows_scores_as_its_paths():
    one = grown(np.random.default_rng(2), [-1, *[0] * 6, *range(1, 7)], [12, *[11] * 6, *[11] * 6])
    assert len(pack.blocks(one, ALONE)) > 1 and sum(map(len, one)) > ALONE.length
    logp, grads = run([one], ALONE)
    wanted, wanted_grads = run(apart([one]), ALONE)
    np.testing.assert_allclose(logp, wanted, atol=1e-4)
    close(grads, wanted_grads, 1e-4)


@given(forests(most=2), forests(most=1), st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None)
def test_an_unrelated_tree_changes_nothing(trees, other, random):
    alone, _ = run(trees, SHAPE)
    joined = [*other, *trees] if random.random() < 0.5 else [*trees, *other]
    both, _ = run(joined, SHAPE)
    start = tree.scored_count(other) if joined[0] is other[0] else 0
    np.testing.assert_allclose(both[start : start + len(alone)], alone, atol=1e-5)


def test_sibling_order_and_more_padding_change_nothing():
    """Siblings of one length lie in the order of their numbers, so swapping them moves them."""
    one = grown(np.random.default_rng(3), [-1, 0, 0, 1, 1, 2, 2], [5, 6, 6, 3, 3, 3, 3])
    swapped = tuple(
        dataclasses.replace(one[i], parent=p)
        for i, p in [(0, -1), (2, 0), (1, 0), (6, 1), (5, 1), (4, 2), (3, 2)]
    )
    tokens = lambda t: pack.pack([t], SHAPE).forests[0].tokens
    assert (tokens(one) != tokens(swapped)).any()
    plain, grads = run([one], SHAPE)
    moved, moved_grads = run([swapped], SHAPE)
    cut = np.cumsum([0] + [int(s.scored.sum()) for s in swapped])
    back = [moved[cut[i] : cut[i + 1]] for i in (0, 2, 1, 6, 5, 4, 3)]
    np.testing.assert_allclose(np.concatenate(back), plain, atol=1e-5)
    close(moved_grads, grads, 1e-5)
    longer = dataclasses.replace(SHAPE, length=SHAPE.length + 64, rows=1)
    np.testing.assert_allclose(forward([one], longer), plain, atol=1e-5)


def renumbered(one, rng):
    """The tree with its segments in another order, parents still first; and where each went."""
    left, order = list(range(len(one))), []
    while left:
        ready = [i for i in left if one[i].parent < 0 or one[i].parent in order]
        order.append(int(rng.choice(ready)))
        left.remove(order[-1])
    place = {-1: -1} | {i: k for k, i in enumerate(order)}
    return tuple(dataclasses.replace(one[i], parent=place[one[i].parent]) for i in order), order


def by_segment(values, trees):
    """[n_scored] values as a list for each tree of a list for each segment."""
    sizes = [int(part.scored.sum()) for one in trees for part in one]
    cut = iter(np.split(values, np.cumsum(sizes)[:-1]))
    return [[next(cut) for _ in one] for one in trees]


@given(forests(most=2), st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_any_order_of_siblings_and_any_padding_score_alike(trees, seed):
    rng = np.random.default_rng(seed)
    plain = forward(trees, SHAPE)
    moved, orders = zip(*(renumbered(one, rng) for one in trees), strict=True)
    found = by_segment(forward(moved, SHAPE), moved)
    for was, now, order in zip(by_segment(plain, trees), found, orders, strict=True):
        for k, i in enumerate(order):
            np.testing.assert_allclose(now[k], was[i], atol=1e-5)
    longer = dataclasses.replace(SHAPE, length=SHAPE.length + 64)
    np.testing.assert_allclose(forward(trees, longer), plain, atol=1e-5)


@given(forests(), st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_poison_off_the_path_changes_no_bit(trees, seed):
    """Other ids everywhere but on one segment's path leave its log-probs bit-equal."""
    rng = np.random.default_rng(seed)
    packed = pack.pack(trees, SHAPE)
    plain = [graded(SPEC, PARAMS, forest)[0] for forest in packed.forests]
    for forest, logp in zip(packed.forests, plain, strict=True):
        row, m = (int(i) for i in rng.choice(np.argwhere(forest.weight != 0)))
        place = np.arange(SHAPE.length)
        source = int(forest.source[row, m])
        path = (place <= source) & (source < forest.last[row]) & forest.valid[row]
        poison = rng.integers(0, VOCAB, forest.tokens.shape).astype(np.int32)
        poison[row] = np.where(path, forest.tokens[row], poison[row])
        changed = dataclasses.replace(forest, tokens=poison)
        found = graded(SPEC, PARAMS, changed)[0]
        assert float(found[row, m]) == float(logp[row, m])


def test_one_segment_a_row_is_the_plain_decoder():
    """Against the decode cache, fed token by token."""
    ids = np.random.default_rng(4).integers(0, VOCAB, (2, 21)).astype(np.int32)
    lines = [(segment(row, scored=np.arange(21) > 0),) for row in ids]
    found, _ = run(lines, SHAPE)
    step = jax.jit(functools.partial(cache.step, SPEC))
    state, wanted = cache.init(SPEC, 2, 32), []
    for t in range(20):
        state, h = step(PARAMS, state, ids[:, t], np.ones(2, bool))
        logits = jax.nn.log_softmax(heads.logits(SPEC, PARAMS, h))
        wanted.append(logits[np.arange(2), ids[:, t + 1]])
    np.testing.assert_allclose(found.reshape(2, 20), np.stack(wanted, 1), atol=1e-4)


@pytest.mark.parametrize("chunk", [16, 32])
def test_chunk_size_changes_nothing(chunk):
    trees = [grown(np.random.default_rng(5), *HAND[name]) for name in HAND]
    wanted, _ = run(trees, SHAPE)
    shape = pack.Shape(rows=1, length=288, chunk=chunk, learned=160, slots=4)
    found = forward(trees, shape, dataclasses.replace(SPEC, chunk=chunk))
    np.testing.assert_allclose(found, wanted, atol=1e-4)
