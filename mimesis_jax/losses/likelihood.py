"""Negative log-likelihood of learned tokens: what both chairs are first trained with."""

from __future__ import annotations

import jax

from mimesis_jax.losses import fraction


def nll(logp: jax.Array, weight: jax.Array) -> fraction.Fraction:
    """- sum(weight * logp) over sum(weight), in nats per token.

    logp: [...] log-prob of each token. weight: [...] loss weight >= 0, 0 on what is not learned;
      a NaN or an infinity there reaches neither the value nor the gradient.
    """
    return fraction.mean(-fraction.clean(logp, weight), weight)
