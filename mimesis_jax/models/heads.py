"""The output head: logits, and log-probs with entropy of chosen tokens in chunks."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs

CELLS = 1 << 24  # logits held at once by `score`, 64 MiB in fp32


def _matrix(params: decoder.Params) -> jax.Array:
    return params["head"] if "head" in params else params["embed"]


def _real(spec: specs.Spec, logits: jax.Array, fill: float) -> jax.Array:
    """Logits [..., V] with the rows of the embedding that no id uses set to fill."""
    if spec.vocab_real == spec.vocab:
        return logits
    return jnp.where(jnp.arange(spec.vocab) < spec.vocab_real, logits, fill)


def logits(spec: specs.Spec, params: decoder.Params, h: jax.Array) -> jax.Array:
    """Logits [..., V] fp32 of h [..., D]; ids that do not exist are at -inf."""
    flat = h.reshape(-1, h.shape[-1])
    out = jnp.matmul(flat, _matrix(params).astype(h.dtype).T, preferred_element_type=jnp.float32)
    return _real(spec, out, -jnp.inf).reshape(*h.shape[:-1], spec.vocab)


def _score(spec: specs.Spec, matrix, h, target, temperature):
    """logp, entropy [n] of target [n] under h [n, D]."""
    out = jnp.matmul(h, matrix.astype(h.dtype).T, preferred_element_type=jnp.float32)
    # Finite, so that 0 * fill is 0 in the entropy and no gradient becomes NaN.
    out = _real(spec, out / temperature, -1e30)
    norm = jax.nn.logsumexp(out, axis=-1)
    # A comparison, not a gather: its gradient is no scatter, and it shards over the vocabulary.
    own = jnp.sum(jnp.where(jnp.arange(spec.vocab) == target[:, None], out, 0.0), axis=-1)
    # Centred first: entropies of peaked distributions would drown in the size of the logits.
    centred = out - norm[:, None]
    return own - norm, -jnp.sum(jnp.exp(centred) * centred, axis=-1)


def score(
    spec: specs.Spec,
    params: decoder.Params,
    hidden: jax.Array,
    source: jax.Array,
    target: jax.Array,
    *,
    temperature: float | jax.Array = 1.0,
) -> tuple[jax.Array, jax.Array]:
    """Log-prob of each target and the entropy of its distribution, in nats: two [B, M] fp32.

    hidden: [B, T, D]; source: [B, M] int32, the row's index of the hidden state that predicts;
    target: [B, M] int32. Logits are divided by temperature (> 0). Ids that do not exist have no
    mass. When [B*M, V] logits are more than CELLS they are made, and in the gradient made again,
    some tokens at a time.
    """
    rows = jnp.take_along_axis(hidden, source[..., None], axis=1)
    count = source.size
    flat, goal = rows.reshape(count, -1), target.reshape(count)
    matrix = _matrix(params)
    size = max(1, CELLS // spec.vocab)
    if count <= size:
        logp, entropy = _score(spec, matrix, flat, goal, temperature)
        return logp.reshape(source.shape), entropy.reshape(source.shape)
    parts = -(-count // size)
    size = -(-count // parts)
    pad = parts * size - count
    flat = jnp.pad(flat, ((0, pad), (0, 0))).reshape(parts, size, -1)
    goal = jnp.pad(goal, (0, pad)).reshape(parts, size)
    one = jax.checkpoint(lambda h, t: _score(spec, matrix, h, t, temperature), prevent_cse=False)
    logp, entropy = jax.lax.map(lambda xs: one(*xs), (flat, goal))
    shape = lambda out: out.reshape(-1)[:count].reshape(source.shape)
    return shape(logp), shape(entropy)
