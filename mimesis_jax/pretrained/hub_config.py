"""A Spec from a Hugging Face config.json.

What would change the mathematics and is not in the decoder is refused by name; what is missing has
the value that transformers gives it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import tensors

Config = Mapping[str, Any]
PLAIN: dict[str, Any] = dict(norm="plain", attn_output_gate=False)
OLD_THETA = 10_000.0  # what transformers takes for the three plain families when none is given


@dataclasses.dataclass(frozen=True)
class Family:
    """switches: fields of the Spec. defaults: of config.json. fixed: fields with one legal value.

    architecture: the class that transformers loads a text-only checkpoint with.
    """

    architecture: str
    switches: dict[str, Any]
    defaults: dict[str, Any]
    fixed: dict[str, Any]


ALWAYS = {"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False}
QWEN35 = Family(
    "Qwen3_5ForCausalLM",
    dict(norm="one_plus", qk_norm="one_plus", attn_output_gate=True, qkv_bias=False),
    dict(
        vocab_size=248320, hidden_size=4096, intermediate_size=12288, num_hidden_layers=32,
        num_attention_heads=16, num_key_value_heads=4, head_dim=256, rms_norm_eps=1e-6,
        linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
        linear_value_head_dim=128, full_attention_interval=4, partial_rotary_factor=0.25,
    ),
    ALWAYS
    | {
        "linear_conv_kernel_dim": specs.KERNEL,
        "attn_output_gate": True,
        "mamba_ssm_dtype": "float32",
    },
)  # fmt: skip
FAMILIES = {
    "qwen3_5": QWEN35,
    "qwen3_5_text": QWEN35,
    "qwen3": Family(
        "Qwen3ForCausalLM",
        PLAIN | {"qk_norm": "plain", "qkv_bias": False},
        dict(rms_norm_eps=1e-6, head_dim=128, rope_theta=OLD_THETA),
        ALWAYS,
    ),
    "qwen2": Family(
        "Qwen2ForCausalLM",
        PLAIN | {"qk_norm": None, "qkv_bias": True},
        dict(rms_norm_eps=1e-6, rope_theta=OLD_THETA),
        {name: value for name, value in ALWAYS.items() if name != "attention_bias"},
    ),
    "llama": Family(
        "LlamaForCausalLM",
        PLAIN | {"qk_norm": None, "qkv_bias": False},
        dict(rms_norm_eps=1e-6, rope_theta=OLD_THETA),
        ALWAYS | {"mlp_bias": False},
    ),
}
# Parts of a field's name that mean mathematics that the decoder has not, unless the field is unset.
FOREIGN = (
    "expert", "moe", "quantization", "softcap", "lora", "multiplier", "logit_scale",
    "logits_scaling", "alibi", "chunk_size", "no_rope", "kv_shared", "auto_map",
)  # fmt: skip
ROPE = {"rope_type", "type", "rope_theta", "partial_rotary_factor"}
SILENT_ROPE = {"mrope_section", "mrope_interleaved"}  # for text the three positions are equal
LLAMA3 = {
    "factor": "factor",
    "low_freq_factor": "low_freq_factor",
    "high_freq_factor": "high_freq_factor",
    "original_max_position_embeddings": "original_length",
}
READ = {  # fields that are looked at
    "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "layer_types",
    "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "rope_parameters",
    "linear_value_head_dim", "full_attention_interval", "partial_rotary_factor", "rope_theta",
    "rope_scaling", "tie_word_embeddings", "dtype", "torch_dtype", "initializer_range",
    "text_config",
}  # fmt: skip
SILENT = {  # fields that change nothing here: identity, other parts of the model, training only
    "architectures", "transformers_version", "_name_or_path", "use_cache", "attention_dropout",
    "bos_token_id", "eos_token_id", "pad_token_id", "max_position_embeddings", "sliding_window",
    "max_window_layers", "pretraining_tp", "mtp_num_hidden_layers", "mtp_use_dedicated_embeddings",
    "vision_config", "image_token_id", "video_token_id", "vision_start_token_id",
    "vision_end_token_id", "language_model_only",
    "output_gate_type",  # transformers does not look at it: sigmoid in attention, silu in the norm
}  # fmt: skip
LIMITS = {"num_hidden_layers": 1024}  # every size else: LARGEST
LARGEST = 1 << 24


def spec_of(config: Config, *, vocab_real: int | None = None) -> specs.Spec:
    """The Spec that a parsed config.json describes; its dtypes are the config's.

    vocab_real: ids that exist (the tokenizer's), all rows of the embedding when None. A float16
    checkpoint is computed in float32: the decoder has no float16.
    Raises Refused naming the architecture or field that is unknown, unsupported or malformed.
    """
    family = family_of(config)
    text = text_of(config)
    _supported(family, config, text)
    read = _Reader(family, text)
    heads = read.size("num_attention_heads")
    head_dim = read.size("head_dim", otherwise=read.size("hidden_size") // heads)
    period = _period(read)
    theta, partial, scaling = _rope(read)
    dtype = dtype_of(config)
    linear: dict[str, Any] = {}
    if "linear" in period:
        linear = dict(
            linear_key_heads=read.size("linear_num_key_heads"),
            linear_value_heads=read.size("linear_num_value_heads"),
            linear_key_dim=read.size("linear_key_head_dim"),
            linear_value_dim=read.size("linear_value_head_dim"),
        )
    rows = read.size("vocab_size")
    try:
        return specs.Spec(
            vocab=rows,
            vocab_real=rows if vocab_real is None else vocab_real,
            width=read.size("hidden_size"),
            mlp=read.size("intermediate_size"),
            period=period,
            periods=read.size("num_hidden_layers") // len(period),
            heads=heads,
            kv_heads=read.size("num_key_value_heads", otherwise=heads),
            head_dim=head_dim,
            rotary_dim=_rotary(head_dim, partial),
            rope_theta=theta,
            rope_scaling=scaling,
            eps=read.number("rms_norm_eps"),
            tied=_tied(config, text),
            dtype=dtype,
            param_dtype=dtype,
            init_std=read.number("initializer_range", otherwise=0.02),
            **family.switches,
            **linear,
        )
    except tensors.Refused:
        raise
    except ValueError as error:
        raise tensors.Refused(f"config.json describes no decoder: {error}") from error


def text_of(config: Config) -> Config:
    """The part of a config.json that describes the text model."""
    text = config.get("text_config", config)
    if not isinstance(text, Mapping):
        raise tensors.Refused(f"text_config is {str(text)[:40]!r} in config.json, no object")
    return text


def family_of(config: Config) -> Family:
    """The family that a config.json names. Raises Refused for one that the decoder has not."""
    for found in (config.get("model_type"), text_of(config).get("model_type")):
        if not isinstance(found, str) or found not in FAMILIES:
            raise tensors.Refused(
                f"model_type {str(found)[:40]!r} in config.json is not supported: "
                f"use one of {', '.join(FAMILIES)}"
            )
    return FAMILIES[text_of(config)["model_type"]]


def unread(config: Config) -> list[str]:
    """Fields of a config.json that this reader does not know, sorted; they change nothing here."""
    family, text = family_of(config), text_of(config)
    return sorted(text.keys() - READ - SILENT - family.fixed.keys())


def dtype_of(config: Config) -> str:
    """float32 or bfloat16: what the config says; float32 for float16 and when it says nothing."""
    text = text_of(config)
    given = [c.get(name) for c in (text, config) for name in ("dtype", "torch_dtype")]
    dtype = next((g for g in given if g is not None), "float32")
    known = {"float32": "float32", "bfloat16": "bfloat16", "float16": "float32"}
    if not isinstance(dtype, str) or dtype not in known:
        raise tensors.Refused(f"dtype {str(dtype)[:40]!r} in config.json: use one of {list(known)}")
    return known[dtype]


class _Reader:
    """Fields of a config by name, checked; a missing one has the family's default."""

    def __init__(self, family: Family, text: Config):
        self.family, self.text = family, text

    def get(self, name: str) -> Any:
        value = self.text.get(name)
        return self.family.defaults.get(name) if value is None else value

    def size(self, name: str, *, otherwise: int | None = None) -> int:
        value, most = self.get(name), LIMITS.get(name, LARGEST)
        if value is None and otherwise is not None:
            value = otherwise
        if type(value) is not int or not 1 <= value <= most:
            what = "is missing" if value is None else f"is {str(value)[:40]}"
            raise tensors.Refused(f"{name} {what} in config.json: it must be 1 to {most}")
        return value

    def number(self, name: str, *, otherwise: float | None = None) -> float:
        value = self.get(name)
        return positive(name, otherwise if value is None else value)


def positive(name: str, value: Any) -> float:
    """A field's value as a positive number. Raises Refused naming the field."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e30:
        raise tensors.Refused(f"{name} is {str(value)[:40]} in config.json: give a positive number")
    return float(value)


def _supported(family: Family, config: Config, text: Config) -> None:
    for name, wanted in family.fixed.items():
        value = text.get(name)
        if value is not None and value != wanted:
            raise tensors.Refused(
                f"{name} is {str(value)[:40]} in config.json: only {wanted} is supported"
            )
    for name, value in [*config.items(), *text.items()]:
        if value and any(part in name.lower() for part in FOREIGN):
            raise tensors.Refused(
                f"{name} is {str(value)[:40]} in config.json: the decoder has no such part; "
                "give a dense checkpoint that is not quantised and needs no code of its own"
            )


def _tied(config: Config, text: Config) -> bool:
    # The whole model's word counts first: its class decided whether a head was stored.
    given = [c["tie_word_embeddings"] for c in (config, text) if "tie_word_embeddings" in c]
    tied = given[0] if given else False
    if not isinstance(tied, bool):
        raise tensors.Refused(f"tie_word_embeddings is {str(tied)[:40]} in config.json: true|false")
    return tied


def _period(read: _Reader) -> tuple[specs.LayerKind, ...]:
    """The shortest run of layer kinds that the layers repeat."""
    layers, given = read.size("num_hidden_layers"), read.text.get("layer_types")
    if given is None and "full_attention_interval" in read.family.defaults:
        every = read.size("full_attention_interval")
        given = ["linear_attention" if (i + 1) % every else "full_attention" for i in range(layers)]
    given = ["full_attention"] * layers if given is None else given
    known: dict[str, specs.LayerKind] = {"full_attention": "full"}
    if "linear_num_key_heads" in read.family.defaults:
        known["linear_attention"] = "linear"
    if not isinstance(given, list) or len(given) != layers:
        raise tensors.Refused(f"layer_types in config.json does not name {layers} layers")
    if strange := [str(kind)[:40] for kind in given if str(kind) not in known]:
        raise tensors.Refused(
            f"layer_types has {strange[0]!r} in config.json: supported are {', '.join(known)}"
        )
    kinds = tuple(known[kind] for kind in given)
    return next(
        kinds[:n]
        for n in range(1, layers + 1)
        if layers % n == 0 and kinds[:n] * (layers // n) == kinds
    )


def _rotary(head_dim: int, partial: float) -> int:
    turned = head_dim * partial
    if turned != int(turned) or int(turned) % 2:
        raise tensors.Refused(
            f"partial_rotary_factor is {partial} of heads of {head_dim} in config.json: "
            "it must give an even number of dims"
        )
    return int(turned)


def _rope(read: _Reader) -> tuple[float, float, specs.Llama3Scaling | None]:
    """theta, the share of a head that is turned, and the scaling."""
    given = read.text.get("rope_scaling") or read.text.get("rope_parameters") or {}
    if not isinstance(given, Mapping):
        raise tensors.Refused(f"rope_parameters is {str(given)[:40]} in config.json, no object")
    theta = positive("rope_theta", given.get("rope_theta", read.get("rope_theta")))
    partial = given.get("partial_rotary_factor", read.get("partial_rotary_factor"))
    partial = positive("partial_rotary_factor", 1.0 if partial is None else partial)
    if partial != 1.0 and read.family is not QWEN35:
        raise tensors.Refused(f"partial_rotary_factor is {partial} in config.json: only 1 is known")
    kind = given.get("rope_type", given.get("type", "default"))
    if kind not in ("default", "llama3"):
        raise tensors.Refused(
            f"rope scaling {str(kind)[:40]!r} in config.json is not supported: "
            "use default or llama3 (a scaling for longer texts may be removed for shorter ones)"
        )
    known = ROPE | SILENT_ROPE | (LLAMA3.keys() if kind == "llama3" else set())
    if strange := sorted(given.keys() - known):
        raise tensors.Refused(f"{strange[0]} of rope {kind!r} in config.json is not supported")
    if kind == "default":
        return theta, partial, None
    values = {ours: positive(name, given.get(name)) for name, ours in LLAMA3.items()}
    length = int(values.pop("original_length"))
    return theta, partial, specs.Llama3Scaling(original_length=length, **values)
