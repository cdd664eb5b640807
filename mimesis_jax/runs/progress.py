"""Progress of long work: a bar in a terminal, a line now and then elsewhere, nothing when short."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Self, TextIO, TypeVar

import tqdm

from mimesis_jax.runs.compiles import Compiles, compile_cache

__all__ = ["Bar", "Compiles", "compile_cache", "over"]

Item = TypeVar("Item")


class Bar:
    """Shows how far work is and the time left, once it has run for `delay` seconds.

    total: number of steps. what: a word or two for the work. done: steps done before (a restart).
    every: seconds between lines where the stream is no terminal.
    stream, clock: standard error and the monotonic clock, other ones for tests.
    """

    def __init__(
        self,
        total: int,
        what: str,
        *,
        done: int = 0,
        delay: float = 5.0,
        every: float = 15.0,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.total, self.what, self.done = total, what, done
        self._stream = stream or sys.stderr
        self._clock, self._every = clock, every
        self._start, self._first = clock(), done
        self._next = self._start + delay
        self._bar: tqdm.tqdm | None = None
        if self._stream.isatty():
            self._bar = tqdm.tqdm(
                total=total, initial=done, desc=what, delay=delay, file=self._stream, leave=False,
                dynamic_ncols=True,
            )  # fmt: skip

    def step(self, n: int = 1, **shown: float | str) -> None:
        """`n` more steps are done; `shown` are figures to show beside (loss=2.31)."""
        self.done += n
        figures = {k: v if isinstance(v, str) else f"{v:.4g}" for k, v in shown.items()}
        if self._bar is not None:
            if figures:
                self._bar.set_postfix(figures, refresh=False)
            self._bar.update(n)
        elif self._clock() >= self._next:
            self._next = self._clock() + self._every
            parts = [f"{self.what} {self.done}/{self.total}", f"{span(self.left())} left"]
            parts += [f"{name} {value}" for name, value in figures.items()]
            print(", ".join(parts), file=self._stream, flush=True)

    def left(self) -> float:
        """Seconds that the remaining steps take at the pace so far (not-a-number before one)."""
        steps = self.done - self._first
        if steps <= 0:
            return float("nan")
        return (self._clock() - self._start) / steps * max(0, self.total - self.done)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        self.close()


def over(items: Iterable[Item], what: str, total: int | None = None) -> Iterator[Item]:
    """The items of an iterable of known length, with a Bar around them."""
    if total is None:
        if not isinstance(items, Sized):
            raise ValueError(f"{what}: the items have no length, so give total")
        total = len(items)
    with Bar(total, what) as bar:
        for item in items:
            yield item
            bar.step()


def span(seconds: float) -> str:
    """Seconds as a person says them: 45 s, 3:20, 2:05:00; a question mark for not-a-number."""
    if seconds != seconds:
        return "?"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    hours, rest = divmod(whole, 3600)
    minutes = f"{rest // 60:02d}" if hours else f"{rest // 60}"
    return (f"{hours}:" if hours else "") + f"{minutes}:{rest % 60:02d}"
