"""What was measured of several seeds taken together, as json values for the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from mimesis_jax.evaluation import pooled
from mimesis_jax.users import behaviours


def told(whole: pooled.Pooled) -> dict[str, Any]:
    """A pooled mean: its intervals, and each seed's.

    ci95_t: by the seeds' values alone, with Student's t. A bootstrap of few seeds is too narrow
    where they are what differs (of five by a third); this one is not.
    """
    return {
        "mean": whole.mean,
        "ci95": [whole.interval.low, whole.interval.high],
        "ci95_goals": [whole.goals.low, whole.goals.high],
        "ci95_t": _by_t(whole.by_seed),
        "by_seed": list(whole.by_seed),
    }


def _by_t(values: Sequence[float | None]) -> list[float] | None:
    there = np.array([v for v in values if v is not None and np.isfinite(v)])
    if len(there) < 2:
        return None
    half = stats.t.ppf(0.975, len(there) - 1) * there.std(ddof=1) / np.sqrt(len(there))
    return [float(there.mean() - half), float(there.mean() + half)]


def _mean(values) -> float:
    there = [v for v in values if v is not None]
    return float(np.mean(there)) if there else float("nan")


def _behaviours(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = ("behaviour_rate_before", "behaviour_rate_after", "control_rate_before",
             "control_rate_after", "bad_format_rate")  # fmt: skip
    rates = {
        name: {
            when: _mean([one["behaviour_rates"][name][when] for one in found])
            for when in ("before", "after")
        }
        for name in behaviours.IDS
    }
    return {
        **{name: _mean([one[name] for one in found]) for name in names},
        "behaviour_rates": rates,
        "rising": sum(rate["after"] > rate["before"] for rate in rates.values()),
        "by_seed": [one["behaviour_rate_after"] for one in found],
    }


def _difficulty(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Success by agent and kind of user; gaps: reference minus the stand-in, paired by goal."""
    success: dict[str, dict[str, float]] = {}
    gaps: dict[str, dict[str, Any]] = {}
    for agent in found[0]:
        rows = {
            kind: np.array([one[agent][kind] for one in found], np.float64)
            for kind in found[0][agent]
        }
        success[agent] = {kind: pooled.mean(v[:, None]) for kind, v in rows.items()}
        gaps[agent] = {}
        for kind in ("simulator", "assistant"):
            gap = pooled.difference(rows["reference"][:, None], rows[kind][:, None])
            gaps[agent] |= {
                f"gap_{kind}": gap.mean,
                f"gap_{kind}_ci95": [gap.interval.low, gap.interval.high],
            }
    return {"success": success, "gaps": gaps}


def _mechanism(found: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    aucs = ("auc_true", "auc_placebo", "auc_true_within", "auc_placebo_within")
    names = (*aucs, "followed", "gate_mean", "gate_mean_placebo", "none_share")
    held: dict[str, Any] = {name: _mean([one[name] for one in found]) for name in names}
    honesty = {
        coach: _mean([one["honesty"][coach] for one in found]) for coach in found[0]["honesty"]
    }
    for name in aucs:
        seen = [one[name] for one in found if one[name] is not None]
        held[f"{name}_by_seed"] = seen
        held[f"{name}_ci95_t"] = _by_t(seen)
    return held | {"honesty": honesty}


MEASURES = {"behaviours": _behaviours, "difficulty": _difficulty, "mechanism": _mechanism}
