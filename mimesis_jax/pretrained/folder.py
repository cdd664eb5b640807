"""A checkpoint folder as the hub lays it out: which files may be read, and what tensors they hold.

A name in the folder is only followed where it stays in the folder. The hub's own download cache is
the one exception: there `snapshots/REVISION/FILE` is a link into the `blobs` of the same
repository, and just that is allowed. Pickles are never opened.
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from mimesis_jax.pretrained import tensors

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
IGNORED = "ignored.safetensors"  # beside our own checkpoints: what the source had besides text
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
TEXT_LIMIT = 1 << 28  # bytes of a json file; a large tokenizer has a tenth of it
CARRIED = (".json", ".txt", ".jinja", ".model", ".tiktoken")
LEGAL = ("LICENSE", "LICENCE", "NOTICE")


@dataclasses.dataclass(frozen=True)
class Folder:
    """path: resolved. config: parsed config.json."""

    path: Path
    config: dict[str, Any]

    def has(self, name: str) -> bool:
        """Whether the name is there; a link that leads nowhere is, and is refused when followed."""
        return os.path.lexists(self.path / name)

    def json(self, name: str) -> Any:
        """The json value of a file in the folder. Raises Refused when it is unsafe or broken."""
        return _json(inside(self.path, name))

    def text(self, name: str) -> str:
        """A text file of the folder. Raises Refused when it is unsafe or no UTF-8."""
        path = inside(self.path, name)
        try:
            return _text(path)
        except UnicodeDecodeError as error:
            raise tensors.Refused(f"{path} is no UTF-8 ({error}): fetch it again") from error

    def entries(self) -> dict[str, tensors.Entry]:
        """All tensors of model.safetensors, else of the files that the index names; none is read.

        Raises Refused when there is neither, or only a pickle; when the index names a file outside
        the folder or misses a tensor; when a file is broken or a tensor lies in two.
        """
        if self.has(SINGLE):
            return tensors.header(inside(self.path, SINGLE))
        if self.has(INDEX):
            return self._indexed()
        _refuse_pickles(self.path)
        raise tensors.Refused(
            f"{self.path} has neither {SINGLE} nor {INDEX}: give the folder of a whole checkpoint"
        )

    def ignored(self) -> dict[str, tensors.Entry]:
        """The tensors that one of our checkpoints keeps aside, {} when there are none."""
        return tensors.header(inside(self.path, IGNORED)) if self.has(IGNORED) else {}

    def carried(self) -> dict[str, Path]:
        """Tokenizer, template, generation and licence files, links followed: what goes along.

        By the name in the folder; in the hub's cache the file itself is called by its hash.
        """
        found = {}
        for file in sorted(self.path.iterdir()):
            named = file.name.startswith(LEGAL) or file.suffix in CARRIED
            weights = file.name == "config.json" or file.name.endswith(".index.json")
            there = file.is_file() or file.is_symlink()
            if there and named and not weights and not file.name.startswith("."):
                found[file.name] = inside(self.path, file.name)
        return found

    def _indexed(self) -> dict[str, tensors.Entry]:
        index = self.json(INDEX)
        names = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(names, dict) or not names:
            raise tensors.Refused(f"{self.path / INDEX} has no weight_map: fetch it again")
        found: dict[str, tensors.Entry] = {}
        places: dict[str, Path] = {}
        for file in sorted({str(name) for name in names.values()}):
            if not file.endswith(".safetensors"):
                raise tensors.Refused(
                    f"{self.path / INDEX} names {file!r}: only .safetensors files are read"
                )
            places[file] = inside(self.path, file)
            entries = tensors.header(places[file])
            if twice := sorted(found.keys() & entries.keys()):
                raise tensors.Refused(f"{twice[0]} lies in two files of {self.path}: remove one")
            found |= entries
        for name, file in names.items():
            if name not in found or found[name].file != places[str(file)]:
                raise tensors.Refused(
                    f"{self.path / INDEX} places {name} in {file}, which lacks it: fetch both again"
                )
        return found


def read(path: str | Path) -> Folder:
    """Opens a checkpoint folder by its config.json; no tensor is read.

    Raises Refused when `path` is no folder, is empty, is a pickle, or its config is no json object.
    """
    path = Path(path)
    if path.suffix in PICKLES:
        raise _pickle(path)
    if not path.is_dir():
        what = "a file" if path.exists() else "not there"
        raise tensors.Refused(f"{path} is {what}: give the folder of config.json, or a .gguf file")
    path = path.resolve()
    if (path / "phases.json").exists() and (path / "models").is_dir():
        models = sorted(model.name for model in (path / "models").iterdir())
        example = f", for example {path / 'models' / models[0]}" if models else ""
        raise tensors.Refused(f"{path} is a run folder: give one of its models{example}")
    if not os.path.lexists(path / "config.json"):
        _refuse_pickles(path)
        what = "has no config.json" if any(path.iterdir()) else "is empty"
        raise tensors.Refused(f"{path} {what}: give the folder of a whole checkpoint")
    config = _json(inside(path, "config.json"))
    if not isinstance(config, dict):
        raise tensors.Refused(f"{path / 'config.json'} is no json object: fetch it again")
    return Folder(path, config)


def inside(folder: Path, name: str) -> Path:
    """The file that `name` means in a (resolved) folder, links followed.

    Raises Refused when it is no plain name, is missing, or leads out of the folder (and not into
    the blobs of the same repository in the hub's cache).
    """
    if not name or name in (".", "..") or any(c in name for c in "/\\\0"):
        raise tensors.Refused(f"{name!r} in {folder} is no plain file name: it is not followed")
    try:
        target = (folder / name).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise tensors.Refused(f"{folder / name} is missing: fetch it again") from error
    rooms = [folder]
    if folder.parent.name == "snapshots":
        rooms.append(folder.parent.parent / "blobs")
    if target.parent not in rooms:
        raise tensors.Refused(
            f"{folder / name} is a link to {target}, out of its folder: copy the file into it"
        )
    if not target.is_file():
        raise tensors.Refused(f"{folder / name} is no file: give the folder of a whole checkpoint")
    return target


def _text(path: Path) -> str:
    """Raises Refused when the file is too large, UnicodeDecodeError when it is no UTF-8."""
    if (size := path.stat().st_size) > TEXT_LIMIT:
        raise tensors.Refused(f"{path} has {size} bytes, more than {TEXT_LIMIT}: it is no text")
    return path.read_text(encoding="utf-8")


def _json(path: Path) -> Any:
    try:
        return json.loads(_text(path))
    except tensors.Refused:
        raise
    except (ValueError, RecursionError) as error:
        raise tensors.Refused(f"{path} is no json ({error}): fetch it again") from error


def _refuse_pickles(path: Path) -> None:
    for file in sorted(path.iterdir()):
        if file.suffix in PICKLES:
            raise _pickle(file)


def _pickle(path: Path) -> tensors.Refused:
    return tensors.Refused(
        f"{path} is a pickle, which runs code when it is opened, so it was not: "
        "give the same checkpoint as .safetensors"
    )
