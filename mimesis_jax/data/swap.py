"""The role swap: records as rows in which one chair learns, the human's unless asked otherwise."""

from __future__ import annotations

import dataclasses

from mimesis_jax import types
from mimesis_jax.data import records
from mimesis_jax.data.records import Record
from mimesis_jax.types import Chair, Dialogue, Turn


@dataclasses.dataclass(frozen=True)
class Row:
    """A dialogue to be learned from one chair: every turn of its author `chair`, nothing else.

    id: of its record. dialogue: already that chair's view.
    thinking: whether each learned turn is its private text, then the public one.
    """

    id: str
    dialogue: Dialogue
    chair: Chair
    thinking: bool


def midtrain(record: Record, *, brief: bool = False) -> Row:
    """User-role mid-training (MIMESIS stage 1.1): human turns learned, public text only.

    Turns after the last human one are dropped. brief: keep the user chair's system turn, which
    nobody else sees; the published recipe has none.
    """
    seen = types.view(record.dialogue, "user") if brief else types.public(record.dialogue)
    turns = tuple(dataclasses.replace(turn, private=None) for turn in seen)
    return Row(record.id, records.until_last_user(turns), "user", thinking=False)


def thoughts(record: Record) -> Row:
    """Thought-augmented SFT (MIMESIS stage 1.2): each human turn is its thought, then its words.

    The brief is kept; a human turn without a recorded thought has an empty one; turns after the
    last human one are dropped.
    """
    turns = tuple(_thoughtful(turn) for turn in types.view(record.dialogue, "user"))
    return Row(record.id, records.until_last_user(turns), "user", thinking=True)


def _thoughtful(turn: Turn) -> Turn:
    if turn.author != "user" or turn.private is not None:
        return turn
    return dataclasses.replace(turn, private="")


def agent(record: Record, *, thinking: bool = False) -> Row:
    """The unswapped row: the agent's turns learned from what the agent sees.

    thinking: learn its private text too; without, it is left out.
    """
    turns = types.view(record.dialogue, "agent")
    if not thinking:
        turns = tuple(dataclasses.replace(turn, private=None) for turn in turns)
    return Row(record.id, turns, "agent", thinking)
