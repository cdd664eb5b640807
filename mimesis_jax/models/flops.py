"""Floating-point operations of a model, counted from its sizes: what a step has to do at least.

Counted are the products: with weights (2 a weight and token), of queries with keys and of weights
with values (4 H d a pair that the mask allows, so a causal line counts half of its square), the
gated delta rule (8 Hv Dk Dv a token, the recurrence's own; its chunked form does more) and the
output head (2 D V a token that is predicted). Not counted: the look-up of embeddings, norms,
activations, RoPE, the softmax, the four taps of the convolution. A backward pass is twice the
forward. Nothing that is computed twice, as by rematerialisation, and no padding counts: share of a
peak ("model FLOPs utilisation", Chowdhery et al. 2022, PaLM, appendix B) is about what was asked
for, not about what was done.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from mimesis_jax.models import spec as specs


@dataclasses.dataclass(frozen=True)
class Count:
    """Forward operations by part, over all layers.

    projections: of attention and delta layers, in and out. mlp: of both products in, and out.
    attention: pairs. delta: the gated delta rule. head: logits.
    """

    projections: int
    mlp: int
    attention: int
    delta: int
    head: int

    @property
    def total(self) -> int:
        return sum(dataclasses.astuple(self))


def _full(spec: specs.Spec) -> int:
    """Weights of the products of one attention layer; the output's gate is part of q."""
    halves = 2 if spec.attn_output_gate else 1
    return spec.width * spec.head_dim * (spec.heads * (halves + 1) + 2 * spec.kv_heads)


def _linear(spec: specs.Spec) -> int:
    """Weights of the products of one delta layer: q, k; v, z, out; a, b."""
    keys = spec.linear_key_heads * spec.linear_key_dim
    values = spec.linear_value_heads * spec.linear_value_dim
    return spec.width * (2 * keys + 3 * values + 2 * spec.linear_value_heads)


def count(spec: specs.Spec, *, tokens: int, pairs: int, learned: int) -> Count:
    """A forward pass over `tokens` tokens.

    pairs: (query, key) pairs that the mask of one attention layer allows, a token with itself
    included, over all rows; see `line` and `pairs`. learned: tokens whose logits are made.
    Raises ValueError for a negative number.
    """
    for name, value in (("tokens", tokens), ("pairs", pairs), ("learned", learned)):
        if value < 0:
            raise ValueError(f"{name} {value}: there are none or some, use 0 or more")
    full = spec.periods * spec.period.count("full")
    linear = spec.layers - full
    core = spec.linear_value_heads * spec.linear_key_dim * spec.linear_value_dim
    return Count(
        projections=2 * int(tokens) * (full * _full(spec) + linear * _linear(spec)),
        mlp=6 * int(tokens) * spec.layers * spec.width * spec.mlp,
        attention=4 * int(pairs) * full * spec.heads * spec.head_dim,
        delta=8 * int(tokens) * linear * core,
        head=2 * int(learned) * spec.width * spec.vocab,
    )


def forward(spec: specs.Spec, *, tokens: int, pairs: int, learned: int) -> int:
    """Operations of a forward pass: the total of `count`."""
    return count(spec, tokens=tokens, pairs=pairs, learned=learned).total


def train(spec: specs.Spec, *, tokens: int, pairs: int, learned: int) -> int:
    """Operations of a forward and a backward pass: three times the forward."""
    return 3 * forward(spec, tokens=tokens, pairs=pairs, learned=learned)


def decode(spec: specs.Spec, *, context: int) -> int:
    """Operations of one decoded token that sees `context` tokens, itself included."""
    return forward(spec, tokens=1, pairs=context, learned=1)


def line(tokens: int, after: int = 0) -> int:
    """Pairs of `tokens` causal tokens behind `after` earlier ones: each sees those and its own."""
    return tokens * after + tokens * (tokens + 1) // 2


def pairs(valid: np.ndarray, last: np.ndarray) -> int:
    """Pairs that a forest's mask allows: t sees s when s <= t < last[s] and both are valid.

    valid [B, T] bool, last [B, T] int32, both as in types.Forest.
    """
    valid = np.asarray(valid, bool)
    before = np.concatenate([np.zeros((len(valid), 1), np.int64), valid.cumsum(axis=1)], axis=1)
    ends = np.take_along_axis(before, np.asarray(last, np.int64), axis=1)
    return int(((ends - before[:, :-1]) * valid).sum())
