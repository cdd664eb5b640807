"""The run folder of several processes: process 0 writes what is shared, the others a folder each.

    OUT/...             as runs/folder.py says, written by process 0 alone
    OUT/process-3/      events.jsonl: what the time of process 3 went to

All processes have to see OUT (checkpoints are written and read by all of them). What decides where
a run goes on, its finished phases and hashes, the others are told by process 0 when it has opened
the folder: nobody reads a file that is being written.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax import types
from mimesis_jax.runs import checkpoint, disk, folder, processes

MEETING = "the run folder is open"


def opened(path: str | Path, config: Any, **options: Any) -> folder.Run:
    """The run folder `path`, as folder.Run takes it, for each process of the run.

    Process 0 has the folder; the others have a Follower. Raises what folder.Run does, on process 0,
    which then ends the others with the same words.
    """
    if processes.count() == 1:
        return folder.Run(path, config, **options)
    if not processes.is_lead():
        told = processes.agree(None, MEETING)[0]
        return Follower(path, config, told)
    run = folder.Run(path, config, **options)
    try:
        processes.agree(run.told(), MEETING)
    except BaseException as error:
        run.close(error)
        raise
    return run


class Follower(folder.Run):
    """The run folder as a process other than 0 has it: it knows what process 0 knows of phases and
    hashes, keeps its own events, and writes nothing else."""

    def __init__(self, path: str | Path, config: Any, told: Mapping[str, Any]):
        self.path = Path(path)
        self.own = self.path / f"process-{processes.index()}"
        section = configs.plain(config).get("checkpoints") or {}
        self.checkpoints = configs.freeze(checkpoint.Config, section, "config.checkpoints")
        self.restarted = bool(told["restarted"])
        self._since_opened = time.monotonic()
        self._mirror = None
        self._versions = {"hashes": dict(told["hashes"])}
        self._phases = {name: dict(state) for name, state in told["phases"].items()}
        self._boards, self._since = {}, {}
        self._lock = _Nothing()  # type: ignore[assignment]
        try:
            self.own.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk.explain(error, self.own) from error
        nowhere: dict[str, Any] = {name: _Nothing() for name in folder.LOGS}
        self._logs = nowhere | {"events": disk.Log(self.own / "events.jsonl")}
        self.event("restart" if self.restarted else "start", 0.0, pid=os.getpid())

    def write(self, name: str, value: Any) -> None:
        """Process 0 writes it."""

    def metrics(self, phase: str, step: int, scalars: Mapping[str, Any]) -> None:
        """Process 0 writes them: they are the same but for times."""

    def episode(self, phase: str, step: int, episode: types.Episode, *, user: str, agent: str,
                csd: Sequence = ()) -> None:  # fmt: skip
        """Process 0 writes it: every process has all episodes."""


class _Nothing:
    """A log that keeps nothing, and a lock that holds nothing."""

    def mark(self) -> int:
        return 0

    def cut(self, mark: int) -> int:
        return 0

    def append(self, value: Mapping[str, Any]) -> None:
        pass

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass
