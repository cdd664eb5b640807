"""The order of one tree: only-child runs merged, forks depth first, slots as a stack, cuts.

A *run* is a chain of segments in which each has one child, laid down without padding between
them. After a fork the first child's run begins at the next chunk, or (`inside`) goes on where the
run before it ended, unless that one's chunk would have to keep two states. A *block* is a root with
its subtree (or the part of it that fits a row), laid out from offset 0; `pack` puts blocks into
rows.

At a fork the child that needs the most slots comes last, otherwise the smaller subtree first: a
node's state waits in a slot only until its last child has loaded it, so the slots in use are
the forks that are left through a child other than the last, and no order needs fewer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

ZERO = -2  # in `runs`: start from the zero state; `pack` writes the shape's own number for it


@dataclasses.dataclass(frozen=True)
class Block:
    """Part of one tree, laid out from offset 0 in tokens; a weightless copy scores nothing.

    segments: [n, 6] int64, a segment a row, in the order laid down: its index in the tree, its
      first token's offset, its depth on the path, the end of its subtree, the offset of the token
      before it on its path (-1 none), whether it is scored here.
    runs: [r, 6] int64, a run a row: its first token's offset, its first chunk, load (-1 carry on,
      ZERO, or a slot), last chunk, store (-1 none, or a slot), tokens of that chunk before the
      state that is kept.
    length: tokens with padding. learned: tokens scored here. pairs: (token, token it sees) pairs.
    slots: state slots needed.
    """

    segments: np.ndarray
    runs: np.ndarray
    length: int
    learned: int
    pairs: int
    slots: int


@dataclasses.dataclass
class Sizes:
    """What is known of each segment's subtree before the order is fixed (keys: segments).

    only: the only child. kids: children at a fork, in order (of the last segment of the run).
    run: tokens from here to the end of the run, which is `tail`. size: padded tokens of the subtree
    if a run starts here, at a chunk's first token. need: slots.
    """

    chunk: int
    inside: bool

    only: dict[int, int]
    kids: dict[int, list[int]]
    run: dict[int, int]
    tail: dict[int, int]
    size: dict[int, int]
    need: dict[int, int]

    def up(self, place: int) -> int:
        """The next chunk's beginning, or the place itself where it is one."""
        return -(-place // self.chunk) * self.chunk

    def first(self, child: int, end: int) -> int:
        """Where the first child of a run that ends before `end` begins."""
        begin = self.up(end)
        if not self.inside or begin == end:
            return begin
        again = (end + self.run[child] - 1) // self.chunk == (end - 1) // self.chunk
        return begin if again and self.tail[child] in self.kids else end

    def end(self, head: int, start: int) -> int:
        """The end, with padding, of the subtree of a run that begins at `start`."""
        more = 0
        while True:
            end, tail = start + self.run[head], self.tail[head]
            if tail not in self.kids:
                return self.up(end) + more
            head, *others = self.kids[tail]
            more += sum(self.size[k] for k in others)
            start = self.first(head, end)


def measure(
    lengths: Sequence[int],
    parents: Sequence[int],
    members: Sequence[int],
    chunk: int,
    inside: bool = False,
) -> Sizes:
    """Sizes of the subtree made of `members` (ascending, closed under parents, one root)."""
    children: dict[int, list[int]] = {i: [] for i in members}
    for i in members[1:]:
        children[parents[i]].append(i)
    sizes = Sizes(chunk, inside, {}, {}, {}, {}, {}, {})
    run, tail, size, need = sizes.run, sizes.tail, sizes.size, sizes.need
    for i in reversed(members):
        below = children[i]
        if len(below) == 1:
            child = below[0]
            sizes.only[i] = child
            run[i], tail[i] = lengths[i] + run[child], tail[child]
            need[i] = need[child]
        else:
            run[i], tail[i] = lengths[i], i
            need[i] = 0
            if below:
                below.sort(key=lambda k: (need[k], size[k], k))
                sizes.kids[i] = below
                need[i] = max(1 + need[below[-2]], need[below[-1]])
        size[i] = sizes.end(i, 0)
    return sizes


def layout(
    lengths: Sequence[int],
    parents: Sequence[int],
    scored: Sequence[int],
    members: Sequence[int],
    own: set[int] | None,
    chunk: int,
    inside: bool = False,
) -> Block:
    """Lay the subtree made of `members` out as a Block.

    lengths, parents, scored: per segment of the tree, tokens, parent and scored tokens.
    members: as for `measure`. own: the members scored here (None: all), the rest are copies.
    """
    sizes = measure(lengths, parents, members, chunk, inside)
    segments: list[tuple[int, int, int, int, int, int]] = []
    runs: list[tuple[int, int, int, int, int, int]] = []
    learned = pairs = cursor = 0
    todo = [(members[0], -1, 0, ZERO, 0)]  # head of a run, token before, depth, load, slots in use
    while todo:
        i, before, depth, load, level = todo.pop()
        start, end = cursor, sizes.end(i, cursor)
        pairs += sizes.run[i] * depth + sizes.run[i] * (sizes.run[i] + 1) // 2
        while True:
            mine = own is None or i in own
            learned += scored[i] if mine else 0
            segments.append((i, cursor, depth, end, before, mine))
            cursor += lengths[i]
            depth += lengths[i]
            before = cursor - 1
            if i not in sizes.only:
                break
            i = sizes.only[i]
        kids = sizes.kids.get(i)
        last = (cursor - 1) // chunk
        kept = level if kids else -1
        runs.append((start, start // chunk, load, last, kept, cursor - last * chunk))
        cursor = sizes.first(kids[0], cursor) if kids else sizes.up(cursor)
        if kids:
            # The last child frees the slot by loading it; the first just carries on.
            todo.append((kids[-1], before, depth, level, level))
            todo.extend((k, before, depth, level, level + 1) for k in kids[-2:0:-1])
            todo.append((kids[0], before, depth, -1, level + 1))
    return Block(
        np.array(segments, np.int64),
        np.array(runs, np.int64),
        cursor,
        learned,
        pairs,
        sizes.need[members[0]],
    )


def cuts(
    lengths: Sequence[int],
    parents: Sequence[int],
    scored: Sequence[int],
    whole: Block,
    room: int,
    learned: int,
    chunk: int,
    inside: bool = False,
) -> Iterator[tuple[list[int], set[int]]]:
    """Parts of a block that is too big, as (members, those scored there), filled in its order.

    Each part starts with copies of the ancestors it needs. The caller has made sure that a single
    path fits `room` tokens and a single segment `learned` scored ones.
    """
    part: set[int] = set()
    own: set[int] = set()
    bound = count = 0  # bound: padded tokens without merging; exact sizes only when it is too big
    for i in whole.segments[:, 0].tolist():
        new = [i]
        while parents[new[-1]] >= 0 and parents[new[-1]] not in part:
            new.append(parents[new[-1]])
        more = bound + sum(-(-lengths[k] // chunk) * chunk for k in new)
        fits = count + scored[i] <= learned
        if fits and more > room:
            members = sorted(part.union(new))
            fits = measure(lengths, parents, members, chunk, inside).size[members[0]] <= room
        if not fits:
            yield sorted(part), own
            new = [i]
            while parents[new[-1]] >= 0:
                new.append(parents[new[-1]])
            part, own, count = set(), set(), 0
            more = sum(-(-lengths[k] // chunk) * chunk for k in new)
        part.update(new)
        own.add(i)
        count += scored[i]
        bound = more
    yield sorted(part), own
