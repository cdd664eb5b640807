"""A page that draws rows of a forest for people: whose parent, who sees what, what is learned.

Knows no tokens and no packing: it is told where each segment lies and draws that. One line a
segment; its bar lies where the segment lies in the row, paler bars where the tokens lie that it
sees. So the lines under each other are the row's attention mask, a segment a line.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from mimesis_jax.report import sheet

MASK = 360  # segments; a mask of more is not drawn


@dataclasses.dataclass(frozen=True)
class Token:
    """text: as it reads. learned: its loss weight is above 0. scored: its log-prob is wanted.
    gate: of CSD, in (0, 1), or None."""

    text: str
    learned: bool = False
    scored: bool = False
    gate: float | None = None

    @property
    def shade(self) -> int:
        """Percent of the gate's colour."""
        return 0 if self.gate is None else round(100 * min(1.0, max(0.0, self.gate)))


@dataclasses.dataclass(frozen=True)
class Drawn:
    """One segment as it lies in its row.

    number, parent: in the row, from 1; parent 0 is none. what: who speaks, or what it is.
    of: the dialogue. turn: of the dialogue. start: its first place; tokens: its own, in order.
    end: exclusive end of its subtree. sees: (start, size) of what lies before it on its path.
    copy: an ancestor repeated for a part of a tree that was cut; scores nothing.
    state: where its state comes from and whether it is kept, in words.
    """

    number: int
    parent: int
    kind: Literal["trunk", "branch", "teacher"]
    what: str
    of: str
    turn: int
    start: int
    end: int
    depth: int
    tokens: tuple[Token, ...]
    sees: tuple[tuple[int, int], ...] = ()
    copy: bool = False
    state: str = ""

    @property
    def size(self) -> int:
        return len(self.tokens)

    @property
    def learned(self) -> int:
        return sum(token.learned for token in self.tokens)

    @property
    def marks(self) -> list[tuple[int, int]]:
        """(start, size) of runs of learned tokens."""
        runs: list[tuple[int, int]] = []
        for place, token in enumerate(self.tokens, start=self.start):
            if not token.learned:
                continue
            if runs and sum(runs[-1]) == place:
                runs[-1] = (runs[-1][0], runs[-1][1] + 1)
            else:
                runs.append((place, 1))
        return runs


@dataclasses.dataclass(frozen=True)
class Row:
    """One row: its places T, the chunk C, and the segments in the order they lie."""

    length: int
    chunk: int
    segments: tuple[Drawn, ...]

    @property
    def real(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def learned(self) -> int:
        return sum(segment.learned for segment in self.segments)

    @property
    def used(self) -> int:
        """Places up to the last segment's end: what is drawn. A whole number of chunks."""
        last = max((s.start + s.size for s in self.segments), default=1)
        return -(-last // self.chunk) * self.chunk

    @property
    def pairs(self) -> int:
        """(token, token it sees) pairs."""
        own = sum(s.size * (s.size + 1) // 2 for s in self.segments)
        return own + sum(s.size * size for s in self.segments for _, size in s.sees)

    @property
    def pair_share(self) -> float:
        """Of the pairs that plain causal attention over the used places would compute."""
        return self.pairs / (self.used * (self.used + 1) / 2)

    @property
    def mask(self) -> tuple[Drawn, ...]:
        return self.segments if len(self.segments) <= MASK else ()


@dataclasses.dataclass(frozen=True)
class Page:
    """title: what was drawn. facts: (name, value) pairs. rows: in order. left_out: rows not
    drawn."""

    title: str
    facts: tuple[tuple[str, str], ...]
    rows: tuple[Row, ...]
    left_out: int = 0


def render(drawn: Page) -> str:
    """The page's HTML: one file, no script, no network, no font of its own."""
    # A percentage of the row's used places, as short as it can be.
    share = lambda places, row: f"{100 * places / row.used:.5g}"
    words = {"page": drawn, "style": sheet.style("style.css", "forest.css")}
    return sheet.printed("forest.html", words, share=share)
