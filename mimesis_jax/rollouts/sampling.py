"""Sampling one token a slot: temperature, truncation, bans; each request has its own random stream.

Everything a request may choose is a traced array, so that no choice recompiles anything.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

NO_BAN = -1

Array = jax.Array | np.ndarray  # the engine fills numpy arrays in; a jitted program traces them


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Knobs:
    """Per-slot sampling knobs, arrays over S slots.

    temperature: [S] float32 > 0; log-probs are of the tempered distribution. 0 means greedy, with
      log-probs at temperature 1.
    top_k: [S] int32, 0 = off. top_p: [S] float32, 1 = off. min_p: [S] float32, 0 = off.
    limit: [S] int32; most tokens a reply may have.
    ban: [S] int32; an id that may not be sampled before `ban_until` tokens (NO_BAN: none).
    ban_until: [S] int32.
    stream: [S, 4] int32; (stream, goal, copy, turn), the name of the request's random stream.
    """

    temperature: Array
    top_k: Array
    top_p: Array
    min_p: Array
    limit: Array
    ban: Array
    ban_until: Array
    stream: Array


def idle(slots: int) -> Knobs:
    """Knobs of slots that do nothing, as numpy arrays to be filled in."""
    return Knobs(
        temperature=np.ones(slots, np.float32),
        top_k=np.zeros(slots, np.int32),
        top_p=np.ones(slots, np.float32),
        min_p=np.zeros(slots, np.float32),
        limit=np.zeros(slots, np.int32),
        ban=np.full(slots, NO_BAN, np.int32),
        ban_until=np.zeros(slots, np.int32),
        stream=np.zeros((slots, 4), np.int32),
    )


def streams(seed: Array, stream: Array) -> jax.Array:
    """One key a slot, [S], from the run's seed and the request's name [S, 4] alone."""

    def fold(name):
        key = jax.random.key(seed)
        for part in range(4):
            key = jax.random.fold_in(key, name[part])
        return key

    return jax.vmap(fold)(stream)


def _truncate(logp: jax.Array, knobs: Knobs) -> jax.Array:
    """Log-probs [S, V] with what top-k, top-p and min-p leave out at -inf (not renormalised)."""
    ordered = jnp.sort(logp, axis=-1, descending=True)
    vocab = logp.shape[-1]
    k = jnp.where(knobs.top_k > 0, jnp.minimum(knobs.top_k, vocab), vocab)
    kth = jnp.take_along_axis(ordered, (k - 1)[:, None], axis=-1)
    mass_before = jnp.cumsum(jnp.exp(ordered), axis=-1) - jnp.exp(ordered)
    kept = mass_before < knobs.top_p[:, None]  # the token that crosses the mass is kept
    nucleus = jnp.min(jnp.where(kept, ordered, jnp.inf), axis=-1, keepdims=True)
    # Off is off: rounding may bring the mass to 1 early, and a request must not depend on company.
    nucleus = jnp.where(knobs.top_p[:, None] < 1, nucleus, -jnp.inf)
    floor = ordered[:, :1] + jnp.log(jnp.maximum(knobs.min_p, 1e-30))[:, None]
    floor = jnp.where(knobs.min_p[:, None] > 0, floor, -jnp.inf)
    lowest = jnp.maximum(jnp.maximum(kth, nucleus), floor)
    return jnp.where(logp >= lowest, logp, -jnp.inf)


def draw(logits: jax.Array, keys: jax.Array, count: jax.Array, knobs: Knobs):
    """Samples one token a slot.

    Args:
      logits: [S, V] float32, rows of the vocabulary that do not exist at -inf.
      keys: [S] keys from `streams`.
      count: [S] int32, tokens this reply has so far (position in its random stream).
      knobs: Knobs.

    Returns:
      token [S] int32; logp [S], its log-prob under the training distribution (temperature and
      vocabulary mask only); behaviour [S], under the distribution it was drawn from (truncation
      and bans included); free [S] bool, False where a ban moved the distribution (by more than
      1e-4 of probability), so that the token must weigh nothing in a loss.
    """
    greedy = knobs.temperature <= 0
    scale = jnp.where(greedy, 1.0, knobs.temperature)[:, None]
    logp = jax.nn.log_softmax(logits / scale, axis=-1)
    slots = jnp.arange(logp.shape[0])

    banned = (knobs.ban != NO_BAN) & (count < knobs.ban_until)
    column = jnp.maximum(knobs.ban, 0)
    lost = jnp.where(banned, jnp.exp(logp[slots, column]), 0.0)
    allowed = logp.at[slots, column].set(jnp.where(banned, -jnp.inf, logp[slots, column]))

    truncating = jnp.any((knobs.top_k > 0) | (knobs.top_p < 1) | (knobs.min_p > 0))
    allowed = jax.lax.cond(truncating, lambda x: _truncate(x, knobs), lambda x: x, allowed)

    # Inverse transform: one uniform number a slot instead of V Gumbel draws.
    mass = jnp.cumsum(jnp.exp(allowed), axis=-1)
    uniform = jax.vmap(lambda key, i: jax.random.uniform(jax.random.fold_in(key, i)))(keys, count)
    # `<=` skips leading tokens of no mass; clipping keeps rounding at the top inside the support.
    point = jnp.minimum(uniform * mass[:, -1], jnp.nextafter(mass[:, -1], 0.0))
    sampled = jnp.sum(mass <= point[:, None], axis=-1)
    token = jnp.where(greedy, jnp.argmax(allowed, axis=-1), sampled).astype(jnp.int32)
    chosen = logp[slots, token]
    behaviour = allowed[slots, token] - jnp.log(mass[:, -1])
    behaviour = jnp.where(greedy, 0.0, behaviour)
    return token, chosen, behaviour, lost < 1e-4
