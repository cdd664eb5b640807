"""Learning curves from metrics.jsonl: all arms on one plot, then small multiples to explain it."""

from __future__ import annotations

import dataclasses
import math
import statistics
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
    "policy_loss": "Policy loss",
    "csd_loss": "CSD loss",
    "drift": "Drift from the sampled policy",
    "masked_episodes": "Masked episodes",
    "tokens_per_s": "Tokens per second",
}
GATES = {
    "gate_mean": "Mean gate",
    "gate_share_above_half": "Gate above one half",
    "none_share": "Turns without a note",
}
SHARES = (
    "groups_without_variance",
    "bad_format",
    "masked_episodes",
    "gate_share_above_half",
    "none_share",
)


@dataclasses.dataclass(frozen=True)
class Curves:
    """success: the arms together; band: what the band is; the others are small multiples."""

    success: figures.Panel | None
    band: str
    watched: list[figures.Panel]
    acts: list[figures.Panel]
    stops: list[figures.Panel]
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
    named = lambda prefix: {
        key: key.removeprefix(prefix).replace("_", " ") for key in keys if key.startswith(prefix)
    }
    success = [(name, tone, spread(line)) for name, tone, line in series(metrics, arms, "success")]
    return Curves(
        success=figures.panel("Success by training step", success, y=figures.UNIT, dots=True),
        band=_band(metrics, arms),
        watched=multiples(metrics, arms, WATCHED),
        acts=multiples(metrics, arms, named("act_share_")),
        stops=multiples(metrics, arms, named("stop_")),
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
        [("loss", "ink", points(lines, "loss")), ("NLL", "user", points(lines, "nll"))],
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
        if key in SHARES or key.startswith(("act_share_", "stop_")):
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
    """The finite values of `key` with the band that the lines carry.

    The band is _lo and _hi, else mean +- 1.96 _std / sqrt(episodes), the interval of a mean over
    `episodes`. A _std alone gives none: of single episodes that succeed or fail it is
    sqrt(p (1 - p)), which covers the figure and says no more than the mean.
    """
    found = []
    for line in lines:
        y = numbers.finite(line.get(key))
        if y is None:
            continue
        lo, hi = numbers.finite(line.get(f"{key}_lo")), numbers.finite(line.get(f"{key}_hi"))
        std, n = numbers.finite(line.get(f"{key}_std")), numbers.finite(line.get("episodes"))
        if (lo is None or hi is None) and std is not None and n is not None and n >= 1:
            half = 1.96 * abs(std) / math.sqrt(n)
            lo, hi = y - half, y + half
        if not bands or lo is None or hi is None:
            lo = hi = None
        found.append(figures.Point(float(line["step"]), y, lo, hi))
    return found


def spread(line: list[figures.Point], window: int = 5) -> list[figures.Point]:
    """Bands for points that carry none: mean +- the standard deviation of `window` steps around."""
    if len(line) < window or any(point.lo is not None for point in line):
        return line
    out = []
    for i, point in enumerate(line):
        near = [p.y for p in line[max(0, i - window // 2) : i + window // 2 + 1]]
        half = statistics.stdev(near)
        out.append(dataclasses.replace(point, lo=point.y - half, hi=point.y + half))
    return out


def _band(metrics, arms) -> str:
    lines = [line for phase in arms for line in metrics[phase]]
    if any("success_lo" in line and "success_hi" in line for line in lines):
        return "the interval logged with each step"
    if any("success_std" in line and "episodes" in line for line in lines):
        return "95 % interval of a step's mean over its episodes"
    return "one standard deviation of five neighbouring steps" if lines else ""
