"""The points of a run for TensorBoard, written where they are made.

tensorboardX's own writer hands points to a thread through a short queue; when the disk is full that
thread is gone, and the next points would wait for it for ever. Its file format is used, not it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboardX import event_file_writer
from tensorboardX.proto import event_pb2, summary_pb2

from mimesis_jax.runs import disk

FLUSH = 30.0  # seconds that points may wait before they reach the disk


class Board:
    """The points of one phase.

    folder: made when missing; each process writes a file of its own. first: step from which on
    points in older files are void, as a restart repeats them.
    Raises RunError when they cannot be written.
    """

    def __init__(self, folder: Path, first: int):
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            own = f".{os.getpid()}.{time.monotonic_ns()}"
            self._file = event_file_writer.EventsWriter(str(folder / "events"), own)
            started = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            self._write(first, session_log=started)
            self._file.flush()
        except OSError as error:
            raise disk.explain(error, folder) from error
        self._flushed = time.monotonic()

    def add(self, step: int, values: Mapping[str, Any]) -> None:
        """The numbers among `values`, at `step`; everything else is passed over."""
        points = [
            summary_pb2.Summary.Value(tag=name, simple_value=float(value))
            for name, value in values.items()
            if isinstance(value, (int, float))
        ]
        try:
            self._write(step, summary=summary_pb2.Summary(value=points))
            if time.monotonic() - self._flushed > FLUSH:
                self._file.flush()
                self._flushed = time.monotonic()
        except OSError as error:
            raise disk.explain(error, self._folder) from error

    def _write(self, step: int, **what: Any) -> None:
        self._file.write_event(event_pb2.Event(step=step, wall_time=time.time(), **what))

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise disk.explain(error, self._folder) from error
