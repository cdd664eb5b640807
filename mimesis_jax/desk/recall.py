"""Recall: a persona of a few facts, questions about it, and what a good answer is.

The second domain of user training (role play): whoever plays somebody says what that person knows,
nothing else of it, and owns up to what it does not know.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from mimesis_jax import types
from mimesis_jax.desk import acts, chance, slots
from mimesis_jax.desk.goals import Pairs

UNKNOWN = 0.35  # share of goals with a question about something the persona says nothing of
_WORD = re.compile(r"[a-z0-9']+")
UNKNOWN_CUES = (
    "no idea", "you choose", "you pick", "any one", "whatever", "do not care", "do not know",
    "not know", "no wish", "leave this", "leave that", "never thought", "who knows",
    "did not think", "fine with any", "not sure", "no view", "all the same", "will do", "as you",
    "you say", "skip it", "any", "all of them", "not mind", "surprise me", "no matter", "to you",
    "no clue", "never mind", "you decide", "not say", "not matter",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Goal:
    """One persona and what it is asked. Hashable; a function of its seed.

    persona: (slot, value) pairs, four or five. questions: two or three slots in the order asked,
    at most one of which the persona says nothing of.
    """

    seed: int
    persona: Pairs
    questions: tuple[str, ...]
    manner: str = "frank"

    @property
    def id(self) -> int:
        return self.seed


def draw(seed: int) -> Goal:
    """The goal of a seed."""
    rng = chance.stream("recall", seed)
    order = [list(slots.VALUES)[int(i)] for i in rng.permutation(len(slots.VALUES))]
    held, asked = int(rng.integers(4, 6)), int(rng.integers(2, 4))
    persona = tuple(
        (slot, slots.VALUES[slot][int(rng.integers(len(slots.VALUES[slot])))])
        for slot in order[:held]
    )
    questions = [order[int(i)] for i in rng.permutation(held)[:asked]]
    if rng.random() < UNKNOWN:
        questions[int(rng.integers(asked))] = order[held]
    return Goal(seed, persona, tuple(questions))


def brief(goal: Goal) -> str:
    """The user's system text: its facts, about 17 words."""
    facts = (f"you have {slot} {value}" if not i else f"{slot} {value}"
             for i, (slot, value) in enumerate(goal.persona))  # fmt: skip
    return " . ".join((*facts, f"you are {goal.manner}")) + " ."


def guide(goal: Goal) -> str:
    """The asker's system text; `questions` reads it back."""
    return f"ask {' then '.join(goal.questions)} ."


def questions(text: str) -> tuple[str, ...]:
    """The slots of a guide. Raises ValueError on a text that is none."""
    words = text.split()
    slots_ = tuple(word for word in words[1:-1] if word != "then")
    if not words or words[0] != "ask" or not slots_ or not set(slots_) <= slots.VALUES.keys():
        raise ValueError(f"guide {text!r} is not of the form 'ask SLOT then SLOT .'")
    return slots_


def right(goal: Goal, slot: str, text: str) -> bool:
    """Whether a reply to "ask slot" is right: the persona's value and no other value of any slot;
    for a fact it has not, words that say so and no value at all."""
    words = _WORD.findall(text.lower())
    values = {word for word in words if word in slots.SLOT_OF}
    own = dict(goal.persona).get(slot)
    if own is not None:
        return values == {own}
    line = f" {' '.join(words)} "
    return not values and any(f" {cue} " in line for cue in UNKNOWN_CUES)


def score(goal: Goal, dialogue: Sequence[types.Turn]) -> float:
    """Share of the goal's questions that were answered right, in [0, 1]; one never reached or left
    without a reply is wrong."""
    count, slot = 0, None
    for turn in dialogue:
        if turn.author == "agent":
            act = acts.parse(turn.public)
            slot = act.target if act is not None and act.name == "ask" else None
        elif turn.author == "user" and slot is not None:
            count, slot = count + right(goal, slot, turn.public), None
    return min(1.0, count / len(goal.questions))


class Asker:
    """Asks the questions of its guide in order, then closes; satisfies types.Respond."""

    def respond(self, queries: Sequence[types.Query]) -> list[types.Answer]:
        return [(query, self._reply(query)) for query in queries]

    def _reply(self, query: types.Query) -> types.Reply:
        text = next((turn.public for turn in query.turns if turn.author == "system"), "")
        try:
            asked = questions(text)
        except ValueError as error:
            return types.Reply(types.Kind.FAILED, reason=str(error))
        taken = sum(turn.author == "agent" for turn in query.turns)
        act = acts.ask(asked[taken]) if taken < len(asked) else acts.Act("close")
        return types.Reply(types.Kind.TEXT, acts.write(act))
