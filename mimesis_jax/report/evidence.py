"""Writes evidence.html: the claims, the arms of each experiment, and what explains them.

It reads results.json of a folder of evidence (build.evidence) and nothing else. Figures that are
missing are shown as missing; a folder in which nothing has finished gives a page that says so.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mimesis_jax.report import evidence_figures, numbers, sheet

# claim -> its parts: (words, least lower end of the interval, what is said then and else)
CLAIMS = {
    "claim_training_user": (
        ("Trained on the simulator, an agent does better with users it never met than trained on "
         "an assistant playing the user", 0.0, "holds", "fails"),
    ),
    "claim_csd": (
        ("CSD takes at most 0.03 from training on the simulator", -0.03, "holds", "fails"),
        ("and it adds to it", 0.0, "shown", "not shown"),
    ),
}  # fmt: skip
OWN, GAP = 0.9, 0.05  # wanted: least success with one's own user, most of the simulator's gap
TITLES = {
    "training_user": "Who trains the agent",
    "csd": "Coached self-distillation",
    "csd_long": "CSD over 300 steps",
    "difficulty": "Difficulty of the users",
    "behaviours": "Behaviours of the simulator",
}
SMALL = 5  # seeds below which a claim is shown and not judged


@dataclasses.dataclass(frozen=True)
class Claim:
    """parts: (words, verdict) each; verdicts: holds, fails, shown, not shown, not judged, not
    measured."""

    parts: tuple[tuple[str, str], ...]
    difference: str
    interval: str
    goals_only: str
    by_t: str
    by_seed: str

    @property
    def verdict(self) -> str:
        return self.parts[0][1]


def write(out: str | Path) -> Path:
    """Writes OUT/evidence.html, whole or not at all, and returns its path.

    Raises FileNotFoundError where there is no results.json."""
    out = Path(out)
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    return sheet.put(out / "evidence.html", render(results, out.resolve().name))


def render(results: Mapping[str, Any], name: str) -> str:
    """The page's HTML. results: what build.evidence_results writes. name: of the folder."""
    experiments = numbers.group(results.get("experiments"))
    order = [*(n for n in TITLES if n in experiments), *(n for n in experiments if n not in TITLES)]
    words = {
        "style": sheet.style("style.css", "evidence.css"),
        "name": name,
        "claims": claims(experiments),
        "stale": [TITLES.get(n, n) for n in order if experiments[n].get("stale")],
        "revisions": results.get("revisions") or {},
        "spent": _spent(results.get("seconds") or {}),
        "sections": [section(n, experiments[n]) for n in order],
    }
    return sheet.printed("evidence.html", words, between=_between)


def _between(ci95: Any) -> str:
    """An interval behind its mean; nothing where there is none."""
    found = numbers.interval(ci95)
    return "" if found is None else f" [{found}]"


def claims(experiments: Mapping[str, Any]) -> list[Claim]:
    """Each claim with its paired difference, as far as it has been measured."""
    found: dict[str, Any] = {}
    for one in experiments.values():
        if not one.get("stale"):
            found |= one["claims"]
    return [_claim(parts, found.get(name)) for name, parts in CLAIMS.items()]


def _claim(parts: Sequence[tuple[str, float, str, str]], held: Mapping[str, Any] | None) -> Claim:
    mean = None if held is None else numbers.finite(held.get("difference"))
    if held is None or mean is None:
        words = tuple((part[0], "not measured") for part in parts)
        return Claim(words, *[numbers.NONE] * 5)
    between = numbers.interval(held["ci95"])
    judged = between is not None and len(held["seeds"]) >= SMALL
    words = tuple(
        (told, (yes if between.lo > least else no) if judged and between else "not judged")
        for told, least, yes, no in parts
    )
    by_seed = ", ".join(
        f"{numbers.signed(value, 3)} (seed {seed})"
        for seed, value in zip(held["seeds"], held["by_seed"], strict=True)
    )
    return Claim(
        words, numbers.signed(mean), str(between or numbers.NONE),
        str(numbers.interval(held.get("ci95_goals")) or numbers.NONE),
        str(numbers.interval(held.get("ci95_t")) or numbers.NONE), by_seed,
    )  # fmt: skip


def section(name: str, held: Mapping[str, Any]) -> dict[str, Any]:
    """What the template reads of one experiment."""
    arms = evidence_figures.ordered(held)
    trained = {n: arm for n, arm in arms.items() if arm["arm"]["learns"] in ("grpo", "perfect")}
    measures = held["measures"]
    # An experiment of measures has arms only to measure them; another one shows these.
    shown = bool(trained and (held["claims"] or held["dose"] or not measures))
    trained = trained if shown else {}
    return {
        "id": name,
        "title": TITLES.get(name, name.replace("_", " ")),
        "told": _about(held, arms),
        "stale": held.get("stale"),
        "wanted": _wanted(held),
        "plot": evidence_figures.success(held, arms) if trained else None,
        "against": evidence_figures.label(held["against"]),
        "doses": [
            panel
            for knob, points in held["dose"].items()
            if (panel := evidence_figures.dose(knob, points, arms)) is not None
        ],
        "curves": evidence_figures.curves(held, trained),
        "matrix": _table(arms, "by_user", "mean", top=1.0) if trained else None,
        "acts": _table(arms, "acts", None, top=0.5) if trained else None,
        "facts": [_fact(n, arm) for n, arm in trained.items()],
        "watched": evidence_figures.watched(trained),
        "watched_key": evidence_figures.key(trained),
        "mechanism": measures.get("mechanism"),
        "behaviours": evidence_figures.behaviours(measures.get("behaviours")),
        "rates": measures.get("behaviours"),
        "difficulty": evidence_figures.difficulty(measures.get("difficulty")),
        "needed": [
            (evidence_figures.label(n), held["goals_needed"][n])
            for n in trained
            if n in held["goals_needed"]
        ],
        "goals": held["goals"],
        "curve_goals": held.get("curve_goals"),
        "spent": _spent(held["seconds"]),
    }


def _spent(seconds: Mapping[str, Any]) -> list[tuple[str, float]]:
    named = ((evidence_figures.label(n), s) for n, s in seconds.items() if s)
    return sorted(named, key=lambda pair: -pair[1])


def _wanted(held: Mapping[str, Any]) -> list[tuple[str, str, str, str]]:
    """(what, wanted, found, whether) of what an experiment is held to besides the claims."""
    rows: list[tuple[str, str, str, str]] = []

    def row(what: str, wanted: str, found: Any, met: bool, digits: int = 2) -> None:
        if numbers.finite(found) is not None:
            rows.append((what, wanted, numbers.show(found, digits), "yes" if met else "no"))

    own = (held["arms"].get("assistant_100") or {}).get("own")
    if own is not None:
        told = "Trained on an assistant, with that assistant"
        row(told, f"at least {OWN}", own["mean"], (own["mean"] or 0.0) >= OWN)
    if (seen := held["measures"].get("behaviours")) is not None:
        before, after = seen["behaviour_rate_before"], seen["behaviour_rate_after"]
        control, bad = seen["control_rate_after"], seen["bad_format_rate"]
        row("Behaviour rate after joint GRPO", "at least 0.6", after, after >= 0.6)
        row("and its rise", "at least 0.2", after - before, after - before >= 0.2)
        row("Behaviours that rise, of 13", "at least 10", seen["rising"], seen["rising"] >= 10, 0)
        row("Rate of controls", "at most 0.15", control, control <= 0.15)
        row("Bad format", "at most 0.02", bad, bad <= 0.02, 3)
    if (seen := held["measures"].get("difficulty")) is not None:
        for agent, gaps in seen["gaps"].items():
            who = "the start" if agent == "start" else f"the arm {evidence_figures.label(agent)}"
            ours, other = gaps["gap_simulator"], gaps["gap_assistant"]
            most = f"within ±{GAP}"
            row(f"Gap of the simulator by {who}", most, ours, abs(ours) <= GAP)
            row(f"Gap of the assistant by {who}", "larger", other, abs(other) > abs(ours))
    return rows


def _about(held: Mapping[str, Any], arms: Mapping[str, Any]) -> str:
    counts = sorted({len(arm["seeds"]) for arm in arms.values()})
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1])))) if counts else "0"
    told = f"{seeds} of {held['seeds']} seeds finished"
    if any(arm["arm"]["learns"] == "grpo" for arm in arms.values()):
        told += f"; {held['steps']} steps"
        if held["tokens"]:
            told += f" of about {held['tokens']:,} learnable tokens each"
        told += f"; {held['goals']} goals with each of nine users"
    if held["start"]:
        told += ". All seeds begin with the models of one preparation or of another folder"
    return told + "."


@dataclasses.dataclass(frozen=True)
class Cell:
    text: str
    percent: float | None
    deep: bool


@dataclasses.dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


def _table(arms: Mapping[str, Any], key: str, last: str | None, top: float) -> Table | None:
    """Arms x what `key` holds; the shade is full at `top`."""
    columns = tuple(dict.fromkeys(c for arm in arms.values() for c in arm[key]))
    if not columns:
        return None
    rows = []
    for name, arm in arms.items():
        values = [arm[key].get(column) for column in columns] + ([arm[last]] if last else [])
        rows.append((evidence_figures.label(name), tuple(_cell(v, top) for v in values)))
    words = tuple(column.replace("_", " ") for column in columns)
    return Table((*words, "mean") if last else words, tuple(rows))


def _cell(value: Any, top: float) -> Cell:
    number = numbers.finite(value)
    if number is None:
        return Cell(numbers.NONE, None, False)
    share = min(1.0, number / top)
    return Cell(f"{number:.2f}", round(100 * share, 1), share > 0.73)


def _fact(name: str, arm: Mapping[str, Any]) -> tuple[str, Sequence[str]]:
    """Own user, tokens, those with a gradient, turns, what was not scored, success by seed."""
    own = arm["own"]
    count = lambda value: numbers.NONE if numbers.finite(value) is None else f"{value:,.0f}"
    tokens, taught = count(arm["learnable_tokens"]), count(arm.get("taught_tokens"))
    if arm["arm"]["learns"] == "perfect":
        tokens, taught = f"{tokens} (planned)", "all"
    return evidence_figures.label(name), (
        numbers.NONE if own is None else numbers.show(own["mean"]),
        tokens,
        taught,
        numbers.show(arm["turns"], 1),
        f"{100 * (numbers.finite(arm.get('missing')) or 0.0):.1f} %",
        ", ".join(
            f"{numbers.show(value)} ({seed})"
            for seed, value in zip(arm["seeds"], arm["by_seed"], strict=True)
        ),
    )
