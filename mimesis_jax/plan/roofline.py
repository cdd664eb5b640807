"""The least time that a program can take: its arithmetic, its memory traffic, what it sends.

Each of the three is work / rate at the chip's published peak (sharding.chips), as if it alone
mattered; the largest is the bound, and time cannot fall below it. Real programs reach a part of
each, so the share of the peak that follows is an upper bound. (Williams et al. 2009, "Roofline";
links as a second memory, as in Austin et al. 2025, "How to scale your model", chapter 1.)

Work is counted from sizes (models.flops), never by the compiler's cost analysis, which counts a
loop's body once and a kernel not at all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from mimesis_jax.plan import collectives
from mimesis_jax.plan.topology import Topology

# GB/s that a jax device sends out of its island (a TPU slice, a machine of GPUs): data-centre
# network of 200 Gbit/s a host of four chips (v4, v5p), half and twice that (v5e, v6e); one 400
# Gbit/s adapter a GPU. Vendors give ranges; these are the usual machines.
OUTSIDE = {"v4": 6.25, "v5e": 3.125, "v5p": 6.25, "v6e": 12.5, "tpu7x": 12.5}
ADAPTER = 50.0
NAMES = ("compute", "hbm", "links")


@dataclasses.dataclass(frozen=True)
class Work:
    """What one device does in a program, and what the model asked all devices for.

    done: operations of a device, those that are made again included. traffic: bytes between its
    memory and its units, at least. wanted: operations that the model needs, all devices together
    (models.flops: nothing twice).
    """

    done: float
    traffic: float
    wanted: float


@dataclasses.dataclass(frozen=True)
class Roofline:
    """seconds: least time by what takes it (NAMES). bound: the name of the largest. mfu: of the
    peak at most, in [0, 1]."""

    seconds: dict[str, float]
    bound: str
    mfu: float

    @property
    def least(self) -> float:
        """Seconds that the program takes at least."""
        return max(self.seconds.values())


def least(
    work: Work,
    sent: Mapping[str, float],
    topology: Topology,
    mesh: Mapping[str, int],
) -> Roofline:
    """The roofline of one program on a mesh of a topology's devices.

    sent: bytes that a device sends, by the mesh's axes ("fsdp", "data+fsdp"). Those within an
    island run at half the chip's links (which count both directions), those of groups that span
    islands at what leaves an island.
    """
    chip = topology.chip
    links = 0.0
    for axis, count in sent.items():
        inside = 1e9 * chip.links / 2 / chip.devices
        links += count / (outside(topology) if crosses(axis, topology, mesh) else inside)
    seconds = {
        "compute": work.done / chip.device_flops,
        "hbm": work.traffic / (1e9 * chip.bandwidth / chip.devices),
        "links": links,
    }
    bound = max(NAMES, key=lambda name: seconds[name])
    devices = 1
    for size in mesh.values():
        devices *= size
    peak = chip.device_flops * devices * seconds[bound]
    return Roofline(seconds, bound, work.wanted / peak if peak else 0.0)


def outside(topology: Topology) -> float:
    """Bytes a second that one device sends out of its island."""
    return 1e9 * OUTSIDE.get(topology.chip.name, ADAPTER) / topology.chip.devices


def crosses(axis: str, topology: Topology, mesh: Mapping[str, int]) -> bool:
    """Whether groups along these axes of a mesh ("data+fsdp") hold devices of two islands.

    Devices lie in the mesh's order, islands one after another (sharding.mesh.make). Groups that are
    none of the mesh's ("other") are taken to cross where there is more than one island.
    """
    devices = 1
    for size in mesh.values():
        devices *= size
    islands = topology.hosts if topology.kind == "gpu" else topology.slices
    island = topology.devices // islands
    if devices <= island:
        return False
    names = [name for name in axis.split("+") if name in mesh]
    if not names:
        return axis == "other"
    return any(
        len({number // island for number in group}) > 1
        for group in collectives.partition(mesh, names)
    )
