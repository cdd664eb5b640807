"""One finished episode as a line of `episodes.jsonl`: what was said and what was thought, apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from mimesis_jax import types


class Coached(TypedDict):
    """What the coach said to one turn and how much each of its tokens listened.

    turn: index in the dialogue. note: the coaching note.
    tokens: [n] texts of the turn's learned tokens. gate: [n] CSD gate of each, in (0, 1).
    """

    turn: int
    note: str
    tokens: Sequence[str]
    gate: Sequence[float]


def record(
    episode: types.Episode,
    *,
    phase: str,
    step: int,
    user: str,
    agent: str,
    csd: Sequence[Coached] = (),
) -> dict[str, Any]:
    """The episode as json values. `turns` is what was said, `private` what was thought beside it.

    phase, step: when it was played. user, agent: names of who sat in the two chairs.
    csd: per coached turn, see Coached.
    Raises ValueError for a turn that does not exist or a gate per token that is missing.
    """
    for coached in csd:
        if not 0 <= coached["turn"] < len(episode.dialogue):
            limit = len(episode.dialogue)
            raise ValueError(
                f"coached turn {coached['turn']} is not in a dialogue of {limit} turns"
            )
        if len(coached["tokens"]) != len(coached["gate"]):
            raise ValueError(
                f"turn {coached['turn']} has {len(coached['tokens'])} tokens "
                f"and {len(coached['gate'])} gates: give one gate a token"
            )
    return {
        "phase": phase,
        "step": step,
        "goal": episode.key.goal,
        "copy": episode.key.copy,
        "user": user,
        "agent": agent,
        "turns": [
            {"author": turn.author, "public": turn.public, "only": turn.only}
            for turn in episode.dialogue
        ],
        "private": [turn.private for turn in episode.dialogue],
        "rewards": list(episode.rewards),
        "success": episode.outcome.get("success"),
        "stop": str(episode.stop),
        "csd": [dict(coached) for coached in csd],
    }
