"""Packing: trees of segments into forests, micro-batches of one fixed shape, and back.

    packed = pack.pack(trees, pack.Shape(rows=16, length=384, chunk=16, learned=192, slots=2))
    logp   = [score(params, forest) for forest in packed.forests]     # each [B, M]
    per_token = pack.gather(logp, packed)                             # [n_scored]

Plain numpy, deterministic. The order inside a tree is in `order`, the arrays in types.Forest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from mimesis_jax.forest import blocks as lists
from mimesis_jax.forest import fill, order, rows, share, tree
from mimesis_jax.forest.shape import Shape
from mimesis_jax.types import Forest, Tree


@dataclasses.dataclass(frozen=True)
class Packed:
    """Micro-batches of one shape, and where their learned tokens came from.

    forests: each [B, T] with M learned tokens a row (host numpy arrays).
    origin: for each forest, [B, M] int64: number of the scored token (trees in order, segments in
      order, scored tokens in order), -1 on padding. A bijection onto the scored tokens.
    """

    forests: list[Forest]
    origin: list[np.ndarray]


@dataclasses.dataclass(frozen=True)
class Plan:
    """What goes where, before any array is written.

    trees: what is packed (joined, where prompts are shared), names: what errors call each.
    numbers: [n_scored] for each scored token of `trees` its number among those given, or None
      where they are the same.
    placed: blocks, each with the number of its tree's first segment among all segments.
    rows: block numbers of each row, in order; a multiple of B rows.
    """

    trees: Sequence[Tree]
    names: Sequence[str]
    numbers: np.ndarray | None
    placed: list[tuple[int, order.Block]]
    rows: list[list[int]]


def plan(
    trees: Sequence[Tree],
    shape: Shape,
    *,
    names: Sequence[str] | None = None,
    shared: bool = False,
) -> Plan:
    """Cut, join and place the trees; arguments and errors are those of `pack`.

    Joined trees are larger, so they may fit rows worse: where they need more rows than the trees
    apart, nothing is shared.
    """
    called = [f"tree {number}" for number in range(len(trees))] if names is None else list(names)
    if len(called) != len(trees):
        raise ValueError(f"{len(called)} names for {len(trees)} trees: give one each")
    apart = _placed(trees, called, None, shape)
    if not shared:
        return apart
    joined = share.join(trees, shape, called)
    if len(joined.trees) == len(trees):
        return apart
    together = _placed(joined.trees, joined.names, joined.numbers, shape)
    return together if len(together.rows) <= len(apart.rows) else apart


def _placed(trees, names, numbers, shape: Shape) -> Plan:
    placed: list[tuple[int, order.Block]] = []
    first = 0
    for one, name in zip(trees, names, strict=True):
        placed.extend((first, block) for block in blocks(one, shape, name))
        first += len(one)
    chosen = rows.assign([block for _, block in placed], shape) if placed else []
    return Plan(trees, names, numbers, placed, chosen)


def pack(
    trees: Sequence[Tree],
    shape: Shape,
    *,
    names: Sequence[str] | None = None,
    shared: bool = False,
) -> Packed:
    """Pack trees into as many micro-batches of exactly `shape` as they need.

    A tree bigger than a row is cut: the parts begin with copies of their ancestors that score
    nothing.
    names: what errors call each tree, for example its episode ("tree 0", "tree 1", ... when None).
    shared: trees that begin with the same unscored tokens (the copies of a goal) compute them once
      a row, see `share` and `plan`; `origin` still numbers the scored tokens of `trees` as given.

    Raises ValueError, naming tree and turn, for an empty segment, a child before its parent, a
    scored root token, a path longer than a row, a segment with more scored tokens than a row has
    room for, and a tree that nests its forks deeper than there are slots.
    """
    made = plan(trees, shape, names=names, shared=shared)
    if not made.placed:
        return Packed([], [])
    parts = [part for one in made.trees for part in one]
    forests, origin = fill.arrays(parts, made.placed, made.rows, shape)
    if shape.long:
        forests = [lists.plan(forest, size=shape.block, kernel=shape.kernel) for forest in forests]
    numbers = made.numbers
    if numbers is not None and len(numbers):
        origin = [np.where(o == fill.NONE, fill.NONE, numbers[o]) for o in origin]
    return Packed(forests, origin)


def gather(values: Sequence[Any], packed: Packed) -> np.ndarray:
    """Per-learned-token results, one [B, M] array a forest, as [n_scored] in scored-token order."""
    if len(values) != len(packed.origin):
        raise ValueError(f"{len(values)} arrays for {len(packed.origin)} forests: give one each")
    if not packed.origin:
        return np.zeros(0, np.float32)
    origin = np.concatenate([o.ravel() for o in packed.origin])
    flat = np.concatenate([np.asarray(v).reshape(-1) for v in values])
    real = origin != fill.NONE
    out = np.zeros(int(real.sum()), flat.dtype)
    out[origin[real]] = flat[real]
    return out


def blocks(one: Tree, shape: Shape, name: str = "tree 0") -> list[order.Block]:
    """A tree's blocks, one for each root, or several where it had to be cut for `shape`.

    `length` and `learned` of a Block say how much of a row it takes. `name`: what errors
    call the tree (see `pack`).
    """
    tree.check(one, name)
    lengths = [len(part.ids) for part in one]
    parents = [part.parent for part in one]
    scored = [int(np.count_nonzero(part.scored)) for part in one]
    members: dict[int, list[int]] = {}
    roots: list[int] = []
    for i, parent in enumerate(parents):
        roots.append(i if parent < 0 else roots[parent])
        members.setdefault(roots[i], []).append(i)
    found = []
    for group in members.values():
        block = order.layout(lengths, parents, scored, group, None, shape.chunk, shape.inside)
        if block.length <= shape.length and block.learned <= shape.learned:
            found.append(block)
            continue
        _limits(one, group, lengths, scored, shape, name)
        found.extend(
            order.layout(lengths, parents, scored, part, own, shape.chunk, shape.inside)
            for part, own in order.cuts(
                lengths,
                parents,
                scored,
                block,
                shape.length,
                shape.learned,
                shape.chunk,
                shape.inside,
            )
        )
    for block in found:
        if block.slots > shape.slots:
            raise ValueError(
                f"{name} nests its forks so that {block.slots} state slots are needed, the"
                f" shape has {shape.slots}: raise slots to {block.slots}, or fork less deeply"
            )
    return found


def _limits(one, group, lengths, scored, shape: Shape, name: str) -> None:
    """Raise where cutting cannot help: a path longer than a row, a segment scoring too much."""
    depth: dict[int, int] = {}
    for i in group:
        depth[i] = depth.get(one[i].parent, 0) + lengths[i]
        if depth[i] > shape.length:
            raise ValueError(
                f"{name}, turn {one[i].turn}: the path to the end of segment {i} is"
                f" {depth[i]} tokens long (the segment itself {lengths[i]}), a row has"
                f" {shape.length}: raise length to {-(-depth[i] // shape.chunk) * shape.chunk} or"
                " leave earlier turns out"
            )
        if scored[i] > shape.learned:
            raise ValueError(
                f"{name}, turn {one[i].turn}: segment {i} scores {scored[i]} tokens, a row"
                f" takes {shape.learned}: raise learned to {scored[i]} or split the segment"
            )
