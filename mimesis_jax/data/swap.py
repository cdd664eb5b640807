"""The role swap: records as rows in which one chair learns, the human's unless asked otherwise."""

from __future__ import annotations

import dataclasses

from mimesis_jax import types
from mimesis_jax.chat import branches, grammar, render
from mimesis_jax.data import records
from mimesis_jax.data.records import Record
from mimesis_jax.types import Chair, Dialogue, Tree, Turn


@dataclasses.dataclass(frozen=True)
class Row:
    """A dialogue to be learned from one chair: every turn of its author `chair`, nothing else.

    id: of its record. dialogue: already that chair's view.
    thinking: what a learned turn is, as chat.render has it: "sample" its private text, then the
      public one; "empty" the public one after an empty thought that is given; "none" just that.
    """

    id: str
    dialogue: Dialogue
    chair: Chair
    thinking: grammar.Thinking


def midtrain(record: Record, *, brief: bool = False, thinking: grammar.Thinking = "none") -> Row:
    """User-role mid-training (MIMESIS stage 1.1): human turns learned, public text only.

    Turns after the last human one are dropped. brief: keep the user chair's system turn, which
    nobody else sees; the published recipe has none. thinking: "none" as published, or "empty" so
    that the words follow the same header as later, when thoughts are learned.
    """
    seen = types.view(record.dialogue, "user") if brief else types.public(record.dialogue)
    turns = tuple(dataclasses.replace(turn, private=None) for turn in seen)
    return Row(record.id, records.until_last_user(turns), "user", thinking)


def thoughts(record: Record) -> Row:
    """Thought-augmented SFT (MIMESIS stage 1.2): each human turn is its thought, then its words.

    The brief is kept; a human turn without a recorded thought has an empty one; turns after the
    last human one are dropped.
    """
    turns = tuple(_thoughtful(turn) for turn in types.view(record.dialogue, "user"))
    return Row(record.id, records.until_last_user(turns), "user", "sample")


def _thoughtful(turn: Turn) -> Turn:
    if turn.author != "user" or turn.private is not None:
        return turn
    return dataclasses.replace(turn, private="")


def agent(record: Record, *, thinking: grammar.Thinking = "none") -> Row:
    """The unswapped row: the agent's turns learned from what the agent sees.

    thinking: "sample" learns its private text too; else it is left out.
    """
    turns = types.view(record.dialogue, "agent")
    if thinking != "sample":
        turns = tuple(dataclasses.replace(turn, private=None) for turn in turns)
    return Row(record.id, turns, "agent", thinking)


def tree(row: Row, renderer: render.Renderer) -> Tree:
    """The row as segments to learn from; () where nothing in it is learned.

    A user's history holds public text only, as when it is served (MIMESIS stage 1.2), even from
    one of its turns to the next. An agent's reasoning lives until the user's next turn.
    """
    history: branches.History = "drop" if row.chair == "user" else "drop_at_user"
    return renderer.tree(row.dialogue, row.chair, thinking=row.thinking, history=history)
