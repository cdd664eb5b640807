"""Trees as lists of scored tokens: count them, read and write their columns, expand one path.

Scored tokens are numbered the same way everywhere: trees in order, segments in order, scored
tokens in order. Everything here is plain numpy on the host.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from mimesis_jax.types import Tree, segment

COLUMNS = ("weight", "old_logp", "advantage", "gate", "coached")


def smallest() -> Tree:
    """A tree of one token that is learned after one that is not."""
    return (segment(np.ones(2, np.int32), scored=[False, True]),)


def scored_count(trees: Sequence[Tree]) -> int:
    """How many tokens of the trees are scored."""
    return sum(int(np.count_nonzero(part.scored)) for tree in trees for part in tree)


def column(trees: Sequence[Tree], name: str) -> np.ndarray:
    """A per-token column at the scored tokens: [n_scored], in their order.

    name: one of COLUMNS (float32), "ids" (int32) or "turn" (int64, the segment's turn).
    Raises ValueError for another name.
    """
    if name not in (*COLUMNS, "ids", "turn"):
        raise ValueError(f"no column {name!r}: use one of {', '.join(COLUMNS)}, ids, turn")
    parts = [part for tree in trees for part in tree]
    if name == "turn":
        counts = [int(np.count_nonzero(part.scored)) for part in parts]
        return np.repeat(np.array([part.turn for part in parts], np.int64), counts)
    values = [getattr(part, name)[part.scored] for part in parts]
    return np.concatenate(values) if values else np.zeros(0, np.float32)


def carry(trees: Sequence[Tree], **columns: np.ndarray) -> list[Tree]:
    """Write per-scored-token columns back into the segments; the trees given stay as they are.

    columns: name -> [n_scored] values in the order of `column`; names are those of COLUMNS.
    Unscored tokens keep what they had. Raises ValueError for an unknown name or a wrong length.
    """
    count = scored_count(trees)
    for name, values in columns.items():
        if name not in COLUMNS:
            raise ValueError(f"no column {name!r} to write: use one of {', '.join(COLUMNS)}")
        if np.shape(values) != (count,):
            raise ValueError(
                f"column {name} has shape {np.shape(values)}, the trees have {count} scored tokens:"
                f" give one value a scored token, shape ({count},)"
            )
    arrays = [(name, np.asarray(values, np.float32)) for name, values in columns.items()]
    written, at = [], 0
    for tree in trees:
        segments = []
        for part in tree:
            end = at + int(np.count_nonzero(part.scored))
            if end > at:
                new = {n: _placed(getattr(part, n), part.scored, v[at:end]) for n, v in arrays}
                part = dataclasses.replace(part, **new)  # type: ignore[arg-type]
            segments.append(part)
            at = end
        written.append(tuple(segments))
    return written


def _placed(old: np.ndarray, scored: np.ndarray, values: np.ndarray) -> np.ndarray:
    new = old.copy()
    new[scored] = values
    return new


@dataclasses.dataclass(frozen=True)
class Path:
    """One segment with its whole context, as a trainer without a forest would run it.

    ids: [n] int32, the segment's ancestors from the root down, then its own tokens.
    scored: [k] int64, the places in `ids` of the segment's own scored tokens (all > 0).
    """

    ids: np.ndarray
    scored: np.ndarray


def ancestry(tree: Tree, i: int) -> list[int]:
    """Indices of the segments on the path of segment i, root first, i last."""
    chain = [i]
    while tree[chain[-1]].parent >= 0:
        chain.append(tree[chain[-1]].parent)
    return chain[::-1]


def path(tree: Tree, i: int) -> Path:
    """The naive expansion of segment i: what the forest must agree with.

    Running every segment's path and reading the log-probs at `scored` gives the scored tokens in
    their order.
    """
    chain = ancestry(tree, i)
    ids = np.concatenate([tree[k].ids for k in chain])
    return Path(ids, len(ids) - len(tree[i]) + np.flatnonzero(tree[i].scored))


def check(tree: Tree, name: str = "tree 0") -> None:
    """Raise ValueError, calling the tree `name` and naming the turn, where it cannot be trained."""
    for i, part in enumerate(tree):
        where = f"{name}, segment {i} (turn {part.turn})"
        if len(part.ids) == 0:
            raise ValueError(f"{where} is empty (0 tokens, 1 needed): leave the segment out")
        if not -1 <= part.parent < i:
            raise ValueError(
                f"{where} has parent {part.parent}, the limit is {i - 1}: parents come before"
                " their children, and a root has parent -1"
            )
        if part.parent < 0 and part.scored[0]:
            raise ValueError(
                f"{where} is a root whose first token is scored, but nothing predicts it:"
                " start the root with an unscored token"
            )
