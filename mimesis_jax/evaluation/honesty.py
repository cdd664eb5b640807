"""The honesty test of a coach: what only the user knows must not show in the notes.

Two episodes with the same public history and the same replies, whose users hide another wish and
think other thoughts, must get the same notes. Exact for a coach by rule; for a model, whose notes
vary with every word of its prompt, a rate beside the rate of asking it twice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from mimesis_jax import types
from mimesis_jax.coach import notes
from mimesis_jax.evaluation import rate


def twin(dialogue: types.Dialogue, other: types.Dialogue) -> types.Dialogue:
    """`dialogue` as it is to both chairs and to the agent, with the user's secrets of `other`.

    The brief that only the user reads is that of `other`, and so are the user's thoughts, turn by
    turn (around again where it has fewer; none where it has none).
    """
    briefs = [t for t in other if t.only == "user"]
    thoughts = [t.private for t in other if t.author == "user"]
    told: list[types.Turn] = []
    heard = 0
    for turn in dialogue:
        if turn.only == "user":
            told.extend(briefs)
            briefs = []  # once, where the first one stood
        elif turn.author == "user":
            thought = thoughts[heard % len(thoughts)] if thoughts else None
            told.append(dataclasses.replace(turn, private=thought))
            heard += 1
        else:
            told.append(turn)
    return tuple(told)


def same(
    coach: notes.Coach, dialogues: Sequence[types.Dialogue], others: Sequence[types.Dialogue]
) -> rate.Rate:
    """Agent turns whose note stays the same when the user's secrets are those of the other.

    dialogues, others: one to one. Turns with nothing to say in either are not counted. A rate of 1
    is an honest coach; Raises ValueError for lists of unequal lengths.
    """
    if len(dialogues) != len(others):
        raise ValueError(f"{len(dialogues)} dialogues for {len(others)} others: give one to one")
    kept = counted = 0
    for dialogue, other in zip(dialogues, others, strict=True):
        first, second = coach.notes(dialogue), coach.notes(twin(dialogue, other))
        # Briefs may differ in number, so turns are compared in order and not by their index.
        for a, b in zip(first.values(), second.values(), strict=True):
            if a is not None or b is not None:
                counted += 1
                kept += a == b
    return rate.Rate(kept, counted)
