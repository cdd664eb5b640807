"""Copies of a run folder beside checkpoints that lie elsewhere, so that a machine may be lost.

With `checkpoints.folder` (gs://BUCKET/RUN, a shared disk) the weights outlive the machine; logs,
frozen models and what is finished must do so too. Each save first copies what has changed, and a
command that finds its run folder empty fetches it:

    FOLDER/sft/120/   checkpoints (runs.checkpoint)
    FOLDER/run/       the files of the run folder
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from etils import epath

from mimesis_jax.runs import disk

INSIDE = "run"
LEFT = ("checkpoints", "profile", "spoilt", "lock")  # what stays on this machine
LAST = ("phases.json", "config.json")  # what they speak of is there before they are


class Mirror:
    """The copies of the run folder `local` under `folder` (a path, or gs://...)."""

    def __init__(self, local: Path, folder: str):
        self.local = local
        self.there = epath.Path(folder) / INSIDE
        self._known: dict[str, tuple[int, int]] = {}

    def push(self) -> int:
        """Copies the files that have changed since the last time; gives how many.

        Files that say what there is come after what they speak of, so that a copy which was cut
        short is an older run, never half of one. Raises RunError when they cannot be written.
        """
        count = 0
        for name in self._names():
            stat = (self.local / name).stat()
            mark = (stat.st_size, stat.st_mtime_ns)
            if self._known.get(name) == mark:
                continue
            self._copied(epath.Path(self.local / name), self.there / name)
            self._known[name] = mark
            count += 1
        return count

    def _names(self) -> list[str]:
        found = []
        for path in self.local.rglob("*"):
            parts = path.relative_to(self.local).parts
            hidden = any(part.startswith(".") for part in parts)
            if path.is_file() and not hidden and parts[0] not in LEFT:
                found.append("/".join(parts))
        return sorted(found, key=lambda name: (LAST.index(name) + 1 if name in LAST else 0, name))

    def _copied(self, source: epath.Path, target: epath.Path) -> None:
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            if "://" in str(target):
                source.copy(target, overwrite=True)  # an object appears whole or not at all
                return
            partial = target.parent / f".{target.name}.{os.getpid()}"
            source.copy(partial, overwrite=True)
            partial.replace(target)
        except OSError as error:
            raise disk.explain(error, str(target)) from error

    def fetch(self) -> bool:
        """Brings the run here when there is none here and one there; whether it did.

        The folder appears whole or not at all. Raises RunError when it cannot be read or written.
        """
        if (self.local / "config.json").exists() or not self._there():
            return False
        partial = self.local.with_name(f".{self.local.name}.{os.getpid()}")
        shutil.rmtree(partial, ignore_errors=True)
        try:
            self._down(self.there, partial)
            if self.local.is_dir():  # empty, or not a run's
                for path in partial.iterdir():
                    path.rename(self.local / path.name)
            else:
                partial.rename(self.local)
        except OSError as error:
            raise disk.explain(error, self.local) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
        return True

    def _there(self) -> bool:
        try:
            return (self.there / "config.json").exists()
        except (OSError, ImportError) as error:
            raise unreachable(str(self.there), error) from error

    def _down(self, source: epath.Path, target: Path) -> None:
        target.mkdir(parents=True, exist_ok=True)
        for path in source.iterdir():
            if path.is_dir():
                self._down(path, target / path.name)
            elif not path.name.startswith("."):
                path.copy(target / path.name, overwrite=True)


def unreachable(where: str, error: Exception) -> disk.RunError:
    """The error of a place that cannot be read, in words that say what to do."""
    if isinstance(error, ImportError):
        scheme = where.partition("://")[0]
        return disk.RunError(
            f"{where} cannot be reached: {scheme}:// needs the package gcsfs (pip install gcsfs), "
            "or give a local folder as --config.checkpoints.folder"
        )
    return disk.RunError(f"{where} cannot be reached ({error}): see to its name and your rights")
