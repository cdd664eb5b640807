"""The template coach: honest notes, its dishonest forms, and the controls."""

import dataclasses

import numpy as np
import pytest

from mimesis_jax import types
from mimesis_jax.coach import notes, template
from mimesis_jax.desk import acts, agent, goals, plan
from mimesis_jax.envs import desk
from mimesis_jax.rollouts import play
from mimesis_jax.users import population

GUIDE = "swap needs colour then size . deny if day sunday ."


def episodes(n: int = 60, q: float = 0.6, at: int = 50_000):
    people = population.REFERENCE
    jobs = play.jobs(desk.DeskGym, people.goals(range(at, at + n)), copies=1, stream=0)
    return play.play(jobs, agent=agent.ScriptedAgent(q), user=people.user())


EPISODES = episodes()


def talk(*rest: tuple[str, str]) -> types.Dialogue:
    """A dialogue from (author, text) pairs; calls and tool turns are the agent's alone."""
    turns = [types.Turn("system", "brief", only="user"), types.Turn("system", GUIDE, only="agent")]
    for author, text in rest:
        act = acts.parse(text) if author == "agent" else None
        hidden = author == "tool" or (act is not None and not act.spoken)
        turns.append(types.Turn(author, text, only="agent" if hidden else None))
    return tuple(turns)


def test_notes_by_hand():
    dialogue = talk(
        ("user", "need a swap now"),
        ("agent", "ask size"),  # 3
        ("user", "tiny"),
        ("agent", "look day"),  # 5
        ("tool", "day monday"),
        ("agent", "close"),  # 7
        ("user", "what"),
        ("agent", "ask colour"),  # 9
        ("user", "red"),
        ("agent", "why"),  # 11
        ("user", "no"),
        ("agent", "close"),  # 13
    )
    assert template.TemplateCoach(2).notes(dialogue) == {
        3: "look up the day",
        5: "look up the day",
        7: "ask for the colour",
        9: "ask for the colour",
        11: "ask why before closing",
        13: "confirm before closing",
    }
    simple = template.TemplateCoach(1).notes(dialogue)
    assert simple[3] == "look it up first" and simple[7] == "ask for more first"
    assert simple[11] == simple[13] == "now set the form"
    silent = template.TemplateCoach(2, form="silent_on_right").notes(dialogue)
    assert [i for i, note in silent.items() if note is None] == [5, 9, 11]


def test_a_form_that_had_to_stay_empty_is_past_mending():
    dialogue = talk(
        ("user", "need a swap now"),
        ("agent", "set colour red size tiny"),
        ("tool", "ok"),
        ("agent", "look day"),
        ("tool", "day sunday"),
        ("agent", "deny swap"),
    )
    assert list(template.TemplateCoach().notes(dialogue).values())[-1] is None


def with_another_secret(dialogue: types.Dialogue, goal: goals.Goal) -> types.Dialogue:
    """The same public history, of a user with another brief and other thoughts."""
    other = goals.brief(
        dataclasses.replace(goal, bar=None if goal.bar else ("city", "rome"), change=None)
    )
    return tuple(
        dataclasses.replace(turn, public=other)
        if turn.author == "system" and turn.only == "user"
        else dataclasses.replace(turn, private="something else")
        if turn.author == "user"
        else turn
        for turn in dialogue
    )


@pytest.mark.parametrize("skill", [1, 2])
@pytest.mark.parametrize("form", ["honest", "silent_on_right"])
def test_what_only_the_user_knows_changes_no_note(skill, form):
    coach = template.TemplateCoach(skill, form=form)
    for episode in EPISODES:
        twin = with_another_secret(episode.dialogue, episode.goal)
        assert coach.notes(episode.dialogue) == coach.notes(twin)


def test_the_leaking_coach_is_caught_by_the_same_test():
    coach = template.TemplateCoach(form="leaking")
    differ = [
        coach.notes(e.dialogue) != coach.notes(with_another_secret(e.dialogue, e.goal))
        for e in EPISODES
    ]
    assert np.mean(differ) > 0.2


def test_later_turns_change_no_note():
    coach = template.TemplateCoach()
    for episode in EPISODES[:20]:
        whole = coach.notes(episode.dialogue)
        for index in whole:
            assert coach.notes(episode.dialogue[: index + 1])[index] == whole[index]


def test_right_and_wrong_replies_are_both_coached():
    coach = template.TemplateCoach()
    right, wrong = [], []
    for episode in EPISODES:
        for index, note in coach.notes(episode.dialogue).items():
            act = acts.parse(episode.dialogue[index].public)
            advice = plan.best(plan.read(types.view(episode.dialogue[:index], "agent")))
            (right if act == advice else wrong).append(note is not None)
    assert np.mean(right) > 0.8 and np.mean(wrong) > 0.8
    assert len(right) > 50 and len(wrong) > 50


def test_notes_are_short_and_few():
    coach = template.TemplateCoach()
    written = {n for e in EPISODES for n in coach.notes(e.dialogue).values() if n}
    assert all(3 <= len(note.split()) <= 6 for note in written)


def test_following_the_notes_reaches_the_ceiling_of_the_coach():
    def mean(skills):
        people = population.REFERENCE
        jobs = play.jobs(desk.DeskGym, people.goals(range(200)), copies=1, stream=0)
        played = play.play(jobs, agent=agent.ScriptedAgent(skills=skills), user=people.user())
        return np.mean([e.outcome["success"] for e in played])

    assert mean(plan.SKILLS) > 0.95
    assert 0.5 < mean(template.SIMPLE) < 0.8


def test_placebo_notes_are_another_episodes_on_the_same_turns():
    mine: list[notes.Notes] = [{2: "a", 4: None, 6: "b"}, {2: "c"}, {3: None}]
    assert notes.placebo(mine) == [{2: "c", 4: None, 6: "c"}, {2: "a"}, {3: None}]
    assert notes.placebo([{2: "a"}]) == [{2: None}]


def test_training_notes_are_a_share_and_mostly_true():
    rng = np.random.default_rng(0)
    carried = true = total = 0
    for episode in EPISODES * 4:
        for index, note in template.for_training(episode.dialogue, rng).items():
            total += 1
            if note is not None:
                carried += 1
                true += note == template.note(acts.parse(episode.dialogue[index].public))
    assert abs(carried / total - 0.25) < 0.04
    assert 0.86 <= true / carried <= 0.97  # a false note may be true by chance


@pytest.mark.parametrize("bad", [{"skill": 3}, {"form": "kind"}])
def test_unknown_coaches_are_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        template.TemplateCoach(**bad)
