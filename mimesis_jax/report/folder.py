"""A run folder as the report reads it: every file may be missing, cut short or partly malformed."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Folder:
    """What a run folder holds, and for each file what is wrong with it.

    path: the folder. summary, versions, config: JSON objects ({} where missing).
    metrics: per phase, the metric lines by rising step; a step written twice (a restart repeats
      the steps after its checkpoint) counts once, the later line holding.
    events: the lines of events.jsonl. faults: file name -> sentence for the reader.
    """

    path: Path
    summary: dict[str, Any]
    versions: dict[str, Any]
    config: dict[str, Any]
    metrics: dict[str, list[dict[str, Any]]]
    events: list[dict[str, Any]]
    faults: dict[str, str]

    def episodes(self) -> Iterator[dict[str, Any]]:
        """The lines of episodes.jsonl, one at a time: the file can be far larger than the page."""
        yield from _lines(self.path / "episodes.jsonl", self.faults)


FILES = ("summary.json", "config.json", "versions.json", "metrics.jsonl", "episodes.jsonl")


def read(path: str | Path) -> Folder:
    """Reads a run folder; raises FileNotFoundError when `path` is no folder or holds none of a
    run's files, and nothing else."""
    path = Path(path)
    if not path.is_dir() or not any((path / name).exists() for name in FILES):
        raise FileNotFoundError(f"{path} is no run folder: give the folder that holds summary.json")
    faults: dict[str, str] = {}
    return Folder(
        path=path,
        summary=_object(path / "summary.json", faults),
        versions=_object(path / "versions.json", faults),
        config=_object(path / "config.json", faults),
        metrics=_by_phase(_lines(path / "metrics.jsonl", faults)),
        events=list(_lines(path / "events.jsonl", faults)),
        faults=faults,
    )


def _by_phase(lines: Iterator[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    phases: dict[str, dict[int, dict[str, Any]]] = {}
    for line in lines:
        phase, step = line.get("phase"), line.get("step")
        if isinstance(phase, str) and isinstance(step, int):
            # Later lines of one step add to it and hold over earlier ones.
            phases.setdefault(phase, {}).setdefault(step, {}).update(line)
    return {phase: [steps[step] for step in sorted(steps)] for phase, steps in phases.items()}


def _object(path: Path, faults: dict[str, str]) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except FileNotFoundError:
        faults[path.name] = f"{path.name} is not in the run folder."
    except (OSError, ValueError, RecursionError) as error:
        faults[path.name] = f"{path.name} cannot be read: {error}."
    else:
        if isinstance(value, dict):
            return value
        faults[path.name] = f"{path.name} holds a {type(value).__name__}, not an object."
    return {}


def _lines(path: Path, faults: dict[str, str]) -> Iterator[dict[str, Any]]:
    bad: list[int] = []
    number = 0
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for number, text in enumerate(file, start=1):
                if not text.strip():
                    continue
                try:
                    value = json.loads(text)
                except (ValueError, RecursionError):
                    value = None
                if isinstance(value, dict):
                    yield value
                else:
                    bad.append(number)
    except FileNotFoundError:
        faults[path.name] = f"{path.name} is not in the run folder."
        return
    except OSError as error:
        faults[path.name] = f"{path.name} cannot be read: {error}."
        return
    if not number:
        faults[path.name] = f"{path.name} is empty."
    elif bad:
        where = ", ".join(map(str, bad[:5])) + (", ..." if len(bad) > 5 else "")
        faults[path.name] = f"{path.name}: {len(bad)} of {number} lines left out (line {where})."
