"""Rule-based users: their moves by hand, their purity, their populations."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimesis_jax import types
from mimesis_jax.desk import goals, slots
from mimesis_jax.users import population, symbolic
from mimesis_jax.users.knobs import Knobs

GOAL = goals.Goal(
    seed=7,
    request="swap",
    wishes=(("colour", "red"), ("size", "tiny")),
    record=(("carrier", "ship"), ("tier", "gold"), ("day", "monday")),
    claim="monday",
    wrong=("colour", "blue"),
    change=("size", "huge"),
    bar=("city", "rome"),
)
OPEN = types.Turn("user", "swap please")


def reply(*agent_texts: str, goal: goals.Goal = GOAL, **knobs) -> types.Reply:
    """The user's reply after it opened and the agent said these texts, the user's replies between
    them being its own."""
    settings = Knobs(**{"dodge": 0.0, "push": 0, **knobs})
    user = symbolic.SymbolicUser(lambda seed: settings)
    turns: list[types.Turn] = [OPEN]
    for text in agent_texts:
        turns.append(types.Turn("agent", text))
        ((_, said),) = user.respond([types.Query(types.Key(0, 7, 0), "user", tuple(turns), goal)])
        turns.append(types.Turn("user", said.public, said.private))
    return said


def values(said: types.Reply) -> dict[str, str]:
    return slots.mentioned(said.public)


def test_asked_it_states_the_wrong_value_first_and_mends_it_on_confirm():
    first = reply("ask colour")
    assert values(first) == {"colour": "blue"}
    assert first.private == "asked colour , it is red , say blue"
    mended = reply("ask colour", "confirm")
    assert values(mended) == {"colour": "red"}
    assert mended.private == "confirm , colour is red not blue , city must rome , hold back"


def test_a_change_of_mind_is_said_only_on_confirm():
    assert values(reply("ask size")) == {"size": "huge"}
    assert values(reply("ask size", "offer swap")) == {}
    assert values(reply("ask size", "confirm")) == {"size": "tiny"}


def test_the_hidden_bar_is_told_on_why_and_shown_without_its_name_on_confirm():
    goal = dataclasses.replace(GOAL, wrong=None, change=None)
    for proposal in ("confirm", "offer swap"):
        held = reply(proposal, goal=goal)
        assert values(held) == {} and "city must rome" in held.private
    assert values(reply("why", goal=goal)) == {"city": "rome"}
    assert reply("why", "confirm", goal=goal).private == "confirm , all right"


def test_a_dodge_has_no_value_and_comes_at_most_so_often():
    dodged = reply("ask size", dodge=1.0, tries=1)
    assert values(dodged) == {} and dodged.kind is types.Kind.TEXT
    assert values(reply("ask size", "ask size", dodge=1.0, tries=1)) == {"size": "huge"}
    assert values(reply("ask size", "ask size", dodge=1.0, tries=2)) == {}


def test_it_leaves_when_asked_the_same_answered_thing_twice():
    again = reply("ask size", "ask size", repeats=1)
    assert values(again) == {"size": "huge"} and again.kind is types.Kind.TEXT
    gone = reply("ask size", "ask size", "ask size", repeats=1)
    assert gone.kind is types.Kind.STOP and gone.reason == symbolic.GAVE_UP


def test_it_pushes_after_a_denial_and_then_accepts():
    assert reply("deny swap", push=1).private == "denied , push"
    accepted = reply("deny swap", "deny swap", push=1)
    assert accepted.kind is types.Kind.STOP and accepted.private == "denied , accept"


def test_patience_ends():
    assert reply("confirm", patience=2).kind is types.Kind.TEXT
    assert reply("confirm", "confirm", patience=2).kind is types.Kind.STOP


def test_nonsense_puzzles_it_and_a_slot_without_a_wish_is_left_open():
    assert reply("gibberish").private == "not clear , ask"
    assert reply("offer loan").private == "not clear , ask"
    assert reply("ask amount").private == "asked amount , no wish"


def test_a_claim_against_the_record_is_never_mended():
    goal = dataclasses.replace(GOAL, claim="friday", record=(("day", "sunday"),), bar=None)
    assert values(reply("ask day", goal=goal)) == {"day": "friday"}
    assert values(reply("ask day", "confirm", goal=goal)) == {}


@given(st.integers(0, 500), st.integers(0, 3))
def test_a_reply_is_a_function_of_its_query(seed, copy):
    people = population.REFERENCE
    goal = people.goal(seed)
    query = types.Query(types.Key(0, seed, copy), "user", (), goal)
    elder = people.user()
    elder.respond([dataclasses.replace(query, goal=people.goal(seed + 1))])
    assert elder.respond([query]) == people.user().respond([query])


def test_another_copy_is_another_conversation():
    goal = population.REFERENCE.goal(3)
    user = population.REFERENCE.user()
    said = {
        user.respond([types.Query(types.Key(0, 3, c), "user", (), goal)])[0][1] for c in range(9)
    }
    assert len({reply.public for reply in said}) > 2


def test_private_turns_of_the_agent_change_nothing():
    call = types.Turn("agent", "set city rome", only="agent")
    base = (OPEN, types.Turn("agent", "ask city"))
    user = symbolic.SymbolicUser(lambda seed: Knobs(dodge=0.0))
    answers = [
        user.respond([types.Query(types.Key(0, 7, 0), "user", turns, GOAL)])[0][1]
        for turns in (base, (OPEN, call, *base[1:]))
    ]
    assert answers[0] == answers[1]


def test_a_goal_of_another_gym_is_a_failure_not_an_exception():
    query = types.Query(types.Key(0, 0, 0), "user", (), "riddle")
    ((_, failed),) = symbolic.SymbolicUser(lambda seed: Knobs()).respond([query])
    assert failed.kind is types.Kind.FAILED and "str" in failed.reason


@pytest.mark.parametrize(
    "bad", [{"dodge": 1.2}, {"patience": 40}, {"most": 1.5}, {"family": "odd"}]
)
def test_knobs_out_of_bounds_are_refused_by_name(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Knobs(**bad)


def test_knobs_are_known_by_their_digest():
    assert Knobs().digest() == Knobs().digest() != Knobs(push=3).digest()
    assert len({Knobs(), Knobs(), Knobs(push=3)}) == 2


# --- populations --------------------------------------------------------------------------------


def test_the_simulators_third_and_the_evaluation_are_apart_from_training():
    families = lambda people: {f for r in people.ranges for f in r.families}
    training = families(population.REFERENCE)
    assert families(population.SIMULATOR) == set(population.SIMULATOR_FAMILIES) < training
    assert 3 * len(population.SIMULATOR_FAMILIES) == len(training)
    held_out = (*population.EVALUATION.values(), *population.MODEL_USERS.values())
    assert len(population.EVALUATION) == 7 and len(held_out) == 9
    seen = {population.REFERENCE.knobs(s) for s in range(300)}
    for people in held_out:
        assert not families(people) & training
        assert people.knobs(0) not in seen


def test_reference_persons_stay_in_range_and_two_evaluation_users_do_not():
    low, high = population.LOW, population.HIGH
    names = [f.name for f in dataclasses.fields(Knobs) if f.name not in ("twists", "family")]

    def outside(knobs):
        return [n for n in names if not getattr(low, n) <= getattr(knobs, n) <= getattr(high, n)]

    assert not any(outside(population.REFERENCE.knobs(s)) for s in range(200))
    out = {name for name, people in population.EVALUATION.items() if outside(people.knobs(0))}
    assert out == {*population.OUT_OF_RANGE, "easy"}  # and the cooperative one, by its nature


def test_every_manner_is_met_in_training():
    people = (population.REFERENCE, population.ASSISTANT)
    met = {p.knobs(seed).manner for p in people for seed in range(400)}
    assert met == set(goals.MANNERS)


def test_a_dose_is_a_share_of_persons():
    people = population.assistant(0.8)
    easy = np.mean([people.knobs(seed).manner == "easy" for seed in range(600)])
    assert abs(easy - 0.8) < 0.05
    assert people.name == "assistant_80"
    with pytest.raises(ValueError, match="1.5"):
        population.assistant(1.5)


def test_the_assistant_volunteers_all_and_hides_nothing():
    people = population.ASSISTANT
    for seed in range(60):
        goal = people.goal(seed)
        query = types.Query(types.Key(0, seed, 0), "user", (), goal)
        ((_, opening),) = people.user().respond([query])
        said = values(opening)
        assert dict(goal.wishes).items() <= said.items()
        assert said[goal.flow.field] == dict(goal.record)[goal.flow.field]
        assert goal.bar is goal.wrong is goal.change is None


def test_arms_play_the_same_cases():
    for seed in range(40):
        a, b = population.ASSISTANT.goal(seed), population.REFERENCE.goal(seed)
        assert (a.request, a.wishes, a.record) == (b.request, b.wishes, b.record)
