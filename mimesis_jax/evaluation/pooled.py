"""Several training seeds taken together: means and paired differences with honest intervals.

What one agent did is success [S, U, G]: seeds, evaluation users, goals; NaN where nothing could be
scored. The goals are the same in every seed, so goals and seeds are two crossed factors, and an
interval that knew of one alone would call the other's noise a finding.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from mimesis_jax.evaluation import cross, statistics


@dataclasses.dataclass(frozen=True)
class Pooled:
    """mean: over seeds, in each over users, in each over goals.

    interval: 95 %, goals and seeds drawn anew. goals: 95 %, goals drawn anew and the seeds taken as
    they are. by_seed: the mean of each seed.
    """

    mean: float
    interval: statistics.Interval
    goals: statistics.Interval
    by_seed: tuple[float, ...]


def over(success: np.ndarray) -> Pooled:
    """The mean of success [S, U, G] and its intervals; not a number where nothing is.

    Every seed weighs alike, and in it every user with whom anything could be scored.
    Raises ValueError for another number of axes.
    """
    values, there, weights = _weighed(success)
    by_seed = tuple(cross.mean(np.array([cross.mean(row) for row in seed])) for seed in values)
    if not there.any():
        nothing = statistics.Interval(float("nan"), float("nan"), float("nan"))
        return Pooled(float("nan"), nothing, nothing, by_seed)
    seed, _, goal = np.nonzero(there)
    both = statistics.mean_ci(values[there], np.stack([goal, seed], axis=1), weights=weights)
    alone = statistics.mean_ci(values[there], goal, weights=weights)
    return Pooled(both.mean, both, alone, by_seed)


def mean(success: np.ndarray) -> float:
    """The mean of `over` alone, without the draws of its intervals."""
    values, there, weights = _weighed(success)
    return float(weights @ values[there] / weights.sum()) if there.any() else float("nan")


def _weighed(success: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values [S, U, G], where they are, and the weights of those that are."""
    values = np.asarray(success, np.float64)
    if values.ndim != 3:
        raise ValueError(f"success of shape {values.shape}: give seeds x users x goals")
    there = np.isfinite(values)
    heard = there.sum(axis=2, keepdims=True)
    users = (heard > 0).sum(axis=1, keepdims=True)
    return values, there, np.broadcast_to(1.0 / np.maximum(1, heard * users), values.shape)[there]


def difference(a: np.ndarray, b: np.ndarray) -> Pooled:
    """Of a - b, both success [S, U, G] over the same seeds, users and goals, pair by pair."""
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if left.shape != right.shape:
        raise ValueError(f"success of shapes {left.shape} and {right.shape} is not paired")
    return over(left - right)


def goals_for(values: np.ndarray, half_width: float = 0.03) -> int:
    """Goals for which the mean of `values` [S, U, G] has an interval of +- half_width.

    It counts the spread between goals only (statistics.goals_needed): the spread between seeds does
    not shrink with more goals. Raises ValueError for fewer than two goals with a value.
    """
    seed, user, goal = np.nonzero(np.isfinite(values))
    return statistics.goals_needed(values[seed, user, goal], goal, half_width)
