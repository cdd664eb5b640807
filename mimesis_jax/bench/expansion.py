"""The naive expansion: one sequence a turn, as a trainer without a forest runs it; the rival.

It is made as strong as it can be. Scored segments of one path share a sequence (a round of calls
and results is one), a sequence ends with its last scored token, and a dialogue that is a single
line stays one sequence, as plain rows would have it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from mimesis_jax import types
from mimesis_jax.forest import blocks, fill, pack, tree

ARRAYS = ("ids", "scored", *tree.COLUMNS)


@dataclasses.dataclass(frozen=True)
class Expanded:
    """rows: trees of one segment each, a sequence with its whole history.

    numbers: [n] int64, for each scored token of `rows` in order, its number among the scored tokens
      of the trees that were expanded. A permutation: every scored token is scored once.
    """

    rows: list[types.Tree]
    numbers: np.ndarray


def expand(trees: Sequence[types.Tree]) -> Expanded:
    """The trees as sequences; columns (weights, gates and so on) come along."""
    rows: list[types.Tree] = []
    numbers = [np.zeros(0, np.int64)]
    start = 0
    for one in trees:
        counts = [int(np.count_nonzero(part.scored)) for part in one]
        first = start + np.cumsum([0, *counts])
        left = {i for i, count in enumerate(counts) if count}
        for tip in _tips(one, left):
            path = tree.ancestry(one, tip)
            mine = [i for i in path if i in left]
            left -= set(mine)
            rows.append((_sequence(one, path, set(mine)),))
            numbers += [first[i] + np.arange(counts[i]) for i in mine]
        start = int(first[-1])
    return Expanded(rows, np.concatenate(numbers))


def _tips(one: types.Tree, scored: set[int]) -> list[int]:
    """Scored segments below which nothing is scored, in order."""
    inner: set[int] = set()
    for i in scored:
        inner.update(tree.ancestry(one, i)[:-1])
    return sorted(scored - inner)


def _sequence(one: types.Tree, path: Sequence[int], mine: set[int]) -> types.Segment:
    """The path as one segment in which only the tokens of `mine` are scored."""
    joined = {name: np.concatenate([getattr(one[i], name) for i in path]) for name in ARRAYS}
    own = np.concatenate([np.full(len(one[i]), i in mine) for i in path])
    joined["scored"] = joined["scored"] & own
    end = int(np.flatnonzero(joined["scored"])[-1]) + 1
    columns: dict[str, Any] = {name: np.where(own, joined[name], 0)[:end] for name in tree.COLUMNS}
    return types.segment(
        joined["ids"][:end], scored=joined["scored"][:end], turn=one[path[-1]].turn, **columns
    )


def padded(rows: Sequence[types.Tree], shape: pack.Shape) -> pack.Packed:
    """One sequence a row, each padded to `shape.length`: the plain [B, T] batch.

    Raises ValueError, as `pack.pack` does, for a sequence longer than a row.
    """
    placed, first = [], 0
    for number, one in enumerate(rows):
        placed += [(first, block) for block in pack.blocks(one, shape, f"sequence {number}")]
        first += len(one)
    many = -(-len(placed) // shape.rows) * shape.rows
    chosen = [[i] if i < len(placed) else [] for i in range(many)]
    forests, origin = fill.arrays([part for one in rows for part in one], placed, chosen, shape)
    if shape.long:
        forests = [blocks.plan(f, size=shape.block, kernel=shape.kernel) for f in forests]
    return pack.Packed(forests, origin)
