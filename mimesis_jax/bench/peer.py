"""The peer of the rollout and step benches: google-tunix with our weights, fed by ids."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from typing import Any

import numpy as np

from mimesis_jax.bench import measure
from mimesis_jax.models import spec as specs

VERSION = "0.1.7"
PAD, END = 0, 1  # ids that no prompt has: the sampler tells padding by its id
NEVER = -1  # an end that no token is: every reply is as long as it was asked for


class Ids:
    """A tokenizer for those who want one: a text is its ids, or has them written out."""

    def encode(self, ids: Sequence[int] | str, **_: Any) -> list[int]:
        return [int(i) for i in (ids.split() if isinstance(ids, str) else ids)]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return ""

    def bos_id(self) -> int:
        return 0  # 0 means that none is put before a prompt

    def eos_id(self) -> int:
        return END

    def pad_id(self) -> int:
        return PAD


def model(spec: specs.Spec, params: Any) -> Any:
    """The peer's Qwen3 model with these weights (nothing but full layers).

    Raises BenchError when the peer is not installed, or is another version.
    """
    try:
        from tunix.models.qwen3 import model as qwen3
    except ImportError as error:
        raise measure.BenchError(
            f"the peer is not installed ({error}): pip install 'mimesis_jax[peers]' in an "
            "environment of its own, it asks for older versions of packages that we use"
        ) from None
    found = importlib.metadata.version("google-tunix")
    if found != VERSION:
        raise measure.BenchError(f"google-tunix {found} is installed, this bench is of {VERSION}")
    made = qwen3.Qwen3(
        qwen3.ModelConfig(
            num_layers=spec.layers, vocab_size=spec.vocab, embed_dim=spec.width,
            hidden_dim=spec.mlp, num_heads=spec.heads, head_dim=spec.head_dim,
            num_kv_heads=spec.kv_heads, rope_theta=int(spec.rope_theta), norm_eps=spec.eps,
            use_tied_embedding=spec.tied,
        ),
        rngs=qwen3.nnx.Rngs(0),
    )  # fmt: skip
    _fill(made, params)
    return made


def sampler(spec: specs.Spec, params: Any, length: int) -> Any:
    """The peer's sampler with these weights and a cache of `length`. Raises as `model` does."""
    held = model(spec, params)
    from tunix.generate import sampler as samplers

    config = samplers.CacheConfig(length, spec.layers, spec.kv_heads, spec.head_dim)
    return samplers.Sampler(held, Ids(), config)


def _fill(model: Any, params: Any) -> None:
    """Puts our parameters into the peer's model, in place."""
    layers = params["periods"]["layer0"]
    model.embedder.input_embedding.value = params["embed"]
    model.final_norm.w.value = params["norm"]
    for i, layer in enumerate(model.layers):
        mixer, mlp = layers["mixer"], layers["mlp"]
        for ours, theirs in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("out", "o_proj"),
                             ("q_norm", "q_norm"), ("k_norm", "k_norm")):  # fmt: skip
            held = getattr(layer.attn, theirs).w
            held.value = mixer[ours][i].reshape(held.value.shape)
        for name in ("gate", "up", "down"):
            getattr(layer.mlp, f"{name}_proj").kernel.value = mlp[name][i]
        layer.input_layernorm.w.value = layers["norm_in"][i]
        layer.post_attention_layernorm.w.value = layers["norm_post"][i]


def sample(
    held: Any, prompts: Sequence[Sequence[int]], steps: int, *, temperature: float, width: int
) -> list[np.ndarray]:
    """`steps` ids after each prompt (padded on the left to `width`), as the peer does it.

    temperature 0: greedy; otherwise its top-p mode at top_p = 1, which neither sorts nor cuts.
    """
    out = held(
        list(prompts), steps, max_prompt_length=width, temperature=temperature,
        top_p=None if temperature == 0 else 1.0, seed=0, eos_tokens=[NEVER],
    )  # fmt: skip
    return [np.asarray(ids) for ids in out.tokens]
