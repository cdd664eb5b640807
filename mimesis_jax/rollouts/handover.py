"""Weights from the trainer's layout to the engine's: one reshard, from device to device.

Training splits weights over all processes; decoding never spans one (its scheduler, gyms and
time-outs are its own), so every process gets a whole copy, split over its own devices' tensor axis
only. At the hand-over both layouts are alive; the engine's old copy has been let go of before.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from mimesis_jax.models import cache as caches
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.sharding.layout import Layout

TABLES = ("embed", "head")  # by rows of the vocabulary, outside the periods
PROCESS = "process"  # axis of the mesh of all processes' engines; nothing is split over it


def lies(spec: specs.Spec, layout: Layout) -> Any:
    """PartitionSpecs of an engine's weights (cache.apart of nested dicts) under a decode layout.

    Raises ValueError when the sizes cannot be split (Layout.spec).
    """
    whole = layout.specs(decoder.axes(spec), decoder.abstract(spec))
    one = jax.tree.map(
        lambda place: P(*place[1:]), whole["periods"], is_leaf=lambda x: isinstance(x, P)
    )
    return {**whole, "periods": (one,) * spec.periods}


def decoding(layout: Layout) -> Layout:
    """The same mesh under the decode table.

    Raises ValueError when the mesh has devices of another process.
    """
    mine = jax.process_index()
    other = {d.process_index for d in layout.mesh.devices.flat} - {mine}
    if other:
        raise ValueError(
            f"the engine's mesh has devices of process {min(other)}, this is process {mine}: "
            "decoding never spans processes, make its mesh of jax.local_devices()"
        )
    return dataclasses.replace(layout, use="decode")


def local(spec: specs.Spec, params: decoder.Params, layout: Layout | None) -> decoder.Params:
    """The weights as the engine of this process reads them: apart (models.cache), matrices in the
    dtype that they are multiplied in, laid out for decoding.

    params: nested dict as the trainer holds it, on one device or in any layout over this process's
    or all processes' devices; it is not changed. layout: of `decoding`, the same on every process
    but for the devices. A collective where params span processes: every process must call it.
    Raises ValueError where they do and there is no layout.
    """
    alone = all(getattr(leaf, "is_fully_addressable", True) for leaf in jax.tree.leaves(params))
    if layout is None and not alone:
        raise ValueError(
            "these weights are spread over several processes, and this engine has no layout: give "
            "it one over this process's devices (a mesh of jax.local_devices(), one device or more)"
        )
    params = {**params, **_narrowed(spec.dtype, {k: params[k] for k in TABLES if k in params})}
    if layout is None:
        return _engine_s(spec, params)
    split = lies(spec, layout)
    if alone:
        return _moved(spec, params, jax.tree.map(layout.named, split), layout.mesh)
    mesh = _everyone(layout.mesh)
    there = jax.tree.map(lambda place: NamedSharding(mesh, place), split)
    moved = _moved(spec, params, there, mesh)
    return jax.tree.map(lambda leaf, place: _addressed(leaf, layout.named(place)), moved, split)


def _narrow(dtype: str, period: Any) -> Any:
    """Weights of one period with its matrices in `dtype`: they are cast so before every product, so
    that nothing they give changes by a bit. Vectors and biases are read in fp32 and stay."""

    def one(path, leaf):
        name = jax.tree_util.keystr(path[-1:], simple=True)
        return leaf if leaf.ndim < 2 or name.endswith("_bias") else leaf.astype(dtype)

    return jax.tree_util.tree_map_with_path(one, period)


def _narrowed(dtype: str, tables: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """Embedding and head in `dtype`; the arrays themselves where they are in it already."""
    return {k: x if x.dtype == jnp.dtype(dtype) else _cast(x, dtype) for k, x in tables.items()}


_cast = jax.jit(lambda x, dtype: x.astype(dtype), static_argnums=1)


@functools.partial(jax.jit, static_argnames="dtype")
def _periods(stack: Any, dtype: str) -> tuple:
    return tuple(_narrow(dtype, period) for period in caches.cut(stack))


def _engine_s(spec: specs.Spec, params: decoder.Params) -> decoder.Params:
    """The engine's form where the weights lie; arrays that do not change are not copied."""
    return {**params, "periods": _periods(params["periods"], spec.dtype)}


def _moved(spec: specs.Spec, params: decoder.Params, there: Any, mesh: Mesh) -> decoder.Params:
    """params in the engine's form and laid as `there`, shardings on `mesh`."""
    held = jax.tree.leaves(params)[0].sharding
    devices = [d.id for d in mesh.devices.flat]
    if isinstance(held, NamedSharding) and [d.id for d in held.mesh.devices.flat] == devices:
        return _reshard(spec.dtype, there)(params)  # one program, and no third copy
    if len(held.device_set) > 1 and {d.id for d in held.device_set} != set(devices):
        # device_put goes by way of the host from several devices to others, not from one to any.
        params = jax.tree.map(lambda x: x.addressable_data(0), _gathered(held.mesh)(params))
    made = jax.block_until_ready(_engine_s(spec, params))
    # One leaf at a time: each is a program that exchanges, and of these two at once may meet in
    # another order on another process, which then waits for ever.
    put = lambda leaf, place: jax.block_until_ready(jax.device_put(leaf, place))
    return jax.tree.map(put, made, there)


@functools.lru_cache(maxsize=16)
def _gathered(mesh: Mesh):
    """The program that gives every device all of everything."""
    return jax.jit(lambda tree: tree, out_shardings=NamedSharding(mesh, P()))


def _addressed(leaf: jax.Array, place: NamedSharding) -> jax.Array:
    """This process's replica of a leaf as an array of its own devices."""
    shards = {shard.device: shard.data for shard in leaf.addressable_shards}
    return jax.make_array_from_single_device_arrays(
        leaf.shape, place, [shards[device] for device in place.mesh.devices.flat]
    )


def _everyone(mesh: Mesh) -> Mesh:
    """The engines' meshes of all processes behind one another, on an axis of their own.

    Every process must have as many devices, and its engine takes all of them.
    """
    rows = [
        sorted((d for d in jax.devices() if d.process_index == p), key=lambda d: d.id)
        for p in range(jax.process_count())
    ]
    own = [device.id for device in rows[jax.process_index()]]
    here = [device.id for device in mesh.devices.flat]
    if sorted(here) != own:
        raise ValueError(
            f"the engine's mesh has {len(here)} of this process's {len(own)} devices: over several "
            "processes each engine takes all of its own"
        )
    turn = [own.index(i) for i in here]
    grid = np.array([[row[i] for i in turn] for row in rows]).reshape(-1, *mesh.devices.shape)
    return Mesh(grid, (PROCESS, *mesh.axis_names), axis_types=(mesh.axis_types[0],) * grid.ndim)


@functools.lru_cache(maxsize=16)
def _program(dtype: str, leaves: tuple, form: Any):
    there = jax.tree.unflatten(form, leaves)
    move = lambda params: {**params, "periods": _periods(params["periods"], dtype)}
    return jax.jit(move, out_shardings=there)


def _reshard(dtype: str, there: Any):
    """The program that cuts, narrows and moves, one for each target."""
    leaves, form = jax.tree.flatten(there)
    return _program(dtype, tuple(leaves), form)
