"""A rule-based user's state, rebuilt each turn from what the public history says."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from mimesis_jax import types
from mimesis_jax.desk import acts, slots


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One user turn and what it replies to.

    act: the agent's last act that the user heard; None at the opening and for nonsense.
    text: the user's public words. thought: its private ones, "" where none is known.
    touched: whether the agent had set something, offered or denied by then. opening: whether
    nobody had spoken before.
    """

    act: acts.Act | None
    text: str
    thought: str = ""
    touched: bool = False
    opening: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        """The public words in lower case, without marks."""
        return tuple(_WORD.findall(self.text.lower()))

    @property
    def said(self) -> dict[str, str]:
        """{slot: value} that the user states here."""
        return slots.mentioned(" ".join(self.words))


def exchanges(turns: Sequence[types.Turn]) -> tuple[Exchange, ...]:
    """The user turns of a dialogue, each with the act before it. In a whole dialogue (agent's
    calls included) `touched` counts what was set; in the user's view, what it heard."""
    made: list[Exchange] = []
    act: acts.Act | None = None
    touched = heard = False
    for turn in turns:
        if turn.author == "user":
            made.append(
                Exchange(act, turn.public, turn.private or "", touched, not heard and not made)
            )
        elif turn.author == "agent":
            said = acts.parse(turn.public)
            touched = touched or (said is not None and said.name in _TOUCHING)
            if turn.only is None:
                act, heard = said, True
    return tuple(made)


_WORD = re.compile(r"[a-z0-9']+")
_TOUCHING = ("set", "offer", "deny", "confirm")


@dataclasses.dataclass(frozen=True)
class State:
    """The user's state, a function of the public turns alone.

    turns: user turns so far. said: {slot: value last stated by the user}.
    act: the agent's last act, None before its first turn or when it could not be read.
    opened: whether the agent has spoken at all.
    unanswered: asks of the slot asked now, earlier ones, that brought no value.
    needless: asks, the present one included, of slots that the user had already stated.
    denials: denials of anything so far, the present one included.
    past: the user's turns so far with what they replied to.
    """

    turns: int = 0
    said: dict[str, str] = dataclasses.field(default_factory=dict)
    act: acts.Act | None = None
    opened: bool = False
    unanswered: int = 0
    needless: int = 0
    denials: int = 0
    past: tuple[Exchange, ...] = ()


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
    past = exchanges(turns)
    return State(count, said, act, opened, unanswered, needless, denials, past)
