"""When updates go wrong several times in a row: training stops and hands out what they were given.

A single one is left out and counted (optimizer.apply). Several in a row mean that the next will not
be better: the same batch or the same weights are at fault, and the run stops while they can still
be looked at (build.spoilt keeps them, `mimesis replay` computes them again).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from mimesis_jax.runs import batches
from mimesis_jax.trainers import optimizer


class Spoilt(ValueError):
    """Too many updates in a row were left out.

    step: the last one's. state: before it, and after, for it changed no parameter. batch: what it
    was given; its facts hold the step, the learning rate and the optimizer's configuration.
    """

    def __init__(self, step: int, state: optimizer.State, batch: batches.Batch, told: str):
        super().__init__(told)
        self.step, self.state, self.batch = step, state, batch


def hold(
    step: int,
    metrics: Mapping[str, Any],
    config: optimizer.Config,
    state: optimizer.State,
    lr: float,
    batch: Callable[[], batches.Batch],
) -> None:
    """Raises Spoilt when the update of `step` is the config.patience-th in a row to be left out.

    metrics: of that update, on the host: "streak", how many in a row were left out, and
    "grad_norm". state: after it. batch: makes what it was given, with the trainer's own facts.
    """
    streak = int(metrics.get("streak", 0))
    if not config.patience or streak < config.patience:
        return
    made = batch()
    norm = float(metrics["grad_norm"])
    facts = {
        "step": step,
        "streak": streak,
        "grad_norm": str(norm),  # json has no not-a-number
        "lr": lr,
        "optimizer": dataclasses.asdict(config),
    }
    told = (
        f"step {step}: {streak} updates in a row were left out, as their gradient was not finite "
        f"or more than {config.explode:g} times its running median (the last norm: {norm:g})"
    )
    kept = dataclasses.replace(made, facts={**made.facts, **facts})
    raise Spoilt(step, state, kept, told)
