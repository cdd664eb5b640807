"""A checkpoint into parameters: a folder of the hub's layout, a GGUF file, or one of our own."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import folder, gguf, hub_config, layout, placing, tensors
from mimesis_jax.runs import checkpoint, disk, progress

Kind = Literal["hub", "gguf", "frozen"]
MIB = 1 << 20


def kind_of(path: str | Path) -> Kind:
    """What lies at `path`; anything that is no GGUF file and none of ours is taken for a folder."""
    path = Path(path)
    if path.suffix.lower() == ".gguf":
        return "gguf"
    return "frozen" if (path / "frozen.json").exists() else "hub"


def spec_of(path: str | Path) -> specs.Spec:
    """The Spec of a checkpoint, without reading weights.

    Of a folder: from config.json, with the ids of tokenizer.json where there is one. Of ours: as it
    was recorded. Raises Refused saying what is wrong with it.
    """
    path, kind = Path(path), kind_of(path)
    if kind == "gguf":
        return gguf.spec_of(gguf.opened(path))
    if kind == "frozen":
        return recorded(path)
    return spec_in(folder.read(path))


def spec_in(source: folder.Folder) -> specs.Spec:
    """The Spec of an opened folder."""
    return hub_config.spec_of(source.config, vocab_real=_ids(source))


def recorded(path: Path) -> specs.Spec:
    """The Spec recorded with frozen parameters. Raises Refused where none was."""
    known = disk.read(path / "frozen.json") or {}
    described = known.get("meta", {}).get("spec") if isinstance(known, dict) else None
    if not isinstance(described, dict):
        raise tensors.Refused(
            f"{path} records no spec: it was frozen by a run; give the folder of the run instead"
        )
    try:
        return specs.from_json(described)
    except (TypeError, ValueError) as error:
        raise tensors.Refused(f"the spec recorded in {path} is none: {error}") from error


def load(
    path: str | Path,
    *,
    dtype: str | None = None,
    compute: str | None = None,
    shardings: Any = None,
    allow_nan: bool = False,
) -> tuple[specs.Spec, decoder.Params]:
    """Spec and parameters of a checkpoint, tensor by tensor, without torch.

    dtype: "float32" or "bfloat16", of the parameters (decay and gated norm stay float32), the
      checkpoint's own when None. compute: of the activations, also the checkpoint's own.
    shardings: None (the first device), one jax.sharding.Sharding, a tree of them built as the
      parameters are, or a function (path "periods.layer0.mlp.up", ShapeDtypeStruct) -> Sharding.
    allow_nan: take weights that are not finite.

    Everything is checked before the first tensor is read: names (text, known and ignored, or an
    error listing the strangers), shapes, the files' headers. The host then holds the destination
    and a block of a tensor; of a GGUF file it holds all parameters once. Raises Refused naming
    file, tensor or field.
    """
    path, kind = Path(path), kind_of(path)
    if kind == "gguf":
        spec, arrays = gguf.read(path, dtype or "float32")
        params = jax.tree.map(_laid, arrays, nested(targets(spec, shardings)))
        return dataclasses.replace(spec, dtype=compute or spec.dtype), params
    source = folder.read(path) if kind == "hub" else None
    own = recorded(path) if source is None else spec_in(source)
    spec = dataclasses.replace(
        own, param_dtype=dtype or own.param_dtype, dtype=compute or own.dtype
    )
    if source is None:
        return spec, _frozen(path, own, spec, shardings)
    entries = source.entries()
    account = layout.account(spec, entries, path)
    layout.shapes(spec, account, entries)
    if account.twin:
        _same_head(entries[account.twin], entries[account.full(layout.EMBED)])

    def rows(piece: layout.Piece, start: int, stop: int) -> np.ndarray:
        entry = entries[account.full(piece.name)]
        array = entry.rows(start, stop)
        if not allow_nan and not finite(array):
            raise tensors.Refused(
                f"{entry.name} in {entry.file} holds NaN or infinity: the checkpoint is damaged"
            )
        return array.astype(np.float32) if array.dtype == np.float64 else array

    return spec, _filled(spec, shardings, rows, path.name)


def finite(array: np.ndarray) -> bool:
    """Whether no element is NaN or infinite; reads the bits, which is fast for bfloat16 too."""
    bits, mantissa = array.dtype.itemsize * 8, {"float16": 10, "bfloat16": 7, "float32": 23}
    if array.dtype.name not in mantissa:
        return bool(np.isfinite(array).all())
    kept = (1 << (bits - 1)) - 1  # without the sign
    infinity = kept >> mantissa[array.dtype.name] << mantissa[array.dtype.name]
    magnitude = array.view(f"u{array.dtype.itemsize}") & np.array(kept, f"u{array.dtype.itemsize}")
    return bool(magnitude.max(initial=0) < infinity)


def targets(spec: specs.Spec, shardings: Any) -> dict[str, jax.ShapeDtypeStruct]:
    """Each parameter's shape, dtype and sharding by its dotted path; see `load` for `shardings`.

    Raises Refused when a tree of shardings is not built as the parameters are.
    """
    shapes = decoder.abstract(spec)
    named = {dotted(keys): leaf for keys, leaf in jax.tree_util.tree_leaves_with_path(shapes)}
    if shardings is None:
        shardings = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    if isinstance(shardings, jax.sharding.Sharding):
        chosen = dict.fromkeys(named, shardings)
    elif callable(shardings):
        chosen = {name: shardings(name, leaf) for name, leaf in named.items()}
    else:
        flat = jax.tree_util.tree_leaves_with_path(shardings)
        chosen = {dotted(keys): sharding for keys, sharding in flat}
        if odd := sorted(chosen.keys() ^ named.keys()):
            raise tensors.Refused(
                f"the tree of shardings and the parameters differ in {', '.join(odd[:5])}: "
                "build it like decoder.abstract(spec)"
            )
    place = lambda leaf, sharding: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
    return {name: place(leaf, chosen[name]) for name, leaf in named.items()}


def dotted(keys) -> str:
    """A key path of a pytree as "periods.layer0.norm_in"."""
    return ".".join(str(key.key) for key in keys)


def nested(named: dict[str, Any]) -> decoder.Params:
    """Nested dicts of values by dotted path."""
    out: decoder.Params = {}
    for name, value in named.items():
        *inner, last = name.split(".")
        at = out
        for step in inner:
            at = at.setdefault(step, {})
        at[last] = value
    return out


def _filled(spec: specs.Spec, shardings: Any, rows: placing.Rows, what: str) -> decoder.Params:
    wanted = targets(spec, shardings)
    size = lambda leaf: leaf.size * leaf.dtype.itemsize
    made = {}
    total = sum(size(leaf) for leaf in wanted.values())
    with progress.Bar(max(1, total // MIB), f"reading {what} (MiB)") as bar:
        done = 0
        for leaf in layout.leaves(spec):
            made[leaf.name] = placing.place(leaf, wanted[leaf.name].sharding, rows)
            done += size(wanted[leaf.name])
            bar.step(done // MIB - bar.done)
    return nested(made)


def _laid(array: np.ndarray, wanted: jax.ShapeDtypeStruct) -> jax.Array:
    """An array of the host over the devices that are asked for."""
    return jax.make_array_from_callback(array.shape, wanted.sharding, lambda index: array[index])


def _frozen(path: Path, own: specs.Spec, spec: specs.Spec, shardings: Any) -> decoder.Params:
    params = checkpoint.load_frozen(path, nested(targets(own, shardings))).params
    if own.param_dtype == spec.param_dtype:
        return params
    return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), params, decoder.abstract(spec))


def _ids(source: folder.Folder) -> int | None:
    """How many ids the tokenizer of the folder has, as far as the embedding has rows for them."""
    if not source.has("tokenizer.json"):
        return None
    value = source.json("tokenizer.json")
    try:
        known = value["model"]["vocab"]
        ids = list(known.values()) if isinstance(known, dict) else [len(known) - 1]
        most = 1 + max([*ids, *(token["id"] for token in value.get("added_tokens") or ())])
        if type(most) is not int or most < 1:
            raise ValueError(f"the largest id is {most - 1}")
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise tensors.Refused(
            f"{source.path / 'tokenizer.json'} is no tokenizer ({type(error).__name__}: {error}): "
            "fetch it again"
        ) from error
    rows = hub_config.text_of(source.config).get("vocab_size")
    return min(most, rows) if type(rows) is int else most


def _same_head(head: tensors.Entry, embed: tensors.Entry) -> None:
    """Raises Refused unless a tied checkpoint's stored head is its embedding."""
    pairs: Iterator[Any] = zip(head.blocks(), embed.blocks(), strict=True)
    same = (head.dtype, head.shape) == (embed.dtype, embed.shape)
    if not same or not all(np.array_equal(a, b) for a, b in pairs):
        raise tensors.Refused(
            f"{head.name} in {head.file} is not the embedding, and config.json says they are tied: "
            "set tie_word_embeddings to false"
        )
