"""The format of a sampled reply, in ids alone: what is private, what is public, what is wrong.

    sample  thought </think> utterance <|end|>       after the header  <|author|> <think>
    empty   utterance <|end|>                        after             <|author|> <think> </think>
    none    utterance <|end|>                        after             <|author|>

A user who ends the conversation closes with <|leave|> in place of <|end|>. Other families have
other ids for the same marks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

from mimesis_jax.chat import tokenizer

Thinking = Literal["sample", "empty", "none"]
Fault = Literal["unclosed_thought", "stray_special", "cut", "empty"]


def mode(thinking: bool | Thinking) -> Thinking:
    """The mode by its name; True is "sample", False is "none". Raises ValueError for another."""
    if isinstance(thinking, bool):
        return "sample" if thinking else "none"
    if thinking not in ("sample", "empty", "none"):
        raise ValueError(
            f"thinking={thinking!r} is no mode: use 'sample' (or True), 'empty', 'none' (or False)"
        )
    return thinking


@dataclasses.dataclass(frozen=True)
class Marks:
    """The ids that the format is made of.

    closers: end a reply. think_end: closes a thought, -1 where the family has none.
    special: no text produces them. inner: those of them that may stand in an utterance.
    """

    closers: tuple[int, ...]
    think_end: int
    special: frozenset[int]
    inner: frozenset[int] = frozenset()


SMALL = Marks(
    (tokenizer.END, tokenizer.LEAVE),
    tokenizer.THINK_END,
    frozenset(range(len(tokenizer.SPECIALS))),
)


@dataclasses.dataclass(frozen=True)
class Parts:
    """Where a reply's parts are in its sampled ids.

    thought: slice of the private thought, None where none was to be sampled or it never closed.
    utterance: slice of the public text, without special tokens; empty where there is none.
    closer: the id that ends it, None when it was cut.
    fault: what is wrong first, None for a well-formed reply that may still say nothing.
    """

    thought: slice | None
    utterance: slice
    closer: int | None
    fault: Fault | None


def split(ids: Sequence[int], thinking: Thinking, marks: Marks = SMALL) -> Parts:
    """Find the parts of sampled ids [n].

    Nothing private is ever inside `utterance`: it starts after the last </think> and stops at the
    next special token that may not stand in it, whatever the sampler did.
    """
    ids = [int(i) for i in ids]
    outer = marks.special - marks.inner
    closer = ids[-1] if ids and ids[-1] in marks.closers else None
    body = ids if closer is None else ids[:-1]
    ends = [n for n, i in enumerate(body) if i == marks.think_end]
    if thinking == "sample" and not ends:
        return Parts(None, slice(0, 0), closer, "unclosed_thought")
    start = ends[-1] + 1 if ends else 0
    stop = next((n for n in range(start, len(body)) if body[n] in outer), len(body))
    allowed = 1 if thinking == "sample" else 0
    stray = len(ends) > allowed or any(i in outer and i != marks.think_end for i in body)
    thought = slice(0, ends[0]) if thinking == "sample" else None
    fault: Fault | None = "stray_special" if stray else "cut" if closer is None else None
    return Parts(thought, slice(start, stop), closer, fault)
