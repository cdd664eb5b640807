"""A profiler trace of a few steps, asked for on the command line: `--profile 3`, `agent_grpo:3`.

The first step of a process compiles, so the trace begins after it. It is written once a process,
into RUN/profile, for TensorBoard or Perfetto. What the command line asks for belongs to the
process, so it is kept here and not in a run's configuration, which says what a run gives.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import jax

from mimesis_jax.runs import disk


@dataclasses.dataclass(frozen=True)
class Wanted:
    """steps: how many to trace. phase: of which phase; None: of the first that trains."""

    steps: int
    phase: str | None = None


_wanted: Wanted | None = None


def parse(text: str) -> Wanted:
    """`3` or `PHASE:3`. Raises RunError for anything else."""
    phase, _, number = text.rpartition(":")
    if not number.isdecimal() or int(number) < 1:
        raise disk.RunError(
            f"--profile {text}: give how many steps to trace (3), or a phase and how many "
            "(agent_grpo:3)"
        )
    return Wanted(int(number), phase or None)


@contextlib.contextmanager
def asked(text: str | None) -> Iterator[None]:
    """Inside, the first phase that fits is traced. None: nothing is."""
    global _wanted
    _wanted = None if text is None else parse(text)
    try:
        yield
    finally:
        _wanted = None


class Trace:
    """The trace of one phase: call `step` after each of its steps, and `close` at its end.

    path: folder of the traces, made when one is written.
    """

    def __init__(self, path: Path, phase: str):
        chosen = _wanted
        mine = chosen is not None and chosen.phase in (None, phase)
        self._path, self._left = path, chosen.steps if chosen is not None and mine else 0
        self._running = False

    def step(self) -> None:
        global _wanted
        if self._running:
            self._left -= 1
            if not self._left:
                self.close()
        elif self._left:
            try:
                self._path.mkdir(parents=True, exist_ok=True)
                jax.profiler.start_trace(str(self._path))
            except OSError as error:
                raise disk.explain(error, self._path) from error
            self._running, _wanted = True, None  # later phases are not asked for any more

    def close(self) -> None:
        """Ends a trace that is running; a second call does nothing."""
        self._left = 0
        if self._running:
            self._running = False
            jax.profiler.stop_trace()
