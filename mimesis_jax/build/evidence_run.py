"""One seed of the evidence: its models, and how an arm is trained and judged there."""

from __future__ import annotations

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np

from mimesis_jax import types
from mimesis_jax.build import (
    begun,
    evidence_arms,
    evidence_coach,
    measures,
    parts,
    sources,
    stages,
    world,
)
from mimesis_jax.build.evidence_arms import PEOPLE, STAGE, Arm, Training, User
from mimesis_jax.data import pipeline
from mimesis_jax.desk import agent as scripted
from mimesis_jax.envs import desk
from mimesis_jax.evaluation import cross, gates
from mimesis_jax.runs import compiles, disk, folder
from mimesis_jax.trainers import agent
from mimesis_jax.users import population

SEED_GOALS, SEEDS = 20_000, 14  # training goals of a seed, and seeds that there is room for
OWN, STREAM_OWN = 40_000, 9007  # evaluation goals with an arm's own user
GATES_EVERY = 5  # steps


@dataclasses.dataclass(eq=False)
class Room:
    """One seed: its models, its seats, and where its arms are kept."""

    seed: int
    path: Path
    start: begun.Begun
    compiled: compiles.Compiles
    evaluation: parts.Evaluation
    simulator: parts.Simulator

    def __post_init__(self):
        if not 0 <= self.seed < SEEDS:
            raise disk.RunError(f"seed {self.seed}: there are training goals for 0 to {SEEDS - 1}")
        self.settings = dataclasses.replace(
            self.start.settings,
            seed=self.seed,
            evaluation=self.evaluation,
            simulator=self.simulator,
        )
        self.cast = parts.Cast(self.settings, self.start.world(self.settings))

    @functools.cache  # noqa: B019 - a room lives as long as its seed
    def params(self, name: str) -> Any:
        """Frozen parameters of a stage of the preparation."""
        return self.start.frozen(name).params

    def people(self, user: User) -> population.Population:
        return population.SIMULATOR if user == "simulator" else PEOPLE[user]

    def user(self, user: User) -> types.Respond:
        """Who trains: the frozen simulator in its seat, or people by rule."""
        if user == "simulator":
            return self.cast.user(self.params("user_behaviours"))
        return PEOPLE[user].user(seed=5 + 100 * self.seed)

    def agent(self, params: Any) -> types.Respond:
        """A trained agent as it is judged."""
        return measures.judged(self.cast, params)

    def opponents(self, goals: int) -> dict[str, cross.Opponent]:
        """The nine evaluation users."""
        models = {
            name: self.cast.seat(name, "user", self.params(name)) for name in population.MODEL_USERS
        }
        return measures.opponents(models, goals)


def train(room: Room, training: Training, arm: Arm) -> None:
    """Trains an arm and judges it in its own run folder, or goes on with it, or does nothing.

    The phases of the run are STAGE and one evaluation for each number of goals, temperature; their
    payloads hold what was measured. Raises RunError when the folder began with another start.
    """
    plain, name = arm.plain(), training.name(arm)
    told = {
        "kind": "arm", "seed": room.seed, "arm": plain.told(),
        "training": training.told(plain),
    }  # fmt: skip
    judged = evaluation_name(room.evaluation)
    with folder.Run(room.path / "arms" / name, told, seed=room.seed) as run:
        run.hash("agent_start", room.start.frozen("agent_start").hash)
        if run.done(judged) is not None:
            return
        held = stages.Stages(
            run, room.cast.spec, room.settings.shape, room.seed, room.compiled,
            room.cast.devices,
        )  # fmt: skip
        who = _learned(room, training, plain, run, held)
        run.begin(judged)
        with run.timed("evaluate", phase=judged):
            found = judge(room, who, plain, run)
        run.finish(judged, found)


def evaluation_name(chosen: parts.Evaluation) -> str:
    return f"evaluation_{chosen.goals}_{chosen.temperature:g}"


def _learned(room: Room, training: Training, arm: Arm, run: folder.Run, held: stages.Stages):
    """The agent of an arm, trained where it is to be."""
    if arm.learns == "scripted":
        honest = arm.coach in ("honest", "silent_on_right") and arm.skill == 2
        if honest:
            return scripted.ScriptedAgent(1.0)
        return evidence_coach.Follower(arm.coach, arm.skill)
    start = room.params("agent_start")
    if arm.learns == "nothing":
        return room.agent(start)
    if arm.learns == "perfect":
        return room.agent(_perfect(room, training, arm, held))
    chosen, users = training.of(arm), room.people(arm.user)
    base = room.cast.serving(start, room.user(arm.user), users)
    coach = evidence_coach.make(arm.coach, arm.skill) if arm.alpha > 0 else None
    budget = evidence_arms.Budget(
        run, users, world.AGENT_GOALS + SEED_GOALS * room.seed, training.tokens
    )
    watch = _Watch(room, training, arm, run, coach)
    trained = held.agent(
        STAGE, start, dataclasses.replace(base, coach=coach, goals=budget), chosen,
        user=arm.user, decode=room.cast.world.renderer.tokenizer.pieces, kept=watch.kept,
        saved=watch.saved,
    )  # fmt: skip
    return room.agent(trained)


def _perfect(room: Room, training: Training, arm: Arm, held: stages.Stages) -> Any:
    """Supervised on perfect dialogues: as many learnable tokens as a GRPO arm is given."""
    rows = sources.Sources(room.cast.world).perfect()
    chosen = room.settings.supervised["sft_perfect"]
    if training.tokens:
        batches = pipeline.Batches(rows, room.settings.shape, seed=room.seed)
        each = np.mean([np.count_nonzero(next(batches).weight) for _ in range(4)])
        whole = training.tokens * training.of(arm).steps
        chosen = dataclasses.replace(chosen, steps=max(1, round(whole / each)))
    return held.supervised(STAGE, room.params("agent_start"), rows, chosen)


@dataclasses.dataclass(frozen=True)
class _Watch:
    """What an arm's training is watched for: its learning curve and what the gate tells apart."""

    room: Room
    training: Training
    arm: Arm
    run: folder.Run
    coach: Any

    def saved(self, done: int, params: Any) -> None:
        """Success with the evaluation users on a few goals; nothing is chosen by it."""
        one = self.training.of(self.arm)
        planned = done % one.save_every == 0 or done == one.steps  # else saved as it must end
        if not self.training.curve_goals or not planned:
            return
        rooms = self.room.opponents(self.training.curve_goals)
        result = cross.against(
            self.room.agent(params), rooms, desk.DeskGym, stream=measures.STREAM_EVALUATION
        )
        success = dict(result.measure())["mean"]
        self.run.metrics("curve", done, {"success": success})

    def kept(self, step: int, episodes: list[types.Episode], trees: list[types.Tree]) -> None:
        if self.coach is None or step % GATES_EVERY:
            return
        # A placebo is held to the note that it stands for, by which its gate should tell nothing.
        true = evidence_coach.make("honest", self.arm.skill)
        coach = true if self.arm.coach == "placebo" else self.coach
        notes = [coach.notes(e.dialogue) for e in episodes]
        kinds = [followed(e, said, self.arm.skill) for e, said in zip(episodes, notes, strict=True)]
        auc = gates.separation(gates.by_turn(trees), kinds)
        share = [kind for one in kinds for kind in one.values()]
        self.run.metrics(
            "gates", step, {"auc": auc, "followed": float(np.mean(share)) if share else None}
        )


def followed(episode: types.Episode, said: Any, skill: Any) -> dict[int, bool]:
    """{noted turn: whether its reply does what its note says}."""
    return {
        turn: evidence_coach.follows(episode.dialogue[turn].public, text, skill)
        for turn, text in said.items()
        if text is not None
    }


def judge(room: Room, who: types.Respond, arm: Arm, run: folder.Run) -> dict[str, Any]:
    """What an agent does with the nine users, and with the user that trained it."""
    goals = room.evaluation.goals
    result = cross.against(
        who, room.opponents(goals), desk.DeskGym, stream=measures.STREAM_EVALUATION
    )
    played = [e for episodes in result.episodes.values() for e in episodes]
    for user, episodes in result.episodes.items():
        run.episode("evaluation", 0, episodes[0], user=user, agent=arm.learns)
    own: list[float] | None = None
    if arm.learns == "grpo":
        first = world.EVALUATION + OWN
        cases = room.people(arm.user).goals(range(first, first + goals))
        alone = {"own": cross.Opponent(room.user(arm.user), cases)}
        own = cross.against(who, alone, desk.DeskGym, stream=STREAM_OWN).success[0].tolist()
    seen = agent.outcomes(played)
    return {
        "users": list(result.users),
        "success": result.success.tolist(),
        "own": own,
        "turns": seen["turns"],
        "acts": {k.removeprefix("act_share_"): v for k, v in seen.items() if "act_share_" in k},
    }
