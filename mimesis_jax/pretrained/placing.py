"""Tensors into parameters, block by block: the host holds one block beside what is being filled.

Each device's part of a weight is allocated once and updated in place (donated), so neither the
stack of the periods nor a transposed copy ever exists beside it. A process reads only the rows that
its own devices hold.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax.pretrained import layout

BLOCK = 1 << 25  # bytes of a tensor that are read at once; a smaller weight is placed as a whole
Rows = Callable[[layout.Piece, int, int], np.ndarray]  # piece, first and end row of the tensor


def place(leaf: layout.Leaf, sharding: jax.sharding.Sharding, rows: Rows) -> jax.Array:
    """One parameter [leaf.shape] in leaf.dtype, laid over devices as `sharding` says.

    rows: reads a tensor's rows [start, stop) as float arrays; it is asked once for each row that
      this process needs.
    """
    if math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize <= BLOCK:
        return _whole(leaf, sharding, rows)
    parts = sharding.addressable_devices_indices_map(leaf.shape)
    spans = {device: _spans(index or (), leaf.shape) for device, index in parts.items()}
    made = {
        device: jnp.zeros([b - a for a, b in span], leaf.dtype, device=device)
        for device, span in spans.items()
    }
    for period, piece in enumerate(leaf.pieces):
        needed = {d: s for d, s in spans.items() if not leaf.stacked or _in(s[0], period)}
        wanted = [span[-len(piece.view) :][piece.turn.index(0)] for span in needed.values()]
        for first, block in _blocks(piece, rows, wanted):
            for device, span in needed.items():
                cut = _cut(span, block.shape, leaf, piece, period, first)
                if cut is not None:
                    part = jax.device_put(block[cut[0]], device)
                    turn = piece.turn
                    made[device] = _put(made[device], part, cut[1], turn=turn, stack=leaf.stacked)
            jax.block_until_ready([*made.values()])  # no second block while this one is on its way
    order = [made[device] for device in parts]
    return jax.make_array_from_single_device_arrays(leaf.shape, sharding, order)


def _whole(leaf: layout.Leaf, sharding, rows: Rows) -> jax.Array:
    out = np.empty(leaf.shape, leaf.dtype)
    for period, piece in enumerate(leaf.pieces):
        view = out[period] if leaf.stacked else out
        array = rows(piece, piece.start, piece.start + piece.rows)
        view[...] = array.reshape(piece.view).transpose(piece.turn)
    return jax.make_array_from_callback(leaf.shape, sharding, lambda index: out[index])


def _blocks(piece: layout.Piece, rows: Rows, wanted) -> Iterator[tuple[int, np.ndarray]]:
    """(first step, the steps as the view shows them) of the view's leading axis, what is wanted."""
    if not wanted:
        return
    low, high = min(a for a, _ in wanted), max(b for _, b in wanted)
    row = math.prod(piece.view[1:]) * 4  # bytes of a step in float32
    size = max(1, BLOCK // row)
    for first in range(low, high, size):
        last = min(first + size, high)
        if any(a < last and b > first for a, b in wanted):
            start = piece.start + first * piece.unit
            array = rows(piece, start, piece.start + last * piece.unit)
            yield first, array.reshape(last - first, *piece.view[1:])


def _spans(index: tuple[slice, ...], shape: tuple[int, ...]) -> list[tuple[int, int]]:
    return [cut.indices(size)[:2] for cut, size in zip(index, shape, strict=True)]


def _in(span: tuple[int, int], value: int) -> bool:
    return span[0] <= value < span[1]


def _cut(span, shape, leaf: layout.Leaf, piece: layout.Piece, period: int, first: int) -> Any:
    """(cut of the block, place in the device's part) where they meet, None where they do not."""
    inner = span[-len(shape) :]
    cut: list[slice] = [slice(None)] * len(shape)
    place = [period - span[0][0]] if leaf.stacked else []
    for ours, theirs in enumerate(piece.turn):
        low, high = inner[ours]
        offset = first if theirs == 0 else 0
        start, stop = max(low, offset), min(high, offset + shape[theirs])
        if start >= stop:
            return None
        cut[theirs] = slice(start - offset, stop - offset)
        place.append(start - low)
    return tuple(cut), np.asarray(place, np.int32)


@functools.partial(jax.jit, donate_argnums=0, static_argnames=("turn", "stack"))
def _put(whole: jax.Array, part: jax.Array, place: jax.Array, *, turn, stack: bool) -> jax.Array:
    part = part.transpose(turn).astype(whole.dtype)
    starts = [place[i] for i in range(whole.ndim)]
    return jax.lax.dynamic_update_slice(whole, part[None] if stack else part, starts)
