"""The teacher of coached self-distillation: the sampled reply once more, after a coach's note.

Works on ids alone. Teacher branches exist in the scoring forest only; the plain tree is what is
trained on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from mimesis_jax import types
from mimesis_jax.chat.tokenizer import AGENT, USER


@dataclasses.dataclass(frozen=True)
class Coached:
    """A tree with teacher branches at its end, so that the plain tree's numbers stay valid.

    tree: the enlarged tree; its first n scored tokens are the plain tree's n, in order.
    student, teacher: [k] int64 numbers of scored tokens of `tree`; teacher[j] is the same sampled
      token as student[j], read after the note.
    """

    tree: types.Tree
    student: np.ndarray
    teacher: np.ndarray


def teacher(
    tree: types.Tree,
    notes: Mapping[int, np.ndarray],
    markers: tuple[int, ...] = (AGENT, USER),
) -> Coached:
    """Add a teacher branch for each noted reply: note, the same header, the same sampled reply.

    notes: turn (Segment.turn) -> ids of its note message; an empty note makes a branch that must
    score exactly as the student does. markers: ids that a reply's header begins with. The branch
    forks where the last of them stands before the first scored token; a segment
    that holds earlier tokens too is split there. Raises ValueError where a noted turn has no
    scored reply, or more than one segment of it.
    """
    parts = list(tree)
    for turn in notes:
        _split(parts, turn, markers)
    start = np.cumsum([0] + [int(np.count_nonzero(part.scored)) for part in parts])
    total, students, teachers = int(start[-1]), [], []
    for turn, note in notes.items():
        i = _reply(parts, turn)
        reply = parts[i]
        end = int(np.flatnonzero(reply.scored)[-1]) + 1
        ids = np.concatenate([np.asarray(note, np.int32), reply.ids[:end]])
        scored = np.concatenate([np.zeros(len(note), bool), reply.scored[:end]])
        parts.append(
            types.segment(
                ids, reply.parent, scored=scored, weight=0.0, turn=turn, kind="teacher"
            )  # fmt: skip
        )
        count = int(start[i + 1] - start[i])
        students.append(start[i] + np.arange(count))
        teachers.append(total + np.arange(count))
        total += count
    none = np.zeros(0, np.int64)
    return Coached(
        tuple(parts), np.concatenate([none, *students]), np.concatenate([none, *teachers])
    )


def _reply(parts: list[types.Segment], turn: int) -> int:
    """The segment that holds the scored reply of a turn."""
    found = [i for i, part in enumerate(parts) if part.turn == turn and part.scored.any()]
    if len(found) != 1:
        raise ValueError(
            f"turn {turn} has {len(found)} scored segments, a note needs exactly 1:"
            f" scored turns are {sorted({p.turn for p in parts if p.scored.any()})}"
        )
    return found[0]


def _split(parts: list[types.Segment], turn: int, markers: tuple[int, ...]) -> None:
    """Split the reply's segment, in place, so that it starts with the reply's header."""
    i = _reply(parts, turn)
    part = parts[i]
    first = int(np.flatnonzero(part.scored)[0])
    marks = np.flatnonzero(np.isin(part.ids[:first], markers))
    if not len(marks):
        raise ValueError(
            f"turn {turn}: no role marker before its first scored token in its segment"
        )
    at = int(marks[-1])
    if at == 0:
        return
    arrays = ("ids", "scored", "weight", "old_logp", "advantage", "gate", "coached")
    before = {name: getattr(part, name)[:at] for name in arrays}
    after = {name: getattr(part, name)[at:] for name in arrays}
    for k in range(i + 1, len(parts)):
        if parts[k].parent >= i:  # children of the split segment hang on its second half
            parts[k] = dataclasses.replace(parts[k], parent=parts[k].parent + 1)
    parts[i] = dataclasses.replace(part, **before)  # type: ignore[arg-type]
    parts.insert(i + 1, dataclasses.replace(part, parent=i, **after))  # type: ignore[arg-type]
