"""Attention of long rows: an online softmax over the blocks that a forest lists, and its gradient.

No array has two axes of T. Per row the list names (query block, key block) pairs, ordered by query
block (see types.Blocks), so the running maximum, sum and result of one query block at a time are
all the loop carries apart from what it writes. The gradient makes the scores again from the saved
log of the softmax's sum (Dao et al. 2022, algorithm 4), with one pass over the same list.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from mimesis_jax import types
from mimesis_jax.models import stacks

MASKED = -1e30  # finite: no row of scores may become NaN
WIDE = jnp.float32

# Axes: n blocks a row, S tokens a block, G query heads a kv head, M = G * S, d head_dim.


def _visible(last: jax.Array, query: jax.Array, key: jax.Array, live: jax.Array) -> jax.Array:
    """[B, S, S] bool: token t of the query block sees token s of the key block.

    last [B, S] of the key block's tokens; query, key [B] block numbers; live [B] bool.
    """
    size = last.shape[1]
    place = jnp.arange(size, dtype=jnp.int32)
    t = (query[:, None] * size + place)[:, :, None]
    s = (key[:, None] * size + place)[:, None, :]
    return (s <= t) & (t < last[:, None, :]) & live[:, None, None]


def _scores(q: jax.Array, k: jax.Array, mask: jax.Array) -> jax.Array:
    """Masked scores [B, K, M, S] fp32 of q [B, K, M, d] and k [B, K, S, d]."""
    out = jnp.einsum("bkmd,bksd->bkms", q, k, preferred_element_type=WIDE)
    size = mask.shape[1]
    folded = out.reshape(*out.shape[:2], -1, size, size)
    return jnp.where(mask[:, None, None], folded, MASKED).reshape(out.shape)


def _turn(blocks: types.Blocks, p: jax.Array):
    """Entry p of the list: query and key block [B], first of its query block?, does it count?"""
    query, key = blocks.query[:, p], blocks.key[:, p]
    first = (p == 0) | (query != blocks.query[:, jnp.maximum(p - 1, 0)])
    return query, key, first[:, None, None], p < blocks.count


def _forward(q, k, v, last, blocks) -> tuple[jax.Array, jax.Array]:
    """out [B, n, K, M, d] in v's dtype and the log of the softmax's sum [B, n, K, M] fp32."""
    top = jnp.full(q.shape[:1] + q.shape[2:4], MASKED, WIDE)
    start = (top, 0 * top, jnp.zeros(q.shape[:1] + q.shape[2:], WIDE))
    done = (jnp.zeros(q.shape, v.dtype), jnp.zeros(q.shape[:-1], WIDE))

    def body(p, carry):
        (top, total, out), (outs, norms) = carry
        query, key, first, live = _turn(blocks, p)
        mask = _visible(stacks.take(last, key), query, key, live)
        scores = _scores(stacks.take(q, query), stacks.take(k, key), mask)
        old = jnp.where(first, MASKED, top)
        top = jnp.maximum(old, jnp.max(scores, axis=-1))
        shrink = jnp.where(first, 0.0, jnp.exp(old - top))
        share = jnp.exp(scores - top[..., None])
        total = total * shrink + jnp.sum(share, axis=-1)
        more = jnp.einsum(
            "bkms,bksd->bkmd",
            share.astype(v.dtype),
            stacks.take(v, key),
            preferred_element_type=WIDE,
        )
        out = out * shrink[..., None] + more
        # Written after every pair: the last write of a block is the whole sum.
        outs = stacks.put(outs, out / total[..., None], query)
        norms = stacks.put(norms, top + jnp.log(total), query)
        return (top, total, out), (outs, norms)

    return jax.lax.fori_loop(0, jnp.max(blocks.count), body, (start, done))[1]


@jax.custom_vjp
def _attend(q, k, v, last, blocks):
    return _forward(q, k, v, last, blocks)[0]


def _attend_fwd(q, k, v, last, blocks):
    out, norm = _forward(q, k, v, last, blocks)
    return out, (q, k, v, last, blocks, out, norm)


def _attend_bwd(saved, dout):
    q, k, v, last, blocks, out, norm = saved
    # sum_s share (v_s . dout) = out . dout, so the softmax's gradient needs no second pass.
    inner = jnp.sum(out.astype(WIDE) * dout.astype(WIDE), axis=-1)
    start = jnp.zeros(q.shape[:1] + q.shape[2:], WIDE)
    done = (jnp.zeros(q.shape, q.dtype), jnp.zeros(k.shape, WIDE), jnp.zeros(v.shape, WIDE))

    def body(p, carry):
        dq, (dqs, dks, dvs) = carry
        query, key, first, live = _turn(blocks, p)
        mask = _visible(stacks.take(last, key), query, key, live)
        own, keys, above = stacks.take(q, query), stacks.take(k, key), stacks.take(dout, query)
        share = jnp.exp(_scores(own, keys, mask) - stacks.take(norm, query)[..., None])
        product = functools.partial(jnp.einsum, preferred_element_type=WIDE)
        dv = product("bkms,bkmd->bksd", share.astype(v.dtype), above)
        dshare = product("bkmd,bksd->bkms", above, stacks.take(v, key))
        dscore = (share * (dshare - stacks.take(inner, query)[..., None])).astype(q.dtype)
        dq = jnp.where(first[..., None], 0.0, dq) + product("bkms,bksd->bkmd", dscore, keys)
        dk = product("bkms,bkmd->bksd", dscore, own)
        dks = stacks.put(dks, stacks.take(dks, key) + dk, key)
        dvs = stacks.put(dvs, stacks.take(dvs, key) + dv, key)
        return dq, (stacks.put(dqs, dq, query), dks, dvs)

    _, (dq, dk, dv) = jax.lax.fori_loop(0, jnp.max(blocks.count), body, (start, done))
    return dq, dk.astype(k.dtype), dv.astype(v.dtype), None, None


_attend.defvjp(_attend_fwd, _attend_bwd)


def attend(
    q: jax.Array, keys: jax.Array, values: jax.Array, last: jax.Array, blocks: types.Blocks
) -> jax.Array:
    """Attention of q [B, T, H, d] over keys, values [B, K, T, d] -> [B, T, H*d].

    last: [B, T] int32; t sees s exactly when s <= t < last[s] (every token sees itself).
    blocks: the lists of these rows, of size S; T is a multiple of S.
    Query head h reads kv head h // (H / K). Scores and sums are fp32, the result has the values'
    dtype. Differentiable in q, keys and values.
    """
    batch, length, heads, dim = q.shape
    blocks = jax.tree.map(jnp.asarray, blocks)  # host arrays cannot be indexed by a traced number
    kv_heads, size = keys.shape[1], blocks.size
    count, groups = length // size, heads // kv_heads
    q = (q * dim**-0.5).reshape(batch, count, size, kv_heads, groups, dim)
    q = q.transpose(0, 1, 3, 4, 2, 5).reshape(batch, count, kv_heads, groups * size, dim)
    cut = lambda part: part.reshape(batch, kv_heads, count, size, dim).swapaxes(1, 2)
    out = _attend(q, cut(keys), cut(values), last.reshape(batch, count, size), blocks)
    out = out.reshape(batch, count, kv_heads, groups, size, dim).transpose(0, 1, 4, 2, 3, 5)
    return out.reshape(batch, length, heads * dim)
