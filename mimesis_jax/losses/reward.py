"""Rewards of the user simulator: a judge's scores into one number, and the gate on its format.

Host side, numpy; every array is [n], one entry a rollout.
"""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Scored:
    """Rewards of rollouts.

    reward: [n] float64 in [0, 1], 0 where masked.
    mask: [n] bool; False where the judge failed: that row is neither good nor bad.
    failures, malformed: how many rows the judge failed on, and how many broke the format.
    """

    reward: np.ndarray
    mask: np.ndarray
    failures: int = 0
    malformed: int = 0


def behaviour(
    exhibit: np.ndarray,
    placement: np.ndarray,
    naturalness: np.ndarray,
    on_task: np.ndarray,
    announced: np.ndarray,
    *,
    control: np.ndarray | None = None,
    cooperative: np.ndarray | None = None,
) -> Scored:
    """Reward of acting a behaviour (MIMESIS, arXiv 2610.09484).

    Behaviour rows: R = (2 e + 1.5 p + n + 0.5 k) / 5, halved where announced (described instead of
    acted). Placement counts as 0 where e = 0 [ours]: a polite non-performer would earn 0.6.
    Control rows (no behaviour asked): R = (2 cooperative + n + 0.5 k) / 3.5.

    exhibit e, placement p, naturalness n, on_task k, cooperative: [n] in [0, 1]; NaN says that the
      judge failed, and masks the row if the row's formula needs the score.
    announced, control: [n] bool; control None: no control row.
    Raises ValueError for a score outside [0, 1] or control rows without cooperative.
    """
    e, p, n, k = (
        _scores(name, values)
        for name, values in (
            ("exhibit", exhibit),
            ("placement", placement),
            ("naturalness", naturalness),
            ("on_task", on_task),
        )
    )
    plain = np.zeros(len(e), bool) if control is None else np.asarray(control, bool)
    if cooperative is None and plain.any():
        raise ValueError(f"{plain.sum()} control rows but no cooperative scores: give them")
    helpful = np.zeros(len(e)) if cooperative is None else _scores("cooperative", cooperative)
    placed = np.where(e == 0, 0.0, p)
    acted = (2 * e + 1.5 * placed + n + 0.5 * k) / 5
    acted = np.where(np.asarray(announced, bool), acted / 2, acted)
    reward = np.where(plain, (2 * helpful + n + 0.5 * k) / 3.5, acted)
    mask = ~np.isnan(reward)
    return Scored(np.where(mask, reward, 0.0), mask, failures=int((~mask).sum()))


def well_formed(
    closed: np.ndarray,
    utterance: np.ndarray,
    *,
    thought: np.ndarray | None = None,
    least_thought: int = 4,
) -> np.ndarray:
    """[n] bool: the thought was closed and something was said.

    closed: [n] bool, the thought has its end mark. utterance: [n] int, tokens said in public.
    thought: [n] int, thinking tokens; None where thoughts are not asked for. least_thought: the
      fewest that count as a thought (published: 4).
    """
    good = np.asarray(closed, bool) & (np.asarray(utterance) > 0)
    return good if thought is None else good & (np.asarray(thought) >= least_thought)


def gated(scored: Scored, formed: np.ndarray) -> Scored:
    """Rewards with 0 for every badly formed reply, which is counted.

    formed: [n] bool of `well_formed`. A badly formed row is never masked: its reward is known to
    be 0, whatever the judge did.
    """
    formed = np.asarray(formed, bool)
    mask = scored.mask | ~formed
    return Scored(
        reward=np.where(formed, scored.reward, 0.0),
        mask=mask,
        failures=int((~mask).sum()),
        malformed=int((~formed).sum()),
    )


def _scores(name: str, values: np.ndarray) -> np.ndarray:
    """[n] float64 in [0, 1] or NaN; raises ValueError otherwise."""
    out = np.asarray(values, np.float64)
    bad = out[(out < 0) | (out > 1)]
    if bad.size:
        raise ValueError(f"{name} score {bad[0]} is outside [0, 1]: scale the judge's answer")
    return out
