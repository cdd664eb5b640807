"""Prompts that trees begin with in common: who is joined, what it saves, and that nothing moves."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_forest import check_row, paths_of, run

from mimesis_jax.forest import pack, share, tree

SHAPE = pack.Shape(rows=1, length=64, chunk=4, learned=24, slots=2)
PROMPT = list(range(1, 17))


def copy(n, prompt=PROMPT, own=5):
    """A copy of a goal: the prompt, and a reply whose ids nobody else has."""
    ids = [1000 * (n + 1) + k for k in range(own)]
    return (run(prompt), run(ids, 0, scored=range(own), turn=1))


def rows_of(trees, shape=SHAPE, shared=True):
    return sum(len(f.valid) for f in pack.pack(trees, shape, shared=shared).forests)


def test_the_copies_of_a_goal_share_their_prompt_by_hand():
    """16 tokens once, four replies of 5 (8 with padding): 48 of 64 places, not 4 x 24 = 96."""
    group = [copy(n) for n in range(4)]
    (forest,) = pack.pack(group, SHAPE, shared=True).forests
    assert forest.valid.sum() == 16 + 4 * 5
    assert forest.tokens[0, :16].tolist() == PROMPT
    assert forest.last[0, :16].tolist() == [48] * 16
    assert forest.load[0].tolist() == [2, -1, -1, -1, -1, -1, 0, -1, 0, -1, 0, -1, -1, -1, -1, -1]
    assert rows_of(group, shared=False) == 2
    ten = [copy(n) for n in range(10)]  # four replies a row: 24 scored tokens are the limit
    assert rows_of(ten) == 3 and rows_of(ten, shared=False) == 5


def test_a_prompt_is_cut_inside_a_segment_and_across_segments():
    """Seventeen tokens in common: sixteen are shared, since a whole number of chunks pads less."""
    first = (run([*PROMPT, 17, 500, 501]), run([600], 0, scored=[0]))
    second = (run(PROMPT[:3]), run([*PROMPT[3:], 17], 0), run([700, 701], 1, scored=[1]))
    found = share.join([first, second], SHAPE, ["a", "b"])
    (one,) = found.trees
    assert found.names == ["a with b"]
    assert [p.ids.tolist() for p in one] == [PROMPT, [17, 500, 501], [600], [17], [700, 701]]
    assert [p.parent for p in one] == [-1, 0, 1, 0, 3]


def test_what_gains_nothing_stays_apart():
    short = [copy(n, prompt=[1, 2, 3]) for n in range(3)]  # less than a chunk
    other = [(run([*range(40 * n + 100, 40 * n + 120)]), *copy(n)[1:]) for n in range(2)]
    scored = [(run([1, 2, 3, 4, 5, n], scored=[1]),) for n in (8, 9)]  # nothing unscored to share
    roots = [(run(PROMPT), run(PROMPT), run([n], 0, scored=[0])) for n in (98, 99)]
    for alone in (short, other, scored, roots, [copy(0)], []):
        found = share.join(alone, SHAPE, [str(n) for n in range(len(alone))])
        assert found.trees == [tuple(one) for one in alone]
        assert found.numbers.tolist() == list(range(tree.scored_count(alone)))


def test_a_group_that_needs_more_slots_than_there_are_stays_apart():
    thinking = [
        (run(PROMPT), run([100 * n + 50], 0, scored=[0]), run([100 * n + 60, 100 * n + 61], 0),
         run([100 * n + 70], 2, scored=[0]), run([100 * n + 80], 2, scored=[0]))
        for n in range(3)
    ]  # fmt: skip
    one = pack.Shape(rows=1, length=64, chunk=4, learned=24, slots=1)
    assert len(share.join(thinking, SHAPE, "abc").trees) == 1
    assert len(share.join(thinking, one, "abc").trees) == 3


def test_groups_are_found_among_others_and_numbers_come_back():
    """Two goals' copies, mixed; the goals have a beginning in common too, which is worth less."""
    other = [*PROMPT[:8], *range(30, 46)]
    trees = [copy(0), copy(1, other), copy(2), copy(3, other), copy(4)]
    found = share.join(trees, SHAPE, "abcde")
    assert found.names == ["a with c with e", "b with d"]
    assert found.numbers.tolist() == [*range(5), *range(10, 15), *range(20, 25), *range(5, 10),
                                      *range(15, 20)]  # fmt: skip
    packed = pack.pack(trees, SHAPE, shared=True)
    values = pack.gather([f.target for f in packed.forests], packed)
    np.testing.assert_array_equal(values, tree.column(trees, "ids"))


def test_errors_name_the_episode_and_the_turn():
    long = (run([1] * 40), run([2] * 30, 0, turn=3))
    names = ["goal 1 copy 0", "goal 1 copy 1"]
    with pytest.raises(ValueError, match="^goal 1 copy 1, turn 3: .* 70 tokens.*row has 64"):
        pack.pack([copy(0), long], SHAPE, names=names)
    with pytest.raises(ValueError, match=r"^goal 1 copy 0, segment 1 \(turn 2\) is empty"):
        pack.pack([(run([1]), run([], 0, turn=2)), copy(1)], SHAPE, names=names, shared=True)
    with pytest.raises(ValueError, match=r"goal 1 copy 1, segment 0 \(turn 0\) has parent 1"):
        pack.pack([copy(0), (run([1], parent=1), run([2]))], SHAPE, names=names, shared=True)
    with pytest.raises(ValueError, match="1 names for 2 trees"):
        pack.pack([copy(0), copy(1)], SHAPE, names=["one"])


@st.composite
def families(draw):
    """Trees over few prompts; replies and later forks have ids of their own."""
    trees = []
    for n in range(draw(st.integers(1, 9))):
        prompt = PROMPT[: draw(st.sampled_from([3, 8, 11, 16]))]
        if draw(st.booleans()):
            prompt = [*prompt, *range(2000 + 50 * n, 2000 + 50 * n + draw(st.integers(1, 6)))]
        cut = draw(st.integers(1, len(prompt)))
        parts = [run(prompt[:cut])] + ([run(prompt[cut:], 0)] if cut < len(prompt) else [])
        for k in range(draw(st.integers(1, 5))):
            size = draw(st.integers(1, 6))
            first = 10_000 * (n + 1) + 100 * k
            parent = draw(st.integers(0, len(parts) - 1))
            parts.append(run(range(first, first + size), parent, scored=[size - 1], turn=k))
        trees.append(tuple(parts))
    return trees


@given(families())
@settings(max_examples=60, deadline=None)
def test_joined_trees_say_what_the_trees_said(trees):
    """Masks, positions, halos and states are those of each tree's own paths."""
    wide = pack.Shape(rows=2, length=64, chunk=4, learned=24, slots=4)
    packed = pack.pack(trees, wide, shared=True)
    paths = paths_of(trees)
    for forest in packed.forests:
        for b in range(2):
            check_row(forest, b, paths)
    values = pack.gather([f.target for f in packed.forests], packed)
    np.testing.assert_array_equal(values, tree.column(trees, "ids"))
    assert rows_of(trees, wide) <= rows_of(trees, wide, shared=False)
