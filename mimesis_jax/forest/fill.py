"""Writes the arrays of the forests once every block has its row; all rows at once, in numpy."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from mimesis_jax.forest import order, tree
from mimesis_jax.forest.shape import Shape
from mimesis_jax.types import Forest, Segment

NONE = -1  # in origin: no scored token here


@dataclasses.dataclass(frozen=True)
class Laid:
    """Every placed segment (n) and token (k) on one line of R * T places, row after row.

    start, before, end, depth, own: [n], see order.Block; `before` is R * T where there is none,
      `end` counts from the row's first place.
    count: [n] tokens. to: [k] place of each token, ascending. of: [k] its number among all tokens
      of the trees. runs: [r, 6], see order.Block, chunks counted over all rows.
    """

    start: np.ndarray
    before: np.ndarray
    end: np.ndarray
    depth: np.ndarray
    own: np.ndarray
    count: np.ndarray
    to: np.ndarray
    of: np.ndarray
    runs: np.ndarray


def arrays(
    parts: Sequence[Segment],
    placed: Sequence[tuple[int, order.Block]],
    rows: Sequence[Sequence[int]],
    shape: Shape,
) -> tuple[list[Forest], list[np.ndarray]]:
    """The forests, and for each its origin [B, M] (see pack.Packed).

    parts: the segments of all trees. placed: blocks, each with the number in `parts` of its
    tree's first segment. rows: block numbers of each row, a multiple of B rows.
    """
    laid = _lay(np.array([len(part.ids) for part in parts]), placed, rows, shape)
    ids = np.concatenate([part.ids for part in parts])
    previous = _previous(laid, len(rows) * shape.length)
    flat = _tokens(laid, ids, len(rows), shape)
    flat |= _chunks(laid, previous, len(rows), shape)
    learned, origin = _learned(laid, ids, parts, previous, len(rows), shape)
    flat |= learned

    def rowed(value: np.ndarray) -> np.ndarray:
        tail = value.shape[1:]
        return value.reshape(-1, shape.rows, len(value) // len(rows), *tail)

    batches = {name: rowed(value) for name, value in flat.items()}
    forests = [
        Forest(**{name: value[f] for name, value in batches.items()}, slots=shape.slots)  # type: ignore[arg-type]
        for f in range(len(rows) // shape.rows)
    ]
    return forests, list(rowed(origin))


def _lay(size: np.ndarray, placed, rows, shape: Shape) -> Laid:
    segments, runs = [], []
    for r, row in enumerate(rows):
        cursor = r * shape.length
        for i in row:
            first, block = placed[i]
            move = (first, cursor, 0, cursor - r * shape.length, cursor, 0)
            segments.append(block.segments + move)
            segments[-1][block.segments[:, 4] < 0, 4] = len(rows) * shape.length
            before = cursor // shape.chunk
            runs.append(block.runs + (cursor, before, 0, before, 0, 0))
            cursor += block.length
    number, start, depth, end, before, own = np.concatenate(segments).T
    count = size[number]
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    to = np.repeat(start, count) + within
    of = np.repeat((np.cumsum(size) - size)[number], count) + within
    return Laid(start, before, end, depth, own > 0, count, to, of, np.concatenate(runs))


def _previous(laid: Laid, places: int) -> np.ndarray:
    """[places + 1] the place of the token before each one on its path, `places` for none."""
    previous = np.full(places + 1, places, np.int64)
    previous[laid.to] = laid.to - 1
    previous[laid.start] = laid.before
    return previous


def _tokens(laid: Laid, ids: np.ndarray, rows: int, shape: Shape) -> dict[str, np.ndarray]:
    """The [R * T] arrays."""
    tokens, position = np.zeros((2, rows * shape.length), np.int32)
    tokens[laid.to] = ids[laid.of]
    position[laid.to] = laid.to - np.repeat(laid.start - laid.depth, laid.count)
    valid = np.zeros(rows * shape.length, bool)
    valid[laid.to] = True
    # A padded place sees only itself, so that no softmax row is empty by the formula alone.
    last = np.tile(np.arange(1, shape.length + 1, dtype=np.int32), rows)
    last[laid.to] = np.repeat(laid.end, laid.count)
    return {"tokens": tokens, "valid": valid, "position": position, "last": last}


def _chunks(laid: Laid, previous: np.ndarray, rows: int, shape: Shape) -> dict[str, np.ndarray]:
    """The [R * T/C] arrays."""
    none = rows * shape.length
    halo = np.empty((none // shape.chunk, 3), np.int64)
    halo[:, 2] = previous[: none : shape.chunk]
    halo[:, 1] = previous[halo[:, 2]]
    halo[:, 0] = previous[halo[:, 1]]
    halo = np.where(halo == none, shape.length, halo % shape.length)
    load, store = np.full((2, none // shape.chunk), -1, np.int32)
    _, first, loaded, last, stored, tokens = laid.runs.T
    # A run that carries on may begin, and one that ends without a fork may end, inside a chunk that
    # another one loads or stores for.
    loads, stores = loaded != -1, stored != -1
    load[first[loads]] = np.where(loaded == order.ZERO, shape.slots, loaded)[loads]
    store[last[stores]] = stored[stores]
    told = {"halo": halo.astype(np.int32), "load": load, "store": store}
    if shape.inside:
        told["kept"] = np.full(none // shape.chunk, shape.chunk, np.int32)
        told["kept"][last[stores]] = tokens[stores]
    return told


def _learned(
    laid: Laid,
    ids: np.ndarray,
    parts: Sequence[Segment],
    previous: np.ndarray,
    rows: int,
    shape: Shape,
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The [R * M] arrays and their origin."""
    scored = np.concatenate([part.scored for part in parts])
    wanted = scored[laid.of] & np.repeat(laid.own, laid.count)
    at, of = laid.to[wanted], laid.of[wanted]
    row = at // shape.length
    nth = np.arange(len(at)) - np.searchsorted(row, np.arange(rows))[row]
    cell = row * shape.learned + nth

    def listed(value, dtype, fill=0) -> np.ndarray:
        full = np.full(rows * shape.learned, fill, dtype)
        full[cell] = value
        return full

    flat = {
        name: listed(np.concatenate([getattr(part, name) for part in parts])[of], np.float32)
        for name in tree.COLUMNS
    }
    flat["source"] = listed(previous[at] % shape.length, np.int32)
    flat["target"] = listed(ids[of], np.int32)
    return flat, listed((np.cumsum(scored) - 1)[of], np.int64, NONE)
