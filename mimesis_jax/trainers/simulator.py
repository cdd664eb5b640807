"""Simulator training, stage 3: joint GRPO of the user chair over several domains.

Each row of a step is a goal of some domain (a behaviour to act, its control, another domain's
task); the agent opposite is not trained. The judge turns finished dialogues into one reward each.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from mimesis_jax import config as configs
from mimesis_jax import types
from mimesis_jax.forest import pack
from mimesis_jax.losses import reward
from mimesis_jax.models import decoder
from mimesis_jax.rollouts import measures, seat, shared
from mimesis_jax.trainers import credit, guard, optimizer, reinforce, warmup


class Judge(Protocol):
    """Rates finished dialogues: one reward an episode (mask False where the judge failed), and
    named means worth logging."""

    def __call__(
        self, params: Any, episodes: Sequence[types.Episode]
    ) -> tuple[reward.Scored, dict[str, float]]: ...


@dataclasses.dataclass(frozen=True)
class Config:
    """steps of P rows x G copies; see trainers.agent.Config for the rest."""

    steps: int = 25
    rows: int = 18
    copies: int = 8
    updates: int = 1
    save_every: int = 10
    stream: int = 2000
    loss: reinforce.Loss = reinforce.Loss()
    credit: credit.Config = credit.Config()
    optimizer: optimizer.Config = optimizer.Config(lr=3e-4, warmup=2, decay="constant")

    def __post_init__(self):
        configs.at_least(self, 1, "steps", "rows", "updates", "save_every")
        if self.copies < 2:
            raise ValueError(f"copies {self.copies}: group-relative advantages need at least 2")


@dataclasses.dataclass
class Parts:
    """What a step needs besides parameters."""

    spec: Any
    chair: seat.ModelSeat
    agent: types.Respond
    make: Callable[[Any], types.Gym]
    goals: Callable[[int, int], Sequence[Any]]  # (step, how many) -> goals of all domains
    judge: Judge
    shape: pack.Shape
    compute: decoder.Compute = decoder.ALONE  # over which devices the update is spread


def step(state: optimizer.State, i: int, parts: Parts, config: Config):
    """One joint GRPO step. Returns (state, metrics, episodes)."""
    clock = time.perf_counter
    t0 = clock()
    parts.chair.engine.load(state.params, version=i)
    goals = parts.goals(i, config.rows)
    watch = measures.Watch(parts.agent, parts.chair)
    episodes = shared.play_all(
        parts.make, goals, copies=config.copies, stream=config.stream + i,
        agent=parts.agent, user=parts.chair, at_once=parts.chair.engine.config.slots,
        meter=watch.meter,
    )  # fmt: skip
    played = watch.read()
    t1 = clock()
    scored, judged = parts.judge(state.params, episodes)
    trees = [e.trees["user"] for e in episodes]
    names = [f"goal {e.key.goal} copy {e.key.copy}" for e in episodes]
    # The whole dialogue earns one reward: it is put on the last of the user's turns.
    rewards = [
        _terminal(tree, value if seen else float("nan"))
        for tree, value, seen in zip(trees, scored.reward, scored.mask, strict=True)
    ]
    credited, _, metrics = credit.assign(
        trees, rewards, [e.key.goal for e in episodes], config.credit
    )
    t2 = clock()
    lr = optimizer.rate(config.optimizer, i, config.steps)
    for k in range(config.updates):
        state, out = reinforce.update(
            parts.spec, state, credited, parts.shape, config.loss, lr, config.optimizer, names,
            parts.compute,
        )  # fmt: skip
        kept = functools.partial(reinforce.batch, credited, names, parts.shape, config.loss)
        guard.hold(i, out, config.optimizer, state, lr, kept)
        if k == 0:
            metrics |= out | measures.sampler_gap(out)
    t3 = clock()
    metrics |= judged | played | {
        "reward": float(scored.reward[scored.mask].mean()) if scored.mask.any() else 0.0,
        "reward_std": float(scored.reward[scored.mask].std()) if scored.mask.any() else 0.0,
        "judge_failures": scored.failures / max(1, len(episodes)),
        "bad_format": scored.malformed / max(1, len(episodes)),
        "rollout_seconds": t1 - t0, "judge_seconds": t2 - t1, "update_seconds": t3 - t2, "lr": lr,
    }  # fmt: skip
    return state, metrics, episodes


def train(
    state: optimizer.State,
    parts: Parts,
    config: Config,
    *,
    first: int = 0,
    report: Callable[[int, dict], None] = lambda i, metrics: None,
    save: Callable[[int, optimizer.State], None] = lambda i, state: None,
    keep: Callable[[int, Sequence[types.Episode]], None] = lambda i, episodes: None,
    halt: Callable[[], bool] = lambda: False,
) -> optimizer.State:
    """Runs steps first..config.steps - 1. halt, and what is raised: see trainers.agent.train."""
    parts.chair.engine.load(state.params, version=first)
    warmup.warm(
        state, parts.spec, warmup.engines(parts.chair, parts.agent), parts.shape, config.optimizer,
        parts.compute,
    )  # fmt: skip
    for i in range(first, config.steps):
        state, metrics, episodes = step(state, i, parts, config)
        report(i, metrics)
        keep(i, episodes)
        if (i + 1) % config.save_every == 0 or i + 1 == config.steps or halt():
            save(i + 1, state)
    return state


def _terminal(tree: types.Tree, value: float) -> np.ndarray:
    """[turns] rewards of a user's turns: nothing until the last one."""
    turns = len({segment.turn for segment in tree if segment.scored.any()})
    out = np.zeros(turns)
    if turns:
        out[-1] = value
    return out
