"""Coached On-Policy Self-Distillation: the agent's own tokens, pulled where a note agrees.

The same sampled tokens are scored twice by the same weights, without the note (student) and after
it (teacher). The gate says how much likelier the note made a token; the loss is a likelihood
weighted by it. Nothing is ever pushed down (MIMESIS, arXiv 2610.09484).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mimesis_jax.losses import fraction
from mimesis_jax.losses.fraction import Fraction


def gate(
    teacher_logp: jax.Array, student_logp: jax.Array, *, beta: float | jax.Array = 5.0
) -> jax.Array:
    """[...] g = stop_gradient(sigmoid(beta (l_T - l_S))), in [0, 1]; 1/2 without a note.

    teacher_logp, student_logp: [...] nats, both of the scoring forward, one temperature.
    beta: [] steepness per nat; may be traced.
    """
    return jax.lax.stop_gradient(jax.nn.sigmoid(beta * (teacher_logp - student_logp)))


def loss(logp: jax.Array, gate: jax.Array, coached: jax.Array) -> Fraction:
    """L_CSD = - sum_t m_t g_t l_S,t over sum_t m_t.

    logp: [...] current policy without the note; the gradient flows here only. gate: [...] of the
    scoring forward, fixed for every update on the batch. coached: [...] m_t >= 0, 1 on the learned
    tokens of a turn that has a note, else 0. Without a coached token value and gradient are 0.
    """
    pull = jax.lax.stop_gradient(fraction.clean(gate, coached))
    return fraction.mean(-pull * fraction.clean(logp, coached), coached)


def metrics(gate: jax.Array, coached: jax.Array) -> dict[str, Fraction]:
    """Means over coached tokens of g and of g > 1/2 (`above_half`). gate, coached: [...]."""
    above = (gate > 0.5).astype(jnp.float32)
    return {"gate": fraction.mean(gate, coached), "above_half": fraction.mean(above, coached)}


def above_half(gate: jax.Array) -> jax.Array:
    """[...] max(0, 2g - 1): the variant gate that pulls only what the note made likelier. [ours]"""
    return jnp.maximum(0.0, 2.0 * gate - 1.0)


def signed(gate: jax.Array, coached: jax.Array) -> jax.Array:
    """[...] g minus its mean over coached tokens, 0 elsewhere: the signed variant. [ours]

    It is an advantage for `policy.clipped`, not a gate for `loss`; in trials it was unstable.
    """
    centre = fraction.mean(gate, coached).value()
    return jnp.where(coached != 0, jax.lax.stop_gradient(gate - centre), 0.0)
