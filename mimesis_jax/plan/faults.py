"""Usual faults of a sharded program in plain words: where, what they cost, what mends them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence

from mimesis_jax.plan import hlo
from mimesis_jax.plan.collectives import Collective

REDUCTIONS = ("all-reduce", "reduce-scatter")
WORTH = 1 << 20  # bytes a step below which no gathering is worth a word
REPLICATED = 1 << 26  # bytes of a parameter that should not lie whole on every device


@dataclasses.dataclass(frozen=True)
class Parameter:
    """name: path. shape: of the whole. stacked: its first axis is the periods. spec: how it is
    split, as text. bytes: of the whole. local: of a device's part."""

    name: str
    shape: tuple[int, ...]
    stacked: bool
    spec: str
    bytes: int
    local: int

    @property
    def one(self) -> tuple[int, ...]:
        """The shape of one period's."""
        return self.shape[1:] if self.stacked else self.shape

    @property
    def count(self) -> int:
        """Numbers of one period's."""
        return math.prod(self.one)


@dataclasses.dataclass(frozen=True)
class Hint:
    """kind: which fault. operation, source: of the instruction ("" where none stands for it).
    bytes: a step, that the mend saves on a device. text: what is wrong and what mends it."""

    kind: str
    operation: str
    source: str
    bytes: int
    text: str


def hints(
    found: Sequence[Collective],
    parameters: Sequence[Parameter],
    mesh: Mapping[str, int],
    *,
    decoding: bool = False,
    worth: int = WORTH,
) -> list[Hint]:
    """The usual faults of one program, those that cost most first.

    decoding: weights are as they are used, so that gathering one is a fault. worth: bytes a step
    that a gathering must move to be told.
    """
    told = [
        *_reduced_in_loops(found, parameters, mesh),
        *_gathered(found, parameters, mesh, 0 if decoding else 2, worth),
        *_replicated(parameters, mesh, decoding),
        *_rows_gathered(found, parameters, mesh, worth),
    ]
    return sorted(told, key=lambda hint: (-hint.bytes, hint.kind, hint.source))


def whose(
    one: Collective, parameters: Iterable[Parameter], mesh: Mapping[str, int]
) -> Parameter | None:
    """The parameter (or one of equal shape) that a collective is about; None: of none.

    By size: as many numbers as one period's, or that over the devices of axes that it leaves alone.
    """
    arrays = hlo.ARRAY.findall(one.shape)
    if not arrays or "other" in one.axis:
        return None
    count = math.prod(int(dim) for dim in arrays[0][1].split(",") if dim)
    if one.operation == "reduce-scatter":
        count *= one.size
    rest = [size for axis, size in mesh.items() if axis not in one.axis.split("+") and size > 1]
    shares = {
        math.prod(some) for n in range(len(rest) + 1) for some in itertools.combinations(rest, n)
    }
    dims = {int(dim) for dim in arrays[0][1].split(",") if dim} - {1}
    for parameter in parameters:
        whole = parameter.count
        if len(parameter.one) < 2 or not any(count * share == whole for share in shares):
            continue
        # A whole axis of the parameter is left: an activation of as many numbers has another.
        if dims & set(parameter.one) or len(dims) <= 1:
            return parameter
    return None


def _shown(parameter: Parameter) -> str:
    return f"{parameter.name} ({' x '.join(map(str, parameter.one))})"


def _loops(one: Collective) -> str:
    """The loops around a collective in words."""
    told = [f"the loop at {loop.where or 'an unknown line'}" for loop in one.loops]
    return " in ".join(reversed(told))


def size(count: float) -> str:
    """Bytes as a reader wants them: 1.62 GB, 12 MB, 340 kB."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count:.0f} B"


def _reduced_in_loops(found, parameters, mesh) -> list[Hint]:
    """The gradient of a parameter that is no period's, summed up in every turn of a loop."""
    single = [parameter for parameter in parameters if not parameter.stacked]
    told = []
    for one in found:
        if one.operation not in REDUCTIONS or one.times < 2:
            continue
        parameter = whose(one, single, mesh)
        if parameter is None:
            continue
        saved = one.moved - one.sent
        told.append(Hint(
            "gradient reduced in a loop", one.operation, one.source, saved,
            f"{one.operation} at {one.source}: the gradient of {_shown(parameter)} is summed over "
            f"{one.axis} in each of {one.times} turns of {_loops(one)}, {size(one.sent)} a turn. "
            f"Add it up on each device and reduce once after the loop: {size(saved)} less a step.",
        ))  # fmt: skip
    return told


def _gathered(found, parameters, mesh, allowed: int, worth: int) -> list[Hint]:
    """Parameters gathered more often than `allowed` a step (forward and backward: 2)."""
    # By size: a compiler may turn a matrix, so that two of equal size cannot be told apart.
    counts: dict[int, int] = {}
    for parameter in parameters:
        counts[parameter.count] = counts.get(parameter.count, 0) + 1
    times: dict[int, int] = {}
    largest: dict[int, tuple[Collective, Parameter]] = {}
    moved: dict[int, int] = {}
    for one in found:
        if one.operation != "all-gather":
            continue
        parameter = whose(one, parameters, mesh)
        if parameter is None:
            continue
        form = parameter.count
        periods = parameter.shape[0] if parameter.stacked else 1
        times[form] = times.get(form, 0) + -(-one.times // periods)
        moved[form] = moved.get(form, 0) + one.moved
        if form not in largest or one.moved > largest[form][0].moved:
            largest[form] = one, parameter
    told = []
    for form, (one, parameter) in largest.items():
        each = times[form] / counts[form]
        # Arrays of equal size can be taken for one another: half a time more is no fault.
        if each <= allowed + 0.5 * bool(allowed) or moved[form] < worth:
            continue
        saved = round(moved[form] * (each - allowed) / each)
        where = f" in {_loops(one)}" if one.loops and not parameter.stacked else ""
        mend = (
            "Decoding weights belong whole or over tensor: use the decode table."
            if not allowed
            else "Gather it once before it is used and hand the whole one on"
            + (": out of the loop." if where else ".")
        )
        told.append(Hint(
            "parameter gathered often", one.operation, one.source, saved,
            f"{one.operation} at {one.source}: {_shown(parameter)} is gathered over {one.axis} "
            f"{each:.3g} times a step{where}, {size(one.sent)} each time. {mend} "
            f"{size(saved)} less a step.",
        ))  # fmt: skip
    return told


def _replicated(parameters, mesh, decoding: bool) -> list[Hint]:
    """Large parameters that lie whole on every device of a mesh that could split them."""
    devices = math.prod(mesh.values())
    usable = mesh.get("tensor", 1) if decoding else devices // mesh.get("data", 1)
    if usable < 2:
        return []
    told = []
    for one in parameters:
        if one.bytes < REPLICATED or one.local < one.bytes:
            continue
        saved = one.bytes - one.bytes // usable
        told.append(Hint(
            "replicated tensor", "", "", saved,
            f"{one.name} ({' x '.join(map(str, one.shape))}) lies whole on each of {devices} "
            f"devices, {size(one.bytes)} on every one: name a mesh axis for one of its axes in "
            f"sharding.table, {size(saved)} less memory a device.",
        ))  # fmt: skip
    return told


def _rows_gathered(found, parameters, mesh, worth: int) -> list[Hint]:
    """Arrays that are no parameters gathered along the rows: every device computes all of them."""
    total = sum(one.moved for one in found)
    told = []
    for one in found:
        rows = {"data", "fsdp"} & set(one.axis.split("+"))
        if one.operation != "all-gather" or not rows or one.moved < max(worth, total / 20):
            continue
        if whose(one, parameters, mesh) is None:
            told.append(Hint(
                "rows gathered", one.operation, one.source, one.moved,
                f"{one.operation} at {one.source}: {one.shape}, no parameter, is gathered over "
                f"{one.axis}, {size(one.moved)} a step: the devices of {one.axis} compute the same "
                "rows. Constrain it to lie by rows, or put the computation under shard_map.",
            ))  # fmt: skip
    return told
