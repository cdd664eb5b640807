"""Grows the tree of a supervised dialogue from rendered turns: what is trunk, what is branch."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from mimesis_jax import types

History = Literal["drop_at_user", "drop", "keep"]
HISTORIES = ("drop_at_user", "drop", "keep")


@dataclasses.dataclass(frozen=True)
class Piece:
    """One turn as the chair may see it, in ids.

    turn: its index in the dialogue. plain: the public form, as the trunk takes it.
    own: whether the chair speaks here; other: whether the other chair does.
    line: the chair's own form, header first, with the thought where there is one; the same as
      `plain` where nothing is private. head: ids of `line` that are header.
    private: whether `line` may differ from `plain`, so that it lies on a branch.
    weight: loss weight of what follows the header; 0 is not learned.
    note: ids of the note before the reply, or none. tail: ids at the end of `line` that nobody
      says (what stands between two turns), which are never learned.
    """

    turn: int
    plain: np.ndarray
    own: bool = False
    other: bool = False
    line: np.ndarray | None = None
    head: int = 0
    private: bool = False
    weight: float = 0.0
    note: np.ndarray | None = None
    tail: int = 0


def grow(pieces: Sequence[Piece], history: History, note_kind: str) -> types.Tree:
    """The tree of the pieces; segments that lead to nothing scored are left out.

    history: when own private text leaves the context: "drop" with the next turn, "drop_at_user"
      with the other chair's next turn (a round of calls and results keeps it), "keep" never.
    note_kind: "branch": the reply after a note is learned and the plain one is not; "teacher": the
      plain one is learned and the noted one is scored with weight 0.
    """
    segments: list[types.Segment] = []

    def add(ids, parent, piece, kind, head=0, weight=0.0, learned=False, note=0):
        scored = np.zeros(len(ids), bool)
        if learned:
            scored[note + head : len(ids) - piece.tail] = True
        segments.append(
            types.segment(ids, parent, scored=scored, weight=weight, turn=piece.turn, kind=kind)
        )
        return len(segments) - 1

    trunk = inner = -1  # inner: the tip of this round's private line; -1 where there is none
    for piece in pieces:
        if piece.other:
            inner = -1
        tip = trunk if inner < 0 else inner
        if not piece.own or piece.line is None:
            if inner >= 0:
                inner = add(piece.plain, inner, piece, "branch")
            trunk = add(piece.plain, trunk, piece, "trunk")
            continue
        learned = piece.weight > 0
        if piece.note is not None and len(piece.note):
            ids = np.concatenate([piece.note, piece.line])
            weight = piece.weight if note_kind == "branch" else 0.0
            add(ids, tip, piece, note_kind, piece.head, weight, learned, len(piece.note))
            learned &= note_kind == "teacher"
        kind = "branch" if piece.private else "trunk"
        if piece.private and history != "keep":
            inner = add(piece.line, tip, piece, kind, piece.head, piece.weight, learned)
            trunk = add(piece.plain, trunk, piece, "trunk")
            inner = -1 if history == "drop" else inner
        else:
            trunk = add(piece.line, trunk, piece, kind, piece.head, piece.weight, learned)
    return _pruned(segments)


def _pruned(segments: Sequence[types.Segment]) -> types.Tree:
    """Without the segments below which nothing is scored."""
    useful = [bool(part.scored.any()) for part in segments]
    for i in reversed(range(len(segments))):
        if useful[i] and segments[i].parent >= 0:
            useful[segments[i].parent] = True
    number = {-1: -1}
    kept: list[types.Segment] = []
    for i, part in enumerate(segments):
        if useful[i]:
            number[i] = len(kept)
            kept.append(dataclasses.replace(part, parent=number[part.parent]))
    return tuple(kept)
