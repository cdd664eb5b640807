"""Rows of raw files: streamed one at a time, checked field by field, faults counted and named."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar, cast

T = TypeVar("T")
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

MAX_ROW_BYTES = 32 << 20  # the longest conversations of the public sets are under 4 MiB
HOPELESS = 100  # a file whose first rows are all malformed is of another format: stop early


class Malformed(ValueError):
    """A row that cannot be read: `field` says where in it (`messages[2].content`), `why` why."""

    def __init__(self, field: str, why: str):
        super().__init__(f"{field}: {why}")
        self.field, self.why = field, why


class TooManyMalformed(ValueError):
    """The share of malformed rows is past what the caller allows."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """One malformed row. line: 1-based; in a json document, the number of the dialogue in it."""

    file: str
    line: int
    field: str
    why: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.field}: {self.why}"


class Ledger:
    """Counts what a reading took and left, keeps the first faults, and says when it is too much.

    max_bad_share: share of malformed rows in [0, 1] that is still fine. It is judged when a reading
      ends (and early only where the first `HOPELESS` rows are all malformed), so a reading that is
      left half-way is not judged.
    keep: how many faults are kept and listed.
    """

    def __init__(self, max_bad_share: float = 0.01, keep: int = 5):
        if not 0 <= max_bad_share <= 1:
            raise ValueError(f"max_bad_share={max_bad_share} is not a share: use 0 to 1")
        self.max_bad_share, self.keep = max_bad_share, keep
        self.good = self.bad = 0
        self.faults: list[Fault] = []

    def accept(self) -> None:
        self.good += 1

    def reject(self, fault: Fault) -> None:
        self.bad += 1
        if len(self.faults) < self.keep:
            self.faults.append(fault)
        if self.bad == HOPELESS and self.good == 0:
            self.check()

    def check(self) -> None:
        """Raises TooManyMalformed when the share of malformed rows is past `max_bad_share`."""
        rows = self.good + self.bad
        if self.bad > self.max_bad_share * rows:
            raise TooManyMalformed(
                f"{self.bad} of {rows} rows are malformed ({self.bad / rows:.2%}, limit "
                f"{self.max_bad_share:.2%}): mend them or raise max_bad_share\n{self.listing()}"
            )

    def listing(self) -> str:
        """The kept faults, one a line, and how many more there are."""
        shown = [f"  {fault}" for fault in self.faults]
        more = self.bad - len(shown)
        return "\n".join(shown + ([f"  ... and {more} more"] if more else []))


def each(paths: Paths) -> list[Path]:
    """One path or several, as a list of existing files. Raises FileNotFoundError, ValueError."""
    several = [paths] if isinstance(paths, (str, os.PathLike)) else list(paths)
    if not several:
        raise ValueError("no source file was given: name at least one")
    for path in map(Path, several):
        if not path.is_file():
            raise FileNotFoundError(f"source {path} is not a file: give the data set's own file")
    return [Path(path) for path in several]


def opened(path: Path) -> IO[bytes]:
    """The file's bytes, unpacked where its first two bytes are those of gzip."""
    with open(path, "rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
    return cast(IO[bytes], gzip.open(path, "rb")) if packed else open(path, "rb")


def _lines(path: Path, limit: int) -> Iterator[tuple[int, bytes | None]]:
    """(line number, bytes), or None in place of a line over `limit` bytes, which is never held."""
    with opened(path) as file:
        number = 0
        while line := file.readline(limit + 1):
            number += 1
            if len(line) <= limit or line.endswith(b"\n"):
                yield number, line
                continue
            while line and not line.endswith(b"\n"):
                line = file.readline(limit + 1)
            yield number, None


def _constant(name: str) -> Any:
    raise Malformed("-", f"{name} is not JSON")


def decoded(raw: bytes) -> Any:
    """The JSON value in `raw`. Raises Malformed (field "-") for anything else."""
    try:
        return json.loads(raw.decode("utf-8"), parse_constant=_constant)
    except Malformed:
        raise
    except UnicodeDecodeError as error:
        byte = raw[error.start]
        raise Malformed("-", f"byte {error.start} (0x{byte:02x}) is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise Malformed("-", f"not JSON: {error.msg} at column {error.colno}") from None
    except (RecursionError, ValueError) as error:  # nested too deep; an endless number
        raise Malformed("-", f"not readable as JSON: {error}") from None


def _broken(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path} cannot be read to its end ({error}): fetch it again")


def jsonl(
    paths: Paths,
    parse: Callable[[dict, str], T],
    ledger: Ledger | None = None,
    *,
    max_row_bytes: int = MAX_ROW_BYTES,
) -> Iterator[T]:
    """What `parse(row, name)` makes of each row of the jsonl files, streamed; .gz accepted.

    paths: one file or several. Blank lines are passed over.
    parse: gets the row and `<file name>:<line>` (a name for rows without one); raises Malformed.
    ledger: counts; checked when the last file ends. None: a new one with its defaults.
    Raises TooManyMalformed, FileNotFoundError, ValueError (a broken gzip file).
    """
    ledger = Ledger() if ledger is None else ledger
    for path in each(paths):
        try:
            for line, raw in _lines(path, max_row_bytes):
                if raw is not None and not raw.strip():
                    continue
                try:
                    if raw is None:
                        raise Malformed("-", f"longer than {max_row_bytes} bytes")
                    made = parse(mapping(decoded(raw), "-"), f"{path.name}:{line}")
                except Malformed as fault:
                    ledger.reject(Fault(str(path), line, fault.field, fault.why))
                    continue
                ledger.accept()
                yield made
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise _broken(path, error) from None
    ledger.check()


def document(path: Path) -> Any:
    """The one JSON value of a file (.gz accepted), held whole: for sets published that way.

    Raises ValueError naming the file.
    """
    try:
        with opened(path) as file:
            return decoded(file.read())
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _broken(path, error) from None
    except Malformed as fault:
        raise ValueError(f"{path}: {fault.why}") from None


# --- fields: each returns the value or raises Malformed naming the field -----------------------


def _is(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true/false", type(None): "null"}
    return names.get(type(value), "a number")


def mapping(value: Any, field: str) -> dict:
    if not isinstance(value, dict):
        raise Malformed(field, f"is {_is(value)}, not an object")
    return value


def listing(value: Any, field: str) -> list:
    if not isinstance(value, list):
        raise Malformed(field, f"is {_is(value)}, not a list")
    return value


def text(value: Any, field: str) -> str:
    """`value` when it is text that UTF-8 can carry (no lone surrogate)."""
    if not isinstance(value, str):
        raise Malformed(field, f"is {_is(value)}, not text")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Malformed(field, f"holds half a character at {error.start}") from None
    return value


def member(row: dict, key: str, at: str = "") -> Any:
    """row[key]; `at` is the path of `row` itself. Raises Malformed where it is missing."""
    if key not in row:
        raise Malformed(f"{at}{key}", "is missing")
    return row[key]


def optional(row: dict, key: str, at: str = "") -> str | None:
    """row[key] as text; None where it is missing, null or blank."""
    value = row.get(key)
    return None if value is None or not text(value, f"{at}{key}").strip() else value


def named(row: dict, key: str, fallback: str) -> str:
    """An identifier: text or a whole number under `key`, `fallback` where there is none."""
    value = row.get(key)
    if value is None or value == "":
        return fallback
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return text(value, key)
