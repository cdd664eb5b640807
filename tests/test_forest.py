"""The forest at array level: hand-worked rows, and properties of random trees."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax.forest import pack, tree
from mimesis_jax.types import Segment, segment

SHAPE = pack.Shape(rows=2, length=64, chunk=4, learned=24, slots=4)


def run(ids, parent=-1, scored=(), **rest) -> Segment:
    """A segment whose tokens at the places `scored` are scored."""
    marks = np.zeros(len(ids), bool)
    marks[list(scored)] = True
    return segment(ids, parent, scored=marks, **rest)


def random_tree(draw, number: int, roots: int = 1):
    """Random segments with unique ids, so that a token can be found again in a row."""
    count = draw(st.integers(1, 8))  # at most 64 tokens a path: it fits a row of SHAPE
    made = []
    for i in range(count):
        parent = -1 if i == 0 else draw(st.integers(0 if roots == 1 else -1, i - 1))
        size = draw(st.sampled_from([1, 2, 3, 4, 5, 8]))
        marks = np.array([draw(st.booleans()) for _ in range(size)])
        marks[0] &= parent >= 0
        ids = 10_000 * number + 100 * i + np.arange(size) + 1
        made.append(segment(ids, parent, scored=marks, turn=i, old_logp=ids * 0.5))
    return tuple(made)


@st.composite
def forests(draw, most=5):
    return [random_tree(draw, n, draw(st.sampled_from([1, 2]))) for n in range(1, most + 1)]


def dense_mask(forest, b):
    s = np.arange(forest.tokens.shape[1])
    allowed = (s[None] <= s[:, None]) & (s[:, None] < forest.last[b][None])
    return allowed & forest.valid[b][None] & forest.valid[b][:, None]


# --- a forest worked by hand -------------------------------------------------------------------


def test_trunk_with_branch_by_hand():
    trunk = run([1, 2, 3, 4, 5])
    branch = run([6, 7, 8], 0, scored=[1, 2], turn=1, kind="branch", advantage=2.0)
    after = run([9, 10, 11, 12], 0, scored=[3], turn=1)
    shape = pack.Shape(rows=1, length=20, chunk=4, learned=4, slots=1)
    packed = pack.pack([(trunk, branch, after)], shape)
    (forest,), (origin,) = packed.forests, packed.origin
    assert forest.chunk == 4
    z = 0
    assert (
        forest.tokens[0].tolist() == [1, 2, 3, 4, 5, z, z, z, 6, 7, 8, z, 9, 10, 11, 12] + [z] * 4
    )
    assert forest.valid[0].tolist() == [True] * 5 + [False] * 3 + [True] * 3 + [False] + (
        [True] * 4 + [False] * 4
    )
    assert forest.position[0, :16].tolist() == [0, 1, 2, 3, 4, 0, 0, 0, 5, 6, 7, 0, 5, 6, 7, 8]
    assert forest.last[0].tolist() == [16] * 5 + [6, 7, 8] + [12] * 4 + [16] * 4 + [17, 18, 19, 20]
    assert forest.halo[0].tolist() == [[20] * 3, [1, 2, 3], [2, 3, 4], [2, 3, 4], [20] * 3]
    assert forest.load[0].tolist() == [1, -1, -1, 0, -1]
    assert forest.store[0].tolist() == [-1, 0, -1, -1, -1]
    assert forest.source[0].tolist() == [8, 9, 14, 0]
    assert forest.target[0].tolist() == [7, 8, 12, 0]
    assert forest.weight[0].tolist() == [1, 1, 1, 0]
    assert forest.advantage[0].tolist() == [2, 2, 0, 0]
    assert origin[0].tolist() == [0, 1, 2, -1]


def test_only_child_runs_lie_without_padding():
    line = (run([1, 2, 3]), run([4, 5], 0, scored=[0]), run([6], 1, scored=[0]))
    packed = pack.pack([line], pack.Shape(rows=1, length=8, chunk=4, learned=2, slots=1))
    forest = packed.forests[0]
    assert forest.tokens[0].tolist() == [1, 2, 3, 4, 5, 6, 0, 0]
    assert forest.source[0].tolist() == [2, 4]
    assert forest.store[0].tolist() == [-1, -1]


def test_a_fork_inside_a_chunk_by_hand():
    """The first child goes on in its parent's last chunk; the second starts from inside of it."""
    one = (run([1, 2, 3, 4, 5]), run([6, 7, 8], 0, scored=[0]), run([9, 10], 0, scored=[0]))
    shape = pack.Shape(rows=1, length=12, chunk=4, learned=2, slots=1, inside=True)
    (forest,) = pack.pack([one], shape).forests
    assert forest.tokens[0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 0, 0]
    assert forest.load[0].tolist() == [1, -1, 0] and forest.store[0].tolist() == [-1, 0, -1]
    assert forest.kept[0].tolist() == [4, 1, 4]  # after the 5
    assert forest.halo[0].tolist() == [[12] * 3, [1, 2, 3], [2, 3, 4]]
    assert forest.last[0].tolist() == [12] * 5 + [8] * 3 + [12] * 2 + [11, 12]
    assert forest.source[0].tolist() == [4, 4] and forest.target[0].tolist() == [6, 9]


def test_a_chunk_keeps_one_state():
    """Parent and first child would both fork in the first chunk, so the child gets a new one."""
    ids = iter(range(1, 40))
    some = lambda n, parent=-1: run([next(ids) for _ in range(n)], parent)
    one = (some(1), some(2, 0), some(9, 0), some(1, 1), some(1, 1), some(1, 2), some(1, 2))
    shape = pack.Shape(rows=1, length=40, chunk=4, learned=1, slots=2, inside=True)
    (forest,) = pack.pack([one], shape).forests
    assert forest.tokens[0, :12].tolist() == [1, 0, 0, 0, 2, 3, 13, 0, 14, 0, 0, 0]
    assert forest.store[0, :3].tolist() == [0, 1, -1] and forest.kept[0, :3].tolist() == [1, 2, 4]
    # A leaf needs no state of its own: it stays.
    two = (some(1), some(2, 0), some(9, 0))
    (forest,) = pack.pack([two], shape).forests
    assert forest.valid[0, :8].tolist() == [True] * 3 + [False] + [True] * 4
    # Nowhere do more places come out than with forks at chunks' ends.
    ends = dataclasses.replace(shape, inside=False)
    length = lambda trees, shape: sum(b.length for t in trees for b in pack.blocks(t, shape))
    assert length([one, two], shape) < length([one, two], ends)


def test_halo_crosses_two_generations():
    one = (run([1, 2]), run([3], 0), run([4, 5], 0), run([6], 2), run([7, 8], 2))
    packed = pack.pack([one], pack.Shape(rows=1, length=20, chunk=4, learned=1, slots=2))
    forest = packed.forests[0]
    seven = int(np.flatnonzero(forest.tokens[0] == 7)[0])
    halo = forest.halo[0, seven // 4]
    assert [int(forest.tokens[0, h]) for h in halo] == [2, 4, 5]


def test_two_trees_share_a_row_and_reuse_a_slot():
    def fork(a):
        return (run([a, a + 1]), run([a + 2], 0, scored=[0]), run([a + 3], 0, scored=[0]))

    shape = pack.Shape(rows=1, length=32, chunk=4, learned=4, slots=1)
    forest = pack.pack([fork(10), fork(20)], shape).forests[0]
    assert forest.tokens[0, ::4].tolist() == [10, 12, 13, 20, 22, 23, 0, 0]
    assert forest.load[0].tolist() == [1, -1, 0, 1, -1, 0, -1, -1]
    assert forest.store[0].tolist() == [0, -1, -1, 0, -1, -1, -1, -1]


def test_thinking_turns_need_one_slot_and_a_shared_prompt_two():
    def dialogue(prompt, parent, turns):
        made, trunk = list(prompt), parent
        for _ in range(turns):
            made.append(run([1] * 6, trunk))
            made.append(run([2] * 3, trunk))
            trunk = len(made) - 1
        return made

    (one,) = pack.blocks(tuple(dialogue([run([9] * 5)], 0, 40)), pack.Shape(1, 4096, 4, 8, slots=1))
    assert one.slots == 1
    group = [run([9] * 5)]
    for _ in range(4):
        group = dialogue(group, 0, 9)
    (many,) = pack.blocks(tuple(group), pack.Shape(1, 4096, 4, 8, slots=2))
    assert many.slots == 2


# --- errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad, words",
    [
        ((run([]),), "tree 0, segment 0 .turn 0. is empty"),
        ((run([1], parent=1), run([2])), "parent 1, the limit is -1"),
        ((run([1]), run([2], parent=1)), "parent 1, the limit is 0"),
        ((run([1, 2], scored=[0]),), "root whose first token is scored"),
        ((run([1] * 40), run([2] * 30, 0, turn=3)), "tree 0, turn 3.*70 tokens.*row has 64"),
        ((run([1] * 30, scored=range(1, 30)),), "scores 29 tokens, a row takes 24"),
    ],
)
def test_errors_name_value_limit_and_mend(bad, words):
    with pytest.raises(ValueError, match=words):
        pack.pack([bad], SHAPE)


def test_too_few_slots_is_an_error():
    deep = [run([1])]
    for _ in range(2):  # two symmetric levels of forks need two slots
        tips = [i for i in range(len(deep)) if all(s.parent != i for s in deep)]
        for i in tips:
            deep += [run([2], i), run([3], i)]
    with pytest.raises(ValueError, match="2 state slots are needed, the shape has 1"):
        pack.pack([tuple(deep)], pack.Shape(1, 64, 4, 8, slots=1))


@pytest.mark.parametrize(
    "wrong, words",
    [(dict(length=30), "30 is not a multiple of chunk 4: use 32"), (dict(rows=0), "rows is 0")],
)
def test_shape_refuses(wrong, words):
    with pytest.raises(ValueError, match=words):
        pack.Shape(**(dict(rows=1, length=32, chunk=4, learned=4, slots=1) | wrong))


# --- properties --------------------------------------------------------------------------------


def paths_of(trees):
    """For each token (ids are unique), the ids on its path, itself last."""
    found = {}
    for one in trees:
        for i, part in enumerate(one):
            line = tree.path(one, i).ids.tolist()
            for n in range(len(line) - len(part), len(line)):
                found[line[n]] = line[: n + 1]
    return found


def check_row(forest, b, paths):
    T, C = forest.tokens.shape[1], forest.chunk
    ids, valid = forest.tokens[b], forest.valid[b]
    mask = dense_mask(forest, b)
    state: dict[int, list[int]] = {}
    carried: list[int] = []
    for k in range(T // C):
        load, store = int(forest.load[b, k]), int(forest.store[b, k])
        kept = C if forest.kept is None else int(forest.kept[b, k])
        if load >= 0:
            carried = [] if load == forest.slots else state[load]
        real = [t for t in range(k * C, k * C + C) if valid[t]]
        if real:
            halo = [int(ids[h]) for h in forest.halo[b, k] if h < T]
            assert halo == paths[int(ids[real[0]])][:-1][-3:]
        before: list[list[int]] = [carried]
        for t in real:
            line = paths[int(ids[t])]
            assert [int(i) for i in ids[mask[t]]] == line  # the mask is ancestry
            assert forest.position[b, t] == len(line) - 1
            carried = carried + [int(ids[t])]
            assert carried == line  # the state has read the path and nothing else
            before.append(carried)
        assert 1 <= kept <= C
        if store >= 0:
            assert store < forest.slots
            state[store] = before[min(kept, len(real))]
    for m in range(forest.source.shape[1]):
        if forest.target[b, m]:
            line = paths[int(forest.target[b, m])]
            assert ids[forest.source[b, m]] == line[-2]
        else:
            assert forest.weight[b, m] == forest.old_logp[b, m] == forest.source[b, m] == 0


@pytest.mark.parametrize("inside", [False, True])
@given(trees=forests())
@settings(max_examples=60, deadline=None)
def test_arrays_say_what_the_trees_say(inside, trees):
    packed = pack.pack(trees, dataclasses.replace(SHAPE, inside=inside))
    paths = paths_of(trees)
    for forest in packed.forests:
        assert forest.tokens.shape == (2, 64)
        for b in range(2):
            check_row(forest, b, paths)
    numbers = np.concatenate([o.ravel() for o in packed.origin])
    assert sorted(numbers[numbers >= 0].tolist()) == list(range(tree.scored_count(trees)))
    for name, field in [("ids", "target"), ("weight", "weight"), ("old_logp", "old_logp")]:
        values = pack.gather([getattr(f, field) for f in packed.forests], packed)
        np.testing.assert_array_equal(values, tree.column(trees, name))
    # a tree that fits whole is not computed twice
    assert sum(int(f.valid.sum()) for f in packed.forests) >= sum(len(s) for t in trees for s in t)


@pytest.mark.parametrize("inside", [False, True])
@given(trees=forests(most=3))
@settings(max_examples=40, deadline=None)
def test_a_tree_longer_than_a_row_is_cut_with_weightless_ancestors(inside, trees):
    short = pack.Shape(rows=1, length=44, chunk=4, learned=9, slots=4, inside=inside)
    # the longest path here may be 8 * 8 tokens: keep only trees whose paths fit
    trees = [t for t in trees if max(len(tree.path(t, i).ids) for i in range(len(t))) <= 44]
    packed = pack.pack(trees, short)
    paths = paths_of(trees)
    for forest in packed.forests:
        check_row(forest, 0, paths)
        assert (forest.target[0] > 0).sum() <= 9
    values = pack.gather([f.target for f in packed.forests], packed)
    np.testing.assert_array_equal(values, tree.column(trees, "ids"))


def test_cut_of_a_group_repeats_only_the_prompt():
    group = (run([1] * 8), *(run([10 * i + 2, 3, 4, 5], 0, scored=range(4)) for i in range(6)))
    shape = pack.Shape(rows=2, length=24, chunk=4, learned=16, slots=1)
    packed = pack.pack([group], shape)
    (forest,) = packed.forests
    assert forest.valid.sum(1).tolist() == [24, 16]  # 8 + 4 * 4 and 8 + 2 * 4
    assert (forest.target > 0).sum(1).tolist() == [16, 8]


@given(forests(most=4), st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None)
def test_order_of_trees_changes_no_row_of_results(trees, random):
    order = list(range(len(trees)))
    random.shuffle(order)
    packed = [pack.pack(t, SHAPE) for t in (trees, [trees[i] for i in order])]
    counts = [tree.scored_count([t]) for t in trees]
    ends = np.cumsum(counts)
    plain = pack.gather([f.target for f in packed[0].forests], packed[0])
    moved = pack.gather([f.target for f in packed[1].forests], packed[1])
    expected = [plain[ends[i] - counts[i] : ends[i]] for i in order]
    np.testing.assert_array_equal(moved, np.concatenate(expected) if expected else [])


@given(forests(most=3))
@settings(max_examples=40, deadline=None)
def test_slots_are_the_nesting_of_forks_at_most(trees):
    for one in trees:
        tips = [1] * len(one)  # leaves below; halving bounds the nesting by log2 of the leaves
        for i in reversed(range(len(one))):
            below = [k for k in range(len(one)) if one[k].parent == i]
            tips[i] = sum(tips[k] for k in below) or 1
        for block in pack.blocks(one, SHAPE):
            root = int(block.segments[0, 0])
            assert 2**block.slots <= tips[root]


def test_packing_is_deterministic_and_rows_are_even():
    rng = np.random.default_rng(0)
    trees = [
        (run(rng.integers(1, 99, 8)), run(rng.integers(1, 99, rng.integers(4, 12)), 0, scored=[1]))
        for _ in range(40)
    ]
    shape = pack.Shape(rows=4, length=64, chunk=4, learned=16, slots=1)
    one, two = pack.pack(trees, shape), pack.pack(trees, shape)
    for a, b in zip(one.forests, two.forests, strict=True):
        np.testing.assert_array_equal(a.tokens, b.tokens)
    filled = np.concatenate([f.valid.sum(1) for f in one.forests])
    assert len(one.forests) == 3 and filled.max() - filled.min() <= 12


def test_nothing_to_pack():
    packed = pack.pack([], SHAPE)
    assert packed.forests == [] and pack.gather([], packed).shape == (0,)


# --- columns -----------------------------------------------------------------------------------


def test_carry_writes_scored_tokens_and_leaves_the_rest():
    one = (run([1, 2, 3], scored=[2], old_logp=5.0), run([4], 0), run([5, 6], 0, scored=[0, 1]))
    (new,) = tree.carry(
        [one], old_logp=np.array([-1.0, -2.0, -3.0]), gate=np.array([0.1, 0.2, 0.3])
    )
    assert new[0].old_logp.tolist() == [5, 5, -1] and new[2].old_logp.tolist() == [-2, -3]
    assert one[0].old_logp.tolist() == [5, 5, 5] and new[1] is one[1]
    np.testing.assert_allclose(tree.column([new], "gate"), [0.1, 0.2, 0.3], rtol=1e-6)
    assert tree.column([new], "turn").tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"shape \(2,\), the trees have 3 scored tokens"):
        tree.carry([one], gate=np.zeros(2))
    with pytest.raises(ValueError, match="no column 'ids' to write"):
        tree.carry([one], ids=np.zeros(3))
    with pytest.raises(ValueError, match="no column 'loss'"):
        tree.column([one], "loss")


def test_path_is_the_naive_expansion():
    one = (run([1, 2]), run([3], 0), run([4, 5], 0, scored=[1]))
    found = tree.path(one, 2)
    assert found.ids.tolist() == [1, 2, 4, 5] and found.scored.tolist() == [3]
