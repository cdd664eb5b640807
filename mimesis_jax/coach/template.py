"""The template coach: short notes by rule that name the next thing to do at the desk.

An honest note is a function of the agent's view before the turn. It never reads the goal or the
user's thought, so two episodes that look the same to the agent get the same notes. The other
forms exist for experiments: they show what a dishonest or one-sided coach does to the agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from mimesis_jax import types
from mimesis_jax.coach.notes import Notes
from mimesis_jax.desk import acts, plan, record, slots

Form = Literal["honest", "silent_on_right", "leaking"]
Skill = Literal[1, 2]
# a simple coach thinks of the rule and of what is missing, not of what users hold back
SIMPLE = frozenset(("look", "reask"))


def note(act: acts.Act, skill: Skill = 2) -> str:
    """The words that recommend an act, three to six; skill 1 names the kind of act only."""
    match act.name:
        case "ask":
            return f"ask for the {act.target}" if skill == 2 else "ask for more first"
        case "look":
            return f"look up the {act.target}" if skill == 2 else "look it up first"
        case "set":
            named = " ".join(slot for slot, _ in act.pairs)
            return f"now set {named}" if skill == 2 else "now set the form"
        case "deny":
            return "the rule says deny"
        case "offer":
            return f"offer the {act.target}"
        case "ask_why":
            return "ask why before closing"
        case "confirm":
            return "confirm before closing"
        case "hand_over":
            return "hand the case over"
    return "all done , close"


class TemplateCoach:
    """Writes notes by rule; satisfies notes.Coach.

    skill: 2 follows the whole desk procedure; 1 is a simpler coach that never thinks of asking
    why or confirming and says nothing where only those remain.
    form: "honest"; "silent_on_right" keeps only notes on replies that did otherwise; "leaking"
    reads the user's brief, and asks why or confirms only where something is hidden (what the
    agent could not know).
    """

    def __init__(self, skill: Skill = 2, *, form: Form = "honest"):
        if skill not in get_args(Skill):
            raise ValueError(f"skill={skill} is not a level of this coach: use 1 or 2")
        if form not in get_args(Form):
            raise ValueError(f"form={form!r} is unknown: use one of {', '.join(get_args(Form))}")
        self.skill, self.form = skill, form

    def notes(self, dialogue: Sequence[types.Turn]) -> Notes:
        skills = plan.SKILLS if self.skill == 2 else SIMPLE
        if self.form == "leaking":
            skills = skills & _needed(dialogue)
        written: Notes = {}
        for index, turn in enumerate(dialogue):
            if turn.author != "agent":
                continue
            written[index] = self._note(types.view(dialogue[:index], "agent"), turn.public, skills)
        return written

    def _note(self, view: types.Dialogue, reply: str, skills: frozenset[str]) -> str | None:
        case = plan.read(view)
        advice = plan.best(case, skills)
        if advice is None or _lost(case, advice):
            return None
        if self.skill == 1 and advice.name == "close" and not case.denied:
            return None  # it cannot tell whether the case is really done
        said = acts.parse(reply)
        if self.form == "silent_on_right" and said is not None and _same(said, advice):
            return None
        return note(advice, self.skill)


def _lost(case: plan.Case, advice: acts.Act) -> bool:
    """Nothing that is said can mend it: a form that had to stay empty, or no turn left for more."""
    denies = case.known.get(case.flow.field) == case.flow.denied
    last = case.taken + 1 >= record.TURNS and advice.name != "close"
    return (denies and bool(case.form)) or last


def _same(reply: acts.Act, advice: acts.Act) -> bool:
    if reply.name == advice.name == "set":
        return dict(reply.pairs).items() >= dict(advice.pairs).items()
    return reply == advice


def _needed(dialogue: Sequence[types.Turn]) -> frozenset[str]:
    """Skills that this user's private brief calls for: the leak."""
    brief = next((t.public for t in dialogue if t.author == "system" and t.only == "user"), "")
    words = brief.split()
    skills = {"look", "reask"}
    if "must" in words:
        skills.add("ask_why")
    if "first" in words or "then" in words:
        skills.add("confirm")
    return frozenset(skills)


def for_training(
    dialogue: Sequence[types.Turn],
    rng: np.random.Generator,
    *,
    share: float = 0.25,
    true: float = 0.9,
    skill: Skill = 2,
) -> Notes:
    """Notes for supervised rows, so that a small model learns to read them at all.

    A turn carries a note with probability `share`; the note recommends the very reply that
    follows with probability `true`, else another act. Replies outside the grammar have none.
    """
    for name, value in (("share", share), ("true", true)):
        if not 0.0 <= value <= 1.0:
            raise ValueError(f"{name}={value} is not a probability: use 0 to 1")
    written: Notes = {}
    for index, turn in enumerate(dialogue):
        if turn.author != "agent":
            continue
        act = acts.parse(turn.public)
        carries, honest = rng.random() < share, rng.random() < true
        other = _OTHERS[int(rng.integers(len(_OTHERS)))]
        if act is None or not carries:
            written[index] = None
        else:
            written[index] = note(act if honest else other, skill)
    return written


_OTHERS = (
    *(acts.ask(slot) for slot in slots.WISHES),
    *(acts.look(slot) for slot in slots.FIELDS),
    *(acts.Act(name) for name in ("ask_why", "confirm", "close")),
)
