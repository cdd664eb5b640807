"""The GGUF container: its metadata and where its tensors lie, read with every length checked.

A file is: magic, version, counts; then key-value pairs; then a table of tensors (name, sizes, type,
offset); then, aligned, the tensors. Lengths in a file that is cut or foreign are believed by nobody
here: each is compared with what is left of the file before anything is read or allocated.
"""

from __future__ import annotations

import dataclasses
import math
import mmap
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from mimesis_jax.pretrained import tensors

MAGIC, VERSIONS = b"GGUF", (2, 3)
SCALARS = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"
}  # fmt: skip
STRING, ARRAY = 8, 9
MOST_DIMS = 4
MOST_DEPTH = 4  # of arrays in arrays


class Broken(tensors.Refused):
    """The file is no GGUF file that can be read; the message names it and says where it fails."""


@dataclasses.dataclass(frozen=True)
class Tensor:
    """Where a tensor lies. shape: as numpy has it, the slowest axis first. kind: ggml's number of
    its type. offset, size: its bytes in the file."""

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int
    size: int


@dataclasses.dataclass(frozen=True)
class Container:
    """An open file. fields: key -> value (arrays as lists). tensors: name -> Tensor."""

    path: Path
    fields: dict[str, Any]
    tensors: dict[str, Tensor]
    data: mmap.mmap

    def bytes_of(self, name: str) -> np.ndarray:
        """[size] uint8, the tensor's bytes as they lie in the file (a view, nothing is copied)."""
        tensor = self.tensors[name]
        return np.frombuffer(self.data, np.uint8, tensor.size, tensor.offset)


class _Reader:
    def __init__(self, path: Path, data: mmap.mmap):
        self.path, self.data, self.at = path, data, 0

    def broken(self, why: str) -> Broken:
        return Broken(f"{self.path} is no readable GGUF file: {why} at byte {self.at}")

    def skip(self, count: int, what: str) -> int:
        """Where the next `count` bytes begin; they are passed over."""
        left = len(self.data) - self.at
        if count > left:
            raise self.broken(f"{what} of {count} bytes, {left} are left (is it cut short?)")
        start = self.at
        self.at += count
        return start

    def number(self, form: str) -> Any:
        start = self.skip(struct.calcsize("<" + form), "a number")
        return struct.unpack_from("<" + form, self.data, start)[0]

    def string(self) -> str:
        size = self.number("Q")
        start = self.skip(size, "a string")
        try:
            return self.data[start : start + size].decode("utf-8")
        except UnicodeDecodeError:
            raise self.broken("a string that is not UTF-8") from None

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == STRING:
            return self.string()
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind != ARRAY or depth == MOST_DEPTH:
            raise self.broken(f"a value of unknown type {kind}")
        inner, count = self.number("I"), self.number("Q")
        if inner in SCALARS:
            form = SCALARS[inner]
            start = self.skip(count * struct.calcsize("<" + form), f"an array of {count}")
            return list(struct.unpack_from(f"<{count}{form}", self.data, start))
        least = 8 if inner == STRING else 12  # bytes that even an empty item takes
        if count * least > len(self.data) - self.at:
            raise self.broken(f"an array of {count} items, which the rest of the file cannot hold")
        return [self.value(inner, depth + 1) for _ in range(count)]


def read(path: str | os.PathLike[str], sizes: dict[int, tuple[int, int]]) -> Container:
    """Opens a GGUF file (version 2 or 3, little-endian) and reads all but its tensors.

    sizes: ggml type number -> (values in a block, bytes of a block).

    Raises Broken for a file that is cut, foreign or at odds with itself, OSError where none is.
    """
    path = Path(path)
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < 24:
            raise Broken(f"{path} is no GGUF file: it is shorter than any header (24 bytes)")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    reader = _Reader(path, data)
    if data[:4] != MAGIC:
        raise Broken(f"{path} is no GGUF file: it begins with {data[:4]!r}, not with {MAGIC!r}")
    reader.at = 4
    version = reader.number("I")
    if version not in VERSIONS:
        raise Broken(f"{path} has GGUF version {version}: versions 2 and 3 are read")
    tensors, pairs = reader.number("Q"), reader.number("Q")
    fields: dict[str, Any] = {}
    for _ in range(pairs):
        key = reader.string()
        if key in fields:
            raise reader.broken(f"the key {key!r} a second time")
        fields[key] = reader.value(reader.number("I"))
    return Container(path, fields, _table(reader, tensors, fields, sizes), data)


def _table(reader: _Reader, count: int, fields, sizes) -> dict[str, Tensor]:
    """The table of tensors, offsets turned into places in the file and held to lie inside it."""
    found = []
    for _ in range(count):
        name, dims = reader.string(), reader.number("I")
        if dims > MOST_DIMS:
            raise reader.broken(f"tensor {name!r} has {dims} axes, at most {MOST_DIMS} are read")
        shape = tuple(reversed([reader.number("Q") for _ in range(dims)]))
        found.append((name, shape, reader.number("I"), reader.number("Q")))
    align = fields.get("general.alignment", 32)
    if not isinstance(align, int) or align < 1 or align & (align - 1):
        raise reader.broken(f"general.alignment {align!r} is no power of two")
    start = -(-reader.at // align) * align
    tensors: dict[str, Tensor] = {}
    for name, shape, kind, offset in found:
        if name in tensors:
            raise reader.broken(f"the tensor {name!r} a second time")
        if kind not in sizes:
            raise reader.broken(f"tensor {name!r} of unknown type {kind}")
        values, size = sizes[kind]
        if shape and shape[-1] % values:
            raise reader.broken(f"tensor {name!r} {shape} is not in blocks of {values}")
        tensor = Tensor(name, shape, kind, start + offset, math.prod(shape) // values * size)
        if tensor.offset + tensor.size > len(reader.data):
            raise Broken(
                f"{reader.path} is cut short: tensor {name!r} ends at byte"
                f" {tensor.offset + tensor.size}, the file at {len(reader.data)}: fetch it again"
            )
        tensors[name] = tensor
    return tensors
