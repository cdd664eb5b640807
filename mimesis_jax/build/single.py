"""One stage of the small world in a run folder of its own: `mimesis train` of kind "stage".

It begins with the models of another run (`config.start`), which is only read. What its own
configuration does not name (sizes, world, seats) is as that run had it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax.build import begun, demo, evaluate, measures, parts, sources, stages
from mimesis_jax.config import ConfigDict
from mimesis_jax.report import page
from mimesis_jax.runs import checkpoint, compiles, folder, processes, processes_folder, versions
from mimesis_jax.users import population


@dataclasses.dataclass
class _Room:
    """What a stage is given to work with."""

    start: begun.Begun
    run: folder.Run
    settings: parts.Desk
    cast: parts.Cast
    stages: stages.Stages

    def given(self, name: str, called: str = "") -> Any:
        """Parameters of the start; their hash is recorded, and must be the same on a restart."""
        frozen = self.start.frozen(name)
        self.run.hash(called or name, frozen.hash)
        return frozen.params


def train(config: ConfigDict, out: Path) -> dict[str, Any]:
    """Runs the stage `config.stage` in the run folder `out`, or goes on with it; the summary.

    Writes, beside what every run folder has: tokenizer.json, models/STAGE (the frozen result),
    summary.json and report.html. Raises ConfigError and RunError before anything is written.
    """
    asked = config.get("stage", "")
    if asked not in STAGES:
        close = configs.nearest(asked, STAGES)
        raise configs.ConfigError(f"config.stage={asked!r} is no stage; did you mean {close}?")
    if "start" not in config:
        raise configs.ConfigError(
            "config.start is missing: name the folder of the run to begin from"
        )
    start = begun.Begun(config.start)
    whole = merged(start.config, config)
    settings = begun.settings(whole)
    for name in NEEDED[config.stage]:
        start.frozen(name)
    with (
        processes_folder.opened(out, whole, seed=settings.seed) as run,
        compiles.Compiles() as compiled,
    ):
        compiles.keep_programs(Path(out).parent / ".compiled")
        if processes.is_lead():
            start.renderer.tokenizer.save(run.path / "tokenizer.json")
        cast = parts.Cast(settings, start.world(settings))
        own = stages.Stages(run, cast.spec, settings.shape, settings.seed, compiled, cast.devices)
        room = _Room(start, run, settings, cast, own)
        found = STAGES[config.stage](room, config.stage)
        phases = {name: run.seconds(name) for name in (config.stage, *found.pop("measured"))}
        summary = {
            "seconds": sum(phases.values()),
            "setup_seconds": versions.setup_seconds(),
            "quick": start.quick,
            "stage": config.stage,
            "start": str(start.path),
            "hash": own.load(config.stage)[1],
            **found,
            "compiles_after_warmup": own.late[config.stage],
            "phases": phases,
        }
        run.write("summary.json", summary)
        if processes.is_lead():
            page.write(run.path)
    return summary


def merged(base: ConfigDict, config: ConfigDict) -> ConfigDict:
    """The start's configuration with the sections that the stage's has."""
    whole = base.copy_and_resolve_references()
    whole.unlock()
    for key, value in config.items():
        whole[key] = value
    whole.lock()
    return whole


# --- the stages ---------------------------------------------------------------------------------


def _agent(room: _Room, name: str) -> dict[str, Any]:
    """GRPO (+ CSD) of the agent, against the frozen simulator or the assistant as user."""
    start = room.given("agent_start")
    people, hashes = population.SIMULATOR, {}
    if name == "agent_grpo_assistant_user":
        people = population.ASSISTANT
        opposite: Any = people.user(seed=5)
    else:
        frozen = room.given("user_behaviours", called="simulator")
        hashes["hash_start"] = checkpoint.content_hash(frozen)
        opposite = room.cast.user(frozen, hashes["hash_start"])
    trained = room.stages.agent(
        name,
        start,
        room.cast.serving(start, opposite, people),
        room.settings.agents[name],
        user="simulator" if hashes else people.name,
        decode=room.cast.world.renderer.tokenizer.pieces,
    )
    found = _compared(room, name, start, trained)
    if hashes:
        found["simulator"] = hashes | {"hash_end": checkpoint.content_hash(frozen)}
    return found


def _perfect(room: _Room, name: str) -> dict[str, Any]:
    """Supervised training on the dialogues of the agent without mistakes."""
    start, rows = room.given("agent_start"), sources.Sources(room.cast.world).perfect()
    trained = room.stages.supervised(name, start, rows, room.settings.supervised[name])
    return _compared(room, name, start, trained)


def _compared(room: _Room, name: str, start, trained) -> dict[str, Any]:
    """The agent before and after, with the evaluation users whom the start run has."""
    arm = next(arm for arm, stage in demo.STAGE_OF.items() if stage == name)

    def measure() -> dict[str, Any]:
        rooms = evaluate.opponents(room.cast, room.start)
        results = evaluate.matrix(room.cast, {"start": start, arm: trained}, rooms)
        for who, result in results.items():
            for user, episodes in result.episodes.items():
                room.run.episode("evaluation", 0, episodes[0], user=user, agent=who)
        return evaluate.told(results)

    return {"measured": ["evaluation"], **room.run.measured("evaluation", measure)}


def _behaviours(room: _Room, name: str) -> dict[str, Any]:
    """Joint GRPO of the user, judged by rule; the mid-trained model says what is natural."""
    mid, thoughtful = room.given("user_midtrain"), room.given("user_thoughts")
    rules = measures.rule_judge(room.cast.world, room.cast.spec, mid, room.settings.shape)
    rated = lambda params: measures.behaving(
        room.cast.user(params), rules, room.settings.evaluation.behaviour_rows
    )
    before = room.run.measured("behaviours_before", lambda: rated(thoughtful)[0])
    trained = room.stages.simulator(
        name,
        thoughtful,
        room.cast.behaving(thoughtful, rules),
        room.settings.user_behaviours,
    )

    def measure() -> dict[str, Any]:
        after, episodes = rated(trained)
        return {"after": after, "manners": evaluate.manners(episodes, room.cast)}

    found = room.run.measured("evaluation", measure)
    return {
        "measured": ["behaviours_before", "evaluation"],
        "simulator": evaluate.rates(before, found["after"]) | found["manners"],
    }


_AGENT = ("agent_start", "user_behaviours")
STAGES: dict[str, Callable[[_Room, str], dict[str, Any]]] = {
    "user_behaviours": _behaviours,
    "sft_perfect": _perfect,
    **dict.fromkeys(parts.AGENTS, _agent),
}
NEEDED = {  # stages of the start
    "user_behaviours": ("user_midtrain", "user_thoughts"),
    "sft_perfect": ("agent_start",),
    "agent_grpo": _AGENT,
    "agent_csd": _AGENT,
    "agent_grpo_assistant_user": ("agent_start",),
}
