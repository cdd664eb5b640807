"""Whether CSD's gate tells replies that follow the coach's note from replies that ignore it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mimesis_jax import types
from mimesis_jax.evaluation import statistics

Turns = Mapping[int, float]


def by_turn(trees: Sequence[types.Tree]) -> list[dict[int, float]]:
    """Per tree {turn: mean gate over the turn's coached tokens}, for trees with gates on them."""
    found = []
    for tree in trees:
        sums: dict[int, list[float]] = {}
        for segment in tree:
            sums.setdefault(segment.turn, []).extend(segment.gate[segment.coached > 0].tolist())
        found.append({turn: float(np.mean(gates)) for turn, gates in sums.items() if gates})
    return found


def separation(gates: Sequence[Turns], follows: Sequence[Mapping[int, bool]]) -> float:
    """AUC of the gate between replies that follow their note (True) and those that do not.

    gates: per episode {turn: gate}. follows: per episode {turn: whether}; turns that are not in
    both are left out. Not a number where one kind has no reply.
    """
    both = [(gate[t], kind[t]) for gate, kind in zip(gates, follows, strict=True)
            for t in gate if t in kind]  # fmt: skip
    kinds = [kind for _, kind in both]
    if all(kinds) or not any(kinds):
        return float("nan")
    return statistics.auc([gate for gate, _ in both], kinds)


def separation_within(
    gates: Sequence[Turns],
    follows: Sequence[Mapping[int, bool]],
    groups: Sequence[Mapping[int, str]],
) -> float:
    """`separation` of replies of one group only, a mean over groups by their pairs of replies.

    Any note moves the gate of some kinds of reply more than of others, and which kind a reply is
    says something about whether it follows its note; so even a note that knows nothing may seem to
    separate. groups: per episode {turn: kind of reply}. Not a number where no group has both.
    """
    found: dict[str, list[tuple[float, bool]]] = {}
    for gate, kind, group in zip(gates, follows, groups, strict=True):
        for turn in gate.keys() & kind.keys() & group.keys():
            found.setdefault(group[turn], []).append((gate[turn], kind[turn]))
    total, weight = 0.0, 0
    for pairs in found.values():
        scores, kinds = zip(*pairs, strict=True)
        if count := sum(kinds) * (len(kinds) - sum(kinds)):
            total += count * statistics.auc(scores, kinds)
            weight += count
    return total / weight if weight else float("nan")
