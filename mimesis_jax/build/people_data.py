"""People's conversations read, split by conversation, shortened and rendered for each stage."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mimesis_jax.chat import render
from mimesis_jax.data import records, rows, shorten, sources, swap
from mimesis_jax.data.records import Record
from mimesis_jax.types import Tree

PARTS = ("train", "validation", "held_out")
Item = shorten.Window | shorten.Stretch


@dataclasses.dataclass(frozen=True)
class Data:
    """Where the conversations come from.

    source: kind of the raw files (data.sources.KINDS). paths: the files, or one folder of a dataset
    that `mimesis data build` made, of which `split` is read.
    held_out: conversations that are only measured. validation: conversations that choose the best
    checkpoint and tune the n-grams' weights. max_bad_share: share of malformed rows that is fine.
    """

    source: str = "thoughttrace"
    paths: tuple[str, ...] = ()
    split: str = "train"
    held_out: int = 5
    validation: int = 3
    max_bad_share: float = 0.01


@dataclasses.dataclass(frozen=True)
class Rows:
    """A batch: `rows` rows of `length` tokens. context: tokens of history before the first human
    turn of a row. turn: tokens to which a turn that is not learned is cut in its middle."""

    rows: int = 4
    length: int = 768
    context: int = 384
    turn: int = 160


@dataclasses.dataclass(frozen=True)
class Split:
    """Conversations by part, and how many rows were malformed. hash: of all of it, in order."""

    parts: dict[str, list[Record]]
    malformed: int

    @property
    def fitted(self) -> list[Record]:
        """All that may be learned from, in the split's order: train and validation."""
        return self.parts["train"] + self.parts["validation"]

    def names(self) -> dict[str, list[str]]:
        return {part: [record.id for record in found] for part, found in self.parts.items()}

    @property
    def hash(self) -> str:
        digest = hashlib.sha256()
        for part, found in self.parts.items():
            for record in found:
                digest.update(f"{part} {records.to_line(record)}\n".encode())
        return digest.hexdigest()


def read(data: Data, seed: int) -> Split:
    """Reads the conversations and splits them by a seeded shuffle.

    Raises FileNotFoundError, rows.TooManyMalformed, and ValueError for two conversations of one
    name or fewer than the held-out and validation ones and one to train on.
    """
    found, malformed = _records(data)
    if len({record.id for record in found}) < len(found):
        raise ValueError(f"{data.paths} names a conversation twice: give each its own id")
    least = data.held_out + data.validation + 1
    if data.held_out < 1 or data.validation < 1 or len(found) < least:
        raise ValueError(
            f"{', '.join(data.paths)} holds {len(found)} conversations: held_out={data.held_out},"
            f" validation={data.validation} (each at least 1) and one to train on need"
            f" {max(least, 3)}; give more conversations or hold out fewer"
        )
    order = np.random.default_rng(seed).permutation(len(found))
    shuffled = [found[i] for i in order]
    ends = np.cumsum([len(found) - least + 1, data.validation])
    parts = (shuffled[: ends[0]], shuffled[ends[0] : ends[1]], shuffled[ends[1] :])
    return Split(dict(zip(PARTS, parts, strict=True)), malformed)


def _records(data: Data) -> tuple[list[Record], int]:
    if len(data.paths) == 1 and Path(data.paths[0]).is_dir():
        from mimesis_jax.data import builders  # brings tfds

        stored = builders.Stored(data.paths[0], data.split)
        return [stored[i] for i in range(len(stored))], 0
    ledger = rows.Ledger(data.max_bad_share)
    found = list(sources.kind(data.source).read(data.paths, ledger))
    return found, ledger.bad


def texts(found: Sequence[Record]) -> Iterator[str]:
    """All that a model may read of some conversations, for the tokenizer to be fitted on."""
    for record in found:
        for turn in record.dialogue:
            yield turn.public
            if turn.private:
                yield turn.private


@dataclasses.dataclass(frozen=True)
class Sets:
    """What is learned from and measured on.

    train, validation: stage to its items; `tree` renders one.
    measured: part to windows of its people's public utterances in each of three contexts: "public"
    (history only), "empty" (behind an empty thought too), "brief" (and after the brief); the same
    learned tokens in all three.
    turns: counts of human turns: in the conversations, left out, and learned or measured; `cut`:
    turns of others that were cut in their middle. left_out: the turns that no row holds, and why.
    """

    renderer: render.Renderer
    train: dict[str, Sequence[Item]]
    validation: dict[str, Sequence[Item]]
    measured: dict[str, dict[str, list[shorten.Window]]]
    turns: dict[str, int]
    left_out: tuple[str, ...]

    def tree(self, item: Item) -> Tree:
        if isinstance(item, shorten.Stretch):
            return shorten.line(item)
        return shorten.tree(item, self.renderer)

    def trees(self, items: Sequence[Item]) -> list[Tree]:
        return [self.tree(item) for item in items]


def prepare(split: Split, renderer: render.Renderer, shape: Rows, chunk: int) -> Sets:
    """Shortens every conversation for every stage. Raises ValueError where nothing is left."""
    counts = {"human": 0, "cut": 0}
    left_out: list[str] = []

    def windows(row: swap.Row) -> list[shorten.Window]:
        row, cut = shorten.trim(row, shape.turn, renderer.tokenizer)
        counts["cut"] += cut
        made = shorten.windows(
            row, renderer, length=shape.length, chunk=chunk, context=shape.context
        )
        left_out.extend(made.left_out)
        return list(made.windows)

    def stages(found: Sequence[Record]) -> dict[str, Sequence[Item]]:
        pieces = [shorten.stretches(r.id, r.dialogue, renderer, shape.length) for r in found]
        return {
            "base": [piece for some in pieces for piece in some],
            "user_midtrain": [w for r in found for w in windows(swap.midtrain(r))],
            "user_thoughts": [w for r in found for w in windows(swap.thoughts(r))],
        }

    measured: dict[str, dict[str, list[shorten.Window]]] = {}
    for part in ("validation", "held_out"):
        rows_of = (swap.midtrain(r, brief=True, thinking="empty") for r in split.parts[part])
        brief = [w for row in rows_of for w in windows(row)]
        measured[part] = {
            "public": [shorten.unbriefed(w, "none") for w in brief],
            "empty": [shorten.unbriefed(w, "empty") for w in brief],
            "brief": brief,
        }
    train, validation = (stages(split.parts[part]) for part in ("train", "validation"))
    everyone = [record for found in split.parts.values() for record in found]
    counts["human"] = sum(turn.author == "user" for r in everyone for turn in r.dialogue)
    counts["left_out"] = len(left_out)
    for stage in ("user_midtrain", "user_thoughts"):
        counts[stage] = sum(w.learned for w in train[stage] if isinstance(w, shorten.Window))
    counts |= {part: sum(w.learned for w in m["brief"]) for part, m in measured.items()}
    made: dict[str, Sequence[Item]] = train | {part: m["brief"] for part, m in measured.items()}
    for name, some in made.items():
        if not some:
            raise ValueError(
                f"no human turn of {name} fits a row of {shape.length} tokens: raise rows.length"
                f" ({'; '.join(left_out[:3])})"
            )
    return Sets(renderer, train, validation, measured, counts, tuple(left_out))
