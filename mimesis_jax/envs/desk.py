"""The desk gym: one case between a user and a desk agent; success is the end state only."""

from __future__ import annotations

import collections
from typing import Any

from mimesis_jax.desk import acts, goals, record
from mimesis_jax.types import Feedback, Kind, Reply, Stop, Turn

_USER_ENDS = {
    Kind.STOP: Stop.LEFT,
    Kind.EMPTY: Stop.USER_FORMAT,
    Kind.UNPARSED: Stop.USER_FORMAT,
    Kind.REFUSED: Stop.USER_FORMAT,
    Kind.FAILED: Stop.FAILED,
}


class DeskGym:
    """A single-use case; satisfies types.Gym.

    The user speaks first. Calls (`look`, `set`) are answered by a tool turn that the agent alone
    sees, and the agent acts again. The reward is success, given once, when the case ends: 1.0
    when the record's end-state check holds and the agent closed or the user left. The user's
    words are user turns and never tool results, so that a chat template that keeps reasoning
    across tool results treats this gym the same way in rollouts and in training.
    """

    def __init__(
        self, goal: goals.Goal, *, turns: int = record.TURNS, until: int | None = None
    ):  # fmt: skip
        """turns: agent turns, calls included. until: the case is cut after so many user turns
        (None: never), for training users: what comes after a behaviour's window costs tokens."""
        if until is not None and until < 1:
            raise ValueError(f"until={until} user turns: the least is 1, None never cuts")
        self.goal, self.turns, self.until, self.heard = goal, turns, until, 0
        self.record = record.Record(goal)
        self.taken = 0
        self.counts: collections.Counter[str] = collections.Counter()
        self.stop: Stop | None = None

    def begin(self) -> Feedback:
        brief = Turn("system", goals.brief(self.goal), only="user")
        guide = Turn("system", self.goal.flow.guide, only="agent")
        return Feedback((brief, guide), next="user")

    def spoken(self, text: str) -> bool:
        """Whether the user hears this agent text: False for a call, True for all else."""
        act = acts.parse(text)
        return act is None or act.spoken

    def step(self, text: str) -> Feedback:
        if self.stop is not None:
            raise RuntimeError(f"the case is over ({self.stop}): make a new gym for each episode")
        self.taken += 1
        if not text.strip():
            return self._end(Stop.AGENT_FORMAT)
        act = acts.parse(text)
        self.counts[act.name if act else "unparsed"] += 1
        answer = self.record.act(act) if act else None
        if act is not None and act.name == "close":
            return self._end(Stop.DONE)
        if act is not None and act.name == "hand_over":
            return self._end(Stop.HANDED_OVER)
        turns = () if answer is None else (Turn("tool", answer, only="agent"),)
        if self.taken >= self.turns:
            return self._end(Stop.TURNS, turns)
        return Feedback(turns, next="user" if answer is None else "agent")

    def hear(self, reply: Reply) -> Feedback:
        if self.stop is not None:
            raise RuntimeError(f"the case is over ({self.stop}): make a new gym for each episode")
        self.heard += 1
        stop = _USER_ENDS.get(reply.kind)
        if stop is None and self.until is not None and self.heard >= self.until:
            stop = Stop.TURNS
        return Feedback(next="agent") if stop is None else self._end(stop)

    def success(self) -> float:
        """1.0 or 0.0; 0.0 while the case is open."""
        return float(self.stop in (Stop.DONE, Stop.LEFT) and self.record.right())

    def outcome(self) -> dict[str, Any]:
        """success, turns (of the agent), acts {kind: count}, unparsed, unmet {slot: value wished
        or "unwanted"}, allowed, denied and stop."""
        return {
            "success": self.success(),
            "turns": self.taken,
            "acts": {name: self.counts[name] for name in acts.NAMES if self.counts[name]},
            "unparsed": self.counts["unparsed"],
            "unmet": self.record.unmet(),
            "allowed": self.goal.allowed,
            "denied": self.record.denied,
            "stop": self.stop,
        }

    def _end(self, stop: Stop, turns: tuple[Turn, ...] = ()) -> Feedback:
        self.stop = stop
        return Feedback(turns, reward=self.success(), stop=stop)
