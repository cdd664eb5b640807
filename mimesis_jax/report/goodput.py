"""Goodput: the share of a run's wall time that went into work that counts, from events.jsonl.

session   what one process wrote: from a line "start" or "restart" to the line before the next
wall      the sessions' lengths together; the time between them, when nobody ran, is told apart
work      rollout + score + update of steps that were kept, less what was compiled within them
lost      the same of steps that a later session did again, because a kill had undone them
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from mimesis_jax.report import figures, numbers

WORK = ("rollout", "score", "update")
OTHER = {"compile": "compile", "data": "data wait", "save": "save", "evaluate": "evaluate"}


@dataclasses.dataclass(frozen=True)
class Goodput:
    """Seconds of a run. wall: its sessions. work: rollout, score, update that count. lost: those
    that a kill undid. spent: compile, data wait, save, evaluate. away: between sessions, not in
    wall. sessions: how many processes worked at it."""

    wall: float
    work: dict[str, float]
    lost: float
    spent: dict[str, float]
    away: float
    sessions: int

    @property
    def share(self) -> float:
        """Work that counts by wall time, in [0, 1]."""
        return min(1.0, sum(self.work.values()) / self.wall) if self.wall > 0 else 0.0

    @property
    def rest(self) -> float:
        """Wall time that no event names: reading, rendering, packing, Python."""
        named = sum(self.work.values()) + self.lost + sum(self.spent.values())
        return max(0.0, self.wall - named)


def measure(events: Sequence[dict[str, Any]]) -> Goodput | None:
    """The goodput of a run's event lines; None where they name no session or no work.

    A line that lacks a number, or has one that is none, counts nothing.
    """
    sessions = _sessions(events)
    walls = [_wall(lines) for lines in sessions]
    last = _last(sessions)
    work = dict.fromkeys(WORK, 0.0)
    spent = dict.fromkeys(OTHER.values(), 0.0)
    lost = 0.0
    for number, lines in enumerate(sessions):
        within = _within(lines)
        for line in lines:
            event, seconds = line.get("event"), numbers.finite(line.get("seconds")) or 0.0
            if event in OTHER:
                spent[OTHER[event]] += seconds
            if event not in WORK:
                continue
            place = _place(line)
            taken = min(seconds, within.get(place, 0.0))  # compiled while it was at work
            within[place] = within.get(place, 0.0) - taken
            if last.get(place, number) > number:
                lost += seconds - taken
            else:
                work[event] += seconds - taken
    if not any(walls) or not (sum(work.values()) or lost):
        return None
    return Goodput(sum(walls), work, lost, spent, _away(sessions), len(sessions))


def _sessions(events: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    found: list[list[dict[str, Any]]] = []
    for line in events:
        if line.get("event") in ("start", "restart") or not found:
            found.append([])
        found[-1].append(line)
    return found


def _wall(lines: Sequence[dict[str, Any]]) -> float:
    """Seconds of a session: by the clock that does not jump, in older runs by the machine's."""
    ups = [up for line in lines if (up := numbers.finite(line.get("up"))) is not None]
    if ups:
        return max(ups)
    times = [at for line in lines if (at := numbers.finite(line.get("time"))) is not None]
    steps = [max(0.0, b - a) for a, b in zip(times, times[1:], strict=False)]
    return sum(steps)


def _place(line: dict[str, Any]) -> tuple[str, str]:
    """Phase and step of a line, as text: a damaged file may have anything there."""
    return str(line.get("phase")), str(line.get("step"))


def _last(sessions) -> dict[tuple[str, str], int]:
    """(phase, step) -> the last session that did this step."""
    return {
        _place(line): number
        for number, lines in enumerate(sessions)
        for line in lines
        if line.get("event") in WORK and "step" in line
    }


def _within(lines) -> dict[tuple[str, str], float]:
    """(phase, step) -> seconds that were compiled inside that step's work."""
    found: dict[tuple[str, str], float] = {}
    for line in lines:
        if line.get("event") == "compile" and "step" in line:
            within = numbers.finite(line.get("within")) or 0.0
            found[_place(line)] = found.get(_place(line), 0.0) + within
    return found


def _away(sessions) -> float:
    """Seconds between sessions by the machine's clock; a clock that was set back counts nothing."""
    away = 0.0
    for before, after in zip(sessions, sessions[1:], strict=False):
        ended = [at for line in before if (at := numbers.finite(line.get("time"))) is not None]
        began = numbers.finite(after[0].get("time"))
        if ended and began is not None:
            away += max(0.0, began - ended[-1])
    return away


# --- on the page ------------------------------------------------------------------------------


def tracks(found: Goodput | None) -> figures.Tracks | None:
    """Where the wall time went as bars that follow one another: the last one ends at the wall."""
    if found is None:
        return None
    parts = {name: seconds for name, seconds in found.work.items() if seconds}
    parts |= {"lost to a kill": found.lost} if found.lost else {}
    parts |= {name: seconds for name, seconds in found.spent.items() if seconds}
    parts["all else"] = found.rest
    scale = figures.axis([100.0], zero=True)
    rows, begun = [], 0.0
    for name, seconds in parts.items():
        ended = begun + seconds
        bar = figures.Mark(
            "bar", scale.at(100 * begun / found.wall), scale.at(100 * ended / found.wall),
            "start" if name in WORK else "ink",
        )  # fmt: skip
        told = f"{_percent(seconds / found.wall)}, {numbers.seconds(seconds)}"
        rows.append(figures.Row(name, (bar,), told))
        begun = ended
    columns = ("What", "Share of wall time, one after the other", "Share, time")
    return figures.Tracks("Where the wall time went", columns, tuple(rows), scale.marked())


def sentence(found: Goodput | None) -> str:
    """Goodput in words; "" where there is none."""
    if found is None:
        return ""
    told = f"{_percent(found.share)} of {numbers.seconds(found.wall)}"
    if found.sessions == 1:
        return f"{told}, in one go."
    away = f", {numbers.seconds(found.away)} apart" if found.away else ""
    return f"{told}, in {found.sessions} sessions{away}."


def _percent(share: float) -> str:
    return "under 1 %" if 0 < share < 0.005 else f"{round(100 * share)} %"
