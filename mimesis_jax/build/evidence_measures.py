"""What is measured of a seed's models beside its arms: behaviours, difficulty, the gate."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from mimesis_jax import config as configs
from mimesis_jax.build import evaluate, evidence_coach, evidence_run, measures, parts, world
from mimesis_jax.coach import template
from mimesis_jax.desk import acts
from mimesis_jax.envs import desk
from mimesis_jax.evaluation import cross, gates, honesty
from mimesis_jax.runs import folder
from mimesis_jax.trainers import coaching
from mimesis_jax.users import population

STREAM_GATES = 9006
PLACE_DIFFICULTY, PLACE_GATES = 20_000, 30_000  # of their goals after world.EVALUATION


@dataclasses.dataclass(frozen=True)
class Behaviours:
    """rows: dialogues of each of the thirteen behaviours; three times as many controls."""

    rows: int = 24


@dataclasses.dataclass(frozen=True)
class Difficulty:
    """goals: of each kind of user. agents: "start", or arms of the experiment."""

    goals: int = 96
    agents: tuple[str, ...] = ("start",)


@dataclasses.dataclass(frozen=True)
class Mechanism:
    """goals: episodes of the start agent with the simulator. beta: of the gate."""

    goals: int = 48
    beta: float = 5.0


KINDS: dict[str, type] = {
    "behaviours": Behaviours,
    "difficulty": Difficulty,
    "mechanism": Mechanism,
}


def name(kind: str, chosen: Any, simulator: parts.Simulator) -> str:
    """Folder of a measure."""
    return f"{kind}-{configs.content_hash(_told(chosen, simulator))[:8]}"


def _told(chosen: Any, simulator: parts.Simulator) -> dict[str, Any]:
    return dataclasses.asdict(chosen) | {"simulator": dataclasses.asdict(simulator)}


def take(room: evidence_run.Room, kind: str, chosen: Any, agents: Callable[[str], Any]) -> None:
    """Takes a measure once, in a run folder of its own; the phase is called as the kind.

    agents: gives the parameters of one of Difficulty.agents.
    """
    told = {"kind": "measure", "measure": kind, "seed": room.seed} | _told(chosen, room.simulator)
    bodies: dict[str, Callable] = {
        "behaviours": _behaviours, "difficulty": _difficulty, "mechanism": _mechanism,
    }  # fmt: skip
    path = room.path / "measured" / name(kind, chosen, room.simulator)
    with folder.Run(path, told, seed=room.seed) as run:
        if run.done(kind) is not None:
            return
        for stage in ("user_behaviours", "agent_start"):
            run.hash(stage, room.start.frozen(stage).hash)
        run.begin(kind)
        with run.timed("evaluate", phase=kind):
            found = bodies[kind](room, chosen, agents)
        run.finish(kind, found)


def _behaviours(room: evidence_run.Room, chosen: Behaviours, agents) -> dict[str, Any]:
    """The judge's means before and after the user's joint GRPO; bad format after it."""
    cast = room.cast
    rules = measures.rule_judge(
        cast.world, cast.spec, room.params("user_midtrain"), room.settings.shape
    )
    rated = lambda stage: measures.behaving(cast.user(room.params(stage)), rules, chosen.rows)
    before, _ = rated("user_thoughts")
    after, episodes = rated("user_behaviours")
    manners = measures.manners(episodes, cast.world.held_out())
    return evaluate.rates(before, after) | {"bad_format_rate": manners["bad_format_rate"]}


def _difficulty(
    room: evidence_run.Room, chosen: Difficulty, agents: Callable[[str], Any]
) -> dict[str, Any]:
    """{agent: {kind of user: success of each goal}}; the same cases for all."""
    first = world.EVALUATION + PLACE_DIFFICULTY
    seeds = range(first, first + chosen.goals)
    people, easy = population.SIMULATOR, population.ASSISTANT
    rooms = {
        "reference": cross.Opponent(people.user(seed=70), people.goals(seeds)),
        "simulator": cross.Opponent(room.user("simulator"), people.goals(seeds)),
        "assistant": cross.Opponent(easy.user(seed=70), easy.goals(seeds)),
    }
    found = {}
    for agent in chosen.agents:
        who = room.agent(agents(agent))
        played = cross.against(who, rooms, desk.DeskGym, stream=measures.STREAM_GAP)
        found[agent] = dict(zip(played.users, played.success.tolist(), strict=True))
    return found


def _mechanism(room: evidence_run.Room, chosen: Mechanism, agents) -> dict[str, Any]:
    """Fresh episodes of the start agent with the simulator, coached: what the gate tells apart.

    auc_true, auc_placebo: replies that do what the true note says against the others, by the gate
    under the true note and under another episode's; within: of replies of the same act only.
    honesty: per coach the share of notes that stay when the user's secrets are another user's.
    """
    people, cast = population.SIMULATOR, room.cast
    first = world.EVALUATION + PLACE_GATES
    goals = people.goals(range(first, first + chosen.goals))
    seat = cast.seat("agent", "agent", room.params("agent_start"))  # as it trains: temperature 1
    rooms = {"simulator": cross.Opponent(room.user("simulator"), goals)}
    played = cross.against(seat, rooms, desk.DeskGym, stream=STREAM_GATES).episodes["simulator"]
    played = [e for e in played if e.trees.get("agent")]
    trees = [e.trees["agent"] for e in played]
    true = template.TemplateCoach()
    notes = [true.notes(e.dialogue) for e in played]
    kinds = [evidence_run.followed(e, said, 2) for e, said in zip(played, notes, strict=True)]
    said_acts = [
        {turn: getattr(acts.parse(e.dialogue[turn].public), "name", "none") for turn in kind}
        for e, kind in zip(played, kinds, strict=True)
    ]

    def under(said) -> tuple[float, float, dict[str, float]]:
        coached, seen = coaching.coached(
            cast.spec, room.params("agent_start"), trees, said, renderer=cast.world.renderer,
            shape=room.settings.shape, beta=chosen.beta,
        )  # fmt: skip
        found = gates.by_turn(coached)
        within = gates.separation_within(found, kinds, said_acts)
        return gates.separation(found, kinds), within, seen

    placebo = evidence_coach.make("placebo")
    auc, within, seen = under(notes)
    auc_placebo, within_placebo, blind = under([placebo.notes(e.dialogue) for e in played])
    followed = [kind for one in kinds for kind in one.values()]
    return {
        "auc_true": auc,
        "auc_placebo": auc_placebo,
        "auc_true_within": within,
        "auc_placebo_within": within_placebo,
        "replies": len(followed),
        "followed": float(np.mean(followed)) if followed else None,
        "gate_mean": seen["gate_mean"],
        "gate_mean_placebo": blind["gate_mean"],
        "none_share": seen["none_share"],
        "honesty": _honesty([e.dialogue for e in played]),
    }


def _honesty(dialogues) -> dict[str, float | None]:
    """Per coach; None where it had nothing to say at all."""
    others = [*dialogues[1:], *dialogues[:1]]
    coaches = {
        "honest_2": template.TemplateCoach(2),
        "honest_1": template.TemplateCoach(1),
        "silent_on_right": template.TemplateCoach(2, form="silent_on_right"),
        "leaking": template.TemplateCoach(2, form="leaking"),
    }
    found = {n: honesty.same(coach, dialogues, others) for n, coach in coaches.items()}
    return {n: rate.value() if rate.whole else None for n, rate in found.items()}
