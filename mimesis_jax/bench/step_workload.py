"""What the step bench measures on: a model by name, its sizes, and recorded cases of the desk."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax

from mimesis_jax import config as configs
from mimesis_jax import types
from mimesis_jax.bench import hybrid, measure, step_recorded, workloads
from mimesis_jax.coach import template
from mimesis_jax.envs import desk
from mimesis_jax.forest import pack
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import engine, seat
from mimesis_jax.sharding import layout, mesh
from mimesis_jax.trainers import agent, optimizer
from mimesis_jax.users import population

ALPHA = 0.05  # weight of CSD where a configuration says none
RATE = optimizer.Config(lr=1e-6, warmup=1, decay="constant", weight_decay=0.0)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What a step is measured at.

    model: (vocab, ids that exist) -> Spec. engine: of both chairs. train: goals, copies, updates
    and all that the trainer's step has. remat: what the update's backward pass makes again.
    """

    model: Callable[[int, int], specs.Spec]
    shape: pack.Shape
    engine: engine.Config
    agent_seat: seat.Config
    user_seat: seat.Config
    train: agent.Config
    vocab: int = 1024
    remat: decoder.Remat = "none"


def _desk(model: Callable[[int, int], specs.Spec], chunk: int = 8) -> Settings:
    """The sizes of the small world: those of the demo, but one update a batch."""
    return Settings(
        model,
        shape=pack.Shape(rows=8, length=256, chunk=chunk, learned=160, slots=2),
        engine=engine.Config(slots=64, length=224, block=8, buckets=(16, 48)),
        agent_seat=seat.Config(thinking="none"),
        user_seat=seat.Config(thinking="sample"),
        train=agent.Config(goals=16, copies=8, optimizer=RATE),
    )


def _large(model: Callable[[], specs.Spec]) -> Settings:
    """A published shape on the same cases: long rows that hold many of them, few programs."""
    spec = dataclasses.replace(model(), chunk=16)
    return Settings(
        lambda vocab, real: spec,
        shape=pack.Shape(rows=16, length=1024, chunk=16, learned=640, slots=2),
        engine=engine.Config(slots=64, length=256, block=16, buckets=(16, 64), rows=()),
        agent_seat=seat.Config(thinking="none"),
        user_seat=seat.Config(thinking="sample"),
        train=agent.Config(goals=8, copies=8, optimizer=RATE),
        remat="full",
    )


def _hybrid(vocab: int, real: int) -> specs.Spec:
    return dataclasses.replace(hybrid.model(vocab, 16), vocab_real=real)


def models() -> dict[str, Callable[[], Settings]]:
    """Settings by the name of the model; sizes alone stand for Qwen3.5's."""
    found: dict[str, Callable[[], Settings]] = {
        "tiny": lambda: _desk(specs.tiny),
        "small-hybrid": lambda: _desk(_hybrid, 16),
    }
    for name, make in specs.PRESETS.items():
        found[name] = lambda make=make: _large(make)  # type: ignore[misc]
        if name.startswith("qwen3.5-"):
            found[name.removeprefix("qwen3.5-")] = found[name]
    return found


def named(model: str) -> Settings:
    """Raises BenchError, with the nearest name, for a model that is none."""
    known = models()
    if model not in known:
        close = configs.nearest(model, sorted(known))
        raise measure.BenchError(
            f"--model {model}: did you mean {close}? There are {', '.join(known)}"
        )
    return known[model]()


# --- a configuration in place of the sizes --------------------------------------------------------


def configured(name: str) -> Settings:
    """The sizes of a configuration file: model, vocab, shape, engine, seats, and the agent's stage.

    What a stage's file leaves to the run that it starts from is taken from configs/demo.py. A
    published preset keeps its own vocabulary. Raises ConfigError for a file or a key that does not
    fit, BenchError for a configuration without a stage of the agent.
    """
    config = configs.read(name)
    demo = None if "model" in config and "engine" in config else configs.read("demo")

    def part(cls: type, key: str) -> Any:
        held = config if key in config or demo is None else demo
        return configs.freeze(cls, held[key], f"config.{key}")

    stages = [key for key in ("agent_csd", "agent_grpo") if key in config]
    if not stages:
        raise measure.BenchError(
            f"--config {name} trains no agent: use one with agent_csd or agent_grpo, such as demo"
        )
    sizes = dict((config if "model" in config else demo or config)["model"])
    preset = sizes.get("preset")
    shape = part(pack.Shape, "shape")
    if preset:
        made = _published(preset, sizes, shape.chunk)
        model: Callable[[int, int], specs.Spec] = lambda vocab, real: made
    else:
        model = lambda vocab, real: specs.tiny(vocab, real, **sizes)
    train = part(agent.Config, stages[0])
    return Settings(
        model, shape, part(engine.Config, "engine"), part(seat.Config, "agent_seat"),
        part(seat.Config, "user_seat"), train, remat=sizes.get("remat", "none"),
        vocab=int((config if "vocab" in config else demo or {"vocab": 1024})["vocab"]),
    )  # fmt: skip


def _published(preset: str, sizes: dict[str, Any], chunk: int) -> specs.Spec:
    """The spec of a preset of models.spec, with the configured types and the rows' chunk."""
    kinds = {name: sizes[name] for name in ("dtype", "param_dtype") if name in sizes}
    return dataclasses.replace(getattr(specs, preset)(), chunk=chunk, **kinds)


# --- the recorded world ---------------------------------------------------------------------------


@dataclasses.dataclass
class World:
    """Everything a step of any kind is made of; `engines` are the chairs' own.

    state: parameters and moments, laid out as `compute` says. parts: of `agent.step` with the
    coach; drop it for plain GRPO. train: the step's configuration, alpha as CSD has it.
    """

    settings: Settings
    spec: specs.Spec
    played: workloads.Played
    state: optimizer.State
    parts: agent.Parts
    train: agent.Config
    engines: dict[types.Chair, step_recorded.Recorded]
    compute: decoder.Compute


def computing(settings: Settings, devices: int, preset: str) -> decoder.Compute:
    """How the update is computed: alone, or over the first `devices` of this machine.

    Raises BenchError for more devices than there are, ValueError as mesh.make does.
    """
    there = jax.devices()
    if devices > len(there):
        raise measure.BenchError(
            f"--devices {devices}: there are {len(there)} here (on a CPU, XLA_FLAGS="
            f"--xla_force_host_platform_device_count={devices} makes more)"
        )
    if devices == 1:
        return decoder.Compute(remat=settings.remat)
    halves = 2 if devices % 2 == 0 else 1  # of the axis that a preset is about; fsdp has the rest
    sizes = mesh.Config(
        preset, data=halves if preset == "multislice" else 1,
        tensor=halves if preset == "fsdp_tp" else 1,
    )  # fmt: skip
    made = mesh.make(sizes, there[:devices])
    return decoder.Compute(settings.remat, layout.Layout(made, preset))


def world(settings: Settings, compute: decoder.Compute) -> World:
    """Records the episodes, makes the model and seats two of it: the agent, and the user."""
    train = settings.train
    held = workloads.played(train.goals, train.copies, vocab=settings.vocab)
    tok = held.renderer.tokenizer
    spec = settings.model(tok.vocab, tok.vocab_real)
    params = _parameters(spec, compute)
    engines: dict[types.Chair, step_recorded.Recorded] = {}
    seats: dict[types.Chair, seat.ModelSeat] = {}
    chairs: list[tuple[types.Chair, seat.Config]]
    chairs = [("agent", settings.agent_seat), ("user", settings.user_seat)]
    for number, (chair, config) in enumerate(chairs):
        ids = step_recorded.said(held.episodes, held.renderer, chair, config.thinking)
        engines[chair] = step_recorded.Recorded(
            spec, None, settings.engine, seed=number, said=ids, layout=compute.layout
        )
        seats[chair] = seat.ModelSeat(engines[chair], held.renderer, chair, config)
    engines["user"].load(params, 0)
    cases = population.SIMULATOR.goals(range(train.goals))
    loss = dataclasses.replace(train.loss, alpha=train.loss.alpha or ALPHA)
    parts = agent.Parts(
        spec, seats["agent"], seats["user"], desk.DeskGym, lambda step, count: cases[:count],
        held.renderer, settings.shape, template.TemplateCoach(), compute,
    )  # fmt: skip
    state = optimizer.init(params, train.optimizer, spec, compute)
    train = dataclasses.replace(train, loss=loss)
    return World(settings, spec, held, state, parts, train, engines, compute)


def _parameters(spec: specs.Spec, compute: decoder.Compute) -> Any:
    """Random weights, each made where it lies: no device ever holds all of a split model."""
    lies = None
    if compute.layout is not None:
        lies = compute.layout.params(decoder.axes(spec), decoder.abstract(spec))
    make = jax.jit(decoder.init, static_argnums=0, out_shardings=lies)
    return make(spec, jax.random.key(0))
