"""What is planned: a configuration of kind "large", as the parts' own dataclasses."""

from __future__ import annotations

import dataclasses
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax.config import ConfigDict
from mimesis_jax.forest import shape
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import request
from mimesis_jax.sharding import mesh
from mimesis_jax.trainers import agent, optimizer, simulator, supervised

STAGES = {
    "simulator_midtrain": supervised.Config,
    "simulator_thoughts": supervised.Config,
    "simulator_grpo": simulator.Config,
    "agent_csd": agent.Config,
}
TRAINED = {"simulator_grpo": "user", "agent_csd": "agent"}  # stage that plays -> whose model


@dataclasses.dataclass(frozen=True)
class Model:
    """name: of its preset. spec: with the dtypes that it is stored and computed in. remat."""

    name: str
    spec: specs.Spec
    remat: decoder.Remat


@dataclasses.dataclass(frozen=True)
class Settings:
    """One large run.

    stage: a key of STAGES. model: the trained one. opposite: the frozen one that it plays with,
    None where nothing is played. shape: of a micro-batch of all devices. micro_batches: of an
    update. engine: of both chairs; None where nothing is played. loss: alpha, of CSD.
    """

    stage: str
    model: Model
    opposite: Model | None
    shape: shape.Shape
    mesh: mesh.Config
    micro_batches: int
    optimizer: optimizer.Config
    engine: request.Config | None
    alpha: float = 0.0

    @property
    def plays(self) -> bool:
        return self.engine is not None

    def chairs(self) -> dict[str, Model]:
        """The model that decodes in each chair; none where nothing is played."""
        if self.opposite is None or not self.plays:
            return {}
        trained = TRAINED[self.stage]
        other = "user" if trained == "agent" else "agent"
        return {trained: self.model, other: self.opposite}


def of(config: ConfigDict) -> Settings:
    """The settings of a configuration.

    Raises ConfigError for another kind, an unknown stage or preset, and for a section that does not
    fit its part.
    """
    if config.get("kind") != "large":
        raise configs.ConfigError(
            f"config.kind={config.get('kind')!r} is nothing to plan: use a configuration of kind "
            "'large', such as agent_csd_9b"
        )
    if config.stage not in STAGES:
        near = configs.nearest(config.stage, STAGES)
        raise configs.ConfigError(f"config.stage={config.stage!r}: did you mean {near}?")
    own: Any = configs.freeze(STAGES[config.stage], config[config.stage], config.stage)
    plays = "engine" in config
    return Settings(
        stage=config.stage,
        model=_model(config, "model"),
        opposite=_model(config, "opposite") if "opposite" in config else None,
        shape=configs.freeze(shape.Shape, config.shape, "shape"),
        mesh=configs.freeze(mesh.Config, config.mesh, "mesh"),
        micro_batches=_positive(config, "micro_batches"),
        optimizer=own.optimizer,
        engine=configs.freeze(request.Config, config.engine, "engine") if plays else None,
        alpha=getattr(getattr(own, "loss", None), "alpha", 0.0),
    )


def _positive(config: ConfigDict, name: str) -> int:
    if config[name] < 1:
        raise configs.ConfigError(f"config.{name}={config[name]}: 1 is the least")
    return config[name]


def _model(config: ConfigDict, name: str) -> Model:
    section = config[name]
    preset = getattr(specs, section.preset, None)
    if preset is None or not callable(preset):
        known = sorted(made.__name__ for made in specs.PRESETS.values())
        near = configs.nearest(section.preset, known)
        raise configs.ConfigError(f"config.{name}.preset={section.preset!r}: did you mean {near}?")
    if section.remat not in ("none", *decoder.POLICIES):
        raise configs.ConfigError(f"config.{name}.remat={section.remat!r}: use none, full or dots")
    spec = dataclasses.replace(preset(), dtype=section.dtype, param_dtype=section.param_dtype)
    return Model(section.preset, dataclasses.replace(spec, chunk=config.shape.chunk), section.remat)
