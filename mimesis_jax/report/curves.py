"""Learning curves from metrics.jsonl: all arms on one plot, then small multiples to explain it."""

from __future__ import annotations

import dataclasses
from typing import Any

from mimesis_jax.report import figures, numbers

ARMS = {  # phase -> (label, tone); tones are the same in every figure of the page
    "agent_grpo": ("GRPO", "grpo"),
    "agent_csd": ("GRPO + CSD", "csd"),
    "agent_grpo_assistant_user": ("GRPO with assistant as user", "assistant"),
}
USER = {"user_behaviours": ("behaviour GRPO", "user")}
TAUGHT = {  # supervised phases
    "base": "Base, both chairs",
    "user_midtrain": "User mid-training",
    "user_thoughts": "User thoughts",
    "agent_start": "Agent, supervised start",
    "sft_perfect": "Agent, perfect dialogues",
}
WATCHED = {  # metric -> title; what a reader checks before believing a curve
    "reward": "Reward",
    "turns": "Turns per dialogue",
    "entropy": "Entropy, nats per token",
    "kl": "KL to the reference",
    "grad_norm": "Gradient norm",
    "groups_without_variance": "Groups without variance",
    "bad_format": "Bad format",
    "loss": "Loss",
    "tokens_per_s": "Tokens per second",
}
GATES = {
    "gate_mean": "Mean gate",
    "gate_share_above_half": "Gate above one half",
    "none_share": "Turns without a note",
}
SHARES = ("groups_without_variance", "bad_format", "gate_share_above_half", "none_share")


@dataclasses.dataclass(frozen=True)
class Curves:
    """success: the arms together; band: what the band is; the others are small multiples."""

    success: figures.Panel | None
    band: str
    watched: list[figures.Panel]
    acts: list[figures.Panel]
    user: list[figures.Panel]
    taught: list[figures.Panel]

    @property
    def taught_key(self) -> tuple[figures.Line, ...]:
        """The lines to explain above the supervised panels: those of the fullest one."""
        return max((panel.lines for panel in self.taught), key=len, default=())


def curves(metrics: dict[str, list[dict[str, Any]]]) -> Curves:
    """All curves of a run; metrics: phase -> its lines by rising step."""
    arms = {phase: look for phase, look in ARMS.items() if phase in metrics}
    for phase in metrics:  # an arm that this page does not know by name is still an arm
        if phase.startswith("agent_") and phase not in TAUGHT and phase not in arms:
            if points(metrics[phase], "success"):
                arms[phase] = (phase.removeprefix("agent_").replace("_", " "), "other")
    keys = sorted({key for phase in arms for line in metrics[phase] for key in line})
    acts = [key for key in keys if key.startswith("act_share_")]
    return Curves(
        success=figures.panel(
            "Success by training step", series(metrics, arms, "success"), y=figures.UNIT, dots=True
        ),
        band=_band(metrics, arms),
        watched=multiples(metrics, arms, WATCHED),
        acts=multiples(
            metrics, arms, {k: k.removeprefix("act_share_").replace("_", " ") for k in acts}
        ),
        user=multiples(
            metrics, USER, {"behaviour_rate": "Behaviour rate", "success": "Success"} | WATCHED
        ),
        taught=[
            found
            for phase, title in TAUGHT.items()
            if phase in metrics and (found := _taught(metrics[phase], title))
        ],
    )


def _taught(lines: list[dict[str, Any]], title: str) -> figures.Panel | None:
    """Training loss and, where it is logged, NLL (nats per token) of a supervised phase."""
    return figures.panel(
        title,
        [("training loss", "ink", points(lines, "loss")), ("NLL", "user", points(lines, "nll"))],
    )


def multiples(metrics, phases: dict[str, tuple[str, str]], titles: dict[str, str]):
    """One small panel per metric that some phase logs; one that is 0 throughout is left out."""
    panels = []
    for key, title in titles.items():
        found = series(metrics, phases, key, bands=False)
        if not any(point.y for _, _, line in found for point in line):
            continue
        largest = max(point.y for _, _, line in found for point in line)
        y = None
        if key in SHARES or key.startswith("act_share_"):
            y = figures.axis([largest], zero=True, about=3)
        drawn = figures.panel(title, found, y=y)
        if drawn is not None:
            panels.append(drawn)
    return panels


def series(metrics, phases: dict[str, tuple[str, str]], key: str, *, bands: bool = True):
    """(name, tone, points) of one metric for each phase that logs it."""
    return [
        (name, tone, found)
        for phase, (name, tone) in phases.items()
        if phase in metrics and (found := points(metrics[phase], key, bands=bands))
    ]


def points(lines: list[dict[str, Any]], key: str, *, bands: bool = True) -> list[figures.Point]:
    """The finite values of `key` with the band the lines carry: _lo/_hi, else mean +- _std."""
    found = []
    for line in lines:
        y = numbers.finite(line.get(key))
        if y is None:
            continue
        lo, hi = numbers.finite(line.get(f"{key}_lo")), numbers.finite(line.get(f"{key}_hi"))
        std = numbers.finite(line.get(f"{key}_std"))
        if (lo is None or hi is None) and std is not None:
            lo, hi = y - std, y + std
        if not bands or lo is None or hi is None:
            lo = hi = None
        found.append(figures.Point(float(line["step"]), y, lo, hi))
    return found


def _band(metrics, arms) -> str:
    lines = [line for phase in arms for line in metrics[phase]]
    if any("success_lo" in line and "success_hi" in line for line in lines):
        return "the interval logged with each step"
    if any("success_std" in line for line in lines):
        return "one standard deviation logged with each step"
    return ""
