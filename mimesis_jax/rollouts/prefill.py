"""What slots are fed at admission: in which order, which prompts once for several slots."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from mimesis_jax.rollouts import programs


@dataclasses.dataclass(frozen=True)
class Start:
    """A request that has just got its slot.

    slot; at: tokens in it. fresh: whatever is in it is another's. back: it stands on a branch.
    trunk, branch: ids to feed on the line and on the branch. private: there is a branch; mark: the
    line is marked before it (not where the slot stands on the branch already). begun: sampled
    tokens among them. shareable: slots of the same trunk may copy it.
    """

    slot: int
    at: int
    fresh: bool
    back: bool
    private: bool
    mark: bool
    begun: int
    shareable: bool
    trunk: list[int]
    branch: list[int]


@dataclasses.dataclass(frozen=True)
class Feed:
    """Ids for a slot that holds `at` tokens, and what happens to it before (see programs.Feed)."""

    slot: int
    at: int
    ids: list[int]
    fresh: bool = False
    back: bool = False
    mark: bool = False
    begun: int = -1

    def after(self, n: int) -> Feed:
        """What is left when the first n ids are fed."""
        return Feed(self.slot, self.at + n, self.ids[n:])


@dataclasses.dataclass(frozen=True)
class Stage:
    """Feeds, then copies (from slot, to slot)."""

    feeds: list[Feed]
    copies: list[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Stages in order. saved: tokens that were copied instead of computed."""

    stages: list[Stage]
    saved: int


def plan(starts: Sequence[Start], share: int, local: int | None = None) -> Plan:
    """Orders the feeding of slots that have just been given out.

    Equal prompts of new conversations are computed in one slot and copied. With share > 0 the
    beginning that different prompts have in common is too, if it has at least that many tokens.
    local: slots of each device (None: all are one's); prompts are copied on their device only.
    """
    if local is None:
        return _planned(starts, share)
    parts: dict[int, list[Start]] = {}
    for start in starts:
        parts.setdefault(start.slot // local, []).append(start)
    plans = [_planned(part, share) for part in parts.values()]
    # The devices do theirs at the same time: stages are laid beside one another, the last one last.
    longest = max(len(one.stages) for one in plans)
    stages = [Stage([], []) for _ in range(longest)]
    for one in plans:
        for stage, more in zip(stages[longest - len(one.stages) :], one.stages, strict=True):
            stage.feeds.extend(more.feeds)
            stage.copies.extend(more.copies)
    return Plan(stages, sum(one.saved for one in plans))


def _planned(starts: Sequence[Start], share: int) -> Plan:
    """`plan` of slots of one device."""
    leaders: dict[tuple[int, ...], Start] = {}
    copies: list[tuple[int, int]] = []
    fed: list[Start] = []
    saved = 0
    for start in starts:
        if not start.shareable or not start.trunk:
            fed.append(start)
            continue
        leader = leaders.setdefault(tuple(start.trunk), start)
        if leader is start:
            fed.append(start)
        else:
            copies.append((leader.slot, start.slot))
            saved += len(start.trunk)
    stages = []
    common = _common([leader.trunk for leader in leaders.values()]) if share else 0
    begun: set[int] = set()  # slots whose beginning is there already
    if share and len(leaders) > 1 and common >= share:
        first, *others = leaders.values()
        opening = _opening(first, first.trunk[:common])
        stages.append(Stage([opening], [(first.slot, other.slot) for other in others]))
        saved += common * len(others)
        begun = {leader.slot for leader in leaders.values()}
    trunks = [
        Feed(start.slot, common, start.trunk[common:]) if start.slot in begun
        else _opening(start, start.trunk)
        for start in fed
        if start.trunk or not start.private  # an empty trunk's marks ride on the branch
    ]  # fmt: skip
    stages.append(Stage([feed for feed in trunks if feed.ids or feed.begun >= 0], copies))
    branches = [_branch(start) for start in starts if start.private]
    if branches:
        stages.append(Stage(branches, []))
    return Plan(stages, saved)


def _opening(start: Start, ids: list[int]) -> Feed:
    return Feed(start.slot, start.at, ids, fresh=start.fresh, back=start.back, begun=start.begun)


def _branch(start: Start) -> Feed:
    alone = not start.trunk  # nothing was fed before that could have emptied or rolled back
    return Feed(
        start.slot, start.at + len(start.trunk), start.branch, fresh=alone and start.fresh,
        back=alone and start.back, mark=start.mark, begun=start.begun,
    )  # fmt: skip


def _common(runs: Sequence[list[int]]) -> int:
    """Length of the beginning that all runs share, at least one token short of the shortest."""
    if len(runs) < 2:
        return 0
    shared = len(os.path.commonprefix(list(runs)))
    return min(shared, min(len(run) for run in runs) - 1)


def nothing(rows: int, n: int) -> programs.Feed:
    """Arrays that feed nobody."""
    return arrays([], [], rows, n)


def arrays(feeds: Sequence[Feed], place: Sequence[int], rows: int, n: int) -> programs.Feed:
    """The first n ids of feeds as arrays of `rows` rows; place: the row of each feed."""
    tokens: Any = np.zeros((rows, n), np.int32)  # numpy here, traced arrays in the program
    count: Any = np.zeros(rows, np.int32)
    begun: Any = np.full(rows, -1, np.int32)
    flags: dict[str, Any] = {name: np.zeros(rows, bool) for name in ("fresh", "back", "mark")}
    for row, feed in zip(place, feeds, strict=True):
        piece = feed.ids[:n]
        count[row], begun[row] = len(piece), feed.begun
        tokens[row, : len(piece)] = piece
        for name, flag in flags.items():
            flag[row] = getattr(feed, name)
    return programs.Feed(tokens, count, begun=begun, **flags)
