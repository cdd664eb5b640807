"""One decoder over many devices: what each device computes, and what they exchange.

The layers run under shard_map. A device has some rows of the batch and, along the mesh axis
`tensor`, some heads and some of the mlp; its code is the single device's, of a spec with fewer
heads. What is exchanged is said here and nowhere else:

open    a period's matrices are gathered along fsdp when the period is computed, in the compute
        dtype; on the way back their gradients are summed up and scattered again
total   what the devices of a tensor group have of a layer's result is summed up
lookup  embeddings: a device looks up its share of their width for its fsdp neighbours' tokens too

Rows never meet, so neither attention nor the delta rule exchanges anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from mimesis_jax.models import spec as specs
from mimesis_jax.sharding.layout import HEADS, ROWS, WIDTH, Layout

KEYS = ("k", "v", "k_bias", "v_bias")  # an attention layer's parameters by kv head


def local(spec: specs.Spec, layout: Layout) -> specs.Spec:
    """The spec of what one device computes: its share of the heads and of the mlp.

    Raises ValueError when the tensor axis does not divide them (Layout.spec names the parameter).
    """
    parts = layout.size(HEADS)
    if parts == 1:
        return spec
    linear = "linear" in spec.period
    share = lambda heads: heads // parts if linear else heads
    return dataclasses.replace(
        spec,
        heads=spec.heads // parts,
        kv_heads=max(1, spec.kv_heads // parts),
        mlp=spec.mlp // parts,
        linear_key_heads=share(spec.linear_key_heads),
        linear_value_heads=share(spec.linear_value_heads),
    )


@dataclasses.dataclass(frozen=True)
class Device:
    """What a decoder's module asks of the devices around it; without a layout there are none.

    lies: how the parameters of one period are split, PartitionSpecs by path without the periods'
    axis. kv_heads: of the whole model.
    """

    layout: Layout | None = None
    lies: dict[str, P] = dataclasses.field(default_factory=dict, hash=False)
    dtype: str = "float32"
    kv_heads: int = 1

    def _size(self, axis: str) -> int:
        return 1 if self.layout is None else self.layout.size(axis)

    def total(self, part: jax.Array) -> jax.Array:
        """The sum over the tensor group of what its devices have of a layer's result."""
        return jax.lax.psum(part, HEADS) if self._size(HEADS) > 1 else part

    def open(self, period: Any) -> Any:
        """A period's weights (nested dict) as this device computes with them."""
        if self.layout is None:
            return period

        def one(path, weight):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            spec = self.lies[name]
            if WIDTH in spec:
                axis = tuple(spec).index(WIDTH)
                # Cast first: half the bytes to exchange where the activations are bf16.
                weight = jax.lax.all_gather(weight.astype(self.dtype), WIDTH, axis=axis, tiled=True)
            *_, mixer, leaf = name.split("/")
            if mixer == "mixer" and leaf in KEYS and self.kv_heads < self._size(HEADS):
                weight = self._own_head(weight, axis=1 if leaf in KEYS[:2] else 0)
            return weight

        return jax.tree_util.tree_map_with_path(one, period)

    def _own_head(self, weight: jax.Array, axis: int) -> jax.Array:
        """The one kv head that this device's query heads read, of all of them."""
        if weight.shape[axis] != self.kv_heads:  # a linear layer's k and v are split by heads
            return weight
        index = jax.lax.axis_index(HEADS) * self.kv_heads // self._size(HEADS)
        return jax.lax.dynamic_slice_in_dim(weight, index, 1, axis)

    def lookup(self, embed: jax.Array, tokens: jax.Array) -> jax.Array:
        """Embeddings [N, D] of this device's tokens [N], in the compute dtype."""
        if self.layout is None:
            return embed[tokens].astype(self.dtype)
        shared = self._size(WIDTH) > 1 and self.layout.rules()["width"] == WIDTH
        if shared:
            tokens = jax.lax.all_gather(tokens, WIDTH, tiled=True)
        if self.layout.rules()["vocab"] == HEADS and self._size(HEADS) > 1:
            row = tokens - jax.lax.axis_index(HEADS) * len(embed)
            here = (row >= 0) & (row < len(embed))
            x = embed[jnp.clip(row, 0, len(embed) - 1)].astype(self.dtype)
            x = jax.lax.psum(jnp.where(here[:, None], x, jnp.zeros((), x.dtype)), HEADS)
        else:
            x = embed[tokens].astype(self.dtype)
        if shared:
            x = jax.lax.all_to_all(x, WIDTH, split_axis=0, concat_axis=1, tiled=True)
        return x


ALONE = Device()


def device(spec: specs.Spec, layout: Layout, lies: Any) -> Device:
    """The Device of a decoder whose parameters are split as `lies` (nested dict of specs) says."""
    flat, _ = jax.tree_util.tree_flatten_with_path(
        lies["periods"], is_leaf=lambda x: isinstance(x, P)
    )
    named = {
        jax.tree_util.keystr(path, simple=True, separator="/"): P(*place[1:])
        for path, place in flat
    }
    return Device(layout, named, spec.dtype, spec.kv_heads)


def run(layout: Layout, lies: Any, body: Callable, params: Any, batch: Any) -> jax.Array:
    """body(params, batch) on each device: params split as `lies`, batch and result by rows."""
    return jax.shard_map(
        body, mesh=layout.mesh, in_specs=(lies, P(ROWS)), out_specs=P(ROWS), check_vma=False
    )(params, batch)
