"""Compilations: count them, and keep their results on the disk for the next process."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from concurrent import futures
from pathlib import Path
from typing import Any

import jax
from jax import monitoring
from jax.experimental.compilation_cache import compilation_cache

# Recorded by jax once for each program that is handed to the backend. A program found in the
# persistent cache is recorded too: it was traced and asked for anew, which is what a step that is
# warm must never do.
EVENT = "/jax/core/compile/backend_compile_duration"


class Compiles:
    """Counts the compilations of this process from its construction to `close()`.

    count: programs compiled. seconds: what they took. names: of the programs since the last mark,
    to say which function was compiled when none should have been.
    """

    def __init__(self):
        self.count = 0
        self.seconds = 0.0
        self.names: list[str] = []
        self._mark = (0, 0.0)
        self._open = True
        monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, duration_secs: float, **more: str | int) -> None:
        if event == EVENT:
            self.count += 1
            self.seconds += duration_secs
            self.names.append(str(more.get("fun_name", "unnamed")))

    def mark(self) -> None:
        """From here on `since` counts anew: call it when everything is warm."""
        self._mark = (self.count, self.seconds)
        self.names = []

    @property
    def since(self) -> int:
        """Programs compiled since the last mark."""
        return self.count - self._mark[0]

    @property
    def seconds_since(self) -> float:
        """Seconds compiled since the last mark."""
        return self.seconds - self._mark[1]

    def close(self) -> None:
        """Stops counting; the figures stay. A second call does nothing."""
        if self._open:
            self._open = False
            # Somebody may have cleared all listeners before: then there is nothing to take away.
            with contextlib.suppress(AssertionError, ValueError):
                monitoring.unregister_event_duration_listener(self._heard)

    def __enter__(self) -> Compiles:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def together(*calls: Callable[[], Any]) -> None:
    """Makes calls that mostly compile at once, each in a thread of its own, and waits for all.

    Compiling needs neither the interpreter nor each other, so several cores are used. Only for
    calls of one device: of programs that exchange between devices two must never run at a time.
    Raises what the first of the calls that failed has raised, after the others have ended.
    """
    with futures.ThreadPoolExecutor(len(calls)) as pool:
        begun = [pool.submit(call) for call in calls]
    for one in begun:
        one.result()


def compile_cache(path: str | Path | None) -> None:
    """Keeps compiled programs under `path` for later processes; None turns the cache off.

    Every program is kept, however short its compilation: a small run has hundreds of them.
    """
    compilation_cache.reset_cache()  # jax decides once a process; this lets it decide again
    jax.config.update("jax_enable_compilation_cache", path is not None)
    jax.config.update("jax_compilation_cache_dir", None if path is None else str(path))
    if path is not None:
        Path(path).mkdir(parents=True, exist_ok=True)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)


def keep_programs(path: str | Path) -> None:
    """`compile_cache(path)`, unless JAX_ENABLE_COMPILATION_CACHE=false in the environment."""
    if os.environ.get("JAX_ENABLE_COMPILATION_CACHE", "true").lower() != "false":
        compile_cache(path)
