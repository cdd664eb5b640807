"""Long conversations cut to rows: windows in which each human turn is learned exactly once.

Replies of an assistant run to thousands of tokens, a row has some hundreds. Two things are done,
both in whole human turns:

1. `trim`: what the user reads (replies, tool results, the brief) is cut in the middle where it is
   longer than a limit; its beginning and end stay, "[...]" stands between. Human turns are never
   cut.
2. `windows`: a conversation that is still longer than a row becomes several. A window learns a run
   of human turns and begins with the most recent whole turns before them, as many as `context`
   tokens hold; a leading brief is repeated in each. A human turn that no row can hold, even alone
   after the brief, is left out by name.

`stretches` is the other cut, for plain language modelling of both chairs: nothing is shortened.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from mimesis_jax import types
from mimesis_jax.chat import render, tokenizer
from mimesis_jax.data import swap
from mimesis_jax.types import Dialogue, Tree

GAP = " [...] "
LEAST = 24  # tokens: less than this leaves no words around the gap
WORD = 24  # characters: how far a cut is moved to fall between words


@dataclasses.dataclass(frozen=True)
class Window:
    """Part of a conversation that fits a row.

    id: of its record. row: the turns as they are rendered, the brief first where there is one.
    first: index in row.dialogue of the first learned turn; human turns before it are context.
    """

    id: str
    row: swap.Row
    first: int

    @property
    def learned(self) -> int:
        """How many human turns are learned here."""
        return sum(turn.author == self.row.chair for turn in self.row.dialogue[self.first :])


@dataclasses.dataclass(frozen=True)
class Stretch:
    """A piece of a conversation's public tokens. id: of its record. ids: [n] int32."""

    id: str
    ids: np.ndarray


@dataclasses.dataclass(frozen=True)
class Shortened:
    """What `windows` made. left_out: "record, turn n: why" of human turns that no row holds."""

    windows: tuple[Window, ...]
    left_out: tuple[str, ...]


# --- cutting turns ----------------------------------------------------------------------------


def cut(text: str, most: int, tok: tokenizer.Tokenizer) -> str:
    """The text in at most `most` tokens: itself, or its beginning and end around "[...]".

    Cuts fall between words where one ends nearby, never inside a character. Raises ValueError for
    a limit under LEAST.
    """
    if most < LEAST:
        raise ValueError(f"a limit of {most} tokens leaves no words: the least is {LEAST}")
    ids = tok.encode(text)
    if len(ids) <= most:
        return text
    pieces = tok.pieces(ids)
    keep = most - len(tok.encode(GAP))
    while True:
        head = "".join(pieces[: (keep + 1) // 2])
        tail = "".join(pieces[len(pieces) - keep // 2 :])
        made = _to_word(head) + GAP + _to_word(tail[::-1])[::-1]
        over = len(tok.encode(made)) - most  # the ends may merge otherwise than before
        if over <= 0:
            return made
        keep -= over


def _to_word(text: str) -> str:
    """Without the half word at its end, when there is a space near it."""
    near = max((text.rfind(space) for space in " \n\t"), default=-1)
    return text[:near].rstrip() if 0 < len(text) - near <= WORD and near > 0 else text


def trim(row: swap.Row, most: int, tok: tokenizer.Tokenizer) -> tuple[swap.Row, int]:
    """The row with every turn that is not learned cut to `most` tokens, and how many were cut."""
    turns = tuple(
        turn
        if turn.author == row.chair
        else dataclasses.replace(turn, public=cut(turn.public, most, tok))
        for turn in row.dialogue
    )
    count = sum(a != b for a, b in zip(turns, row.dialogue, strict=True))
    return dataclasses.replace(row, dialogue=turns), count


# --- windows ----------------------------------------------------------------------------------


def windows(
    row: swap.Row, renderer: render.Renderer, *, length: int, chunk: int, context: int
) -> Shortened:
    """Windows of at most `length` tokens that learn each turn of the row's chair exactly once.

    length: T of the batch's rows. chunk: C, to which a branch is padded. context: tokens of
    history that a window's first learned turn has at most (later ones have more); it gives way
    where that turn needs the room.
    """
    turns = row.dialogue
    brief = next((i for i, turn in enumerate(turns) if turn.author != "system"), len(turns))
    private = row.thinking != "none"
    pad = (lambda n: -(-n // chunk) * chunk) if private else (lambda n: n)
    seen = [pad(len(renderer.turn(turn))) for turn in turns]
    own = [
        pad(len(renderer.line(turn, row.thinking)[0])) + (seen[i] if private else 0)
        if turn.author == row.chair
        else seen[i]
        for i, turn in enumerate(turns)
    ]
    room = length // chunk * chunk - sum(seen[:brief])
    made: list[Window] = []
    left_out: list[str] = []
    mine = [i for i, turn in enumerate(turns) if turn.author == row.chair]
    while mine:
        i = mine[0]
        if own[i] > room:
            left_out.append(f"{row.id}, turn {i}: {own[i]} tokens, a row has room for {room}")
            mine.pop(0)
            continue
        start, used = i, own[i]
        while start > brief and used + seen[start - 1] <= min(room, context + own[i]):
            start -= 1
            used += seen[start]
        end = i
        for k in range(i + 1, len(turns)):
            used += own[k]
            if used > room:
                break
            end = k if turns[k].author == row.chair else end
        part = dataclasses.replace(row, dialogue=turns[:brief] + turns[start : end + 1])
        made.append(Window(row.id, part, brief + i - start))
        mine = [k for k in mine if k > end]
    return Shortened(tuple(made), tuple(left_out))


def tree(window: Window, renderer: render.Renderer) -> Tree:
    """The window as segments to learn from; its context is scored nowhere. See swap.tree."""
    return renderer.tree(
        window.row.dialogue, window.row.chair, thinking=window.row.thinking, history="drop",
        learn=lambda i, _: float(i >= window.first),
    )  # fmt: skip


def unbriefed(window: Window, thinking) -> Window:
    """The same learned words and history without the brief and without thoughts, read in a mode.

    Never longer than the window it is made of when that has a thought's header ("empty",
    "sample"), so it fits the same row.
    """
    turns = [
        dataclasses.replace(turn, private=None if thinking == "none" else "")
        if turn.author == window.row.chair
        else turn
        for turn in window.row.dialogue
    ]
    brief = next((i for i, turn in enumerate(turns) if turn.author != "system"), len(turns))
    row = dataclasses.replace(window.row, dialogue=tuple(turns[brief:]), thinking=thinking)
    return Window(window.id, row, window.first - brief)


# --- both chairs ------------------------------------------------------------------------------


def stretches(id: str, dialogue: Dialogue, renderer: render.Renderer, length: int) -> list[Stretch]:
    """All public tokens of a conversation in pieces of at most `length`, for both chairs.

    A piece begins with the last token of the one before, which is context there: every token but
    the conversation's first is learned exactly once.
    """
    turns = types.public(dialogue)
    if not turns:
        return []
    ids = np.concatenate([renderer.turn(turn) for turn in turns])
    starts = range(0, max(1, len(ids) - 1), length - 1)
    return [Stretch(id, ids[start : start + length]) for start in starts]


def line(stretch: Stretch) -> Tree:
    """The stretch as a tree of one segment; all but its first token are learned."""
    return (types.segment(stretch.ids, scored=np.arange(len(stretch.ids)) > 0),)
