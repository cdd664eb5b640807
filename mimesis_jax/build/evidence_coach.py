"""Coaches of the evidence: a placebo, whether a reply follows a note, and how far notes lead."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Literal

from mimesis_jax import types
from mimesis_jax.build import world
from mimesis_jax.coach import notes, template
from mimesis_jax.desk import acts, chance, plan
from mimesis_jax.desk import agent as scripted
from mimesis_jax.envs import desk
from mimesis_jax.rollouts import corpus
from mimesis_jax.users import population

Name = Literal["honest", "leaking", "silent_on_right", "placebo"]
FORMS: dict[str, template.Form] = {
    "honest": "honest", "leaking": "leaking", "silent_on_right": "silent_on_right",
    "placebo": "honest",
}  # fmt: skip
BANK = 96  # dialogues whose notes a placebo draws from


def make(name: Name, skill: template.Skill = 2) -> notes.Coach:
    """The coach of an arm."""
    inner = template.TemplateCoach(skill, form=FORMS[name])
    return Placebo(inner) if name == "placebo" else inner


class Placebo:
    """Where the inner coach has something to say it says a note of another episode.

    The note is drawn by a hash of the dialogue from the notes of dialogues that nobody is trained
    on. It may be the true one by chance: were those left out, a reply that follows its note would
    meet its own act less often than any other reply, and the control would say less than nothing.
    (notes.placebo pairs turns by their place, and notes at one place are often alike.)
    """

    def __init__(self, inner: notes.Coach):
        self.inner = inner

    def notes(self, dialogue: Sequence[types.Turn]) -> notes.Notes:
        bank = self._bank
        said = tuple(turn.public for turn in dialogue)
        drawn = lambda turn: bank[int(chance.stream("placebo", said, turn).integers(len(bank)))]
        return {
            turn: None if text is None else drawn(turn)
            for turn, text in self.inner.notes(dialogue).items()
        }

    @functools.cached_property
    def _bank(self) -> tuple[str, ...]:
        """All notes that the inner coach writes on some dialogues of an erring agent."""
        people = population.SIMULATOR
        first = world.VALIDATION + 20_000
        played = corpus.episodes(
            desk.DeskGym, people.goals(range(first, first + BANK)),
            agent=scripted.ScriptedAgent(0.8, having=0.5), user=people.user(seed=11), stream=first,
        )  # fmt: skip
        written = (self.inner.notes(episode.dialogue).values() for episode in played)
        return tuple(text for episode in written for text in episode if text is not None)


def follows(reply: str, note: str, skill: template.Skill = 2) -> bool:
    """Whether a reply does what the note recommends; of "now set a b" all that it names."""
    act = acts.parse(reply)
    if act is None:
        return False
    if skill == 2 and act.name == "set" and note.startswith("now set "):
        return set(note.removeprefix("now set ").split()) <= set(dict(act.pairs))
    return template.note(act, skill) == note


class Follower:
    """An agent that does what the coach would say at every turn: the coach's ceiling.

    A coach that leaks knows from the user's goal whether asking why or confirming is needed.
    Satisfies types.Respond. Raises ValueError for the placebo, which leads nowhere.
    """

    def __init__(self, name: Name, skill: template.Skill = 2):
        if name == "placebo":
            raise ValueError("a placebo has no ceiling: its notes are another episode's")
        self.name, self.skill = name, skill

    def respond(self, queries: Sequence[types.Query]) -> list[types.Answer]:
        return [(query, self._reply(query)) for query in queries]

    def _reply(self, query: types.Query) -> types.Reply:
        try:
            case = plan.read(query.turns)
        except ValueError as error:
            return types.Reply(types.Kind.FAILED, reason=str(error))
        best = plan.best(case, self._skills(query.goal))
        # No step is left out for want of "reask", so there is always one to take.
        return types.Reply(types.Kind.TEXT, acts.write(best or acts.Act("close")))

    def _skills(self, goal) -> frozenset[str]:
        skills = plan.SKILLS if self.skill == 2 else template.SIMPLE
        if self.name != "leaking":
            return skills
        hidden = {"ask_why": goal.bar is not None, "confirm": bool(goal.wrong or goal.change)}
        return frozenset(s for s in skills if hidden.get(s, True))
