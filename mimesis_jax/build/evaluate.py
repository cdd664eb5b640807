"""`mimesis evaluate`: every agent of a run with every user, and measures of its simulator."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax import types
from mimesis_jax.build import begun, demo, measures, parts
from mimesis_jax.config import ConfigDict
from mimesis_jax.envs import desk
from mimesis_jax.evaluation import cross
from mimesis_jax.rollouts import seat
from mimesis_jax.runs import checkpoint, disk, progress
from mimesis_jax.users import behaviours, population


@dataclasses.dataclass(frozen=True)
class Config:
    """run: the folder of the run whose models are measured.

    agents: demo.ARMS, "ceiling", or folders of stage runs; () leaves the matrix out. A member may
    hold several, separated by commas. simulator: whether the simulator is measured too.
    """

    kind: str = "evaluate"
    run: str = "runs/demo"
    agents: tuple[str, ...] = (*demo.ARMS, demo.CEILING)
    simulator: bool = True
    evaluation: parts.Evaluation = parts.Evaluation()


def evaluate(config: ConfigDict, out: Path) -> dict[str, Any]:
    """Measures what a run has trained; writes and gives OUT/evaluate.json. Trains nothing.

    Raises ConfigError for agents that are none, RunError for stages that are not finished.
    """
    since = time.monotonic()
    chosen = configs.freeze(Config, config)
    run = begun.Begun(chosen.run)
    names = [name for member in chosen.agents for name in member.split(",") if name]
    agents = {Path(name).name: trained(run, name) for name in names}
    settings = dataclasses.replace(run.settings, evaluation=chosen.evaluation)
    cast = parts.Cast(settings, run.world(settings))
    out = Path(out)
    try:
        out.mkdir(parents=True, exist_ok=True)  # before the minutes that it is to hold
    except OSError as error:
        raise disk.explain(error, out) from error
    found: dict[str, Any] = {
        "run": str(run.path),
        "quick": run.quick,
        "goals": chosen.evaluation.goals,
        "hashes": {name: frozen.hash for name, frozen in agents.items() if frozen},
    }
    if agents:
        params = {name: frozen and frozen.params for name, frozen in agents.items()}
        found |= told(matrix(cast, params, opponents(cast, run)))
    if chosen.simulator:
        found |= simulator(cast, run)
    found = disk.plain(found | {"seconds": time.monotonic() - since})
    disk.write(out / "evaluate.json", found)
    return found


def trained(run: begun.Begun, name: str) -> checkpoint.Frozen | None:
    """The parameters of an agent by its name (None: it has none), see Config.agents."""
    if name == demo.CEILING:
        return None
    if name in demo.STAGE_OF:
        return run.frozen(demo.STAGE_OF[name])
    if not Path(name).is_dir():
        known = [*demo.ARMS, demo.CEILING]
        raise configs.ConfigError(
            f"config.agents: {name!r} is no agent and no folder of a stage run; "
            f"did you mean {configs.nearest(name, known)}?"
        )
    other = begun.Begun(name)
    if "stage" not in other.config or other.config.stage not in demo.STAGE_OF.values():
        raise configs.ConfigError(
            f"config.agents: {name} holds no agent's stage: give its folder as config.run"
        )
    if other.renderer.tokenizer.hash != run.renderer.tokenizer.hash:
        raise configs.ConfigError(
            f"config.agents: {name} was not begun from {run.path}: its tokenizer is another one"
        )
    return other.frozen(other.config.stage)


# --- agents -------------------------------------------------------------------------------------


def opponents(cast: parts.Cast, run: begun.Begun) -> dict[str, cross.Opponent]:
    """The evaluation users: the rule-based ones, and the model users that the run has trained."""
    there = [name for name in population.MODEL_USERS if name in run.names()]
    models = {name: cast.seat(name, "user", run.frozen(name).params) for name in there}
    return measures.opponents(models, cast.settings.evaluation.goals)


def matrix(
    cast: parts.Cast, agents: Mapping[str, Any], rooms: Mapping[str, cross.Opponent]
) -> dict[str, cross.Result]:
    """Every agent with every user; agents: parameters by name, None for the scripted agent."""
    results = {}
    for name, params in progress.over(list(agents.items()), "agents with all users"):
        agent = measures.judged(cast, params)
        results[name] = cross.against(agent, rooms, desk.DeskGym, stream=measures.STREAM_EVALUATION)
    return results


def told(results: Mapping[str, cross.Result]) -> dict[str, Any]:
    """The matrix in figures, and each agent's paired difference from the first one."""
    first, *others = results
    differences = {}
    for name in others:
        gap = cross.paired(results[name], results[first])
        differences[f"{name}_minus_{first}"] = {"mean": gap.mean, "ci95": [gap.low, gap.high]}
    return {
        "agent": {name: dict(result.measure()) for name, result in results.items()},
        "paired": differences,
    }


# --- the simulator ------------------------------------------------------------------------------


def simulator(cast: parts.Cast, run: begun.Begun) -> dict[str, Any]:
    """Likelihoods, behaviours before and after, manners, and the difficulty gap of the start."""
    made, chosen = cast.world, cast.settings.evaluation
    shape = cast.settings.shape
    stage = {n: run.frozen(n) for n in ("base", "user_midtrain", "user_thoughts")}
    final, start = run.frozen("user_behaviours"), run.frozen("agent_start")
    heard = lambda params, thinking: measures.heard(made, cast.spec, params, shape, thinking)
    rules = measures.rule_judge(made, cast.spec, stage["user_midtrain"].params, shape)
    rated = lambda params: measures.behaving(cast.user(params), rules, chosen.behaviour_rows)
    before, _ = rated(stage["user_thoughts"].params)
    after, episodes = rated(final.params)
    agent = measures.judged(cast, start.params)
    user: seat.ModelSeat = cast.user(final.params)
    return {
        "simulator": {
            "nll_before": heard(stage["base"].params, "none"),
            "nll_midtrain": heard(stage["user_midtrain"].params, "none"),
            "nll_thoughts": heard(stage["user_thoughts"].params, "empty"),
            "nll_final": heard(final.params, "empty"),
            "nll_trigram": measures.baseline(made),
            **rates(before, after),
            **manners(episodes, cast),
            "hash": final.hash,
        },
        "difficulty_gap": measures.difficulty(agent, user, 4 * chosen.goals),
    }


def rates(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Any]:
    """What the judge saw before and after user training, by the names of a demo's summary."""
    both = {"before": before, "after": after}
    return {
        **{
            f"behaviour_rate_{when}": seen.get("behaviour_rate", 0.0) for when, seen in both.items()
        },
        "behaviour_rates": {
            name: {when: seen.get(f"rate_{name}", 0.0) for when, seen in both.items()}
            for name in behaviours.IDS
        },
        **{f"control_rate_{when}": seen.get("control_rate", 0.0) for when, seen in both.items()},
    }


def manners(episodes: Sequence[types.Episode], cast: parts.Cast) -> dict[str, float]:
    """Measures of a simulator's episodes; the reference population's end in _reference."""
    found = measures.manners(episodes, cast.world.held_out())
    own = {name: value for name, value in found.items() if not name.startswith("reference/")}
    beside = {n.removeprefix("reference/"): v for n, v in found.items() if n not in own}
    return own | {f"{name}_reference": value for name, value in beside.items()}
