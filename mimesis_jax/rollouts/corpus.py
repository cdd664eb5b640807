"""Played dialogues as training data: rule-based chairs, through the same loop as rollouts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mimesis_jax import types
from mimesis_jax.chat import render
from mimesis_jax.rollouts import play


def episodes(
    make: Callable[[Any], types.Gym],
    goals: Sequence[Any],
    *,
    agent: types.Respond,
    user: types.Respond,
    stream: int,
) -> list[types.Episode]:
    """One episode a goal, in order. Episodes that failed are left out (rule-based chairs have none
    but a format that a table broke would show here): a ValueError if more than 1 % did."""
    played = play.play(
        play.jobs(make, goals, copies=1, stream=stream), agent=agent, user=user, at_once=256
    )
    good = [e for e in played if e.stop not in (types.Stop.FAILED, types.Stop.USER_FORMAT)]
    if len(good) < 0.99 * len(played):
        bad = next(e for e in played if e not in good)
        raise ValueError(
            f"{len(played) - len(good)} of {len(played)} dialogues failed, the first with "
            f"{bad.stop} ({bad.records.get('cause')}): mend the world's tables"
        )
    return good


def user_tree(episode: types.Episode, renderer: render.Renderer, *, thinking) -> types.Tree:
    """The user chair's supervised tree: thoughts on branches ("sample"), or public text only."""
    return renderer.tree(
        episode.dialogue, "user", thinking=thinking, history="drop",
        left=episode.stop is types.Stop.LEFT,
    )  # fmt: skip


def agent_tree(
    episode: types.Episode,
    renderer: render.Renderer,
    notes: Mapping[int, str | None] | None = None,
) -> types.Tree:
    """The agent chair's supervised tree; a noted turn is learned on a branch after its note."""
    return renderer.tree(
        episode.dialogue, "agent", thinking="none", notes=notes, note_kind="branch",
        left=episode.stop is types.Stop.LEFT,
    )  # fmt: skip


def texts(episodes: Sequence[types.Episode]) -> list[str]:
    """All texts of some episodes, public and private, for a tokenizer to be fitted on."""
    out = []
    for episode in episodes:
        for turn in episode.dialogue:
            out.append(turn.public)
            if turn.private:
                out.append(turn.private)
    return out


def weighed(tree: types.Tree, ids: np.ndarray, weight: float, rest: float = 1.0) -> types.Tree:
    """The tree with the loss weight of copies times `weight` and of all other tokens times `rest`.

    A copy is a scored token whose id is one of `ids` and stands earlier on its path: what can be
    looked up. With rest 0 the others are not scored at all.
    """
    listed = set(int(i) for i in ids)
    seen: list[frozenset[int]] = []  # listed ids on each segment's path, its own included
    out = []
    for segment in tree:
        before = set(seen[segment.parent]) if segment.parent >= 0 else set()
        factor = np.full(len(segment.ids), np.float32(rest))
        for place in np.flatnonzero(np.isin(segment.ids, ids)):
            token = int(segment.ids[place])
            if token in before:
                factor[place] = weight
            before.add(token)
        seen.append(frozenset(before & listed))
        scored = segment.scored & (factor > 0)
        out.append(dataclasses.replace(segment, scored=scored, weight=segment.weight * factor))
    return tuple(out)
