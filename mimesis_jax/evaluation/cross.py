"""The cross-user matrix: one agent against many users, the same goals for every agent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mimesis_jax import types
from mimesis_jax.evaluation import statistics
from mimesis_jax.losses import advantage
from mimesis_jax.rollouts import play, router


@dataclasses.dataclass(frozen=True)
class Opponent:
    """A user of the evaluation: who answers, and its goals (the same for all agents)."""

    user: types.Respond
    goals: Sequence[Any]


@dataclasses.dataclass(frozen=True)
class Result:
    """success: [users, goals] in [0, 1], NaN where the user or the machine failed the episode, or
      the user was gone before the agent said anything.
    users: names, in row order. episodes: per user, in goal order."""

    users: tuple[str, ...]
    success: np.ndarray
    episodes: dict[str, list[types.Episode]]

    def measure(self) -> Iterator[tuple[str, Any]]:
        """(name, value): mean over users of their mean success, its interval (bootstrap over
        goals), and the mean of each user."""
        interval = _interval(self.success)
        # A user with whom nothing could be scored is not a number, and not part of the mean.
        by_user = np.array([mean(row) for row in self.success])
        yield "mean", interval.mean
        yield "ci95", [interval.low, interval.high]
        yield "by_user", {n: float(v) for n, v in zip(self.users, by_user, strict=True)}


def against(
    agent: types.Respond,
    opponents: Mapping[str, Opponent],
    make: Callable[[Any], types.Gym],
    *,
    stream: int,
    at_once: int = 64,
) -> Result:
    """Plays the agent against every opponent in one go.

    An episode's random streams depend on (stream, goal, user) alone, so agents are compared on
    paired episodes. Raises ValueError when opponents differ in their number of goals.
    """
    names = tuple(opponents)
    counts = {name: len(opponents[name].goals) for name in names}
    if len(set(counts.values())) != 1:
        raise ValueError(f"opponents have unequal numbers of goals: {counts}; give each the same")
    todo = [
        play.Job(types.Key(stream, number, row), make(goal))
        for row, name in enumerate(names)
        for number, goal in enumerate(opponents[name].goals)
    ]
    users = router.Router({n: opponents[n].user for n in names}, lambda key: names[key.copy])
    return result(names, play.play(todo, agent=agent, user=users, at_once=at_once))


def result(users: tuple[str, ...], played: Sequence[types.Episode]) -> Result:
    """Of episodes by user, then by goal: as many of each user."""
    size = len(played) // len(users)
    episodes = {name: list(played[i * size : (i + 1) * size]) for i, name in enumerate(users)}
    success = np.array([[_success(e) for e in episodes[name]] for name in users])
    return Result(users, success, episodes)


def _success(episode: types.Episode) -> float:
    # No reward at all: the user broke or left before the agent's first word, which tells nothing.
    if not advantage.usable(episode.rewards):
        return float("nan")
    return float(episode.outcome.get("success", 0.0))


def mean(values: np.ndarray) -> float:
    """The mean of the finite values; not a number where there is none."""
    there = values[np.isfinite(values)]
    return float(there.mean()) if there.size else float("nan")


def paired(a: Result, b: Result) -> statistics.Interval:
    """Interval of the mean difference a - b over the same users and goals."""
    if a.users != b.users or a.success.shape != b.success.shape:
        raise ValueError(f"results over {a.users} and {b.users} are not paired")
    return _interval(a.success - b.success)


def _interval(values: np.ndarray) -> statistics.Interval:
    """Of values [users, goals]: the mean of the users' means, clustered by goal. Missing values are
    left out, and the others of that user weigh the more."""
    clusters = np.tile(np.arange(values.shape[1]), values.shape[0])
    there = np.isfinite(values.ravel())
    if not there.any():  # nothing could be scored: no number, and no error either
        return statistics.Interval(float("nan"), float("nan"), float("nan"))
    heard = np.isfinite(values).sum(axis=1, keepdims=True)
    weights = np.broadcast_to(1.0 / np.maximum(1, heard), values.shape).ravel()
    return statistics.mean_ci(values.ravel()[there], clusters[there], weights=weights[there])
