"""What all arms of a seed share: the world, the frozen simulator, the model users, the start.

It is the demo up to its agents, in a run folder that `mimesis demo`, `mimesis train` of kind
"stage" and `mimesis evaluate` read as a demo's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax.build import begun, demo, measures, parts, sources, stages, world
from mimesis_jax.config import ConfigDict
from mimesis_jax.runs import compiles, disk, folder
from mimesis_jax.users import population

STAGES = (
    "drill", "base", "user_midtrain", "user_thoughts", "user_behaviours",
    *population.MODEL_USERS, "agent_start",
)  # fmt: skip
PARTS = ("vocab", "model", "shape", "engine", "world", "user_seat")


def seeded(config: ConfigDict, seed: int) -> ConfigDict:
    """The demo's configuration of a seed."""
    own = config.copy_and_resolve_references()
    with own.unlocked():
        own.seed = seed
    return own


def told(config: ConfigDict) -> dict[str, Any]:
    """What of a demo's configuration makes a preparation, but its seed; as json values."""
    stages = ("model_user" if name in population.MODEL_USERS else name for name in STAGES)
    return {name: configs.plain(config[name]) for name in (*PARTS, *dict.fromkeys(stages))}


def check(config: ConfigDict, path: Path) -> None:
    """Holds that a finished preparation is of this configuration and seed.

    Raises RunError naming what differs: its arms would begin with other models than the page says.
    """
    if not prepared(path):
        return
    before = folder.config(path)
    wanted = told(config) | {"seed": config.seed}
    here = {name: configs.plain(before[name]) for name in wanted if name in before}
    if lines := configs.changes(here, wanted):
        raise disk.RunError(
            f"{path} was made with other settings: {'; '.join(lines[:5])}. Use them again, or "
            "another --out"
        )


def prepared(path: Path) -> bool:
    """Whether the folder holds everything that arms begin with."""
    phases = disk.read(path / "phases.json") or {}
    return all("done" in phases.get(name, {}) for name in (*STAGES, "copying"))


def prepare(
    config: ConfigDict, path: Path, compiled: compiles.Compiles, *, strict: bool = True
) -> begun.Begun:
    """Makes what is missing in the run folder `path`; a finished one is only read.

    config: a demo's, see configs/demo.py. strict: the start must copy what it heard
    (demo.LEAST_COPYING). Raises ConfigError and RunError as the demo does.
    """
    if not prepared(path):
        settings = parts.desk(config)
        with folder.Run(path, config, seed=settings.seed) as run:
            _make(run, settings, compiled, strict)
    return begun.Begun(path)


def _make(run: folder.Run, settings: parts.Desk, compiled: compiles.Compiles, strict: bool) -> None:
    if run.done("world") is None:
        run.begin("world")
    made = world.World(settings.world, vocab=settings.vocab, seed=settings.seed)
    cast = parts.Cast(settings, made)
    made.renderer.tokenizer.save(run.path / "tokenizer.json")
    if run.done("world") is None:
        run.finish("world")
    held = stages.Stages(run, cast.spec, settings.shape, settings.seed, compiled, cast.devices)
    train, rows, each = held.supervised, sources.Sources(made), settings.supervised
    drilled = train("drill", cast.fresh(), rows.drills(1.0), each["drill"])
    base = train("base", drilled, rows.base(), each["base"])
    mid = train("user_midtrain", base, rows.user("none"), each["user_midtrain"])
    thoughtful = train("user_thoughts", mid, rows.thoughts(), each["user_thoughts"])
    if run.done("user_behaviours") is None:
        rules = measures.rule_judge(made, cast.spec, mid, settings.shape)
        held.simulator(
            "user_behaviours", thoughtful, cast.behaving(thoughtful, rules),
            settings.user_behaviours,
        )  # fmt: skip
    for name in population.MODEL_USERS:
        train(name, base, rows.model_user(name), each["model_user"])
    start = train("agent_start", base, rows.start(), each["agent_start"])
    if run.done("copying") is None:
        run.begin("copying")
        copying = measures.copying(made, cast, start, settings.shape)
        if strict and copying < demo.LEAST_COPYING:
            raise disk.RunError(
                f"{run.path}: the start agent copies a heard value with probability "
                f"{copying:.3f}, {demo.LEAST_COPYING} is the least that reinforcement can build "
                f"on: give it more base tokens (--config.demo.base.steps above "
                f"{each['base'].steps}), in a new --out"
            )
        run.finish("copying", {"copying": copying})
