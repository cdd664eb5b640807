"""Figures as data: axes, tracks (rows of marks on one axis) and panels (curves with bands).

Every position is a percentage of its figure, so the page can draw lines in a stretched SVG and set
all text as ordinary HTML, which stays readable at any width.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

from mimesis_jax.report import numbers


@dataclasses.dataclass(frozen=True)
class Tick:
    at: float  # percent
    text: str


@dataclasses.dataclass(frozen=True)
class Axis:
    """A linear scale from `lo` to `hi`; `ticks` are values."""

    lo: float
    hi: float
    ticks: tuple[float, ...]

    def at(self, value: float) -> float:
        """Position in percent, held inside the figure."""
        share = (value - self.lo) / (self.hi - self.lo)
        return round(100 * min(1.0, max(0.0, share)), 2)

    def marked(self) -> tuple[Tick, ...]:
        step = self.ticks[1] - self.ticks[0] if len(self.ticks) > 1 else 1.0
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        if any(abs(t * 10**digits - round(t * 10**digits)) > 1e-6 for t in self.ticks):
            digits += 1  # steps of 0.25 need the second decimal
        large = max(map(abs, self.ticks)) >= 1e6
        form = ".3g" if large or digits > 5 else f",.{digits}f"
        plain = [f"{t + 0.0:{form}}".replace("-", "−") for t in self.ticks]
        return tuple(Tick(self.at(t), text) for t, text in zip(self.ticks, plain, strict=True))


def axis(values: Sequence[float], *, zero: bool = False, about: int = 4) -> Axis:
    """An axis with round ticks (1, 2, 2.5 or 5 times a power of ten) that covers `values`.

    zero: the axis must hold 0 (bars). about: how many steps to aim for.
    """
    held = list(values) + ([0.0] if zero else [])
    lo, hi = (min(held), max(held)) if held else (0.0, 1.0)
    if hi - lo < 1e-9 * max(1.0, abs(hi)):
        pad = abs(hi) * 0.5 or 1.0
        lo, hi = (min(lo, 0.0), hi + pad) if lo >= 0 else (lo - pad, hi + pad)
    rough = (hi - lo) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough * (1 - 1e-9))
    first, last = math.floor(lo / step + 1e-9), math.ceil(hi / step - 1e-9)
    return Axis(first * step, last * step, tuple(n * step for n in range(first, last + 1)))


UNIT = Axis(0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0))  # shares and success


# --- tracks -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Mark:
    """bar and span run from `a` to `b`; dot, ring and rule stand at `a`. tone: a colour class."""

    kind: Literal["bar", "span", "dot", "ring", "rule"]
    a: float
    b: float = 0.0
    tone: str = "ink"


@dataclasses.dataclass(frozen=True)
class Row:
    label: str
    marks: tuple[Mark, ...]
    value: str
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Tracks:
    """Rows of marks on one axis; `columns` names the label, the axis and the value column."""

    caption: str
    columns: tuple[str, str, str]
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]


# --- panels -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    y: float
    lo: float | None = None
    hi: float | None = None


@dataclasses.dataclass(frozen=True)
class Line:
    """A drawn series: SVG path data in a 100 x 100 box, y downwards. first, last: as drawn."""

    name: str
    tone: str
    path: str
    band: str
    dots: str
    first: float
    last: float


@dataclasses.dataclass(frozen=True)
class Panel:
    title: str
    lines: tuple[Line, ...]
    x: tuple[Tick, ...]
    y: tuple[Tick, ...]
    says: str  # what the figure shows, in words
    window: int  # the steps that each drawn point averages


WIDEST = 400  # points drawn per line


def smooth(points: Sequence[Point], window: int) -> list[Point]:
    """Centred moving mean over `window` points (fewer at the ends) of the value and its band."""
    half = window // 2
    out = []
    for i, point in enumerate(points):
        near = points[max(0, i - half) : i + half + 1]
        los = [p.lo for p in near if p.lo is not None]
        his = [p.hi for p in near if p.hi is not None]
        banded = len(los) == len(his) == len(near)
        out.append(
            Point(
                point.x,
                sum(p.y for p in near) / len(near),
                sum(los) / len(los) if banded else None,
                sum(his) / len(his) if banded else None,
            )
        )
    return out


def panel(
    title: str,
    series: Sequence[tuple[str, str, Sequence[Point]]],
    *,
    y: Axis | None = None,
    dots: bool = False,
    digits: int = 2,
) -> Panel | None:
    """Curves on shared axes; None where no series has a point.

    series: (name, tone, points by rising x). Lines of a dozen points and more are drawn as a moving
    mean over 5 points (a twentieth of the line when it is longer than 100); `dots` shows each one.
    """
    held = [(name, tone, list(points)) for name, tone, points in series if points]
    if not held:
        return None
    longest = max(len(points) for _, _, points in held)
    window = 1 if longest < 12 else max(5, longest // 20 | 1)
    drawn = [(name, tone, points, smooth(points, window)) for name, tone, points in held]
    x = axis([p.x for _, _, points in held for p in points])
    # The data fill the width: an axis rounded outwards would leave a third of a short run empty.
    left = min(p.x for _, _, points in held for p in points)
    right = max(p.x for _, _, points in held for p in points)
    if right > left:
        x = Axis(left, right, tuple(t for t in x.ticks if left <= t <= right) or (left, right))
    if y is None:
        y = axis(
            [v for _, _, _, line in drawn for p in line for v in (p.y, p.lo, p.hi) if v is not None]
        )
    lines = tuple(
        _line(name, tone, points if dots and longest <= 120 else [], line, x, y)
        for name, tone, points, line in drawn
    )
    says = "; ".join(
        f"{line.name} from {numbers.show(line.first, digits)} to {numbers.show(line.last, digits)}"
        for line in lines
    )
    flipped = tuple(Tick(round(100 - tick.at, 2), tick.text) for tick in y.marked())
    return Panel(title, lines, x.marked(), flipped, f"{title}, first to last step: {says}.", window)


def _line(name, tone, raw, line, x: Axis, y: Axis) -> Line:
    kept = line[:: max(1, math.ceil(len(line) / WIDEST))]
    if kept[-1] is not line[-1]:
        kept.append(line[-1])
    place = lambda px, py: f"{x.at(px):g} {round(100 - y.at(py), 2):g}"
    path = "M" + "L".join(place(p.x, p.y) for p in kept)
    if len(kept) == 1:
        path += "h0"  # a round cap makes it a dot
    banded = [p for p in kept if p.lo is not None and p.hi is not None]
    band = ""
    if len(banded) > 1:
        there = [place(p.x, p.hi) for p in banded]
        back = [place(p.x, p.lo) for p in reversed(banded)]
        band = "M" + "L".join(there + back) + "Z"
    dots = "".join(f"M{place(p.x, p.y)}h0" for p in raw)
    return Line(name, tone, path, band, dots, line[0].y, line[-1].y)
