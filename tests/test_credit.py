"""Credit: rewards of turns become advantages of tokens, by numbers worked by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax import types
from mimesis_jax.forest import tree as trees
from mimesis_jax.trainers import credit

NAN = float("nan")


def episode(*counts, forced=(), first=2):
    """A tree whose turns first, first + 2, .. have so many learned tokens after a header of two.

    forced: places among all learned tokens that weigh nothing.
    """
    parts, seen = [types.segment([1, 7, 7], turn=0)], 0
    for k, n in enumerate(counts):
        weight = [0.0, 0.0] + [float(seen + j not in forced) for j in range(n)]
        seen += n
        parts.append(
            types.segment(
                [3, 4, *range(10, 10 + n)], 0, scored=np.arange(n + 2) >= 2, weight=weight,
                old_logp=-0.5, turn=first + 2 * k, kind="branch",
            )
        )  # fmt: skip
    return tuple(parts)


def rounded(values):
    return values.astype(np.float64).round(4).tolist()


def advantages(tree):
    return [rounded(p.advantage[p.scored]) for p in tree if p.scored.any()]


def test_terminal_rewards_go_to_every_token_alike():
    """Scores 1 and 0: mean 0.5, deviation sqrt(0.5), so z = 0.5 / (0.70711 + 0.001) = 0.7061."""
    given_ = [episode(2, 3, 1), episode(2, 2), episode(1), episode(4)]
    out, z, metrics = credit.assign(
        given_, [[0, 0, 1], [0, 0], [1], [1]], ["a", "a", "b", "b"], credit.Config()
    )
    np.testing.assert_allclose(z, [0.7061, -0.7061, 0, 0], atol=1e-4)
    assert advantages(out[0]) == [[0.7061] * 2, [0.7061] * 3, [0.7061]]
    assert advantages(out[1]) == [[-0.7061] * 2, [-0.7061] * 2]
    assert metrics == {"groups_without_variance": 0.5, "missing_rewards": 0.0}


def test_credit_by_reward_to_go_is_the_worked_example():
    """[-0.6, 0.2] beside [-1, -1] at gamma 0.8. Scores -0.44 and -1.8, z = 0.68 / 0.96267; raised
    by one, the turns' rewards to go are 1.36 and 1.2, so of equal turns the first earns 1.0625 z.
    """
    config = credit.Config(score="r2g", credit="r2g", gamma=0.8)
    out, z, _ = credit.assign(
        [episode(3, 3), episode(2, 2)], [[-0.6, 0.2], [-1, -1]], [0, 0], config
    )
    np.testing.assert_allclose(z, [0.7064, -0.7064], atol=1e-4)
    np.testing.assert_allclose(advantages(out[0]), [[0.7505] * 3, [0.6622] * 3], atol=2e-4)
    np.testing.assert_allclose(advantages(out[1]), [[-0.7064] * 2] * 2, atol=2e-4)


def test_a_group_without_variance_keeps_its_weight_only_when_asked():
    given_ = [episode(2), episode(1)]
    dropped, z, _ = credit.assign(given_, [[1.0], [1.0]], [0, 0], credit.Config())
    assert not trees.column(dropped, "weight").any() and not z.any()
    kept, z, _ = credit.assign(given_, [[1.0], [1.0]], [0, 0], credit.Config(drop_flat=False))
    assert trees.column(kept, "weight").tolist() == [1, 1, 1] and not z.any()
    assert not trees.column(kept, "advantage").any()


def test_a_missing_reward_masks_its_episode_and_nothing_else():
    """The first would have won its group; without it 1 and 0 are compared as ever."""
    given_ = [episode(2, 2), episode(2, 1, forced=(1,)), episode(3)]
    out, z, metrics = credit.assign(
        given_, [[NAN, 9.0], [0.0, 1.0], [0.0]], [0, 0, 0], credit.Config()
    )
    np.testing.assert_allclose(z, [0, 0.7061, -0.7061], atol=1e-4)
    assert metrics["missing_rewards"] == pytest.approx(1 / 3)
    assert not trees.column(out[:1], "weight").any()
    assert not trees.column(out[:1], "advantage").any()
    # the token that was forced still weighs nothing and gets nothing, the others all weigh
    assert trees.column(out[1:2], "weight").tolist() == [1, 0, 1]
    assert rounded(trees.column(out[1:2], "advantage")) == [0.7061, 0, 0.7061]
    assert trees.column(out[2:], "weight").tolist() == [1, 1, 1]
    for before, after in zip(given_, out, strict=True):
        for a, b in zip(before, after, strict=True):  # nothing else changed, masked or not
            np.testing.assert_array_equal(a.ids, b.ids)
            np.testing.assert_array_equal(a.scored, b.scored)
            np.testing.assert_array_equal(a.old_logp, b.old_logp)
            assert (a.turn, a.parent, a.kind) == (b.turn, b.parent, b.kind)


def test_masked_episodes_may_lack_turns_but_others_must_match():
    """An episode that ended by a failure has a reward without a reply, or a reply without one."""
    out, _, _ = credit.assign(
        [episode(2, 2), episode(1), (), episode(1)], [[NAN], [1.0], [], [0.0]], [0] * 4,
        credit.Config(),
    )  # fmt: skip
    assert not trees.column(out[:1], "weight").any() and out[2] == ()
    with pytest.raises(ValueError, match="episode 1 has 3 rewards but 2 sampled turns"):
        credit.assign([episode(1), episode(1, 1)], [[0], [0, 0, 1]], [0, 0], credit.Config())


def test_coached_columns_survive_masking():
    """A group without variance loses its weight; what the coach wrote stays for CSD."""
    noted = trees.carry([episode(2), episode(1)], gate=np.full(3, 0.7), coached=np.ones(3))
    out, _, _ = credit.assign(noted, [[1.0], [1.0]], [0, 0], credit.Config())
    assert not trees.column(out, "weight").any()
    assert trees.column(out, "coached").tolist() == [1, 1, 1]
    np.testing.assert_allclose(trees.column(out, "gate"), 0.7)


@st.composite
def batches(draw):
    n = draw(st.integers(2, 5))
    shapes = [draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)) for _ in range(n)]
    value = st.floats(-2, 2, width=32)
    return shapes, [[draw(value) for _ in shape] for shape in shapes]


@given(
    batches(), st.sampled_from(["sum", "mean", "r2g"]), st.sampled_from(["equalized", "r2g", "em"])
)
@settings(max_examples=80, deadline=None)
def test_the_mean_advantage_is_z_and_no_token_has_the_sign_against_it(batch, score, shares):
    shapes, rewards = batch
    config = credit.Config(score=score, credit=shares, gamma=0.8)
    given_ = [episode(*shape) for shape in shapes]
    out, z, _ = credit.assign(given_, rewards, [0] * len(shapes), config)
    for tree, value in zip(out, z, strict=True):
        got = trees.column([tree], "advantage")
        if trees.column([tree], "weight").any():
            assert got.mean() == pytest.approx(value, rel=1e-4, abs=1e-5)
            assert (got * np.sign(value) >= -1e-6).all()
        else:
            assert not got.any()
