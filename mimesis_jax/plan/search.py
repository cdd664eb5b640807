"""A better mesh, table, micro-batch and remat: arithmetic over all of them, compiling for the few.

The rows of an update stay what they are (rows x micro_batches), so that the run computes the same;
what changes is over which axes it is split, into how many micro-batches, and what is made again.
Every candidate is counted from sizes; of those that fit, the fastest are compiled. What was counted
and compiled is kept, so a search that was stopped goes on where it was.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax.plan import assemble, cache, quick, table
from mimesis_jax.plan.quick import PlanError
from mimesis_jax.plan.topology import Topology
from mimesis_jax.report import sheet
from mimesis_jax.sharding import table as tables

Json = dict[str, Any]
REMATS = ("none", "dots", "full")
FEW = 3  # candidates that are compiled
ROOM = 0.92  # of the memory that an estimate may fill: what compilers add is not counted


@dataclasses.dataclass(frozen=True)
class Candidate:
    """What is tried: the keys of a configuration that a search may set."""

    preset: str
    data: int
    fsdp: int
    tensor: int
    rows: int
    micro_batches: int
    remat: str

    def overrides(self) -> dict[str, str]:
        """As words of the command line."""
        return {
            "mesh.preset": self.preset, "mesh.data": str(self.data), "mesh.fsdp": str(self.fsdp),
            "mesh.tensor": str(self.tensor), "shape.rows": str(self.rows),
            "micro_batches": str(self.micro_batches), "model.remat": self.remat,
        }  # fmt: skip


def candidates(rows: int, found: Topology) -> Iterator[Candidate]:
    """All of them: every way to lay the devices out that a preset has, slices along `data`.

    rows: of an update, over all micro-batches.
    """
    for preset, known in tables.PRESETS.items():
        for sizes in meshes(found.devices, known.axes):
            if sizes["data"] % found.slices or (sizes["data"] == 1 and preset == "multislice"):
                continue
            if sizes["tensor"] == 1 and preset == "fsdp_tp":
                continue  # is the preset fsdp
            split = sizes["data"] * sizes["fsdp"]
            for micro in (n for n in range(1, rows + 1) if rows % n == 0):
                if (rows // micro) % split == 0:
                    for remat in REMATS:
                        yield Candidate(preset, **sizes, rows=rows // micro, micro_batches=micro,
                                        remat=remat)  # fmt: skip


def meshes(devices: int, axes: tuple[str, ...]) -> Iterator[dict[str, int]]:
    """Sizes of data, fsdp and tensor whose product is `devices`; 1 along axes not in `axes`."""
    for data in _divisors(devices if "data" in axes else 1):
        for tensor in _divisors(devices // data if "tensor" in axes else 1):
            fsdp = devices // data // tensor
            if fsdp == 1 or "fsdp" in axes:
                yield {"data": data, "fsdp": fsdp, "tensor": tensor}


def _divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


def run(
    name: str,
    overrides: Mapping[str, str],
    found: Topology,
    mode: str,
    target: Path,
    make: Callable[..., Json],
) -> Json:
    """The best plan that was found; its keys go to `target` as a configuration.

    make: verb.make, which compiles and keeps. Raises PlanError when nothing fits, with the
    candidate that came nearest.
    """
    config = configs.read(name, overrides)
    rows = config.shape.rows * config.micro_batches
    counted = _counted(configs.plain(config), rows, found)
    fits = [row for row in counted if row["peak_bytes"] <= ROOM * found.chip.device_bytes]
    if not fits:
        near = min(counted, key=lambda row: row["peak_bytes"])
        raise PlanError(
            f"none of {len(counted)} layouts of {name} fits {found.name}: the smallest holds "
            f"{table.gib(near['peak_bytes'])} of {table.gib(found.chip.device_bytes)} a device "
            f"({_words(near['overrides'])}); use more devices, shorter rows or a smaller model"
        )
    best = sorted(fits, key=_order)[:FEW]
    first = _first(counted, config)
    plans, began = [], time.monotonic()
    for number, row in enumerate(best, 1):
        _said(f"{number} of {len(best)}: {_words(row['overrides'])}")
        plans.append(make(name, {**overrides, **row["overrides"]}, found, mode))
        spent = time.monotonic() - began
        left = spent / number * (len(best) - number)
        _said(f"  {_line(plans[-1])}; {spent:.0f} s, about {left:.0f} s left")
    good = [plan for plan in plans if plan["fits"]]
    if not good:
        raise PlanError(
            f"the {len(best)} fastest layouts by arithmetic do not fit {found.name} once compiled: "
            "try more devices, or smaller rows"
        )
    winner = min(good, key=_order)
    searched = {
        "counted": len(counted), "fitting": len(fits), "compiled": len(plans), "first": first,
        "gain": first["least_seconds"] / winner["least_seconds"] - 1 if first else None,
        "reason": _reason(first, winner) if first else "",
    }  # fmt: skip
    write(target, name, winner["config"]["overrides"], found, winner)
    _said(_told(winner, searched, target))
    return {**winner, "searched": searched}


def _order(row: Json) -> tuple[float, float, int]:
    """Fastest first. Bounds suppose that nothing waits for anything, so of those within a
    hundredth the one with less to overlap comes first, then the one with more room."""
    least = row["least_seconds"]
    near = round(math.log(least) / math.log(1.01)) if least else -math.inf
    return near, sum(row["roofline_seconds"].values()), row["peak_bytes"]


def _reason(first: Json, winner: Json) -> str:
    """What differs between what was asked for and what was found, in keys and in figures."""
    before, after = first["overrides"], winner["config"]["overrides"]
    keys = [f"{key} {before[key]} -> {after[key]}" for key in before if before[key] != after[key]]
    figures = [
        f"{name} {table.seconds(first['roofline_seconds'][name])} -> {table.seconds(took)}"
        for name, took in winner["roofline_seconds"].items()
    ]
    memory = f"peak {table.gib(first['peak_bytes'])} -> {table.gib(winner['peak_bytes'])}"
    return "; ".join([", ".join(keys) or "nothing", *figures, memory])


def _counted(config: Json, rows: int, found: Topology) -> list[Json]:
    """Every candidate counted from sizes, from the cache where that was done before."""
    tried = list(candidates(rows, found))
    if not tried:
        raise PlanError(
            f"the {rows} rows of an update (shape.rows x micro_batches) fit no layout of "
            f"{found.devices} devices: use a multiple of them"
        )
    key = cache.key("search", config, found.compiler, found.devices, found.slices, cache.code())
    if (known := cache.get("searches", key)) is not None:
        return known
    _said(f"counting {len(tried)} layouts of {found.devices} devices")
    request = {"base": config, "tries": [one.overrides() for one in tried]}
    told = quick.compile(request, found, "sizes")["tries"]
    counted = []
    for one, measured in zip(tried, told, strict=True):
        if "refused" in measured:
            continue
        plan = assemble.plan(measured, found, "quick", measured["trained"])
        kept = ("peak_bytes", "peak_phase", "least_seconds", "bound", "roofline_seconds")
        counted.append({"overrides": one.overrides(), **{key: plan[key] for key in kept}})
    cache.put("searches", key, counted)
    return counted


def _first(counted: list[Json], config: Any) -> Json | None:
    """The candidate that the configuration itself is, None where it cannot be laid out."""
    mesh = config.mesh
    for row in counted:
        tried = row["overrides"]
        same = all(
            int(tried[f"mesh.{axis}"]) in (mesh[axis], -1) or mesh[axis] == -1
            for axis in ("data", "fsdp", "tensor")
        )
        if (
            same and tried["mesh.preset"] == mesh.preset
            and tried["model.remat"] == config.model.remat
            and int(tried["micro_batches"]) == config.micro_batches
        ):  # fmt: skip
            return row
    return None


def write(
    target: Path, name: str, overrides: Mapping[str, str], found: Topology, plan: Json
) -> Path:
    """Writes the configuration that `name` becomes with these keys; whole or not at all."""
    quoted = json.dumps
    keys = "".join(
        f"            {quoted(key)}: {quoted(value)},\n" for key, value in overrides.items()
    )
    told = "\n".join(textwrap.wrap(f"Said of it: {_line(plan)}.", 96))
    stem = configs.find(name).stem
    text = f'''"""{stem} as `mimesis plan --search` laid it out on {found.name}.

    mimesis train --config {target} --out RUN

{told}
Made by code {plan["code"]}, {plan["mode"]}.
"""

from ml_collections import ConfigDict

from mimesis_jax import config


def get_config() -> ConfigDict:
    """{stem} with what the search found."""
    return config.read(
        {quoted(stem)},
        {{
{keys}        }},
    )
'''
    return sheet.put(target, text)


def _line(plan: Json) -> str:
    fits = "fits" if plan["fits"] else "does not fit"
    return (
        f"{fits}, peak {table.gib(plan['peak_bytes'])} of {table.gib(plan['limit_bytes'])} a "
        f"device, an update takes {table.seconds(plan['least_seconds'])} at least, bound by "
        f"{plan['bound']}"
    )


def _told(winner: Json, searched: Json, target: Path) -> str:
    gain = searched["gain"]
    more = "" if gain is None or math.isnan(gain) else f", {100 * gain:.0f} % faster than asked"
    return (
        f"best of {searched['counted']} layouts, {searched['fitting']} of which fit{more}: "
        f"{_words(winner['config']['overrides'])}\n{searched['reason']}\nwritten to {target}"
    )


def _words(overrides: Mapping[str, str]) -> str:
    return " ".join(f"--config.{key}={value}" for key, value in overrides.items())


def _said(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
