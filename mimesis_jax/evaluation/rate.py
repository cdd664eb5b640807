"""A share of things counted: how many, of how many."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator


@dataclasses.dataclass(frozen=True)
class Rate:
    """`part` of `whole`; counts, so rates of two sets of dialogues add."""

    part: int
    whole: int

    def __add__(self, other: Rate) -> Rate:
        return Rate(self.part + other.part, self.whole + other.whole)

    def value(self) -> float:
        """The share in [0, 1], 0 where nothing was counted (`whole` tells)."""
        return self.part / self.whole if self.whole else 0.0

    def named(self, name: str) -> Iterator[tuple[str, float]]:
        """(name, share) and (name/of, how many were counted)."""
        yield name, self.value()
        yield f"{name}/of", float(self.whole)
