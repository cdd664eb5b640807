"""What a step of reinforcement runs, compiled and held to memory before the first rollout."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from mimesis_jax import types
from mimesis_jax.forest import pack, tree
from mimesis_jax.models import decoder
from mimesis_jax.rollouts import engine, scoring, seat
from mimesis_jax.runs import compiles
from mimesis_jax.trainers import memory, optimizer, reinforce

SLOTS = f"use fewer --config.engine.slots, a smaller --config.engine.length, or {memory.MESH}"


def engines(*chairs: types.Respond) -> list[engine.Engine]:
    """The engines behind seats of models, one of each that has programs of its own."""
    found: dict[Any, engine.Engine] = {}
    for chair in chairs:
        if isinstance(chair, seat.ModelSeat):
            own = chair.engine
            found.setdefault((own.spec, own.config, own.layout), own)
    return list(found.values())


def warm(
    state: optimizer.State,
    spec: Any,
    played: Sequence[engine.Engine],
    shape: pack.Shape,
    config: optimizer.Config,
    compute: decoder.Compute,
    *,
    scored: pack.Shape | None = None,
) -> None:
    """Compiles every program of a step, several at once.

    played: engines with weights, whose programs also run once; over several devices they do so
    before anything else, as two programs that exchange must not meet. shape: of the update. scored:
    of the scoring forward, None where no step scores. Raises RunError, which names what does not
    fit the devices and what makes it smaller.
    """
    plays = [functools.partial(_play, held) for held in played]
    rest = [functools.partial(reinforce.warm, spec, state, shape, config, compute)]
    if scored is not None:
        rest.append(functools.partial(_score, spec, state.params, scored, compute))
    if compute.layout is None:
        compiles.together(*plays, *rest)
        return
    for call in (*plays, *rest):
        call()


def _play(held: engine.Engine) -> None:
    chosen = held.config
    with memory.told(f"decoding {chosen.slots} slots of {chosen.length} tokens", SLOTS):
        held.warm()


def _score(spec, params, shape: pack.Shape, compute: decoder.Compute) -> None:
    forest = compute.place(pack.pack([tree.smallest()], shape).forests[0])
    lowered = scoring.forward.lower(spec, params, forest, np.float32(1), compute)
    what = f"scoring {shape.rows} rows of {shape.length} tokens"
    memory.compiled(lowered, what, memory.ROWS, memory.room())
