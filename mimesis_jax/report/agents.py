"""The agents of a run: the result in numbers, the interval plot and the cross-user table."""

from __future__ import annotations

import dataclasses
from typing import Any

from mimesis_jax.report import figures, numbers

NAMES = {  # key in summary.agent -> (label, short label, tone)
    "start": ("Start (supervised)", "Start", "start"),
    "grpo": ("GRPO", "GRPO", "grpo"),
    "csd": ("GRPO + CSD", "+CSD", "csd"),
    "grpo_assistant_user": ("GRPO with assistant as user", "Asst.", "assistant"),
    "sft_perfect": ("SFT on perfect dialogues", "Perf.", "perfect"),
    "ceiling": ("Scripted perfect agent", "Ceil.", "ink"),
}
DEEP = 0.73  # from here on the other ink reads better on the shade (contrast 4.5 at the change)


@dataclasses.dataclass(frozen=True)
class Agent:
    key: str
    label: str
    short: str
    tone: str
    mean: float | None
    ci95: numbers.Interval | None
    by_user: dict[str, float | None]


@dataclasses.dataclass(frozen=True)
class Step:
    """The move from one agent to the next. gain: over the same cases where the run has that.

    ci95: of the gain over the same cases. apart: the agents' own intervals do not meet. None where
    it is not known.
    """

    before: Agent
    after: Agent
    gain: float
    apart: bool | None
    ci95: numbers.Interval | None = None


@dataclasses.dataclass(frozen=True)
class Cell:
    text: str
    percent: float | None  # None: no number
    deep: bool = False


@dataclasses.dataclass(frozen=True)
class Heat:
    """rows: agents with one cell a user and the mean last."""

    users: tuple[str, ...]
    rows: tuple[tuple[Agent, tuple[Cell, ...]], ...]


def agents(summary: dict[str, Any]) -> dict[str, Agent]:
    """The agents in summary["agent"]: the known ones in reading order, then any others."""
    held = numbers.group(summary.get("agent"))
    found = {}
    for key in [*(k for k in NAMES if k in held), *(k for k in held if k not in NAMES)]:
        entry = numbers.group(held[key])
        mean = numbers.finite(entry.get("mean"))
        label, short, tone = NAMES.get(key, (key.replace("_", " "), key[:9], "other"))
        users = entry.get("by_user")
        if isinstance(users, list):
            users = {f"user {n}": value for n, value in enumerate(users, start=1)}
        by_user = {name: _success(value) for name, value in numbers.group(users).items()}
        ci95 = numbers.interval(entry.get("ci95"), mean)
        found[key] = Agent(key, label, short, tone, mean, ci95, by_user)
    return found


def _success(value: Any) -> float | None:
    """A user's success: a number, or an object that holds it under "mean"."""
    return numbers.finite(value.get("mean") if isinstance(value, dict) else value)


def steps(found: dict[str, Agent], paired: Any = None) -> list[Step]:
    """start -> GRPO -> GRPO + CSD, and the assistant-trained arm beside GRPO.

    paired: summary["paired"], differences over the same users and cases.
    """
    out = []
    for a, b in (("start", "grpo"), ("grpo", "csd"), ("grpo_assistant_user", "grpo")):
        before, after = found.get(a), found.get(b)
        if before is None or after is None or before.mean is None or after.mean is None:
            continue
        apart = None
        if before.ci95 and after.ci95:
            apart = not before.ci95.meets(after.ci95)
        same = numbers.group(numbers.group(paired).get(f"{b}_minus_{a}"))
        gain, ci95 = numbers.finite(same.get("mean")), None
        if gain is not None:
            ci95 = numbers.interval(same.get("ci95"), gain)
        out.append(
            Step(before, after, after.mean - before.mean if gain is None else gain, apart, ci95)
        )
    return out


def plot(found: dict[str, Agent]) -> figures.Tracks | None:
    """Mean and 95 % interval of each agent, the ceiling as a rule through all rows."""
    ceiling = found["ceiling"].mean if "ceiling" in found else None
    rows = []
    for agent in found.values():
        if agent.mean is None:
            continue
        marks = []
        if ceiling is not None:
            marks.append(figures.Mark("rule", figures.UNIT.at(ceiling)))
        if agent.ci95:
            lo, hi = figures.UNIT.at(agent.ci95.lo), figures.UNIT.at(agent.ci95.hi)
            marks.append(figures.Mark("span", lo, hi, agent.tone))
        at = figures.UNIT.at(agent.mean)
        ring = agent.key == "ceiling"  # measured, but not a trained agent
        marks.append(figures.Mark("ring" if ring else "dot", at, tone=agent.tone))
        note = f"[{agent.ci95}]" if agent.ci95 else "no interval"
        rows.append(figures.Row(agent.label, tuple(marks), numbers.show(agent.mean), note))
    if not rows:
        return None
    caption = "Success of each agent over the evaluation users, with its 95 % interval"
    columns = ("Agent", "Success", "Mean [95 %]")
    return figures.Tracks(caption, columns, tuple(rows), figures.UNIT.marked())


def heat(found: dict[str, Agent]) -> Heat | None:
    """Agents x users; users in the order in which the agents name them."""
    users = tuple(dict.fromkeys(name for agent in found.values() for name in agent.by_user))
    if not users:
        return None
    rows = tuple(
        (agent, tuple(_cell(v) for v in (*map(agent.by_user.get, users), agent.mean)))
        for agent in found.values()
        if agent.by_user
    )
    return Heat(users, rows)


def _cell(value: float | None) -> Cell:
    if value is None:
        return Cell(numbers.NONE, None)
    return Cell(numbers.show(value), figures.UNIT.at(value), deep=value > DEEP)
