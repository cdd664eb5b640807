"""The recall domain: what a right answer is, who is paid, and who asks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimesis_jax import types
from mimesis_jax.desk import recall
from mimesis_jax.envs import practice
from mimesis_jax.envs import recall as gyms
from mimesis_jax.rollouts import play
from mimesis_jax.types import Kind, Reply, Stop
from mimesis_jax.users import population
from mimesis_jax.users import recall as users

GOAL = recall.Goal(
    seed=3,
    persona=(("city", "rome"), ("colour", "red"), ("tier", "gold"), ("day", "monday")),
    questions=("city", "size"),
)


@pytest.mark.parametrize(
    "slot, text, good",
    [
        ("city", "it is rome", True),
        ("city", "Rome, of course", True),
        ("city", "it is paris", False),
        ("city", "rome or paris", False),
        ("city", "rome and my colour is red", False),  # not asked for
        ("city", "no idea", False),
        ("size", "no idea , you choose", True),
        ("size", "it is huge", False),  # invented
        ("size", "no idea , rome maybe", False),
        ("size", "hm", False),
    ],
)
def test_right_answers_by_hand(slot, text, good):
    assert recall.right(GOAL, slot, text) is good


def test_a_talk_by_hand():
    gym = gyms.RecallGym(GOAL)
    opened = gym.begin()
    assert [turn.only for turn in opened.turns] == ["user", "agent"] and opened.next == "agent"
    assert opened.turns[0].public == (
        "you have city rome . colour red . tier gold . day monday . you are frank ."
    )
    assert gym.step("ask city").next == "user"
    first = gym.hear(Reply(Kind.TEXT, "rome"))
    assert (first.reward, first.next, first.stop) == (1.0, "agent", None)
    gym.step("ask size")
    last = gym.hear(Reply(Kind.TEXT, "it is tiny"))
    assert (last.reward, last.stop) == (0.0, Stop.DONE)
    assert gym.outcome()["success"] == 0.5
    with pytest.raises(RuntimeError, match="over"):
        gym.step("close")


@pytest.mark.parametrize("kind, stop", [(Kind.UNPARSED, Stop.USER_FORMAT), (Kind.STOP, Stop.LEFT)])
def test_a_user_that_breaks_or_leaves_ends_the_talk(kind, stop):
    gym = gyms.RecallGym(GOAL)
    gym.begin()
    gym.step("ask city")
    assert gym.hear(Reply(kind, "bye")).stop is stop and gym.outcome()["success"] == 0.0


def test_a_silent_asker_and_one_that_closes_at_once_earn_nothing():
    for text, stop in (("", Stop.AGENT_FORMAT), ("close", Stop.DONE)):
        feedback = gyms.RecallGym(GOAL).step(text)
        assert (feedback.reward, feedback.stop) == (0.0, stop)


@given(st.integers(0, 10_000))
def test_goals_are_functions_of_their_seed(seed):
    goal = recall.draw(seed)
    assert goal == recall.draw(seed) and recall.questions(recall.guide(goal)) == goal.questions
    held = dict(goal.persona)
    assert len(held) in (4, 5) and len(set(goal.questions)) == len(goal.questions) in (2, 3)
    assert sum(slot not in held for slot in goal.questions) <= 1
    assert all(word in recall.brief(goal).split() for pair in goal.persona for word in pair)


class Parrot:
    """Says the same to every question."""

    def respond(self, queries):
        return [(query, Reply(Kind.TEXT, "it is rome")) for query in queries]


def played(user):
    goals = [recall.draw(seed) for seed in range(120)]
    jobs = play.jobs(practice.make, goals, copies=1, stream=0)
    return play.play(jobs, agent=practice.opposite(), user=user)


def test_the_reference_user_is_right_in_every_family_and_a_parrot_is_not():
    good = played(users.RecallUser(tuple(population.TRAINING)))
    assert all(e.outcome["success"] == recall.score(e.goal, e.dialogue) == 1.0 for e in good)
    assert all(sum(e.rewards) == len(e.goal.questions) for e in good)
    bad = played(Parrot())
    assert sum(recall.score(e.goal, e.dialogue) for e in bad) < 0.1 * len(bad)


def test_a_question_that_was_left_is_wrong():
    turns = (types.Turn("agent", "ask city"), types.Turn("user", "rome"))
    assert recall.score(GOAL, turns) == 0.5
    assert recall.score(GOAL, (*turns, types.Turn("user", "rome"))) == 0.5


def test_chairs_of_the_other_domain_fail_and_say_so():
    key = types.Key(0, 0, 0)
    ((_, lost),) = users.RecallUser().respond([types.Query(key, "user", (), "riddle")])
    assert lost.kind is Kind.FAILED and "str" in lost.reason
    ((_, lost),) = recall.Asker().respond([types.Query(key, "agent", ())])
    assert lost.kind is Kind.FAILED and "guide" in lost.reason
