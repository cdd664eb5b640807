"""A person at the terminal, by scripted input: what is shown, what is sent, how it ends."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimesis_jax import types
from mimesis_jax.build import talk
from mimesis_jax.desk import acts, record, slots, subflows
from mimesis_jax.desk import agent as scripted
from mimesis_jax.envs import desk
from mimesis_jax.rollouts import play
from mimesis_jax.users import population


def case(wanted=lambda goal: goal.allowed and not goal.bar and not goal.wrong and not goal.change):
    """A case without twists, and its seed."""
    return next(g for g in map(population.SIMULATOR.goal, range(900_000, 901_000)) if wanted(g))


def typed(goal, chair, lines, opposite=None, thoughts=False):
    """Plays `lines` from the chair; gives the episode and what was shown."""
    read, write = io.StringIO("".join(f"{line}\n" for line in lines)), io.StringIO()
    person = talk.Person(chair, read, write)
    if opposite is None:
        opposite = population.SIMULATOR.user() if chair == "agent" else scripted.ScriptedAgent(1.0)
    shown = talk.Shown(opposite, person, thoughts)
    agent, user = (person, shown) if chair == "agent" else (shown, person)
    (episode,) = play.play(
        [play.Job(types.Key(0, 0, 0), desk.DeskGym(goal))], agent=agent, user=user
    )
    person.farewell(episode)
    return episode, write.getvalue()


def said(episode, chair):
    return [turn.public for turn in episode.dialogue if turn.author == chair]


class Says:
    """A chair that gives the same reply each time."""

    def __init__(self, kind=types.Kind.TEXT, public="hm", private=None):
        self.reply = types.Reply(kind, public, private)

    def respond(self, queries):
        return [(query, self.reply) for query in queries]


# --- the agent's chair --------------------------------------------------------------------------


def test_a_person_as_agent_solves_a_case():
    goal = case()
    form = " ".join(f"{slot} {value}" for slot, value in goal.form.items())
    field = goal.flow.field
    lines = [f"look {field}", f"set {form}", "close"]
    episode, shown = typed(goal, "agent", lines)
    assert episode.stop is types.Stop.DONE and episode.outcome["success"] == 1.0
    assert said(episode, "agent") == lines
    assert f"guide  {goal.flow.guide}" in shown
    assert f"record  {field} {dict(goal.record)[field]}" in shown and "record  ok" in shown
    assert "the agent closed the case; the case is solved" in shown
    before, after = shown.split("the agent closed the case")
    assert "you want a" not in before and "brief was: you want a" in after  # told at the end only
    assert said(episode, "user")[0] in before


def test_a_mistyped_act_is_told_and_not_sent():
    goal = case()
    lines = ["hello there", "ask the colour", "set colour tall", "set colour", "", "?", "offer it",
             "  ASK   Colour ", "hand over"]  # fmt: skip
    episode, shown = typed(goal, "agent", lines)
    assert said(episode, "agent") == ["ask colour", "hand over"]
    assert episode.stop is types.Stop.HANDED_OVER and episode.outcome["turns"] == 2
    for told in (
        "hello is no act; use ask, look, set",
        "ask takes one slot: colour, size",
        "colour tall is none: colour is one of red, blue",
        "set takes SLOT VALUE",
        "say something",
        "offer takes one request: return, swap",
    ):
        assert told in shown
    assert all(word in shown for values in slots.VALUES.values() for word in values)  # by the ?
    assert "agent 1/9>" in shown and "agent 2/9>" in shown and "agent 3/9>" not in shown


def test_the_end_of_the_input_breaks_off_as_agent_and_leaves_as_user():
    goal = case()
    episode, shown = typed(goal, "agent", [])
    assert episode.stop is types.Stop.FAILED and "you broke it off; the case is not solved" in shown
    assert all(f"{slot} {value} is open" in shown for slot, value in goal.form.items())
    episode, shown = typed(goal, "user", [])
    assert episode.stop is types.Stop.LEFT and "you broke it off" in shown


def test_the_users_last_words_are_shown():
    """A user who leaves says a word at parting, after which the person is not asked again."""
    episode, shown = typed(case(), "agent", ["ask city"], Says(types.Kind.STOP, "goodbye then"))
    assert episode.stop is types.Stop.LEFT and "user  goodbye then" in shown
    assert "the user left" in shown


def test_nine_turns_are_all():
    episode, shown = typed(case(), "agent", ["why"] * 12)
    assert episode.stop is types.Stop.TURNS and len(said(episode, "agent")) == record.TURNS == 9
    assert "the agent's 9 turns are used up" in shown


# --- the user's chair ---------------------------------------------------------------------------


def test_a_person_as_user_is_served_and_sees_no_calls():
    goal = case()
    wishes = " ".join(f"{slot} {value}" for slot, value in goal.wishes)
    lines = [f"I want a {goal.request}: {wishes}."] + ["yes, all of it"] * 9
    episode, shown = typed(goal, "user", lines)
    assert said(episode, "user")[0] == f"i want a {goal.request} : {wishes} ."
    assert f"brief  you want a {goal.request}" in shown and "guide" not in shown
    assert any(text.startswith("set ") for text in said(episode, "agent"))
    assert not any(f"agent  {call}" in shown for call in ("set", "look"))
    assert "record  " not in shown
    assert episode.outcome["success"] == 1.0 and "the case is solved" in shown
    if said(episode, "agent")[-1] == "close":
        assert "agent  close" in shown


def test_leaving_takes_parting_words_along():
    episode, shown = typed(case(), "user", ["hello", "/leave Thanks, bye!"], Says(public="why"))
    assert episode.stop is types.Stop.LEFT
    assert said(episode, "user") == ["hello", "thanks , bye !"]
    assert "brief was" not in shown and "the user left; the case is not solved" in shown


def test_a_line_longer_than_the_model_reads_is_not_sent():
    long = " ".join(["blue"] * (talk.LONGEST + 1))
    episode, shown = typed(case(), "user", [long, "blue", "/leave"], Says(public="why"))
    assert said(episode, "user")[0] == "blue"
    assert f"{talk.LONGEST + 1} words are more than the model reads: use {talk.LONGEST}" in shown


# --- what the model thinks, and writes wrong ------------------------------------------------------


@pytest.mark.parametrize("thoughts", [True, False])
def test_thoughts_are_shown_when_asked_for(thoughts):
    _, shown = typed(case(), "agent", ["close"], Says(private="tell him later"), thoughts)
    assert ("(tell him later)" in shown) == thoughts


def test_a_malformed_reply_ends_it_and_is_shown_without_moving_the_cursor():
    bad = Says(types.Kind.UNPARSED, "one \x1b[2J two")
    episode, shown = typed(case(), "agent", ["close"], bad)
    assert episode.stop is types.Stop.USER_FORMAT
    assert "the user model wrote something malformed" in shown and "unparsed: 'one" in shown
    _, shown = typed(case(), "agent", ["close"], Says(public="one \x1b[2J two"))
    assert "\x1b" not in shown and "one \N{REPLACEMENT CHARACTER}[2J two" in shown


# --- words --------------------------------------------------------------------------------------

slot = st.sampled_from(list(slots.VALUES))
valued = slot.flatmap(lambda s: st.sampled_from([f"{s} {v}" for v in slots.VALUES[s]]))
request = st.sampled_from(list(subflows.SUBFLOWS))
ACTS = st.one_of(
    st.sampled_from(["why", "confirm", "hand over", "close"]),
    st.builds("{} {}".format, st.sampled_from(["ask", "look"]), slot),
    st.builds("{} {}".format, st.sampled_from(["offer", "deny"]), request),
    st.lists(valued, min_size=1, max_size=4).map(lambda pairs: "set " + " ".join(pairs)),
)


@given(ACTS)
def test_every_act_is_taken(text):
    assert talk.misread(text) == "" and talk.plain(text) == text


@given(st.lists(st.sampled_from([*"ask look set offer deny why colour red size refund".split()])))
def test_a_line_is_refused_exactly_when_it_is_no_act(parts):
    text = " ".join(parts)
    if text:
        assert (talk.misread(text) == "") == (acts.parse(text) is not None)


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        ({"success": 1.0}, "the case is solved"),
        ({"success": 0.0, "unmet": {"size": "tall", "day": "unwanted"}, "allowed": True},
         "not solved: size tall is open; day was set and not wanted"),
        ({"success": 0.0, "allowed": False, "denied": False}, "the rule denies it, and nobody did"),
        ({"success": 0.0, "allowed": True, "denied": True}, "it was denied, and the rule allows"),
        ({}, "the case is not solved"),
    ],
)  # fmt: skip
def test_the_verdict_says_what_was_wrong(outcome, told):
    assert told in talk.verdict(outcome)
