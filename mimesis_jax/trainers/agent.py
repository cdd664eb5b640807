"""Agent training: multi-turn GRPO against a user who is not trained, with or without CSD.

One step: play, coach, score, credit, update. Read `step` beside the paper's algorithm box.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mimesis_jax import config as configs
from mimesis_jax import types
from mimesis_jax.chat import render
from mimesis_jax.coach import notes as coaches
from mimesis_jax.forest import pack
from mimesis_jax.losses import advantage
from mimesis_jax.models import decoder
from mimesis_jax.rollouts import measures, seat, shared
from mimesis_jax.trainers import coaching, credit, guard, optimizer, reinforce, warmup


@dataclasses.dataclass(frozen=True)
class Config:
    """steps of P goals x G copies, each batch used for `updates` updates.

    csd_updates: how many of them take CSD (1: only the first, which is on-policy).
    csd_until: steps after which there is no more CSD (0: it stays).
    beta: steepness of the CSD gate. stream: separates this run's episodes from others'.
    """

    steps: int = 40
    goals: int = 8
    copies: int = 8
    updates: int = 1
    csd_updates: int = 1
    csd_until: int = 0
    beta: float = 5.0
    save_every: int = 10
    stream: int = 1000
    loss: reinforce.Loss = reinforce.Loss()
    credit: credit.Config = credit.Config()
    optimizer: optimizer.Config = optimizer.Config(lr=3e-4, warmup=2, decay="constant")

    def alpha(self, step: int) -> float:
        """CSD's weight in a step."""
        return 0.0 if 0 < self.csd_until <= step else self.loss.alpha

    def __post_init__(self):
        configs.at_least(self, 1, "steps", "goals", "updates", "save_every")
        configs.at_least(self, 0, "csd_updates", "csd_until")
        if self.copies < 2:
            raise ValueError(f"copies {self.copies}: group-relative advantages need at least 2")
        if self.csd_updates > self.updates:
            raise ValueError(f"csd_updates {self.csd_updates} exceeds updates {self.updates}")


@dataclasses.dataclass
class Parts:
    """What a step needs besides parameters. coach None: plain GRPO. compute: over which devices
    scoring and update are spread, see models.decoder."""

    spec: Any
    chair: seat.ModelSeat
    user: types.Respond
    make: Callable[[Any], types.Gym]
    goals: Callable[[int, int], Sequence[Any]]  # (step, how many) -> goals
    renderer: render.Renderer
    shape: pack.Shape
    coach: coaches.Coach | None = None
    compute: decoder.Compute = decoder.ALONE


def step(state: optimizer.State, i: int, parts: Parts, config: Config):
    """One GRPO (+ CSD) step. Returns (state, metrics, episodes, trees with gates)."""
    clock = time.perf_counter
    t0 = clock()
    parts.chair.engine.load(state.params, version=i)
    goals = parts.goals(i, config.goals)
    watch = measures.Watch(parts.chair, parts.user)
    episodes = shared.play_all(
        parts.make, goals, copies=config.copies, stream=config.stream + i,
        agent=parts.chair, user=parts.user, at_once=parts.chair.engine.config.slots,
        meter=watch.meter,
    )  # fmt: skip
    played = watch.read()
    t1 = clock()

    trees = [e.trees["agent"] for e in episodes]
    names = [f"goal {e.key.goal} copy {e.key.copy}" for e in episodes]
    # Before credit takes flat groups out: what there was to learn from, whatever is made of it.
    learnable = sum(
        int(np.count_nonzero(segment.weight))
        for e, tree in zip(episodes, trees, strict=True)
        if advantage.usable(e.rewards)
        for segment in tree
    )
    csd: dict[str, float] = {}
    if parts.coach is not None and config.alpha(i) > 0:
        # Before credit, which takes the weight of groups without variance: they still take CSD.
        # An episode whose reward is missing is masked whole, so it has no notes either.
        notes = [
            parts.coach.notes(e.dialogue) if advantage.usable(e.rewards) else {} for e in episodes
        ]
        trees, csd = coaching.coached(
            parts.spec, state.params, trees, notes, renderer=parts.renderer, shape=parts.shape,
            beta=config.beta, temperature=config.loss.temperature, names=names,
            compute=parts.compute,
        )  # fmt: skip
    trees, _, metrics = credit.assign(
        trees, [e.rewards for e in episodes], [e.key.goal for e in episodes], config.credit
    )
    metrics |= csd
    t2 = clock()

    lr = optimizer.rate(config.optimizer, i, config.steps)
    for k in range(config.updates):
        alpha = config.alpha(i) if k < config.csd_updates else 0.0
        loss = dataclasses.replace(config.loss, alpha=alpha)
        state, out = reinforce.update(
            parts.spec, state, trees, parts.shape, loss, lr, config.optimizer, names,
            parts.compute,
        )  # fmt: skip
        kept = functools.partial(reinforce.batch, trees, names, parts.shape, loss)
        guard.hold(i, out, config.optimizer, state, lr, kept)
        if k == 0:
            metrics |= out
        if k == 0 and not csd:
            metrics |= measures.sampler_gap(out)
    t3 = clock()
    metrics |= outcomes(episodes) | played | {
        "goals": len(goals), "learnable_tokens": learnable,
        "rollout_seconds": t1 - t0, "score_seconds": t2 - t1, "update_seconds": t3 - t2, "lr": lr,
    }  # fmt: skip
    return state, metrics, episodes, trees


def train(
    state: optimizer.State,
    parts: Parts,
    config: Config,
    *,
    first: int = 0,
    report: Callable[[int, dict], None] = lambda i, metrics: None,
    save: Callable[[int, optimizer.State], None] = lambda i, state: None,
    keep: Callable[[int, Sequence[types.Episode], Sequence[types.Tree]], None] = lambda i, e, t: (
        None
    ),
    halt: Callable[[], bool] = lambda: False,
) -> optimizer.State:
    """Runs steps first..config.steps - 1; keep(step, episodes, trees) sees every batch.

    halt() is asked after each step: whether to save it, as the process must end. Raises
    guard.Spoilt where updates keep going wrong.
    """
    parts.chair.engine.load(state.params, version=first)
    warm(state, parts, config)
    for i in range(first, config.steps):
        state, metrics, episodes, trees = step(state, i, parts, config)
        report(i, metrics)
        keep(i, episodes, trees)
        if (i + 1) % config.save_every == 0 or i + 1 == config.steps or halt():
            save(i + 1, state)
    return state


def warm(state: optimizer.State, parts: Parts, config: Config) -> None:
    """Compiles what every step runs, both chairs, scoring and update; see warmup.warm."""
    scores = parts.coach is not None and config.loss.alpha > 0
    warmup.warm(
        state, parts.spec, warmup.engines(parts.chair, parts.user), parts.shape, config.optimizer,
        parts.compute, scored=coaching.rows(parts.shape, parts.compute) if scores else None,
    )  # fmt: skip


def outcomes(episodes: Sequence[types.Episode]) -> dict[str, float]:
    """Means that people look at: success, turns, stop reasons, shares of each act."""
    played = [e for e in episodes if np.isfinite(e.rewards).all() and e.rewards]
    success = np.array([float(e.outcome.get("success", 0.0)) for e in played])
    n = max(1, len(episodes))
    out = {
        "success": float(success.mean()) if len(success) else 0.0,
        "success_std": float(success.std()) if len(success) else 0.0,
        "turns": float(np.mean([len(e.rewards) for e in episodes])) if episodes else 0.0,
        "masked_episodes": 1 - len(played) / n,
    }
    for stop in types.Stop:
        out[f"stop_{stop}"] = sum(e.stop is stop for e in episodes) / n
    acts: dict[str, int] = {}
    for episode in episodes:
        for act, count in episode.outcome.get("acts", {}).items():
            acts[act] = acts.get(act, 0) + count
    total = max(1, sum(acts.values()))
    return out | {f"act_share_{act}": count / total for act, count in sorted(acts.items())}
