"""Noise on users' wording: what is said stays, how it is said varies beyond any phrase table.

An agent that has only met six families of phrases reads a seventh badly (measured: success 0.66
with phrases of its training, 0.27 with new ones). Rows whose filler words are dropped, swapped and
added teach it to go by the slots, values and requests that a turn holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from mimesis_jax.desk import phrases, slots, subflows
from mimesis_jax.types import Dialogue, Turn

KEPT = frozenset({*slots.SLOT_OF, *slots.VALUES, *subflows.SUBFLOWS})
FILLERS = tuple(sorted(phrases.words(phrases.TRAINING) - KEPT))


def dialogue(turns: Sequence[Turn], rng: np.random.Generator, *, share: float = 0.5) -> Dialogue:
    """The dialogue with each user turn reworded with probability `share`; the rest is as it was.

    In a reworded turn every word that is no slot, value or request is dropped (0.15) or swapped for
    another filler (0.25), and now and then (0.1) one is added before it. Raises ValueError when
    `share` is not in [0, 1].
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"share={share} is not a probability: use 0 to 1")
    return tuple(
        dataclasses.replace(turn, public=_reworded(turn.public, rng))
        if turn.author == "user" and rng.random() < share
        else turn
        for turn in turns
    )


def _reworded(text: str, rng: np.random.Generator) -> str:
    out: list[str] = []
    for word in text.split():
        chance = rng.random()
        if rng.random() < 0.1:
            out.append(_filler(rng))
        if word in KEPT or chance >= 0.4:
            out.append(word)
        elif chance >= 0.15:
            out.append(_filler(rng))
    return " ".join(out) or text


def _filler(rng: np.random.Generator) -> str:
    return FILLERS[int(rng.integers(len(FILLERS)))]
