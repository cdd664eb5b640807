"""Machines by the names that people give them: chips, devices, hosts, and what compilers call them.

    v5p:2x2x4        the grid of a TPU slice
    v5p-32           the user's name of the same: v4, v5p and tpu7x count cores, two to a chip
    v5e-16, v6e-64   count chips (v5litepod-16 is v5e-16)
    2xv5e-16         two slices; the mesh's axis `data` lies across them
    h100x8           GPUs, eight to a machine

`launch/chips.sh` has the same table for the launchers; a test holds the two together.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from typing import Literal

from mimesis_jax.sharding import chips

GRIDS = {  # chips of a slice -> how they lie
    2: {1: "1x1", 4: "2x2", 8: "2x4", 16: "4x4", 32: "4x8", 64: "8x8", 128: "8x16", 256: "16x16"},
    3: {
        4: "2x2x1", 8: "2x2x2", 16: "2x2x4", 32: "2x4x4", 64: "4x4x4", 128: "4x4x8",
        256: "4x8x8", 512: "8x8x8", 1024: "8x8x16", 2048: "8x16x16",
    },
}  # fmt: skip
TPUS = {"v4": 3, "v5e": 2, "v5p": 3, "v6e": 2, "tpu7x": 3}  # generation -> axes of its grid
CORES = ("v4", "v5p", "tpu7x")  # their names count cores, two to a chip
ALIASES = {"v5litepod": "v5e", "7x": "tpu7x", "a100": "a100-80"}
GPUS_A_HOST = 8
TOGETHER = 8  # up to so many chips of a flat generation are one machine, else CHIPS_A_HOST
CHIPS_A_HOST = 4


class TopologyError(ValueError):
    """A name of machines that means nothing; the message says what would."""


@dataclasses.dataclass(frozen=True)
class Topology:
    """Machines of one kind.

    name: as it was given. chip: its figures (see sharding.chips). chips: of all slices. slices.
    hosts: machines of all slices. grid: how a slice's chips lie, "2x2x4" ("1x1x8" of GPUs: slices,
    hosts, devices a host). kind: which compiler.
    """

    name: str
    chip: chips.Chip
    chips: int
    slices: int
    hosts: int
    grid: str
    kind: Literal["tpu", "gpu"]

    @property
    def devices(self) -> int:
        """JAX devices of all slices."""
        return self.chips * self.chip.devices

    @property
    def local(self) -> int:
        """JAX devices of one host: a process decodes on these alone."""
        return self.devices // self.hosts

    @property
    def compiler(self) -> str:
        """The topology name that the compiler takes: "v5p:2x2x4", or "1x1x8" of GPUs."""
        return self.grid if self.kind == "gpu" else f"{self.chip.name}:{self.grid}"


def parse(text: str) -> Topology:
    """The machines that a name means; see the file's first lines for the forms.

    Raises TopologyError that names the nearest form or size there is.
    """
    name = text.strip().lower()
    many = re.fullmatch(r"(\d+)x([a-z].*)", name)
    slices, one = (int(many[1]), many[2]) if many else (1, name)
    if slices < 1:
        raise TopologyError(f"topology {text!r} has {slices} slices: 1 is the least")
    if found := re.fullmatch(r"([a-z0-9-]+):(\d+(?:x\d+)+)", one):
        return _grid(text, found[1], found[2], slices)
    if found := re.fullmatch(r"(v\d+[a-z]*|tpu7x|7x)-(\d+)", one):
        return _counted(text, found[1], int(found[2]), slices)
    if found := re.fullmatch(r"([abh]\d{3}(?:-\d+)?)x(\d+)", one):
        return _gpus(text, found[1], int(found[2]), slices)
    raise TopologyError(f"topology {text!r} is unknown: did you mean {_nearest(one)}?")


def _generation(text: str, name: str) -> str:
    name = ALIASES.get(name, name)
    if name not in TPUS:
        raise TopologyError(
            f"topology {text!r}: there is no TPU {name!r}, use one of {', '.join(TPUS)}"
        )
    return name


def _counted(text: str, name: str, count: int, slices: int) -> Topology:
    generation = _generation(text, name)
    each = 2 if generation in CORES else 1
    sizes = [each * n for n in GRIDS[TPUS[generation]]]
    if count not in sizes:
        near = [*[n for n in sizes if n < count][-1:], *[n for n in sizes if n > count][:1]]
        what = "cores, two to a chip" if each == 2 else "chips"
        raise TopologyError(
            f"topology {text!r} counts {what}, and no slice has {count}: "
            f"use {' or '.join(f'{name}-{size}' for size in near)}"
        )
    return _tpu(text, generation, GRIDS[TPUS[generation]][count // each], slices)


def _grid(text: str, name: str, grid: str, slices: int) -> Topology:
    generation = _generation(text, name)
    axes, known = TPUS[generation], GRIDS[TPUS[generation]].values()
    if grid.count("x") + 1 != axes or grid not in known:
        count = math.prod(int(n) for n in grid.split("x"))
        near = min(GRIDS[axes], key=lambda size: (abs(size - count), size))
        raise TopologyError(
            f"topology {text!r}: no slice of {generation} lies as {grid}, "
            f"did you mean {generation}:{GRIDS[axes][near]}?"
        )
    return _tpu(text, generation, grid, slices)


def _tpu(text: str, generation: str, grid: str, slices: int) -> Topology:
    count = math.prod(int(n) for n in grid.split("x"))
    flat = TPUS[generation] == 2
    hosts = 1 if flat and count <= TOGETHER else count // CHIPS_A_HOST
    return Topology(
        text, chips.named(generation), count * slices, slices, hosts * slices, grid, "tpu"
    )


def _gpus(text: str, name: str, count: int, slices: int) -> Topology:
    """`count` GPUs of one network; slices are such networks."""
    name = ALIASES.get(name, name)
    if name not in chips.NAMES:
        gpus = [known for known in chips.NAMES if known not in TPUS]
        raise TopologyError(f"topology {text!r}: no GPU {name!r}, use one of {', '.join(gpus)}")
    if count < 1 or (count > GPUS_A_HOST and count % GPUS_A_HOST):
        above = max(1, -(-count // GPUS_A_HOST)) * GPUS_A_HOST
        raise TopologyError(
            f"topology {text!r}: machines of {GPUS_A_HOST} GPUs do not make {count}, "
            f"use {name}x{above}"
        )
    hosts = -(-count // GPUS_A_HOST)
    grid = f"1x{hosts}x{count // hosts}"
    return Topology(text, chips.named(name), count * slices, slices, hosts * slices, grid, "gpu")


def _nearest(name: str) -> str:
    """The known name that looks most like a mistyped one."""
    known = [
        f"{generation}-{(2 if generation in CORES else 1) * size}"
        for generation, axes in TPUS.items()
        for size in GRIDS[axes]
    ]
    known += [f"{gpu}x8" for gpu in chips.NAMES if gpu not in TPUS]
    return difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
