"""What a run keeps when it stops itself over updates that cannot be made: RUN/spoilt/PHASE-STEP.

batch.npz    what the last of them was given, and facts about it (runs.batches)
state/       the state that they did not change: parameters, moments, counters
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mimesis_jax.runs import batches, checkpoint, disk, folder, processes
from mimesis_jax.trainers import guard

HERE = "spoilt"


@contextlib.contextmanager
def watched(run: folder.Run, phase: str, spec: Any) -> Iterator[None]:
    """Around a phase's training: where it stops itself, the batch and the state are kept.

    Raises RunError that says what happened, where they lie and what to do.
    """
    try:
        yield
    except guard.Spoilt as error:
        with run.timed("spoilt", phase=phase, step=error.step):
            where = keep(run.path, phase, spec, error)
        replay = f"mimesis replay {run.path} --step {error.step}"
        raise disk.RunError(
            f"{phase}, {error}. Nothing of them was applied; the batch and the state are in "
            f"{where}. `{replay}` shows where it comes from. The same command tries again from the "
            f"last checkpoint; --config.{phase}.optimizer.explode=X (0: no limit) lets larger "
            "gradients through"
        ) from None


def keep(run: Path, phase: str, spec: Any, error: guard.Spoilt) -> Path:
    """Writes the folder anew and gives its path. Raises RunError where the disk refuses.

    Over several processes all of them call it: each saves what its devices hold.
    """
    where = run / HERE / f"{phase}-{error.step}"
    try:
        if processes.is_lead():
            shutil.rmtree(where, ignore_errors=True)
            where.mkdir(parents=True)
    except OSError as refused:
        raise disk.explain(refused, where) from refused
    processes.barrier(f"{where.name} is kept")
    with checkpoint.Store(where / "state", keep=1) as store:
        store.save(error.step, error.state, {"phase": phase})
    facts = {**error.batch.facts, "phase": phase, "spec": dataclasses.asdict(spec)}
    # The batch comes last: where it is, all of it is there.
    if processes.is_lead():
        batches.save(where / "batch.npz", dataclasses.replace(error.batch, facts=facts))
    return where


def find(run: Path, step: int | None = None) -> Path:
    """The folder of that step, or of the last one. Raises RunError that names those there are."""
    if not (run / "config.json").is_file():
        raise disk.RunError(f"{run} is no run folder: it has no config.json")
    there = [path.parent for path in (run / HERE).glob("*/batch.npz")]
    order = list(disk.read(run / "phases.json") or {})

    def place(path: Path) -> tuple[int, int]:
        phase, _, number = path.name.rpartition("-")
        return (order.index(phase) if phase in order else -1, int(number))

    kept = sorted((path for path in there if path.name.rpartition("-")[2].isdigit()), key=place)
    chosen = [path for path in kept if step is None or place(path)[1] == step]
    if not chosen:
        names = ", ".join(path.name for path in kept)
        has = f"it has kept {names}" if kept else "it has not stopped itself over a batch"
        which = "no batch" if step is None else f"no batch of step {step}"
        raise disk.RunError(f"{run} has {which}: {has}")
    return chosen[-1]
