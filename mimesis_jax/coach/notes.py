"""What every coach satisfies, and notes of another episode as a control."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mimesis_jax import types

Notes = dict[int, str | None]


class Coach(Protocol):
    """Reads a finished dialogue and has, for every agent turn, a note or nothing to say."""

    def notes(self, dialogue: Sequence[types.Turn]) -> Notes:
        """{index in `dialogue` of an agent turn: note, or None}, for all agent turns in order.

        A note is what the teacher reads after the history before that turn. It may use all that
        both chairs said and thought, and must say only what follows from public history.
        """
        ...


def placebo(notes: Sequence[Notes]) -> list[Notes]:
    """The control: each turn that has a note gets one of another episode's instead.

    Turn k of episode i gets the note of turn k (counted among coached turns, around again when
    there are fewer) of the next episode that has notes; where no other episode has one, None.
    Which turns are coached is as before, otherwise.
    """
    written = [[note for note in episode.values() if note is not None] for episode in notes]
    order = [i for i, texts in enumerate(written) if texts]
    follower = dict(zip(order, order[1:] + order[:1], strict=True))
    swapped: list[Notes] = []
    for i, episode in enumerate(notes):
        donor = follower.get(i, i)
        texts = written[donor] if donor != i else []
        fresh: Notes = {}
        count = 0
        for index, note in episode.items():
            if note is None or not texts:
                fresh[index] = None
                continue
            fresh[index] = texts[count % len(texts)]
            count += 1
        swapped.append(fresh)
    return swapped
