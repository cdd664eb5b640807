"""Small decoders of every family, and checkpoint folders with random weights, for the tests."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax import pretrained
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import folder, fresh_config, layout, tensors

QWEN35 = specs.Spec(
    vocab=96,
    vocab_real=96,
    width=48,
    mlp=64,
    period=("linear", "linear", "linear", "full"),
    periods=2,
    heads=4,
    kv_heads=2,
    head_dim=16,
    rotary_dim=4,
    linear_key_heads=2,
    linear_value_heads=4,
    linear_key_dim=8,
    linear_value_dim=12,
)
_FULL = dataclasses.replace(
    specs.qwen3_4b(),
    vocab=96,
    vocab_real=96,
    width=48,
    mlp=64,
    periods=3,
    heads=4,
    kv_heads=2,
    head_dim=12,
    rotary_dim=12,
    dtype="float32",
    param_dtype="float32",
)
FAMILIES = {
    "qwen3_5_text": QWEN35,
    "qwen3": dataclasses.replace(_FULL, head_dim=16, rotary_dim=16),
    "qwen2": dataclasses.replace(_FULL, qk_norm=None, qkv_bias=True, tied=False),
    "llama": dataclasses.replace(
        _FULL, qk_norm=None, eps=1e-5, rope_scaling=specs.Llama3Scaling(original_length=24)
    ),
}


def params(spec, seed=0):
    """Random parameters, no two equal: zeros and ones of a fresh model would hide a swap."""
    rng = np.random.default_rng(seed)
    draw = lambda leaf: jnp.asarray(0.3 * rng.normal(size=leaf.shape), leaf.dtype)
    return jax.tree.map(draw, decoder.abstract(spec))


def equal(one, two):
    """Whether two trees are the same to the bit, dtypes included."""
    same = lambda a, b: (
        a.dtype == b.dtype
        and np.array_equal(np.asarray(a).view(np.uint8), np.asarray(b).view(np.uint8))
    )
    return jax.tree.all(jax.tree.map(same, one, two))


def plain(path, name="qwen3_5_text", **more):
    """A text-only checkpoint written by `pretrained.save`; gives (spec, params)."""
    spec = FAMILIES[name]
    made = params(spec)
    pretrained.save(path, spec, made, **more)
    return spec, made


def content(name, array):
    codes = {str(dtype): code for code, dtype in tensors.FLOATS.items()}
    return tensors.Content(name, codes[str(array.dtype)], array.shape, [array])


def hub(path, spec=QWEN35, *, split=False):
    """A folder as the hub has Qwen3.5: nested config, vision and mtp tensors, tokenizer and more.

    Gives the tensors by name, bfloat16 but for decay and gated norm. split: two files and an index.
    """
    path.mkdir(parents=True)
    rng = np.random.default_rng(7)
    wide = dataclasses.replace(spec, param_dtype="bfloat16")
    bf16 = tensors.FLOATS["BF16"]
    found = {}
    for leaf in layout.leaves(wide):
        for piece in leaf.pieces:
            dtype = np.float32 if leaf.dtype == "float32" else bf16
            value = rng.normal(size=piece.shape).astype(dtype)
            found[layout.full("model.language_model.", piece.name)] = value
    found["model.visual.blocks.0.attn.qkv.weight"] = rng.normal(size=(6, 4)).astype(bf16)
    found["mtp.fc.weight"] = rng.normal(size=(3, 5)).astype(bf16)
    found["mtp.norm.weight"] = rng.normal(size=5).astype(bf16)
    contents = [content(name, array) for name, array in found.items()]
    if split:
        halves = contents[::2], contents[1::2]
        names = [f"model-{i}-of-2.safetensors" for i in (1, 2)]
        for name, half in zip(names, halves, strict=True):
            tensors.write(path / name, half)
        where = {c.name: n for n, half in zip(names, halves, strict=True) for c in half}
        write(path / folder.INDEX, {"metadata": {}, "weight_map": where})
    else:
        tensors.write(path / folder.SINGLE, contents)
    text = fresh_config.config_of(wide)
    text.pop("architectures")
    config = {
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "model_type": "qwen3_5",
        "text_config": text,
        "vision_config": {"model_type": "qwen3_5", "depth": 1},
        "tie_word_embeddings": spec.tied,
    }
    write(path / "config.json", config)
    ids = {f"t{i}": i for i in range(spec.vocab - 6)}
    added = [{"id": spec.vocab - 6, "content": "<|im_end|>"}]
    write(path / "tokenizer.json", {"model": {"vocab": ids}, "added_tokens": added})
    write(path / "generation_config.json", {"eos_token_id": [1, 2]})
    (path / "chat_template.jinja").write_text("{{ messages }}")
    (path / "LICENSE").write_text("Apache-2.0")
    (path / "modeling.py").write_text("raise SystemExit('executed')")
    return found


def write(path, value):
    path.write_text(json.dumps(value))


def read(path):
    """All tensors of a folder by name, as raw bytes with dtype and shape."""
    entries = folder.read(path).entries()
    return {n: (e.dtype, e.shape, b"".join(b.tobytes() for b in e.blocks())) for n, e in
            entries.items()}  # fmt: skip
