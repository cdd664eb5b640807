"""Writes report.html: reads the run folder, makes each section's data, fills the template."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jinja2

from mimesis_jax.report import (
    agents,
    checks,
    curves,
    dialogues,
    folder,
    mechanism,
    numbers,
    provenance,
    simulator,
)

HERE = Path(__file__).parent
# Control characters other than tab, newline and return are no HTML; bidirectional overrides would
# let a dialogue's text reorder the page around it.
UNPRINTABLE = dict.fromkeys(
    [c for c in range(32) if c not in (9, 10, 13)]
    + list(range(0x7F, 0xA0))
    + list(range(0x202A, 0x202F))
    + list(range(0x2066, 0x206A)),
    "\N{REPLACEMENT CHARACTER}",
)


def write(run_folder: str | Path) -> Path:
    """Writes `run_folder`/report.html and returns its path.

    The page is one file: no script, no network, no font of its own. A missing or damaged file of
    the run folder makes its sections say so. Written beside and renamed, so a reader never sees
    half a page. Raises FileNotFoundError when there is no such folder.
    """
    html = render(folder.read(run_folder))
    target = Path(run_folder) / "report.html"
    partial = target.with_name(f".report.{os.getpid()}.html")
    try:
        partial.write_bytes(html.encode("utf-8", errors="replace"))  # lone surrogates become "?"
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target


def render(run: folder.Folder) -> str:
    """The page's HTML."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        show=numbers.show, signed=numbers.signed, seconds=numbers.seconds, NONE=numbers.NONE
    )
    page = environment.get_template("page.html").render(**sections(run))
    return page.translate(UNPRINTABLE)


def sections(run: folder.Folder) -> dict[str, Any]:
    """Everything the template reads, by name."""
    summary = run.summary
    held = numbers.group(summary.get("simulator"))
    found = agents.agents(summary)
    # Reading the episodes adds their fault, so it comes before the faults are handed over.
    chosen, count = dialogues.choose(run.episodes())
    return {
        "style": (HERE / "style.css").read_text(encoding="utf-8"),
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
        "origin": provenance.origin(run),
        "config": provenance.config(run),
        "events": provenance.events(run),
        "event_count": len(run.events),
        "unknown": provenance.unknown(summary),
        "faults": run.faults,
    }
