"""The config.json of a checkpoint that was never on the hub, from its Spec."""

from __future__ import annotations

from typing import Any

from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import hub_config, tensors


def name_of(spec: specs.Spec) -> str:
    """The model_type whose switches a Spec has. Raises Refused when no family has them all."""
    for name in ("qwen3_5_text", "qwen3", "qwen2", "llama"):
        family = hub_config.FAMILIES[name]
        if all(getattr(spec, field) == value for field, value in family.switches.items()):
            break
    else:
        chosen = {field: getattr(spec, field) for field in hub_config.QWEN35.switches}
        raise tensors.Refused(f"no family of the hub has the switches {chosen}: keep our format")
    plain = name != "qwen3_5_text"
    if plain and ("linear" in spec.period or spec.rotary_dim != spec.head_dim):
        raise tensors.Refused(f"{name} of the hub has full attention and turns whole heads only")
    if name in ("qwen2", "llama") and spec.head_dim * spec.heads != spec.width:
        raise tensors.Refused(
            f"{name} of the hub has heads of width / heads: "
            f"{spec.width} / {spec.heads} is not {spec.head_dim}"
        )
    return name


def config_of(spec: specs.Spec, *, max_length: int = 32768) -> dict[str, Any]:
    """The config.json of a text-only checkpoint with this Spec; its dtype is spec.param_dtype.

    max_length: tokens that the checkpoint is meant for (nothing in the parameters depends on it).
    Raises Refused when no family of the hub is such a decoder.
    """
    name = name_of(spec)
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": spec.rope_theta}
    if spec.rope_scaling is not None:
        rope["rope_type"] = "llama3"
        rope |= {
            theirs: getattr(spec.rope_scaling, ours) for theirs, ours in hub_config.LLAMA3.items()
        }
    config = {
        "architectures": [hub_config.FAMILIES[name].architecture],
        "model_type": name,
        "vocab_size": spec.vocab,
        "hidden_size": spec.width,
        "intermediate_size": spec.mlp,
        "num_hidden_layers": spec.layers,
        "num_attention_heads": spec.heads,
        "num_key_value_heads": spec.kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": spec.eps,
        "rope_parameters": rope,
        "tie_word_embeddings": spec.tied,
        "max_position_embeddings": max_length,
        "initializer_range": spec.init_std,
        "dtype": spec.param_dtype,
    }
    if name == "qwen3_5_text":
        kinds = {"linear": "linear_attention", "full": "full_attention"}
        rope["partial_rotary_factor"] = spec.rotary_dim / spec.head_dim
        config |= {
            "layer_types": [kinds[kind] for kind in spec.period] * spec.periods,
            "linear_conv_kernel_dim": specs.KERNEL,
            "linear_num_key_heads": spec.linear_key_heads,
            "linear_num_value_heads": spec.linear_value_heads,
            "linear_key_head_dim": spec.linear_key_dim,
            "linear_value_head_dim": spec.linear_value_dim,
        }
    return config
