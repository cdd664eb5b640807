"""Where a run came from and where its time went: phases, versions, seed, hashes, events."""

from __future__ import annotations

import json
from typing import Any

from mimesis_jax.report import figures, numbers
from mimesis_jax.report.folder import Folder

SHOWN = {  # the summary's keys that have a place on the page; all others go to the raw table
    "": "seconds setup_seconds quick compiles_after_warmup",
    "simulator": "nll_before nll_midtrain nll_thoughts nll_trigram behaviour_rate_before "
    "behaviour_rate_after behaviour_rates behaviour_rates_before control_rate_before "
    "control_rate_after bad_format_rate thought_leak_rate thought_overlap_rate "
    "thought_leak_rate_reference thought_overlap_rate_reference bad_format_rate_reference "
    "early_disclosure_rate early_disclosure_rate_reference role_flip_rate role_flip_rate_reference "
    "repeat_rate repeat_rate_reference hash_start hash_end",
    "csd": "alpha gate_mean none_share null_probe_abs placebo_gap params_differ",
    "difficulty_gap": "reference simulator assistant gap_simulator gap_assistant ci95",
}
AGENT = ("mean", "ci95", "by_user")
LAST_EVENTS = 200


def phases(summary: dict[str, Any]) -> figures.Tracks | None:
    """Seconds of each phase as bars, in the order in which they ran."""
    held = numbers.group(summary.get("phases"))
    times = {str(k): s for k, v in held.items() if (s := numbers.finite(v)) is not None}
    if not times:
        return None
    scale = figures.axis(list(times.values()), zero=True)
    rows = tuple(
        figures.Row(
            name.replace("_", " "),
            (figures.Mark("bar", scale.at(0), scale.at(value), "start"),),
            numbers.seconds(value),
        )
        for name, value in times.items()
    )
    columns = ("Phase", "Seconds", "Time")
    return figures.Tracks("Seconds of each phase", columns, rows, scale.marked())


def origin(folder: Folder) -> list[tuple[str, str]]:
    """(name, value) lines: seed, git, versions and the simulator's hashes.

    Objects are opened one level (packages.jax). The host's name stays in versions.json: a report is
    handed around, and who reads it has no use for it.
    """
    simulator = numbers.group(folder.summary.get("simulator"))
    out: dict[str, Any] = {k: folder.config[k] for k in ("seed", "name") if k in folder.config}
    for name, value in folder.versions.items():
        if isinstance(value, dict):
            out |= {f"{name}.{key}": inner for key, inner in value.items()}
        elif name != "host":
            out[name] = value
    for key in ("hash_start", "hash_end"):
        if key in simulator:
            out[f"simulator {key.replace('_', ' at ')}"] = simulator[key]
    return [(name, brief(value)) for name, value in out.items()]


def unknown(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """Dotted name and value of every summary key without a place elsewhere on the page."""
    out = []
    for key, value in summary.items():
        if key == "agent" and isinstance(value, dict):
            for name, entry in value.items():
                rest = numbers.group(entry)
                out += [(f"agent.{name}.{k}", v) for k, v in rest.items() if k not in AGENT]
        elif key in SHOWN and isinstance(value, dict):
            known = SHOWN[key].split()
            out += [(f"{key}.{k}", v) for k, v in value.items() if k not in known]
        elif key == "phases" and isinstance(value, dict):
            out += [(f"phases.{k}", v) for k, v in value.items() if numbers.finite(v) is None]
        elif key not in SHOWN[""].split():
            out.append((key, value))
    return [(name, brief(value)) for name, value in out]


def config(folder: Folder) -> str:
    """The frozen configuration as indented JSON; "" where there is none."""
    if not folder.config:
        return ""
    return json.dumps(folder.config, indent=2, ensure_ascii=False)


def events(folder: Folder) -> list[str]:
    """The last events, one line each."""
    return [brief(event) for event in folder.events[-LAST_EVENTS:]]


def brief(value: Any) -> str:
    """A value on one line, cut at 600 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 600 else text[:600] + " ..."
