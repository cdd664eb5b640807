"""Policy losses per token: clipped ratio, KL to a reference, entropy, and how they are averaged.

Every array is [...] of one shape ([B, M] in the trainers): one entry a learned token, weight 0 on
padding, forced tokens and observations. Log-probs are natural logarithms under the training
temperature and vocabulary mask. Nothing on a token of weight 0 reaches a value or a gradient.
"""

from __future__ import annotations

from typing import Literal

import jax
import jax.numpy as jnp

from mimesis_jax.losses import fraction
from mimesis_jax.losses.fraction import Fraction

Aggregation = Literal["token", "sequence", "fixed"]
Estimator = Literal["k1", "k2", "k3"]

# Largest |log ratio| that is exponentiated: e^20 is far outside any trust region and still finite.
EXPONENT = 20.0


def share(weight: jax.Array, sequence: jax.Array, count: int) -> jax.Array:
    """[...] 1 / (summed weight of the token's sequence); 0 in a sequence without weight.

    weight: [...]. sequence: [...] int, 0 .. count - 1, the sequence a token belongs to. All tokens
    of a sequence must be in these arrays; a trainer that spreads a sequence over micro-batches
    takes the shares on the host before it packs.
    """
    total = jax.ops.segment_sum(weight.ravel(), sequence.ravel(), num_segments=count)[sequence]
    return jnp.where(total > 0, 1.0 / jnp.where(total > 0, total, 1.0), 0.0)


def aggregate(
    value: jax.Array,
    weight: jax.Array,
    *,
    aggregation: Aggregation = "token",
    share: jax.Array | None = None,
    length: float | None = None,
) -> Fraction:
    """Average per-token values; numerators and denominators add over any split of the tokens.

    value, weight: [...].
    aggregation:
      token: sum(w v) / sum(w), each token counts alike (DAPO, arXiv 2503.14476, eq. 8).
      sequence: mean over sequences of their token means (GRPO, arXiv 2402.03300, eq. 3); sum(w s)
        counts sequences when s is `share`.
      fixed: sum(w v) / (sequences * length) (Dr. GRPO, arXiv 2503.20783): no bias to length.
    share: [...] see `share`; for "sequence" and "fixed". length: tokens > 0, for "fixed".
    Raises ValueError for a missing share or length, or another name.
    """
    if aggregation == "token":
        return fraction.mean(value, weight)
    if aggregation not in ("sequence", "fixed"):
        raise ValueError(f"aggregation {aggregation!r}: use 'token', 'sequence' or 'fixed'")
    if share is None:
        raise ValueError(f"aggregation {aggregation!r} needs share: see policy.share")
    if aggregation == "sequence":
        return fraction.mean(value, weight * share)
    if length is None or length <= 0:
        raise ValueError(f"aggregation 'fixed' with length {length}: give a length above 0")
    return Fraction(fraction.mean(value, weight).numerator, length * jnp.sum(weight * share))


def clipped(
    logp: jax.Array,
    old_logp: jax.Array,
    advantage: jax.Array,
    weight: jax.Array,
    *,
    eps_low: float = 0.2,
    eps_high: float = 0.28,
    dual: float | None = None,
    aggregation: Aggregation = "token",
    share: jax.Array | None = None,
    length: float | None = None,
    sampler_logp: jax.Array | None = None,
    truncate: float | None = None,
) -> tuple[Fraction, dict[str, Fraction]]:
    """Clipped surrogate of PPO (arXiv 1707.06347, eq. 7) with the two bounds of DAPO (2503.14476).

    ratio = exp(logp - old_logp); loss = -min(ratio A, clip(ratio, 1 - eps_low, 1 + eps_high) A).

    logp: [...] current policy, the only argument a gradient flows to. old_logp: [...] the policy
      that the ratio is against. advantage, weight: [...].
    dual: c > 1 bounds the loss of a negative advantage by -c A (dual clip, arXiv 1912.09729).
    aggregation, share, length: see `aggregate`.
    sampler_logp, truncate: truncated importance sampling, for when old_logp is the trainer's and
      the tokens came from a sampler that disagrees: the loss is multiplied by the constant
      min(exp(old_logp - sampler_logp), truncate). Both or neither.
    Returns the loss and, each a token mean: ratio, clip_low and clip_high (share of tokens whose
    gradient the bound cuts), clip_dual, kl (k3 of old against current policy).
    Raises ValueError for dual <= 1 or a lone sampler_logp or truncate.
    """
    if (sampler_logp is None) != (truncate is None):
        raise ValueError("truncated importance sampling needs sampler_logp and truncate: give both")
    if dual is not None and dual <= 1:
        raise ValueError(f"dual {dual} is not above 1: use for example 3.0, or None for no bound")
    advantage = jax.lax.stop_gradient(fraction.clean(advantage, weight))
    old_logp = jax.lax.stop_gradient(fraction.clean(old_logp, weight))
    change = jnp.clip(fraction.clean(logp, weight) - old_logp, -EXPONENT, EXPONENT)
    ratio = jnp.exp(change)
    bounded = jnp.clip(ratio, 1 - eps_low, 1 + eps_high)
    loss = -jnp.minimum(ratio * advantage, bounded * advantage)
    over = jnp.zeros_like(ratio)
    if dual is not None:
        over = (advantage < 0) & (loss > -dual * advantage)
        loss = jnp.where(over, -dual * advantage, loss)
    if sampler_logp is not None and truncate is not None:
        drift = old_logp - jax.lax.stop_gradient(fraction.clean(sampler_logp, weight))
        # The bound comes before the exponential: exp of a large drift would be an infinity.
        loss = loss * jnp.exp(jnp.minimum(drift, jnp.log(truncate)))
    metrics = {
        "ratio": ratio,
        "clip_low": (advantage < 0) & (ratio < 1 - eps_low),
        "clip_high": (advantage > 0) & (ratio > 1 + eps_high),
        "clip_dual": over,
        "kl": ratio - 1 - change,
    }
    metrics = jax.lax.stop_gradient(metrics)
    return (
        aggregate(loss, weight, aggregation=aggregation, share=share, length=length),
        {name: fraction.mean(value.astype(jnp.float32), weight) for name, value in metrics.items()},
    )


def kl(logp: jax.Array, ref_logp: jax.Array, weight: jax.Array, kind: Estimator = "k3") -> Fraction:
    """KL(policy || reference) from the policy's own samples, nats per token.

    With d = logp - ref_logp: k1 = d (unbiased; as a loss its gradient is zero on average, so it is
    for reading), k2 = d^2 / 2, k3 = exp(-d) - 1 + d >= 0 (J. Schulman, Approximating KL
    divergence, 2020). The exponent is clamped to +-20.

    logp, ref_logp, weight: [...]. Raises ValueError for another kind.
    """
    gap = fraction.clean(logp, weight) - jax.lax.stop_gradient(fraction.clean(ref_logp, weight))
    if kind == "k1":
        value = gap
    elif kind == "k2":
        value = 0.5 * gap**2
    elif kind == "k3":
        value = jnp.exp(jnp.clip(-gap, -EXPONENT, EXPONENT)) - 1 + gap
    else:
        raise ValueError(f"KL estimator {kind!r}: use 'k1', 'k2' or 'k3'")
    return fraction.mean(value, weight)


def entropy(entropy: jax.Array, weight: jax.Array) -> Fraction:
    """Mean entropy of the next-token distributions, nats. entropy, weight: [...]."""
    return fraction.mean(entropy, weight)


def disagreement(
    logp: jax.Array, sampler_logp: jax.Array, weight: jax.Array
) -> tuple[Fraction, jax.Array]:
    """How far trainer and sampler are apart on the same tokens: (mean |difference|, largest []).

    logp, sampler_logp, weight: [...]. Largest is 0 where nothing weighs.
    """
    gap = jnp.abs(fraction.clean(logp, weight) - fraction.clean(sampler_logp, weight))
    return fraction.mean(gap, weight), jnp.max(gap, initial=0.0)
