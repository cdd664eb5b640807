"""The batch of one update on the disk: its forests or trees as plain arrays, and facts about it.

One .npz file that is whole or not there; nothing in it is a pickle, so that a batch from somebody
else's run can be read without running their code.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mimesis_jax import types
from mimesis_jax.runs import disk

COLUMNS = ("ids", "scored", "weight", "old_logp", "advantage", "gate", "coached")  # of a Segment
KINDS = ("trunk", "branch", "teacher")
ARRAYS = tuple(
    field.name
    for field in dataclasses.fields(types.Forest)
    if field.name not in ("slots", "blocks", "kept")
)
LISTS = ("query", "key", "count", "edges")  # arrays of a forest's blocks


@dataclasses.dataclass(frozen=True)
class Batch:
    """What an update was given: micro-batches that were packed, or trees that are yet to be.

    forests: supervised micro-batches. trees, names: reinforced episodes and what errors call them.
    facts: json values, see build.spoilt.
    """

    forests: Sequence[types.Forest] = ()
    trees: Sequence[types.Tree] = ()
    names: Sequence[str] = ()
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def save(path: Path, batch: Batch) -> None:
    """Writes `batch` as `path` (.npz). Raises RunError where the disk refuses."""
    arrays: dict[str, np.ndarray] = {}
    blocks: list[dict[str, Any] | None] = []
    for number, forest in enumerate(batch.forests):
        held = jax.device_get(forest)
        arrays |= {f"forest{number}/{name}": np.asarray(getattr(held, name)) for name in ARRAYS}
        if held.kept is not None:
            arrays[f"forest{number}/kept"] = np.asarray(held.kept)
        blocks.append(None)
        if held.blocks is not None:
            given = {name: getattr(held.blocks, name) for name in LISTS}
            arrays |= {
                f"forest{number}/blocks/{name}": np.asarray(value)
                for name, value in given.items()
                if value is not None
            }
            blocks[-1] = {"size": held.blocks.size, "kernel": held.blocks.kernel}
    arrays |= flat(batch.trees)
    told = {
        "slots": [forest.slots for forest in batch.forests],
        "blocks": blocks,
        "names": list(batch.names),
        "facts": disk.plain(batch.facts),
    }
    arrays["told"] = np.frombuffer(json.dumps(told).encode(), np.uint8)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise disk.explain(error, path) from error


def load(path: Path) -> Batch:
    """What `save` wrote. Raises RunError where there is no such file, or it is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        told = json.loads(arrays["told"].tobytes())
        forests = [
            _forest(arrays, f"forest{n}/", slots, blocks)
            for n, (slots, blocks) in enumerate(zip(told["slots"], told["blocks"], strict=True))
        ]
        return Batch(forests, cut(arrays), told["names"], told["facts"])
    except FileNotFoundError as error:
        raise disk.RunError(f"{path} is not there: give a run that has stopped itself") from error
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise disk.RunError(
            f"{path} is no batch, or a damaged one ({error}): restore it from a copy, or let the "
            "run stop there again"
        ) from error


def _forest(arrays, prefix: str, slots: int, blocks: dict[str, Any] | None) -> types.Forest:
    held = None
    if blocks is not None:
        held = types.Blocks(
            *(arrays.get(f"{prefix}blocks/{name}") for name in LISTS), **blocks  # type: ignore[arg-type]
        )  # fmt: skip
    values = {name: arrays[prefix + name] for name in ARRAYS}
    kept = arrays.get(f"{prefix}kept")
    return types.Forest(**values, slots=slots, blocks=held, kept=kept)  # type: ignore[arg-type]


def flat(trees: Sequence[types.Tree]) -> dict[str, np.ndarray]:
    """The trees' segments one after another; a number a segment says whose it is."""
    parts = [part for tree in trees for part in tree]
    if not parts:
        return {}
    flat = {f"tree/{n}": np.concatenate([getattr(part, n) for part in parts]) for n in COLUMNS}
    return flat | {
        "tree/count": np.array([len(tree) for tree in trees], np.int64),
        "tree/length": np.array([len(part) for part in parts], np.int64),
        "tree/parent": np.array([part.parent for part in parts], np.int64),
        "tree/turn": np.array([part.turn for part in parts], np.int64),
        "tree/kind": np.array([KINDS.index(part.kind) for part in parts], np.int64),
    }


def cut(arrays: Mapping[str, np.ndarray]) -> list[types.Tree]:
    """The trees that `flat` made arrays of."""
    if "tree/count" not in arrays:
        return []
    length = arrays["tree/length"]
    ends = np.cumsum(length)
    parts = [
        types.Segment(
            **{n: arrays[f"tree/{n}"][end - size : end] for n in COLUMNS},
            parent=int(arrays["tree/parent"][i]),
            turn=int(arrays["tree/turn"][i]),
            kind=KINDS[arrays["tree/kind"][i]],  # type: ignore[arg-type]
        )
        for i, (size, end) in enumerate(zip(length, ends, strict=True))
    ]
    cuts = np.cumsum(arrays["tree/count"])
    return [
        tuple(parts[end - size : end]) for size, end in zip(arrays["tree/count"], cuts, strict=True)
    ]
