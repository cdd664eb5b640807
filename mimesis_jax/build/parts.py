"""A configuration frozen into the parts of the small world."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax import types
from mimesis_jax.build import devices, world
from mimesis_jax.chat import tokenizer
from mimesis_jax.coach import template
from mimesis_jax.config import ConfigDict
from mimesis_jax.envs import desk as desk_gym
from mimesis_jax.envs import practice
from mimesis_jax.forest import pack
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import engine, seat
from mimesis_jax.sharding import mesh
from mimesis_jax.trainers import agent, simulator, supervised
from mimesis_jax.users import judge, population

SUPERVISED = (
    "drill", "base", "user_midtrain", "user_thoughts", "model_user", "agent_start", "sft_perfect",
)  # fmt: skip
AGENTS = ("agent_grpo", "agent_csd", "agent_grpo_assistant_user")
OTHERS = {"kind", "quick", "checkpoints"}  # keys that are no part's here: verbs, runs.folder


@dataclasses.dataclass(frozen=True)
class Model:
    """Sizes of the small decoder, see models.spec.tiny."""

    width: int = 128
    mlp: int = 384
    periods: int = 1
    chunk: int = 8


@dataclasses.dataclass(frozen=True)
class Simulator:
    """temperature: of the finished simulator in the user's chair, wherever it serves or is
    measured. It learns at user_seat's. Below 1 it leaves out its rare slips, which make a small
    model harder to serve than people are."""

    temperature: float = 1.0


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """goals: of each user. temperature: of the agents. behaviour_rows: dialogues of each behaviour,
    before and after; three times as many controls."""

    goals: int = 24
    temperature: float = 0.5
    behaviour_rows: int = 12


@dataclasses.dataclass(frozen=True)
class Desk:
    """Everything the demo is configured by; each field belongs to the part of its type."""

    seed: int
    vocab: int
    model: Model
    shape: pack.Shape
    engine: engine.Config
    world: world.Config
    supervised: dict[str, supervised.Config]
    user_behaviours: simulator.Config
    agents: dict[str, agent.Config]
    user_seat: seat.Config
    agent_seat: seat.Config
    evaluation: Evaluation
    mesh: mesh.Config = mesh.Config(fsdp=1)
    simulator: Simulator = Simulator()


def desk(config: ConfigDict) -> Desk:
    """Freezes a demo configuration. Raises ConfigError naming the key that does not fit."""
    part = lambda cls, name: configs.freeze(cls, config[name], f"config.{name}")
    later = lambda cls, name, before: part(cls, name) if name in config else before
    known = {f.name for f in dataclasses.fields(Desk)} - {"supervised", "agents"}
    for name in config:
        if name not in known | set(SUPERVISED) | set(AGENTS) | OTHERS:
            close = configs.nearest(name, sorted(known | set(SUPERVISED) | set(AGENTS)))
            raise configs.ConfigError(f"unknown key config.{name}; did you mean config.{close}?")
    return Desk(
        seed=config.seed,
        vocab=config.vocab,
        model=part(Model, "model"),
        shape=part(pack.Shape, "shape"),
        engine=part(engine.Config, "engine"),
        world=part(world.Config, "world"),
        supervised={name: part(supervised.Config, name) for name in SUPERVISED},
        user_behaviours=part(simulator.Config, "user_behaviours"),
        agents={name: part(agent.Config, name) for name in AGENTS},
        user_seat=part(seat.Config, "user_seat"),
        agent_seat=part(seat.Config, "agent_seat"),
        evaluation=part(Evaluation, "evaluation"),
        # Older runs do not have these.
        mesh=later(mesh.Config, "mesh", mesh.Config(fsdp=1)),
        simulator=later(Simulator, "simulator", Simulator()),
    )


def hurried(config: ConfigDict) -> ConfigDict:
    """The configuration with what its `quick` section changes."""
    fast = config.copy_and_resolve_references()
    fast.unlock()

    def lay(over: ConfigDict, under: ConfigDict) -> None:
        for name, value in over.items():
            if isinstance(value, ConfigDict):
                lay(value, under[name])
            else:
                under[name] = value

    lay(config.quick, fast)
    fast.lock()
    return fast


def spec_of(settings: Desk, tok: tokenizer.Tokenizer) -> specs.Spec:
    """The decoder's spec: the configured sizes over the tokenizer's vocabulary."""
    return specs.tiny(tok.vocab, tok.vocab_real, **dataclasses.asdict(settings.model))


class Cast:
    """The models' side of the small world: spec, fresh parameters, engines and seats."""

    def __init__(self, settings: Desk, made: world.World):
        self.settings, self.world = settings, made
        self.spec = spec_of(settings, made.renderer.tokenizer)
        self.devices = devices.of(settings.mesh, self.spec, settings.shape)

    def fresh(self) -> Any:
        return self.devices.fresh(self.spec, self.settings.seed)

    @functools.cache  # noqa: B019 - one cast a run
    def engine(self, name: str) -> engine.Engine:
        """The engine of one seat; all share their compiled programs."""
        number = sum(map(ord, name))  # another stream for another seat
        return engine.Engine(
            self.spec, None, self.settings.engine, seed=1000 * self.settings.seed + number,
            layout=self.devices.decode,
        )  # fmt: skip

    def seat(self, name: str, chair: types.Chair, params: Any, *, version: int = 0,
             frozen: str | None = None, **changes):  # fmt: skip
        """A seat in a chair, on the engine called `name`, with these parameters.

        frozen: content hash that they must have, as must whatever that engine is given until its
        next seat is made.
        """
        chosen = self.settings.user_seat if chair == "user" else self.settings.agent_seat
        held = self.engine(name)
        held.frozen = frozen
        held.load(params, version)
        return seat.ModelSeat(
            held, self.world.renderer, chair, dataclasses.replace(chosen, **changes)
        )

    def user(self, params: Any, frozen: str | None = None):
        """The seat of a simulator that learns no more, in the user's chair; frozen: see `seat`."""
        heat = self.settings.simulator.temperature
        return self.seat("simulator", "user", params, frozen=frozen, temperature=heat)

    # --- what a trainer's step needs ------------------------------------------------------------

    def behaving(self, params: Any, rules: judge.RuleJudge) -> simulator.Parts:
        """Joint GRPO of the simulator that begins with `params`, judged by rule."""
        seed = self.settings.seed
        return simulator.Parts(
            spec=self.spec,
            chair=self.seat("simulator", "user", params),
            agent=practice.opposite(seed=3),
            make=practice.make,
            judge=rules,
            shape=self.settings.shape,
            goals=lambda step, rows: practice.goals(step, rows, seed=seed),
            compute=self.devices.compute,
        )

    def serving(
        self, start: Any, user: types.Respond, people: population.Population
    ) -> agent.Parts:
        """GRPO (+ CSD) of the agent that begins with `start`, with a user, on people's cases."""

        def goals(step: int, count: int):
            first = world.AGENT_GOALS + step * count
            return people.goals(range(first, first + count), denied=world.AGENT_DENIED)

        return agent.Parts(
            spec=self.spec,
            chair=self.seat("agent", "agent", start),
            user=user,
            make=desk_gym.DeskGym,
            goals=goals,
            renderer=self.world.renderer,
            shape=self.settings.shape,
            coach=template.TemplateCoach(),
            compute=self.devices.compute,
        )
