"""A window on the decode cache: some slots, and of their keys and values the first tokens only.

Attention over a cache reads all that is there, so what no slot has reached is best cut off before.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax import lax

from mimesis_jax.models import cache as caches


def take(cache: caches.Cache, slots: jax.Array | None, span: int | None) -> caches.Cache:
    """The cache of slots [R] int32 (None: all) and of the first `span` tokens (None: all).

    A number past the last slot takes the last one. Lengths stay as they are: the caller sees to it
    that no slot taken is, or will be, longer than span.
    """
    if slots is None:
        if span is None or span == cache.capacity:
            return cache
        keys, values = (_mapped(lambda x: x[..., :span, :], p) for p in (cache.keys, cache.values))
        return dataclasses.replace(cache, keys=keys, values=values)
    keys, values = (
        _mapped(lambda x: _gather(x, slots, span or x.shape[3]), part)
        for part in (cache.keys, cache.values)
    )
    pick = lambda point: caches.Point(
        jnp.take(point.length, slots, mode="clip"),
        _mapped(lambda x: jnp.take(x, slots, axis=1, mode="clip"), point.state),
        _mapped(lambda x: jnp.take(x, slots, axis=1, mode="clip"), point.tail),
    )
    return caches.Cache(keys, values, pick(cache.now), pick(cache.marked))


def put(
    cache: caches.Cache, slots: jax.Array | None, span: int | None, part: caches.Cache
) -> caches.Cache:
    """Writes back what `take` gave for these slots and span; rows past the last are dropped."""
    if slots is None:
        if span is None or span == cache.capacity:
            return part
        back = lambda whole, new: lax.dynamic_update_slice(whole, new, (0,) * whole.ndim)
        keys, values = (
            jax.tree.map(back, whole, new)
            for whole, new in ((cache.keys, part.keys), (cache.values, part.values))
        )
        return dataclasses.replace(part, keys=keys, values=values)
    write = lambda whole, new: whole.at[:, slots].set(new, mode="drop")
    grown = lambda whole, new: whole.at[:, slots, :, : new.shape[3]].set(new, mode="drop")
    keys, values = (
        jax.tree.map(grown, whole, new)
        for whole, new in ((cache.keys, part.keys), (cache.values, part.values))
    )
    lay = lambda whole, new: caches.Point(
        whole.length.at[slots].set(new.length, mode="drop"),
        jax.tree.map(write, whole.state, new.state),
        jax.tree.map(write, whole.tail, new.tail),
    )
    return caches.Cache(keys, values, lay(cache.now, part.now), lay(cache.marked, part.marked))


def _mapped(function, layers: caches.Layers) -> caches.Layers:
    return {name: function(leaf) for name, leaf in layers.items()}


def _gather(leaf: jax.Array, slots: jax.Array, span: int) -> jax.Array:
    """leaf [P, S, K, L, d] -> [P, R, K, span, d], reading nothing else of it."""
    periods, _, heads, _, dim = leaf.shape
    numbers = lax.GatherDimensionNumbers(
        offset_dims=(0, 2, 3, 4), collapsed_slice_dims=(1,), start_index_map=(1,)
    )
    return lax.gather(
        leaf, slots[:, None], numbers, slice_sizes=(periods, 1, heads, span, dim),
        mode=lax.GatherScatterMode.CLIP,
    )  # fmt: skip
