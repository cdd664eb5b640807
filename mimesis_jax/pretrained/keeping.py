"""Parameters into a frozen checkpoint of ours, with all that is needed to give them back.

DST/params, DST/frozen.json     the frozen parameters; the spec and the source's files recorded
DST/source/                     its config, tokenizer, template, generation and licence files
DST/source/ignored.safetensors  its vision and mtp tensors, when it had some
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import exporting, folder, tensors
from mimesis_jax.runs import checkpoint


def keep(
    path: str | Path, spec: specs.Spec, params: decoder.Params, *, source: str | Path | None = None
) -> str:
    """Freezes parameters in the new folder `path`; gives their content hash.

    source: what they came from (see exporting.save), None when there is nothing to take along.
    The folder appears whole or not at all. Raises Refused when it exists, or the source is of
    another model; RunError when it cannot be written.
    """
    path = Path(path)
    named = exporting.checked(spec, params)
    origin = None if source is None else exporting.origin_of(source, spec)
    extra = origin.extra if origin else ()
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in named.values())
    with exporting.appearing(path, size + sum(entry.size for entry in extra)) as partial:
        meta: dict[str, Any] = {"spec": dataclasses.asdict(spec)}
        files = origin.files if origin else {}
        meta["source"] = {
            "name": Path(source).name if source else None,
            "files": {name: _sum(file) for name, file in files.items()},
            "ignored": [entry.name for entry in extra],
        }
        whole = partial / "whole"  # inside, so that a broken-off save goes with its surroundings
        digest = checkpoint.save_frozen(whole, params, meta)
        for made in whole.iterdir():
            made.rename(partial / made.name)
        whole.rmdir()
        if origin is not None:
            (partial / "source").mkdir()
            exporting.lay(partial / "source", files)
            if extra:
                contents = [exporting.copied(entry) for entry in extra]
                tensors.write(partial / "source" / folder.IGNORED, contents)
    return digest


def _sum(file: Path | bytes) -> str:
    if isinstance(file, bytes):
        return hashlib.sha256(file).hexdigest()
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
