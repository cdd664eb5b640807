"""A gated DeltaNet layer over a long row in little memory: parts, made again for the gradient.

A layer of the 4B holds about 30 MiB a chunk of 64 tokens for its gradient, 15 GiB for a row of
32,768. Here a row is cut into groups of chunks, and within a group the heads, which know nothing of
one another, are taken a few at a time. Between groups go the delta rule's states, the convolution's
last inputs and the slots of both: the carry. Kept for the gradient are the carries at the start of
every stage (a run of groups); from them those of one stage's groups are made again, and from these
the inside of one group for some heads.

The gradient is this file's own, so that there is one accumulator for each weight and no copy of the
slots a chunk: a checkpoint on a scan's body saves its whole carry each step (see forest.md).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from mimesis_jax.models import spec as specs

# Cells are tokens times the width of all value heads (4096 in the 4B and 9B).
WHOLE = 1 << 25  # rows up to this many cells are computed at once: 8,192 tokens of the 4B
GROUP = 1 << 21  # cells of a group: 512 tokens of the 4B, enough for a product with weights
SHARE = 1 << 18  # cells of a group's heads that are held at once

Carry = Any  # (state, stack), (tail, stack) as delta.walk and convolution.trail take them


@dataclasses.dataclass(frozen=True)
class Parts:
    """How a row is cut: stages a row, groups a stage, tokens a group, shares of the heads."""

    stages: int
    groups: int
    tokens: int
    shares: int


def _divisor(number: int, most: float) -> int:
    """The largest divisor of number that is at most `most` (at least 1)."""
    return next(d for d in range(max(1, min(number, int(most))), 0, -1) if number % d == 0)


def parts(spec: specs.Spec, length: int, chunk: int) -> Parts | None:
    """How rows of `length` tokens in chunks of `chunk` are cut; None: they are computed at once.

    Depends on the row alone, not on how many there are: rows lie on different devices.
    """
    width = spec.linear_value_heads * spec.linear_value_dim
    if length * width <= WHOLE:
        return None
    chunks = length // chunk
    group = _divisor(chunks, GROUP // (width * chunk))
    groups = chunks // group
    stage = _divisor(groups, math.sqrt(groups))
    heads = spec.linear_key_heads
    held = _divisor(heads, heads * SHARE / (group * chunk * width))
    return Parts(groups // stage, stage, group * chunk, heads // held)


def fewer(spec: specs.Spec, shares: int) -> specs.Spec:
    """The spec of a layer with one of `shares` equal shares of the linear heads."""
    return dataclasses.replace(
        spec,
        linear_key_heads=spec.linear_key_heads // shares,
        linear_value_heads=spec.linear_value_heads // shares,
    )


# --- slices -----------------------------------------------------------------------------------


def _read(whole: jax.Array, number: jax.Array, size: int, axis: int) -> jax.Array:
    """The slice of `size` entries along the axis that begins at number * size."""
    return jax.lax.dynamic_slice_in_dim(whole, number * size, size, axis)


def _write(whole: jax.Array, part: jax.Array, number: jax.Array, axis: int) -> jax.Array:
    """The whole with `part` in place of that slice, cast to its dtype."""
    at = number * part.shape[axis]
    return jax.lax.dynamic_update_slice_in_dim(whole, part.astype(whole.dtype), at, axis)


# --- heads ------------------------------------------------------------------------------------
#
# Share s holds key heads s, s + shares, s + 2 * shares, ... and the value heads that read them:
# where heads are sharded, every device has some of every share.


def _apart(weight: jax.Array, axis: int, spec: specs.Spec, shares: int) -> jax.Array:
    """The weight's axis of heads as three: key heads of a share, shares, heads to a key head."""
    lead, size = weight.shape[:axis], weight.shape[axis]
    heads = spec.linear_key_heads
    return weight.reshape(*lead, heads // shares, shares, size // heads, *weight.shape[axis + 1 :])


def _some(weights: dict, axes: dict, share: jax.Array, spec: specs.Spec, shares: int) -> dict:
    """The weights of one share; those without an axis of heads as they are."""

    def one(weight: jax.Array, axis: int | None) -> jax.Array:
        if axis is None:
            return weight
        cut = _read(_apart(weight, axis, spec, shares), share, 1, axis + 1)
        return cut.reshape(*weight.shape[:axis], -1, *weight.shape[axis + 1 :])

    return {name: one(weight, axes[name]) for name, weight in weights.items()}


def _added(total: dict, more: dict, axes: dict, share, spec: specs.Spec, shares: int) -> dict:
    """The gradients `total` of all weights with those of one share's weights added."""

    def one(whole: jax.Array, part: jax.Array, axis: int | None) -> jax.Array:
        if axis is None:
            return whole + part
        cut = _apart(whole, axis, spec, shares)
        old = _read(cut, share, 1, axis + 1)
        new = old.astype(jnp.float32) + part.reshape(old.shape).astype(jnp.float32)
        return _write(cut, new, share, axis + 1).reshape(whole.shape)

    return {name: one(total[name], more[name], axes[name]) for name in total}


# --- rows -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Layer:
    """What does not change in a run: the layer's spec, how it computes, how the row is cut.

    group(weights, x [B, n, D], valid [B, n], load, store, kept [B, n / C], carry) -> (y [B, n, D]
    fp32, carry): a share's heads over one group; what they add to the layer's result.
    blank(batch, slots) -> the carry that a share starts from. axes: of heads, by weight.
    """

    spec: specs.Spec
    cut: Parts
    slots: int
    group: Any
    blank: Any
    axes: tuple[tuple[str, int | None], ...]

    def take(self, weights: dict, share: jax.Array) -> dict:
        return _some(weights, dict(self.axes), share, self.spec, self.cut.shares)

    def add(self, total: dict, more: dict, share: jax.Array) -> dict:
        return _added(total, more, dict(self.axes), share, self.spec, self.cut.shares)


def _piece(layer: Layer, row, number: jax.Array) -> list:
    """Group `number` of a row's arrays [B, T or T / C, ...], or of None."""
    count = layer.cut.stages * layer.cut.groups
    return [
        None if part is None else _read(part, number, part.shape[1] // count, 1) for part in row
    ]


def _group(layer: Layer, weights: dict, row, number: jax.Array, carry: Carry):
    """All heads over group `number` of a row (x, valid, load, store, kept): y and the carry.

    The carry's leaves have the shares as their first axis.
    """
    x, *rest = _piece(layer, row, number)

    def share(y, xs):
        share, carry = xs
        more, carry = layer.group(layer.take(weights, share), x, *rest, carry)
        return y + more, carry

    shares = jnp.arange(layer.cut.shares)
    return jax.lax.scan(share, jnp.zeros(x.shape, jnp.float32), (shares, carry))


def _forward(layer: Layer, weights: dict, row):
    """y [B, T, D], and the carries [stages, ...] at the start of each stage."""
    x = row[0]
    one = layer.blank(x.shape[0], layer.slots)
    carry = jax.tree.map(lambda c: jnp.zeros((layer.cut.shares, *c.shape), c.dtype), one)
    groups = layer.cut.groups

    def group(number, state):
        y, carry = state
        more, carry = _group(layer, weights, row, number, carry)
        return _write(y, more, number, 1), carry

    def stage(state, number):
        first = number * groups
        return jax.lax.fori_loop(first, first + groups, group, state), state[1]

    (y, _), starts = jax.lax.scan(stage, (jnp.zeros_like(x), carry), jnp.arange(layer.cut.stages))
    return y, starts


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _run(layer: Layer, weights: dict, row) -> jax.Array:
    return _forward(layer, weights, row)[0]


def _run_fwd(layer: Layer, weights: dict, row):
    y, starts = _forward(layer, weights, row)
    return y, (weights, row, starts)


def _run_bwd(layer: Layer, saved, dy: jax.Array):
    weights, row, starts = saved
    groups = layer.cut.groups
    zeros = functools.partial(jax.tree.map, jnp.zeros_like)

    def group(number, start, state):
        dweights, dx, dcarry = state
        x, *rest, above = _piece(layer, (*row, dy), number)

        def share(state, xs):
            dweights, dx = state
            share, start, dcarry = xs
            run = lambda own, x, carry: layer.group(own, x, *rest, carry)
            _, back = jax.vjp(run, layer.take(weights, share), x, start)
            down, more, dcarry = back((above.astype(jnp.float32), dcarry))
            return (layer.add(dweights, down, share), dx + more), dcarry

        begin = (dweights, jnp.zeros(x.shape, jnp.float32))
        shares = jnp.arange(layer.cut.shares)
        (dweights, more), dcarry = jax.lax.scan(share, begin, (shares, start, dcarry))
        return dweights, _write(dx, more, number, 1), dcarry

    def stage(state, xs):
        number, start = xs
        numbers = number * groups + jnp.arange(groups)
        onward = lambda carry, number: (_group(layer, weights, row, number, carry)[1], carry)
        _, begins = jax.lax.scan(onward, start, numbers)
        back = lambda state, xs: (group(xs[0], xs[1], state), None)
        return jax.lax.scan(back, state, (numbers, begins), reverse=True)

    last = jax.tree.map(lambda s: jnp.zeros(s.shape[1:], s.dtype), starts)
    begin = (zeros(weights), zeros(row[0]), last)
    stages = jnp.arange(layer.cut.stages)
    (dweights, dx, _), _ = jax.lax.scan(stage, begin, (stages, starts), reverse=True)
    return dweights, (dx, None, None, None, None)


_run.defvjp(_run_fwd, _run_bwd)


def run(layer: Layer, weights: dict[str, jax.Array], x, valid, load, store, kept=None) -> jax.Array:
    """The layer's y [B, T, D], in x's dtype, of x [B, T, D]; equal to computing the row at once.

    weights: by name, as in deltanet.table. valid [B, T]; load, store, kept [B, T / C], see
    types.Forest.
    Sums over groups are made in the weights' dtype in the gradient, over heads in fp32.
    """
    return _run(layer, weights, (x, valid, load, store, kept))
