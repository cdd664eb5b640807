"""Root-mean-square norms of the supported families, and the l2 norm of the delta rule."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mimesis_jax.models import spec as specs


def rms(x: jax.Array, weight: jax.Array, *, kind: specs.NormKind, eps: float) -> jax.Array:
    """x [..., d] over its root mean square, scaled; computed in fp32, returned in x's dtype.

    one_plus: scaled by 1 + weight, cast last (Qwen3.5). plain: cast first, then scaled by weight
    (Qwen3, Qwen2.5, Llama). The order only shows in bf16.
    """
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    if kind == "one_plus":
        return (wide * (1.0 + weight.astype(jnp.float32))).astype(x.dtype)
    return wide.astype(x.dtype) * weight.astype(x.dtype)


def gated(x: jax.Array, gate: jax.Array, weight: jax.Array, *, eps: float) -> jax.Array:
    """The delta layer's norm: x [..., d] normalised, scaled by weight, times silu(gate).

    gate [..., d]; the result has the gate's dtype. Normalised first, gated after; everything is
    fp32 and rounded once, at the end.
    """
    wide = x.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    wide = wide * weight.astype(jnp.float32)
    return (wide * jax.nn.silu(gate.astype(jnp.float32))).astype(gate.dtype)


def unit(x: jax.Array, *, eps: float = 1e-6) -> jax.Array:
    """x [..., d] over its l2 norm, x * rsqrt(sum x^2 + eps): the delta rule's q and k."""
    return x * jax.lax.rsqrt(jnp.sum(x * x, axis=-1, keepdims=True) + eps)
