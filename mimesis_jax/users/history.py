"""A rule-based user's state, rebuilt each turn from what the public history says."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from mimesis_jax import types
from mimesis_jax.desk import acts, slots


@dataclasses.dataclass(frozen=True)
class State:
    """The user's state, a function of the public turns alone.

    turns: user turns so far. said: {slot: value last stated by the user}.
    act: the agent's last act, None before its first turn or when it could not be read.
    opened: whether the agent has spoken at all.
    unanswered: asks of the slot asked now, earlier ones, that brought no value.
    needless: asks, the present one included, of slots that the user had already stated.
    denials: denials of anything so far, the present one included.
    """

    turns: int = 0
    said: dict[str, str] = dataclasses.field(default_factory=dict)
    act: acts.Act | None = None
    opened: bool = False
    unanswered: int = 0
    needless: int = 0
    denials: int = 0


def read(turns: Sequence[types.Turn]) -> State:
    """The state after the public turns of a dialogue; briefs and tool turns are passed over."""
    said: dict[str, str] = {}
    asked: dict[str, int] = {}
    act: acts.Act | None = None
    count = needless = denials = unanswered = 0
    opened = False
    for turn in turns:
        if turn.author == "user":
            count += 1
            said |= slots.mentioned(turn.public)
        elif turn.author == "agent" and turn.only is None:
            opened, act = True, acts.parse(turn.public)
            if act is None:
                continue
            if act.name == "ask":
                needless += act.target in said
                unanswered = asked.get(act.target, 0)
                asked[act.target] = unanswered + 1
            denials += act.name == "deny"
    return State(count, said, act, opened, unanswered, needless, denials)
