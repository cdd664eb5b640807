"""Against an independent implementation: logits and gradients of transformers' models, in fp32."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_decoder import line

from mimesis_jax.models import decoder, heads
from mimesis_jax.models import spec as specs

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[parity]'")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

VOCAB, LENGTH = 96, 40
QWEN35 = specs.Spec(
    vocab=VOCAB,
    vocab_real=VOCAB,
    width=48,
    mlp=64,
    period=("linear", "linear", "linear", "full"),
    periods=2,
    heads=4,
    kv_heads=2,
    head_dim=16,
    rotary_dim=4,
    rope_theta=1e7,
    linear_key_heads=2,
    linear_value_heads=4,
    linear_key_dim=8,
    linear_value_dim=12,
    chunk=8,
)
PLAIN = dataclasses.replace(
    QWEN35,
    period=("full",),
    rotary_dim=16,
    rope_theta=1e4,
    norm="plain",
    qk_norm=None,
    attn_output_gate=False,
)


def common(spec):
    return dict(
        vocab_size=spec.vocab,
        hidden_size=spec.width,
        intermediate_size=spec.mlp,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        rms_norm_eps=spec.eps,
        tie_word_embeddings=spec.tied,
        max_position_embeddings=512,
        attn_implementation="eager",
    )


def qwen35(spec):
    config = transformers.Qwen3_5TextConfig(
        **common(spec),
        linear_num_key_heads=spec.linear_key_heads,
        linear_num_value_heads=spec.linear_value_heads,
        linear_key_head_dim=spec.linear_key_dim,
        linear_value_head_dim=spec.linear_value_dim,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": spec.rope_theta,
            "partial_rotary_factor": spec.rotary_dim / spec.head_dim,
        },
    )
    return transformers.Qwen3_5ForCausalLM(config)


def plain_rope(spec):
    return {"rope_type": "default", "rope_theta": spec.rope_theta}


def qwen3(spec):
    config = transformers.Qwen3Config(**common(spec), rope_parameters=plain_rope(spec))
    return transformers.Qwen3ForCausalLM(config)


def qwen2(spec):
    sizes = {k: v for k, v in common(spec).items() if k != "head_dim"}
    config = transformers.Qwen2Config(**sizes, rope_parameters=plain_rope(spec))
    return transformers.Qwen2ForCausalLM(config)


def llama(spec):
    scaling = spec.rope_scaling
    rope = plain_rope(spec) | {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_length,
    }
    config = transformers.LlamaConfig(**common(spec), rope_parameters=rope)
    return transformers.LlamaForCausalLM(config)


FAMILIES = {
    "qwen3.5": (qwen35, QWEN35),
    "qwen3.5 untied, a key head a value head": (
        qwen35,
        dataclasses.replace(QWEN35, tied=False, linear_key_heads=4),
    ),
    "qwen3": (qwen3, dataclasses.replace(PLAIN, qk_norm="plain")),
    "qwen2.5": (qwen2, dataclasses.replace(PLAIN, qkv_bias=True, head_dim=12, rotary_dim=12)),
    "llama-3.1": (
        llama,
        dataclasses.replace(
            PLAIN, eps=1e-5, tied=False, rope_scaling=specs.Llama3Scaling(original_length=24)
        ),
    ),
}


def names(spec):
    """Where each of their parameters lies in ours: name -> (path, period or None, how to turn)."""
    flat = lambda w, leaf: w.T.reshape(leaf)
    same = lambda w, leaf: w.reshape(leaf)
    found = {"model.embed_tokens.weight": (("embed",), None, same)}
    found["model.norm.weight"] = (("norm",), None, same)
    if not spec.tied:
        found["lm_head.weight"] = (("head",), None, same)
    attention = {f"{n}_proj.weight": (n, flat) for n in "qkv"} | {"o_proj.weight": ("out", flat)}
    attention |= {f"{n}_proj.bias": (f"{n}_bias", same) for n in "qkv"}
    attention |= {f"{n}_norm.weight": (f"{n}_norm", same) for n in "qk"}
    linear = {f"in_proj_{n}.weight": (n, flat) for n in "zba"} | {"out_proj.weight": ("out", flat)}
    linear |= {"A_log": ("a_log", same), "dt_bias": ("dt_bias", same)}
    linear |= {"norm.weight": ("norm", same)}
    for i in range(spec.layers):
        period, place = divmod(i, len(spec.period))
        kind = spec.period[place]
        ours, theirs = ("periods", f"layer{place}"), f"model.layers.{i}."
        layer = {"input_layernorm.weight": (("norm_in",), same)}
        layer["post_attention_layernorm.weight"] = (("norm_post",), same)
        for n in ("gate", "up", "down"):
            layer[f"mlp.{n}_proj.weight"] = (("mlp", n), flat)
        prefix, mixer = ("linear_attn.", linear) if kind == "linear" else ("self_attn.", attention)
        for name, (leaf, turn) in mixer.items():
            layer[prefix + name] = (("mixer", leaf), turn)
        if kind == "linear":
            for n in "qkv":
                layer[f"linear_attn.in_proj_qkv.weight/{n}"] = (("mixer", n), flat)
                layer[f"linear_attn.conv1d.weight/{n}"] = (("mixer", f"conv_{n}"), flat)
        for name, (path, turn) in layer.items():
            found[theirs + name] = (ours + path, period, turn)
    return found


def translate(spec, tensors):
    """Their tensors (name -> array) as our parameters; every one must find its place."""
    key = spec.linear_key_heads * spec.linear_key_dim
    parts = {"q": slice(0, key), "k": slice(key, 2 * key), "v": slice(2 * key, None)}
    split = {}
    for name, array in tensors.items():
        if name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
            for n, rows in parts.items():
                split[f"{name}/{n}"] = array[rows].reshape(array[rows].shape[0], -1)
        else:
            split[name] = array
    out = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan), decoder.abstract(spec))
    where = names(spec)
    for name, array in split.items():
        path, period, turn = where[name]
        leaf = out
        for step in path:
            leaf = leaf[step]
        view = leaf if period is None else leaf[period]
        view[...] = turn(array, view.shape)
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(out)), "a weight was not set"
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), out)


def randomise(model, rng):
    """Weights large enough to matter everywhere (norms and biases too), decay heads slow."""
    for name, weight in model.named_parameters():
        value = 0.15 * rng.normal(size=tuple(weight.shape))
        if name.endswith("A_log"):
            value = np.log(rng.uniform(0.01, 0.3, tuple(weight.shape)))
        elif name.endswith("norm.weight"):
            value = value + 1.0
        weight.data = torch.tensor(value, dtype=torch.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients(family):
    torch.set_num_threads(1)
    build, spec = FAMILIES[family]
    rng = np.random.default_rng(len(family))
    model = build(spec).float().eval()
    randomise(model, rng)
    tokens = rng.integers(0, VOCAB, LENGTH)
    weight = rng.normal(size=(LENGTH, VOCAB))
    out = model(torch.tensor(tokens)[None]).logits[0]
    (out * torch.tensor(weight, dtype=torch.float32)).sum().backward()
    theirs = out.detach().numpy()
    read = lambda pick: {name: pick(p).detach().numpy() for name, p in model.named_parameters()}
    params = translate(spec, read(lambda p: p.data))
    want = translate(spec, read(lambda p: p.grad))
    trees = line(tokens, spec.chunk)

    @jax.jit
    def run(params):
        def total(params):
            out = heads.logits(spec, params, decoder.hidden(spec, params, trees))[0]
            return jnp.sum(out * weight), out

        return jax.grad(total, has_aux=True)(params)

    with jax.default_matmul_precision("highest"):
        got, ours = run(params)
    assert np.abs(theirs).max() > 3  # not a comparison of zeros
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    for (path, a), b in zip(
        jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(want), strict=True
    ):
        error = float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b))
        assert error < 1e-4, f"gradient of {jax.tree_util.keystr(path)} is off by {error}"
