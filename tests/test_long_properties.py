"""What must hold of forests, through what long rows take: block lists, and parts of linear layers.

The same properties as in test_forest_properties, which holds them for short rows, at small sizes:
blocks of 32 tokens, groups of 16 tokens, one of two heads at a time.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_forest_properties import (
    ALONE,
    HAND,
    INSIDE,
    PARAMS,
    SHAPE,
    SPEC,
    VOCAB,
    apart,
    close,
    forests,
    forward,
    grown,
    run,
)

from mimesis_jax.forest import blocks, pack
from mimesis_jax.models import decoder, heads, long_rows


@pytest.fixture(scope="module", autouse=True)
def small_parts():
    """Rows of SHAPE (192 tokens, 16 wide) are long, those of ALONE (72 tokens) are not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_rows, "WHOLE", 2000)
        patch.setattr(long_rows, "GROUP", 16 * 16)
        patch.setattr(long_rows, "SHARE", 16 * 8)
        assert long_rows.parts(SPEC, ALONE.length, ALONE.chunk) is None
        assert long_rows.parts(SPEC, SHAPE.length, SHAPE.chunk) == long_rows.Parts(4, 3, 16, 2)
        yield


@jax.jit
def graded(params, forest):
    """Log-probs [B, M], and the gradient of their sum weighted by the forest's weights."""

    def total(params):
        hidden = decoder.hidden(SPEC, params, forest, remat="full")
        logp, _ = heads.score(SPEC, params, hidden, forest.source, forest.target)
        return jnp.sum(logp * forest.weight), logp

    grads, logp = jax.grad(total, has_aux=True)(params)
    return logp, grads


used = set()  # shapes that `graded` was given


def long(trees, shape=SHAPE):
    """Log-probs [n_scored] and gradients of the weighted sum, all rows being long."""
    packed = pack.pack(trees, shape)
    used.add(shape)
    results = [graded(PARAMS, blocks.plan(forest, size=32)) for forest in packed.forests]
    grads = jax.tree.map(lambda *g: sum(g), *(g for _, g in results))
    return pack.gather([logp for logp, _ in results], packed), grads


@pytest.mark.parametrize("shape", [SHAPE, INSIDE], ids=["ends", "inside"])
@pytest.mark.parametrize("name", ["thinking turns", "a shared prompt"])
def test_hand_made_forests_score_as_their_paths(name, shape):
    trees = [grown(np.random.default_rng(1), *HAND[name])] * 4  # slots are reused, over groups too
    logp, grads = long(trees, shape)
    wanted, wanted_grads = run(apart(trees), ALONE)
    np.testing.assert_allclose(logp, wanted, atol=1e-4)
    close(grads, wanted_grads, 1e-4)


@given(forests())
@settings(max_examples=15, deadline=None)
def test_random_forests_score_as_their_paths(trees):
    logp, grads = long(trees)
    wanted, wanted_grads = run(apart(trees), ALONE)
    np.testing.assert_allclose(logp, wanted, atol=1e-4)
    close(grads, wanted_grads, 1e-4)
    assert graded._cache_size() == len(used)  # no program anew from row to row


@given(forests())
@settings(max_examples=10, deadline=None)
def test_random_forests_that_fork_inside_chunks_score_as_their_paths(trees):
    logp, grads = long(trees, INSIDE)
    wanted, wanted_grads = run(apart(trees), ALONE)
    np.testing.assert_allclose(logp, wanted, atol=1e-4)
    close(grads, wanted_grads, 1e-4)


@given(forests(), st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_poison_off_the_path_changes_no_bit(trees, seed):
    rng = np.random.default_rng(seed)
    for forest in pack.pack(trees, SHAPE).forests:
        plain = graded(PARAMS, blocks.plan(forest, size=32))[0]
        row, m = (int(i) for i in rng.choice(np.argwhere(forest.weight != 0)))
        place, source = np.arange(SHAPE.length), int(forest.source[row, m])
        path = (place <= source) & (source < forest.last[row]) & forest.valid[row]
        poison = rng.integers(0, VOCAB, forest.tokens.shape).astype(np.int32)
        poison[row] = np.where(path, forest.tokens[row], poison[row])
        changed = blocks.plan(dataclasses.replace(forest, tokens=poison), size=32)
        assert float(graded(PARAMS, changed)[0][row, m]) == float(plain[row, m])


def test_an_unrelated_tree_changes_nothing():
    one, other = (grown(np.random.default_rng(s), *HAND["thinking turns"]) for s in (2, 3))
    alone, both = long([one])[0], long([other, one])[0]
    np.testing.assert_allclose(both[len(both) - len(alone) :], alone, atol=1e-5)


def test_chunks_of_64_are_chunks_of_16():
    """Forked trees; 4 against 16 and 32 is held in test_forest_properties."""
    trees = [grown(np.random.default_rng(5), *HAND[name]) for name in ("thinking turns",)]
    found = []
    for chunk in (16, 64):
        shape = pack.Shape(rows=1, length=448, chunk=chunk, learned=64, slots=1)
        spec = dataclasses.replace(SPEC, chunk=chunk)
        found.append(forward(trees, shape, spec))
    np.testing.assert_allclose(found[1], found[0], atol=1e-4)
