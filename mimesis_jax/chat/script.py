"""Writes trusted template text and untrusted words as one run of ids.

A published template is text that its tokenizer reads as a whole, special tokens included. Here only
the template's own text may name special tokens; between two of them text of either kind is joined
before it is tokenised, so that the ids are those of the whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from mimesis_jax.chat import tokenizer

Item = int | str  # an id, or untrusted text


class Missing(ValueError):
    """A tokenizer lacks a special token that the chat family is written with."""


class Script:
    """The special tokens of one tokenizer, found in trusted text."""

    def __init__(self, tok: tokenizer.Tokenizer):
        self._tok = tok
        names = sorted(tok.specials, key=len, reverse=True)
        self._seen: dict[str, list[Item]] = {}
        self._any = re.compile("(" + "|".join(map(re.escape, names)) + ")") if names else None

    def id(self, name: str) -> int:
        """The id of a special token. Raises Missing."""
        if name not in self._tok.specials:
            raise Missing(
                f"the tokenizer has no special token {name!r}: it belongs to another chat family"
            )
        return self._tok.specials[name]

    def trusted(self, text: str) -> list[Item]:
        """Template text as ids of the special tokens in it and the text between them."""
        if text not in self._seen:
            parts = self._any.split(text) if self._any else [text]
            self._seen[text] = [self._tok.specials.get(part, part) for part in parts if part]
        return list(self._seen[text])

    def marked(self, text: str, marks: Sequence[str]) -> list[Item]:
        """Untrusted text in which the `marks` are ids where they stand alone on a line."""
        if not marks:
            return [text]
        alone = re.compile(rf"^({'|'.join(map(re.escape, marks))})$", re.MULTILINE)
        parts = alone.split(text)  # odd ones are marks
        return [self.id(part) if n % 2 else part for n, part in enumerate(parts)]

    def ids(self, items: Iterable[Item]) -> np.ndarray:
        """[n] int32: the ids as they are, each run of text between them tokenised as one."""
        found: list[int] = []
        run: list[str] = []
        for item in (*items, None):
            if isinstance(item, str):
                run.append(item)
                continue
            found.extend(self._tok.encode("".join(run)).tolist() if run else ())
            run = []
            if item is not None:
                found.append(item)
        return np.asarray(found, np.int32)
