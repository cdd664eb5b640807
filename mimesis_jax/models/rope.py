"""Rotary position embedding: partial, half-split, with Llama 3.1's scaling of the frequencies."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax.models import spec as specs


def frequencies(spec: specs.Spec) -> np.ndarray:
    """Angle per position of each rotated pair, [rotary_dim / 2] fp32: theta^(-2i / rotary_dim).

    With Llama3Scaling, wavelengths beyond original_length / low_freq_factor are stretched by
    factor, those under original_length / high_freq_factor are kept, those between are blended.
    """
    exponent = np.arange(0, spec.rotary_dim, 2, dtype=np.float64) / spec.rotary_dim
    base = spec.rope_theta**-exponent
    scaling = spec.rope_scaling
    if scaling is None:
        return base.astype(np.float32)
    turns = scaling.original_length * base / (2 * math.pi)  # full turns within the original length
    span = scaling.high_freq_factor - scaling.low_freq_factor
    keep = np.clip((turns - scaling.low_freq_factor) / span, 0.0, 1.0)
    return (keep * base + (1 - keep) * base / scaling.factor).astype(np.float32)


def angles(spec: specs.Spec, position: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Cosine and sine [..., rotary_dim / 2] fp32 of position [...] int32."""
    angle = position[..., None].astype(jnp.float32) * frequencies(spec)
    return jnp.cos(angle), jnp.sin(angle)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """x [N, heads, head_dim] with its leading rotary dims turned by cos, sin [N, rotary_dim / 2].

    Half-split: dim i is paired with i + rotary_dim / 2; the dims after rotary_dim pass through.
    """
    half = cos.shape[-1]
    cos, sin = cos[:, None, :], sin[:, None, :]
    wide = x[..., : 2 * half].astype(jnp.float32)
    low, high = wide[..., :half], wide[..., half:]
    turned = jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return jnp.concatenate([turned.astype(x.dtype), x[..., 2 * half :]], axis=-1)
