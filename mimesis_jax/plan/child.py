"""A process of its own that compiles, for virtual devices or for those of other machines.

    python -m mimesis_jax.plan.child REQUEST

REQUEST is a json file {"config", "topology", "mode", "programs", "without", "fresh", "out"}. The
environment decides what compiles (see quick.py and exact.py), so it is set by whoever starts this.
For each program it prints a line on standard error; the result goes to the file "out", whole or not
at all: {"programs": [...], "parameters": [...], "trained": chair}, or {"refused": "why"} where the
run cannot be laid out on the machines. In the mode "sizes" nothing is compiled: the config is then
{"base", "tries"} and the result {"tries": [...]}, one for each set of overrides.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import jax

from mimesis_jax import config as configs
from mimesis_jax.plan import exact, measure, programs, roofline, settings, topology
from mimesis_jax.runs import disk

Json = dict[str, Any]


def main(argv: list[str]) -> int:
    """Does what a request says. 0 where a result was written, refusals included."""
    asked = json.loads(Path(argv[0]).read_text())
    found = topology.parse(asked["topology"])
    try:
        if asked["mode"] == "sizes":
            result: Json = {"tries": _tries(asked["config"], found)}
        else:
            result = _plan(asked, found)
    except configs.ConfigError as error:
        result = {"refused": str(error)}
    disk.write(Path(asked["out"]), result)
    return 0


def _plan(asked: Json, found: topology.Topology) -> Json:
    """Every program that is asked for, measured."""
    plan = settings.of(configs.load(json.dumps(asked["config"])))
    exactly = asked["mode"] == "exact"
    try:
        devices = exact.devices(found) if exactly else jax.devices()[: found.devices]
        built = programs.build(plan, found, devices)
    except ValueError as error:
        return {"refused": str(error)}
    names = [one.name for one in built]
    for name in (*asked["programs"], *asked["without"]):
        if name not in names:
            near = configs.nearest(name, names)
            return {"refused": f"this run has no program {name!r}: did you mean {near!r}?"}
    chosen = set(asked["programs"] or names) - set(asked["without"])
    wanted = [one for one in built if one.name in chosen]
    began, told = time.monotonic(), []
    for number, one in enumerate(wanted, 1):
        measured = measure.program(one, asked["mode"], asked["fresh"])
        told.append({"mode": asked["mode"], **described(one, measured, found)})
        left = (time.monotonic() - began) / number * (len(wanted) - number)
        took = told[-1]["compile_seconds"]
        print(
            f"{one.name}: compiled in {took:.0f} s, about {left:.0f} s left",
            file=sys.stderr,
            flush=True,
        )
    trained = settings.TRAINED.get(plan.stage)
    return {"programs": told, "parameters": _parameters(built), "trained": trained}


def _tries(config: Json, found: topology.Topology) -> list[Json]:
    """Every set of overrides counted from sizes; engines, which none of them changes, once."""
    devices = jax.devices()[: found.devices]
    told: list[Json] = []
    engines: list[programs.Program] | None = None
    for overrides in config["tries"]:
        tried = configs.load(json.dumps(config["base"]))
        try:
            configs.override(tried, overrides)
            plan = settings.of(tried)
            layout = programs.train_layout(plan, found, devices)
            trained = programs.training(plan, layout, found)
        except ValueError as error:
            told.append({"refused": str(error)})
            continue
        if engines is None:
            engines = programs.engines(plan, found, devices)
        counted = [
            {"mode": "sizes"}
            | described(one, {**measure.nothing(one), "sent_by_axis": one.sent}, found)
            for one in (*trained, *engines)
        ]
        chair = settings.TRAINED.get(plan.stage)
        told.append({"programs": counted, "parameters": [], "trained": chair})
    return told


def described(one: programs.Program, measured: measure.Measured, found: topology.Topology) -> Json:
    """What a program measures, with what is counted from its sizes."""
    line = roofline.least(one.work, measured["sent_by_axis"], found, one.mesh)
    return {
        **measured,
        "mesh": one.mesh, "bytes_by_kind": one.bytes(), "held_by_kind": one.held,
        "tokens": one.tokens, "runs": one.runs, "flops": one.work.wanted,
        "done_flops": one.work.done, "traffic_bytes": one.work.traffic,
        "roofline_seconds": line.seconds, "bound": line.bound, "mfu_upper": line.mfu,
    }  # fmt: skip


def _parameters(built: list[programs.Program]) -> list[Json]:
    """How every parameter of every model is split, each model once."""
    return [
        {"program": one.name, "name": p.name, "shape": list(p.shape), "spec": p.spec,
         "bytes": p.bytes, "local_bytes": p.local}
        for one in built
        if one.name == "update" or one.name.endswith(" decode")
        for p in one.parameters
    ]  # fmt: skip


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
