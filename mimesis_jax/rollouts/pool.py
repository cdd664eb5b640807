"""Threads for what may be slow or hang: users and gyms that are called and do not answer at once.

A thread cannot be stopped. A call past its time-out is given up: its outcome is a fault, its thread
is written off and another takes its place, and what it hands back later is dropped.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import queue
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from mimesis_jax import types


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a call. value: what it gave. fault: None, "raised", "timeout" or "exhausted"
    (too many threads hang); reason: in words."""

    value: Any = None
    fault: str | None = None
    reason: str = ""


@dataclasses.dataclass(eq=False)
class _Call:
    tag: Hashable
    run: Callable[[], Any]
    began: float = 0.0
    over: bool = False  # given up by `ready`


class Pool:
    """`submit(tag, call)`, then `ready()` gives (tag, Outcome) of the calls that have ended.

    workers: calls that run at the same time. timeout: seconds of one call, from its start (waiting
    for a thread does not count). hanging: most threads that may be written off; past it calls fail
    at once, since each lost thread keeps its memory. The threads are daemons: none of them holds up
    the end of the process. counts: calls, fault_raised, fault_timeout, fault_exhausted, late.
    """

    def __init__(self, *, workers: int = 32, timeout: float = 30.0, hanging: int = 256):
        if workers < 1 or hanging < 1 or not timeout > 0:
            raise ValueError(
                f"workers {workers}, hanging {hanging} and timeout {timeout} must be positive"
            )
        self.workers, self.timeout, self.hanging = workers, timeout, hanging
        self.counts: collections.Counter[str] = collections.Counter()
        self._todo: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[Hashable, Outcome]] = queue.SimpleQueue()
        self._busy: set[_Call] = set()
        self._lock = threading.Lock()
        self._threads = self._idle = self._lost = self._queued = 0
        self._closed = False

    def submit(self, tag: Hashable, run: Callable[[], Any]) -> None:
        """Calls `run()` in a thread; its outcome is handed out by `ready` under this tag."""
        if self._closed:
            raise ValueError("the pool is closed: make a new one")
        self.counts["calls"] += 1
        if self._lost >= self.hanging:
            reason = f"{self._lost} calls hang already (hanging={self.hanging})"
            self._done.put((tag, Outcome(fault="exhausted", reason=reason)))
            return
        with self._lock:
            self._queued += 1
            # A thread that is idle may be claimed already by a call that it has not yet taken.
            grow = self._threads < self.workers and self._queued > self._idle
        if grow:
            self._start()
        self._todo.put(_Call(tag, run))

    def ready(self) -> list[tuple[Hashable, Outcome]]:
        """What has ended since the last look, calls past their time-out included."""
        now = time.monotonic()
        with self._lock:
            late = [call for call in self._busy if now - call.began > self.timeout]
            for call in late:
                call.over = True
                self._busy.discard(call)
                self._lost += 1
                self._threads -= 1
        out = [
            (call.tag, Outcome(fault="timeout", reason=f"no answer in {self.timeout:g} s"))
            for call in late
        ]
        for _ in late:
            self._start()
        while not self._done.empty():
            out.append(self._done.get())
        for _, outcome in out:
            if outcome.fault is not None:
                self.counts[f"fault_{outcome.fault}"] += 1
        return out

    def close(self) -> None:
        """Lets idle threads end; those that hang are left behind."""
        self._closed = True
        for _ in range(self._threads):
            self._todo.put(None)

    def _start(self) -> None:
        with self._lock:
            self._threads += 1
        threading.Thread(target=self._work, name="pool", daemon=True).start()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            call = self._todo.get()
            with self._lock:
                self._idle -= 1
                if call is None:
                    return
                self._queued -= 1
                call.began = time.monotonic()
                self._busy.add(call)
            try:
                outcome = Outcome(call.run())
            except BaseException as error:  # SystemExit too: it must not end more than its call
                outcome = Outcome(fault="raised", reason=f"{type(error).__name__}: {error}")
            with self._lock:
                if call.over:
                    self._lost -= 1
                    self.counts["late"] += 1
                    return  # another thread has its place
                self._busy.discard(call)
            self._done.put((call.tag, outcome))


def guarded(respond: types.Respond, queries: Sequence[types.Query]) -> Iterator[types.Answer]:
    """Asks a Respond query by query, so that what it raises, or hands back that is no answer, is
    the fault of one query: that one is FAILED, the others are not touched."""
    for query in queries:
        try:
            answers = respond.respond([query])
            answers = list(answers) if isinstance(answers, Iterable) else [answers]
        except Exception as error:  # whatever it is, it is this episode's
            reason = f"raised: {type(error).__name__}: {error}"
            yield query, types.Reply(types.Kind.FAILED, reason=reason)
            continue
        for answer in answers:
            if isinstance(answer, tuple) and len(answer) == 2:
                yield answer
            else:
                yield query, _garbage(f"{type(answer).__name__} where an answer was due")


def checked(query: types.Query, answers: Any) -> types.Reply:
    """The one reply to a query out of what a Respond handed back; anything else is FAILED.
    What its iterator raises is raised."""
    if not isinstance(answers, Iterable):
        return _garbage(f"{type(answers).__name__} where one answer was due")
    answers = list(answers)
    if len(answers) != 1 or not isinstance(answers[0], tuple) or len(answers[0]) != 2:
        return _garbage(f"{len(answers)} answers, or none, where one was due")
    asked, reply = answers[0]
    if not isinstance(asked, types.Query) or asked.key != query.key:
        return _garbage("an answer to another query")
    return sound(reply)


def sound(reply: Any) -> types.Reply:
    """`reply` where it is one; FAILED with the reason where it is none."""
    if not isinstance(reply, types.Reply):
        return _garbage(f"{type(reply).__name__} where a Reply was due")
    if not isinstance(reply.kind, types.Kind):
        return _garbage(f"kind {str(reply.kind)[:40]!r} is no Kind")
    for name, text in (("public", reply.public), ("private", reply.private or "")):
        if not isinstance(text, str):
            return _garbage(f"{name} is a {type(text).__name__}, not a text")
        try:
            text.encode()
        except UnicodeEncodeError:
            return _garbage(f"{name} is no valid Unicode")
    return reply


def _garbage(what: str) -> types.Reply:
    return types.Reply(types.Kind.FAILED, reason=f"garbage: {what}")


class Chair:
    """types.Respond: a Respond that answers each query within its call, run in a pool's threads.

    So a query that raises, hangs or answers garbage fails its own episode, and none waits for it.
    The Respond is called from several threads at once, one query a call; what it keeps by episode
    is safe, since an episode has one open query. counts: kind_KIND, fault_FAULT.
    """

    def __init__(self, respond: types.Respond, pool: Pool):
        if isinstance(respond, types.Seat):
            raise ValueError("a seat answers over several calls: hand it to `play` as it is")
        self.inner, self.pool = respond, pool
        self.counts: collections.Counter[str] = collections.Counter()

    def respond(self, queries: Sequence[types.Query]) -> Iterable[types.Answer]:
        for query in queries:
            self.pool.submit(_Tag(query), functools.partial(self._ask, query))
        answers = []
        for tag, outcome in self.pool.ready():
            if not isinstance(tag, _Tag):
                raise ValueError("this pool has other users: give each chair a pool of its own")
            reply = outcome.value
            if outcome.fault is not None:
                reason = f"{outcome.fault}: {outcome.reason}"
                reply = types.Reply(types.Kind.FAILED, reason=reason)
            self.counts[f"kind_{reply.kind}"] += 1
            if reply.kind is types.Kind.FAILED and reply.reason:
                self.counts[f"fault_{reply.reason.split(':')[0]}"] += 1
            answers.append((tag.query, reply))
        return answers

    def _ask(self, query: types.Query) -> types.Reply:
        return checked(query, self.inner.respond([query]))


@dataclasses.dataclass(frozen=True, eq=False)
class _Tag:
    query: types.Query
