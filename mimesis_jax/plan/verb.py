"""`mimesis plan`: what its words ask for, from the cache where it was made before."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax.plan import assemble, cache, exact, page, quick, search, stored, table, topology
from mimesis_jax.plan.quick import PlanError
from mimesis_jax.runs import disk

Json = dict[str, Any]


def run(args: argparse.Namespace, overrides: Mapping[str, str]) -> None:
    """Does what the verb's options say and prints it.

    Raises PlanError where the words do not fit together, where a compiler is missing, and, after
    everything was written, where the plan does not fit the machines; ConfigError and TopologyError
    for the names.
    """
    if args.compare is not None:
        _alone(args, overrides, "compare")
        print(table.compared(*(read(path) for path in args.compare)), end="")
        return
    if args.missing:
        _alone(args, overrides, "missing")
        stored.complete(make)
        return
    if args.config is None or args.topology is None:
        raise PlanError(
            "plan needs --config and --topology (or --compare A.json B.json, or --missing): "
            "see --help"
        )
    found = topology.parse(args.topology)
    mode = "quick" if args.quick else "exact"
    only = tuple(filter(None, (args.exactly or "").split(",")))
    if only and args.quick:
        raise PlanError("--exactly names what the machines' compiler is asked for: leave --quick")
    for path in (args.json, args.html, args.search):
        if path is not None and not path.resolve().parent.is_dir():
            raise PlanError(f"{path}: there is no folder {path.parent}, make it first")
    if args.search is not None:
        if only:
            raise PlanError("--search compares whole plans: leave --exactly")
        plan = search.run(args.config, overrides, found, mode, args.search, make)
    else:
        plan = make(args.config, overrides, found, mode, exactly=only, fresh=args.fresh)
    if args.json is not None:
        disk.write(args.json, plan)
    if args.html is not None:
        page.write(args.html, plan)
    print(table.text(plan), end="")
    if not plan["fits"]:
        raise PlanError(misfit(plan))


def _alone(args: argparse.Namespace, overrides: Mapping[str, str], name: str) -> None:
    others = ("config", "topology", "quick", "exactly", "json", "html", "search", "missing",
              "compare")  # fmt: skip
    given = [word for word in others if word != name and getattr(args, word)]
    if given or overrides:
        word = f"--{given[0]}" if given else f"--config.{next(iter(overrides))}"
        raise PlanError(f"{word} means nothing beside --{name}: see --help")


def misfit(plan: Json) -> str:
    """Why a plan does not fit, with both figures."""
    name, machines = plan["config"]["name"], plan["topology"]["name"]
    peak, limit = plan["peak_bytes"], plan["limit_bytes"]
    for one in plan["refused"]:
        if one["used_bytes"]:
            peak, limit = one["used_bytes"], one["limit_bytes"]
    return (
        f"{name} does not fit {machines}: {table.gib(peak)} of {table.gib(limit)} a device in "
        f"{plan['peak_phase']}; --search F.py looks for a mesh and a micro-batch that do"
    )


def make(
    name: str, overrides: Mapping[str, str], found: topology.Topology, mode: str, *,
    exactly: tuple[str, ...] = (), fresh: bool = False,
) -> Json:  # fmt: skip
    """The plan of a configuration on machines; a plan of the same code is not made again.

    name: as for `--config`. overrides: dotted key -> text. exactly: names of the programs that the
    mode "exact" asks the machines' compiler for (none: all); the others are compiled as in the mode
    "quick". Raises as `run` does.
    """
    config = configs.plain(configs.read(name, overrides))
    machines = (found.compiler, found.slices, found.devices)
    key = cache.key(config, machines, mode, sorted(exactly), cache.code())
    if not fresh and (known := cache.get("plans", key)) is not None:
        return known
    if mode == "exact" and (why := exact.missing(found)) is not None:
        raise PlanError(why)
    measured = quick.compile(config, found, mode, only=exactly, fresh=fresh)
    if exactly:
        rest = quick.compile(config, found, "quick", without=exactly, fresh=fresh)
        measured["programs"] += rest["programs"]
    plan = {
        "config": {
            "name": configs.find(name).stem,
            "overrides": dict(overrides),
            "hash": configs.content_hash(config)[:12],
        },
        **assemble.plan(measured, found, mode, measured["trained"]),
        "code": cache.code(),
        "versions": cache.versions(),
    }
    cache.put("plans", key, plan)
    return plan


def read(path: Path) -> Json:
    """A plan that --json wrote. Raises PlanError for another file."""
    plan = disk.read(path)
    wanted = {"config", "topology", "mode", "peak_bytes", "collectives", "roofline_seconds"}
    if not isinstance(plan, dict) or not wanted <= plan.keys():
        raise PlanError(f"{path} is no plan: write one with mimesis plan ... --json {path}")
    return plan


def said(line: str) -> None:
    """Progress goes to standard error: standard output is the plan's."""
    print(line, file=sys.stderr, flush=True)
