"""The shape of a micro-batch: rows, their length, chunks, learned tokens and slots."""

from __future__ import annotations

import dataclasses
from typing import Literal

from mimesis_jax.forest import blocks


@dataclasses.dataclass(frozen=True)
class Shape:
    """The shape every micro-batch has: nothing recompiles while it stays the same.

    rows: B. length: T, tokens a row, a multiple of the chunk. chunk: C.
    learned: M, scored tokens a row at most. slots: state slots (1 for thinking turns, 2 with a
      prompt shared by a group).
    dense: rows longer than this carry block lists for the attention (see forest.blocks), which
      then makes no [T, T] array; they are a multiple of `block` long.
    block: tokens a block of these lists. Large ones feed matrix units; on CPUs 64 is faster, since
      smaller blocks leave out more of what no token may see (docs/forest.md).
    kernel: who reads the block lists, the project's own "loop" or, on TPUs, "splash".
    inside: a segment's first child goes on in its last chunk, and the state at the fork is kept
      from inside the chunk: half of the padding of short segments, for one product more a chunk of
      each linear layer.
    """

    rows: int
    length: int
    chunk: int
    learned: int
    slots: int = 2
    dense: int = 1024
    block: int = blocks.SIZE
    kernel: Literal["loop", "splash"] = "loop"
    inside: bool = False

    def __post_init__(self):
        for name in ("rows", "length", "chunk", "learned", "slots", "block"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, the least is 1")
        if self.length % self.chunk:
            whole = self.length // self.chunk * self.chunk
            raise ValueError(
                f"length {self.length} is not a multiple of chunk {self.chunk}:"
                f" use {whole + self.chunk} or a chunk that divides it"
            )
        if self.long and self.length % self.block:
            raise ValueError(
                f"length {self.length} is more than dense ({self.dense}) and not a multiple of"
                f" {self.block}, the attention's blocks: use"
                f" {-(-self.length // self.block) * self.block}, or raise dense"
            )

    @property
    def long(self) -> bool:
        """Whether the rows carry block lists for the attention."""
        return self.length > self.dense
