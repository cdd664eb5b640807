"""Means with honest intervals: bootstrap by cluster, paired differences, sample sizes, AUC.

Episodes of one goal, or of one training seed, are not independent draws. A bootstrap that resamples
episodes would call noise between goals a finding, so here whole clusters are resampled.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from statistics import NormalDist

import numpy as np

# Bootstrap weights are made for so many draws at a time, to bound memory at BLOCK * values floats.
BLOCK = 200


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean and its confidence interval, in the values' unit."""

    mean: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2

    def named(self, name: str) -> Iterator[tuple[str, float]]:
        """(name, mean), (name/low, low), (name/high, high)."""
        yield from ((name, self.mean), (f"{name}/low", self.low), (f"{name}/high", self.high))


def mean_ci(
    values: Sequence[float] | np.ndarray,
    clusters: Sequence | np.ndarray,
    *,
    weights: Sequence[float] | np.ndarray | None = None,
    level: float = 0.95,
    draws: int = 2000,
    seed: int = 0,
) -> Interval:
    """Mean with a percentile bootstrap interval over clusters.

    With one cluster id a value, clusters are drawn with replacement (Davison and Hinkley 1997,
    3.8). With k ids a value (goal, training seed) each factor is drawn on its own and a value
    weighs the product of its counts, so that both sources of noise show (Owen, "The pigeonhole
    bootstrap", 2007). A factor of one level adds nothing.

    values: [n], n >= 1, finite. clusters: [n] or [n, k] ids of any kind that sorts.
    weights: [n] above 0, of each value in the mean; alike when not given. level: in (0, 1).
    draws: bootstrap draws. seed: of the draws; same seed, same interval.
    Raises ValueError for no value, one that is not finite, or ids or weights that do not match.
    """
    v = np.asarray(values, np.float64)
    if v.ndim != 1 or v.size == 0:
        raise ValueError(f"values of shape {v.shape}: give a list of at least one number")
    if not np.isfinite(v).all():
        raise ValueError(f"{(~np.isfinite(v)).sum()} values are not finite: leave masked rows out")
    if not 0 < level < 1:
        raise ValueError(f"level {level} is outside (0, 1): use for example 0.95")
    w = np.ones(len(v)) if weights is None else np.asarray(weights, np.float64)
    if w.shape != v.shape or not (w > 0).all():
        raise ValueError(f"weights of shape {w.shape} for {v.size} values: give each one above 0")
    factors = _factors(clusters, len(v))
    rng = np.random.default_rng(seed)
    means = np.concatenate(
        [_draw(v, w, factors, min(BLOCK, draws - at), rng) for at in range(0, draws, BLOCK)]
    )
    # Crossed factors with holes can draw no value at all; such a draw says nothing.
    low, high = np.nanquantile(means, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(w @ v / w.sum()), float(low), float(high))


def paired_difference(
    a: Sequence[float] | np.ndarray,
    b: Sequence[float] | np.ndarray,
    clusters: Sequence | np.ndarray,
    **knobs,
) -> Interval:
    """Interval of the mean of a - b, where a[i] and b[i] met the same goal (and seed).

    a, b: [n]. clusters and knobs: see `mean_ci`. Pairing takes the goals' difficulty out of the
    noise. Raises ValueError where the lengths differ.
    """
    left, right = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if left.shape != right.shape:
        raise ValueError(f"{left.size} values against {right.size}: pair them goal by goal")
    return mean_ci(left - right, clusters, **knobs)


def goals_needed(
    values: Sequence[float] | np.ndarray,
    clusters: Sequence | np.ndarray,
    half_width: float,
    *,
    level: float = 0.95,
) -> int:
    """How many goals give an interval of +- half_width: ceil((z s / half_width)^2), at least 2.

    s is the standard deviation (ddof 1) of the goals' means, z the normal quantile of `level`.

    values: [n] of a pilot. clusters: [n] goal ids, 2 different ones at least. half_width: > 0, in
    the values' unit. Raises ValueError for less.
    """
    if half_width <= 0:
        raise ValueError(f"half_width {half_width} is not above 0")
    v = np.asarray(values, np.float64)
    (goal,) = _factors(np.asarray(clusters).reshape(-1), len(v))
    if goal.max() < 1:
        raise ValueError("one goal has no spread between goals: pilot at least 2")
    spread = (np.bincount(goal, v) / np.bincount(goal)).std(ddof=1)
    quantile = NormalDist().inv_cdf((1 + level) / 2)
    # Rounded first: a spread of exactly k half-widths must not need one goal more by rounding.
    return max(2, math.ceil(round((quantile * spread / half_width) ** 2, 9)))


def auc(scores: Sequence[float] | np.ndarray, labels: Sequence[bool] | np.ndarray) -> float:
    """Chance that a positive scores above a negative, ties counting one half (Mann-Whitney).

    scores: [n] finite. labels: [n] bool. Raises ValueError without both kinds or for NaN scores.
    """
    s, positive = np.asarray(scores, np.float64), np.asarray(labels, bool)
    if s.shape != positive.shape:
        raise ValueError(f"{s.size} scores but {positive.size} labels: give one label a score")
    if positive.all() or not positive.any():
        raise ValueError(f"{positive.sum()} positives of {positive.size}: AUC needs both kinds")
    if np.isnan(s).any():
        raise ValueError(f"{np.isnan(s).sum()} scores are NaN: leave them out with their labels")
    _, level, count = np.unique(s, return_inverse=True, return_counts=True)
    # Mid-rank: ranks below this score, plus the middle of those that share it.
    rank = (np.cumsum(count) - count + (count + 1) / 2)[level]
    n, m = int(positive.sum()), int((~positive).sum())
    return float((rank[positive].sum() - n * (n + 1) / 2) / (n * m))


def _factors(clusters: Sequence | np.ndarray, n: int) -> list[np.ndarray]:
    """Per factor [n] int levels from 0."""
    ids = np.asarray(clusters)
    if ids.ndim not in (1, 2) or len(ids) != n:
        raise ValueError(
            f"cluster ids of shape {ids.shape} for {n} values: give [{n}] or [{n}, factors]"
        )
    columns = ids.reshape(n, -1).T
    return [np.unique(column, return_inverse=True)[1] for column in columns]


def _draw(
    v: np.ndarray,
    w: np.ndarray,
    factors: list[np.ndarray],
    draws: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """[draws] weighted means of resampled clusters; NaN where a draw held no value."""
    weight = np.tile(w, (draws, 1))
    for factor in factors:
        levels = factor.max() + 1
        counts = rng.multinomial(levels, np.full(levels, 1 / levels), size=draws)
        weight *= counts[:, factor]
    total = weight.sum(axis=1)
    return np.divide(weight @ v, total, out=np.full(draws, np.nan), where=total > 0)
