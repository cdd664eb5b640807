"""What devices send one another in a step: every collective of a program, with how often it runs.

The text is walked from its first computation through calls, fusions and loops; what stands in a
loop counts as often as the loop turns. By a ring, a device sends of an array of b bytes over n
devices b (n - 1) / n for a gather or a scatter and twice that for a reduction to all.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mimesis_jax.plan import hlo

KINDS = (
    "all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all",
    "collective-permute", "collective-broadcast",
)  # fmt: skip
Groups = frozenset[frozenset[int]]


@dataclasses.dataclass(frozen=True)
class Loop:
    """turns: how often; None where the program does not say (it counts once). where: its line."""

    turns: int | None
    where: str


@dataclasses.dataclass(frozen=True)
class Collective:
    """One instruction that devices do together.

    operation: one of KINDS. axis: the mesh's axes that it runs over, joined by "+"; "other" where
    they are none of the mesh's. size: devices together. bytes: of the whole array on a device,
    each time: gathered, or before it is reduced. sent: bytes that a device sends each time.
    times: a step, the turns of all loops around it. shape: as text. name: in the program, what
    jax calls it. source: file and line. operand: what it is of, within its computation.
    """

    operation: str
    axis: str
    size: int
    bytes: int
    sent: int
    times: int
    loops: tuple[Loop, ...]
    shape: str
    name: str
    source: str
    operand: str

    @property
    def moved(self) -> int:
        """Bytes that a device sends in a step."""
        return self.sent * self.times


def walk(text: str, mesh: Mapping[str, int], *, widened: bool = False) -> list[Collective]:
    """The collectives of a program's text, those that send most in a step first.

    mesh: axis -> size, in the order in which the program's devices lie. widened: by a compiler
    that widens bf16 before it sends (that of CPUs), so that what was narrow counts as it was meant.
    """
    module = hlo.read(text)
    found = [
        _collective(module, one, kind, mesh, loops)
        for name, whole, kind, loops in _once(_reached(module, module.entry, ()))
        for one in _members(module, name, whole, kind, widened)
    ]
    return sorted(found, key=lambda c: (-c.moved, c.operation, c.source, c.name))


def _reached(
    module: hlo.Module, name: str, loops: tuple[Loop, ...]
) -> Iterator[tuple[str, hlo.Instruction, str, tuple[Loop, ...]]]:
    """(its computation, instruction, kind, loops around it) of every collective below one."""
    for one in module.computations.get(name, ()):
        kind = one.opcode.removesuffix("-start")
        if kind in KINDS:
            yield name, one, kind, loops
        elif one.opcode == "while":
            loop = Loop(turns(module, one), module.source(one))
            yield from _reached(module, one.called["body"][0], (*loops, loop))
        elif one.opcode == "fusion" and "all-reduce-scatter" in one.rest:
            # TPUs fuse a reduction with the cut that follows it: it sends what a scatter sends.
            yield name, one, "reduce-scatter", loops
        elif not one.opcode.endswith(("-done", "-update")):
            for names in one.called.values():
                for other in names:
                    yield from _reached(module, other, loops)


def _once(reached: Iterator[tuple]) -> Iterator[tuple]:
    """Each collective once: TPUs spread one over many fusions, so that it runs beside them, and
    every piece has the whole of it in its text, under the number of its chain."""
    seen = set()
    for name, one, kind, loops in reached:
        if chain := re.search(r'chain_id="(\d+)"', one.rest):
            channel = re.search(r"channel_id=(\d+)", one.rest)
            same = (kind, chain[1], channel and channel[1], loops)
            if same in seen:
                continue
            seen.add(same)
        yield name, one, kind, loops


# --- how often a loop turns -------------------------------------------------------------------


def turns(module: hlo.Module, loop: hlo.Instruction) -> int | None:
    """How often a `while` turns: what the compiler knows, else the bound in its condition.

    A condition with more than one part (`steps < 16 and anybody is left`) gives its bound. None
    where there is none.
    """
    if found := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.rest):
        return int(found[1])
    bounds = list(_bounds(module, loop.called["condition"][0], {}))
    return min(bounds) if bounds else None


def _bounds(module: hlo.Module, name: str, given: Mapping[int, int]) -> Iterator[int]:
    """Constants that a whole number is compared with; given: parameters that are constants."""
    known: dict[str, int] = {}
    for one in module.computations.get(name, ()):
        if one.opcode == "constant" and re.match(r"[su](32|64)\[1?\]", one.shape):
            known[one.name] = int(one.operands[0].strip("{} "))
        elif one.opcode == "parameter" and int(one.operands[0]) in given:
            known[one.name] = given[int(one.operands[0])]
        elif one.opcode in ("copy", "bitcast", "convert", "reshape") and one.operands[0] in known:
            known[one.name] = known[one.operands[0]]
        elif one.opcode == "compare" and len(one.operands) == 2:
            left, right = one.operands
            order = re.search(r"direction=(\w+)", one.rest)
            way = order[1] if order else ""
            if way in ("LT", "LE", "NE") and right in known:
                yield known[right] + (way == "LE")
            elif way in ("GT", "GE") and left in known:
                yield known[left] + (way == "GE")
        elif one.called:
            inner = {i: known[name] for i, name in enumerate(one.operands) if name in known}
            for names in one.called.values():
                for other in names:
                    yield from _bounds(module, other, inner)


# --- which devices ----------------------------------------------------------------------------


def partition(mesh: Mapping[str, int], axes: Sequence[str]) -> Groups:
    """The groups of devices that differ along these axes alone; devices counted in mesh order."""
    sizes, order = list(mesh.values()), list(mesh)
    ids = np.arange(int(np.prod(sizes))).reshape(sizes)
    moved = [order.index(axis) for axis in axes]
    rest = [i for i in range(len(sizes)) if i not in moved]
    rows = ids.transpose(*rest, *moved).reshape(-1, int(np.prod([sizes[i] for i in moved])))
    return frozenset(frozenset(row) for row in rows.tolist())


def axes_of(groups: Groups, mesh: Mapping[str, int]) -> str:
    """The mesh's axes that groups of devices run over: "fsdp", "data+fsdp", "other"."""
    real = [axis for axis, size in mesh.items() if size > 1]
    for count in range(len(real) + 1):
        for axes in itertools.combinations(real, count):
            if partition(mesh, axes) == groups:
                return "+".join(axes) or "none"
    return "other"


def groups_of(rest: str, devices: int) -> Groups | None:
    """The groups in an instruction's attributes, in any of the compiler's forms; None: unread.

    {{0,1},{2,3}}    [2,4]<=[8]    [4,2]<=[2,2,2]T(2,1,0)    mesh['a'=4,'b'=2] {'a'}
    """
    found = re.search(r"replica_groups=(\{\}|\{\{.*?\}\}|mesh\[[^}]*\}|\[[\d,]*\]<=\S*)", rest)
    if found is None:
        return None
    text = found[1]
    if text == "{}":
        return frozenset([frozenset(range(devices))])
    if text.startswith("{{"):
        rows = [re.findall(r"\d+", row) for row in re.findall(r"\{([\d,]*)\}", text)]
        return frozenset(frozenset(int(i) for i in row) for row in rows)
    if text.startswith("mesh"):
        return _of_mesh(text)
    return _of_iota(text)


def _of_iota(text: str) -> Groups | None:
    """[groups, size]<=[dims]T(order): numbers from 0 laid out in dims, turned, cut into groups."""
    found = re.match(r"\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", text)
    if found is None:
        return None
    dims = [int(n) for n in found[3].split(",")]
    ids = np.arange(int(np.prod(dims))).reshape(dims)
    if found[4]:
        ids = ids.transpose([int(n) for n in found[4].split(",")])
    rows = ids.reshape(int(found[1]), int(found[2])).tolist()
    return frozenset(frozenset(row) for row in rows)


def _of_mesh(text: str) -> Groups | None:
    """mesh['a'=4,'b'=2] {'a'}: a mesh of the compiler's own, and the axes that run; 'a':(2)2 is
    the part of an axis of size 2 that lies within parts of 2."""
    inside, told, chosen = text.partition("] {")
    if not told or "device_ids" in inside:
        return None
    axes = {name: int(size) for name, size in re.findall(r"'([^']+)'=(\d+)", inside)}
    split: dict[str, int] = {}
    names: list[str] = []
    cuts: dict[str, tuple[tuple[int, int], ...]] = dict.fromkeys(axes, ())
    for name, before, size in re.findall(r"'([^']+)'(?::\((\d+)\)(\d+))?", chosen):
        if before:
            cuts[name] = (*cuts[name], (int(before), int(size)))
        else:
            names.append(name)
    for name, whole in axes.items():
        at = 1
        for number, (before, size) in enumerate(sorted(cuts[name])):
            split[f"{name}.{number}."] = before // at
            split[f"{name}.{number}"] = size
            names.append(f"{name}.{number}")
            at = before * size
        split[name if not cuts[name] else f"{name}.rest"] = whole // at
    return partition(split, names)


def _pairs(rest: str, mesh: Mapping[str, int]) -> tuple[str, int]:
    """(axes along which pairs of source and target differ, devices that send or receive)."""
    found = re.search(r"source_target_pairs=\{(.*?)\}\}", rest)
    pairs = re.findall(r"\{(\d+),(\d+)", found[1] + "}" if found else "")
    sizes = list(mesh.values())
    over: set[str] = set()
    for source, target in pairs:
        here, there = (np.unravel_index(int(n), sizes) for n in (source, target))
        over |= {axis for axis, a, b in zip(mesh, here, there, strict=True) if a != b}
    moving = {n for pair in pairs if pair[0] != pair[1] for n in pair}
    return "+".join(axis for axis in mesh if axis in over) or "none", len(moving)


# --- one of them ------------------------------------------------------------------------------


def _members(
    module: hlo.Module, name: str, whole: hlo.Instruction, kind: str, widened: bool
) -> list[hlo.Instruction]:
    """The arrays that the compiler put into one instruction, each as an instruction of its own.

    Their own source lines stand at what makes them; the instruction has the first one's.
    """
    shapes = hlo.parts(_result(whole, kind))
    joined = kind in ("all-gather", "all-reduce", "reduce-scatter")
    if not joined or len(shapes) < 2 or len(shapes) != len(whole.operands):
        shape = _result(whole, kind)
        shape = _narrowed(module, name, whole, shape) if widened else shape
        return [dataclasses.replace(whole, shape=shape)]
    made = [module.by_name[name].get(operand) for operand in whole.operands]
    own = [one.rest if one is not None and "metadata=" in one.rest else "" for one in made]
    return [
        dataclasses.replace(
            whole,
            shape=_narrowed(module, name, dataclasses.replace(whole, operands=(operand,)), shape)
            if widened
            else shape,
            operands=(operand,),
            rest=re.sub(r"metadata=\{.*?\}", "", whole.rest) + rest if rest else whole.rest,
        )
        for shape, operand, rest in zip(shapes, whole.operands, own, strict=True)
    ]


def _collective(
    module: hlo.Module,
    one: hlo.Instruction,
    kind: str,
    mesh: Mapping[str, int],
    loops: tuple[Loop, ...],
) -> Collective:
    devices = int(np.prod(list(mesh.values())))
    shape, rest = one.shape, one.rest
    if one.opcode == "fusion":  # the groups stand at the reduction inside
        inner = (i for name in one.called["calls"] for i in module.computations.get(name, ()))
        rest += next((i.rest for i in inner if i.opcode.startswith("all-reduce")), "")
    if kind == "collective-permute":
        axis, count = _pairs(rest, mesh)
    else:
        groups = groups_of(rest, devices)
        axis = "other" if groups is None else axes_of(groups, mesh)
        count = devices if groups is None else max(len(group) for group in groups)
    size = hlo.size(shape) * (count if kind == "reduce-scatter" else 1)
    times = 1
    for loop in loops:
        times *= 1 if loop.turns is None else loop.turns
    name = re.search(r'op_name="([^"]*)"', one.rest)
    return Collective(
        operation=kind,
        axis=axis,
        size=count,
        bytes=size,
        sent=_sent(kind, size, count),
        times=times,
        loops=loops,
        shape=re.sub(r"\{[^}]*\}|/\*.*?\*/", "", shape),
        name=name[1] if name else one.name,
        source=module.source(one),
        operand=one.operands[0] if one.operands else "",
    )


def _narrowed(module: hlo.Module, name: str, one: hlo.Instruction, shape: str) -> str:
    """The shape as the program meant it: where a compiler cannot add or move bf16 it widens the
    array just before, and sends twice what the machines would."""
    if "f32[" not in shape:
        return shape
    wide = any(called.endswith("promoted") for called in one.called.get("to_apply", ()))
    wide = wide or bool(one.operands) and _widened(module, name, one.operands[0])
    return shape.replace("f32[", "bf16[") if wide else shape


def _widened(module: hlo.Module, name: str, operand: str) -> bool:
    """Whether an operand is bf16 numbers in fp32, whatever turned or copied them since."""
    made = module.by_name[name].get(operand)
    while made is not None and made.operands:
        source = module.by_name[name].get(made.operands[0])
        if made.opcode == "convert":
            return source is not None and source.shape.startswith("bf16[")
        if made.opcode == "fusion":
            name = made.called["calls"][0]
            source = module.computations[name][-1]
        elif made.opcode not in ("copy", "bitcast", "transpose", "reshape"):
            return False
        made = source
    return False


def _result(one: hlo.Instruction, kind: str) -> str:
    """The shape of what comes out; a start's tuple holds what goes in before it."""
    if not one.opcode.endswith("-start") or kind == "all-reduce":
        return one.shape
    members = hlo.parts(one.shape)
    return members[1] if len(members) > 1 else members[0]


def _sent(kind: str, size: int, count: int) -> int:
    """Bytes that a device sends of an array of `size` bytes over `count` devices, by a ring."""
    if kind == "collective-permute":
        return size if count else 0
    share = (count - 1) / count if count else 0.0
    return round(size * share * (2 if kind == "all-reduce" else 1))
