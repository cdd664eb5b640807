"""The shape of a micro-batch: rows, their length, chunks, learned tokens and slots."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape every micro-batch has: nothing recompiles while it stays the same.

    rows: B. length: T, tokens a row, a multiple of the chunk. chunk: C.
    learned: M, scored tokens a row at most. slots: state slots (1 for thinking turns, 2 with a
      prompt shared by a group).
    """

    rows: int
    length: int
    chunk: int
    learned: int
    slots: int = 2

    def __post_init__(self):
        for name in ("rows", "length", "chunk", "learned", "slots"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, the least is 1")
        if self.length % self.chunk:
            whole = self.length // self.chunk * self.chunk
            raise ValueError(
                f"length {self.length} is not a multiple of chunk {self.chunk}:"
                f" use {whole + self.chunk} or a chunk that divides it"
            )
