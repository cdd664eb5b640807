"""What a rollout cost: the counts of engines, seats and the loop as metrics."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

Counts = Mapping[str, float]


def since(now: Counts, before: Counts | None) -> dict[str, float]:
    """What was counted after `before`, a copy of the same counts taken earlier."""
    return {name: value - (before or {}).get(name, 0) for name, value in now.items()}


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def engine(now: Counts, before: Counts | None = None) -> dict[str, float]:
    """Metrics of an engine's counts (an agent's or a user's: prefix them).

    tokens_per_s: sampled tokens over the time in prefill and decode. slots_busy: of all slots in
    all decode steps, those that sampled a token; rows_busy: of the rows computed. prefill_tokens:
    computed; of what would have had to be fed without a cache, saved_by_residency was still in its
    slot and saved_by_sharing was copied from another's. reprefilled_tokens: computed again after an
    eviction or new weights (tokens that are re-fed on the trunk are the seat's count). wait_slot_s:
    mean seconds from a request to its slot. host_share: of the engine's time, spent in Python
    between programs. Where nothing was counted a metric is 0.
    """
    c = _Zero(since(now, before))
    whole = c["prefill_tokens"] + c["resident_tokens"]  # what nothing kept would have had to feed
    computed = c["prefill_tokens"] - c["shared_tokens"]
    busy = c["decode_microseconds"] + c["admit_microseconds"] + c["settle_microseconds"]
    return {
        "tokens": c["decoded_tokens"],
        "tokens_per_s": _share(c["decoded_tokens"], 1e-6 * busy),
        "slots_busy": _share(c["decoded_tokens"], c["slot_steps"]),
        "rows_busy": _share(c["decoded_tokens"], c["decode_rows"]),
        "prefill_tokens": computed,
        "prefill_filled": _share(computed, c["prefill_cells"]),
        "saved_by_sharing": _share(c["shared_tokens"], whole),
        "saved_by_residency": _share(c["resident_tokens"], whole),
        "reprefilled_tokens": c["reprefilled_tokens"],
        "evictions": c["evictions"],
        "refused_full": c["refused_full"],
        "wait_slot_s": _share(1e-6 * c["wait_slot_microseconds"], c["requests"]),
        "host_share": _share(c["admit_microseconds"] + c["settle_microseconds"], busy),
    }


def seat(now: Counts, before: Counts | None = None) -> dict[str, float]:
    """Metrics of a seat's counts: refed_tokens (a private reply's public part, and what tools told
    it in its round, fed once more on the trunk), retokenised (share of replies that a text server
    would have fed as other ids), and the share of each kind of reply."""
    c = _Zero(since(now, before))
    kinds = {name: _share(n, c["replies"]) for name, n in c.items() if name.startswith("kind_")}
    return {
        "refed_tokens": c["refed_tokens"],
        "retokenised": _share(c["retokenised_turns"], c["replies"]),
        **kinds,
    }


def waiting(now: Counts, before: Counts | None = None) -> dict[str, float]:
    """Metrics of a loop's meter (see play.play): mean seconds that a query of each chair took, and
    of each of its turns in the gym; idle_s, in which nothing could be done, by who was waited for;
    stray answers."""
    c = _Zero(since(now, before))
    queries = c["queries_agent"] + c["queries_user"]
    return {
        "wait_agent_s": _share(c["wait_agent_seconds"], c["queries_agent"]),
        "wait_user_s": _share(c["wait_user_seconds"], c["queries_user"]),
        "wait_gym_s": _share(c["wait_gym_seconds"], queries),
        "idle_s": c["idle_seconds"],
        **{f"idle_for_{who}_s": c[f"idle_for_{who}_seconds"] for who in ("agent", "user", "gym")},
        "stray_answers": c["stray_answers"],
    }


def sampler_gap(update: Counts) -> dict[str, float]:
    """sampler_gap_mean and sampler_gap_max in nats, out of the metrics of a batch's first update.

    That update scores the batch by the very weights that sampled it, so its drift is what
    `scoring.disagreement` of the trees it trained on would say, without another forward. {} where
    nothing was trained on.
    """
    if "drift_max" not in update:
        return {}
    return {"sampler_gap_mean": update["drift"], "sampler_gap_max": update["drift_max"]}


class Watch:
    """What playing some episodes cost: made before, read after; `play.play` is handed `meter`.

    A chair that holds no engine (a rule, a person, an endpoint) has no metrics of its own but how
    long it was waited for.
    """

    def __init__(self, agent: Any, user: Any):
        self.meter: collections.Counter[str] = collections.Counter()
        chairs = {"agent": agent, "user": user}
        self._seats = {name: seat for name, seat in chairs.items() if hasattr(seat, "engine")}
        self._before = {
            name: (dict(held.engine.counts), dict(held.counts))
            for name, held in self._seats.items()
        }

    def read(self) -> dict[str, float]:
        """`engine` and `seat` of each chair that is a model, named agent_METRIC and user_METRIC
        (of seats on one engine each has the engine's whole), and `waiting`."""
        found = waiting(self.meter)
        for name, held in self._seats.items():
            decoding, speaking = self._before[name]
            metrics = engine(held.engine.counts, decoding) | seat(held.counts, speaking)
            found |= {f"{name}_{metric}": value for metric, value in metrics.items()}
        return found


class _Zero(dict[str, float]):
    def __missing__(self, name: str) -> float:
        return 0.0
