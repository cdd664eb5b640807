"""Which slots a program computes: as few rows as hold them, on one device or on several."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

Pair = tuple[int, int]


def fitting(sizes: Sequence[int], wanted: int) -> int:
    """The first of ascending sizes that is at least `wanted`, else the last."""
    return next((size for size in sizes if size >= wanted), sizes[-1])


@dataclasses.dataclass(frozen=True)
class Rows:
    """R rows, those of the first device first.

    local: [R] int32, the number of a row's slot on its device (past its last: none). slots: [R],
    the slot's number among all (any where there is none). place: the row of each slot that was
    asked for. real: [R] bool, whether there is one. whole: all slots are computed, row r is slot r.
    """

    local: np.ndarray
    slots: np.ndarray
    place: list[int]
    real: np.ndarray
    whole: bool


@dataclasses.dataclass(frozen=True)
class Book:
    """groups: devices with slots of their own. local: slots of each; slot s is number s % local of
    device s // local. sizes: numbers of rows a device that are compiled, ascending, `local` last.
    """

    groups: int
    local: int
    sizes: tuple[int, ...]

    def of(self, chosen: Sequence[int]) -> Rows:
        """As few rows as hold these slots: each device computes what the fullest one needs."""
        fullest = max(np.bincount(np.asarray(chosen) // self.local))
        return self.choose(chosen, fitting(self.sizes, int(fullest)))

    def choose(self, chosen: Sequence[int], count: int) -> Rows:
        """`count` rows a device, at least as many as it has chosen slots."""
        whole = count == self.local
        found = np.full((self.groups, count), self.local, np.int32)
        place, used = [], [0] * self.groups
        for slot in chosen:
            device, number = divmod(slot, self.local)
            row = number if whole else used[device]
            used[device] += 1
            found[device, row] = number
            place.append(device * count + row)
        first = self.local * np.arange(self.groups)[:, None]
        among = np.minimum(found, self.local - 1) + first
        real = found < self.local
        return Rows(found.reshape(-1), among.reshape(-1), place, real.reshape(-1), whole)

    def copies(self, pairs: Sequence[Pair]) -> tuple[np.ndarray, np.ndarray, list[Pair]]:
        """Copies of slots, (from, to) on one device each, as rows: source and target [R] int32 (see
        programs.copy), and the pairs that had no room."""
        taken: list[list[Pair]] = [[] for _ in range(self.groups)]
        later: list[Pair] = []
        for pair in pairs:
            mine = taken[pair[0] // self.local]
            (mine if len(mine) < self.sizes[-1] else later).append(pair)
        count = fitting(self.sizes, max(map(len, taken)))
        source = np.zeros((self.groups, count), np.int32)
        target = np.full((self.groups, count), self.local, np.int32)
        for device, mine in enumerate(taken):
            for row, (a, b) in enumerate(mine):
                source[device, row], target[device, row] = a % self.local, b % self.local
        return source.reshape(-1), target.reshape(-1), later
