"""Compiled programs as their text says them: computations, instructions, shapes, source lines.

XLA prints an optimised program as computations of one instruction a line,

    %name = f32[8,64]{1,0} all-gather(%operand), replica_groups=..., metadata={stack_frame_id=9}

with tables of files and stack frames at the top (older versions: source_file and source_line in the
metadata). Everything here is text; `collectives` walks what is read.
"""

from __future__ import annotations

import dataclasses
import functools
import re

BITS = {
    "pred": 8, "s2": 2, "u2": 2, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16,
    "s32": 32, "u32": 32, "s64": 64, "u64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64,
    "c64": 64, "c128": 128, "f4e2m1fn": 4, "f8e4m3": 8, "f8e4m3fn": 8, "f8e5m2": 8,
    "f8e4m3fnuz": 8, "f8e5m2fnuz": 8, "f8e4m3b11fnuz": 8, "f8e3m4": 8, "f8e8m0fnu": 8,
}  # fmt: skip
ARRAY = re.compile(r"([a-z]\w*)\[([\d,<=]*)\]")
COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+)[^=]*\{$")
CALLED = re.compile(
    r"(calls|to_apply|body|condition|branch_computations|true_computation|false_computation"
    r"|called_computations)=(\{[^}]*\}|%?[\w.\-]+)"
)
HOME = "mimesis_jax"


@dataclasses.dataclass(frozen=True)
class Instruction:
    """name, shape (as text), opcode, operands (names), rest: the attributes after the operands."""

    name: str
    shape: str
    opcode: str
    operands: tuple[str, ...]
    rest: str

    @functools.cached_property
    def called(self) -> dict[str, tuple[str, ...]]:
        """Attribute -> names of the computations that it calls."""
        return {
            key: tuple(re.findall(r"[\w.\-]+", names)) for key, names in CALLED.findall(self.rest)
        }


@dataclasses.dataclass(frozen=True)
class Frames:
    """What a stack frame's number means: (file, line, number of the caller's frame or 0)."""

    frames: dict[int, tuple[str, int, int]]

    def where(self, number: int) -> str:
        """Innermost place of the project on a stack, else the innermost of all; "" for none."""
        first, seen = "", set()
        while number in self.frames and number not in seen:
            seen.add(number)
            file, line, caller = self.frames[number]
            place = f"{short(file)}:{line}"
            if f"{HOME}/" in file:
                return place
            first, number = first or place, caller
        return first


@dataclasses.dataclass(frozen=True)
class Module:
    """A program: its computations by name, the first one's name, and the stack frames."""

    computations: dict[str, tuple[Instruction, ...]]
    entry: str
    frames: Frames

    @functools.cached_property
    def by_name(self) -> dict[str, dict[str, Instruction]]:
        """Computation -> name -> instruction."""
        return {name: {one.name: one for one in body} for name, body in self.computations.items()}

    def source(self, one: Instruction) -> str:
        """File and line that an instruction comes from, "" where the program does not say."""
        if found := re.search(r"stack_frame_id=(\d+)", one.rest):
            return self.frames.where(int(found[1]))
        found = re.search(r'source_file="([^"]*)"(?:.*?)source_line=(\d+)', one.rest)
        return f"{short(found[1])}:{found[2]}" if found else ""


def short(file: str) -> str:
    """A path from the package on, or the file's name alone: no path of this machine is told."""
    parts = file.split("/")
    if HOME in parts:
        return "/".join(parts[len(parts) - 1 - parts[::-1].index(HOME) :])
    return parts[-1]


def size(shape: str) -> int:
    """Bytes of all arrays in a shape's text; tokens and opaque parts have none."""
    total = 0
    for kind, dims in ARRAY.findall(shape):
        bits = BITS.get(kind, 0)
        for dim in filter(None, dims.split(",")):
            bits *= int(dim.removeprefix("<="))
        total += -(-bits // 8)
    return total


def parts(shape: str) -> list[str]:
    """The members of a tuple's shape, or the shape alone."""
    if not shape.startswith("("):
        return [shape]
    inner, depth, found, start = shape[1:-1], 0, [], 0
    for place, char in enumerate(inner):
        depth += char in "([{"
        depth -= char in ")]}"
        if char == "," and depth == 0:
            found.append(inner[start:place])
            start = place + 1
    found.append(inner[start:])
    return [re.sub(r"/\*.*?\*/", "", part).strip() for part in found]


def read(text: str) -> Module:
    """The program in `compiled.as_text()`. Raises ValueError for text that is none."""
    computations: dict[str, tuple[Instruction, ...]] = {}
    entry, name = "", ""
    body: list[Instruction] = []
    for line in text.splitlines():
        if not name:
            if line.endswith("{") and "->" in line and (found := COMPUTATION.match(_bare(line))):
                name, body = found[2], []
                entry = name if found[1] else entry
        elif line.startswith("}"):
            computations[name], name = tuple(body), ""
        elif (one := _instruction(line)) is not None:
            body.append(one)
    if not entry:
        raise ValueError("this text has no ENTRY computation: it is no compiled program")
    return Module(computations, entry, _frames(text))


def _bare(line: str) -> str:
    """A computation's head as its name and the brace: parameter lists may hold anything."""
    return line.split("(", 1)[0].rstrip() + " {"


def _instruction(line: str) -> Instruction | None:
    head, told, rest = line.strip().partition(" = ")
    if not told:
        return None
    shape, rest = _shape(rest)
    opcode, opened, rest = rest.partition("(")
    if not opened:
        return None
    end = _closed(rest)
    operands = tuple(re.findall(r"%([\w.\-]+)", rest[:end]))
    if opcode in ("constant", "parameter"):
        operands = (rest[:end],)
    name = head.removeprefix("ROOT ").removeprefix("%")
    return Instruction(name, shape, opcode.strip(), operands, rest[end + 1 :])


def _shape(text: str) -> tuple[str, str]:
    """(shape, what follows it). A tuple's ends at its own bracket, another at the first blank."""
    end = _closed(text[1:]) + 2 if text.startswith("(") else text.find(" ")
    return text[:end], text[end:].lstrip()


def _closed(text: str) -> int:
    """Index of the bracket that closes one opened just before the text."""
    depth = 1
    for found in re.finditer(r"[()]", text):
        depth += 1 if found[0] == "(" else -1
        if depth == 0:
            return found.start()
    return len(text)


def _frames(text: str) -> Frames:
    tables: dict[str, dict[int, str]] = {}
    table: dict[int, str] | None = None
    for line in text.splitlines():
        if line in ("FileNames", "FunctionNames", "FileLocations", "StackFrames"):
            table = tables.setdefault(line, {})
        elif not line or not line[0].isdigit():
            if line.startswith(("%", "ENTRY")):
                break
            table = None if line else table
        elif table is not None:
            number, _, told = line.partition(" ")
            table[int(number)] = told
    files = {n: told.strip('"') for n, told in tables.get("FileNames", {}).items()}
    field = lambda told, name: int(found[1]) if (found := re.search(rf"{name}=(\d+)", told)) else 0
    places = {
        n: (files.get(field(told, "file_name_id"), ""), field(told, " line"))
        for n, told in tables.get("FileLocations", {}).items()
    }
    frames = {}
    for n, told in tables.get("StackFrames", {}).items():
        file, row = places.get(field(told, "file_location_id"), ("", 0))
        # Printed one higher than it is, so that 1 is nobody.
        frames[n] = (file, row, field(told, "parent_frame_id") - 1)
    return Frames(frames)
