"""Prompts that several trees begin with, computed once: the G copies of a goal as one tree.

Trees that begin with the same unscored tokens (a system brief, a task) are joined below one root
that holds these tokens, as many of them as fit a row together. Nothing else about them changes: a
segment's path has the same tokens, so its log-probs and its share of a loss are the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from mimesis_jax import types
from mimesis_jax.forest import order, tree
from mimesis_jax.forest.shape import Shape

ARRAYS = ("ids", "scored", *tree.COLUMNS)


@dataclasses.dataclass(frozen=True)
class Shared:
    """trees: what to pack. numbers: [n_scored] int64, for each scored token of `trees` in order its
    number among those of the trees given; names: of each tree, those of its members joined."""

    trees: list[types.Tree]
    numbers: np.ndarray
    names: list[str]


@dataclasses.dataclass(frozen=True)
class _Member:
    """A tree without its first `cut` tokens: number, segments (parent -1: below the shared root),
    padded tokens and scored tokens."""

    number: int
    parts: tuple[types.Segment, ...]
    size: int
    learned: int


def join(trees: Sequence[types.Tree], shape: Shape, names: Sequence[str]) -> Shared:
    """Trees with a common beginning, joined where that saves padded tokens and the row allows it.

    A joined tree fits a row (tokens, scored tokens, slots); what gains nothing stays as it is. The
    trees are taken to be sound (`tree.check`).
    """
    counts = [tree.scored_count([one]) for one in trees]
    first = np.cumsum([0, *counts])
    leads = [lead(one) for one in trees]
    numbered = sorted(range(len(trees)), key=lambda i: (leads[i].tolist(), i))
    bins: dict[int, tuple[types.Tree, list[int]]] = {}  # by the first member's number
    for group, common in _groups([leads[i] for i in numbered], shape.chunk):
        members = [numbered[k] for k in group]
        for joined, inside in _joined(trees, members, common, shape):
            bins[inside[0]] = (joined, inside)
    taken = {i for _, inside in bins.values() for i in inside}
    for i in range(len(trees)):
        if i not in taken:
            bins[i] = (tuple(trees[i]), [i])
    listed = [bins[i] for i in sorted(bins)]
    parts = [first[i] + np.arange(counts[i]) for _, inside in listed for i in inside]
    return Shared(
        [one for one, _ in listed],
        np.concatenate([np.zeros(0, np.int64), *parts]),
        [" with ".join(names[i] for i in inside) for _, inside in listed],
    )


def lead(one: types.Tree) -> np.ndarray:
    """[n] int32: the unscored tokens that a tree begins with, up to its first fork or scored token.

    Empty where it has several roots.
    """
    empty = np.zeros(0, np.int32)
    if sum(part.parent < 0 for part in one) != 1:
        return empty
    ids, i = [empty], 0
    while True:
        marks = np.flatnonzero(one[i].scored)
        ids.append(one[i].ids[: int(marks[0])] if len(marks) else one[i].ids)
        below = [k for k in range(i + 1, len(one)) if one[k].parent == i]
        if len(marks) or len(below) != 1:
            return np.concatenate(ids)
        i = below[0]


def _groups(leads: Sequence[np.ndarray], chunk: int) -> list[tuple[range, int]]:
    """Runs of the sorted leads worth joining, with the tokens each has in common.

    A run is joined as a whole, or split where its members have least in common, whichever leaves
    out more tokens.
    """
    near = [_common(a, b) for a, b in zip(leads, leads[1:], strict=False)]

    def best(lo: int, hi: int) -> tuple[int, list[tuple[range, int]]]:
        """Tokens saved in leads[lo:hi], and the runs."""
        if hi - lo < 2:
            return 0, []
        least = min(near[lo : hi - 1])
        whole = (hi - lo - 1) * least if least >= chunk else 0
        cuts = [lo, *(k + 1 for k in range(lo, hi - 1) if near[k] == least), hi]
        apart = [best(a, b) for a, b in zip(cuts, cuts[1:], strict=False)]
        saved = sum(value for value, _ in apart)
        if whole >= saved:
            return whole, [(range(lo, hi), least)] if whole else []
        return saved, [run for _, runs in apart for run in runs]

    return best(0, len(leads))[1]


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """How many tokens two leads begin with in common."""
    size = min(len(a), len(b))
    differ = np.flatnonzero(a[:size] != b[:size])
    return int(differ[0]) if len(differ) else size


def _joined(trees, members: list[int], common: int, shape: Shape):
    """The group's trees (tree, numbers of its members in order), as few as their rows allow.

    Cuts the common tokens at a whole number of chunks or takes all of them, whichever leaves less
    to compute; yields nothing where neither is less than the trees apart.
    """
    chunk = shape.chunk
    alone = sum(_padded(trees[i], shape) for i in members)
    options = []
    for cut in {common, common // chunk * chunk}:
        cutters = [_without(trees[i], i, cut, shape) for i in members]
        bins = _bins(cutters, -(-cut // chunk) * chunk, shape)
        size = len(bins) * -(-cut // chunk) * chunk + sum(m.size for row in bins for m in row)
        options.append((size, cut, bins))
    size, cut, bins = min(options, key=lambda option: option[:2])
    if size >= alone:
        return []
    found = []
    for row in bins:
        row = sorted(row, key=lambda member: member.number)
        inside = [member.number for member in row]
        if len(row) == 1:
            continue
        joined = _assembled(trees[inside[0]], cut, row)
        if _slots(joined, shape) <= shape.slots:
            found.append((joined, inside))
    return found


def _bins(members: Sequence[_Member], root: int, shape: Shape) -> list[list[_Member]]:
    """Members by row, best fit by decreasing size beside one copy of the root each."""
    bins: list[list[_Member]] = []
    for member in sorted(members, key=lambda m: (-m.size, m.number)):
        fits = [
            (shape.length - root - sum(m.size for m in row), k)
            for k, row in enumerate(bins)
            if root + sum(m.size for m in row) + member.size <= shape.length
            and sum(m.learned for m in row) + member.learned <= shape.learned
        ]
        if fits:
            bins[min(fits)[1]].append(member)
        else:
            bins.append([member])
    return bins


def _without(one: types.Tree, number: int, cut: int, shape: Shape) -> _Member:
    """A tree without the first `cut` tokens of its lead; what hung on them has parent -1.

    The segments of a lead come first: each is the only child, so no other can come before it.
    """
    parts: list[types.Segment] = []
    moved = {-1: -1}
    for i, part in enumerate(one):
        parent = moved[part.parent]
        gone = min(cut, len(part)) if cut else 0
        cut -= gone
        if gone == len(part):
            moved[i] = parent
            continue
        arrays = {name: getattr(part, name)[gone:] for name in ARRAYS}
        moved[i] = len(parts)
        parts.append(dataclasses.replace(part, parent=parent, **arrays))  # type: ignore[arg-type]
    size = _padded(parts, shape)
    return _Member(number, tuple(parts), size, tree.scored_count([tuple(parts)]))


def _padded(parts: Sequence[types.Segment], shape: Shape) -> int:
    """Padded tokens of the segments laid down by themselves."""
    return sum(
        order.measure(lengths, parents, group, shape.chunk, shape.inside).size[group[0]]
        for lengths, parents, group in _families(parts)
    )


def _slots(one: types.Tree, shape: Shape) -> int:
    return max(
        order.measure(lengths, parents, group, shape.chunk, shape.inside).need[group[0]]
        for lengths, parents, group in _families(one)
    )


def _families(parts: Sequence[types.Segment]):
    """(lengths, parents, members) of each root's subtree, as order.measure takes them."""
    lengths = [len(part) for part in parts]
    parents = [part.parent for part in parts]
    root: list[int] = []
    members: dict[int, list[int]] = {}
    for i, parent in enumerate(parents):
        root.append(i if parent < 0 else root[parent])
        members.setdefault(root[i], []).append(i)
    return [(lengths, parents, group) for group in members.values()]


def _assembled(model: types.Tree, cut: int, row: Sequence[_Member]) -> types.Tree:
    """The shared root (the first `cut` tokens of `model`) with the members below it."""
    ids = np.concatenate([part.ids for part in model])[:cut]
    parts = [types.segment(ids, turn=model[0].turn, kind=model[0].kind)]
    for member in row:
        start = len(parts)
        parts += [
            dataclasses.replace(part, parent=0 if part.parent < 0 else part.parent + start)
            for part in member.parts
        ]
    return tuple(parts)
