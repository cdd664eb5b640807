"""The rule judge: its parts by hand, its reward, its gate, and what it says of whole steps."""

import dataclasses

import numpy as np
import pytest

from mimesis_jax import types
from mimesis_jax.desk import goals, recall
from mimesis_jax.envs import practice
from mimesis_jax.losses import reward
from mimesis_jax.rollouts import play
from mimesis_jax.types import Stop
from mimesis_jax.users import behaviours, history, judge
from mimesis_jax.users.behaviours_acting import Acting

SWAP = goals.Goal(
    seed=7,
    request="swap",
    wishes=(("colour", "red"), ("size", "large")),
    record=(("carrier", "ship"), ("tier", "gold"), ("day", "monday")),
    claim="monday",
    manner="frank",
)
DODGE = dataclasses.replace(SWAP, behaviour="wont_clarify", lines=("act : dodge two asks",))
WIDE = judge.Reference({"": judge.Band((0.0, 99.0), (0.0, 1.0), -1.0)})


def episode(goal, *pairs: tuple[str, str], stop=Stop.TURNS, copy=0, **records) -> types.Episode:
    """A dialogue from (agent's words, user's words); "" for no agent turn."""
    turns: list[types.Turn] = []
    for said, answer in pairs:
        if said:
            turns.append(types.Turn("agent", said))
        turns.append(types.Turn("user", answer, "a thought"))
    key = types.Key(0, goal.seed, copy)
    return types.Episode(key, goal, tuple(turns), (0.0,), stop, {}, records=records)


ACTED = episode(DODGE, ("", "swap please"), ("ask size", "you tell me"), ("ask size", "large"))
LATE = episode(
    DODGE,
    ("", "swap please"),
    ("ask size", "large"),
    ("why", "no more"),
    ("ask colour", "you tell me"),
)
IDLE = episode(DODGE, ("", "swap please"), ("ask size", "large"))
PLAIN = episode(SWAP, ("", "swap please"), ("ask size", "large"), ("ask colour", "red"))


def judged(*episodes: types.Episode, likelihood=None):
    return judge.RuleJudge(WIDE, likelihood)(None, episodes)


def test_rewards_by_hand():
    scored, means = judged(ACTED, LATE, IDLE, PLAIN)
    # whole and in time: 5/5; late: without the 1.5 of placement; idle: n and k only; control: all
    np.testing.assert_allclose(scored.reward, [1.0, 3.5 / 5, 1.5 / 5, 1.0])
    assert scored.mask.all() and scored.failures == scored.malformed == 0
    assert means["behaviour_rate"] == means["rate_wont_clarify"] == pytest.approx(2 / 3)
    assert means["control_rate"] == 0.0 and means["cooperative"] == 1.0
    assert means["placement"] == pytest.approx(1 / 3) and means["needs_met"] == 1.0
    assert "recall" not in means


def test_announcing_halves():
    told = episode(DODGE, ("", "swap please"), ("ask size", "i will dodge that"))
    scored, means = judged(told)
    np.testing.assert_allclose(scored.reward, [0.5])
    assert means["announced"] == 1.0


def test_a_control_that_acts_or_does_not_answer_pays():
    sulks = episode(SWAP, ("", "swap please"), ("ask size", "you tell me"))
    half = episode(SWAP, ("", "swap"), ("ask size", "large"), ("ask colour", "come on"))
    leaves = episode(SWAP, ("", "swap"), ("ask size", "large"), ("confirm", "bye"), stop=Stop.LEFT)
    scored, means = judged(sulks, half, leaves)
    # (2 c + n + k / 2) / 3.5 with c = 0 (a marker), 1/2 and 1/2
    np.testing.assert_allclose(scored.reward, [1.5 / 3.5, 2.5 / 3.5, 2.5 / 3.5])
    assert means["control_rate"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    "goal, pairs, expected",
    [
        (SWAP, [("", "swap please"), ("ask size", "large")], 1.0),
        (SWAP, [("", "swap please"), ("ask size", "tiny")], 0.5),
        (SWAP, [("", "hello")], 0.0),
        (SWAP, [("", "swap and a loan")], 0.5),
        (SWAP, [("", "swap , city rome")], 0.5),  # the scenario has no city
    ],
)
def test_on_task_is_the_share_of_what_the_scenario_says(goal, pairs, expected):
    talk = history.exchanges(episode(goal, *pairs).dialogue)
    assert judge.on_task(goal, talk) == expected


@pytest.mark.parametrize(
    "behaviour, line, said",
    [
        ("wrong_premise", "act : false tier staff", "swap , my tier is staff"),
        ("contradicts_self", "act : mixed tales size tiny", "swap , size tiny"),
        ("pours_requests", "act : pour loan print", "swap , a loan and a print"),
        ("stacks_limits", "act : limits noon box phone", "swap , only by ship"),
    ],
)
def test_a_behaviour_may_say_what_it_needs(behaviour, line, said):
    goal = dataclasses.replace(SWAP, behaviour=behaviour, lines=(line,))
    talk = history.exchanges(episode(goal, ("", said)).dialogue)
    assert judge.on_task(goal, talk) == 1.0
    if behaviour == "wrong_premise":
        assert judge.on_task(SWAP, talk) == 0.5


def test_length_and_repeats_by_hand():
    talk = episode(SWAP, ("", "a b c d"), ("why", "a b c"), ("why", "x")).dialogue
    assert judge.length(talk) == pytest.approx(8 / 3)
    # runs: abc, bcd | abc (again) | x
    assert judge.repeats(talk) == pytest.approx(1 / 4)
    assert judge.repeats(()) == judge.length(()) == 0.0


def test_naturalness_is_the_mean_of_three_indicators():
    tight = judge.Reference({"": judge.Band((0.0, 1.0), (0.0, 1.0), -1.0)})
    for logp, expected in ((-0.5, 2 / 3), (-1.5, 1 / 3)):
        rate = judge.RuleJudge(tight, lambda es, logp=logp: np.full(len(es), logp))
        assert rate(None, [PLAIN])[1]["naturalness"] == pytest.approx(expected)
    assert judge.RuleJudge(tight)(None, [PLAIN])[1]["naturalness"] == 0.5


def test_broken_replies_are_zero_and_other_failures_are_masked():
    broken = dataclasses.replace(ACTED, stop=Stop.USER_FORMAT, records={"cause": "user: unparsed"})
    cut = dataclasses.replace(ACTED, stop=Stop.LENGTH, records={"cause": "user: unparsed: length"})
    mute = episode(DODGE, ("", "swap"), ("ask size", " "), stop=Stop.LEFT)
    lost = dataclasses.replace(ACTED, stop=Stop.FAILED, records={"cause": "gym: ValueError: x"})
    agent = dataclasses.replace(ACTED, stop=Stop.AGENT_FORMAT, records={"cause": "agent: empty"})
    scored, means = judged(ACTED, broken, cut, mute, lost, agent)
    np.testing.assert_array_equal(scored.mask, [True, True, True, True, False, False])
    np.testing.assert_allclose(scored.reward, [1.0, 0, 0, 0, 0, 0])
    assert (scored.malformed, scored.failures) == (3, 2)
    assert means["behaviour_rate"] == pytest.approx(1 / 4)  # a broken row never shows it


def test_recall_rows_are_paid_by_their_answers():
    goal = recall.Goal(1, (("city", "rome"), ("colour", "red")), ("city", "size"))
    good = episode(goal, ("ask city", "rome"), ("ask size", "no idea"))
    half = episode(goal, ("ask city", "rome"), ("ask size", "tiny"))
    broken = dataclasses.replace(good, stop=Stop.USER_FORMAT)
    scored, means = judged(good, half, broken, PLAIN)
    np.testing.assert_allclose(scored.reward, [1.0, 0.5, 0.0, 1.0])
    assert means["recall"] == pytest.approx(0.5) and scored.malformed == 1
    assert set(judged(good)[1]) == {"recall"}


# --- whole steps ----------------------------------------------------------------------------------


def played(rows, rate, seed=0, copies=2):
    return play.play(
        play.jobs(practice.make, rows, copies=copies, stream=seed),
        agent=practice.opposite(),
        user=practice.user(Acting(rate=rate), seed=seed),
    )


REFERENCE = played(practice.corpus(range(600)), 1.0, copies=1)


def short(episodes):
    """A likelihood that likes few words."""
    return np.array([-judge.length(episode.dialogue) for episode in episodes])


def test_bands_hold_nine_tenths_of_their_reference():
    reference = judge.fit(REFERENCE, short)
    desk = [e for e in REFERENCE if isinstance(e.goal, goals.Goal)]
    made = [judge.verdict(e, reference).natural for e in desk]
    for indicator in np.array(made).T:
        assert 0.88 <= indicator.mean() <= 1.0
    assert {"", "control"} < set(reference.bands)
    assert reference.band("pours_requests").length[1] > reference.band("control").length[1]
    rare = judge.fit(desk[:40])
    assert rare.band("walks_away") == rare.bands[""] and rare.bands[""].floor == -np.inf
    with pytest.raises(ValueError, match="too few"):
        judge.fit(REFERENCE[:10])


def test_the_judge_tells_who_acts():
    rate = judge.RuleJudge(judge.fit(REFERENCE, short), short)
    rows = [goal for step in range(4) for goal in practice.goals(step, 18)]
    rewards, rates = [], []
    for acted in (0.0, 0.4, 1.0):
        scored, means = rate(None, played(rows, acted, seed=7))
        assert isinstance(scored, reward.Scored) and len(scored.reward) == 2 * len(rows)
        rewards.append(scored.reward.mean())
        rates.append(means["behaviour_rate"])
        assert means["control_rate"] <= 0.05 and means["recall"] == means["on_task"] == 1.0
        assert means["announced"] == 0.0
        assert {f"rate_{name}" for name in behaviours.IDS} < set(means)
    assert rewards[0] < rewards[1] < rewards[2]
    assert rates[0] == 0.0 and abs(rates[1] - 0.4) < 0.15 and rates[2] >= 0.95


def test_the_judge_reads_no_parameters_and_no_other_row():
    rate = judge.RuleJudge(judge.fit(REFERENCE))
    together, _ = rate({"w": 1}, REFERENCE[:30])
    apart = [rate(None, [episode])[0].reward[0] for episode in REFERENCE[:30]]
    np.testing.assert_allclose(together.reward, apart)
