"""The run folder: frozen configuration, versions, lock, metrics, events, episodes, finished phases.

    OUT/config.json     the configuration; a restart with another one is refused
    OUT/versions.json   Python, packages, git revision, seed, hashes; and each restart
    OUT/lock            who is at work here
    OUT/metrics.jsonl   a line a step: {"phase", "step", "time", ...scalars}; OUT/tensorboard too
    OUT/events.jsonl    what the time went to: {"event", "time", "seconds", ...}
    OUT/episodes.jsonl  dialogues, public and private lanes apart (runs/episodes.py)
    OUT/phases.json     phases begun and finished, so that a restart goes on with the next one
    OUT/checkpoints     of each phase, unless the configuration (`checkpoints.folder`) says where

A restart repeats the steps after its checkpoint, so their lines are cut off first (`begin`):
metrics.jsonl and episodes.jsonl have no gap and no double line. events.jsonl is never cut, because
lost work is time too.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax import types
from mimesis_jax.runs import boards, checkpoint, disk, episodes, lock, mirror, versions

EVENTS = (
    "start", "restart", "compile", "data", "rollout", "score", "update", "save", "evaluate",
    "spoilt", "stop",
)  # fmt: skip
# What a restart may change: where a run computes and keeps things, and when it gives up.
FREE = ("checkpoints", "mesh", "*.optimizer.explode", "*.optimizer.patience")
LOGS = ("metrics", "episodes")  # those that a restart cuts back


def config(path: str | Path) -> configs.ConfigDict:
    """The configuration of an existing run. Raises RunError when the folder holds no run."""
    file = Path(path) / "config.json"
    if not file.is_file():
        raise disk.RunError(f"{path} is no run folder: it has no config.json")
    return configs.load(file.read_text())


class Run:
    """A run folder in use, from construction to `close()` (or as a `with` block).

    path: the folder, made when missing; one that holds a run is continued (`restarted`).
    config: ConfigDict or mapping, kept in config.json.
    seed, hashes: recorded in versions.json (hashes: name -> content hash, see `hash`).
    may_change: keys of the configuration that may differ on a restart, beside FREE: names of
      sections or dotted patterns ("engine", "*.optimizer.lr").
    Raises RunError, before anything is written, when the path is not a folder, is read-only, is in
    use by another process, or holds a run with another configuration.
    """

    def __init__(
        self,
        path: str | Path,
        config: Any,
        *,
        seed: int | None = None,
        hashes: Mapping[str, str] | None = None,
        may_change: Sequence[str] = (),
    ):
        self.path = Path(path)
        self._since_opened = time.monotonic()
        section = configs.plain(config).get("checkpoints") or {}
        self.checkpoints = configs.freeze(checkpoint.Config, section, "config.checkpoints")
        away = self.checkpoints.folder
        self._mirror = mirror.Mirror(self.path, away) if away else None
        _check_writable(self.path)
        if self._mirror is not None:
            self._mirror.fetch()
        _check_config(self.path, config, may_change)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise disk.explain(error, self.path) from error
        self._lock = lock.Lock(self.path / "lock")
        try:
            self.restarted = (self.path / "config.json").exists()
            self._begin_files(config, seed, hashes or {})
        except BaseException:
            self._lock.release()
            raise

    def _begin_files(self, config: Any, seed: int | None, hashes: Mapping[str, str]) -> None:
        made = versions.gather()
        self._versions = disk.read(self.path / "versions.json")
        if self._versions is None:
            self._versions = made | {"seed": seed, "hashes": {}, "restarts": []}
        elif self.restarted:
            now = {k: v for k, v in made.items() if v != self._versions.get(k)}
            self._versions["restarts"].append({"time": time.time(), "changed": now})
        self.write("versions.json", self._versions)
        self.write("config.json", configs.plain(config))
        for name, value in hashes.items():
            self.hash(name, value)
        self._phases: dict[str, dict[str, Any]] = disk.read(self.path / "phases.json") or {}
        self._logs = {n: disk.Log(self.path / f"{n}.jsonl") for n in (*LOGS, "events")}
        self._boards: dict[str, boards.Board] = {}
        self._since: dict[str, float] = {}
        self.event("restart" if self.restarted else "start", 0.0, pid=os.getpid())

    def told(self) -> dict[str, Any]:
        """What other processes of the run have to know (see runs.processes_folder), as json."""
        hashes = self._versions["hashes"]
        return {"restarted": self.restarted, "phases": self._phases, "hashes": hashes}

    def write(self, name: str, value: Any) -> None:
        """Writes `value` as the json file `name` of the run folder."""
        disk.write(self.path / name, value)

    # --- what happens in a run ----------------------------------------------------------------

    def metrics(self, phase: str, step: int, scalars: Mapping[str, Any]) -> None:
        """Records the scalars of one step (a line in metrics.jsonl, points in TensorBoard).

        Not-a-number and infinity are written as null. Raises RunError for names that are taken.
        """
        taken = sorted({"phase", "step", "time"} & set(scalars))
        if taken:
            raise disk.RunError(f"a metric cannot be called {taken[0]}: the line has that already")
        values = disk.plain(scalars)
        self._logs["metrics"].append({"phase": phase, "step": step, "time": time.time()} | values)
        if phase not in self._boards:
            self._boards[phase] = boards.Board(self.path / "tensorboard" / phase, step)
        self._boards[phase].add(step, values)

    def event(self, event: str, seconds: float, **more: Any) -> None:
        """Records what some seconds went to; `event` is one of EVENTS.

        `time` is the machine's clock, which may jump; `up`, the seconds since this process opened
        the run, does not.
        """
        if event not in EVENTS:
            close = configs.nearest(event, EVENTS)
            raise disk.RunError(f"event {event!r} is not one of {', '.join(EVENTS)}: use {close}?")
        self._logs["events"].append(
            {"event": event, "time": time.time(), "up": self._up(), "seconds": seconds} | more
        )

    def _up(self) -> float:
        return round(time.monotonic() - self._since_opened, 6)

    @contextlib.contextmanager
    def timed(self, event: str, **more: Any) -> Iterator[None]:
        """Records the seconds that its block takes as an event, also when the block fails."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.event(event, time.monotonic() - start, **more)

    def episode(
        self,
        phase: str,
        step: int,
        episode: types.Episode,
        *,
        user: str,
        agent: str,
        csd: Sequence[episodes.Coached] = (),
    ) -> None:
        """Records one episode as a line of episodes.jsonl; see episodes.record."""
        line = episodes.record(episode, phase=phase, step=step, user=user, agent=agent, csd=csd)
        self._logs["episodes"].append(line)

    def hash(self, name: str, value: str) -> None:
        """Records a content hash under a name, or checks that it is the recorded one.

        Raises RunError when another hash was recorded: what was frozen has changed.
        """
        known = self._versions["hashes"].setdefault(name, value)
        if known != value:
            raise disk.RunError(
                f"{name} has the hash {value[:12]}..., this run recorded {known[:12]}...: it was "
                "changed; restore it or start in a new folder"
            )
        self.write("versions.json", self._versions)

    def hashes(self) -> dict[str, str]:
        """Name -> content hash of what this run has recorded, and of each finished phase's result.

        Kept with every checkpoint and compared when it is restored: see `check_hashes`.
        """
        ended = {name: (state.get("done") or {}) for name, state in self._phases.items()}
        made = {name: done["hash"] for name, done in ended.items() if "hash" in done}
        return made | self._versions["hashes"]

    def check_hashes(self, kept: Mapping[str, str]) -> None:
        """Raises RunError when a checkpoint was made beside other frozen models than these."""
        here = self.hashes()
        for name in sorted(kept.keys() & here.keys()):
            if kept[name] != here[name]:
                raise disk.RunError(
                    f"the checkpoint was made with {name} {kept[name][:12]}..., {self.path} has "
                    f"{here[name][:12]}...: restore the models it was made with, or start in a new "
                    "folder"
                )

    def store(self, name: str) -> checkpoint.Store:
        """The checkpoints of a phase, where and as many as the configuration's `checkpoints` says.

        Raises RunError when they cannot be written there.
        """
        chosen = self.checkpoints
        inside = chosen.folder.rstrip("/") or str(self.path / "checkpoints")
        return checkpoint.Store(f"{inside}/{name}", keep=chosen.keep, every=chosen.every or None)

    # --- phases and restarts ------------------------------------------------------------------

    def begin(self, phase: str, mark: Mapping[str, Any] | None = None) -> None:
        """Begins a phase, or goes on with it from the `mark()` kept with its checkpoint.

        Without a mark the phase starts from its beginning; either way the lines of steps that are
        now repeated are cut off. Call it before the phase writes its first line. Phases run one
        after another: RunError when this one is finished or another one is not.
        """
        if self.done(phase) is not None:
            raise disk.RunError(f"phase {phase!r} is finished: ask done({phase!r}) before begin")
        for other, state in self._phases.items():
            if other != phase and "done" not in state:
                raise disk.RunError(
                    f"phase {phase!r} cannot begin: {other!r} was begun and is not finished; give "
                    "the command that began it again, or start in a new folder"
                )
        state = self._phases.setdefault(phase, {})
        start = state.setdefault("begin", self.mark())
        mark = dict(mark or start)
        for name in LOGS:
            self._logs[name].cut(mark[name])
        board = self._boards.pop(phase, None)
        if board is not None:
            board.close()
        self._since[phase] = time.monotonic() - float(mark.get("seconds", 0.0))
        self.write("phases.json", self._phases)

    def mark(self, phase: str | None = None) -> dict[str, Any]:
        """Where the logs are and the seconds spent on `phase`; keep it with the checkpoint."""
        lengths = {name: self._logs[name].mark() for name in LOGS}
        return lengths | {"seconds": self.seconds(phase) if phase else 0.0}

    def seconds(self, phase: str) -> float:
        """Seconds that a phase took (or has taken so far), without work lost to a kill."""
        if "seconds" in self._phases.get(phase, {}):
            return float(self._phases[phase]["seconds"])
        return time.monotonic() - self._since[phase] if phase in self._since else 0.0

    def finish(self, phase: str, payload: Mapping[str, Any] | None = None) -> None:
        """Marks a phase as finished, with what later phases need of it (json values)."""
        state = self._phases.setdefault(phase, {})
        state |= {"seconds": self.seconds(phase), "done": disk.plain(payload or {})}
        self.mark()  # its lines are on the disk before the word that it is done
        self.write("phases.json", self._phases)
        self.push()

    def push(self) -> None:
        """Copies what has changed beside the checkpoints, where these lie elsewhere: call it before
        each save, as a checkpoint without its logs is of no use. Raises RunError."""
        if self._mirror is not None:
            self._mirror.push()

    def done(self, phase: str) -> dict[str, Any] | None:
        """The payload of a finished phase, None when it is still to be done."""
        return self._phases.get(phase, {}).get("done")

    def measured(self, phase: str, measure: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """A phase that measures something once: its json values, read by a restart."""
        if (done := self.done(phase)) is None:
            self.begin(phase)
            with self.timed("evaluate", phase=phase):
                done = disk.plain(measure())
            self.finish(phase, done)
        return done

    # --- the end ------------------------------------------------------------------------------

    def close(self, error: BaseException | None = None) -> None:
        """Closes the files and gives the folder free; a second call does nothing."""
        if self._logs:
            try:
                cause = {"error": type(error).__name__} if error is not None else {}
                self.event("stop", 0.0, **cause)
                if error is None:
                    self.push()
            finally:
                with contextlib.ExitStack() as stack:  # each is closed, whatever another says
                    stack.callback(self._lock.release)
                    for log in self._logs.values():
                        stack.callback(log.close)
                    for board in self._boards.values():
                        stack.callback(board.close)
                    self._logs, self._boards = {}, {}

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind, error, trace) -> None:
        self.close(error)


def finished(path: str | Path, config: Any, last: str) -> bool:
    """Whether `path` holds a run with this configuration whose phase `last` is done.

    Writes nothing. Raises RunError when it holds a run with another configuration.
    """
    path = Path(path)
    if not (path / "config.json").exists():
        return False
    _check_config(path, config, ())
    return "done" in (disk.read(path / "phases.json") or {}).get(last, {})


def _check_writable(path: Path) -> None:
    """Raises RunError when `path` cannot be, or become, a folder that can be written to."""
    there = path
    while not there.exists() and there != there.parent:
        there = there.parent
    if not there.is_dir():
        raise disk.RunError(f"{there} is not a folder: choose another --out")
    if not os.access(there, os.W_OK | os.X_OK):
        raise disk.RunError(
            f"{there} is read-only, so nothing can be kept in {path}: change its permissions or "
            "choose another --out"
        )


def _check_config(path: Path, config: Any, may_change: Sequence[str]) -> None:
    """Raises RunError when the folder holds a run with another configuration."""
    kept = disk.read(path / "config.json")
    if kept is None:
        configs.plain(config)  # what cannot be written is found before the folder is made
        return
    changed = [line for line in configs.changes(kept, config) if not _free(line, may_change)]
    if changed:
        shown = "; ".join(changed[:5]) + (f"; and {len(changed) - 5} more" * (len(changed) > 5))
        raise disk.RunError(
            f"{path} holds a run with another configuration ({shown}): give the same configuration "
            "to go on with it, or another --out to start anew"
        )


def _free(line: str, may_change: Sequence[str]) -> bool:
    """Whether a line of `config.changes` is about a key that may change."""
    key = line.partition(":")[0]
    wanted = (*FREE, *may_change)
    return any(fnmatch.fnmatchcase(key, form) for name in wanted for form in (name, f"{name}.*"))
