"""Group-relative advantages with turn credit: from turn rewards to one number a token.

Host side, numpy. An episode is a sequence of turn rewards r_1 .. r_T. `group` compares episodes of
one goal (z), `credits` shares an episode's z among its turns, `per_turn` gives each turn's tokens
their advantage. Departures from the published UserRL form (arXiv 2509.19736) are named below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from typing import Literal

import numpy as np

Score = Literal["mean", "sum", "r2g"]
Credit = Literal["equalized", "r2g", "em"]
Form = Literal["standard", "leave_one_out"]
Rewards = Sequence[float | None] | np.ndarray

# Scores nearer than this are equal: the same rewards added in another order differ by rounding.
SAME = 1e-9


@dataclasses.dataclass(frozen=True)
class Counts:
    """What `group` met: episodes, those without a usable reward, groups, those without a signal."""

    episodes: int
    missing: int
    groups: int
    flat_groups: int
    single_groups: int


def usable(rewards: Rewards) -> bool:
    """Whether an episode has a reward for every turn: none missing (None), NaN or infinite."""
    values = np.asarray(rewards, np.float64)
    return bool(values.size and np.isfinite(values).all())


def to_go(rewards: Rewards, *, gamma: float = 0.8) -> np.ndarray:
    """[T] reward to go: sum over u >= t of gamma^(u - t) r_u. rewards: [T]."""
    values = np.asarray(rewards, np.float64)
    out, carried = np.zeros_like(values), 0.0
    for t in range(len(values) - 1, -1, -1):
        out[t] = carried = values[t] + gamma * carried
    return out


def score(rewards: Rewards, *, kind: Score = "r2g", gamma: float = 0.8) -> float:
    """An episode's score S: mean of r, sum of r, or r2g = sum of gamma^(t - 1) r_t.

    rewards: [T], T >= 1. gamma: in (0, 1]. Raises ValueError for another kind.
    """
    if kind == "mean":
        return float(np.mean(np.asarray(rewards, np.float64)))
    if kind == "sum":
        return float(np.sum(np.asarray(rewards, np.float64)))
    if kind == "r2g":
        return float(to_go(rewards, gamma=gamma)[0])
    raise ValueError(f"score {kind!r}: use 'mean', 'sum' or 'r2g'")


def _members(rewards: Sequence[Rewards], groups: Sequence[Hashable]) -> dict[Hashable, list[int]]:
    """Usable episodes of each group, in order; groups without one keep an empty list."""
    if len(rewards) != len(groups):
        raise ValueError(
            f"{len(rewards)} episodes but {len(groups)} group ids: give one id an episode"
        )
    members: dict[Hashable, list[int]] = {}
    for i, (name, values) in enumerate(zip(groups, rewards, strict=True)):
        members.setdefault(name, []).extend([i] if usable(values) else [])
    return members


def group(
    rewards: Sequence[Rewards],
    groups: Sequence[Hashable],
    *,
    kind: Score = "r2g",
    gamma: float = 0.8,
    floor: float = 1e-3,
    form: Form = "standard",
    drop_flat: bool = True,
) -> tuple[np.ndarray, np.ndarray, Counts]:
    """Each episode's advantage over the episodes of the same goal.

    standard: z_i = (S_i - mean) / (std + floor), std with ddof 1 (GRPO, arXiv 2402.03300, with the
    floor in reward units [ours]: a difference below it is noise, not to be blown up to 1).
    leave_one_out: z_i = S_i - mean of the others, no std (RLOO, arXiv 2402.14740).

    rewards: per episode its turn rewards; a None, NaN or infinite one, or none at all, masks the
      episode. It is then no member of its group.
    groups: the goal of each episode.
    drop_flat: a group whose scores are all equal, or with one usable episode, teaches nothing:
      mask it, so that it leaves the denominator too. False keeps it with z = 0.
    Returns z [episodes] float64 (0 where masked), mask [episodes] bool (True: learn from it) and
    Counts.
    Raises ValueError for unequal lengths, floor < 0 or another form.
    """
    if floor < 0:
        raise ValueError(f"floor {floor} is below 0: it is added to a standard deviation")
    if form not in ("standard", "leave_one_out"):
        raise ValueError(f"form {form!r}: use 'standard' or 'leave_one_out'")
    members = _members(rewards, groups)
    z, mask = np.zeros(len(rewards)), np.zeros(len(rewards), bool)
    flat = single = 0
    for index in members.values():
        scores = np.array([score(rewards[i], kind=kind, gamma=gamma) for i in index])
        # A group nobody could be compared in: one usable episode, or all alike.
        alone, alike = len(index) == 1, len(index) > 1 and np.ptp(scores) <= SAME
        single, flat = single + alone, flat + alike
        if len(index) == 0 or alone or alike:
            mask[index] = not drop_flat
            continue
        mask[index] = True
        above = scores - scores.mean()
        if form == "leave_one_out":
            z[index] = above * len(index) / (len(index) - 1)
        else:
            z[index] = above / (scores.std(ddof=1) + floor)
    missing = len(rewards) - sum(map(len, members.values()))
    return z, mask, Counts(len(rewards), missing, len(members), flat, single)


def shift(rewards: Sequence[Rewards], groups: Sequence[Hashable]) -> list[np.ndarray]:
    """Rewards raised within each group so that none is negative: r' = r - min(0, lowest). [ours]

    For `credits` only. Published credits divide signed rewards by their signed sum, which can push
    a bad turn up and gives an all-zero failure no gradient; with r' every credit is >= 0, and
    nothing changes where no reward is negative. Scores keep the raw rewards: shifted ones would
    pay an episode for each further turn.
    """
    members = _members(rewards, groups)
    lowest = {
        name: min([0.0, *(float(np.min(np.asarray(rewards[i], np.float64))) for i in index)])
        for name, index in members.items()
    }
    return [
        np.asarray(values, np.float64) - lowest[name]
        for name, values in zip(groups, rewards, strict=True)
    ]


def credits(rewards: Rewards, *, kind: Credit = "r2g", gamma: float = 0.8) -> np.ndarray:
    """[T] how much of an episode's advantage each turn earns, c_t >= 0 (UserRL, arXiv 2509.19736).

    equalized: 1. r2g: sum over u >= t of gamma^(u - t) r_u. em (exponential mapping):
    1/2 + 1/2 (1 - e^(-2 r)) / (1 - e^-2), between 1/2 and 1 for rewards in [0, 1].

    rewards: [T] of `shift`, none negative. Raises ValueError for a negative reward or another kind.
    """
    values = np.asarray(rewards, np.float64)
    if values.size and values.min() < 0:
        raise ValueError(f"reward {values.min()} is below 0: raise the group with advantage.shift")
    if kind == "equalized":
        return np.ones_like(values)
    if kind == "r2g":
        return to_go(values, gamma=gamma)
    if kind == "em":
        return 0.5 + 0.5 * np.expm1(-2.0 * values) / np.expm1(-2.0)
    raise ValueError(f"credit {kind!r}: use 'equalized', 'r2g' or 'em'")


def per_turn(
    z: Sequence[float] | np.ndarray,
    credits: Sequence[np.ndarray],
    tokens: Sequence[Sequence[int] | np.ndarray],
) -> list[np.ndarray]:
    """Advantage of each turn's tokens: A_t = z c_t N / (sum over learnable tokens of c). [ours]

    So no A_t has the sign against z, and the mean of A over an episode's learnable tokens is z.

    z: [episodes]. credits: per episode [T], >= 0; all zero counts as equalized.
    tokens: per episode [T], the turn's number of learnable tokens.
    Returns per episode [T] float64. Raises ValueError where the turns do not match.
    """
    out = []
    for i, (value, c, n) in enumerate(zip(z, credits, tokens, strict=True)):
        c, n = np.asarray(c, np.float64), np.asarray(n, np.float64)
        if c.shape != n.shape:
            raise ValueError(
                f"episode {i} has {c.size} turn credits but {n.size} token counts: give one a turn"
            )
        # Credit is a share: scale by the largest first, so that tiny ones do not underflow.
        top = c.max(initial=0.0)
        c = c / top if top > 0 else np.ones_like(c)
        total = float(c @ n)
        if total == 0:
            # All the credit lies on turns that have nothing to learn: share alike.
            c, total = np.ones_like(c), float(n.sum())
        out.append(value * c * n.sum() / total if total > 0 else np.zeros_like(c))
    return out
