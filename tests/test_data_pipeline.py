"""The training stream: each item once an epoch, orders that differ, full batches, resumption."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax.data import pipeline
from mimesis_jax.forest import pack
from mimesis_jax.types import segment

SHAPE = pack.Shape(rows=2, length=16, chunk=4, learned=8, slots=1)


@dataclasses.dataclass(frozen=True)
class Item:
    id: str
    token: int
    length: int = 4


def tree(item):
    """One segment of the item's own token; all but the first token learned."""
    return (segment([item.token] * item.length, scored=np.arange(item.length) > 0),)


def items(count, length=4, first=1):
    return [Item(f"i{n}", n, length) for n in range(first, first + count)]


def batches(*sources, shape=SHAPE, seed=0, **more):
    made = [
        pipeline.Source(f"s{n}", *source) if isinstance(source, tuple)
        else pipeline.Source(f"s{n}", source, tree)
        for n, source in enumerate(sources)
    ]  # fmt: skip
    return pipeline.Batches(made, shape, seed=seed, **more)


def heads(forest):
    """The token of every tree of a forest."""
    first = forest.valid & (forest.position == 0)
    return sorted(forest.tokens[first].tolist())


def same(one, two):
    return all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    )


def drawn(stream, count):
    return [stream[i][1].token for i in range(count)]


def test_each_item_once_an_epoch_in_a_new_order():
    stream = pipeline.stream([pipeline.Source("a", items(10), tree)], seed=1)
    epochs = [drawn(stream, 30)[i : i + 10] for i in (0, 10, 20)]
    assert all(sorted(epoch) == list(range(1, 11)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    other = pipeline.stream([pipeline.Source("a", items(10), tree)], seed=2)
    assert drawn(other, 10) != epochs[0]


def test_weights_hold():
    sources = [
        pipeline.Source("a", items(5), tree, weight=3.0),
        pipeline.Source("b", items(50, first=100), tree, weight=1.0),
    ]
    stream = pipeline.stream(sources, seed=0)
    names = [stream[i][0] for i in range(400)]
    assert names.count("a") == 300


def test_a_state_kept_by_one_of_several_processes_still_continues():
    """States of before named a process; the batches of all are one stream now."""
    stream = batches(items(9))
    next(stream)
    state = stream.get_state()
    state["identity"] |= {"process_index": 0, "process_count": 1}
    resumed = batches(items(9))
    resumed.set_state(state)
    assert same(next(resumed), next(stream))


def test_batches_are_full_of_one_shape_and_lose_nothing():
    # Four trees of one chunk fill a row of four: 8 a batch, so 3 batches are an epoch of 24.
    shape = dataclasses.replace(SHAPE, learned=12)
    stream = batches(items(24), shape=shape, window=1)
    epoch = [next(stream) for _ in range(3)]
    assert all(forest.tokens.shape == (2, 16) for forest in epoch)
    assert all(forest.valid.all() for forest in epoch) and stream.filled == 1.0
    assert sorted(sum((heads(forest) for forest in epoch), [])) == list(range(1, 25))
    assert stream.trees == 24


def test_learned_tokens_limit_a_row_too():
    # 3 learned tokens a tree and 8 a row: two trees a row, four a batch.
    assert len(heads(next(batches(items(24))))) == 4


def test_a_waiting_tree_is_first_in_line():
    """Long and short trees: the longest-waiting one is in the next batch, and rows are filled."""
    shape = pack.Shape(rows=1, length=16, chunk=4, learned=16, slots=1)
    mixed = [Item(f"i{n}", n, 12 if n % 2 else 4) for n in range(1, 21)]
    stream = batches(mixed, shape=shape, window=4)
    order = drawn(pipeline.stream([pipeline.Source("s0", mixed, tree)], seed=0), 200)
    waited = 0
    for _ in range(20):
        waiting = stream.get_state()["waiting"]
        batch = heads(next(stream))
        assert len(waiting) <= 4
        if waiting:
            waited += 1
            assert order[waiting[0]] in batch
    assert waited > 15
    assert stream.filled > 0.9  # a batch of the next trees in line would be filled by 0.75


def test_a_tree_with_nothing_to_learn_is_counted():
    dull = lambda item: (
        (segment([item.token] * 3, scored=False),) if item.token == 2 else tree(item)
    )
    stream = batches((items(3), dull))
    assert 2 not in heads(next(stream))
    assert stream.skipped_names == {"s0:i2": "nothing in it is learned"}


def test_what_fits_no_batch_is_counted_and_named():
    stream = batches([*items(4), Item("giant", 99, 17)], window=2)
    for _ in range(10):
        assert 99 not in heads(next(stream))
    assert stream.skipped >= 5
    assert list(stream.skipped_names) == ["s0:giant"]
    assert "17 tokens long" in stream.skipped_names["s0:giant"]


def test_nothing_that_fits_is_an_error_with_names():
    with pytest.raises(ValueError, match=r"(?s)no tree of the sources fits.*s0:i1: "):
        next(batches(items(3, length=40)))


def test_a_rendering_error_names_the_record():
    broken = lambda item: (segment([1, 2], scored=True),)  # a root's first token has no predictor
    with pytest.raises(ValueError, match="s0:i1 was rendered to a broken tree"):
        next(batches((items(1), broken)))


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=30).filter(lambda some: min(some) <= 8),
    st.integers(0, 6),
    st.integers(1, 8),
    st.integers(0, 2**31),
)
def test_a_state_continues_exactly(lengths, before, window, seed):
    many = [Item(f"i{n}", n + 1, length) for n, length in enumerate(lengths)]
    make = lambda: batches(many, items(3, first=200), seed=seed, window=window)
    stream = make()
    for _ in range(before):
        next(stream)
    state = json.loads(json.dumps(stream.get_state()))
    expected = [next(stream) for _ in range(4)]
    resumed = make()
    next(resumed)  # wherever it stood
    resumed.set_state(state)
    assert resumed.get_state() == state
    for forest in expected:
        assert same(next(resumed), forest)
    assert resumed.get_state() == stream.get_state()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(2, 16), min_size=1, max_size=20), st.integers(1, 6))
def test_no_tree_is_lost_or_doubled(lengths, window):
    shape = pack.Shape(rows=2, length=16, chunk=4, learned=16, slots=1)
    many = [Item(f"i{n}", n + 1, length) for n, length in enumerate(lengths)]
    stream = batches(many, shape=shape, window=window)
    seen = sum((heads(next(stream)) for _ in range(8)), [])
    state = stream.get_state()
    order = drawn(pipeline.stream([pipeline.Source("s0", many, tree)], seed=0), state["next"])
    waiting = [order[number] for number in state["waiting"]]
    assert sorted(seen + waiting) == sorted(order)
    assert stream.skipped == 0


def test_a_state_of_another_stream_is_refused():
    state = batches(items(4)).get_state()
    with pytest.raises(ValueError, match="seed 0, this has 1"):
        batches(items(4), seed=1).set_state(state)
    with pytest.raises(ValueError, match="sources"):
        batches(items(5)).set_state(state)


def test_senseless_sources_are_refused():
    with pytest.raises(ValueError, match="no source"):
        batches()
    with pytest.raises(ValueError, match="'s0' is empty"):
        batches([])
    with pytest.raises(ValueError, match="weight 0"):
        batches((items(1), tree, 0))
    with pytest.raises(ValueError, match="window is 0"):
        batches(items(1), window=0)
    with pytest.raises(ValueError, match="same name"):
        twice = [pipeline.Source("a", items(1), tree)] * 2
        pipeline.Batches(twice, SHAPE, seed=0)
