"""The desk of process 0: counts who arrives, compares them, passes their words on, watches them.

Every other process keeps one connection to it (processes_spoke.py). All of them, process 0
included, do the same named things in the same order; `gather` is where they meet.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from mimesis_jax.runs import processes_told as told
from mimesis_jax.runs import processes_wire as wire
from mimesis_jax.runs.processes_place import Place

GREETING = 1 << 16  # most bytes of a body before a connection has said who it is
Parts = list[tuple[Any, bytes]]  # what each process brought, in their order


class Hub:
    """Process 0's end. `muster()` waits for all, `gather` meets them, `close` ends it.

    facts: of this process, see processes_told.facts. verdict: called once, from a thread of its
    own, with what ended the run and who is meant.
    """

    def __init__(
        self,
        place: Place,
        facts: dict[str, Any],
        settings: told.Settings,
        verdict: Callable[[str], None],
    ):
        self.place, self.facts, self.settings = place, facts, settings
        self.members: dict[int, told.Member] = {0: told.me(0)}
        self._verdict = verdict
        self._facts = {0: facts}
        self._lines: dict[int, wire.Line] = {}
        self._said: dict[int, dict[int, tuple[str, Any, bytes]]] = {}  # meeting -> who -> what
        self._meeting = 0
        self._gone: set[int] = set()  # those that said they are done
        self.over: str | None = None  # why the run ended, where this process is not the cause
        self._closing = False
        self._jax_port = 0
        self._met = threading.Condition()
        self._listening = _listen(place, settings)
        wire.thread(self._accept)

    # --- arriving -------------------------------------------------------------------------------

    def muster(self) -> list[told.Member]:
        """Waits until all are there and are alike; then lets them go on. All members, in order.

        Raises ProcessError, and tells it to everybody who is there, when some are missing after
        `settings.arrive` seconds or differ in what has to be the same.
        """
        count = self.place.count
        end = time.monotonic() + self.settings.arrive
        with self._met:
            self._met.wait_for(lambda: len(self.members) == count, end - time.monotonic())
            members = [self.members[i] for i in sorted(self.members)]
            error = self._unfit(members)
            self._jax_port = wire.free_port() if error is None else 0
            lines = list(self._lines.values())
        hosts = [[m.host, m.pid] for m in members]
        head = {"welcome": hosts} if error is None else {"refused": str(error)}
        for line in lines:
            with contextlib.suppress(OSError):
                line.send(head | {"status": error.status if error else 0})
        if error is not None:
            self.close()
            raise error
        wire.thread(self._watch)
        return members

    def _unfit(self, members: list[told.Member]) -> told.ProcessError | None:
        place = self.place
        if missing := sorted(set(range(place.count)) - set(self.members)):
            here = ", ".join(f"{m.index} on {m.host}" for m in members)
            verb = "is" if len(missing) == 1 else "are"
            elsewhere = "" if _local(place.host) else (
                f"; {place.host} is no address of this host, so check --coordinator too"
            )  # fmt: skip
            return told.ProcessError(
                f"{len(members)} of {place.count} processes arrived within "
                f"{self.settings.arrive:g} s ({here}); {told.listed(missing)} {verb} missing: "
                f"start the same command on every worker{elsewhere}",
                told.LOST,
            )
        if lines := told.skew(members, [self._facts[m.index] for m in members]):
            more = f"; and {len(lines) - 5} more" if len(lines) > 5 else ""
            return told.ProcessError(
                f"the processes are not alike: {'; '.join(lines[:5])}{more}. Install the same "
                "versions and give the same command on every worker",
                told.REFUSED,
            )
        return None

    @property
    def jax_port(self) -> int:
        """Where JAX's own service is to listen, on this host only: the others reach it by relay."""
        return self._jax_port

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listening.accept()
            except OSError:
                return
            wire.thread(self._greet, sock)

    def _greet(self, sock: socket.socket) -> None:
        """The first frame of a connection says what it is; whoever says nothing is shown out."""
        sock.settimeout(20)
        try:
            line = wire.Line(sock)
            frame = line.receive(most=GREETING)
            if frame is None:
                raise wire.Stranger("it said nothing")
            head = frame[0]
            if "tunnel" in head:
                sock.settimeout(None)
                wire.splice(sock, self._jax_service(), held=False)
                return
            sock.settimeout(None)
            member = told.Member(int(head["index"]), str(head["host"]), int(head["pid"]))
            refusal = self._enter(member, head, line)
        except (OSError, KeyError, TypeError, ValueError):
            sock.close()
            return
        if refusal is not None:
            with contextlib.suppress(OSError):
                line.send(refusal)
            line.close()
            return
        self._listen_to(member.index, line)

    def _jax_service(self) -> socket.socket:
        """A connection to JAX's service, which may start a little later than its clients."""
        end = time.monotonic() + self.settings.arrive
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self._jax_port), timeout=10)
            except OSError:
                if time.monotonic() > end or self._closing:
                    raise
                time.sleep(0.1)

    def _enter(self, member: told.Member, head: dict, line: wire.Line) -> dict | None:
        """Takes a process in; None, or why not (`again`: it may ask once more)."""
        count, theirs, facts = self.place.count, head["count"], dict(head["facts"])
        with self._met:
            if theirs != count:
                text = (
                    f"{member} was started as one of {theirs} processes, {self.members[0]} as one "
                    f"of {count}: give the same --processes on every worker"
                )
                return {"refused": text, "status": told.REFUSED}
            if not 0 < member.index < count:
                text = f"{member} is the second of that number: give each worker its own --process"
                return {"refused": text, "status": told.REFUSED}
            if member.index in self.members:
                # Either this one is started twice, or it was started anew before we ended.
                there = self.members[member.index]
                return {"again": f"{there} is there already: give each worker its own --process"}
            self.members[member.index] = member
            self._facts[member.index] = facts
            self._lines[member.index] = line
            self._met.notify_all()
        return None

    # --- meeting --------------------------------------------------------------------------------

    def gather(self, name: str, value: Any, body: bytes, timeout: float | None) -> Parts:
        """What everybody brought to this meeting; see processes.Group.gather.

        When not all came within `timeout` seconds the run is over, for everybody.
        """
        with self._met:
            number, self._meeting = self._meeting, self._meeting + 1
            self._bring(number, 0, name, value, body)
            self._met.wait_for(
                lambda: self.over is not None or len(self._said[number]) == self.place.count,
                timeout,
            )
            if self.over is not None:
                raise told.ProcessError(self.over, told.LOST)
            found = dict(self._said[number])
        if missing := sorted(set(range(self.place.count)) - set(found)):
            self._end(
                f"{len(found)} of {self.place.count} processes came to {name!r} within "
                f"{timeout:g} s; {', '.join(str(self.members[i]) for i in missing)} did not: its "
                "log says what it is doing"
            )
            raise told.ProcessError(str(self.over), told.LOST)
        with self._met:
            del self._said[number]
        parts = [found[i][1:] for i in range(self.place.count)]
        head = {"all": number, "values": [v for v, _ in parts], "sizes": [len(b) for _, b in parts]}
        whole = b"".join(b for _, b in parts)
        for i, line in self._lines.items():
            try:
                line.send(head, whole)
            except OSError:
                self._lost(i)
        return parts

    def _bring(self, number: int, who: int, name: str, value: Any, body: bytes) -> None:
        said = self._said.setdefault(number, {})
        said[who] = (name, value, body)
        if len({one[0] for one in said.values()}) > 1:
            first = min(said)
            other = next(i for i in sorted(said) if said[i][0] != said[first][0])
            self._end(
                f"the processes are not in step: {self.members[first]} is at {said[first][0]!r}, "
                f"{self.members[other]} at {said[other][0]!r}: a fault of this program, or a "
                "worker that reads other files than the others"
            )
        self._met.notify_all()

    def _listen_to(self, who: int, line: wire.Line) -> None:
        """Reads what one process says until it goes."""
        while True:
            try:
                frame = line.receive()
            except OSError:
                frame = None
            if frame is None:
                self._lost(who)
                return
            head, body = frame
            if "at" in head:
                with self._met:
                    self._bring(head["at"], who, head["name"], head["value"], body)
            elif "failed" in head:
                self._end(f"{self.members[who]} failed: {head['failed']}", but=who)
                return
            elif "done" in head:
                with self._met:
                    self._gone.add(who)
                    self._met.notify_all()
                return

    # --- watching and ending --------------------------------------------------------------------

    def _lost(self, who: int) -> None:
        """A connection ended without a word."""
        with self._met:
            if not self._jax_port:  # it may be started anew before all are there
                for known in (self.members, self._facts, self._lines):
                    known.pop(who, None)  # type: ignore[attr-defined]
                return
        if who not in self._gone:
            self._end(
                f"{self.members[who]} is gone: its connection ended without a word, so it was "
                "killed or its machine went away"
            )

    def _watch(self) -> None:
        now = time.monotonic()
        while self.over is None and not self._closing:
            time.sleep(self.settings.beat)
            before, now = now, time.monotonic()
            stood_still = now - before > self.settings.silent / 2  # this process, not the others
            for who, line in list(self._lines.items()):
                if who in self._gone:
                    continue
                with contextlib.suppress(OSError):  # a broken one is found by its reader
                    line.send({"beat": 1}, wait=0.1)
                if stood_still:
                    line.heard = now
                if now - line.heard > self.settings.silent:
                    self._end(
                        f"{self.members[who]} gave no sign of life for "
                        f"{now - line.heard:.0f} s: it hangs, or its host is unreachable"
                    )

    def _end(self, text: str, *, but: int | None = None) -> None:
        """The run is over: everybody (but one) is told why, once."""
        with self._met:
            if self.over is not None or self._closing:
                return
            self.over = text
            self._met.notify_all()
        for who, line in list(self._lines.items()):
            if who != but and who not in self._gone:
                with contextlib.suppress(OSError):
                    line.send({"over": text}, wait=1.0)
        wire.thread(self._verdict, text)

    def fail(self, text: str) -> None:
        """Tells everybody that this process failed."""
        self._closing = True
        for line in list(self._lines.values()):
            with contextlib.suppress(OSError):
                line.send({"over": f"{self.members[0]} failed: {text}"}, wait=1.0)

    def done(self, timeout: float) -> None:
        """After the last meeting: waits until the others have said that they are done."""
        others = set(range(1, self.place.count))
        with self._met:
            self._met.wait_for(lambda: self.over is not None or others <= self._gone, timeout)
        self._closing = True

    def close(self) -> None:
        """Gives the port free and ends every connection."""
        self._closing = True
        with contextlib.suppress(OSError):
            # A thread that waits in accept keeps the socket open past close(): wake it first.
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for line in list(self._lines.values()):
            line.close()


def _listen(place: Place, settings: told.Settings) -> socket.socket:
    """The socket of the coordinator's port. Raises ProcessError when somebody has it."""
    end = time.monotonic() + min(15.0, settings.arrive)
    loop = place.host in ("127.0.0.1", "localhost")
    while True:
        try:
            if not loop and socket.has_dualstack_ipv6():
                return socket.create_server(
                    ("", place.port), family=socket.AF_INET6, dualstack_ipv6=True
                )
            return socket.create_server(("127.0.0.1" if loop else "", place.port))
        except OSError as error:
            if time.monotonic() > end:  # an earlier run may take a moment to end
                raise told.ProcessError(
                    f"process 0 cannot listen on port {place.port} of this host "
                    f"({error.strerror}): end what uses it, or choose another port in "
                    "--coordinator on every worker"
                ) from error
            time.sleep(0.5)


def _local(host: str) -> bool:
    """Whether an address of that name is this machine's."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    for family, _, _, _, address in found:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address[0], 0))
            return True
    return False
