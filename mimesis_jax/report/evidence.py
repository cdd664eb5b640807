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

CLAIMS = {  # claim -> (words, least lower end of the interval)
    "claim_training_user": ("Trained on the simulator, an agent does better with users it never "
                            "met than trained on an assistant playing the user", 0.0),
    "claim_csd": ("CSD adds to training on the simulator; at worst it takes 0.03", -0.03),
}  # fmt: skip
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
    words: str
    difference: str
    interval: str
    goals_only: str
    by_seed: str
    verdict: str  # holds, fails, not judged, not measured


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
        "sections": [section(n, experiments[n]) for n in order],
    }
    return sheet.printed("evidence.html", words)


def claims(experiments: Mapping[str, Any]) -> list[Claim]:
    """Each claim with its paired difference, as far as it has been measured."""
    found: dict[str, Any] = {}
    for one in experiments.values():
        found |= one["claims"]
    return [_claim(words, least, found.get(name)) for name, (words, least) in CLAIMS.items()]


def _claim(words: str, least: float, held: Mapping[str, Any] | None) -> Claim:
    mean = None if held is None else numbers.finite(held.get("difference"))
    if held is None or mean is None:
        none = numbers.NONE
        return Claim(words, none, none, none, none, "not measured")
    between = numbers.interval(held["ci95"])
    alone = numbers.interval(held["ci95_goals"])
    verdict = "not judged"
    if between is not None and len(held["seeds"]) >= SMALL:
        verdict = "holds" if between.lo > least else "fails"
    by_seed = ", ".join(numbers.signed(value) for value in held["by_seed"])
    return Claim(
        words, numbers.signed(mean), str(between or numbers.NONE), str(alone or numbers.NONE),
        by_seed, verdict,
    )  # fmt: skip


def section(name: str, held: Mapping[str, Any]) -> dict[str, Any]:
    """What the template reads of one experiment."""
    arms = evidence_figures.ordered(held)
    trained = {n: arm for n, arm in arms.items() if arm["arm"]["learns"] in ("grpo", "perfect")}
    measures = held["measures"]
    return {
        "id": name,
        "title": TITLES.get(name, name.replace("_", " ")),
        "told": _about(held, arms),
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
        "spent": sorted(
            ((evidence_figures.label(n), s) for n, s in held["seconds"].items() if s),
            key=lambda pair: -pair[1],
        ),
    }


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
    """Own user, tokens, turns and seeds of a trained arm."""
    own = arm["own"]
    tokens = numbers.finite(arm["learnable_tokens"])
    return evidence_figures.label(name), (
        numbers.NONE if own is None else numbers.show(own["mean"]),
        numbers.NONE if tokens is None else f"{tokens:,.0f}",
        numbers.show(arm["turns"], 1),
        ", ".join(numbers.show(value) for value in arm["by_seed"]),
    )
