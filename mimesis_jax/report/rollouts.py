"""What playing cost, by stage: speed, slots, prefill saved, who was waited for, sampler's error."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from mimesis_jax.report import curves, numbers

PHASES = {**curves.USER, **curves.ARMS}  # the stages that play dialogues -> (label, tone)

# What a stage's steps make of a metric: their mean, their sum, the worst of them.
Fold = Callable[[Sequence[float]], float]


@dataclasses.dataclass(frozen=True)
class Quantity:
    """One row of the table. keys: a metric of each chair, or of the loop, shown side by side."""

    label: str
    keys: tuple[str, ...]
    fold: Fold
    digits: int = 0
    meaning: str = ""


def _chairs(metric: str) -> tuple[str, str]:
    return (f"agent_{metric}", f"user_{metric}")


QUANTITIES = (
    Quantity("Tokens per second", _chairs("tokens_per_s"), statistics.fmean, 0, "agent / user"),
    Quantity(
        "Slots busy", _chairs("slots_busy"), statistics.fmean, 2,
        "of all slots in all decode steps, the last dialogues of a batch included",
    ),
    Quantity(
        "Prefill saved, still in its slot", _chairs("saved_by_residency"), statistics.fmean, 2,
        "of the tokens that a server without memory would have read",
    ),
    Quantity("Prefill saved, shared prompt", _chairs("saved_by_sharing"), statistics.fmean, 2),
    Quantity(
        "Tokens fed again", _chairs("refed_tokens"), sum, 0,
        "public part of a private reply, once on the trunk",
    ),
    Quantity(
        "Tokens prefilled again", _chairs("reprefilled_tokens"), sum, 0, "lost slots only: wanted 0"
    ),
    Quantity("Seconds from asking to a slot", _chairs("wait_slot_s"), statistics.fmean, 3),
    Quantity(
        "Seconds a turn took", ("wait_agent_s", "wait_user_s", "wait_gym_s"), statistics.fmean, 3,
        "agent / user / gym",
    ),
    Quantity(
        "Seconds with nothing to do", ("idle_s",), sum, 2, "the loop waited for a user, tool or gym"
    ),
    Quantity(
        "Replies tokenised otherwise", _chairs("retokenised"), statistics.fmean, 3,
        "share that a text server would have fed as other ids",
    ),
    Quantity(
        "Sampler off the trainer, nats", ("sampler_gap_max",), max, 6, "largest of all tokens"
    ),
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Table:
    """columns: labels of the stages. rows: (label, one text a stage, meaning)."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[str, ...], str], ...]


def table(metrics: dict[str, list[dict[str, Any]]]) -> Table | None:
    """The table of a run's metrics (phase -> its lines); None where no stage played anything.

    A chair that holds no model shows as missing; a row that no stage has is left out.
    """
    phases = {
        phase: label
        for phase, (label, _) in PHASES.items()
        if any(_column(metrics.get(phase, []), key) for q in QUANTITIES for key in q.keys)
    }
    if not phases:
        return None
    rows = []
    for quantity in QUANTITIES:
        cells = tuple(_cell(metrics[phase], quantity) for phase in phases)
        if any(cell != numbers.NONE for cell in cells):
            rows.append((quantity.label, cells, quantity.meaning))
    return Table(tuple(phases.values()), tuple(rows))


def _cell(lines: list[dict[str, Any]], quantity: Quantity) -> str:
    shown = []
    for key in quantity.keys:
        values = _column(lines, key)
        shown.append(numbers.show(quantity.fold(values) if values else None, quantity.digits))
    return numbers.NONE if set(shown) == {numbers.NONE} else " / ".join(shown)


def _column(lines: list[dict[str, Any]], key: str) -> list[float]:
    return [value for line in lines if (value := numbers.finite(line.get(key))) is not None]
