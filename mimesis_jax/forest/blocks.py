"""Block lists of long rows: which blocks of keys each block of queries may see; plain numpy.

Attention over a row of T tokens has T^2 pairs, of which a forest's mask allows few: t may attend
to s when s <= t < last[s]. A block of keys is seen by the query blocks that begin before the
furthest `last` in it, which is a run of blocks starting at its own. The list of a row is therefore
short for many small trees and the whole triangle for one long line.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np

from mimesis_jax import types

SIZE = 256  # tokens a block: large enough for matrix units, small beside a dialogue


def pair_count(length: int, size: int) -> int:
    """P, the length of a row's list: all (query block, key block) pairs of the triangle."""
    count = length // size
    return count * (count + 1) // 2


def seen(forest: types.Forest) -> np.ndarray:
    """[B, T] int32, `last` with padding seen by itself only: what attention compares t with."""
    last = np.asarray(forest.last)
    own = np.arange(1, last.shape[1] + 1, dtype=np.int32)
    return np.where(np.asarray(forest.valid), last, own)


def plan(
    forest: types.Forest, *, size: int = SIZE, kernel: Literal["loop", "splash"] = "loop"
) -> types.Forest:
    """The forest with its block lists: attention then visits the listed blocks only.

    size: tokens a block, a divisor of T. kernel: "loop", the project's own online softmax; or
    "splash", a kernel for TPUs (size a multiple of 128), see models.splash.

    All lists of rows of T tokens have one shape, the triangle's, so that nothing recompiles from
    row to row; the loop ends at the longest list of the batch. For "splash" the number of partly
    visible blocks is a shape too: it is rounded up to a power of two.

    Raises ValueError when the size does not fit the row or the kernel.
    """
    rows, length = np.shape(forest.tokens)
    if size < 1 or length % size:
        raise ValueError(
            f"blocks of {size} tokens do not divide a row of {length}: use a divisor of {length}"
        )
    if kernel not in ("loop", "splash"):
        raise ValueError(f"kernel {kernel!r} is unknown: use 'loop' or 'splash'")
    if kernel == "splash" and size % 128:
        raise ValueError(f"blocks of {size} tokens: the splash kernel takes multiples of 128")
    last = seen(forest).reshape(rows, -1, size)
    number = np.arange(last.shape[1])
    # Own block first: every query sees itself, so the running maximum is real from the start.
    order = np.where(number[:, None] == number, -1, number)
    query, key = np.nonzero(number[:, None] >= number)
    inside = np.argsort(query * len(number) + order[query, key], kind="stable")
    query, key = query[inside], key[inside]
    listed = last.max(axis=2)[:, key] > query * size
    partial = last.min(axis=2)[:, key] < (query + 1) * size
    partial |= query == key
    lists = [_list(*row, query, key) for row in zip(listed, partial, strict=True)]
    queries, keys, counts, edges = zip(*lists, strict=True)
    padded = None
    if kernel == "splash":
        width = 1 << (max(map(len, edges)) - 1).bit_length()
        padded = np.full((rows, width), len(query), np.int32)
        for row, edge in zip(padded, edges, strict=True):
            row[: len(edge)] = edge
    blocks = types.Blocks(
        np.stack(queries),  # type: ignore[arg-type]
        np.stack(keys),  # type: ignore[arg-type]
        np.array(counts, np.int32),  # type: ignore[arg-type]
        padded,  # type: ignore[arg-type]
        size=size,
        kernel=kernel,
    )
    return dataclasses.replace(forest, blocks=blocks)


def _list(
    listed: np.ndarray, partial: np.ndarray, query: np.ndarray, key: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
    """One row's queries and keys [P], their count, and the entries that are partly visible."""
    own = np.flatnonzero(listed)
    queries = np.full(len(query), query[own[-1]], np.int32)
    keys = np.zeros(len(key), np.int32)
    queries[: len(own)], keys[: len(own)] = query[own], key[own]
    return queries, keys, len(own), np.flatnonzero(partial[own])
