"""The plan of a run from what its programs measured: phases of a step, peak, bound, tokens/s.

Everything that a run holds is resident at once, as in a step of RL: the trained model's parameters
and moments, the copy of it that decodes, the frozen model, the caches of both engines. Each phase
adds what its program needs. At the hand-over of new weights the engine's old copy has been let go
of, the new one grows beside the training layout: both layouts are alive.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mimesis_jax.plan.topology import Topology

TRAINING = ("parameters", "optimizer")
CACHES = ("kv cache", "recurrent cache")
KINDS = (
    "parameters", "gradients", "optimizer", "decoding weights", "kv cache", "recurrent cache",
    "activations", "logits", "batch", "temporaries",
)  # fmt: skip
LABELS = {
    "quick": "estimate: compiled for virtual devices of this machine; arguments and collectives "
    "are real, temporaries and the peak are counted from sizes",
    "exact": "the compiler of these machines: peaks, temporaries and collectives are its own; the "
    "division of what programs hold by kind is counted from sizes",
}
Kinds = dict[str, int]
Json = dict[str, Any]


def plan(measured: Json, topology: Topology, mode: str, trained: str | None) -> Json:
    """The plan, without its configuration (see README of the keys in docs/plan.md).

    measured: {"programs": [...], "parameters": [...]} of child.py. trained: the chair whose engine
    takes new weights, None where nothing is played.
    """
    order = sorted(measured["programs"], key=lambda one: _place(one["name"]))
    programs = {one["name"]: one for one in order}
    phases = [_phase(one, programs) for one in programs.values()]
    if trained is not None and f"{trained} decode" in programs:
        phases.append(handover(programs))
    highest = max(phases, key=lambda phase: phase["peak_bytes"])
    limit = topology.chip.device_bytes
    refused = [one for one in programs.values() if one["refused"]]
    return {
        "topology": described(topology),
        "mode": mode,
        "exact_programs": [name for name, one in programs.items() if one["mode"] == "exact"],
        "label": label(programs, mode),
        "fits": not refused and highest["peak_bytes"] <= limit,
        "peak_bytes": highest["peak_bytes"],
        "peak_phase": highest["name"],
        "limit_bytes": limit,
        "argument_bytes": _arguments(programs["update"]),
        "analytic_argument_bytes": sum(programs["update"]["bytes_by_kind"].values()),
        "hbm_by_kind": highest["hbm_by_kind"],
        "phases": phases,
        "refused": [{"program": one["name"], **one["refused"]} for one in refused],
        **step(programs, topology),
        "collectives": collectives(programs),
        "hints": _hints(programs),
        "programs": [_without(one, "collectives", "hints") for one in programs.values()],
        "parameters": measured["parameters"],
    }


def _place(name: str) -> int:
    """Where a program stands in a plan: training first."""
    return ("update", "apply", "score").index(name) if " " not in name else 3


def label(programs: Mapping[str, Json], mode: str) -> str:
    """What the plan's figures are worth, in words; programs that are not exact are named."""
    rest = [one["name"] for one in programs.values() if one["mode"] != "exact"]
    if mode == "quick" or not rest:
        return LABELS[mode]
    exactly = [name for name in programs if name not in rest]
    return f"{LABELS['exact']}. Only {', '.join(exactly)}; the rest is an {LABELS['quick']}"


def _arguments(update: Json) -> int:
    """Bytes of the update's arguments on a device: compiled, or counted where nothing was."""
    told = update["argument_bytes"]
    return sum(update["bytes_by_kind"].values()) if told is None else told


def described(topology: Topology) -> Json:
    """A topology as json has it."""
    return {
        "name": topology.name, "chip": topology.chip.name, "chips": topology.chips,
        "devices": topology.devices, "hosts": topology.hosts, "slices": topology.slices,
        "compiler": topology.compiler,
    }  # fmt: skip


# --- memory -----------------------------------------------------------------------------------


def resident(programs: Mapping[str, Json]) -> Kinds:
    """What a device holds between programs, by kind."""
    held: Kinds = {}
    if "apply" in programs:
        held = {kind: programs["apply"]["bytes_by_kind"][kind] for kind in TRAINING}
    for name, one in programs.items():
        if name.endswith(" decode"):
            for kind in ("decoding weights", *CACHES):
                held[kind] = held.get(kind, 0) + one["bytes_by_kind"].get(kind, 0)
    return held


def _phase(one: Json, programs: Mapping[str, Json]) -> Json:
    """A program with everything that lies beside it."""
    kinds = dict.fromkeys(KINDS, 0) | resident(programs)
    for kind, count in one["bytes_by_kind"].items():
        # Its arguments are resident already, but for what only lives while it runs.
        kinds[kind] = max(kinds[kind], count)
    if one["name"] == "apply" or one["name"] == "update":
        kinds["gradients"] = one["bytes_by_kind"]["gradients"]
    extra = one["held_by_kind"]
    if one["peak_bytes"] is not None:
        extra = divided(one["peak_bytes"] - one["argument_bytes"], extra)
    elif one["refused"] and one["refused"]["used_bytes"]:
        extra = divided(one["refused"]["used_bytes"] - sum(one["bytes_by_kind"].values()), extra)
    for kind, count in extra.items():
        kinds[kind] += count
    own = "exact" if one["peak_bytes"] is not None or one["refused"] else "sizes"
    return {
        "name": one["name"], "peak_bytes": sum(kinds.values()), "hbm_by_kind": kinds, "from": own,
    }  # fmt: skip


def divided(transient: int, estimated: Kinds) -> Kinds:
    """What a compiler says a program holds beside its arguments, by kind: the estimate where there
    is room for it, the rest as temporaries; less where the compiler found a way with less."""
    transient, total = max(0, transient), sum(estimated.values())
    if total > transient:
        shares = {k: count * transient // total for k, count in estimated.items()}
        left = transient - sum(shares.values())
        return shares | {"temporaries": shares.get("temporaries", 0) + left}
    return estimated | {"temporaries": estimated.get("temporaries", 0) + transient - total}


def handover(programs: Mapping[str, Json]) -> Json:
    """New weights for the trained model's engine: both layouts are alive, nothing of the old copy;
    beside them the periods, cut apart where they are trained before they move (rollouts.handover).
    """
    kinds = dict.fromkeys(KINDS, 0) | resident(programs)
    kinds["temporaries"] = programs["update"]["bytes_by_kind"]["parameters"]
    return {
        "name": "hand-over", "peak_bytes": sum(kinds.values()), "hbm_by_kind": kinds,
        "from": "sizes",
    }  # fmt: skip


# --- time -------------------------------------------------------------------------------------


def step(programs: Mapping[str, Json], topology: Topology) -> Json:
    """FLOPs, least seconds, bound and shares of the peak of one update with its micro-batches;
    tokens/s of all machines, and of each engine."""
    update = [one for one in programs.values() if one["runs"]]
    seconds = {
        name: sum(one["runs"] * one["roofline_seconds"][name] for one in update)
        for name in ("compute", "hbm", "links")
    }
    by_bound: dict[str, float] = {}
    for one in update:
        least = one["runs"] * max(one["roofline_seconds"].values())
        by_bound[one["bound"]] = by_bound.get(one["bound"], 0.0) + least
    took = sum(by_bound.values())
    flops = sum(one["runs"] * one["flops"] for one in update)
    tokens = sum(one["runs"] * one["tokens"] for one in update)
    peak = topology.chip.device_flops * topology.devices
    return {
        "flops": flops,
        "roofline_seconds": seconds,
        "least_seconds": took,
        "bound": max(by_bound, key=lambda name: by_bound[name]) if by_bound else "compute",
        "mfu_upper": flops / (took * peak) if took else 0.0,
        "tokens_per_s_upper": tokens / took if took else 0.0,
        "decode_tokens_per_s_upper": {
            name.removesuffix(" decode"): topology.hosts
            * one["tokens"]
            / max(one["roofline_seconds"].values())
            for name, one in programs.items()
            if name.endswith(" decode")
        },
    }


# --- traffic ----------------------------------------------------------------------------------


def collectives(programs: Mapping[str, Json]) -> list[Json]:
    """All collectives, those that send most in a step first; "runs" is of their program."""
    rows = [
        {"program": name, "runs": one["runs"], **row}
        for name, one in programs.items()
        for row in one["collectives"]
    ]
    return sorted(rows, key=lambda row: -row["bytes_per_step"] * (row["runs"] or 1))


def _hints(programs: Mapping[str, Json]) -> list[Json]:
    """The hints of all programs; what is said of a model's parameters is said once."""
    rows: dict[str, Json] = {}
    for name, one in programs.items():
        for hint in one["hints"]:
            rows.setdefault(hint["text"], {"program": name, **hint})
    return sorted(rows.values(), key=lambda row: -row["bytes"])


def _without(one: Json, *names: str) -> Json:
    return {key: value for key, value in one.items() if key not in names}
