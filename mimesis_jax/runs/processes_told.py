"""What the processes of one run are and say of themselves: settings, members, facts, verdicts."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax.runs import versions

PACKAGE = Path(__file__).resolve().parents[1]
LOST = 75  # exit status: a process is gone or never came; the same command may be given again
REFUSED = 3  # exit status: the processes are not started alike


class ProcessError(ValueError):
    """Processes that cannot work together; the message says which, why, and what mends it.

    status: what the process should end with (2: what it was told means nothing).
    """

    def __init__(self, text: str, status: int = 2):
        super().__init__(text)
        self.status = status


@dataclasses.dataclass(frozen=True)
class Settings:
    """Times in seconds.

    arrive: all processes have to be there after this. beat: between two signs of life.
    silent: a process that gave none for so long is given up. grace: after that, what the main
    thread gets to close its files before the process is ended.
    """

    arrive: float = 300.0
    beat: float = 3.0
    silent: float = 40.0
    grace: float = 8.0

    def __post_init__(self):
        for field in dataclasses.fields(self):
            if not getattr(self, field.name) > 0:
                value = getattr(self, field.name)
                raise ProcessError(f"{field.name} is {value} seconds: give it more than 0")
        if self.silent < 3 * self.beat:
            raise ProcessError(
                f"silent ({self.silent} s) is less than three beats of {self.beat} s: a single "
                f"late one would end the run; use {3 * self.beat} or more"
            )


@dataclasses.dataclass(frozen=True)
class Member:
    """One process: its number, its host, its process id there."""

    index: int
    host: str
    pid: int

    def __str__(self) -> str:
        return f"process {self.index} (host {self.host}, pid {self.pid})"


def me(index: int) -> Member:
    """This process as a Member."""
    return Member(index, socket.gethostname(), os.getpid())


def facts(config: Any = None, **more: Any) -> dict[str, Any]:
    """What has to be the same on every host, as json values: versions, code, configuration.

    config: ConfigDict or mapping, its keys are compared one by one. more: other values to compare,
    for example the verb and the run folder.
    """
    made = versions.gather()
    found: dict[str, Any] = {"python": made["python"], **made["packages"]}
    if made["git"] is not None:
        found["git revision"] = made["git"]["revision"]
    found["code of mimesis_jax"] = code()
    found |= {name: str(value) for name, value in more.items()}
    if config is not None:
        found["config"] = configs.plain(config)
    return found


def code(folder: Path = PACKAGE) -> str:
    """Hash of the package's Python files, so that an edit without a commit counts too."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def skew(members: Sequence[Member], told: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each fact in which a process differs from process 0, with both values."""
    lines = []
    for member, theirs in zip(members[1:], told[1:], strict=True):
        for line in configs.changes(told[0], theirs):
            name, _, values = line.partition(": ")
            ours, _, other = values.partition(" -> ")
            lines.append(f"{name} is {ours} on {members[0]} and {other} on {member}")
    return lines


def listed(numbers: Sequence[int]) -> str:
    """Process numbers as words: "process 2", "processes 1 and 3", "processes 1, 2, ... 9"."""
    if len(numbers) == 1:
        return f"process {numbers[0]}"
    shown = [str(n) for n in numbers]
    if len(shown) > 8:
        shown = [*shown[:7], "...", shown[-1]]
        return f"processes {', '.join(shown)}"
    return f"processes {', '.join(shown[:-1])} and {shown[-1]}"
