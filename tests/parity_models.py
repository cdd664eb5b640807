"""Tiny models of each family for the parity tests: specs, drawn weights, and their names' map.

Nothing here needs torch. Weights are drawn from the raw bits of a counter-based generator, whose
stream never changes, so that stored outputs stay comparable; what is drawn depends on the name.
"""

import dataclasses
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax import types
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs

VOCAB = 96
LENGTHS = (37, 21)  # of the two sequences; no multiple of the chunk
WIDTH = 64  # of a forest's row: both fit in, one after the other

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
    linear_key_dim=16,
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
# Name -> (architecture, spec). The names name the golden files too.
FAMILIES = {
    "qwen3.5": ("qwen3_5", QWEN35),
    "qwen3.5-untied": (  # with as many key heads as value heads
        "qwen3_5",
        dataclasses.replace(QWEN35, tied=False, linear_key_heads=4),
    ),
    "qwen3": ("qwen3", dataclasses.replace(PLAIN, qk_norm="plain")),
    "qwen2.5": (
        "qwen2",
        dataclasses.replace(PLAIN, qkv_bias=True, head_dim=12, rotary_dim=12, tied=False),
    ),
    "llama-3.1": (
        "llama",
        dataclasses.replace(
            PLAIN, eps=1e-5, tied=False, rope_scaling=specs.Llama3Scaling(original_length=24)
        ),
    ),
    "smollm2": ("llama", dataclasses.replace(PLAIN, eps=1e-5, rope_theta=1e5, heads=6)),
}


# --- drawn numbers ----------------------------------------------------------------------------


def uniform(name: str, *shape: int) -> np.ndarray:
    """Numbers in [0, 1) that depend on the name only."""
    raw = np.random.Philox(key=zlib.crc32(name.encode())).random_raw(int(np.prod(shape)))
    return ((raw >> np.uint64(11)) * 2.0**-53).reshape(shape)


def spread(name: str, *shape: int) -> np.ndarray:
    """Numbers of mean 0 and variance 1."""
    return 12**0.5 * (uniform(name, *shape) - 0.5)


def params(spec: specs.Spec) -> decoder.Params:
    """Weights large enough to matter everywhere (norms and biases too), decay heads slow."""

    def draw(path, leaf):
        name = jax.tree_util.keystr(path)
        value = 0.15 * spread(name, *leaf.shape)
        if path[-1].key == "a_log":  # fast decay would hide every leak
            value = np.log(0.01 + 0.29 * uniform(name, *leaf.shape))
        elif path[-1].key == "norm" or ("norm" in path[-1].key and spec.norm == "plain"):
            # Not where the norm adds 1 itself: twice the scale in every layer would make gradients
            # so steep that rounding shows. The last norm is large all the same, for large logits.
            value = value + 1.0
        return jnp.asarray(value, jnp.float32)

    return jax.tree_util.tree_map_with_path(draw, decoder.abstract(spec))


def tokens() -> list[np.ndarray]:
    """The two sequences."""
    return [(VOCAB * uniform(f"tokens {n}", n)).astype(np.int32) for n in LENGTHS]


def weights() -> list[np.ndarray]:
    """The loss of each sequence is the sum of its logits [n, V] times these."""
    return [spread(f"weights {n}", n, VOCAB) for n in LENGTHS]


SKETCHES = 16


def sketch(tree: decoder.Params) -> dict[str, np.ndarray]:
    """Leaf name -> [SKETCHES + 1]: random projections of the leaf, and last its norm.

    The squared difference of two leaves' projections, averaged, is on average the squared norm of
    their difference: a few numbers stand for a gradient.
    """
    found = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name, flat = jax.tree_util.keystr(path), np.asarray(leaf, np.float64).ravel()
        onto = spread("onto " + name, SKETCHES, flat.size)
        found[name] = np.append(onto @ flat, np.linalg.norm(flat))
    return found


# --- forests ----------------------------------------------------------------------------------


def row(parts: list[tuple[int, np.ndarray]], chunk: int) -> dict[str, np.ndarray]:
    """One row of a forest: sequences that start at given places, alone of each other.

    A start inside a chunk is left padding: what lies before it in the chunk is not valid.
    """
    count = WIDTH // chunk
    found = {
        "tokens": np.full(WIDTH, 7, np.int32),  # padding is a token like others, and must not show
        "valid": np.zeros(WIDTH, bool),
        "position": np.zeros(WIDTH, np.int32),
        "last": np.zeros(WIDTH, np.int32),
        "halo": np.full((count, 3), WIDTH, np.int32),
        "load": np.full(count, 2, np.int32),
        "store": np.full(count, -1, np.int32),
    }
    for start, ids in parts:
        end = start + len(ids)
        found["tokens"][start:end] = ids
        found["valid"][start:end] = True
        found["position"][start:end] = np.arange(len(ids))
        found["last"][start:end] = end
        for c in range(start // chunk + 1, -(-end // chunk)):
            found["load"][c] = -1
            found["halo"][c] = c * chunk + np.arange(-3, 0)
    return found


def forest(rows: list[list[tuple[int, np.ndarray]]], chunk: int) -> types.Forest:
    """A forest of such rows; nothing is learned in it."""
    made = [row(parts, chunk) for parts in rows]
    arrays = {name: jnp.asarray(np.stack([r[name] for r in made])) for name in made[0]}
    none = jnp.zeros((len(rows), 1))
    learned = dict.fromkeys(("weight", "old_logp", "advantage", "gate", "coached"), none)
    number = none.astype(jnp.int32)
    return types.Forest(**arrays, **learned, source=number, target=number, slots=2)


# Layout -> where each sequence starts in a row: (row, place) of sequence 0 and of sequence 1.
LAYOUTS = {
    "right padding": ((0, 0), (1, 0)),
    "left padding": ((0, 5), (1, 11)),  # inside the first chunk, and inside the second
    "packing": ((0, 0), (0, 40)),
    "packing turned": ((1, 24), (1, 0)),
}


# --- names of the other side ------------------------------------------------------------------


def names(spec: specs.Spec) -> dict[str, tuple]:
    """Where each of their parameters lies in ours: name -> (path, period or None, turned).

    turned: their matrix is [out, in] where ours is [in, out]. A part of a fused matrix has its name
    with /q, /k or /v behind it.
    """
    found = {"model.embed_tokens.weight": (("embed",), None, False)}
    found["model.norm.weight"] = (("norm",), None, False)
    if not spec.tied:
        found["lm_head.weight"] = (("head",), None, False)
    attention = {f"{n}_proj.weight": (n, True) for n in "qkv"} | {"o_proj.weight": ("out", True)}
    attention |= {f"{n}_proj.bias": (f"{n}_bias", False) for n in "qkv"}
    attention |= {f"{n}_norm.weight": (f"{n}_norm", False) for n in "qk"}
    linear = {f"in_proj_{n}.weight": (n, True) for n in "zba"} | {"out_proj.weight": ("out", True)}
    linear |= {"A_log": ("a_log", False), "dt_bias": ("dt_bias", False)}
    linear |= {"norm.weight": ("norm", False)}
    linear |= {f"in_proj_qkv.weight/{n}": (n, True) for n in "qkv"}
    linear |= {f"conv1d.weight/{n}": (f"conv_{n}", True) for n in "qkv"}
    for i in range(spec.layers):
        period, place = divmod(i, len(spec.period))
        kind = spec.period[place]
        ours, theirs = ("periods", f"layer{place}"), f"model.layers.{i}."
        layer = {"input_layernorm.weight": (("norm_in",), False)}
        layer["post_attention_layernorm.weight"] = (("norm_post",), False)
        for n in ("gate", "up", "down"):
            layer[f"mlp.{n}_proj.weight"] = (("mlp", n), True)
        prefix, mixer = ("linear_attn.", linear) if kind == "linear" else ("self_attn.", attention)
        layer |= {
            prefix + name: (("mixer", leaf), turned) for name, (leaf, turned) in mixer.items()
        }
        for name, (path, turned) in layer.items():
            found[theirs + name] = (ours + path, period, turned)
    return found


def _parts(spec: specs.Spec, name: str) -> dict[str, slice]:
    """The rows of their tensor that belong to each name of `names`."""
    if not name.endswith(("in_proj_qkv.weight", "conv1d.weight")):
        return {name: slice(None)}
    key = spec.linear_key_heads * spec.linear_key_dim
    parts = {"q": slice(0, key), "k": slice(key, 2 * key), "v": slice(2 * key, None)}
    return {f"{name}/{n}": rows for n, rows in parts.items()}


def _leaf(tree, where: tuple) -> np.ndarray:
    path, period, _ = where
    for step in path:
        tree = tree[step]
    return tree if period is None else tree[period]


def ours(spec: specs.Spec, tensors: dict[str, np.ndarray]) -> decoder.Params:
    """Their tensors as our parameters; every one must find its place."""
    out = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan), decoder.abstract(spec))
    where = names(spec)
    for whole, array in tensors.items():
        for name, rows in _parts(spec, whole).items():
            view, part = _leaf(out, where[name]), array[rows]
            turned = part.reshape(len(part), -1).T if where[name][2] else part
            view[...] = turned.reshape(view.shape)
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(out)), "a weight was not set"
    return out


def theirs(spec: specs.Spec, params: decoder.Params, shapes: dict[str, tuple]):
    """Our parameters as their tensors of these names and shapes."""
    found, where = {}, names(spec)
    for whole, shape in shapes.items():
        found[whole] = np.full(shape, np.nan)
        for name, rows in _parts(spec, whole).items():
            view, leaf = found[whole][rows], np.asarray(_leaf(params, where[name]), np.float64)
            flat = leaf.reshape(-1, len(view)).T if where[name][2] else leaf
            view[...] = flat.reshape(view.shape)
        assert not np.isnan(found[whole]).any(), f"{whole} was not set"
    return found
