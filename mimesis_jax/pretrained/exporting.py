"""Parameters into a folder of the hub's layout, whole or not at all."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import (
    folder,
    fresh_config,
    gguf,
    gguf_folder,
    hub_config,
    importing,
    layout,
    placing,
    tensors,
)
from mimesis_jax.runs import disk, progress

SHARD = 5 * 10**9  # bytes of a file above which a second one is begun
NEUTRAL = dict(dtype="float32", param_dtype="float32", chunk=64, vocab_real=1, init_std=0.02)


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where parameters came from.

    config: its parsed config.json. files: what is taken along, config.json too, by name: where it
    lies, or its bytes. prefix: of its names. extra: its vision and mtp tensors.
    """

    config: dict[str, Any]
    files: dict[str, Path | bytes]
    prefix: str
    extra: tuple[tensors.Entry, ...]


def save(
    path: str | Path,
    spec: specs.Spec,
    params: decoder.Params,
    *,
    source: str | Path | None = None,
    dtype: str | None = None,
    shard: int = SHARD,
) -> None:
    """Writes a checkpoint folder that transformers and servers load with nothing missing.

    path: a folder that does not exist yet; it appears when it is whole.
    params: as decoder.init builds them, all of it addressable from this process.
    source: the folder, frozen checkpoint or GGUF file that the parameters came from: its config,
      tokenizer, template, generation and licence files are taken along, its names kept, and its
      vision and mtp tensors copied through. Without one the config is made from the spec.
    dtype: "float32" or "bfloat16"; the parameters' own when None. Decay and gated norm: float32.
    shard: bytes of a file above which an index is written and a next file begun.

    Raises Refused when the folder exists, the parameters or the source are of another model, no
    family of the hub is such a decoder, or the disk has no room; nothing is left then.
    """
    path = Path(path)
    if shard < 1:
        raise tensors.Refused(f"shard is {shard} bytes: give at least 1")
    if dtype not in (None, *tensors.CODES):
        raise tensors.Refused(f"dtype {dtype!r} is none: use one of {', '.join(tensors.CODES)}")
    named = checked(spec, params)
    origin = None if source is None else origin_of(source, spec)
    stored = dtype or str(named["embed"].dtype)
    config = _config(spec, origin, stored)
    contents = _text(spec, named, origin.prefix if origin else "model.", dtype)
    if origin is not None:
        contents += [copied(entry) for entry in origin.extra]
    with appearing(path, sum(content.size for content in contents)) as partial:
        _shards(partial, contents, shard, path.name)
        if origin is not None:
            lay(partial, origin.files)
        disk.write(partial / "config.json", config)


@contextlib.contextmanager
def appearing(path: Path, size: int) -> Iterator[Path]:
    """A folder beside `path` that is renamed to it when the block ends well, and removed if not.

    size: bytes that will be written. Raises Refused when `path` exists or the disk has no room.
    """
    if path.exists() or path.is_symlink():
        raise tensors.Refused(f"{path} exists already: choose a new folder, nothing is overwritten")
    there = next(parent for parent in path.absolute().parents if parent.exists())
    if (free := shutil.disk_usage(there).free) < size:
        raise tensors.Refused(f"{path} needs {size} bytes, the disk has {free}: free some space")
    partial = path.absolute().with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir(parents=True)
        yield partial
        partial.rename(path)
    except OSError as error:
        raise disk.explain(error, path) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def checked(spec: specs.Spec, params: decoder.Params) -> dict[str, Any]:
    """The parameters by dotted path. Raises Refused naming one that is not the Spec's."""
    flat = jax.tree_util.tree_leaves_with_path(params)
    named = {importing.dotted(keys): leaf for keys, leaf in flat}
    wanted = {leaf.name: leaf for leaf in layout.leaves(spec)}
    if odd := sorted(wanted.keys() ^ named.keys()):
        raise tensors.Refused(f"parameters and spec differ in {', '.join(odd[:5])}: give its own")
    for name, leaf in named.items():
        if leaf.shape != wanted[name].shape or str(leaf.dtype) not in tensors.CODES:
            raise tensors.Refused(
                f"{name} is {leaf.dtype}{list(leaf.shape)}, the spec wants "
                f"{list(wanted[name].shape)} in {' or '.join(tensors.CODES)}"
            )
        if not getattr(leaf, "is_fully_addressable", True):
            raise tensors.Refused(f"{name} lies partly on other hosts: gather the parameters first")
    return named


def origin_of(source: str | Path, spec: specs.Spec) -> Origin:
    """Opens the source of parameters. Raises Refused when it is of another model than `spec`."""
    path, kind = Path(source), importing.kind_of(source)
    if kind == "gguf":
        container = gguf.opened(path)
        _same_model(source, spec, gguf.spec_of(container))
        made = gguf_folder.files(container)
        return Origin(json.loads(made["config.json"]), {**made}, layout.PREFIXES[-1], ())
    opened = folder.read(path / "source" if kind == "frozen" else path)
    theirs = importing.spec_in(opened)
    _same_model(source, spec, theirs)
    files: dict[str, Path | bytes] = {
        "config.json": folder.inside(opened.path, "config.json"), **opened.carried()
    }  # fmt: skip
    if kind == "frozen":
        prefix = layout.PREFIXES["text_config" not in opened.config]
        return Origin(opened.config, files, prefix, tuple(opened.ignored().values()))
    entries = opened.entries()
    account = layout.account(theirs, entries, path)
    extra = tuple(entries[n] for n in account.ignored if not n.endswith("rotary_emb.inv_freq"))
    return Origin(opened.config, files, account.prefix, extra)


def _same_model(source: str | Path, spec: specs.Spec, theirs: specs.Spec) -> None:
    for field in dataclasses.fields(specs.Spec):
        here, there = getattr(spec, field.name), getattr(theirs, field.name)
        if field.name not in NEUTRAL and here != there:
            raise tensors.Refused(
                f"{source} has {field.name} {there}, the parameters {here}: it is not their source"
            )


def lay(where: Path, files: Mapping[str, Path | bytes]) -> None:
    """Writes the files of an Origin into a folder. Raises OSError."""
    for name, file in files.items():
        if isinstance(file, bytes):
            (where / name).write_bytes(file)
        else:
            shutil.copyfile(file, where / name)


def copied(entry: tensors.Entry) -> tensors.Content:
    """A tensor as it lies in another file."""
    return tensors.Content(entry.name, entry.dtype, entry.shape, entry.blocks())


def _config(spec: specs.Spec, origin: Origin | None, stored: str) -> dict[str, Any]:
    if origin is None:
        return fresh_config.config_of(dataclasses.replace(spec, param_dtype=stored))
    config = copy.deepcopy(origin.config)
    text: Any = hub_config.text_of(config)
    places = [(c, n) for c in (config, text) for n in ("dtype", "torch_dtype") if n in c]
    for part, name in places or [(text, "dtype")]:
        part[name] = stored
    return config


def _text(
    spec: specs.Spec, named: dict[str, Any], prefix: str, dtype: str | None
) -> list[tensors.Content]:
    """The text model's tensors; their parts are made when they are written."""
    kept = {leaf.name: leaf.dtype for leaf in layout.leaves(_bfloat16(spec))}  # float32 there: kept
    found: dict[str, list[tuple[layout.Leaf, int]]] = {}
    for leaf in layout.leaves(spec):
        for period, piece in enumerate(leaf.pieces):
            found.setdefault(piece.name, []).append((leaf, period))
    contents = []
    for name, sources in found.items():
        sources.sort(key=lambda pair: pair[0].pieces[pair[1]].start)
        leaf, period = sources[0]
        own = str(named[leaf.name].dtype)
        chosen = own if dtype is None else ("float32" if kept[leaf.name] == "float32" else dtype)
        shape, code = leaf.pieces[period].shape, tensors.CODES[chosen]
        parts = _parts(named, sources, chosen)
        contents.append(tensors.Content(layout.full(prefix, name), code, shape, parts))
    return contents


def _bfloat16(spec: specs.Spec) -> specs.Spec:
    return dataclasses.replace(spec, param_dtype="bfloat16")


def _parts(named, sources: Sequence[tuple[layout.Leaf, int]], dtype: str) -> Iterator[np.ndarray]:
    for leaf, period in sources:
        piece = leaf.pieces[period]
        back = tuple(int(i) for i in np.argsort(piece.turn))
        index, whole = period if leaf.stacked else None, named[leaf.name]
        if whole.nbytes <= placing.BLOCK:  # not worth a program
            part = np.asarray(whole if index is None else whole[index])
            yield part.transpose(back).astype(dtype)
        else:
            yield np.asarray(_take(whole, index, turn=back, dtype=dtype))


@functools.partial(jax.jit, static_argnames=("turn", "dtype"))
def _take(whole: jax.Array, index: jax.Array | None, *, turn, dtype: str) -> jax.Array:
    part = whole if index is None else jax.lax.dynamic_index_in_dim(whole, index, keepdims=False)
    return part.transpose(turn).astype(jnp.dtype(dtype))


def _shards(folder_: Path, contents: list[tensors.Content], limit: int, what: str) -> None:
    """Writes the tensors, layers together, into one file or into several and an index."""
    number = lambda text: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", text)]
    groups: list[list[tensors.Content]] = [[]]
    for content in sorted(contents, key=lambda c: number(c.name)):
        if groups[-1] and sum(c.size for c in groups[-1]) + content.size > limit:
            groups.append([])
        groups[-1].append(content)
    total = sum(content.size for content in contents)
    names = [f"model-{i + 1:05d}-of-{len(groups):05d}.safetensors" for i in range(len(groups))]
    names = [folder.SINGLE] if len(groups) == 1 else names
    with progress.Bar(max(1, total // importing.MIB), f"writing {what} (MiB)") as bar:
        for name, group in zip(names, groups, strict=True):
            tensors.write(folder_ / name, [_told(content, bar) for content in group])
    if len(groups) > 1:
        where = {c.name: name for name, g in zip(names, groups, strict=True) for c in g}
        index = {"metadata": {"total_size": total}, "weight_map": where}
        disk.write(folder_ / folder.INDEX, index)


def _told(content: tensors.Content, bar: progress.Bar) -> tensors.Content:
    """The same tensor; the bar hears when its parts have been taken."""

    def parts():
        yield from content.parts
        bar.step(content.size // importing.MIB)

    return dataclasses.replace(content, parts=parts())
