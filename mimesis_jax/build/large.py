"""One stage of published size: `mimesis train` of kind "large", on the mesh of its configuration.

    simulator_midtrain -> simulator_thoughts -> simulator_grpo -> agent_csd

The first begins with its checkpoint, each later one with the run folder of the stage before it
(`start`); the agent begins with its own checkpoint and meets the frozen simulator of `start`. The
simulator practises and the agent works in the small world's gyms, in the words of its models' own
tokenizers and chat families.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from mimesis_jax import config as configs
from mimesis_jax import pretrained
from mimesis_jax.build import devices, large_data, measures, stages, world
from mimesis_jax.chat import render
from mimesis_jax.coach import template
from mimesis_jax.config import ConfigDict
from mimesis_jax.data import pipeline
from mimesis_jax.envs import desk, practice
from mimesis_jax.forest import pack
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import speaker
from mimesis_jax.rollouts import engine, seat
from mimesis_jax.runs import checkpoint, compiles, disk, folder, processes_folder, versions
from mimesis_jax.sharding import mesh
from mimesis_jax.trainers import agent, simulator, supervised
from mimesis_jax.users import population

BEFORE = {  # stage -> the stage whose result its `start` holds ("" for a checkpoint of the hub's)
    "simulator_midtrain": "",
    "simulator_thoughts": "simulator_midtrain",
    "simulator_grpo": "simulator_thoughts",
    "agent_csd": "simulator_grpo",
}
LEARNED = {"simulator_midtrain": "user_midtrain", "simulator_thoughts": "user_thoughts"}


@dataclasses.dataclass(frozen=True)
class Model:
    """preset: a function of models.spec that the checkpoint must agree with ("": any).

    checkpoint: folder of the hub's layout, a .gguf file or one of ours. dtype: of the activations.
    param_dtype: of the weights. remat: what the backward pass makes again.
    """

    checkpoint: str
    preset: str = ""
    dtype: str = "bfloat16"
    param_dtype: str = "float32"
    remat: decoder.Remat = "full"


@dataclasses.dataclass(frozen=True)
class Voice:
    """A model as a part of a run: what it is, where it lies, and how it speaks."""

    model: Model
    spec: specs.Spec
    renderer: render.Renderer
    devices: devices.Devices

    def published(self) -> decoder.Params:
        """The published weights, tensor by tensor to where they belong."""
        layout = self.devices.compute.layout
        lies = layout and layout.params(decoder.axes(self.spec), decoder.abstract(self.spec))
        return pretrained.load(
            speaker.path_of(self.model.checkpoint), dtype=self.model.param_dtype,
            compute=self.model.dtype, shardings=lies,
        )[1]  # fmt: skip

    def begun(self, start: Path, stage: str) -> checkpoint.Frozen:
        """The result of an earlier run. Raises RunError where it is not finished or was changed."""
        where, digest = start / "models" / stage, _finished(start, stage)
        kept = (disk.read(where / "frozen.json") or {})["meta"]["spec"]["param_dtype"]
        stored = dataclasses.replace(self.spec, param_dtype=kept)
        frozen = checkpoint.load_frozen(where, self.devices.template(stored), digest)
        # A simulator is trained in fp32 and decodes in what the configuration says.
        wanted = decoder.abstract(self.spec)
        cast = jax.tree.map(lambda x, like: x.astype(like.dtype), frozen.params, wanted)
        return dataclasses.replace(frozen, params=cast)


def _finished(start: Path, stage: str) -> str:
    """The recorded hash of an earlier run's result. Raises RunError where there is none."""
    done = ((disk.read(start / "phases.json") or {}).get(stage) or {}).get("done")
    if done is None:
        raise disk.RunError(
            f"{start} has not finished {stage}: run its command (configs/{stage}_*.py) to its end, "
            "or give another config.start"
        )
    return done["hash"]


@dataclasses.dataclass(frozen=True)
class Settings:
    """A configuration of kind "large", frozen; what the stage has not is None."""

    stage: str
    seed: int
    start: str
    model: Model
    opposite: Model | None
    shape: pack.Shape
    mesh: mesh.Config
    micro_batches: int
    own: Any  # the stage's section: supervised.Config, simulator.Config or agent.Config
    data: large_data.Data | None
    engine: Any  # engine.Config of both chairs, None where nothing is played
    seats: dict[str, seat.Config]
    turns: int


SECTIONS: dict[str, Any] = {
    "simulator_midtrain": supervised.Config,
    "simulator_thoughts": supervised.Config,
    "simulator_grpo": simulator.Config,
    "agent_csd": agent.Config,
}


def settings(config: ConfigDict) -> Settings:
    """Freezes a configuration. Raises ConfigError naming the key that does not fit."""
    stage = config.get("stage", "")
    if stage not in SECTIONS:
        near = configs.nearest(stage, SECTIONS)
        raise configs.ConfigError(f"config.stage={stage!r} is no stage; did you mean {near}?")
    known = {"kind", "stage", "seed", "start", "model", "shape", "mesh", "micro_batches", stage}
    known |= {"checkpoints"}
    known |= {"data"} if stage in LEARNED else {"opposite", "engine", "turns"}
    seats = () if stage in LEARNED else ("user_seat", "agent_seat")
    for name in config:
        if name not in known | set(seats):
            close = configs.nearest(name, sorted(known | set(seats)))
            raise configs.ConfigError(f"unknown key config.{name}; did you mean config.{close}?")
    part: Any = lambda cls, name: (
        configs.freeze(cls, config[name], f"config.{name}") if name in config else None
    )
    if config.micro_batches < 1:
        raise configs.ConfigError(f"config.micro_batches={config.micro_batches}: 1 is the least")
    if BEFORE[stage] and not config.start:
        raise configs.ConfigError(
            f"config.start is missing: name the run folder of {BEFORE[stage]} to begin from"
        )
    return Settings(
        stage=stage, seed=config.seed, start=config.start, model=part(Model, "model"),
        opposite=part(Model, "opposite"), shape=part(pack.Shape, "shape"),
        mesh=part(mesh.Config, "mesh"), micro_batches=config.micro_batches,
        own=part(SECTIONS[stage], stage), data=part(large_data.Data, "data"),
        engine=part(engine.Config, "engine"),
        seats={name.removesuffix("_seat"): part(seat.Config, name) for name in seats},
        turns=config.get("turns", 0),
    )  # fmt: skip


def voice(model: Model, chosen: Settings) -> Voice:
    """Reads what a model is; no weights. Raises ConfigError where it is not what the configuration
    says or cannot be split, and ValueError that names the file at fault."""
    renderer, spec = speaker.renderer_of(model.checkpoint)
    spec = dataclasses.replace(
        spec, dtype=model.dtype, param_dtype=model.param_dtype, chunk=chosen.shape.chunk
    )
    if model.preset:
        wanted = getattr(specs, model.preset, None)
        if wanted is None:
            known = sorted(made.__name__ for made in specs.PRESETS.values())
            close = configs.nearest(model.preset, known)
            raise configs.ConfigError(f"preset {model.preset!r} is none; did you mean {close}?")
        differs = _differences(wanted(), spec)
        if differs:
            raise configs.ConfigError(
                f"{model.checkpoint} is no {model.preset}: {'; '.join(differs)}; give the "
                "checkpoint of that model, or another preset"
            )
    return Voice(
        model, spec, renderer,
        devices.of(chosen.mesh, spec, chosen.shape, remat=model.remat),
    )  # fmt: skip


def _differences(wanted: specs.Spec, spec: specs.Spec) -> list[str]:
    free = {"dtype", "param_dtype", "chunk", "vocab_real", "init_std"}
    return [
        f"{f.name} is {getattr(spec, f.name)} there and {getattr(wanted, f.name)} in the preset"
        for f in dataclasses.fields(specs.Spec)
        if f.name not in free and getattr(spec, f.name) != getattr(wanted, f.name)
    ]


@dataclasses.dataclass
class _Room:
    """What a stage is given to work with."""

    chosen: Settings
    run: folder.Run
    compiled: compiles.Compiles
    own: Voice

    def stages(self) -> stages.Stages:
        return stages.Stages(
            self.run, self.own.spec, self.chosen.shape, self.chosen.seed, self.compiled,
            self.own.devices,
        )  # fmt: skip

    def seat(self, who: Voice, chair: Any, params: Any, frozen: str | None = None):
        """A model in a chair, on an engine of its own over this process's devices."""
        held = engine.Engine(
            who.spec, params, self.chosen.engine, seed=self.chosen.seed, frozen=frozen,
            layout=who.devices.decode,
        )  # fmt: skip
        return seat.ModelSeat(held, who.renderer, chair, self.chosen.seats[chair])


def train(config: ConfigDict, out: Path) -> dict[str, Any]:
    """Runs the stage in the run folder `out`, or goes on with it; the summary.

    Writes, beside what every run folder has: models/STAGE (the frozen result) and summary.json.
    Raises ConfigError, RunError and, for a checkpoint that cannot be read, ValueError, before
    anything is written.
    """
    chosen = settings(config)
    own = voice(chosen.model, chosen)
    other = None if chosen.opposite is None else voice(chosen.opposite, chosen)
    if chosen.start:
        _finished(Path(chosen.start), BEFORE[chosen.stage])
    body = STAGES[chosen.stage](chosen, own, other)
    with (
        processes_folder.opened(out, config, seed=chosen.seed) as run,
        compiles.Compiles() as compiled,
    ):
        compiles.keep_programs(Path(out).parent / ".compiled")
        room = _Room(chosen, run, compiled, own)
        found = body(room)
        summary = {
            "seconds": run.seconds(chosen.stage),
            "setup_seconds": versions.setup_seconds(),
            "stage": chosen.stage,
            "start": chosen.start or chosen.model.checkpoint,
            "parameters": decoder.parameter_count(own.spec),
            "mesh": {} if (lies := own.devices.compute.layout) is None else dict(lies.mesh.shape),
            "hash": (run.done(chosen.stage) or {})["hash"],
            **found,
        }
        run.write("summary.json", summary)
    return summary


# --- the stages: each reads what it needs, then gives what is to be done in the run ---------------


def _learned(chosen: Settings, own: Voice, other: Voice | None) -> Callable[[_Room], dict]:
    """Supervised training on people's conversations: midtraining, or thoughts."""
    kind = LEARNED[chosen.stage]
    assert chosen.data is not None
    found = large_data.read(chosen.data, own.renderer, chosen.shape, chosen.seed)
    micro = chosen.micro_batches
    steps = large_data.steps(found, kind, chosen.data, chosen.shape, micro)
    config = dataclasses.replace(chosen.own, steps=min(chosen.own.steps, steps))

    def body(room: _Room) -> dict[str, Any]:
        held = room.stages()
        start = _start(chosen, own, room)
        loss = functools.partial(large_data.nll, found, own, chosen.shape)
        before = room.run.measured(f"{kind}_before", lambda: {"nll": loss(start)})
        source = pipeline.Source(kind, found.train[kind], found.tree)
        params = held.supervised(chosen.stage, start, [source], config, micro=micro)
        after = room.run.measured(f"{kind}_after", lambda: {"nll": loss(params)})
        return {
            "steps": config.steps, "turns": found.turns,
            "nll_held_out_before": before["nll"], "nll_held_out": after["nll"],
            "compiles_after_warmup": held.late[chosen.stage],
        }  # fmt: skip

    return body


def _start(chosen: Settings, own: Voice, room: _Room) -> Any:
    """What the trained model begins with; an earlier run's result is held to its hash."""
    before = BEFORE[chosen.stage]
    if not chosen.start or before == "simulator_grpo":
        return own.published()
    frozen = own.begun(Path(chosen.start), before)
    room.run.hash("start", frozen.hash)
    return frozen.params


def _spoken(own: Voice, seed: int) -> world.World:
    """The small world in the words of a model's tokenizer."""
    made = world.World(world.Config(), vocab=own.spec.vocab, seed=seed)
    made.renderer = own.renderer
    return made


def _behaving(chosen: Settings, own: Voice, other: Voice | None) -> Callable[[_Room], dict]:
    """Joint GRPO of the user, opposite the agent's model, judged by rule."""
    assert other is not None

    def body(room: _Room) -> dict[str, Any]:
        held, start = room.stages(), _start(chosen, own, room)
        rules = measures.rule_judge(
            _spoken(own, chosen.seed), own.spec, start, chosen.shape, own.devices.compute
        )
        parts = simulator.Parts(
            spec=own.spec, chair=room.seat(own, "user", start),
            agent=room.seat(other, "agent", other.published()), make=practice.make, judge=rules,
            goals=lambda step, rows: practice.goals(step, rows, seed=chosen.seed),
            shape=chosen.shape, compute=own.devices.compute,
        )  # fmt: skip
        held.simulator(chosen.stage, start, parts, chosen.own)
        return {"compiles_after_warmup": held.late[chosen.stage]}

    return body


def _serving(chosen: Settings, own: Voice, other: Voice | None) -> Callable[[_Room], dict]:
    """GRPO + CSD of the agent against the frozen simulator of `start`."""
    assert other is not None
    people = population.SIMULATOR

    def goals(step: int, count: int):
        first = world.AGENT_GOALS + step * count
        return people.goals(range(first, first + count), denied=world.AGENT_DENIED)

    def body(room: _Room) -> dict[str, Any]:
        held, start = room.stages(), own.published()
        frozen = other.begun(Path(chosen.start), BEFORE[chosen.stage])
        room.run.hash("simulator", frozen.hash)
        parts = agent.Parts(
            spec=own.spec, chair=room.seat(own, "agent", start),
            user=room.seat(
                other, "user", frozen.params, checkpoint.content_hash(frozen.params)
            ),
            make=functools.partial(desk.DeskGym, turns=chosen.turns), goals=goals,
            renderer=own.renderer, shape=chosen.shape, coach=template.TemplateCoach(),
            compute=own.devices.compute,
        )  # fmt: skip
        held.agent(
            chosen.stage, start, parts, chosen.own, user="simulator",
            decode=own.renderer.tokenizer.pieces,
        )  # fmt: skip
        return {
            "compiles_after_warmup": held.late[chosen.stage],
            "simulator": {"hash": frozen.hash},
        }

    return body


STAGES = {
    "simulator_midtrain": _learned,
    "simulator_thoughts": _learned,
    "simulator_grpo": _behaving,
    "agent_csd": _serving,
}
