"""Distributions over a large vocabulary, some rows of it at a time: reading them, and the gradient.

With logits l = h W^T / temperature, p = softmax(l), a token's log-prob is l_t - log sum exp l and
its entropy H = -sum p log p. The gradients by a logit are

    d logp / d l_v = [v = t] - p_v          d H / d l_v = -p_v (log p_v + H)

so both need nothing but the logits again and two numbers a token. Everything here is local to a
device; where the vocabulary is split over a mesh axis the few numbers a token are merged over it.

N tokens, V rows of the vocabulary that lie here, D width, K blocks of rows.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

# Finite, so that 0 * NOTHING is 0 in the entropy and no gradient becomes NaN.
NOTHING = -1e30
THIN = 1024  # fewer rows a block would make narrow products


@dataclasses.dataclass(frozen=True)
class Walk:
    """How a vocabulary is walked; static.

    real: ids that exist, over all devices. cells: logits held at once. top: how many of the
    likeliest ids are wanted. axis: mesh axis that the rows are split over (None: all are here).
    """

    real: int
    cells: int
    top: int = 0
    axis: str | None = None


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Reading:
    """What is read of each token's distribution, fp32, in nats.

    logp [N] of the target; entropy [N]; norm [N], the log of the sum of exp(logits); top_logp
    [N, k] and top_ids [N, k] int32, the k likeliest ids, likeliest first.
    """

    logp: jax.Array
    entropy: jax.Array
    norm: jax.Array
    top_logp: jax.Array
    top_ids: jax.Array


def even(total: int, size: int) -> tuple[int, int]:
    """(count, size) of the fewest equal parts of at most `size` that cover `total`."""
    count = -(-total // max(1, min(size, total)))
    return count, -(-total // count)


def sizes(tokens: int, rows: int, cells: int) -> tuple[int, int]:
    """(tokens a chunk, rows a block) whose product is about `cells` at most."""
    if tokens * rows <= cells:
        return tokens, rows
    block = min(rows, max(THIN, cells // tokens))
    return even(tokens, max(1, cells // block))[1], even(rows, block)[1]


# --- one chunk of tokens, block by block ------------------------------------------------------


def _blocks(walk: Walk, matrix: jax.Array, block: int, body: Callable, carry, more=None):
    """scan of body(carry, rows [block, D], ids [block], live [block], start, more[k]).

    The last block overlaps the one before when rows are no multiple of it; what it has twice, and
    ids that do not exist, are not live.
    """
    count = matrix.shape[0]
    first = 0 if walk.axis is None else jax.lax.axis_index(walk.axis) * count

    def step(carry, xs):
        k, extra = xs
        start = jnp.minimum(k * block, count - block)
        rows = jax.lax.dynamic_slice_in_dim(matrix, start, block)
        row = start + jnp.arange(block, dtype=jnp.int32)
        live = (row >= k * block) & (first + row < walk.real)
        return body(carry, rows, first + row, live, start, extra)

    return jax.lax.scan(step, carry, (jnp.arange(-(-count // block), dtype=jnp.int32), more))


def _logits(h: jax.Array, rows: jax.Array, live: jax.Array, temperature) -> jax.Array:
    """[N, block] fp32 logits of h [N, D] under some rows."""
    product = jax.lax.dot_general(
        h, rows.astype(h.dtype), (((1,), (1,)), ((), ())), preferred_element_type=jnp.float32
    )
    return jnp.where(live, product / temperature, NOTHING)


def _merge_top(walk: Walk, old: tuple, values: jax.Array, ids: jax.Array) -> tuple:
    """The k largest of what is known and of values [N, block]; earlier ids win a tie."""
    values, place = jax.lax.top_k(values, min(walk.top, values.shape[-1]))
    values = jnp.concatenate([old[0], values], axis=-1)
    ids = jnp.concatenate([old[1], ids[place]], axis=-1)
    values, place = jax.lax.top_k(values, walk.top)
    return values, jnp.take_along_axis(ids, place, axis=-1)


def read_chunk(walk: Walk, matrix, h, target, temperature, block: int, keep: bool = False):
    """(Reading, logits [K, N, block] or None) of h [N, D] and target [N], one pass over matrix.

    The largest logit m, s = sum e^(l - m) and t = sum e^(l - m) (l - m) are carried along and
    rescaled when a block has a larger one: logp = l_t - m - log s, H = log s - t / s. Centred by m,
    the entropy of a peaked distribution does not drown in the size of the logits.
    """
    count = len(h)

    def body(carry, rows, ids, live, start, _):
        m, s, t, own, top = carry
        out = _logits(h, rows, live, temperature)
        new = jnp.maximum(m, jnp.max(out, axis=-1))
        centred = out - new[:, None]
        share = jnp.exp(centred)
        fade = jnp.exp(m - new)
        t = fade * (t + s * (m - new)) + jnp.sum(share * centred, axis=-1)
        s = fade * s + jnp.sum(share, axis=-1)
        # A comparison, not a gather: it needs no bounds and shards over the vocabulary.
        hit = live & (ids == target[:, None])
        own = own + jnp.sum(jnp.where(hit, out, 0.0), axis=-1)
        if walk.top:
            top = _merge_top(walk, top, out, ids)
        return (new, s, t, own, top), out if keep else None

    zero = jnp.zeros(count, jnp.float32)
    top = (jnp.full((count, walk.top), 2 * NOTHING), jnp.zeros((count, walk.top), jnp.int32))
    carry, kept = _blocks(walk, matrix, block, body, (zero + NOTHING, zero, zero, zero, top))
    m, s, t, own, top = carry
    if walk.axis is not None:
        whole = jax.lax.pmax(m, walk.axis)
        fade = jnp.exp(m - whole)
        t = jax.lax.psum(fade * (t + s * (m - whole)), walk.axis)
        s, own, m = jax.lax.psum(fade * s, walk.axis), jax.lax.psum(own, walk.axis), whole
        if walk.top:
            values, ids = (jax.lax.all_gather(x, walk.axis, axis=1, tiled=True) for x in top)
            values, place = jax.lax.top_k(values, walk.top)
            top = values, jnp.take_along_axis(ids, place, axis=-1)
    log_s = jnp.log(s)
    norm = m + log_s
    return Reading((own - m) - log_s, log_s - t / s, norm, top[0] - norm[:, None], top[1]), kept


def pull_chunk(walk: Walk, matrix, h, target, temperature, reading: Reading, dlogp, dentropy,
               into: jax.Array, block: int, kept=None):  # fmt: skip
    """(into [V, D] fp32 with the matrix's gradient added, gradient [N, D] fp32 of h).

    dlogp, dentropy [N]: cotangents. kept: the logits that `read_chunk` kept; made again when None.
    """
    # The logits' division by temperature comes last on the way back: cheaper here, by token.
    dlogp, dentropy = dlogp / temperature, dentropy / temperature
    norm, shift = reading.norm[:, None], reading.entropy[:, None]

    def body(carry, rows, ids, live, start, out):
        into, dh = carry
        if out is None:
            out = _logits(h, rows, live, temperature)
        log_p = out - norm
        pull = dlogp[:, None] + dentropy[:, None] * (log_p + shift)
        hit = live & (ids == target[:, None])
        dout = jnp.where(hit, dlogp[:, None], 0.0) - jnp.exp(log_p) * pull
        dout = dout.astype(h.dtype)
        dh = dh + jnp.matmul(dout, rows.astype(h.dtype), preferred_element_type=jnp.float32)
        grad = jax.lax.dot_general(
            dout, h, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32
        )
        grad = grad + jax.lax.dynamic_slice_in_dim(into, start, block)
        return (jax.lax.dynamic_update_slice_in_dim(into, grad, start, 0), dh), None

    start = (into, jnp.zeros(h.shape, jnp.float32))
    (into, dh), _ = _blocks(walk, matrix, block, body, start, kept)
    return into, dh if walk.axis is None else jax.lax.psum(dh, walk.axis)


# --- any number of tokens, chunk by chunk -----------------------------------------------------


def chunked(values: Any, size: int) -> Any:
    """Arrays [N, ...] as [parts, size, ...], zeros at the end."""

    def one(x):
        parts = -(-len(x) // size)
        x = jnp.pad(x, ((0, parts * size - len(x)), *(((0, 0),) * (x.ndim - 1))))
        return x.reshape(parts, size, *x.shape[1:])

    return jax.tree.map(one, values)


def whole(values: Any, count: int) -> Any:
    """Arrays [parts, size, ...] as [count, ...]: the inverse of `chunked`."""
    return jax.tree.map(lambda x: x.reshape(x.shape[0] * x.shape[1], *x.shape[2:])[:count], values)


def read(walk: Walk, matrix, h, target, temperature) -> Reading:
    """The Reading of h [N, D] and target [N] under matrix [V, D]."""
    size, block = sizes(len(h), len(matrix), walk.cells)
    one = lambda xs: read_chunk(walk, matrix, xs[0], xs[1], temperature, block)[0]
    if size == len(h):
        return one((h, target))
    return whole(jax.lax.map(one, chunked((h, target), size)), len(h))


def pull(walk: Walk, matrix, h, target, temperature, reading: Reading, dlogp, dentropy):
    """(gradient [V, D] fp32 of matrix, gradient [N, D] fp32 of h): the logits are made again."""
    size, block = sizes(len(h), len(matrix), walk.cells)
    into = jnp.zeros(matrix.shape, jnp.float32)

    def one(into, xs):
        h, target, reading, dlogp, dentropy = xs
        return pull_chunk(
            walk, matrix, h, target, temperature, reading, dlogp, dentropy, into, block
        )

    tokens = (h, target, reading, dlogp, dentropy)
    if size == len(h):
        return one(into, tokens)
    into, dh = jax.lax.scan(one, into, chunked(tokens, size))
    return into, whole(dh, len(h))


def learn(walk: Walk, held: int, objective: Callable, matrix, h, target, temperature, columns,
          knobs):  # fmt: skip
    """(total, sums, logp [N], entropy [N], gradient [V, D] and [N, D] fp32 of matrix and h).

    objective: see `heads.learn`. held: logits of whole tokens kept until their gradient is known,
    which saves `pull`'s second product with the matrix.
    """
    size = even(len(h), held // len(matrix))[1]
    block = sizes(size, len(matrix), walk.cells)[1]
    gradient = jax.value_and_grad(objective, (0, 1), has_aux=True)

    def one(into, xs):
        h, target, columns = xs
        reading, kept = read_chunk(walk, matrix, h, target, temperature, block, keep=True)
        value, (dlogp, dentropy) = gradient(reading.logp, reading.entropy, columns, knobs)
        into, dh = pull_chunk(
            walk, matrix, h, target, temperature, reading, dlogp, dentropy, into, block, kept
        )
        return into, (value, reading.logp, reading.entropy, dh)

    into = jnp.zeros(matrix.shape, jnp.float32)
    into, (values, *tokens) = jax.lax.scan(one, into, chunked((h, target, columns), size))
    total, sums = jax.tree.map(lambda x: jnp.sum(x, axis=0), values)
    logp, entropy, dh = whole(tokens, len(h))
    return total, sums, logp, entropy, into, dh
