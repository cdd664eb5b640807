"""Where a decode engine's arrays lie on one host's devices, and its two programs by their shapes.

Decoding never leaves a host: weights are split over `tensor` as far as the heads allow and lie
whole otherwise; what devices are left share the slots.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from mimesis_jax.models import cache as caches
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.plan import sizes
from mimesis_jax.rollouts import handover, programs, request, sampling
from mimesis_jax.sharding import mesh
from mimesis_jax.sharding.layout import Layout

PRESET = "fsdp_tp"  # has the axes that are used here: tensor, and fsdp for what is left
struct: Any = jax.ShapeDtypeStruct  # stands for an array wherever one is typed


def tensor(spec: specs.Spec, local: int) -> int:
    """The most of a host's devices that divide everything of a model that is split by heads."""
    sizes = [spec.heads, spec.kv_heads, spec.mlp, spec.vocab]
    if "linear" in spec.period:
        sizes += [spec.linear_key_heads, spec.linear_value_heads]
    fits = [n for n in range(1, local + 1) if local % n == 0 and not any(s % n for s in sizes)]
    return fits[-1]


def layout(spec: specs.Spec, devices: list) -> Layout:
    """The layout of an engine of this model on a host's devices."""
    split = tensor(spec, len(devices))
    shape = mesh.Config(PRESET, data=1, fsdp=len(devices) // split, tensor=split)
    return Layout(mesh.make(shape, devices), PRESET, "decode")


def _placed(tree: Any, places: Any, lies: Layout) -> Any:
    """Shapes with shardings; places: PartitionSpecs, one for all leaves below it."""
    each = lambda place, part: jax.tree.map(
        lambda leaf: struct(leaf.shape, leaf.dtype, sharding=lies.named(place)), part
    )
    return jax.tree.map(each, places, tree, is_leaf=lambda x: isinstance(x, P))


def weights(spec: specs.Spec, lies: Layout) -> Any:
    """Shapes of the weights with every period's in arrays of their own."""
    shapes = jax.eval_shape(
        lambda params: {**params, "periods": caches.cut(params["periods"])}, decoder.abstract(spec)
    )
    return _placed(shapes, handover.lies(spec, lies), lies)


def state(spec: specs.Spec, lies: Layout, config: request.Config) -> programs.State:
    """Shapes of an engine's state."""
    shapes = jax.eval_shape(lambda: programs.start(spec, config.slots, config.length, lies))
    return _placed(shapes, programs.STATE, lies)


def split_cache(state: programs.State) -> dict[str, Any]:
    """An engine's state by kind: keys and values, recurrent states and tails, the small rest."""
    cache: caches.Cache = state.cache
    return {
        "kv cache": (cache.keys, cache.values),
        "recurrent cache": (cache.now.state, cache.now.tail, cache.marked.state, cache.marked.tail),
        "batch": (cache.now.length, cache.marked.length, state.hidden, state.count),
    }


def decode(spec: specs.Spec, lies: Layout, config: request.Config) -> Any:
    """Lowers a block of decode steps over all slots."""
    rows = config.slots
    row = lambda x: struct(x.shape, x.dtype, sharding=lies.named(programs.ROW))
    knobs = jax.tree.map(row, sampling.idle(rows))
    number = struct((), jnp.uint32, sharding=lies.whole), struct((), jnp.int32, sharding=lies.whole)
    stop, active = struct((rows, config.stops), jnp.int32), struct((rows,), bool)
    return programs.decode.lower(
        spec, weights(spec, lies), state(spec, lies, config), None, knobs, row(stop), row(active),
        *number, config.block, None, layout=lies,
    )  # fmt: skip


def prefill(spec: specs.Spec, lies: Layout, config: request.Config) -> Any:
    """Lowers the largest prefill, see sizes.fed."""
    each, tokens = sizes.fed(config, lies)
    rows = each * lies.split_rows
    row = lambda dims, dtype: struct((rows, *dims), dtype, sharding=lies.named(programs.ROW))
    flag, number = row((), bool), row((), jnp.int32)
    feed = programs.Feed(row((tokens,), jnp.int32), number, flag, flag, flag, number)
    at = None if rows == config.slots else number
    return programs.extend.lower(
        spec, weights(spec, lies), state(spec, lies, config), at, feed, None, layout=lies
    )
