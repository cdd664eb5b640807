"""The end of every process but 0: finds process 0, is taken in or told why not, keeps in touch."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from mimesis_jax.runs import processes_told as told
from mimesis_jax.runs import processes_wire as wire
from mimesis_jax.runs.processes_hub import Parts
from mimesis_jax.runs.processes_place import Place

PAUSE = 0.3  # seconds between two tries to reach process 0


class Spoke:
    """A process's end of its connection to process 0; arguments and verbs are those of Hub."""

    def __init__(
        self,
        place: Place,
        facts: dict[str, Any],
        settings: told.Settings,
        verdict: Callable[[str], None],
    ):
        self.place, self.facts, self.settings = place, facts, settings
        self._verdict = verdict
        self._me = told.me(place.index)
        self._zero: told.Member | None = None
        self._line: wire.Line | None = None
        self._meeting = 0
        self._answers: dict[int, Parts] = {}
        self._met = threading.Condition()
        self._close_relay: Callable[[], None] | None = None
        self._closing = False
        self.over: str | None = None  # why the run ended, where this process is not the cause
        self.jax_port = 0

    def muster(self) -> list[told.Member]:
        """Reaches process 0 and waits until all are there; all members, in order.

        Raises ProcessError: what process 0 says, or that it is not to be reached.
        """
        end = time.monotonic() + self.settings.arrive
        reason = "no try was made"
        while time.monotonic() < end:
            answer, reason = self._ask(end, reason)
            if answer is None:
                time.sleep(PAUSE)
                continue
            if "refused" in answer:
                raise told.ProcessError(answer["refused"], answer["status"])
            members = [told.Member(i, *who) for i, who in enumerate(answer["welcome"])]
            self._zero = members[0]
            self.jax_port, self._close_relay = wire.relay(
                (self.place.host, self.place.port), {"tunnel": 1}
            )
            wire.thread(self._listen)
            wire.thread(self._watch)
            return members
        raise told.ProcessError(
            f"{self._me} did not reach process 0 at {self.place.address} within "
            f"{self.settings.arrive:g} s ({reason}): start the same command on every worker, with "
            "the address of process 0 as --coordinator",
            told.LOST,
        )

    def _ask(self, end: float, before: str) -> tuple[dict | None, str]:
        """(the answer of process 0, or None; why it is None)."""
        address = (self.place.host, self.place.port)
        try:
            sock = socket.create_connection(address, timeout=5)
        except OSError as error:
            return None, f"{error.strerror or error}"
        line = wire.Line(sock)
        try:
            hello = {"index": self.place.index, "count": self.place.count, "facts": self.facts}
            line.send(hello | {"host": self._me.host, "pid": self._me.pid})
            # Process 0 speaks last, when its own time is over: wait a little longer than it does.
            sock.settimeout(max(1.0, end - time.monotonic()) + 30)
            frame = line.receive()
        except wire.Stranger:
            line.close()
            return None, "something else than this program answers there"
        except OSError as error:
            line.close()
            return None, f"it does not answer: {error.strerror or error}"
        if frame is None:
            line.close()
            return None, "the connection was closed there"
        if "again" in frame[0]:
            line.close()
            return None, frame[0]["again"]
        if "refused" not in frame[0] and "welcome" not in frame[0]:
            line.close()
            return None, before
        sock.settimeout(None)
        self._line = line
        return frame[0], ""

    # --- meeting --------------------------------------------------------------------------------

    def gather(self, name: str, value: Any, body: bytes, timeout: float | None) -> Parts:
        """What everybody brought to this meeting; process 0 says when it is too late."""
        number, self._meeting = self._meeting, self._meeting + 1
        assert self._line is not None
        try:
            self._line.send({"at": number, "name": name, "value": value}, body)
        except OSError:
            self._zero_gone()
        with self._met:
            self._met.wait_for(lambda: self.over is not None or number in self._answers)
            if number not in self._answers:
                raise told.ProcessError(str(self.over), told.LOST)
            return self._answers.pop(number)

    def _listen(self) -> None:
        assert self._line is not None
        while True:
            try:
                frame = self._line.receive()
            except OSError:
                frame = None
            if frame is None:
                self._zero_gone()
                return
            head, body = frame
            if "all" in head:
                parts, at = [], 0
                for value, size in zip(head["values"], head["sizes"], strict=True):
                    parts.append((value, body[at : at + size]))
                    at += size
                with self._met:
                    self._answers[head["all"]] = parts
                    self._met.notify_all()
            elif "over" in head:
                self._end(head["over"])
                return

    # --- watching and ending --------------------------------------------------------------------

    def _watch(self) -> None:
        assert self._line is not None
        tick = time.monotonic()
        while self.over is None and not self._closing:
            time.sleep(self.settings.beat)
            before, tick = tick, time.monotonic()
            if tick - before > self.settings.silent / 2:
                self._line.heard = tick  # it was this process that stood still
            with contextlib.suppress(OSError):
                self._line.send({"beat": 1}, wait=0.1)
            quiet = time.monotonic() - self._line.heard
            if quiet > self.settings.silent and not self._closing:
                self._end(
                    f"{self._zero} gave no sign of life for {quiet:.0f} s: it hangs, or its host "
                    "is unreachable"
                )

    def _zero_gone(self) -> None:
        self._end(
            f"{self._zero} is gone: its connection ended without a word, so it was killed or its "
            "machine went away"
        )

    def _end(self, text: str) -> None:
        with self._met:
            if self._closing or self.over is not None:
                return
            self.over = text
            self._met.notify_all()
        wire.thread(self._verdict, text)

    def fail(self, text: str) -> None:
        """Tells process 0, and through it everybody, that this process failed."""
        self._closing = True
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.send({"failed": text}, wait=1.0)

    def done(self, timeout: float) -> None:
        """After the last meeting: says that nothing more comes."""
        self._closing = True
        if self._line is not None:
            with contextlib.suppress(OSError):
                self._line.send({"done": 1}, wait=timeout)

    def close(self) -> None:
        """Ends the connection."""
        self._closing = True
        if self._close_relay is not None:
            self._close_relay()
        if self._line is not None:
            self._line.close()
