"""Grouped-query attention with partial RoPE: over a forest's rows, and over a cache's slots."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from mimesis_jax.models import block_attention, norms, rope, splash, weights
from mimesis_jax.models import spec as specs
from mimesis_jax.models.context import Rows, Trees

# Finite on purpose: a row of padding that may see nothing must give numbers, not NaN, since 0 * NaN
# would pass any later mask.
MASKED = -1e30


def table(spec: specs.Spec) -> weights.Table:
    """Parameters of one layer; q holds, inside each head, the query and then the gate, if any."""
    width, heads, keys, dim = spec.width, spec.heads, spec.kv_heads, spec.head_dim
    halves = 2 if spec.attn_output_gate else 1
    weight = weights.Weight
    parts = {
        "q": weight((width, heads, halves, dim), ("width", "heads", None, None)),
        "k": weight((width, keys, dim), ("width", "kv_heads", None)),
        "v": weight((width, keys, dim), ("width", "kv_heads", None)),
        "out": weight((heads, dim, width), ("heads", None, "width")),
    }
    if spec.qk_norm:
        start: weights.Init = "zeros" if spec.qk_norm == "one_plus" else "ones"
        parts |= {name: weight((dim,), (None,), start) for name in ("q_norm", "k_norm")}
    if spec.qkv_bias:
        parts["q_bias"] = weight((heads, halves, dim), ("heads", None, None), "zeros")
        parts["k_bias"] = weight((keys, dim), ("kv_heads", None), "zeros")
        parts["v_bias"] = weight((keys, dim), ("kv_heads", None), "zeros")
    return parts


def _biased(x: jax.Array, weight: jax.Array, bias: jax.Array) -> jax.Array:
    """x [N, d] times a weight [d, ...] plus bias [...], rounded once to x's dtype: [N, out]."""
    flat = weight.reshape(len(weight), -1).astype(x.dtype)
    out = jnp.matmul(x, flat, preferred_element_type=jnp.float32)
    return (out + bias.reshape(-1).astype(jnp.float32)).astype(x.dtype)


def _attend(q: jax.Array, keys: jax.Array, values: jax.Array, mask: jax.Array) -> jax.Array:
    """q [B, t, H, d] over keys, values [B, K, s, d] where mask [B, t, s] -> [B, t, H*d].

    The query heads of a kv head are folded into the rows of one product, so that keys and values
    are used as they lie. Scores, softmax and sums are fp32 (narrow scores would round before the
    softmax sees them); the softmax's division is left to the [.., d] result.
    """
    batch, length, heads, dim = q.shape
    kv_heads = keys.shape[1]
    groups = heads // kv_heads
    q = q.reshape(batch, length, kv_heads, groups, dim).transpose(0, 2, 3, 1, 4)
    q = q.reshape(batch, kv_heads, groups * length, dim)
    wide = jnp.float32
    scores = jnp.einsum("bkmd,bksd->bkms", q, keys, preferred_element_type=wide)
    # Scaled here and not in q, where bf16 would round once more.
    scores = dim**-0.5 * scores.reshape(batch, kv_heads, groups, length, -1)
    scores = jnp.where(mask[:, None, None], scores, MASKED)
    # The shift cancels in the quotient, so it needs no gradient.
    share = jnp.exp(scores - jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True)))
    total = jnp.sum(share, axis=-1)
    share = share.reshape(batch, kv_heads, groups * length, -1).astype(values.dtype)
    out = jnp.einsum("bkms,bksd->bkmd", share, values, preferred_element_type=wide)
    out = out.reshape(batch, kv_heads, groups, length, dim) / total[..., None]
    return out.astype(values.dtype).transpose(0, 3, 1, 2, 4).reshape(batch, length, heads * dim)


def _attend_causally(q, keys, values, mask) -> jax.Array:
    """`_attend` where mask [B, T, T] allows no later key: a block of queries reads only what lies
    before its end, which saves nearly half of the work.

    Each block has products of its own shape: four in a row of 256 compile for 2.3 s longer than two
    and run 3 % faster.
    """
    length = q.shape[1]
    blocks = next(n for n in range(max(1, min(8, length // 128)), 0, -1) if length % n == 0)
    size = length // blocks
    parts = [
        _attend(
            q[:, end - size : end],
            keys[:, :, :end],
            values[:, :, :end],
            mask[:, end - size : end, :end],
        )
        for end in range(size, length + 1, size)
    ]
    return jnp.concatenate(parts, axis=1)


def attend(q: jax.Array, keys: jax.Array, values: jax.Array, trees: Trees) -> jax.Array:
    """A forest's rows: q [B, T, H, d] over keys, values [B, K, T, d] -> [B, T, H*d].

    Under the dense mask, or over the block lists where the forest has them.
    """
    blocks = trees.blocks
    if blocks is None:
        return _attend_causally(q, keys, values, trees.mask)
    if blocks.kernel == "splash":
        return splash.attend(q, keys, values, trees.last, blocks)
    return block_attention.attend(q, keys, values, trees.last, blocks)


class Attention(weights.Holder):
    """Full attention; query head h reads kv head h // (heads / kv_heads)."""

    q: nnx.Param
    k: nnx.Param
    v: nnx.Param
    out: nnx.Param
    q_norm: nnx.Param
    k_norm: nnx.Param
    q_bias: nnx.Param
    k_bias: nnx.Param
    v_bias: nnx.Param

    def __init__(self, spec: specs.Spec, make: weights.Make, path: str):
        super().__init__(table(spec), make, path)
        self.spec = spec

    def _project(self, x: jax.Array, cos, sin):
        """x [N, D] -> q [N, H, d], k and v [N, K, d] with norm and RoPE, gate [N, H*d] or None."""
        spec = self.spec
        parts = (self.q, self.k, self.v)
        if spec.qkv_bias:
            biases = (self.q_bias, self.k_bias, self.v_bias)
            q, k, v = (_biased(x, w[...], b[...]) for w, b in zip(parts, biases, strict=True))
        else:
            q, k, v = (weights.product(x, w[...]) for w in parts)
        q = q.reshape(len(x), spec.heads, -1)
        k = k.reshape(len(x), spec.kv_heads, spec.head_dim)
        v = v.reshape(len(x), spec.kv_heads, spec.head_dim)
        gate = None
        if spec.attn_output_gate:
            gate = q[..., spec.head_dim :].reshape(len(x), -1)
            q = q[..., : spec.head_dim]
        if spec.qk_norm:
            q = norms.rms(q, self.q_norm[...], kind=spec.qk_norm, eps=spec.eps)
            k = norms.rms(k, self.k_norm[...], kind=spec.qk_norm, eps=spec.eps)
        return rope.rotate(q, cos, sin), rope.rotate(k, cos, sin), v, gate

    def _finish(self, out: jax.Array, gate: jax.Array | None) -> jax.Array:
        if gate is not None:
            out = out * jax.nn.sigmoid(gate)
        return weights.product(out, self.out[...], inputs=2)

    def __call__(self, x: jax.Array, trees: Trees) -> jax.Array:
        """x [B*T, D] -> [B*T, D] over a forest's rows, under its mask."""
        batch = trees.valid.shape[0]
        q, k, v, gate = self._project(x, trees.cos, trees.sin)
        rows = lambda part: part.reshape(batch, -1, *part.shape[1:])
        keys, values = rows(k).swapaxes(1, 2), rows(v).swapaxes(1, 2)
        out = attend(rows(q), keys, values, trees)
        return self._finish(out.reshape(len(x), -1), gate)

    def extend(
        self, x: jax.Array, rows: Rows, keys: jax.Array, values: jax.Array, period: int
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """x [S*n, D] after each slot's own past -> (y [S*n, D], keys, values with the new ones in).

        keys, values: [periods, S, K, length, d]; this layer's period is written in place.
        """
        slots, count = rows.valid.shape
        q, k, v, gate = self._project(x, rows.cos, rows.sin)
        fold = lambda part: part.reshape(slots, count, *part.shape[1:])
        # Columns past a row's count aim outside the cache and are dropped.
        column = jnp.where(rows.valid, rows.position, keys.shape[3])
        slot = jnp.arange(slots)[:, None]
        put = lambda store, part: store.at[period, slot, :, column].set(
            fold(part).astype(store.dtype), mode="drop"
        )
        keys, values = put(keys, k), put(values, v)
        place = jnp.arange(keys.shape[3], dtype=jnp.int32)
        mask = place <= rows.position[..., None]
        out = _attend(fold(q), keys[period], values[period], mask)
        return self._finish(out.reshape(len(x), -1), gate), keys, values
