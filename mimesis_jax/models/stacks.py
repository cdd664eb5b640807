"""Stacks: several entries a row, of which each row reads or writes one of its own choice.

The delta rule and the convolution keep the states of a row's slots in one, attention its blocks.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def take(stack: jax.Array, index: jax.Array) -> jax.Array:
    """Entry index [B] of each row of stack [B, n, ...], as [B, ...]."""
    pick = lambda row, i: jax.lax.dynamic_index_in_dim(row, i, axis=0, keepdims=False)
    return jax.vmap(pick)(stack, index)


def put(stack: jax.Array, value: jax.Array, index: jax.Array) -> jax.Array:
    """The stack [B, n, ...] with value [B, ...], in the stack's dtype, as entry index [B] of each
    row."""
    put = lambda row, x, i: jax.lax.dynamic_update_index_in_dim(row, x, i, axis=0)
    return jax.vmap(put)(stack, value.astype(stack.dtype), index)


def wide(stack: jax.Array) -> jax.Array:
    """A stack of slots [B, slots, ...] with two more entries: the zero state, and one that takes
    the writes of chunks that store nothing, so that every step writes exactly one entry a row."""
    return jnp.pad(stack, ((0, 0), (0, 2)) + ((0, 0),) * (stack.ndim - 2))
