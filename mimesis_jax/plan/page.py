"""A plan as a page: memory of each phase against the limit, least times, what is sent where."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from mimesis_jax.plan import assemble, table
from mimesis_jax.plan.faults import size
from mimesis_jax.report import sheet

Json = dict[str, Any]
ROWS = 24  # collectives on the page


@dataclasses.dataclass(frozen=True)
class Piece:
    """A part of a bar: at and width in percent of the figure. kind: its colour and name."""

    kind: str
    at: float
    width: float
    told: str


@dataclasses.dataclass(frozen=True)
class Bar:
    """A stacked bar with its name and what it comes to; over: it passes the limit."""

    name: str
    pieces: tuple[Piece, ...]
    told: str
    over: bool = False


def memory(plan: Json) -> tuple[tuple[Bar, ...], float]:
    """A bar for each phase of a step, and where the limit stands, in percent."""
    highest = max(phase["peak_bytes"] for phase in plan["phases"])
    top = 1.02 * max(highest, plan["limit_bytes"])
    bars = []
    for phase in plan["phases"]:
        held = [(kind, phase["hbm_by_kind"].get(kind, 0)) for kind in assemble.KINDS]
        over = phase["peak_bytes"] > plan["limit_bytes"]
        told = table.gib(phase["peak_bytes"])
        bars.append(Bar(phase["name"], _stacked(held, top, table.gib), told, over))
    return tuple(bars), 100 * plan["limit_bytes"] / top


def times(plan: Json) -> tuple[tuple[Bar, ...], float]:
    """Bars of the three least times of each program, side by side; nothing is stacked."""
    top = max(
        (value for one in plan["programs"] for value in one["roofline_seconds"].values()),
        default=1.0,
    )
    bars = []
    for one in plan["programs"]:
        for name in ("compute", "hbm", "links"):
            value = one["roofline_seconds"][name]
            piece = Piece(name, 0.0, 100 * value / (top or 1.0), table.seconds(value))
            label = one["name"] if name == "compute" else ""
            bars.append(Bar(label, (piece,), table.seconds(value), name == one["bound"]))
    return tuple(bars), top


def _stacked(held: list[tuple[str, int]], top: float, form) -> tuple[Piece, ...]:
    at, pieces = 0.0, []
    for kind, count in held:
        if count:
            width = 100 * count / top
            pieces.append(Piece(kind, round(at, 3), round(width, 3), f"{kind}: {form(count)}"))
            at += width
    return tuple(pieces)


def render(plan: Json) -> str:
    """The page's HTML: one file, no script, no network, no font of its own."""
    bars, limit = memory(plan)
    clocks, _ = times(plan)
    words = {
        "plan": plan, "style": sheet.style("style.css", "plan.css"), "bars": bars, "limit": limit,
        "clocks": clocks, "kinds": [k for k in assemble.KINDS if _is_held(plan, k)],
        "sent": [row for row in plan["collectives"] if row["bytes_per_step"]][:ROWS],
        "code": lambda kind: kind.replace(" ", "-"),
    }  # fmt: skip
    return sheet.printed("plan.html", words, gib=table.gib, size=size, clock=table.seconds)


def _is_held(plan: Json, kind: str) -> bool:
    return any(phase["hbm_by_kind"].get(kind) for phase in plan["phases"])


def write(path: Path, plan: Json) -> Path:
    """Writes the page, whole or not at all."""
    return sheet.put(path, render(plan))
