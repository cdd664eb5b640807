"""What a run writes: json files replaced as a whole, and logs of one json line each."""

from __future__ import annotations

import errno
import json
import math
import numbers
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any


class RunError(ValueError):
    """A run folder or file that cannot be used; the message says what would mend it."""


def plain(value: Any) -> Any:
    """`value` as json values: arrays of one number are numbers, not-a-number and infinity are null.

    Raises RunError for what json cannot hold.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and jax: arrays, and scalars that are no Python numbers
        return plain(value.tolist())
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value) if math.isfinite(value) else None
    raise RunError(
        f"{value!r} cannot be written as json: use numbers, text, lists and dicts of them"
    )


def explain(error: OSError, path: Path | str) -> RunError:
    """The error of a failed write in words that say what to do."""
    mend = {
        errno.ENOSPC: "the disk is full: free some space and give the same command again, "
        "it goes on from the last checkpoint",
        errno.EDQUOT: "your disk quota is used up: free some space and give the same command again",
        errno.EROFS: "the file system is read-only: choose another folder",
        errno.EACCES: "you may not write there: change its permissions or choose another folder",
    }
    reason = mend.get(error.errno or 0, f"{error.strerror or error}")
    return RunError(f"cannot write {path}: {reason}")


def write(path: Path, value: Any) -> None:
    """Writes `value` as json; a reader sees the old file or the new one, never a part of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(temporary, "w") as file:
            file.write(json.dumps(plain(value), indent=2, allow_nan=False) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise explain(error, path) from error


def read(path: Path) -> Any:
    """The json value in a file, None when there is no file. Raises RunError when it is broken."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise RunError(f"{path} is no json ({error}): restore or remove it") from error


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """The values of a log, in order; a last line that is still being written is left out."""
    if not path.exists():
        return
    with open(path, "rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield json.loads(line)
            except ValueError as error:
                raise RunError(f"{path}, line {number} is no json ({error}): remove it") from error


class Log:
    """A file of json lines that is only appended to, or cut back to an earlier length.

    A line that a killed process left half written is removed when the log is opened.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            self._file = open(path, "ab")  # noqa: SIM115 - held open for the run's life
        except OSError as error:
            raise explain(error, path) from error
        with open(path, "rb") as file:
            whole = _whole(file, self._file.tell())
        self._file.truncate(whole)

    def append(self, value: Mapping[str, Any]) -> None:
        """Adds one line and hands it to the system, so that kill -9 cannot lose it."""
        line = json.dumps(plain(value), allow_nan=False, separators=(",", ":")) + "\n"
        try:
            self._file.write(line.encode())
            self._file.flush()
        except OSError as error:
            raise explain(error, self.path) from error

    def mark(self) -> int:
        """The length in bytes, after everything has reached the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def cut(self, mark: int) -> int:
        """Cuts back to an earlier `mark()`; gives the number of bytes that were dropped.

        Raises RunError when the file is shorter than the mark: lines were lost.
        """
        length = self.mark()
        if length < mark:
            raise RunError(
                f"{self.path} has {length} bytes, the checkpoint was saved at {mark}: lines were "
                "lost; restore the file or start in a new folder"
            )
        self._file.truncate(mark)
        return length - mark

    def close(self) -> None:
        self._file.close()


def _whole(file, length: int, block: int = 1 << 16) -> int:
    """Bytes of `file` up to and with its last line end."""
    end = length
    while end > 0:
        start = max(0, end - block)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0
