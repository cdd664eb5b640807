"""The three forms that a batch of dialogues can be trained in, at settings that are swept.

forest  trees packed into rows
padded  one sequence a turn, each row padded to the longest
packed  the same sequences, several a row: the expansion without waste
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np

from mimesis_jax import types
from mimesis_jax.bench import expansion
from mimesis_jax.forest import pack, tree
from mimesis_jax.models import flops
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import scoring
from mimesis_jax.trainers import optimizer, reinforce

Name = Literal["forest", "padded", "packed"]
FORMS: tuple[Name, ...] = ("forest", "padded", "packed")
KNOBS = {k: np.float32(v) for k, v in dataclasses.asdict(reinforce.Loss(alpha=0.05)).items()}


@dataclasses.dataclass(frozen=True)
class Setting:
    """chunk: C. stretch: row length as a multiple of the longest item. tokens: places of a
    micro-batch at most (more where one row has more). block: of the attention's lists in all
    rows; None: those of Shape, and a dense mask in short rows. inside: see pack.Shape."""

    chunk: int
    stretch: float
    tokens: int
    block: int | None = None
    inside: bool = False

    def __str__(self) -> str:
        lists = "" if self.block is None else f", attention in blocks of {self.block}"
        forks = ", forks inside chunks" if self.inside else ""
        told = f"C {self.chunk}, rows x {self.stretch:g}, micro-batches of {self.tokens}"
        return told + lists + forks

    def rows(self, longest: int, slots: int) -> pack.Shape:
        """One row of any number of learned tokens that holds the longest item: whole chunks, and
        whole blocks where the attention has blocks."""
        length = -(-int(longest * self.stretch) // self.chunk) * self.chunk
        dense = pack.Shape.dense if self.block is None else 1
        block = self.block or pack.Shape.block
        whole = -(-length // block) * block
        if whole > dense:  # rounded up, a short row may be one that needs blocks
            length = whole
        return pack.Shape(
            1, length, self.chunk, length, slots, dense=dense, block=block, inside=self.inside
        )


@dataclasses.dataclass
class Batch:
    """A batch laid out in one form at one setting, ready to run.

    numbers: [n] for each scored token of what was packed, its number in the trees' own order.
    """

    name: Name
    setting: Setting
    spec: specs.Spec
    packed: pack.Packed
    numbers: np.ndarray
    packing_seconds: float

    @property
    def forests(self) -> list[types.Forest]:
        return self.packed.forests

    @property
    def tokens(self) -> int:
        """Real tokens computed."""
        return sum(int(f.valid.sum()) for f in self.forests)

    @property
    def places(self) -> int:
        """Tokens computed, padding included."""
        return sum(f.valid.size for f in self.forests)

    @property
    def work(self) -> int:
        """FLOPs of forward and backward over all places and learned places, padding included."""
        learned = sum(f.source.size for f in self.forests)
        pairs = sum(flops.pairs(np.asarray(f.valid), np.asarray(f.last)) for f in self.forests)
        return flops.train(self.spec, tokens=self.places, pairs=pairs, learned=learned)

    @property
    def shape(self) -> tuple[int, ...]:
        """Micro-batches, rows, tokens and scored tokens a row."""
        first = self.forests[0]
        return (len(self.forests), *first.tokens.shape, first.source.shape[1])


def lay(
    name: Name,
    trees: Sequence[types.Tree],
    setting: Setting,
    spec: specs.Spec,
    *,
    slots: int = 2,
    shared: bool = True,
) -> Batch:
    """The trees in a form; each form's shape is made to measure, so that none computes padding for
    want of a better bucket. shared: the forest computes common prompts once a row.

    Raises ValueError, as `pack.pack` does, for trees that need more slots.
    """
    start = time.perf_counter()
    chunk = setting.chunk
    if name == "forest":
        items, numbers = list(trees), np.arange(tree.scored_count(trees))
        free = pack.Shape(1, 1 << 20, chunk, 1 << 20, slots, inside=setting.inside)
        longest = max(block.length for one in items for block in pack.blocks(one, free))
    else:
        expanded = expansion.expand(trees)
        items, numbers, slots = expanded.rows, expanded.numbers, 1
        longest = max(len(one[0]) for one in items)
    wide = setting.rows(longest, slots)
    length = wide.length

    def laid(shape: pack.Shape) -> pack.Packed:
        if name == "padded":
            return expansion.padded(items, shape)
        return pack.pack(items, shape, shared=shared and name == "forest")

    rows = laid(wide).origin
    batches = -(-len(rows) * length // max(length, setting.tokens))
    learned = max(int(np.count_nonzero(row >= 0)) for row in rows)
    shape = dataclasses.replace(wide, rows=-(-len(rows) // batches), learned=learned)
    packed = laid(shape)
    seconds = time.perf_counter() - start
    return Batch(name, setting, dataclasses.replace(spec, chunk=chunk), packed, numbers, seconds)


@dataclasses.dataclass(frozen=True)
class Trainer:
    """Runs batches: parameters, and the denominators of the whole batch's loss."""

    params: Any
    totals: dict[str, np.float32]

    def gradient(self, batch: Batch) -> Any:
        """The gradient of the whole loss, all micro-batches: what is timed."""
        grads = optimizer.zeros(self.params)
        for forest in batch.forests:
            grads, _, _ = reinforce.accumulate(
                batch.spec, self.params, grads, forest, KNOBS, self.totals
            )
        return grads

    def logp(self, batch: Batch) -> np.ndarray:
        """[n_scored] log-probs, in the trees' own order."""
        values = [
            np.asarray(scoring.forward(batch.spec, self.params, forest, np.float32(1.0)))
            for forest in batch.forests
        ]
        out = np.zeros(len(batch.numbers), np.float32)
        out[batch.numbers] = pack.gather(values, batch.packed)
        return out


def trainer(params: Any, trees: Sequence[types.Tree]) -> Trainer:
    """A Trainer for one batch of trees, whatever form they are laid in."""
    return Trainer(
        params,
        {
            "policy": np.float32(max(1e-9, tree.column(trees, "weight").sum())),
            "csd": np.float32(max(1e-9, tree.column(trees, "coached").sum())),
        },
    )


def apart(found: Any, wanted: Any) -> float:
    """The largest relative distance |a - b| / |b| of any parameter's gradient."""
    norm = lambda x: float(np.linalg.norm(np.asarray(x, np.float64)))
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    return max(norm(np.subtract(a, b)) / norm(b) for a, b in pairs if norm(b))


def counted(call: Callable[[], Any], spent: list[float]) -> Callable[[], Any]:
    """The call, waited for; appends the processor seconds of all its threads to `spent`."""

    def run() -> Any:
        start = time.process_time()
        out = jax.block_until_ready(call())
        spent.append(time.process_time() - start)
        return out

    return run
