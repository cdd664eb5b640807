"""Seeds of the evidence shared among processes of this machine.

The models are so small that one process does not fill two cores, while two processes of one core
each do. Seeds have nothing in common but the folder of compiled programs, so each process takes its
own; this one only looks, at the folders, how far they are.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import connection
from pathlib import Path
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax.runs import disk, progress, signals

MEMORY = 4 << 30  # bytes a process is given; it was seen to use 1.6e9
LOOK = 2.0  # seconds between two looks at what is finished
PATIENCE = 120.0  # seconds in which a process that was asked to end saves where it is
WORDS = 2000  # most characters that a process says of what went wrong; its log has the rest
LOGS = "logs"


def count(asked: int | None, seeds: int) -> int:
    """How many processes work on so many unfinished seeds.

    asked: by the user; None for one a core where JAX computes on CPUs and memory allows, else one.
    Raises ConfigError when `asked` is less than 1.
    """
    if asked is not None and asked < 1:
        raise configs.ConfigError(f"--workers {asked}: use 1 or more")
    if seeds < 2 or asked == 1:
        return 1
    if asked is None:
        import jax

        if jax.default_backend() != "cpu":
            return 1
        asked = min(len(_cores()), max(1, _memory() // MEMORY))
    return min(asked, seeds)


def _cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):  # a system that does not say
        return MEMORY


class Bar(progress.Bar):
    """How far jobs (build.evidence.Job) are, by their weights."""

    def __init__(self, jobs: Sequence[Any], what: str):
        done = sum(job.weight for job in jobs if job.done())
        total = sum(job.weight for job in jobs)
        super().__init__(round(total), what, done=round(done), delay=0.0, every=0.0)

    def finished(self, job: Any) -> None:
        self.step(max(1, round(job.weight)), finished=job.what)


@dataclasses.dataclass(frozen=True)
class Work:
    """What a process is sent: how to run, the seeds it takes, its log, its cores."""

    run: Callable[[Sequence[int]], Any]
    seeds: tuple[int, ...]
    log: Path
    cores: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"seed{'s' if len(self.seeds) > 1 else ''} {', '.join(map(str, self.seeds))}"


def share(
    run: Callable[[Sequence[int]], Any], seeds: Sequence[int], workers: int, out: Path,
    jobs: Sequence[Any], what: str,
) -> None:  # fmt: skip
    """Calls `run(seeds)` in `workers` processes, each with seeds of its own, until all have ended.

    run: can be pickled. jobs: all that has to be done (build.evidence.Job), for the progress of
    `what`. What the processes say goes to OUT/logs. An interrupt or SIGTERM ends them too, after
    they have saved where they are; so does the end of this process, however it comes. Raises
    RunError, when the others have finished, for what a process could not do.
    """
    cores = _cores()
    (out / LOGS).mkdir(parents=True, exist_ok=True)
    works = []
    for i in range(workers):
        own = tuple(seeds[i::workers])
        log = out / LOGS / f"seeds_{'_'.join(map(str, own))}.log"
        works.append(Work(run, own, log, tuple(cores[i::workers]) or (cores[i % len(cores)],)))
    said = "; ".join(f"{work.name} in {work.log}" for work in works)
    left = sum(job.weight for job in jobs if not job.done()) / workers
    print(
        f"{workers} processes share the seeds, for about {progress.span(left)}, and say how they "
        f"do: {said}", file=sys.stderr,
    )  # fmt: skip
    spawn = multiprocessing.get_context("spawn")
    running: dict[Any, tuple[Any, Any, Work]] = {}
    wrong: list[str] = []
    try:
        for work in works:
            mine, theirs = spawn.Pipe(duplex=False)
            process = spawn.Process(target=_work, args=(work, theirs), daemon=True)
            process.start()
            theirs.close()
            running[process.sentinel] = process, mine, work
        _watch(running, wrong, jobs, what)
    finally:
        _end([process for process, _, _ in running.values()])
    if wrong:
        raise disk.RunError("; ".join(wrong))


def _watch(running: dict, wrong: list[str], jobs: Sequence[Any], what: str) -> None:
    """Shows what is finished until nobody works any more."""
    left = [job for job in jobs if not job.done()]
    with Bar(jobs, what) as bar:
        while running:
            for sentinel in connection.wait(list(running), timeout=LOOK):
                process, pipe, work = running.pop(sentinel)
                process.join()
                if (told := _told(process, pipe, work)) is not None:
                    wrong.append(told)
                    others = "; the others go on" if running else ""
                    print(f"mimesis: {told}{others}", file=sys.stderr, flush=True)
            for job in [job for job in left if job.done()]:
                left.remove(job)
                bar.finished(job)


def _told(process: Any, pipe: Any, work: Work) -> str | None:
    """What went wrong in a process that has ended; None when nothing did."""
    try:
        told = pipe.recv() if pipe.poll() else None
    except EOFError:
        told = None
    pipe.close()
    if told is not None:
        return f"{work.name}: {told}"
    if process.exitcode == 0:
        return None
    how = f"status {process.exitcode}"
    if process.exitcode < 0:
        how = f"{signal.Signals(-process.exitcode).name}, as when memory has run out"
    return (
        f"{work.name}: the process ended with {how}; its last words are in {work.log}. The same "
        "command goes on from the last checkpoint; --workers 1 needs the least memory"
    )


def _end(processes: Sequence[Any]) -> None:
    """Asks processes to end, and ends who does not."""
    for process in processes:
        process.terminate()
    until = time.monotonic() + PATIENCE
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()


# --- in a process of its own ----------------------------------------------------------------------


def _work(work: Work, pipe: Any) -> None:
    """Runs a process's seeds; what it could not do is sent, and nothing when all went well."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process hears it, and asks us to end
    with open(work.log, "a", buffering=1) as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, work.cores)
        with signals.heard():
            work.run(work.seeds)
    except signals.Terminated as ended:
        print(f"terminated: {ended}", file=sys.stderr)
        sys.exit(signals.STATUS)
    except Exception as error:
        traceback.print_exc()
        own = type(error).__module__.startswith("mimesis_jax")
        told = str(error) if own else f"{type(error).__name__}: {error} (see {work.log})"
        pipe.send(told[:WORDS])  # more than the pipe holds would wait for a reader


def _end_with_parent() -> None:
    """Ends this process when the one that started it has gone without a word."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(signals.STATUS)
