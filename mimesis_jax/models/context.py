"""What all layers of one forward share: the forest's structure, or the cache's rows being fed."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from mimesis_jax import types
from mimesis_jax.models import rope
from mimesis_jax.models import spec as specs


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Trees:
    """A forest as the layers read it.

    cos, sin: [B*T, rotary_dim / 2] fp32. mask: [B, T, T] bool, mask[b, t, s]: t attends to s; None
    where the forest has block lists. last: [B, T] int32, types.Forest.last with padding seen by
    itself only, so that no token sees nothing. blocks: see types.Blocks.
    valid: [B, T]; halo: [B, N, 3]; load, store, kept: [B, N]; slots: see types.Forest.
    """

    cos: jax.Array
    sin: jax.Array
    mask: jax.Array | None
    last: jax.Array
    blocks: types.Blocks | None
    valid: jax.Array
    halo: jax.Array
    load: jax.Array
    store: jax.Array
    kept: jax.Array | None
    slots: int = dataclasses.field(metadata={"static": True})


def trees(spec: specs.Spec, forest: types.Forest) -> Trees:
    """The shared context of a forest: its rotary angles and its attention mask.

    The mask is dense where the forest has no block lists; with them no [T, T] array is made.
    """
    length = forest.tokens.shape[1]
    cos, sin = rope.angles(spec, forest.position.reshape(-1))
    token = jnp.arange(length, dtype=jnp.int32)
    last = jnp.where(forest.valid, forest.last, token + 1)
    mask = None
    if forest.blocks is None:
        after = token[None, :, None] >= token[None, None, :]
        mask = after & (token[None, :, None] < last[:, None, :])
    return Trees(
        cos,
        sin,
        mask,
        last,
        forest.blocks,
        forest.valid,
        forest.halo,
        forest.load,
        forest.store,
        forest.kept,
        slots=forest.slots,
    )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Rows:
    """New tokens for the slots of a cache.

    cos, sin: [S*n, rotary_dim / 2] fp32. position: [S, n] int32, where a token lies in its slot.
    valid: [S, n] bool, its first count[s] tokens. count: [S] int32.
    """

    cos: jax.Array
    sin: jax.Array
    position: jax.Array
    valid: jax.Array
    count: jax.Array


def rows(spec: specs.Spec, length: jax.Array, count: jax.Array, width: int) -> Rows:
    """The context of feeding count [S] tokens (of `width` columns) to slots of length [S]."""
    column = jnp.arange(width, dtype=jnp.int32)
    position = length[:, None] + column
    cos, sin = rope.angles(spec, position.reshape(-1))
    return Rows(cos, sin, position, column < count[:, None], count)
