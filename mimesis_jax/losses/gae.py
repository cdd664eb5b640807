"""Generalised advantage estimation over an agent's actions, with tokens only as carriers.

Host side, numpy. An action is one agent turn; observations in between have tokens but no value,
no advantage and no share in the discount. gamma and lambda count actions, not tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def actions(
    rewards: Sequence[float] | np.ndarray,
    values: Sequence[float] | np.ndarray,
    *,
    gamma: float = 1.0,
    lam: float = 0.95,
    bootstrap: float = 0.0,
) -> np.ndarray:
    """[T] A_t = delta_t + gamma lam A_t+1, delta_t = r_t + gamma V_t+1 - V_t (arXiv 1506.02438).

    rewards, values: [T], one an action; V_t is the critic's value where action t begins.
    bootstrap: value after the last action: 0 when the episode ended, the critic's when it was cut
      by length.
    Raises ValueError where the lengths differ or gamma or lam is outside [0, 1].
    """
    r, v = np.asarray(rewards, np.float64), np.asarray(values, np.float64)
    if r.shape != v.shape or r.ndim != 1:
        raise ValueError(f"rewards {r.shape} and values {v.shape}: give one of each an action")
    for name, knob in (("gamma", gamma), ("lam", lam)):
        if not 0 <= knob <= 1:
            raise ValueError(f"{name} {knob} is outside [0, 1]")
    delta = r + gamma * np.append(v[1:], bootstrap)[: len(r)] - v
    out, carried = np.zeros_like(delta), 0.0
    for t in range(len(delta) - 1, -1, -1):
        out[t] = carried = delta[t] + gamma * lam * carried
    return out


def starts(action: np.ndarray) -> np.ndarray:
    """[T] index of each action's first token.

    action: [n] int, the action a token belongs to, -1 on observations; actions 0 .. T - 1 appear
    in order, each in one run of its own (observations may lie inside it). The critic is read from
    the hidden state that predicts that token. Raises ValueError where an action has no token or
    the order is broken.
    """
    action = np.asarray(action)
    held = action[action >= 0]
    if held.size and (held[0] != 0 or not np.isin(np.diff(held), (0, 1)).all()):
        raise ValueError(
            f"actions {held.tolist()} are not 0, 1, 2, ... in order: number agent turns that hold"
            " tokens from 0"
        )
    return np.array([np.argmax(action == t) for t in range(held.max(initial=-1) + 1)], np.int64)


def spread(advantage: np.ndarray, action: np.ndarray) -> np.ndarray:
    """[n] every token of action t gets A_t; observations (-1) get 0.

    advantage: [T]. action: [n] int, see `starts`. Raises ValueError for an action without one.
    """
    action = np.asarray(action)
    if action.max(initial=-1) >= len(advantage):
        raise ValueError(
            f"action {action.max()} of a token has none of {len(advantage)} advantages"
        )
    return np.append(np.asarray(advantage, np.float64), 0.0)[action]


def whiten(advantages: Sequence[np.ndarray], *, floor: float = 1e-8) -> list[np.ndarray]:
    """Centre and scale over all turns of the batch: each turn counts once, however long it is.

    advantages: per episode [T]. ddof 0. Fewer than two turns are only centred.
    """
    if not advantages:
        return []
    every = np.concatenate([np.asarray(a, np.float64) for a in advantages])
    if every.size == 0:
        return [np.asarray(a, np.float64) for a in advantages]
    scale = every.std() + floor if every.size > 1 else 1.0
    return [(np.asarray(a, np.float64) - every.mean()) / scale for a in advantages]
