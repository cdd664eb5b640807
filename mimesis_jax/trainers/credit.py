"""From rewards of turns to advantages of tokens, written onto the trees that will be trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np

from mimesis_jax import types
from mimesis_jax.losses import advantage


@dataclasses.dataclass(frozen=True)
class Config:
    """Knobs of losses.advantage; with terminal reward only: score "sum", credit "equalized"."""

    score: advantage.Score = "sum"
    credit: advantage.Credit = "equalized"
    form: advantage.Form = "standard"
    gamma: float = 1.0
    floor: float = 1e-3
    drop_flat: bool = True


def assign(
    trees: Sequence[types.Tree],
    rewards: Sequence[advantage.Rewards],
    groups: Sequence[Hashable],
    config: Config,
) -> tuple[list[types.Tree], np.ndarray, dict[str, float]]:
    """Writes advantages onto the scored segments of each episode's tree.

    trees: one an episode, from one chair; each scored segment belongs to the turn `segment.turn`.
    rewards: per episode one reward for each of those turns, in order (NaN masks the episode).
    groups: the goal of each episode.
    Returns the trees (masked episodes with weight 0), z [episodes] and metrics.
    Raises ValueError where an episode's rewards and sampled turns do not match.
    """
    z, mask, counts = advantage.group(
        rewards, groups, kind=config.score, gamma=config.gamma, floor=config.floor,
        form=config.form, drop_flat=config.drop_flat,
    )  # fmt: skip
    raised = advantage.shift(rewards, groups)
    credits, tokens, turns = [], [], []
    for i, (tree, r) in enumerate(zip(trees, raised, strict=True)):
        own: dict[int, int] = {}
        for segment in tree:
            if segment.scored.any():
                own[segment.turn] = own.get(segment.turn, 0) + int(np.sum(segment.weight > 0))
        order = sorted(own)
        if mask[i] and len(order) != len(r):
            raise ValueError(
                f"episode {i} has {len(r)} rewards but {len(order)} sampled turns: give one a turn"
            )
        turns.append(order)
        tokens.append([own[t] for t in order] if mask[i] else [])
        credits.append(
            advantage.credits(r, kind=config.credit, gamma=config.gamma) if mask[i] else np.zeros(0)
        )
    per_turn = advantage.per_turn(z, credits, tokens)
    out = []
    for i, tree in enumerate(trees):
        value = dict(zip(turns[i], per_turn[i], strict=True)) if mask[i] else {}
        out.append(tuple(_credited(segment, value.get(segment.turn)) for segment in tree))
    metrics = {
        "groups_without_variance": (counts.flat_groups + counts.single_groups)
        / max(1, counts.groups),
        "missing_rewards": counts.missing / max(1, counts.episodes),
    }
    return out, np.where(mask, z, 0.0), metrics


def _credited(segment: types.Segment, value: float | None) -> types.Segment:
    if not segment.scored.any():
        return segment
    if value is None:
        return dataclasses.replace(segment, weight=np.zeros_like(segment.weight))
    advantages = np.where(segment.weight > 0, np.float32(value), np.float32(0))
    return dataclasses.replace(segment, advantage=advantages.astype(np.float32))
