"""The device mesh: axes data (across slices), fsdp and tensor, checked before it is made."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import jax
from jax.experimental import mesh_utils
from jax.sharding import AxisType

from mimesis_jax.sharding import table

AXES = ("data", "fsdp", "tensor")


@dataclasses.dataclass(frozen=True)
class Config:
    """preset: which axes there are, see table.PRESETS. data, fsdp, tensor: devices along each axis;
    one of them may be -1, it takes what the others leave."""

    preset: str = "fsdp"
    data: int = 1
    fsdp: int = -1
    tensor: int = 1

    def __post_init__(self):
        table.preset(self.preset)
        for name in AXES:
            size = getattr(self, name)
            if size != -1 and size < 1:
                raise ValueError(f"mesh.{name} is {size}: use a number of devices, or -1 to fill")
        if sum(getattr(self, name) == -1 for name in AXES) > 1:
            raise ValueError("two axes of the mesh are -1: only one can take what is left")


def sizes(config: Config, devices: int) -> dict[str, int]:
    """Devices along each axis, -1 filled in.

    Raises ValueError when they do not use every one of `devices`, or when the preset has no such
    axis.
    """
    found = {name: getattr(config, name) for name in AXES}
    fixed = 1
    for size in found.values():
        fixed *= size if size != -1 else 1
    open_ = [name for name, size in found.items() if size == -1]
    if open_ and devices % fixed == 0:
        found[open_[0]] = devices // fixed
    elif open_ or fixed != devices:
        shown = " x ".join(f"{name} {size}" for name, size in found.items())
        needs = "a multiple of " * bool(open_) + f"{fixed} devices"
        raise ValueError(
            f"a mesh of {shown} needs {needs}, there are {devices}: set --config.mesh.fsdp=-1 to "
            "fill, or sizes whose product is the number of devices"
        )
    allowed = table.preset(config.preset).axes
    for name, size in found.items():
        if size > 1 and name not in allowed:
            fits = [known for known, tables in table.PRESETS.items() if name in tables.axes]
            raise ValueError(
                f"preset {config.preset!r} has no axis {name!r}, which is {size} here: set "
                f"--config.mesh.{name}=1, or --config.mesh.preset={fits[0]}"
            )
    return found


def make(config: Config, devices: Sequence[jax.Device] | None = None) -> jax.sharding.Mesh:
    """The mesh over `devices`, its axes laid out by hand (Auto).

    devices: all of them by default; a single process whose sizes are all given may have more than
    they need, and then uses the first. Devices of several slices are ordered so that only `data`
    crosses slices. Raises ValueError as `sizes` does, and when `data` is no multiple of the slices.
    """
    if devices is None:
        devices = jax.devices()
        asked = [getattr(config, name) for name in AXES]
        if jax.process_count() == 1 and -1 not in asked:
            devices = devices[: math.prod(asked)]
    devices = list(devices)
    found = sizes(config, len(devices))
    shape = tuple(found.values())
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    if slices > 1:
        if found["data"] % slices:
            raise ValueError(
                f"mesh.data is {found['data']} over {slices} slices: weights are gathered along "
                f"fsdp, which must stay within a slice; use a multiple of {slices}"
            )
        inner = (found["data"] // slices, *shape[1:])
        grid = mesh_utils.create_hybrid_device_mesh(inner, (slices, 1, 1), devices)
    else:
        grid = mesh_utils.create_device_mesh(shape, devices, allow_split_physical_axes=True)
    return jax.sharding.Mesh(grid, AXES, axis_types=(AxisType.Auto,) * len(AXES))
