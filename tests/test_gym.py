"""The desk gym: who speaks next, what is paid, and why a case ends."""

import pytest

from mimesis_jax.desk import goals
from mimesis_jax.envs import desk
from mimesis_jax.types import Kind, Reply, Stop

PLAIN = goals.Twists(0.0, 0.0, 0.0, 0.0)
GOALS = [goals.draw(seed, PLAIN) for seed in range(40)]
ALLOWED = next(g for g in GOALS if g.allowed)
DENIED = next(g for g in GOALS if not g.allowed)
FORM = "set " + " ".join(f"{s} {v}" for s, v in ALLOWED.wishes)


def test_the_briefs_are_private_and_the_user_begins():
    gym = desk.DeskGym(ALLOWED)
    feedback = gym.begin()
    assert [turn.only for turn in feedback.turns] == ["user", "agent"]
    assert feedback.next == "user" and feedback.stop is None
    assert gym.hear(Reply(Kind.TEXT, "hello")).next == "agent"


def test_calls_are_answered_to_the_agent_alone():
    gym = desk.DeskGym(ALLOWED)
    field = ALLOWED.flow.field
    assert not gym.spoken(f"look {field}") and not gym.spoken(FORM)
    assert gym.spoken("why") and gym.spoken("blah blah")
    feedback = gym.step(f"look {field}")
    (turn,) = feedback.turns
    assert (turn.author, turn.only) == ("tool", "agent")
    assert turn.public == f"{field} {dict(ALLOWED.record)[field]}"
    assert feedback.next == "agent" and feedback.reward == 0.0


def test_success_is_paid_once_at_close():
    gym = desk.DeskGym(ALLOWED)
    rewards = [gym.step(text).reward for text in (FORM, "confirm", "close")]
    assert rewards == [0.0, 0.0, 1.0]
    outcome = gym.outcome()
    assert outcome["success"] == 1.0 and outcome["turns"] == 3 and outcome["stop"] is Stop.DONE
    assert outcome["acts"] == {"set": 1, "confirm": 1, "close": 1} and outcome["unmet"] == {}


def test_a_right_denial_pays_when_the_user_leaves():
    gym = desk.DeskGym(DENIED)
    assert gym.step(f"deny {DENIED.request}").next == "user"
    feedback = gym.hear(Reply(Kind.STOP, "fine , bye", reason="given up"))
    assert (feedback.reward, feedback.stop) == (1.0, Stop.LEFT)


@pytest.mark.parametrize("goal", [ALLOWED, DENIED])
def test_silence_closing_at_once_and_handing_over_pay_nothing(goal):
    for text, stop in (
        ("", Stop.AGENT_FORMAT),
        ("close", Stop.DONE),
        ("hand over", Stop.HANDED_OVER),
    ):
        feedback = desk.DeskGym(goal).step(text)
        assert (feedback.reward, feedback.stop, feedback.next) == (0.0, stop, None)


def test_nonsense_is_counted_and_goes_to_the_user():
    gym = desk.DeskGym(ALLOWED)
    assert gym.step("give me a moment").next == "user"
    assert gym.outcome()["unparsed"] == 1


def test_the_case_must_be_closed_within_nine_turns():
    gym = desk.DeskGym(ALLOWED)
    for _ in range(7):
        assert gym.step("confirm").stop is None
    assert gym.step(FORM).stop is None
    last = gym.step("confirm")
    assert (last.stop, last.reward) == (Stop.TURNS, 0.0)  # all is set, but never closed
    with pytest.raises(RuntimeError, match="over"):
        gym.step("close")


@pytest.mark.parametrize(
    "kind, stop",
    [
        (Kind.EMPTY, Stop.USER_FORMAT),
        (Kind.UNPARSED, Stop.USER_FORMAT),
        (Kind.REFUSED, Stop.USER_FORMAT),
        (Kind.FAILED, Stop.FAILED),
    ],
)
def test_a_user_that_breaks_ends_the_case_unpaid(kind, stop):
    feedback = desk.DeskGym(ALLOWED).hear(Reply(kind))
    assert (feedback.stop, feedback.reward) == (stop, 0.0)
