"""The step bench's figures as a table for people, and against those of an earlier run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mimesis_jax.bench import measure

PHASES = (
    "hand_over", "prefill", "agent_decode", "user_decode", "scoring", "packing", "update", "text"
)  # fmt: skip
SAME = ("model", "config", "devices", "preset", "goals", "copies", "updates", "shape", "device")


def lines(figures: Mapping[str, Any]) -> list[str]:
    """A row for each phase of each kind: seconds, tokens real and computed, a second, the peak."""
    machine, settings = figures["machine"], figures["settings"]
    rows = [
        f"{settings['config'] or settings['model']}, {figures['parameters']:,} parameters,"
        f" {settings['devices']} x {machine['device']}, preset {settings['preset']}",
        f"{'':6}{'phase':13}{'s':>9}{'real':>10}{'computed':>10}{'real/s':>10}"
        f"{'TFLOP/s':>10}{'MFU':>8}",
    ]
    for kind, one in figures["kinds"].items():
        for phase in PHASES:
            if phase not in one["phases_s"]:
                continue
            tokens = one["tokens"].get(phase, {"real": None, "computed": None})
            rows.append(_row(kind, phase, one, one["phases_s"][phase], tokens))
        rows.append(_row(kind, "step", one, one["step_s"], {"real": None, "computed": None}))
        rows.append(
            f"{'':6}passes {' and '.join(f'{s:.3f}' for s in one['passes_s'])} s (noise"
            f" {one['noise']:.1%}), first step {one['first_s']:.1f} s, {one['compiles']} programs"
            f" in {one['compile_s']:.1f} s"
        )
    held = figures["memory"]
    known = {"held": held["held"], "peak": held["peak"], **held["programs"]}
    told = ", ".join(f"{name} {size / 2**30:.3f}" for name, size in known.items() if size)
    rows += [
        f"GiB on a device: {told}",
        f"compiled to warm up: {figures['compiles']} programs in {figures['compile_s']:.1f} s;"
        f" after that: {figures['compiles_after_warmup']}",
    ]
    return rows


def _row(kind: str, phase: str, one: Mapping[str, Any], seconds: float, tokens) -> str:
    number = lambda value, form: "-" if value is None else format(value, form)
    return (
        f"{kind:6}{phase:13}{seconds:9.4f}{number(tokens['real'] or None, ','):>10}"
        f"{number(tokens['computed'] or None, ','):>10}"
        f"{number(one['tokens_per_s'].get(phase), ',.0f'):>10}"
        f"{number(one['tflops'].get(phase) or None, '.3g'):>10}"
        f"{number(one['mfu'].get(phase), '.1%'):>8}"
    )


# --- against an earlier run -----------------------------------------------------------------------


def baseline(path: Path) -> dict[str, Any]:
    """Figures that `--json` has written. Raises BenchError for a file that has none."""
    try:
        held = json.loads(path.read_text())
        return {"kinds": held["kinds"], "settings": held["settings"], "machine": held["machine"]}
    except OSError as error:
        raise measure.BenchError(f"--baseline {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise measure.BenchError(
            f"--baseline {path} has no figures of this bench: give the file that --json has written"
        ) from error


def same(settings: Mapping[str, Any], kinds, earlier: Mapping[str, Any], path: Path) -> None:
    """Raises BenchError, before anything is measured, where the two runs cannot be compared."""
    for name in SAME:
        now, then = settings[name], earlier["settings"].get(name)
        if json.loads(json.dumps(now)) != then:
            raise measure.BenchError(
                f"--baseline {path} was measured with {name} {then}, this would be with {now}: "
                "measure both alike"
            )
    missing = [kind for kind in kinds if kind not in earlier["kinds"]]
    if missing:
        raise measure.BenchError(
            f"--baseline {path} has no {missing[0]}: it has {', '.join(earlier['kinds'])}"
        )


def compared(
    figures: Mapping[str, Any], earlier: Mapping[str, Any], bound: float
) -> dict[str, Any]:
    """`ratios`: seconds of a step now over then, by kind. `past_bound`: one line for each kind that
    is slower by more than `bound` (0.1: a tenth), [] where none is."""
    ratios = {
        kind: one["step_s"] / earlier["kinds"][kind]["step_s"]
        for kind, one in figures["kinds"].items()
    }
    slow = [
        f"{kind} takes {ratio:.3f} of the baseline's time, the bound is {1 + bound:.3f}"
        for kind, ratio in ratios.items()
        if ratio > 1 + bound
    ]
    return {"ratios": ratios, "bound": bound, "past_bound": slow}
