"""Numbers as a reader sees them: safe reading from JSON, intervals, and how many digits to show."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

NONE = "–"  # shown where a number is missing
LARGEST = 1e100  # beyond it lies a blow-up (and the overflow of an axis), not a figure to draw


def finite(value: Any) -> float | None:
    """A JSON value as a finite float; None for text, null, booleans, NaN and blow-ups."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) and abs(number) < LARGEST else None


def group(value: Any) -> dict:
    """A JSON value as an object; an empty one when it is anything else."""
    return value if isinstance(value, dict) else {}


def show(value: Any, digits: int = 2) -> str:
    """A number with `digits` decimals (or in powers of ten when it would read as zero)."""
    number = finite(value)
    if number is None:
        return NONE
    if number and abs(number) < 0.5 * 10**-digits:
        mantissa, exponent = f"{number:.1e}".split("e")
        return f"{mantissa}e{int(exponent)}".replace("-", "−")
    return f"{number:,.{digits}f}".replace("-", "−")


def signed(value: Any, digits: int = 2) -> str:
    """A difference: always with its sign."""
    number = finite(value)
    if number is None:
        return NONE
    return ("+" if number >= 0 else "") + show(number, digits)


def seconds(value: Any) -> str:
    """A length of time: 8.4 s below ten seconds, then 84 s, then 14 min 02 s."""
    number = finite(value)
    if number is None:
        return NONE
    if number < 10:
        return f"{number:.1f} s"
    if round(number) < 120:
        return f"{number:.0f} s"
    return f"{round(number) // 60} min {round(number) % 60:02d} s"


@dataclasses.dataclass(frozen=True)
class Interval:
    lo: float
    hi: float

    def __str__(self) -> str:
        return f"{show(self.lo)} to {show(self.hi)}"

    def meets(self, other: Interval) -> bool:
        return self.lo <= other.hi and other.lo <= self.hi


def interval(value: Any, mean: float | None = None) -> Interval | None:
    """A 95 % interval as a summary writes it: [lo, hi], {"lo", "hi"}, or a half-width about `mean`.

    None where it is missing or is none of these.
    """
    if isinstance(value, dict):
        value = [value.get("lo"), value.get("hi")]
    if isinstance(value, (list, tuple)) and len(value) == 2:
        lo, hi = finite(value[0]), finite(value[1])
        return None if lo is None or hi is None else Interval(min(lo, hi), max(lo, hi))
    half = finite(value)
    if half is None or mean is None:
        return None
    return Interval(mean - abs(half), mean + abs(half))
