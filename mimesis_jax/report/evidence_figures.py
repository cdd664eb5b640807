"""The figures of the evidence page: success by arm, doses, learning curves, what was watched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mimesis_jax.report import figures, numbers

LABELS = {
    "start": "Start (supervised)", "ceiling": "Scripted perfect agent",
    "simulator": "Simulator", "reference": "Reference people",
    "assistant_100": "Assistant, 100 %", "assistant_80": "Assistant, 80 %",
    "assistant_60": "Assistant, 60 %", "sft_perfect": "SFT on perfect dialogues",
    "ceiling_honest_1": "Simple coach, to the letter",
    "ceiling_leaking_2": "Leaking coach, to the letter",
}  # fmt: skip
TONES = {
    "start": "start", "ceiling": "ink", "simulator": "grpo", "reference": "other",
    "assistant_100": "assistant", "assistant_80": "assistant-2", "assistant_60": "assistant-3",
    "sft_perfect": "perfect", "alpha_00": "grpo", "long_00": "grpo", "alpha_02": "csd-1",
    "alpha_05": "csd-2", "long_05": "csd-2", "alpha_10": "csd-3", "alpha_30": "csd-4",
    "long_30": "csd-4",
}  # fmt: skip
FORMS = ("form-1", "form-2", "form-3", "form-4", "form-5", "form-6")
WATCHED = {
    "success": "Success in training", "entropy": "Entropy, nats a token", "turns": "Turns",
    "gate_mean": "Mean gate", "gate_share_above_half": "Share of gates above ½",
    "gate_auc": "AUC of the gate", "followed": "Share of notes followed",
    "groups_without_variance": "Groups without variance", "masked_episodes": "Masked episodes",
    "goals": "Goals a step",
}  # fmt: skip
MOST_LINES = 6
KNOBS = {"cooperative": "share of cooperative people in training", "alpha": "alpha of CSD"}


def label(name: str) -> str:
    """An arm's name for people."""
    if name in LABELS:
        return LABELS[name]
    for prefix in ("alpha_", "long_"):
        rest = name.removeprefix(prefix)
        if rest != name and rest[:2].isdigit():
            more = rest[2:].replace("_", " ")
            if not int(rest[:2]):
                return "No CSD"
            return f"CSD, alpha {int(rest[:2]) / 100:g}{more and ',' + more}"
    return name.replace("_", " ").capitalize()


def tones(names: Sequence[str]) -> dict[str, str]:
    """A colour class for each arm; those without one of their own take turns."""
    free = [name for name in names if name not in TONES]
    turn = {name: FORMS[i % len(FORMS)] for i, name in enumerate(free)}
    return {name: TONES.get(name) or turn[name] for name in names}


def ordered(held: Mapping[str, Any]) -> dict[str, Any]:
    """The arms in reading order: start, trained by dose, other trained, ceilings."""
    arms = held["arms"]
    doses = [point["arm"] for points in held["dose"].values() for point in points]
    first = ("simulator", "start")
    scripted = [n for n in arms if arms[n]["arm"]["learns"] == "scripted"]
    rest = [n for n in arms if n not in (*first, *doses, *scripted)]
    names = [*(n for n in ("start", "simulator") if n in arms), *doses, *rest, *scripted]
    return {name: arms[name] for name in dict.fromkeys(names)}


def success(held: Mapping[str, Any], arms: Mapping[str, Any]) -> figures.Tracks:
    """Each arm's mean and interval; beside it, as a ring, what its coach's notes lead to."""
    tone = tones(list(arms))
    most = max(len(arm["seeds"]) for arm in arms.values())
    rows = []
    for name, arm in arms.items():
        marks = []
        ceiling, scripted = numbers.finite(arm["ceiling"]), arm["arm"]["learns"] == "scripted"
        if ceiling is not None and not scripted:
            marks.append(figures.Mark("rule", figures.UNIT.at(ceiling)))
        between = numbers.interval(arm["ci95"])
        if between is not None:
            ends = figures.UNIT.at(between.lo), figures.UNIT.at(between.hi)
            marks.append(figures.Mark("span", *ends, tone[name]))
        at = figures.UNIT.at(arm["mean"] or 0.0)
        marks.append(figures.Mark("ring" if scripted else "dot", at, tone=tone[name]))
        note = [_gap(arm)]
        if len(arm["seeds"]) < most:
            note.append(f"{len(arm['seeds'])} seed{'s' if len(arm['seeds']) > 1 else ''}")
        if ceiling is not None and not scripted:
            note.append(f"of {numbers.show(ceiling)}")
        told = "; ".join(word for word in note if word)
        rows.append(figures.Row(label(name), tuple(marks), numbers.show(arm["mean"]), told))
    over = "goals and seeds" if most > 1 else "goals; one seed, so nothing is known of others"
    return figures.Tracks(
        f"Success over nine users whom nobody trained with, 95 % interval over {over}",
        ("Arm", "Success", f"Mean, and difference to {label(held['against'])}"), tuple(rows),
        figures.UNIT.marked(),
    )  # fmt: skip


def _gap(arm: Mapping[str, Any]) -> str:
    gap = arm["difference"]
    if gap is None or numbers.finite(gap["mean"]) is None or gap["mean"] == 0:
        return ""
    return f"{numbers.signed(gap['mean'], 3)} [{numbers.interval(gap['ci95']) or numbers.NONE}]"


def dose(knob: str, points: Sequence[Mapping[str, Any]], arms: Mapping[str, Any]):
    """Success against the dose, the ceiling as a line across; None with fewer than two points."""
    drawn = sorted((p for p in points if numbers.finite(p["success"]) is not None),
                   key=lambda p: p["value"])  # fmt: skip
    if len(drawn) < 2:
        return None
    series = [("after training", "grpo", [_point(p) for p in drawn])]
    ceiling = numbers.finite(arms["ceiling"]["mean"]) if "ceiling" in arms else None
    ends = (drawn[0]["value"], drawn[-1]["value"])
    for name, tone, value in (
        ("scripted ceiling", "ink", ceiling),
        ("start", "start", arms["start"]["mean"] if "start" in arms else None),
    ):
        height = numbers.finite(value)
        if height is not None:
            series.append((name, tone, [figures.Point(x, height) for x in ends]))
    return figures.panel(f"Success by {KNOBS.get(knob, knob)}", series, y=figures.UNIT, dots=True)


def _point(point: Mapping[str, Any]) -> figures.Point:
    between = numbers.interval(point["ci95"])
    ends = (None, None) if between is None else (between.lo, between.hi)
    return figures.Point(point["value"], point["success"], *ends)


def curves(held: Mapping[str, Any], arms: Mapping[str, Any]) -> list[figures.Panel]:
    """Success with the evaluation users by learnable tokens; many arms are drawn in two panels."""
    start = numbers.finite(held.get("curve_start"))
    lined = {name: arm for name, arm in arms.items() if arm["curve"]}
    doses = {point["arm"] for points in held["dose"].values() for point in points}
    groups = [("", list(lined))]
    if len(lined) > MOST_LINES and doses:
        kept = [n for n in lined if n in doses]
        base = [n for n in kept if n == held["against"]]
        forms, each = [n for n in lined if n not in doses], MOST_LINES - 1
        groups = [(", by dose", kept)]
        for at in range(0, len(forms), each):
            groups.append((", by form" if not at else ", more forms", base + forms[at : at + each]))
    tone = tones(list(arms))
    drawn = []
    for words, names in groups:
        series = []
        for name in names:
            line = [figures.Point(x, y) for x, y in lined[name]["curve"]]
            if start is not None:
                line = [figures.Point(0.0, start), *line]
            series.append((label(name), tone[name], line))
        found = figures.panel(
            f"Success with the evaluation users by learnable tokens{words}", series,
            y=figures.UNIT,
        )  # fmt: skip
        if found is not None:
            drawn.append(found)
    return drawn


def watched(arms: Mapping[str, Any]) -> list[figures.Panel]:
    """A small panel for each thing watched in training, means over seeds."""
    tone = tones(list(arms))
    found = []
    for key_, title in WATCHED.items():
        series = [
            (label(name), tone[name], [figures.Point(x, y) for x, y in arm["steps"][key_]])
            for name, arm in arms.items()
            if arm["steps"].get(key_)
        ]
        if any(point.y for _, _, line in series for point in line):
            panel = figures.panel(title, series)
            if panel is not None:
                found.append(panel)
    return found


def key(arms: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(label, colour class) of the arms that have steps."""
    tone = tones(list(arms))
    return [(label(n), tone[n]) for n, arm in arms.items() if arm["steps"]]


def behaviours(held: Mapping[str, Any] | None) -> figures.Tracks | None:
    """Rate of each behaviour, before (ring) and after (dot), and of the controls."""
    if held is None:
        return None
    pairs = {n: (r["before"], r["after"]) for n, r in sorted(held["behaviour_rates"].items())}
    pairs["all thirteen"] = (held["behaviour_rate_before"], held["behaviour_rate_after"])
    pairs["controls: none asked for"] = (held["control_rate_before"], held["control_rate_after"])
    rows = []
    for name, (before, after) in pairs.items():
        if numbers.finite(before) is None or numbers.finite(after) is None:
            continue
        a, b = figures.UNIT.at(before), figures.UNIT.at(after)
        marks = (
            figures.Mark("span", min(a, b), max(a, b), "user-faint"),
            figures.Mark("ring", a, tone="user"), figures.Mark("dot", b, tone="user"),
        )  # fmt: skip
        value = f"{numbers.show(before)} → {numbers.show(after)}"
        rows.append(figures.Row(name.replace("_", " "), marks, value))
    columns = ("Behaviour", "Rate", "Before and after")
    return figures.Tracks(
        "Behaviour rates before and after joint GRPO", columns, tuple(rows), figures.UNIT.marked()
    )


def difficulty(held: Mapping[str, Any] | None) -> figures.Tracks | None:
    """Success of one agent with each kind of user, and the gap to the reference."""
    if held is None:
        return None
    words = {"reference": "reference people", "simulator": "simulator", "assistant": "assistant"}
    rows = []
    for agent, kinds in held["success"].items():
        for kind, word in words.items():
            value = numbers.finite(kinds.get(kind))
            if value is None:
                continue
            tone = {"reference": "ink", "simulator": "user", "assistant": "assistant"}[kind]
            gap, between = held["gaps"][agent].get(f"gap_{kind}"), None
            if gap is not None:
                between = numbers.interval(held["gaps"][agent][f"gap_{kind}_ci95"])
            note = f"gap {numbers.signed(gap)} [{between or numbers.NONE}]" if between else ""
            at = figures.UNIT.at(value)
            who = "Start" if agent == "start" else f"Trained on {label(agent).lower()}"
            rows.append(figures.Row(
                f"{who}, with {word}", (figures.Mark("dot", at, tone=tone),),
                numbers.show(value), note,
            ))  # fmt: skip
    columns = ("Agent and user", "Success", "Mean, gap to reference")
    caption = "Success of one agent by who it talks to; gap: reference minus the stand-in"
    return figures.Tracks(caption, columns, tuple(rows), figures.UNIT.marked())
