"""SIGTERM: the machine is about to go. What can be saved is saved, then the process ends with 143.

    with signals.heard():              # the command line, once
        ...
        with signals.held():           # a trainer: the state is whole between two steps only
            ... if signals.asked(): save, then signals.obey("saved after step 12")

Outside `held` a SIGTERM ends the work where it stands, as Ctrl-C does; inside it waits for the next
step boundary, and a second one does not wait. A handler belongs to the process, so the state here
does too.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator

STATUS = 128 + signal.SIGTERM  # the exit status of a run that ended so


class Terminated(BaseException):
    """The process was asked to end. No Exception: what catches the faults of an episode, a user or
    a file must not take it for one."""


_asked = False
_holding = 0


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Listens for SIGTERM inside the block. Threads other than the main one cannot: it does nothing
    there."""
    global _asked
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _asked = False
    before = signal.signal(signal.SIGTERM, _hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        _asked = False


def _hear(number: int, frame: object) -> None:
    global _asked
    again, _asked = _asked, True
    if _holding and not again:
        print(
            "\nSIGTERM: the state is saved after this step; a second one ends at once",
            file=sys.stderr, flush=True,
        )  # fmt: skip
        return
    raise Terminated("nothing was saved since the last checkpoint")


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Inside, a first SIGTERM is only noted; after the block it is obeyed."""
    global _holding
    _holding += 1
    try:
        yield
    finally:
        _holding -= 1
    if not _holding:
        obey("ended between two stages, nothing is lost")


def asked() -> bool:
    """Whether the process was asked to end."""
    return _asked


def ask() -> None:
    """As if SIGTERM had come: another process of the run was asked to end."""
    global _asked
    _asked = True


def obey(told: str) -> None:
    """Raises Terminated, saying `told`, when the process was asked to end."""
    if _asked:
        raise Terminated(told)
