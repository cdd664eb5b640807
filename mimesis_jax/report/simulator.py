"""The simulator's sections: likelihood, behaviours before and after, leaks, difficulty gap."""

from __future__ import annotations

import dataclasses
from typing import Any

from mimesis_jax.report import figures, numbers

NLL = {  # key -> (label, tone)
    "nll_trigram": ("Trigram, interpolated", "start"),
    "nll_before": ("Base, before mid-training", "user-faint"),
    "nll_midtrain": ("User mid-training", "user-faint"),
    "nll_thoughts": ("Thought-augmented SFT", "user"),
}
MEASURES = {  # key -> (label, what it should be)
    "thought_leak_rate": ("Agent-visible rows that hold a private token", "exactly 0"),
    "thought_overlap_rate": ("Utterances that share a six-gram with the thought", ""),
    "bad_format_rate": ("Badly formed replies", "near 0"),
    "early_disclosure_rate": ("Facts stated before they were asked for", ""),
    "role_flip_rate": ("Turns spoken in the agent's role", "near 0"),
    "repeat_rate": ("Turns that repeat an earlier one", ""),
}


@dataclasses.dataclass(frozen=True)
class Measure:
    label: str
    value: str
    reference: str
    wanted: str


def likelihood(simulator: dict[str, Any]) -> figures.Tracks | None:
    """Held-out NLL of the human turns, nats per token, as bars from 0."""
    held = {k: v for k in NLL if (v := numbers.finite(simulator.get(k))) is not None}
    if not held:
        return None
    scale = figures.axis(list(held.values()), zero=True)
    rows = tuple(
        figures.Row(
            NLL[key][0],
            (figures.Mark("bar", scale.at(0), scale.at(value), NLL[key][1]),),
            numbers.show(value, 3),
        )
        for key, value in held.items()
    )
    caption = "Negative log-likelihood of held-out user utterances, nats per token; less is better"
    return figures.Tracks(caption, ("Model", "Nats per token", "NLL"), rows, scale.marked())


def behaviours(simulator: dict[str, Any]) -> figures.Tracks | None:
    """A dumbbell per behaviour (before, after), then their mean and the control rows.

    "behaviour_rates" may hold numbers (after), {"before", "after"} or [before, after]; a separate
    "behaviour_rates_before" fills in what is missing.
    """
    rates = numbers.group(simulator.get("behaviour_rates"))
    earlier = numbers.group(simulator.get("behaviour_rates_before"))
    pairs = {}
    for name in {**rates, **earlier}:
        before, after = _pair(rates.get(name))
        if before is None:
            before = numbers.finite(earlier.get(name))
        pairs[name.replace("_", " ")] = (before, after)
    order = sorted(pairs, key=lambda name: -(pairs[name][1] or 0.0))
    rows = [_dumbbell(name, *pairs[name], tone="user") for name in order]
    read = lambda key: numbers.finite(simulator.get(key))
    rows.append(
        _dumbbell("Mean", read("behaviour_rate_before"), read("behaviour_rate_after"), tone="ink")
    )
    control = (read("control_rate_before"), read("control_rate_after"))
    rows.append(_dumbbell("Control rows (none asked)", *control, tone="start"))
    kept = tuple(row for row in rows if row is not None)
    if not kept:
        return None
    caption = "Share of dialogues in which the behaviour shows, before and after behaviour GRPO"
    columns = ("Behaviour", "Share", "Before → after")
    return figures.Tracks(caption, columns, kept, figures.UNIT.marked())


def _pair(value: Any) -> tuple[float | None, float | None]:
    if isinstance(value, dict):
        return numbers.finite(value.get("before")), numbers.finite(value.get("after"))
    if isinstance(value, list) and len(value) == 2:
        return numbers.finite(value[0]), numbers.finite(value[1])
    return None, numbers.finite(value)


def _dumbbell(name: str, before: float | None, after: float | None, *, tone: str):
    at = figures.UNIT.at
    marks = []
    if before is not None and after is not None:
        marks.append(figures.Mark("span", at(min(before, after)), at(max(before, after)), tone))
    if before is not None:
        marks.append(figures.Mark("ring", at(before), tone=tone))
    if after is not None:
        marks.append(figures.Mark("dot", at(after), tone=tone))
    if not marks:
        return None
    if before is None:
        value = numbers.show(after)
    else:
        value = f"{numbers.show(before)} → {numbers.show(after)}"
    return figures.Row(name, tuple(marks), value)


def measures(simulator: dict[str, Any]) -> list[Measure]:
    """Format and leak measures, each beside the reference population's where that was measured."""
    out = []
    for key, (label, wanted) in MEASURES.items():
        if key in simulator:
            reference = simulator.get(f"{key}_reference")
            out.append(
                Measure(label, numbers.show(simulator[key], 3), numbers.show(reference, 3), wanted)
            )
    return out


@dataclasses.dataclass(frozen=True)
class Gap:
    plot: figures.Tracks
    sentence: str


def gap(summary: dict[str, Any]) -> Gap | None:
    """Success of the start agent with each kind of user, and how far each is from the reference."""
    held = numbers.group(summary.get("difficulty_gap"))
    ci95 = held.get("ci95")
    rows = []
    kinds = (
        ("reference", "Reference users", "ink"),
        ("simulator", "Simulator", "user"),
        ("assistant", "Assistant as user", "assistant"),
    )
    for key, label, tone in kinds:
        value = numbers.finite(held.get(key))
        if value is None:
            continue
        marks = [figures.Mark("dot", figures.UNIT.at(value), tone=tone)]
        note = ""
        difference = numbers.finite(held.get(f"gap_{key}"))
        if difference is not None:
            bounds = _gap_interval(ci95, key)
            note = f"gap {numbers.signed(difference)}" + (f" [{bounds}]" if bounds else "")
        reference = numbers.finite(held.get("reference"))
        if reference is not None and key != "reference":
            ends = sorted((figures.UNIT.at(reference), figures.UNIT.at(value)))
            marks.insert(0, figures.Mark("span", ends[0], ends[1], tone))
            marks.insert(0, figures.Mark("rule", figures.UNIT.at(reference)))
        rows.append(figures.Row(label, tuple(marks), numbers.show(value), note))
    if not rows:
        return None
    caption = "Success of the start agent by the kind of user it talks to"
    columns = ("Users", "Success", "Mean, gap to reference")
    plot = figures.Tracks(caption, columns, tuple(rows), figures.UNIT.marked())
    return Gap(plot, _gap_sentence(held))


def _gap_interval(ci95: Any, key: str) -> numbers.Interval | None:
    """ci95 may be one interval (the simulator's), a pair of intervals, or an object by name."""
    if isinstance(ci95, dict) and "lo" not in ci95:
        return numbers.interval(ci95.get(f"gap_{key}", ci95.get(key)))
    if isinstance(ci95, list) and len(ci95) == 2 and all(isinstance(v, list) for v in ci95):
        return numbers.interval(ci95[0 if key == "simulator" else 1])
    return numbers.interval(ci95) if key == "simulator" else None


def _gap_sentence(held: dict[str, Any]) -> str:
    ours, theirs = (
        numbers.finite(held.get("gap_simulator")),
        numbers.finite(held.get("gap_assistant")),
    )
    if ours is None or theirs is None:
        return ""
    nearer = "the simulator" if abs(ours) < abs(theirs) else "the assistant playing the user"
    if abs(ours) == abs(theirs):
        return "Both stand-ins are equally far from the reference users."
    return f"Here {nearer} is nearer to the reference users' difficulty."
