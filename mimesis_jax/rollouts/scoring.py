"""Scoring: the log-probs of every scored token of many trees, by the training forward."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import numpy as np

from mimesis_jax import types
from mimesis_jax.forest import pack
from mimesis_jax.models import decoder, heads


@functools.partial(jax.jit, static_argnames="spec")
def forward(spec, params, forest: types.Forest, temperature) -> jax.Array:
    """Log-prob [B, M] of each learned token of one micro-batch, at that temperature."""
    hidden = decoder.hidden(spec, params, forest)
    logp, _ = heads.score(
        spec, params, hidden, forest.source, forest.target, temperature=temperature
    )
    return logp


def score(
    spec,
    params,
    trees: Sequence[types.Tree],
    shape: pack.Shape,
    *,
    temperature: float = 1.0,
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """[n] float32: log-prob of each scored token, trees in order, segments in order.

    names: what errors call the trees. Raises ValueError as `pack.pack` does.
    """
    packed = pack.pack(trees, shape, names=names)
    traced = np.float32(temperature)  # one type, so that no temperature recompiles
    values = [forward(spec, params, forest, traced) for forest in packed.forests]
    return pack.gather([np.asarray(v) for v in jax.device_get(values)], packed)
