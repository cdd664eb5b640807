"""The frozen description of a decoder: sizes, the period of its layers, the family's switches."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

LayerKind = Literal["linear", "full"]
NormKind = Literal["one_plus", "plain"]
KERNEL = 4  # taps of the causal convolution; the forest's halo and the cache's tail hold KERNEL - 1


@dataclasses.dataclass(frozen=True)
class Llama3Scaling:
    """Stretching of RoPE by frequency (Llama 3.1): long wavelengths are slowed by `factor`."""

    factor: float = 8.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_length: int = 8192


@dataclasses.dataclass(frozen=True)
class Spec:
    """A decoder as a value: everything that fixes its parameters and its mathematics.

    vocab: rows of the embedding. vocab_real: ids that exist (the rest are padding, never scored).
    width: D. mlp: inner width of the SwiGLU block.
    period: kinds of the layers of one period; periods: how often it repeats.
    heads, kv_heads, head_dim: full attention; rotary_dim: leading dims of a head that RoPE turns.
    linear_*: heads and sizes of the gated DeltaNet layers (unused without "linear" in the period).
    chunk: C, tokens a chunk of the delta rule; a power of two.
    tied: the output head is the embedding.
    norm: "one_plus" scales by 1 + w and casts last (Qwen3.5), "plain" casts first and scales by w.
    qk_norm: norm of queries and keys before RoPE, None where the family has none.
    attn_output_gate: a sigmoid gate on the attention's output, from the same projection as q.
    dtype: of the activations. param_dtype: of the stored weights (decay and delta norm: fp32).

    Raises ValueError when the sizes do not fit together.
    """

    vocab: int
    vocab_real: int
    width: int
    mlp: int
    period: tuple[LayerKind, ...]
    periods: int
    heads: int
    kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float = 1e7
    rope_scaling: Llama3Scaling | None = None
    linear_key_heads: int = 16
    linear_value_heads: int = 16
    linear_key_dim: int = 128
    linear_value_dim: int = 128
    chunk: int = 64
    eps: float = 1e-6
    tied: bool = True
    norm: NormKind = "one_plus"
    qk_norm: NormKind | None = "one_plus"
    attn_output_gate: bool = True
    qkv_bias: bool = False
    dtype: str = "float32"
    param_dtype: str = "float32"
    init_std: float = 0.02

    def __post_init__(self):
        _check_switches(self)
        _check_sizes(self)

    @property
    def layers(self) -> int:
        """L, how many layers the decoder has."""
        return len(self.period) * self.periods

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the period's layers in the parameters: layer0, layer1, ..."""
        return tuple(f"layer{i}" for i in range(len(self.period)))

    @property
    def conv_channels(self) -> int:
        """Channels that the causal convolution runs over: queries, keys and values together."""
        key = self.linear_key_heads * self.linear_key_dim
        return 2 * key + self.linear_value_heads * self.linear_value_dim


def _check_switches(spec: Spec) -> None:
    kinds = [kind for kind in spec.period if kind not in ("linear", "full")]
    if kinds or not spec.period:
        raise ValueError(f"period {spec.period!r}: each layer must be 'linear' or 'full'")
    if spec.norm not in ("one_plus", "plain"):
        raise ValueError(f"norm {spec.norm!r} is neither 'one_plus' nor 'plain'")
    if spec.qk_norm not in ("one_plus", "plain", None):
        raise ValueError(f"qk_norm {spec.qk_norm!r} is not 'one_plus', 'plain' or None")
    for name in ("dtype", "param_dtype"):
        if getattr(spec, name) not in ("float32", "bfloat16"):
            raise ValueError(f"{name} {getattr(spec, name)!r} is neither 'float32' nor 'bfloat16'")


def _check_sizes(spec: Spec) -> None:
    sizes = ("vocab", "vocab_real", "width", "mlp", "periods", "heads", "kv_heads", "head_dim")
    for name in sizes:
        if getattr(spec, name) < 1:
            raise ValueError(f"{name} is {getattr(spec, name)}: it must be at least 1")
    if spec.vocab_real > spec.vocab:
        raise ValueError(
            f"vocab_real {spec.vocab_real} exceeds the embedding's {spec.vocab} rows: raise vocab"
        )
    if spec.heads % spec.kv_heads:
        raise ValueError(
            f"heads {spec.heads} is not a multiple of kv_heads {spec.kv_heads}: "
            "each kv head must serve the same number of query heads"
        )
    if spec.rotary_dim % 2 or not 0 < spec.rotary_dim <= spec.head_dim:
        raise ValueError(
            f"rotary_dim {spec.rotary_dim} must be even and within head_dim {spec.head_dim}"
        )
    if spec.chunk < 1 or spec.chunk & (spec.chunk - 1):
        raise ValueError(f"chunk {spec.chunk} is not a power of two: use 8, 16, 32 or 64")
    if "linear" in spec.period and spec.linear_value_heads % spec.linear_key_heads:
        raise ValueError(
            f"linear_value_heads {spec.linear_value_heads} is not a multiple of "
            f"linear_key_heads {spec.linear_key_heads}"
        )


def tiny(
    vocab: int,
    vocab_real: int | None = None,
    *,
    periods: int = 1,
    chunk: int = 8,
    dtype: str = "float32",
    width: int = 128,
    mlp: int = 384,
) -> Spec:
    """The small world's decoder: per period one linear and one full layer, four heads of 32.

    vocab: rows of the embedding; vocab_real: ids that exist (all of them when None).
    """
    return Spec(
        vocab=vocab,
        vocab_real=vocab if vocab_real is None else vocab_real,
        width=width,
        mlp=mlp,
        period=("linear", "full"),
        periods=periods,
        heads=4,
        kv_heads=2,
        head_dim=32,
        rotary_dim=16,
        rope_theta=1e4,
        linear_key_heads=4,
        linear_value_heads=4,
        linear_key_dim=32,
        linear_value_dim=32,
        chunk=chunk,
        dtype=dtype,
    )


def _qwen35(**sizes) -> Spec:
    """What all Qwen3.5 text models share: three linear layers to a full one, heads of 256."""
    return Spec(
        vocab=248320,
        vocab_real=248077,
        period=("linear", "linear", "linear", "full"),
        head_dim=256,
        rotary_dim=64,
        dtype="bfloat16",
        param_dtype="bfloat16",
        **sizes,
    )


def qwen35_0_8b() -> Spec:
    """Qwen3.5-0.8B (text): 752,393,024 parameters."""
    return _qwen35(width=1024, mlp=3584, periods=6, heads=8, kv_heads=2)


def qwen35_2b() -> Spec:
    """Qwen3.5-2B (text): 1,881,825,088 parameters."""
    return _qwen35(width=2048, mlp=6144, periods=6, heads=8, kv_heads=2)


def qwen35_4b() -> Spec:
    """Qwen3.5-4B (text): 4,205,751,296 parameters."""
    return _qwen35(width=2560, mlp=9216, periods=8, heads=16, kv_heads=4, linear_value_heads=32)


def qwen35_9b() -> Spec:
    """Qwen3.5-9B (text): 8,953,803,264 parameters; the output head is its own matrix."""
    return _qwen35(
        width=4096,
        mlp=12288,
        periods=8,
        heads=16,
        kv_heads=4,
        linear_value_heads=32,
        tied=False,
    )


def _plain(**fields) -> Spec:
    """What the families without linear layers share; whole heads are turned by RoPE."""
    fields = {"vocab_real": fields["vocab"], "rotary_dim": fields["head_dim"]} | fields
    return Spec(
        period=("full",),
        norm="plain",
        attn_output_gate=False,
        dtype="bfloat16",
        param_dtype="bfloat16",
        **fields,
    )


def _qwen3(**sizes) -> Spec:
    return _plain(
        vocab=151936,
        vocab_real=151669,
        periods=36,
        heads=32,
        kv_heads=8,
        head_dim=128,
        rope_theta=1e6,
        qk_norm="plain",
        **sizes,
    )


def qwen3_4b() -> Spec:
    """Qwen3-4B: 4,022,468,096 parameters."""
    return _qwen3(width=2560, mlp=9728)


def qwen3_8b() -> Spec:
    """Qwen3-8B: 8,190,735,360 parameters; the output head is its own matrix."""
    return _qwen3(width=4096, mlp=12288, tied=False)


def qwen25_7b() -> Spec:
    """Qwen2.5-7B: 7,615,616,512 parameters; biases on queries, keys and values."""
    return _plain(
        vocab=152064,
        vocab_real=151665,
        width=3584,
        mlp=18944,
        periods=28,
        heads=28,
        kv_heads=4,
        head_dim=128,
        rope_theta=1e6,
        qk_norm=None,
        qkv_bias=True,
        tied=False,
    )


def llama31_8b() -> Spec:
    """Llama-3.1-8B: 8,030,261,248 parameters; RoPE stretched eightfold from 8192 tokens."""
    return _plain(
        vocab=128256,
        width=4096,
        mlp=14336,
        periods=32,
        heads=32,
        kv_heads=8,
        head_dim=128,
        rope_theta=5e5,
        rope_scaling=Llama3Scaling(),
        qk_norm=None,
        eps=1e-5,
        tied=False,
    )


def smollm2_135m() -> Spec:
    """SmolLM2-135M: 134,515,008 parameters."""
    return _plain(
        vocab=49152,
        width=576,
        mlp=1536,
        periods=30,
        heads=9,
        kv_heads=3,
        head_dim=64,
        rope_theta=1e5,
        qk_norm=None,
        eps=1e-5,
    )


PRESETS = {
    "qwen3.5-0.8b": qwen35_0_8b,
    "qwen3.5-2b": qwen35_2b,
    "qwen3.5-4b": qwen35_4b,
    "qwen3.5-9b": qwen35_9b,
    "qwen3-4b": qwen3_4b,
    "qwen3-8b": qwen3_8b,
    "qwen2.5-7b": qwen25_7b,
    "llama-3.1-8b": llama31_8b,
    "smollm2-135m": smollm2_135m,
}


def from_json(described: dict[str, Any]) -> Spec:
    """The Spec whose `dataclasses.asdict` went through json.

    Raises TypeError for a field that is unknown or missing, ValueError for sizes that do not fit.
    """
    fields = dict(described) | {"period": tuple(described["period"])}
    if fields.get("rope_scaling") is not None:
        fields["rope_scaling"] = Llama3Scaling(**fields["rope_scaling"])
    return Spec(**fields)
