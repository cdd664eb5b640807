"""What a run must show, held against what it measured: a verdict per claim."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from mimesis_jax.report import numbers

LEAST_GAIN = 0.20  # agent GRPO above start
START = (0.25, 0.50)  # a start outside this band leaves GRPO nothing, or no room
NULL_PROBE = 1e-3  # teacher without a note against the student, nats


@dataclasses.dataclass(frozen=True)
class Check:
    claim: str
    measured: str
    verdict: Literal["holds", "fails", "not measured", "not judged"]


def checks(summary: dict[str, Any]) -> list[Check]:
    """The claims of a run. A QUICK run trains too little for those about learning: not judged."""
    simulator = numbers.group(summary.get("simulator"))
    agent = numbers.group(summary.get("agent"))
    csd = numbers.group(summary.get("csd"))
    quick = bool(summary.get("quick"))
    read = numbers.finite
    mean = lambda name: read(numbers.group(agent.get(name)).get("mean"))
    thoughts, trigram = read(simulator.get("nll_thoughts")), read(simulator.get("nll_trigram"))
    start, grpo = mean("start"), mean("grpo")
    leak, probe = read(simulator.get("thought_leak_rate")), read(csd.get("null_probe_abs"))
    compiles = read(summary.get("compiles_after_warmup"))
    hashes = [simulator.get("hash_start"), simulator.get("hash_end")]
    differ = csd.get("params_differ")
    show, known = numbers.show, lambda *values: None not in values
    gain = grpo - start if grpo is not None and start is not None else None
    return [
        _check(
            "The simulator beats a trigram on held-out users",
            f"{show(thoughts, 3)} against {show(trigram, 3)} nats per token",
            thoughts < trigram if thoughts is not None and trigram is not None else None,
            waived=quick,
        ),
        _check(
            f"The start agent succeeds in {show(START[0])} to {show(START[1])}",
            show(start),
            START[0] <= start <= START[1] if start is not None else None,
            waived=quick,
        ),
        _check(
            f"GRPO gains at least {show(LEAST_GAIN)} over the start",
            numbers.signed(gain),
            gain >= LEAST_GAIN - 1e-9 if gain is not None else None,
            waived=quick,
        ),
        _check(
            "The simulator's weights did not change",
            "hashes equal" if known(*hashes) and hashes[0] == hashes[1] else "hashes differ",
            hashes[0] == hashes[1] if known(*hashes) else None,
        ),
        _check(
            "No private token reached an agent",
            f"leak rate {show(leak, 3)}",
            leak == 0 if leak is not None else None,
        ),
        _check(
            f"Without a note the CSD teacher is the student (under {NULL_PROBE:g})",
            show(probe, 5),
            probe < NULL_PROBE if probe is not None else None,
        ),
        _check(
            "CSD changed the weights",
            "parameters differ" if differ is True else "parameters equal",
            differ if isinstance(differ, bool) else None,
        ),
        _check(
            "Nothing compiled after the second step",
            f"{show(compiles, 0)} compiles",
            compiles == 0 if compiles is not None else None,
        ),
    ]


def _check(claim: str, measured: str, holds: bool | None, *, waived: bool = False) -> Check:
    if holds is None:
        return Check(claim, numbers.NONE, "not measured")
    if waived:
        return Check(claim, measured, "not judged")
    return Check(claim, measured, "holds" if holds else "fails")
