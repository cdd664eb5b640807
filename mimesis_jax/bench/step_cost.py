"""What a step has to do and holds: tokens, model FLOPs by phase, share of the peak, bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mimesis_jax import types
from mimesis_jax.bench import measure, step_workload
from mimesis_jax.chat import render
from mimesis_jax.coach import notes as coaches
from mimesis_jax.forest import pack
from mimesis_jax.models import decoder, flops
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import scoring
from mimesis_jax.sharding import chips
from mimesis_jax.trainers import coaching, optimizer, reinforce, supervised

FORMULA = (
    "MFU = model FLOPs of real tokens / (seconds x peak bf16 FLOP/s of all devices); FLOPs are "
    "2 a weight and token in products, 4 H d a pair the mask allows, 8 Hv Dk Dv a token of the "
    "delta rule, 2 D V a token predicted; a backward pass is twice the forward; nothing computed "
    "twice, no padding, no look-up counts"
)


@dataclasses.dataclass(frozen=True)
class Work:
    """tokens: real ones. places: computed, padding included. flops: of the real ones."""

    tokens: int = 0
    places: int = 0
    flops: int = 0

    def __add__(self, other: Work) -> Work:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Work(*(a + b for a, b in pairs))


def forests(spec: specs.Spec, packed: pack.Packed, *, backward: bool) -> Work:
    """One pass over all micro-batches: a forward, with `backward` a gradient too."""
    count = flops.train if backward else flops.forward
    found = Work()
    for forest, origin in zip(packed.forests, packed.origin, strict=True):
        tokens = int(np.sum(forest.valid))
        learned = int(np.count_nonzero(np.asarray(origin) >= 0))
        pairs = flops.pairs(np.asarray(forest.valid), np.asarray(forest.last))
        work = count(spec, tokens=tokens, pairs=pairs, learned=learned)
        found += Work(tokens, forest.valid.size, work)
    return found


def trained(trees: Sequence[types.Tree], alpha: float) -> list[types.Tree]:
    """Those that an update with this alpha learns from, as reinforce.update chooses them."""
    use = lambda s: np.any(s.weight) or (alpha > 0 and np.any(s.coached))
    return [tree for tree in trees if any(use(segment) for segment in tree)]


def update(
    spec: specs.Spec, trees: Sequence[types.Tree], shape: pack.Shape, alphas: Iterable[float]
) -> tuple[Work, pack.Packed]:
    """All updates of a step, one for each alpha, and how the first one's trees are packed."""
    found, packed = Work(), None
    for alpha in alphas:
        last = pack.pack(trained(trees, alpha), shape, shared=True)
        packed = packed or last
        found += forests(spec, last, backward=True)
    if packed is None:
        raise measure.BenchError("a step without an update measures nothing: use updates=1 or more")
    return found, packed


def grown(
    trees: Sequence[types.Tree], notes: Sequence[coaches.Notes], renderer: render.Renderer,
    shape: pack.Shape, compute: decoder.Compute,
) -> pack.Packed:  # fmt: skip
    """The scoring forest of CSD: every reply, and its copies after a note."""
    taught = []
    for tree, said in zip(trees, notes, strict=True):
        tokens = {turn: renderer.note(text) for turn, text in said.items() if text is not None}
        taught.append(renderer.teacher(tree, tokens).tree)
    return pack.pack(taught, coaching.rows(shape, compute))


def rollout(
    spec: specs.Spec, trees: Sequence[types.Tree], counts: Mapping[str, float]
) -> dict[str, Work]:
    """Work of prefill and decode of one chair.

    trees: what its seat computed. counts: of its engine, over the same episodes. Pairs are the
    trees' own: a scored token was decoded, any other was fed; what was copied instead of fed is
    taken off by its share of the tokens fed.
    """
    fed = told = fed_pairs = told_pairs = 0
    for tree in trees:
        depth: list[int] = []
        for segment in tree:
            before = depth[segment.parent] if segment.parent >= 0 else 0
            depth.append(before + len(segment))
            seen = before + 1 + np.arange(len(segment))
            fed += int(np.sum(~segment.scored))
            fed_pairs += int(seen[~segment.scored].sum())
            told += int(np.sum(segment.scored))
            told_pairs += int(seen[segment.scored].sum())
    computed = int(counts["prefill_tokens"] - counts["shared_tokens"])
    decoded = int(counts["decoded_tokens"])
    pairs = round(fed_pairs * computed / fed) if fed else 0
    ahead = round(told_pairs * decoded / told) if told else 0
    return {
        "prefill": Work(
            computed, int(counts["prefill_cells"]),
            flops.forward(spec, tokens=computed, pairs=pairs, learned=0),
        ),
        "decode": Work(
            decoded, int(counts["decode_rows"]),
            flops.forward(spec, tokens=decoded, pairs=ahead, learned=decoded),
        ),
    }  # fmt: skip


# --- share of the peak ----------------------------------------------------------------------------


def rate(work: int, seconds: float, devices: int) -> dict[str, float | None]:
    """tflops, 1e12 model FLOP/s of all devices together, and mfu, None for an unknown device."""
    chip = chips.of(jax.devices()[0].device_kind)
    done = work / seconds if seconds > 0 else 0.0
    share = None if chip is None else done / (chip.device_flops * devices)
    return {"tflops": done / 1e12, "mfu": share}


# --- memory ---------------------------------------------------------------------------------------


def memory(made: step_workload.World, packed: pack.Packed, programs: bool) -> dict[str, Any]:
    """Bytes: `held`, of all live arrays on one device; `peak`, what the device says it held at
    most, None where it does not say; `programs`, of each compiled program (arguments, results and
    temporaries together), compiled once more for that, {} without `programs`.
    """
    device = jax.devices()[0]
    peaks = [_stats(d).get("peak_bytes_in_use") for d in jax.devices()]
    held = sum(
        shard.data.nbytes
        for array in jax.live_arrays()
        for shard in array.addressable_shards
        if shard.device == device
    )
    known = [peak for peak in peaks if peak is not None]
    return {
        "held": held,
        "peak": max(known) if known else None,
        "programs": _programs(made, packed.forests[0]) if programs else {},
    }


def _stats(device: jax.Device) -> dict[str, int]:
    return device.memory_stats() or {}


def says_peak() -> bool:
    """Whether the device counts what it holds, so that no program need be compiled again."""
    return "peak_bytes_in_use" in _stats(jax.devices()[0])


def _programs(made: step_workload.World, forest: types.Forest) -> dict[str, int]:
    """Bytes of the programs of scoring and of both updates, on one device."""
    spec, state, compute, one = made.spec, made.state, made.compute, np.float32(1.0)
    placed = compute.place(forest)
    grads = jax.eval_shape(lambda p: optimizer.zeros(p, spec, compute), state.params)
    grads = jax.tree.map(
        lambda g, p: jax.ShapeDtypeStruct(g.shape, g.dtype, sharding=p.sharding), grads,
        state.params,
    )  # fmt: skip
    knobs = {name: one for name in dataclasses.asdict(reinforce.Loss())}
    totals = {"policy": one, "csd": one}
    lowered = {
        "score": scoring.forward.lower(spec, state.params, placed, one, compute),
        "reinforce": reinforce.accumulate.lower(
            spec, state.params, grads, placed, knobs, totals, compute
        ),
        "supervised": supervised.accumulate.lower(spec, state.params, grads, placed, one, compute),
        "apply": optimizer.apply.lower(state, grads, one, made.train.optimizer, spec, compute),
    }
    return {name: measure.peak_bytes(program.compile()) for name, program in lowered.items()}
