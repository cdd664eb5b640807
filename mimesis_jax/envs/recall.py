"""The recall gym: an asker puts two or three questions to a persona; each right answer pays 1."""

from __future__ import annotations

from typing import Any

from mimesis_jax.desk import acts, recall
from mimesis_jax.types import Feedback, Kind, Reply, Stop, Turn

_USER_ENDS = {
    Kind.STOP: Stop.LEFT,
    Kind.EMPTY: Stop.USER_FORMAT,
    Kind.UNPARSED: Stop.USER_FORMAT,
    Kind.REFUSED: Stop.USER_FORMAT,
    Kind.FAILED: Stop.FAILED,
}


class RecallGym:
    """Single-use; satisfies types.Gym. The agent speaks first and must ask the guide's questions.

    The reward of an agent turn is the user's: 1.0 when its answer to "ask slot" was right by
    recall.right, else 0.0. The episode is over after the last question's answer.
    """

    def __init__(self, goal: recall.Goal):
        self.goal = goal
        self.slot: str | None = None
        self.asked = self.answered = 0
        self.stop: Stop | None = None

    def begin(self) -> Feedback:
        brief = Turn("system", recall.brief(self.goal), only="user")
        guide = Turn("system", recall.guide(self.goal), only="agent")
        return Feedback((brief, guide), next="agent")

    def spoken(self, text: str) -> bool:
        return True

    def step(self, text: str) -> Feedback:
        self._open()
        act = acts.parse(text)
        self.asked += 1
        self.slot = act.target if act is not None and act.name == "ask" else None
        if not text.strip():
            return self._end(Stop.AGENT_FORMAT)
        if act is not None and act.name in ("close", "hand_over"):
            return self._end(Stop.DONE if act.name == "close" else Stop.HANDED_OVER)
        return Feedback(next="user")

    def hear(self, reply: Reply) -> Feedback:
        self._open()
        spoke = reply.kind in (Kind.TEXT, Kind.STOP)
        asked = self.slot is not None and spoke
        paid = float(asked and recall.right(self.goal, self.slot or "", reply.public))
        self.answered += int(paid)
        stop = _USER_ENDS.get(reply.kind)
        if stop is None and self.asked >= len(self.goal.questions):
            stop = Stop.DONE
        self.stop = stop
        return Feedback(next=None if stop else "agent", reward=paid, stop=stop)

    def outcome(self) -> dict[str, Any]:
        """success (share of the goal's questions answered right), turns, questions, stop."""
        return {
            "success": min(1.0, self.answered / len(self.goal.questions)),
            "turns": self.asked,
            "questions": len(self.goal.questions),
            "stop": self.stop,
        }

    def _open(self) -> None:
        if self.stop is not None:
            raise RuntimeError(f"the talk is over ({self.stop}): make a new gym for each episode")

    def _end(self, stop: Stop) -> Feedback:
        self.stop = stop
        return Feedback(stop=stop)
