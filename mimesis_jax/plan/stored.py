"""The plans that are kept with the project: which there are to be, and making those that are not.

configs/plans/CONFIG@TOPOLOGY.json is a plan as `--json` writes it. Each says which code made it.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax.plan import cache, exact, topology
from mimesis_jax.plan.quick import PlanError
from mimesis_jax.runs import disk

Json = dict[str, Any]
HOME = configs.HOME / "plans"


@dataclasses.dataclass(frozen=True)
class Wanted:
    """One plan of the set. overrides: what the machines need that the file does not say. exactly:
    the programs that the exact mode compiles for the machines, the rest quickly (none: all)."""

    config: str
    topology: str
    mode: str = "quick"
    overrides: tuple[tuple[str, str], ...] = ()
    exactly: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return HOME / f"{self.config}@{self.topology.replace(':', '_')}.json"


# 32 GiB a chip: a prefill of 4,096 tokens at once would hold 17 GiB of attention scores.
V6E = (("mesh.fsdp", "64"), ("shape.rows", "64"), ("engine.buckets", "64,256,1024"))
GPUS = (("mesh.fsdp", "8"), ("shape.rows", "8"), ("micro_batches", "4"))
STAGES = ("simulator_midtrain", "simulator_thoughts", "simulator_grpo")
SET = (
    *(Wanted(f"{stage}_{size}", "v5p-32") for stage in STAGES for size in ("4b", "9b")),
    Wanted("agent_csd_4b", "v5p-32", "exact", exactly=("update", "agent decode")),
    Wanted("agent_csd_9b", "v5p-32", "exact", exactly=("update",)),
    *(Wanted(f"agent_csd_{n}", "h100x8", "exact", GPUS, ("update",)) for n in ("4b", "9b")),
    *(Wanted(f"agent_csd_{size}", "v6e-64", "quick", V6E) for size in ("4b", "9b")),
)


def complete(make: Callable[..., Json]) -> None:
    """Makes the plans of the set that are not there, one after another, and says what is old.

    make: verb.make. An exact plan whose compiler is not installed here is left out, by name. What
    was made stays when this is interrupted, and so does every program that was compiled.
    """
    missing = [one for one in SET if not one.path.exists()]
    missing.sort(key=lambda one: one.mode == "exact")  # what takes minutes comes first
    for one in SET:
        if one.path.exists() and (code := disk.read(one.path).get("code")) != cache.code():
            _said(f"{one.path.name} is of code {code}, this is {cache.code()}: remove it to renew")
    began = time.monotonic()
    for number, one in enumerate(missing, 1):
        found = topology.parse(one.topology)
        if one.mode == "exact" and (why := exact.missing(found)) is not None:
            _said(f"{one.path.name}: left out, {why}")
            continue
        _said(f"{number} of {len(missing)}: {one.path.name}, {one.mode}")
        write(one, make)
        spent = time.monotonic() - began
        left = spent / number * (len(missing) - number)
        _said(f"  {spent:.0f} s, about {left:.0f} s left")
    _said(f"{len(SET) - len(missing)} of {len(SET)} plans were there already")


def write(one: Wanted, make: Callable[..., Json]) -> Path:
    """Makes one plan of the set and writes it."""
    overrides: Mapping[str, str] = dict(one.overrides)
    found = topology.parse(one.topology)
    plan = make(one.config, overrides, found, one.mode, exactly=one.exactly)
    try:
        one.path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PlanError(f"{one.path.parent} cannot be made: {error.strerror}") from error
    disk.write(one.path, plan)
    return one.path


def _said(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
