"""The cross-user matrix: paired episodes, missing ones left out, intervals over goals."""

import dataclasses

import numpy as np
import pytest

from mimesis_jax import types
from mimesis_jax.desk import agent as scripted
from mimesis_jax.envs import desk
from mimesis_jax.evaluation import cross
from mimesis_jax.users import population

NAN = float("nan")


def opponents(count=12, names=("easy", "closed", "fickle")):
    return {
        name: cross.Opponent(people.user(seed=3), people.goals(range(900, 900 + count)))
        for name, people in population.EVALUATION.items()
        if name in names
    }


def play(agent, users=None, make=desk.DeskGym, stream=77):
    return cross.against(agent, opponents() if users is None else users, make, stream=stream)


def told(result):
    return [[e.dialogue for e in result.episodes[name]] for name in result.users]


class Streamy:
    """An agent that chooses by its query's key and turn alone, as a sampling model's stream does;
    it keeps the keys it was asked by."""

    def __init__(self, right=0.5):
        self.right, self.keys = right, []
        self.good, self.bad = scripted.ScriptedAgent(1.0), scripted.ScriptedAgent(0.0, seed=5)

    def respond(self, queries):
        for query in queries:
            self.keys.append(query.key)
            key = query.key
            rng = np.random.default_rng([key.stream, key.goal, key.copy, key.turn])
            chosen = self.good if rng.random() < self.right else self.bad
            yield from chosen.respond([query])


def test_the_same_agent_twice_is_the_same_and_its_paired_difference_is_zero():
    one, two = play(Streamy()), play(Streamy())
    assert told(one) == told(two)
    np.testing.assert_array_equal(one.success, two.success)
    assert 0 < one.success.mean() < 1
    gap = cross.paired(one, two)
    assert (gap.mean, gap.low, gap.high) == (0.0, 0.0, 0.0)
    assert told(play(Streamy(), stream=78)) != told(one)


def test_an_episode_depends_on_its_user_goal_and_stream_alone():
    """Leaving other users' goals away, or putting them in play together, changes no episode."""
    together = play(Streamy())
    few = play(Streamy(), opponents(count=5))
    for name in together.users:
        a, b = together.episodes[name][:5], few.episodes[name]
        assert [e.dialogue for e in a] == [e.dialogue for e in b]
        assert [e.rewards for e in a] == [e.rewards for e in b]


def test_every_episode_has_a_key_of_its_own_and_goes_to_its_user():
    agent = Streamy()
    result = play(agent)
    assert result.users == ("easy", "closed", "fickle")
    assert result.success.shape == (3, 12)
    for row, name in enumerate(result.users):
        goals = opponents()[name].goals
        for number, episode in enumerate(result.episodes[name]):
            assert episode.key == types.Key(77, number, row)
            assert episode.goal == goals[number]
            assert result.success[row, number] == episode.outcome["success"]
    assert len(set(agent.keys)) == len(agent.keys)


def test_a_better_agent_is_better_on_every_user():
    good, bad = play(scripted.ScriptedAgent(1.0)), play(scripted.ScriptedAgent(0.3))
    gap = cross.paired(good, bad)
    assert gap.low > 0 and gap.mean == pytest.approx((good.success - bad.success).mean())
    measured = dict(good.measure())
    assert measured["mean"] == pytest.approx(good.success.mean())
    assert list(measured["by_user"]) == list(good.users)
    low, high = measured["ci95"]
    assert low <= measured["mean"] <= high


def result(*rows):
    success = np.array(rows, np.float64)
    return cross.Result(tuple("abc"[: len(rows)]), success, {})


def test_missing_episodes_are_left_out_of_means_and_differences():
    """a: 1, 0 (one is missing) is 0.5; b: 1, 1, 0 is 2/3. Each user counts once in
    the mean, in a difference and in their intervals, however many of its cells are missing."""
    some = result([1, NAN, 0], [1, 1, 0])
    measured = dict(some.measure())
    assert measured["by_user"] == pytest.approx({"a": 0.5, "b": 2 / 3})
    assert measured["mean"] == pytest.approx((0.5 + 2 / 3) / 2)
    zeros = result([0, 0, 0], [0, 0, 0])
    assert cross.paired(some, zeros).mean == pytest.approx(measured["mean"])
    assert measured["ci95"][0] <= measured["mean"] <= measured["ci95"][1]
    # a cell that only the other one lacks is left out too: 1, 0 and 1, 0 remain
    other = result([0, 0, 0], [0, NAN, 0])
    assert cross.paired(some, other).mean == pytest.approx(2 / 4)


def test_a_broken_user_or_machine_is_missing_and_a_broken_agent_fails():
    class Breaks:
        """Its replies in the first goal's episodes are of another kind, from the first turn on."""

        def __init__(self, held, kind):
            self.held, self.kind = held, kind

        def respond(self, queries):
            for query, reply in self.held.respond(queries):
                broken = query.key.goal == 0
                yield query, dataclasses.replace(reply, kind=self.kind) if broken else reply

    users = opponents(count=4)
    easy = users["easy"]
    users["easy"] = cross.Opponent(Breaks(easy.user, types.Kind.UNPARSED), easy.goals)
    found = play(scripted.ScriptedAgent(1.0), users)
    missing = np.isnan(found.success)
    assert missing[0, 0] and missing.sum() == 1
    assert np.isfinite(dict(found.measure())["mean"])
    failed = play(Breaks(scripted.ScriptedAgent(1.0), types.Kind.FAILED), opponents(count=4))
    assert np.isnan(failed.success[:, 0]).all() and np.isfinite(failed.success[:, 1:]).all()
    mute = play(Breaks(scripted.ScriptedAgent(1.0), types.Kind.EMPTY), opponents(count=4))
    assert (mute.success[:, 0] == 0.0).all()


def test_what_is_not_paired_is_refused():
    with pytest.raises(ValueError, match="unequal numbers of goals: {'easy': 3, 'closed': 4}"):
        play(Streamy(), opponents(3, ("easy",)) | opponents(4, ("closed",)))
    with pytest.raises(ValueError, match="are not paired"):
        cross.paired(result([1, 0]), result([1, 0], [0, 0]))
    with pytest.raises(ValueError, match="are not paired"):
        cross.paired(result([1, 0]), result([1, 0, 1]))
