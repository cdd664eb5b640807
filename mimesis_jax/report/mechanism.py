"""CSD's mechanism: what the gate did, and the two controls that tell it from a longer prompt."""

from __future__ import annotations

import dataclasses
from typing import Any

from mimesis_jax.report import numbers

FACTS = {  # key in summary.csd -> (label, digits, how to read it)
    "alpha": ("Weight alpha of the CSD loss", 3, "added to the GRPO loss"),
    "gate_mean": ("Mean gate", 3, "0.5 where the note changes nothing"),
    "none_share": ("Turns without a note", 3, "masked: they take no CSD"),
    "null_probe_abs": (
        "Null probe, mean absolute difference",
        6,
        "teacher without a note; should be 0",
    ),
    "placebo_gap": (
        "Placebo gap",
        3,
        "how much more the turn's own note moves the gate than another episode's",
    ),
}


@dataclasses.dataclass(frozen=True)
class Fact:
    label: str
    value: str
    meaning: str


def facts(summary: dict[str, Any]) -> list[Fact]:
    """The scalars of summary["csd"], in reading order; [] where there are none."""
    held = numbers.group(summary.get("csd"))
    out = [
        Fact(label, numbers.show(held[key], digits), meaning)
        for key, (label, digits, meaning) in FACTS.items()
        if key in held
    ]
    if isinstance(held.get("params_differ"), bool):
        value = "yes" if held["params_differ"] else "no"
        out.append(Fact("Weights differ from GRPO's", value, "same start, same goals"))
    return out
