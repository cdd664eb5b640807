"""Several processes as one run: they start together, meet at named points, and end together.

    place = processes.find(args.processes, args.process, args.coordinator)   # None: runs alone
    with processes.joined(place, processes.facts(config, verb="train")):
        ...
        episodes = processes.exchange(mine, "episodes")     # every process's bytes, in order
        if processes.is_lead():
            ...                                             # process 0 writes what is shared

Every process of a run calls these functions in the same order. Process 0 keeps a desk at the
coordinator's address (processes_hub.py): it counts who arrives and says who is missing, compares
versions, code and configuration, hands words on, and notices within seconds who is gone. JAX's own
service runs behind it. JAX alone aborts a process, with a stack trace and nobody's name, when
another one is missing or gone; that is why the desk comes first and why nothing here lives in JAX's
key-value store, which goes away with process 0.

A run of one process has none of this: the functions answer for it alone.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

from mimesis_jax.runs import lock, signals
from mimesis_jax.runs import processes_told as told
from mimesis_jax.runs.processes_hub import Hub
from mimesis_jax.runs.processes_place import Place, find
from mimesis_jax.runs.processes_spoke import Spoke
from mimesis_jax.runs.processes_told import LOST, REFUSED, ProcessError, Settings, facts

__all__ = ["LOST", "REFUSED", "Group", "Place", "ProcessError", "Settings", "agree", "alike",
           "barrier", "broken", "count", "exchange", "facts", "find", "index", "is_lead", "joined",
           "quit_if_broken", "start"]  # fmt: skip

SMALL = 1 << 22  # most bytes that the desk of process 0 sends out in one exchange
ASKED = (KeyboardInterrupt, signals.Terminated)  # somebody wanted this process to end
PATIENCE = 3.0  # seconds in which a broken collective may turn out to be somebody's end
PAD = 1 << 16  # least bytes a process in an exchange over the devices' network


class Group:
    """The processes of a run, as one of them sees them. Made by `start`.

    members: all of them in order. over: why the run has to end, None while it goes on.
    """

    def __init__(self, place: Place, facts: dict[str, Any], settings: Settings):
        self.place, self.settings = place, settings
        self.devices = False  # whether JAX spans the processes, so that arrays can be exchanged
        self.failed = False
        kind = Spoke if place.index else Hub
        self._end: Hub | Spoke = kind(place, facts, settings, self._ended)
        try:
            self.members = self._end.muster()
        except BaseException:
            self._end.close()
            raise

    @property
    def over(self) -> str | None:
        """Why another process, or a missing one, ended the run; None while it goes on."""
        return self._end.over

    def gather(self, name: str, value: Any = None, body: bytes = b"",
               timeout: float | None = None) -> list[tuple[Any, bytes]]:  # fmt: skip
        """What every process brought to the meeting `name`, in their order.

        value: json. timeout: seconds until all have to be there, None for no bound; process 0's
        counts. Raises ProcessError when a process is gone or failed, or came to another meeting,
        or did not come in time; the run is then over.
        """
        return self._end.gather(name, value, body, timeout)

    def begin_jax(self) -> None:
        """Starts jax.distributed behind the desk, and compares the devices."""
        import jax  # here: the command line imports this file, and answers --help at once

        place = self.place
        # On GPU and TPU this setting means nothing; on CPU the default cannot span processes.
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        # JAX's preemption service would take SIGTERM for itself, and runs/signals.py not hear it.
        jax.config.update("jax_enable_preemption_service", False)
        address = f"127.0.0.1:{self._end.jax_port}"
        jax.distributed.initialize(
            address, place.count, place.index,
            coordinator_bind_address=address,
            initialization_timeout=int(self.settings.arrive) + 1,
            # The desk notices earlier, and says who it is.
            heartbeat_timeout_seconds=int(max(100, 4 * self.settings.silent)),
        )  # fmt: skip
        mine = {"devices": jax.local_device_count(), "kind": jax.local_devices()[0].device_kind}
        self.alike(mine, "devices", "Every process needs as many devices of the same kind")
        self.devices = True

    def alike(self, mine: Mapping[str, Any], name: str, mend: str) -> None:
        """Compares what every process brought to the meeting `name`, json values by name.

        Raises ProcessError, on all of them alike, that names what differs between which two.
        """
        found = [value for value, _ in self.gather(name, mine)]
        if lines := told.skew(self.members, found):
            self.failed = True  # from here on nobody's end interrupts what is said here
            self.gather(f"{name}: not alike")  # everybody has found it
            raise ProcessError(
                f"the processes are not alike: {'; '.join(lines[:5])}. {mend}", REFUSED
            )

    # --- the end --------------------------------------------------------------------------------

    def fail(self, error: BaseException) -> str | None:
        """Something broke here. Why the run was over before that, if it was; else the others are
        told that it is this process."""
        self.failed = True
        # A collective breaks in the same moment as the connection to the desk: a little patience
        # tells the cause from the consequence.
        own = isinstance(error, (*ASKED, ProcessError))
        end = time.monotonic() + (0.0 if own else PATIENCE)
        while self.over is None and time.monotonic() < end:
            time.sleep(0.05)
        if self.over is None:
            text = next(iter(str(error).splitlines()), "")
            self._end.fail(f"{type(error).__name__}: {text}"[:2000])
        return self.over

    def close(self) -> None:
        """The ordinary end: all meet once more, and leave together."""
        self.gather("the end")
        if self.devices:
            import jax

            jax.distributed.shutdown()
        self._end.done(timeout=30.0)
        self._end.close()

    def _ended(self, text: str) -> None:
        """In a thread of its own: lets the main thread close its files, then ends the process.

        A main thread that waits in a collective for a process that is gone never comes back.
        """
        if not self.failed:
            _thread.interrupt_main(signal.SIGUSR2)
        time.sleep(self.settings.grace)
        print(f"mimesis: {self.words(text)}", file=sys.stderr, flush=True)
        _leave(LOST)

    def words(self, text: str) -> str:
        """What is said where this process ends because of another one."""
        return (
            f"{text}. Process {self.place.index} ends too; to go on from the last checkpoint, give "
            "the same command on every worker again"
        )

    def ended(self, error: BaseException) -> BaseException:
        """What to raise for something that broke here: itself, or the end that it comes from."""
        try:
            why = self.fail(error)
        except _Over:  # the news came while we were asking
            why = self.over
        found = isinstance(error, ProcessError) and error.status == REFUSED  # by all alike
        if why is None or found or isinstance(error, ASKED):
            return error
        return ProcessError(self.words(why), LOST)


class _Over(BaseException):
    """Raised in the main thread when the run is over; no `except Exception` keeps it."""


def _interrupt(number: int, frame: Any) -> None:
    if _group is None or not _group.failed:
        raise _Over


_group: Group | None = None


def start(place: Place, facts: dict[str, Any], settings: Settings | None = None, *,
          jax: bool = True) -> Group:  # fmt: skip
    """Joins the other processes; from here on the functions below answer for all of them.

    facts: see `facts`. jax: whether to start jax.distributed too; no JAX computation may have run
    before. Raises ProcessError that names who is missing, what differs, or what does not answer.
    """
    global _group
    if _group is not None:
        raise ProcessError("this process has joined a run already: end it before another start")
    group = _group = Group(place, facts, settings or Settings())
    try:
        if threading.current_thread() is threading.main_thread():
            # A signal of our own: where a run is started in the background SIGINT is ignored.
            signal.signal(signal.SIGUSR2, _interrupt)
        if jax:
            group.begin_jax()
    except BaseException as error:
        if (ended := group.ended(error)) is error:
            raise
        raise ended from error
    return group


@contextlib.contextmanager
def joined(
    place: Place | None, facts: dict[str, Any], settings: Settings | None = None
) -> Iterator:
    """`start`, then the block, then the end of all together; nothing for `place` None.

    A block that raises tells the other processes, which then end too. When another process ended
    the run, that is raised as a ProcessError in place of what broke here. After either, the process
    has to be left by `quit_if_broken`.
    """
    if place is None:
        yield None
        return
    global _group
    group = start(place, facts, settings)
    try:
        yield group
        group.close()
    except BaseException as error:
        if (ended := group.ended(error)) is error:
            raise
        raise ended from error
    _group = None


def broken() -> bool:
    """Whether the run of several processes ended other than well."""
    return _group is not None and (_group.failed or _group.over is not None)


def quit_if_broken(status: int) -> None:
    """Ends the process at once when the run of several processes did not end well.

    An ordinary end would wait minutes, in JAX, for processes that are gone.
    """
    if broken():
        _leave(status)


def _leave(status: int) -> None:
    lock.leave()  # a main thread held by a collective has closed nothing
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


# --- what a run asks ------------------------------------------------------------------------------


def index() -> int:
    """The number of this process, 0 when it runs alone."""
    return 0 if _group is None else _group.place.index


def count() -> int:
    """How many processes the run has."""
    return 1 if _group is None else _group.place.count


def is_lead() -> bool:
    """Whether this is process 0, which writes what is shared."""
    return index() == 0


def barrier(name: str, timeout: float | None = None) -> None:
    """Waits for every process. See Group.gather for what it raises."""
    if _group is not None:
        _group.gather(name, timeout=timeout)


def agree(value: Any, name: str, timeout: float | None = None) -> list[Any]:
    """Every process's json value, in their order."""
    if _group is None:
        return [json.loads(json.dumps(value))]
    return [one for one, _ in _group.gather(name, value, timeout=timeout)]


def alike(mine: Mapping[str, Any], name: str, mend: str) -> None:
    """Holds that every process has the same json values, for example hashes of what it has read.

    Raises ProcessError, on all of them, that names what differs and ends with `mend`.
    """
    if _group is not None:
        _group.alike(mine, name, mend)


def exchange(data: bytes, name: str, timeout: float | None = None) -> list[bytes]:
    """Every process's bytes, in their order.

    The processes meet on the hosts first, because one may come minutes after another and a
    collective of the devices does not wait that long. Few bytes then go through process 0; many are
    padded to a power of two, so that few programs compile, and gathered over the devices' network.
    """
    if _group is None:
        return [data]
    sizes = agree(len(data), name, timeout)
    if not _group.devices or sum(sizes) * len(sizes) <= SMALL:
        return [body for _, body in _group.gather(f"{name}, bytes", body=data)]
    return _over_devices(data, sizes)


def _over_devices(data: bytes, sizes: list[int]) -> list[bytes]:
    import numpy as np
    from jax.experimental import multihost_utils

    width = PAD
    while width < max(sizes):
        width *= 2
    padded = np.zeros(width, np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    whole = np.asarray(multihost_utils.process_allgather(padded))
    return [whole[i, :size].tobytes() for i, size in enumerate(sizes)]
