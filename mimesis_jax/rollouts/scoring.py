"""Scoring: the log-probs of every scored token of many trees, by the training forward."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import numpy as np

from mimesis_jax import types
from mimesis_jax.forest import pack, tree
from mimesis_jax.models import decoder, heads


@functools.partial(jax.jit, static_argnames=("spec", "compute"))
def forward(spec, params, forest: types.Forest, temperature,
            compute: decoder.Compute = decoder.ALONE) -> jax.Array:  # fmt: skip
    """Log-prob [B, M] of each learned token of one micro-batch, at that temperature.

    Over several devices every one of them, and every process, gets the whole of it.
    """
    hidden = decoder.hidden(spec, params, forest, layout=compute.layout)
    logp, _ = heads.score(
        spec, params, hidden, forest.source, forest.target, temperature=temperature,
        shard=heads.shard(compute.layout),
    )  # fmt: skip
    return compute.whole(logp)


def score(
    spec,
    params,
    trees: Sequence[types.Tree],
    shape: pack.Shape,
    *,
    temperature: float = 1.0,
    names: Sequence[str] | None = None,
    compute: decoder.Compute = decoder.ALONE,
) -> np.ndarray:
    """[n] float32: log-prob of each scored token, trees in order, segments in order.

    names: what errors call the trees. Raises ValueError as `pack.pack` does.
    """
    packed = pack.pack(trees, shape, names=names)
    traced = np.float32(temperature)  # one type, so that no temperature recompiles
    values = [
        forward(spec, params, compute.place(forest), traced, compute) for forest in packed.forests
    ]
    return pack.gather([np.asarray(v) for v in jax.device_get(values)], packed)


def disagreement(trees: Sequence[types.Tree], scored: np.ndarray) -> dict[str, float]:
    """How far the sampler's log-probs are from the trainer's, over tokens that weigh something.

    trees: with old_logp as sampled. scored: [n], `score` of the same trees by the weights that
    sampled them, at the same temperature. Returns sampler_gap_max and sampler_gap_mean in nats (0
    without a token): past 1e-4 in fp32 the two do not compute the same thing.
    """
    gap = np.abs(tree.column(trees, "old_logp") - np.asarray(scored))
    gap = gap[tree.column(trees, "weight") > 0]
    if not gap.size:
        return {"sampler_gap_max": 0.0, "sampler_gap_mean": 0.0}
    return {"sampler_gap_max": float(gap.max()), "sampler_gap_mean": float(gap.mean())}
