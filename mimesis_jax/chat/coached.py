"""The teacher of coached self-distillation: the sampled reply once more, after a coach's note.

Works on ids alone. Teacher branches exist in the scoring forest only; the plain tree is what is
trained on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from mimesis_jax import types
from mimesis_jax.chat.tokenizer import AGENT, USER

COLUMNS = ("weight", "old_logp", "advantage", "gate", "coached")
ARRAYS = ("ids", "scored", *COLUMNS)


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
    replies = _replies(tree, notes)
    cuts = {i: _header(tree[i], turn, markers) for turn, i in replies.items()}
    parts, moved = _split(tree, cuts)
    start = np.cumsum([0] + [int(np.count_nonzero(part.scored)) for part in parts])
    total, students, teachers = int(start[-1]), [], []
    for turn, note in notes.items():
        i = moved[replies[turn]]
        reply = parts[i]
        end = int(np.flatnonzero(reply.scored)[-1]) + 1
        ids = np.concatenate([np.asarray(note, np.int32), reply.ids[:end]])
        scored = np.concatenate([np.zeros(len(note), bool), reply.scored[:end]])
        nothing = np.zeros(len(ids), np.float32)
        columns: dict[str, Any] = dict.fromkeys(COLUMNS, nothing)
        parts.append(
            types.Segment(
                ids=ids, parent=reply.parent, scored=scored, turn=turn, kind="teacher", **columns
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


def _replies(tree: types.Tree, notes: Mapping[int, np.ndarray]) -> dict[int, int]:
    """For each noted turn the segment that holds its scored reply."""
    found: dict[int, list[int]] = {}
    for i, part in enumerate(tree):
        if part.scored.any():
            found.setdefault(part.turn, []).append(i)
    for turn in notes:
        if len(found.get(turn, ())) != 1:
            raise ValueError(
                f"turn {turn} has {len(found.get(turn, ()))} scored segments, a note needs exactly"
                f" 1: scored turns are {sorted(found)}"
            )
    return {turn: found[turn][0] for turn in notes}


def _header(part: types.Segment, turn: int, markers: tuple[int, ...]) -> int:
    """Where in its segment the header of a reply begins."""
    before = part.ids[: int(np.flatnonzero(part.scored)[0])].tolist()
    for at in reversed(range(len(before))):
        if before[at] in markers:
            return at
    raise ValueError(f"turn {turn}: no role marker before its first scored token in its segment")


def _split(tree: types.Tree, cuts: Mapping[int, int]) -> tuple[list[types.Segment], list[int]]:
    """The segments with those in `cuts` (segment -> its first token to come apart, 0: none) split.

    Returns them, and for each segment of the tree the number of its last part, on which its
    children hang.
    """
    parts: list[types.Segment] = []
    moved: list[int] = []
    for i, part in enumerate(tree):
        parent = moved[part.parent] if part.parent >= 0 else -1
        if at := cuts.get(i, 0):
            before = {name: getattr(part, name)[:at] for name in ARRAYS}
            after = {name: getattr(part, name)[at:] for name in ARRAYS}
            parts.append(dataclasses.replace(part, parent=parent, **before))  # type: ignore[arg-type]
            parts.append(dataclasses.replace(part, parent=len(parts) - 1, **after))  # type: ignore[arg-type]
        else:
            parts.append(
                part if parent == part.parent else dataclasses.replace(part, parent=parent)
            )
        moved.append(len(parts) - 1)
    return parts, moved
