"""Advantages of turns: the worked example, the counted exceptions, what holds for any rewards."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mimesis_jax.losses import advantage

KINDS = st.sampled_from(["mean", "sum", "r2g"])
CREDITS = st.sampled_from(["equalized", "r2g", "em"])
numbers = st.floats(-3, 3).map(lambda x: round(x, 3))
episode = st.lists(numbers, min_size=1, max_size=5)
batch = st.lists(episode, min_size=2, max_size=6)
close = lambda a, b, tol=1e-9: np.testing.assert_allclose(a, b, atol=tol, rtol=tol)


def tokens_of(rewards, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 7, len(r)) for r in rewards]


def step(rewards, groups, kind="r2g", credit="r2g", **knobs):
    z, mask, counts = advantage.group(rewards, groups, kind=kind, **knobs)
    shifted = advantage.shift(rewards, groups)
    return z, mask, [advantage.credits(r, kind=credit) for r in shifted]


def test_the_worked_example():
    # S = -0.44 and -1.8, std sqrt(2) * 0.68; credits 0.4 + 0.8 * 1.2 = 1.36 and 1.2 of mean 1.28
    z, mask, credits = step([[-0.6, 0.2], [-1.0, -1.0]], "gg")
    close(z, np.array([1, -1]) * 0.68 / (0.68 * np.sqrt(2) + 1e-3))
    good, bad = advantage.per_turn(z, credits, [[5, 5], [5, 5]])
    close(good, z[0] * np.array([1.0625, 0.9375]))
    np.testing.assert_allclose(good, [0.75, 0.67], atol=0.01)
    np.testing.assert_allclose(bad, [-0.71, -0.71], atol=0.01)
    assert mask.all()


def test_scores_by_hand():
    rewards = [1.0, 0.0, 2.0]
    assert advantage.score(rewards, kind="mean") == 1.0
    assert advantage.score(rewards, kind="sum") == 3.0
    close(advantage.score(rewards, kind="r2g", gamma=0.5), 1.5)
    close(advantage.to_go(rewards, gamma=0.5), [1.5, 1.0, 2.0])
    with pytest.raises(ValueError, match="'median'"):
        advantage.score(rewards, kind="median")


def test_credits_by_hand():
    close(advantage.credits([0.0, 1.0], kind="equalized"), [1.0, 1.0])
    close(advantage.credits([0.0, 1.0], kind="r2g"), [0.8, 1.0])
    close(advantage.credits([0.0, 1.0], kind="em"), [0.5, 1.0])
    middle = 0.5 + 0.5 * (1 - np.exp(-1)) / (1 - np.exp(-2))
    close(advantage.credits([0.5], kind="em"), [middle])
    with pytest.raises(ValueError, match="advantage.shift"):
        advantage.credits([-0.1])
    with pytest.raises(ValueError, match="'loud'"):
        advantage.credits([0.1], kind="loud")


def test_a_missing_reward_masks_its_episode_and_is_counted():
    rewards = [[1.0, np.nan], [1.0], [0.0], [None], []]
    z, mask, counts = advantage.group(rewards, "ggggg", kind="sum", floor=0.0)
    assert mask.tolist() == [False, True, True, False, False]
    close(z, [0.0, np.sqrt(0.5), -np.sqrt(0.5), 0.0, 0.0])
    assert counts == advantage.Counts(5, 3, 1, 0, 0)


def test_groups_without_a_signal():
    rewards = [[1.0], [1.0], [3.0], [0.1, 0.2], [0.2, 0.1], [np.nan]]
    groups = ["a", "a", "b", "c", "c", "d"]
    z, mask, counts = advantage.group(rewards, groups, kind="sum")
    assert not z.any() and not mask.any()
    assert (counts.groups, counts.flat_groups, counts.single_groups) == (4, 2, 1)
    z, mask, _ = advantage.group(rewards, groups, kind="sum", drop_flat=False)
    assert not z.any() and mask.tolist() == [True] * 5 + [False]


def test_the_floor_keeps_noise_small():
    z, _, _ = advantage.group([[1.0], [1.0 + 1e-6]], "gg", kind="sum")
    assert 0 < z[1] < 1e-3


def test_leave_one_out_by_hand():
    z, _, _ = advantage.group([[0.0], [3.0], [6.0]], "ggg", kind="sum", form="leave_one_out")
    close(z, [-4.5, 0.0, 4.5])


def test_wrong_calls_say_so():
    with pytest.raises(ValueError, match="1 episodes but 2 group ids"):
        advantage.group([[1.0]], "gg")
    with pytest.raises(ValueError, match="floor -1"):
        advantage.group([[1.0]], "g", floor=-1)
    with pytest.raises(ValueError, match="'rank'"):
        advantage.group([[1.0]], "g", form="rank")
    with pytest.raises(ValueError, match="episode 0 has 1 turn credits but 2"):
        advantage.per_turn([1.0], [np.ones(1)], [[1, 1]])


def test_turns_without_tokens():
    (out,) = advantage.per_turn([2.0], [np.array([1.0, 3.0])], [[0, 4]])
    close(out[1], 2.0)
    (out,) = advantage.per_turn([2.0], [np.array([1.0, 0.0])], [[0, 4]])
    close(out, [2.0, 2.0])  # all credit lies on a turn with nothing to learn
    (out,) = advantage.per_turn([2.0], [np.array([1.0, 0.0])], [[0, 0]])
    close(out, [0.0, 0.0])


@given(batch, KINDS, CREDITS)
def test_no_turn_goes_against_its_episode(rewards, kind, credit):
    z, _, credits = step(rewards, [0] * len(rewards), kind, credit)
    for value, turns in zip(z, advantage.per_turn(z, credits, tokens_of(rewards)), strict=True):
        assert (turns * value >= 0).all()
        # only a credit of 0 may silence a turn
        assert value == 0 or turns.any()


@given(batch, KINDS, CREDITS, st.integers(0, 9))
def test_the_mean_over_learnable_tokens_is_z(rewards, kind, credit, seed):
    z, _, credits = step(rewards, [0] * len(rewards), kind, credit)
    tokens = tokens_of(rewards, seed)
    for value, turns, n in zip(z, advantage.per_turn(z, credits, tokens), tokens, strict=True):
        close((turns * n).sum() / n.sum(), value)


@given(batch, st.sampled_from(["equalized", "r2g"]))
def test_published_form_where_no_reward_is_negative(rewards, credit):
    rewards = [[abs(r) + 0.01 for r in e] for e in rewards]
    z, _, credits = step(rewards, [0] * len(rewards), "r2g", credit)
    tokens = tokens_of(rewards)
    for i, turns in enumerate(advantage.per_turn(z, credits, tokens)):
        raw = np.ones(len(turns)) if credit == "equalized" else advantage.to_go(rewards[i])
        close(turns, z[i] * raw / np.average(raw, weights=tokens[i]))


@given(batch)
def test_shifting_leaves_no_negative_reward_in_any_group(rewards):
    groups = [i % 2 for i in range(len(rewards))]
    for name in set(groups):
        raw = [r for g, e in zip(groups, rewards, strict=True) if g == name for r in e]
        new = [
            r
            for g, e in zip(groups, advantage.shift(rewards, groups), strict=True)
            if g == name
            for r in e
        ]
        assert min(new) >= 0
        assert min(raw) > 0 or min(new) == 0
        close(np.diff(new), np.diff(raw))


@given(batch, KINDS)
def test_an_all_zero_failure_still_learns(rewards, kind):
    rewards = [*rewards, [-3.0, -3.0]]
    z, _, credits = step(rewards, [0] * len(rewards), kind, "r2g")
    close(advantage.per_turn(z, credits, tokens_of(rewards))[-1], [z[-1], z[-1]])


@given(batch, st.permutations(range(6)))
def test_order_of_episodes_does_not_matter(rewards, order):
    order = [i for i in order if i < len(rewards)]
    groups = [i % 2 for i in range(len(rewards))]
    z, mask, counts = advantage.group(rewards, groups)
    again = advantage.group([rewards[i] for i in order], [groups[i] for i in order])
    close(again[0], z[order])
    assert again[1].tolist() == mask[order].tolist() and again[2] == counts


@given(batch)
def test_z_is_centred_and_of_unit_spread(rewards):
    scores = [advantage.score(e, kind="mean") for e in rewards]
    assume(np.ptp(scores) > 0.01)
    z, _, _ = advantage.group(rewards, [0] * len(rewards), kind="mean", floor=0.0)
    close(z.mean(), 0.0)
    close(z.std(ddof=1), 1.0)
    assert (np.diff(z[np.argsort(scores)]) >= -1e-12).all()


@given(batch, st.integers(0, 5))
def test_a_masked_episode_is_no_member_of_its_group(rewards, where):
    where = min(where, len(rewards))
    z, mask, _ = advantage.group(rewards, [0] * len(rewards))
    more = [*rewards[:where], [np.nan, 1.0], *rewards[where:]]
    again, kept, counts = advantage.group(more, [0] * len(more))
    close(np.delete(again, where), z)
    assert counts.missing == 1 and again[where] == 0 and not kept[where]


@given(episode.map(lambda e: [abs(r) for r in e]), CREDITS, st.floats(0.01, 100))
def test_only_the_proportions_of_credit_count(rewards, credit, scale):
    c, n = advantage.credits(rewards, kind=credit), tokens_of([rewards])
    close(advantage.per_turn([1.0], [c], n)[0], advantage.per_turn([1.0], [c * scale], n)[0], 1e-7)
