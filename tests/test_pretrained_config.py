"""Specs from config.json: real models to the last parameter, faults by name, and the way back."""

import copy
import dataclasses

import made_checkpoint as made
import pytest

from mimesis_jax import pretrained
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import fresh_config, hub_config


def qwen35(width, mlp, layers, heads, kv, values, tied):
    """A config.json as the hub has it for Qwen3.5 (nested, full_attention_interval)."""
    text = {
        "model_type": "qwen3_5_text",
        "attention_bias": False,
        "attn_output_gate": True,
        "dtype": "bfloat16",
        "eos_token_id": 248044,
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": mlp,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": values,
        "linear_value_head_dim": 128,
        "mamba_ssm_dtype": "float32",
        "max_position_embeddings": 262144,
        "mtp_num_hidden_layers": 1,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv,
        "rms_norm_eps": 1e-6,
        "vocab_size": 248320,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [11, 11, 10],
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000000,
            "rope_type": "default",
        },
    }
    return {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "tie_word_embeddings": tied,
        "text_config": text,
        "vision_config": {"depth": 12},
    }


def plain(kind, rows, width, mlp, layers, heads, kv, theta, tied, **more):
    """A config.json as the hub has it for the older families (rope_theta at the top)."""
    return {
        "model_type": kind,
        "hidden_act": "silu",
        "hidden_size": width,
        "intermediate_size": mlp,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": kv,
        "rms_norm_eps": 1e-6,
        "rope_theta": theta,
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "vocab_size": rows,
    } | more


SLIDING = dict(sliding_window=131072, use_sliding_window=False, max_window_layers=28)
LLAMA3 = dict(
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8192,
    rope_type="llama3",
)
REAL = {
    "qwen3.5-0.8b": (qwen35(1024, 3584, 24, 8, 2, 16, True), 752_393_024, 248077),
    "qwen3.5-2b": (qwen35(2048, 6144, 24, 8, 2, 16, True), 1_881_825_088, 248077),
    "qwen3.5-4b": (qwen35(2560, 9216, 32, 16, 4, 32, True), 4_205_751_296, 248077),
    "qwen3.5-9b": (qwen35(4096, 12288, 32, 16, 4, 32, False), 8_953_803_264, 248077),
    "qwen3-4b": (
        plain("qwen3", 151936, 2560, 9728, 36, 32, 8, 1e6, True, head_dim=128, rope_scaling=None),
        4_022_468_096,
        151669,
    ),
    "qwen3-8b": (
        plain("qwen3", 151936, 4096, 12288, 36, 32, 8, 1000000, False, head_dim=128),
        8_190_735_360,
        151669,
    ),
    "qwen2.5-7b": (
        plain("qwen2", 152064, 3584, 18944, 28, 28, 4, 1e6, False, **SLIDING),
        7_615_616_512,
        151665,
    ),
    "llama-3.1-8b": (
        plain("llama", 128256, 4096, 14336, 32, 32, 8, 5e5, False, rms_norm_eps=1e-5,
              rope_scaling=LLAMA3, mlp_bias=False, attention_bias=False, pretraining_tp=1),
        8_030_261_248,
        None,
    ),
    "smollm2-135m": (
        plain("llama", 49152, 576, 1536, 30, 9, 3, 1e5, True, rms_norm_eps=1e-5),
        134_515_008,
        None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REAL)
def test_real_configs_give_the_presets_and_their_parameter_counts(name):
    config, count, ids = REAL[name]
    spec = hub_config.spec_of(config, vocab_real=ids)
    assert spec == specs.PRESETS[name]()
    assert decoder.parameter_count(spec) == count
    assert hub_config.unread(config) == []


@pytest.mark.parametrize("name", REAL)
def test_a_config_made_of_a_spec_reads_back_as_the_spec(name):
    spec = specs.PRESETS[name]()
    config = fresh_config.config_of(spec)
    assert hub_config.spec_of(config, vocab_real=spec.vocab_real) == spec


@pytest.mark.parametrize("spec", [*made.FAMILIES.values(), specs.tiny(50, 48, periods=2)])
def test_small_specs_survive_config_and_json(spec):
    back = hub_config.spec_of(fresh_config.config_of(spec), vocab_real=spec.vocab_real)
    assert dataclasses.replace(back, chunk=spec.chunk) == dataclasses.replace(
        spec, dtype=spec.param_dtype, **({} if "linear" in spec.period else LINEAR)
    )
    described = dataclasses.asdict(spec) | {"period": list(spec.period)}
    assert specs.from_json(described) == spec


LINEAR = dict(linear_key_heads=16, linear_value_heads=16, linear_key_dim=128, linear_value_dim=128)


@pytest.mark.parametrize(
    "name, changes, words",
    [
        ("qwen3-4b", {"model_type": "mistral"}, "'mistral' in config.json is not supported"),
        ("qwen3-4b", {"model_type": "qwen3_moe"}, "qwen3_moe"),
        ("qwen3-4b", {"model_type": None}, "'None' in config.json is not supported"),
        ("qwen3-4b", {"hidden_act": "gelu"}, "hidden_act is gelu .* only silu"),
        ("qwen3-4b", {"attention_bias": True}, "attention_bias is True"),
        ("qwen3-4b", {"num_experts": 128}, "num_experts is 128"),
        ("qwen3-4b", {"quantization_config": {"bits": 4}}, "quantization_config"),
        ("qwen3-4b", {"auto_map": {"AutoModel": "x.py"}}, "auto_map"),
        ("qwen3-4b", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'"),
        ("qwen3-4b", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "'linear'"),
        ("qwen3-4b", {"rope_scaling": [1]}, r"rope_parameters is \[1\]"),
        ("qwen3-4b", {"rope_theta": -1}, "rope_theta is -1"),
        ("qwen3-4b", {"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5"),
        ("qwen3-4b", {"hidden_size": None}, "hidden_size is missing"),
        ("qwen3-4b", {"hidden_size": 10**30}, "hidden_size is 1000"),
        ("qwen3-4b", {"hidden_size": "2560"}, "hidden_size is 2560"),
        ("qwen3-4b", {"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ("qwen3-4b", {"num_key_value_heads": 5}, "heads 32 is not a multiple of kv_heads 5"),
        ("qwen3-4b", {"layer_types": ["full_attention"] * 3}, "does not name 36 layers"),
        ("qwen3-4b", {"layer_types": ["linear_attention"] * 36}, "'linear_attention'"),
        ("qwen3-4b", {"torch_dtype": "int8"}, "'int8'"),
        ("qwen3-4b", {"tie_word_embeddings": "yes"}, "tie_word_embeddings is yes"),
        ("qwen2.5-7b", {"use_sliding_window": True}, "use_sliding_window is True"),
        ("llama-3.1-8b", {"mlp_bias": True}, "mlp_bias is True"),
        ("llama-3.1-8b", {"rope_scaling": LLAMA3 | {"factor": None}}, "factor is None"),
        ("llama-3.1-8b", {"rope_scaling": LLAMA3 | {"mscale": 1}}, "mscale of rope 'llama3'"),
        ("qwen3.5-4b", {"linear_conv_kernel_dim": 3}, "linear_conv_kernel_dim is 3"),
        ("qwen3.5-4b", {"attn_output_gate": False}, "attn_output_gate is False"),
        ("qwen3.5-4b", {"mamba_ssm_dtype": "bfloat16"}, "mamba_ssm_dtype is bfloat16"),
        ("qwen3.5-4b", {"model_type": "qwen3_5_moe_text"}, "qwen3_5_moe_text"),
        ("qwen3.5-4b", {"rope_parameters": {"partial_rotary_factor": 0.3}}, "rope_theta is None"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(name, changes, words):
    config = copy.deepcopy(REAL[name][0])
    hub_config.text_of(config).update(changes)
    with pytest.raises(pretrained.Refused, match=words):
        hub_config.spec_of(config)


def test_a_nested_config_is_held_to_its_outer_fields_too():
    config = copy.deepcopy(REAL["qwen3.5-9b"][0])
    config["text_config"]["tie_word_embeddings"] = True
    assert not hub_config.spec_of(config).tied  # the outer word counts: a head was stored
    with pytest.raises(pretrained.Refused, match="quantization_config"):
        hub_config.spec_of(config | {"quantization_config": {"quant_method": "fp8"}})


def test_irregular_layers_are_one_period_and_unknown_fields_are_named():
    config = fresh_config.config_of(made.QWEN35)
    kinds = ["linear_attention"] * 2 + ["full_attention"] * 6
    spec = hub_config.spec_of(config | {"layer_types": kinds})
    assert (spec.period, spec.periods) == (("linear",) * 2 + ("full",) * 6, 1)
    assert hub_config.unread(config | {"zebra": 1}) == ["zebra"]


def test_defaults_are_those_of_the_family():
    llama = {"model_type": "llama", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48,
             "num_hidden_layers": 2, "num_attention_heads": 4}  # fmt: skip
    spec = hub_config.spec_of(llama)
    assert (spec.kv_heads, spec.head_dim, spec.rope_theta, spec.tied) == (4, 8, 10_000.0, False)
    assert (spec.dtype, spec.eps) == ("float32", 1e-6)
    half = hub_config.spec_of(llama | {"torch_dtype": "float16"})
    assert half.dtype == "float32"


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(norm="one_plus"), "no family of the hub has the switches"),
        (dict(rotary_dim=4), "turns whole heads only"),
        (dict(head_dim=8, rotary_dim=8), "48 / 4 is not 8"),
    ],
)
def test_a_decoder_of_no_family_is_not_written(changes, words):
    with pytest.raises(pretrained.Refused, match=words):
        fresh_config.config_of(dataclasses.replace(made.FAMILIES["llama"], **changes))
