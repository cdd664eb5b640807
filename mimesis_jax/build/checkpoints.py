"""`mimesis convert` and `mimesis inspect`: checkpoints of the hub, GGUF files and our own."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from mimesis_jax import pretrained
from mimesis_jax.chat import published
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import (
    exporting,
    folder,
    gguf,
    gguf_folder,
    hub_config,
    importing,
    keeping,
    layout,
    speaker,
    tensors,
)
from mimesis_jax.runs import disk

Form = Literal["hub", "ours"]
NAMES = {
    "hub": "folder of the hub's layout",
    "gguf": "GGUF file",
    "frozen": "frozen checkpoint of ours",
}


def convert(
    source: Path,
    out: Path,
    *,
    to: Form | None = None,
    dtype: str | None = None,
    origin: Path | None = None,
    allow_nan: bool = False,
) -> str:
    """Writes the checkpoint `source` in another form to the new folder `out`; gives a line on it.

    source: a folder, a .gguf file, or "smollm2", which a package carries.
    to: "ours" or "hub"; the other one of the two when None (ours for a GGUF file).
    dtype: "float32" or "bfloat16" of the parameters; as they are when None.
    origin: the hub folder or GGUF file whose config, tokenizer and vision tensors are taken along
      where the source has none of its own (a checkpoint that was trained here).
    Raises Refused or RunError; `out` is then not there.
    """
    if out.exists() or out.is_symlink():
        raise pretrained.Refused(f"{out} exists already: choose a new folder")
    source = speaker.path_of(source)
    kind = importing.kind_of(source)
    to = to or ("hub" if kind == "frozen" else "ours")
    if origin is None and (kind != "frozen" or (source / "source").is_dir()):
        origin = source
    elif origin is not None:
        origin = speaker.path_of(origin)
    if origin is not None and kind != "hub":  # told before minutes of reading
        exporting.origin_of(origin, pretrained.spec_of(source))
    spec, params = pretrained.load(source, dtype=dtype, allow_nan=allow_nan)
    if to == "ours":
        digest = keeping.keep(out, spec, params, source=origin)
        told = f"hash {digest}"
    else:
        pretrained.save(out, spec, params, source=origin, dtype=dtype)
        told = "the hub's layout"
    kept = out if to == "hub" else out / "source"
    if not any((kept / name).exists() for name in published.FILES):
        told += ", without a tokenizer: none came along"
    count = f"{decoder.parameter_count(spec):,}"
    return f"{out}: {count} parameters in {spec.param_dtype}, {told}"


def inspect(path: Path) -> str:
    """What a checkpoint is, in lines: spec, parameter count, bytes, ignored tensors, hash if ours.

    Reads no weights. Raises Refused when it is none, or is not the model that its config describes.
    """
    path = speaker.path_of(path)
    kind = importing.kind_of(path)
    spec = pretrained.spec_of(path)
    lines: list[tuple[str, Any]] = [("kind", NAMES[kind])]
    lines.append(("parameters", f"{decoder.parameter_count(spec):,}"))
    lines += {"hub": _hub, "gguf": _gguf, "frozen": _frozen}[kind](path, spec)
    known = dataclasses.asdict(spec)
    if "linear" not in spec.period:  # sizes of layers that there are none of
        known = {name: value for name, value in known.items() if not name.startswith("linear_")}
    lines += known.items()
    return "\n".join(f"{name:<18} {value}" for name, value in lines)


def _hub(path: Path, spec: specs.Spec) -> list[tuple[str, Any]]:
    opened = folder.read(path)
    entries = opened.entries()
    account = layout.account(spec, entries, path)
    layout.shapes(spec, account, entries)
    files = {entry.file for entry in entries.values()}
    sizes: collections.Counter[str] = collections.Counter()
    for entry in entries.values():
        sizes[entry.dtype] += entry.size
    by_type = ", ".join(f"{dtype} {size:,}" for dtype, size in sorted(sizes.items()))
    ignored = [entries[name] for name in account.ignored]
    lines = [
        ("family", hub_config.text_of(opened.config)["model_type"]),
        ("bytes", f"{sum(sizes.values()):,} in {_count(len(files), 'file')} ({by_type})"),
        ("ignored", _groups(ignored) or "nothing"),
    ]
    if account.twin:
        lines.append(("stored twice", f"{account.twin} is tied to the embedding"))
    if unread := hub_config.unread(opened.config):
        lines.append(("config not read", ", ".join(unread)))
    lines.append(("taken along", ", ".join(opened.carried()) or "nothing"))
    return lines


def _gguf(path: Path, spec: specs.Spec) -> list[tuple[str, Any]]:
    container = gguf.opened(path)
    gguf.account(container, spec)
    sizes = gguf.bytes_by_type(container)
    by_type = ", ".join(f"{kind} {size:,}" for kind, size in sizes.items())
    return [
        ("bytes", f"{sum(sizes.values()):,} in 1 file ({by_type})"),
        ("ignored", "nothing"),
        ("taken along", ", ".join(gguf_folder.files(container))),
    ]


def _frozen(path: Path, spec: specs.Spec) -> list[tuple[str, Any]]:
    known = disk.read(path / "frozen.json")
    size = sum(file.stat().st_size for file in (path / "params").rglob("*") if file.is_file())
    source = known["meta"].get("source") or {}
    lines = [("hash", known["hash"]), ("bytes", f"{size:,}")]
    kept = path / "source" / folder.IGNORED
    ignored = tensors.header(kept).values() if kept.exists() else ()
    lines.append(("ignored", _groups(ignored) or "nothing"))
    if source.get("name"):
        lines.append(("source", f"{source['name']}: {', '.join(source.get('files', ()))}"))
    return lines


def _groups(entries: Iterable[tensors.Entry]) -> str:
    """Tensors by what they belong to: "297 of model.visual, 15 of mtp (1,234 bytes)"."""
    entries = list(entries)
    if not entries:
        return ""
    name = lambda e: "mtp" if e.name.startswith("mtp.") else ".".join(e.name.split(".")[:2])
    counts = collections.Counter(map(name, entries))
    told = ", ".join(f"{count} of {group}" for group, count in sorted(counts.items()))
    return f"{told} ({sum(entry.size for entry in entries):,} bytes)"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
