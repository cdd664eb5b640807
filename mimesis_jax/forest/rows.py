"""Which block goes to which row: as few rows as best fit needs, with the work spread evenly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimesis_jax.forest import order
from mimesis_jax.forest.shape import Shape


def assign(found: Sequence[order.Block], shape: Shape) -> list[list[int]]:
    """Block numbers of each row; the number of rows is a multiple of B.

    First best fit by decreasing padded length, which says how many rows are needed; then the same
    blocks once more, each to the row with the least work so far (its share of all tokens plus its
    share of all attention pairs), so that no row of a micro-batch waits for another. Where that
    leaves a block without a place, the first assignment stands. Ties go to the lower number.
    """
    length = np.array([block.length for block in found])
    learned = np.array([block.learned for block in found])
    pairs = np.array([block.pairs for block in found])
    work = length / length.sum() + pairs / pairs.sum()
    size = (length, learned, work)
    tight = _place(np.lexsort((-learned, -length)).tolist(), size, len(found), shape, True)
    assert tight is not None  # a row for each block is always enough
    used = [row for row in tight if row]
    many = -(-len(used) // shape.rows) * shape.rows
    even = _place(np.lexsort((-length, -work)).tolist(), size, many, shape, False)
    if even is None:
        even = used + [[] for _ in range(many - len(used))]
    return [sorted(row) for row in even]


def _place(
    blocks: list[int],
    size: tuple[np.ndarray, np.ndarray, np.ndarray],
    rows: int,
    shape: Shape,
    tightest: bool,
) -> list[list[int]] | None:
    """Place blocks in the order given, in the tightest row they fit or in the least busy one.

    size: length, learned and work of each block. None where a block finds no row.
    """
    length, learned, work = size
    room, spare, busy = (np.full(rows, v, float) for v in (shape.length, shape.learned, 0.0))
    chosen: list[list[int]] = [[] for _ in range(rows)]
    opened = 1 if tightest else rows
    for i in blocks:
        fits = (room[:opened] >= length[i]) & (spare[:opened] >= learned[i])
        best = int(np.where(fits, (room if tightest else busy)[:opened], np.inf).argmin())
        if not fits[best]:
            if opened == rows:
                return None
            best, opened = opened, opened + 1
        room[best] -= length[i]
        spare[best] -= learned[i]
        busy[best] += work[i]
        chosen[best].append(i)
    return chosen
