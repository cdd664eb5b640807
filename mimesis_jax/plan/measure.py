"""One program compiled, or counted in part: its memory, its collectives, what stands out."""

from __future__ import annotations

import dataclasses
import re
import time
from collections.abc import Sequence
from typing import Any

from mimesis_jax.plan import cache, collectives, faults, programs

UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
# What a compiler says of a program that is too large: "Used 22.10G of 15.75G hbm".
TOO_LARGE = re.compile(r"[Uu]sed ([\d.]+)([KMGT]?)i?B? of ([\d.]+)([KMGT]?)i?B?")
Measured = dict[str, Any]


def program(one: programs.Program, mode: str, fresh: bool = False) -> Measured:
    """What one program measures, from the cache where it was measured before.

    mode: "exact", by the compiler of the machines; "quick", by that of this one: its collectives
    are those of a decoder of one and of two periods, carried on to all where layers are unrolled.
    Gives {"name", "argument_bytes", "peak_bytes", "temp_bytes", "collectives", "hints",
    "compile_seconds", "refused"}; peak and temporaries are None in quick mode, refused is None or
    {"used_bytes", "limit_bytes", "said"}.
    """
    name = cache.key(one.name, repr(one.depends), mode, cache.code(whole=False))
    if not fresh and (known := cache.get("programs", name)) is not None:
        return known
    measured = exactly(one) if mode == "exact" else quickly(one)
    cache.put("programs", name, measured)
    return measured


def exactly(one: programs.Program) -> Measured:
    """Compiled as it would run; a program that does not fit is refused with both figures."""
    began = time.monotonic()
    try:
        compiled = one.lower(None).compile()
    except Exception as error:  # the compiler's own classes differ from version to version
        if (refused := too_large(str(error))) is None:
            raise
        return _measured(one, [], time.monotonic() - began, refused=refused)
    took = time.monotonic() - began
    found = collectives.walk(compiled.as_text(), one.mesh)
    memory = compiled.memory_analysis()
    return _measured(
        one, found, took, argument_bytes=memory.argument_size_in_bytes,
        temp_bytes=memory.temp_size_in_bytes, peak_bytes=peak(memory),
    )  # fmt: skip


def peak(memory: Any) -> int:
    """The compiler's own peak, or what its parts add up to where it tells none."""
    told = getattr(memory, "peak_memory_in_bytes", 0)
    if told:
        return told
    return (
        memory.argument_size_in_bytes + memory.output_size_in_bytes
        - memory.alias_size_in_bytes + memory.temp_size_in_bytes
    )  # fmt: skip


def too_large(said: str) -> dict[str, Any] | None:
    """Both figures of a RESOURCE_EXHAUSTED, None where the text is another error's."""
    if "RESOURCE_EXHAUSTED" not in said and "Ran out of memory" not in said:
        return None
    found = TOO_LARGE.search(said)
    used, limit = None, None
    if found:
        used, limit = (round(float(found[n]) * UNITS[found[n + 1]]) for n in (1, 3))
    return {"used_bytes": used, "limit_bytes": limit, "said": said.strip().splitlines()[0][:300]}


def quickly(one: programs.Program) -> Measured:
    """Compiled for virtual devices of this machine: honest for arguments and collectives only."""
    began = time.monotonic()
    if not one.unrolled:
        compiled = one.lower(None).compile()
        found = collectives.walk(compiled.as_text(), one.mesh, widened=True)
        held = compiled.memory_analysis().argument_size_in_bytes
        return _measured(one, found, time.monotonic() - began, argument_bytes=held)
    few = min(2, one.unrolled)
    parts = [
        collectives.walk(one.lower(n).compile().as_text(), one.mesh, widened=True)
        for n in range(1, few + 1)
    ]
    found = carried(parts, one.unrolled)
    return _measured(one, found, time.monotonic() - began)


def carried(
    parts: Sequence[Sequence[collectives.Collective]], periods: int
) -> list[collectives.Collective]:
    """The collectives of `periods` periods from those of one and of two: what the second adds is
    added for each further one. Equal ones are one entry that runs more often."""
    tables = [_table(part) for part in parts]
    found = []
    for same in dict.fromkeys([*tables[0], *tables[-1]]):
        first, last = (table.get(same, 0) for table in (tables[0], tables[-1]))
        more = last - first if len(parts) > 1 else 0
        times = first + max(0, more) * (periods - 1)
        if times:
            found.append(dataclasses.replace(same, times=times))
    return sorted(found, key=lambda c: (-c.moved, c.operation, c.source, c.name))


def _table(part: Sequence[collectives.Collective]) -> dict[collectives.Collective, int]:
    """How often each runs in all; names that differ by the layer are the same."""
    table: dict[collectives.Collective, int] = {}
    for one in part:
        same = dataclasses.replace(one, times=0, name="", operand="")
        table[same] = table.get(same, 0) + one.times
    return table


def joined(found: Sequence[collectives.Collective]) -> list[dict[str, Any]]:
    """Collectives as json has them: those of one operation, axis, shape, line and loop together."""
    rows: dict[tuple, dict[str, Any]] = {}
    for one in found:
        loop = [loop.turns for loop in one.loops]
        same = (one.operation, one.axis, one.shape, one.source, tuple(loop), one.sent)
        if same in rows:
            rows[same]["times"] += one.times
            rows[same]["bytes_per_step"] += one.moved
            continue
        rows[same] = {
            "operation": one.operation, "axis": one.axis, "devices": one.size,
            "shape": one.shape, "bytes": one.bytes, "sent_bytes": one.sent, "times": one.times,
            "loops": loop, "bytes_per_step": one.moved, "source": one.source, "name": one.name,
        }  # fmt: skip
    return sorted(rows.values(), key=lambda row: -row["bytes_per_step"])


def nothing(one: programs.Program) -> Measured:
    """Of a program that is not compiled; its parameters may stand out all the same."""
    return _measured(one, [], 0.0)


def _measured(one: programs.Program, found, took: float, **more) -> Measured:
    hints = faults.hints(found, one.parameters, one.mesh, decoding=one.decoding)
    rows = joined(found)
    by_axis: dict[str, int] = {}
    for row in rows:
        by_axis[row["axis"]] = by_axis.get(row["axis"], 0) + row["bytes_per_step"]
    return {
        "name": one.name, "argument_bytes": None, "peak_bytes": None, "temp_bytes": None,
        "collectives": rows, "sent_by_axis": by_axis, "compile_seconds": round(took, 2),
        "hints": [dataclasses.asdict(hint) for hint in hints], "refused": None, **more,
    }  # fmt: skip
