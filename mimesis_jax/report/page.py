"""Writes report.html: reads the run folder, makes each section's data, fills the template."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mimesis_jax.report import (
    agents,
    checks,
    curves,
    dialogues,
    folder,
    goodput,
    mechanism,
    numbers,
    provenance,
    rollouts,
    sheet,
    simulator,
)


def write(run_folder: str | Path) -> Path:
    """Writes `run_folder`/report.html and returns its path.

    The page is one file: no script, no network, no font of its own. A missing or damaged file of
    the run folder makes its sections say so. Written beside and renamed, so a reader never sees
    half a page. Raises FileNotFoundError when there is no such folder.
    """
    return sheet.put(Path(run_folder) / "report.html", render(folder.read(run_folder)))


def render(run: folder.Folder) -> str:
    """The page's HTML."""
    return sheet.printed("page.html", sections(run))


def sections(run: folder.Folder) -> dict[str, Any]:
    """Everything the template reads, by name."""
    summary = run.summary
    held = numbers.group(summary.get("simulator"))
    found = agents.agents(summary)
    # Reading the episodes adds their fault, so it comes before the faults are handed over.
    chosen, count = dialogues.choose(run.episodes())
    spent = goodput.measure(run.events)
    return {
        "style": sheet.style("style.css"),
        "name": run.path.resolve().name,
        "summary": summary,
        "quick": bool(summary.get("quick")),
        "agents": found,
        "steps": agents.steps(found, summary.get("paired")),
        "checks": checks.checks(summary) if summary else [],
        "plot": agents.plot(found),
        "heat": agents.heat(found),
        "curves": curves.curves(run.metrics),
        "likelihood": simulator.likelihood(held),
        "behaviours": simulator.behaviours(held),
        "measures": simulator.measures(held),
        "gap": simulator.gap(summary),
        "mechanism": mechanism.facts(summary),
        "gates": curves.multiples(
            run.metrics,
            {"agent_csd": curves.ARMS["agent_csd"]},
            curves.GATES,
        ),
        "shots": [dialogues.shot(episode) for episode in chosen],
        "episodes": count,
        "phases": provenance.phases(summary),
        "played": rollouts.table(run.metrics),
        "goodput": goodput.tracks(spent),
        "goodput_said": goodput.sentence(spent),
        "origin": provenance.origin(run),
        "config": provenance.config(run),
        "events": provenance.events(run),
        "event_count": len(run.events),
        "unknown": provenance.unknown(summary),
        "faults": run.faults,
    }
