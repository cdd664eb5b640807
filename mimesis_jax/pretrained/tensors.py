"""One safetensors file: its header read with distrust, its tensors read by rows, a new one written.

The file is eight bytes of header length, a json header (name -> dtype, shape, offsets) and the
tensors' bytes. Nothing in it is executed, and no size it claims is believed before it fits the
file.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

HEADER_LIMIT = 100_000_000  # bytes; the format's own limit
SIZES = {  # bytes an element
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2,
    "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
FLOATS: dict[str, np.dtype] = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
}
CODES = {"float32": "F32", "bfloat16": "BF16"}


class Refused(ValueError):
    """A checkpoint that is not read, or not written; the message says why and what would mend it.

    Nothing was executed, and nothing half written is left.
    """


@dataclasses.dataclass(frozen=True)
class Entry:
    """A tensor in a file: dtype is safetensors' code ("BF16"), offset and size are bytes."""

    file: Path
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int

    def rows(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) of the leading axis as [stop - start, ...]; reads only those bytes.

        Raises Refused when the dtype is no float, or the file was cut since its header was read.
        """
        if self.dtype not in FLOATS:
            raise Refused(
                f"{self.name} in {self.file} is {self.dtype}: weights are {', '.join(FLOATS)}; "
                "give a checkpoint that is not quantised"
            )
        row = self.shape[1:]
        size = math.prod(row) * SIZES[self.dtype]
        out = np.empty((stop - start) * size, np.uint8)
        self._into(out, self.offset + start * size)
        return out.view(FLOATS[self.dtype]).reshape(stop - start, *row)

    def blocks(self, limit: int = 1 << 26) -> Iterable[np.ndarray]:
        """The tensor's raw bytes, at most `limit` at a time, as uint8 arrays."""
        for start in range(0, self.size, limit):
            out = np.empty(min(limit, self.size - start), np.uint8)
            self._into(out, self.offset + start)
            yield out

    def _into(self, out: np.ndarray, offset: int) -> None:
        with open(self.file, "rb") as file:
            file.seek(offset)
            if file.readinto(out.data) != out.size:
                raise Refused(f"{self.file} was cut while {self.name} was read: fetch it again")


def header(path: Path) -> dict[str, Entry]:
    """The tensors of a file by name; no tensor is read.

    Raises Refused naming the file when it is cut, no safetensors file, or its header lies: a length
    beyond the file, broken json, a name twice, an unknown dtype, offsets that do not fit the shapes
    or do not cover the file exactly.
    """
    whole = path.stat().st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if whole < 8 or not 2 <= length <= min(HEADER_LIMIT, whole - 8):
            raise Refused(
                f"{path}, {whole} bytes, announces a header of {length} bytes (the limit is "
                f"{HEADER_LIMIT} and the file): it is cut or no safetensors file; fetch it again"
            )
        text = file.read(length)
    try:
        parsed = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise Refused(f"the header of {path} cannot be read ({error}): fetch it again") from error
    if not isinstance(parsed, dict):
        raise Refused(f"the header of {path} is no json object: fetch it again")
    parsed.pop("__metadata__", None)
    found = {name: _entry(path, name, value, 8 + length) for name, value in parsed.items()}
    _covered(path, found.values(), 8 + length, whole)
    return found


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(n for n in names if names.count(n) > 1)!r} is there twice")
    return found


def _entry(path: Path, name: str, value: Any, base: int) -> Entry:
    whole = lambda x: type(x) is int and x >= 0
    value = value if isinstance(value, dict) else {}
    dtype, shape, span = value.get("dtype"), value.get("shape"), value.get("data_offsets")
    if dtype not in SIZES:
        raise Refused(
            f"{name} in {path} has dtype {str(dtype)[:40]!r}: known are {', '.join(SIZES)}"
        )
    if not isinstance(shape, list) or not all(map(whole, shape)) or len(shape) > 8:
        raise Refused(f"{name} in {path} has no shape but {str(shape)[:80]}: fetch the file again")
    if not isinstance(span, list) or len(span) != 2 or not all(map(whole, span)):
        raise Refused(f"{name} in {path} lies at {str(span)[:80]}: fetch the file again")
    size = math.prod(shape) * SIZES[dtype]
    if span[1] - span[0] != size:
        raise Refused(
            f"{name} in {path} is {dtype}{shape}, {size} bytes, and lies at {span}: the header "
            "contradicts itself; fetch the file again"
        )
    return Entry(path, name, dtype, tuple(shape), base + span[0], size)


def _covered(path: Path, entries: Iterable[Entry], start: int, whole: int) -> None:
    """Raises Refused unless the tensors cover the file from `start` to its end, once each byte."""
    for entry in sorted(entries, key=lambda e: (e.offset, e.size)):
        if entry.offset != start:
            raise Refused(
                f"{entry.name} in {path} starts at byte {entry.offset}, the tensor before it ends "
                f"at {start}: the header is corrupt; fetch the file again"
            )
        start += entry.size
    if start != whole:
        raise Refused(
            f"{path} has {whole} bytes, its header describes {start}: it is cut or has foreign "
            "bytes at its end; fetch it again"
        )


@dataclasses.dataclass(frozen=True)
class Content:
    """A tensor to write: `parts` are arrays whose bytes, one after the other, are the tensor's."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    parts: Iterable[np.ndarray]

    @property
    def size(self) -> int:
        return math.prod(self.shape) * SIZES[self.dtype]


def write(path: Path, contents: Sequence[Content]) -> None:
    """Writes a safetensors file, tensor by tensor, and hands it to the disk.

    Wide dtypes come first, so that every tensor is aligned. Raises OSError when it cannot be
    written, ValueError when a tensor's parts are not as long as its shape says.
    """
    ordered = sorted(contents, key=lambda c: (-SIZES[c.dtype], c.name))
    described: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # readers of torch ask for it
    place = 0
    for content in ordered:
        span = [place, place + content.size]
        described[content.name] = {
            "dtype": content.dtype, "shape": list(content.shape), "data_offsets": span,
        }  # fmt: skip
        place = span[1]
    text = json.dumps(described, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for content in ordered:
            start = file.tell()
            for part in content.parts:
                file.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
            if file.tell() - start != content.size:
                raise ValueError(
                    f"{content.name} gave {file.tell() - start} bytes, its shape {content.size}"
                )
        file.flush()
        os.fsync(file.fileno())
