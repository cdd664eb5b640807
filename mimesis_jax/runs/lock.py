"""The lock of a run folder: one process at a time, and a clear word about who it is.

The kernel's record lock is what counts: it goes with its process, however that ends, and is not
handed down to forked children. The file's text says who holds it, and speaks for hosts and file
systems whose record locks this one cannot see; the time of its last change is the holder's last
sign of life. Whether a process of another host is dead nobody can know from here, so its lock is
never taken over but by a person, who removes the file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import socket
import threading
import time
from pathlib import Path
from typing import Any

from mimesis_jax.runs import disk

BEAT = 15.0  # seconds between two signs of life
TIME = "%Y-%m-%d %H:%M:%S%z"
_held: dict[tuple[int, int], Path] = {}  # by device and inode: a process never conflicts with its
# own record locks, so this has to


class Lock:
    """Holds `path` from construction to `release()`, and gives a sign of life every BEAT seconds.

    Raises RunError naming the holder's pid, host and start when another process (or this one) has
    it, and for one of another host its last sign of life and how to take over by hand. What a dead
    process on this host left behind is taken over.
    """

    def __init__(self, path: Path):
        self.path = path
        self._fd = self._take()
        self._over = threading.Event()
        self._beating = threading.Thread(target=self._beat, args=(self._fd,), daemon=True)
        self._beating.start()

    def _take(self) -> int:
        while True:
            # Not even opened: closing any descriptor of the file would drop this process's record
            # lock on it.
            if _there(self.path) in _held:
                raise disk.RunError(self._refusal({"pid": os.getpid(), "host": _host()}))
            try:
                fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            except OSError as error:
                raise disk.explain(error, self.path) from error
            inode = _inode(fd)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked = True
            except OSError:
                locked = False
            holder = _holder(fd)
            if not locked or _alive(holder):
                beaten = os.fstat(fd).st_mtime
                os.close(fd)
                raise disk.RunError(self._refusal(holder, beaten))
            if _there(self.path) != inode:  # its holder removed it between our open and our lock
                os.close(fd)
                continue
            me = {"pid": os.getpid(), "host": _host(), "born": _process(os.getpid())[1]}
            text = json.dumps(me | {"since": time.strftime(TIME), "beat": BEAT})
            os.ftruncate(fd, 0)
            os.pwrite(fd, text.encode(), 0)
            _held[inode] = self.path
            return fd

    def _beat(self, fd: int) -> None:
        while not self._over.wait(BEAT):
            with contextlib.suppress(OSError):  # a file system away for a while; removed by hand
                os.utime(fd)

    def _refusal(self, holder: dict[str, Any], beaten: float | None = None) -> str:
        """beaten: when the file was last changed, by the clock of its file system."""
        where = holder.get("host", "an unknown host")
        since = f" since {holder['since']}" if "since" in holder else ""
        said = f"process {holder.get('pid', 'unknown')} on {where}{since}"
        said = f"the run folder {self.path.parent} is in use by {said}"
        if where == _host() or beaten is None:
            return f"{said}: wait for it, stop it, or choose another folder"
        ago = max(0, round(time.time() - beaten))
        beat = holder.get("beat")
        often = f", one comes every {beat:g} s" if isinstance(beat, float) else ""
        return (
            f"{said}; its last sign of life is of {time.strftime(TIME, time.localtime(beaten))}, "
            f"{ago} s ago{often}. Whether it still runs cannot be seen from here: if {where} is "
            "gone, or the process no longer runs there, take the folder over by `rm "
            f"{shlex.quote(str(self.path))}` and give the same command again; while it runs, both "
            "would write here"
        )

    def release(self) -> None:
        """Gives the folder free; a second call does nothing."""
        if self._fd < 0:
            return
        self._over.set()
        self._beating.join(BEAT)
        inode = _inode(self._fd)
        _held.pop(inode, None)
        with contextlib.suppress(OSError):
            if _there(self.path) == inode:  # else somebody has taken it over by hand: it is theirs
                self.path.unlink()
        os.close(self._fd)
        self._fd = -1


def leave() -> None:
    """Removes this process's locks, right before an end that no `release` comes before: else who
    restarts the run on another host would have to remove them by hand."""
    for inode, path in list(_held.items()):
        with contextlib.suppress(OSError):
            if _there(path) == inode:
                path.unlink()


def _there(path: Path) -> tuple[int, int] | None:
    """The inode that lies at the path now, None where there is nothing."""
    with contextlib.suppress(FileNotFoundError):
        return _inode(path)
    return None


def _inode(where: int | Path) -> tuple[int, int]:
    """Device and inode of an open file or of a path."""
    stat = os.stat(where)
    return (stat.st_dev, stat.st_ino)


def _holder(fd: int) -> dict[str, Any]:
    """Who the file says holds it; empty when it says nothing that can be read."""
    with contextlib.suppress(ValueError):
        told = json.loads(os.pread(fd, 4096, 0))
        return told if isinstance(told, dict) else {}
    return {}


def _alive(holder: dict[str, Any]) -> bool:
    """Whether the named process may still run: on another host nobody can tell, so yes."""
    if holder.get("host", _host()) != _host():  # where our own number may be somebody else's
        return True
    pid = holder.get("pid")
    if not isinstance(pid, int) or pid == os.getpid():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    state, born = _process(pid)
    if state == "Z":  # killed, and its parent has not looked yet
        return False
    return holder.get("born") in (None, born)  # else the pid has been given to another


def _process(pid: int) -> tuple[str, int | None]:
    """State letter and start time in clock ticks since boot ("", None where they are hidden)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        told = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return told[0], int(told[19])
    return "", None


def _host() -> str:
    return socket.gethostname()
