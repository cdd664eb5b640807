"""Datasets on disk: tfds builders that write records as ArrayRecord, and random access to them.

tfds reads and writes ArrayRecord without TensorFlow as long as nothing asks for a tf.data.Dataset;
`as_data_source` never does. Import this file only where a dataset is built or read: it brings tfds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

from mimesis_jax.data import rows, sources
from mimesis_jax.data.records import Record
from mimesis_jax.types import Turn

Feed = Mapping[str, Callable[[], Iterable[Record]]]
FORMAT = "array_record"
_NONE = ("persona", "summary", "expectation")


def features() -> tfds.features.FeaturesDict:
    """A record as tfds keeps it. What may be None is a list of none or one; labels are JSON."""
    text = tfds.features.Text
    turn = {"author": text(), "public": text(), "private": text(), "thought": np.bool_}
    maybe = {key: tfds.features.Sequence(text()) for key in _NONE}
    fields = {"id": text(), "source": text(), "labels": text()}
    turns = tfds.features.Sequence(turn | {"only": text()})
    return tfds.features.FeaturesDict(fields | maybe | {"turns": turns})


def encode(record: Record) -> dict[str, Any]:
    """The record as an example of `features()`. Raises ValueError for labels JSON cannot hold."""
    example: dict[str, Any] = {"id": record.id, "source": record.source}
    example["labels"] = json.dumps(record.labels, ensure_ascii=False, allow_nan=False)
    for key in _NONE:
        value = getattr(record, key)
        example[key] = [] if value is None else [value]
    example["turns"] = [
        {
            "author": turn.author,
            "public": turn.public,
            "private": turn.private or "",
            "thought": turn.private is not None,  # "" is a thought too, an empty one
            "only": turn.only or "",
        }
        for turn in record.dialogue
    ]
    return example


def decode(example: Mapping[str, Any]) -> Record:
    """The inverse of `encode`, for an example as the data source returns it (bytes, arrays)."""
    turns = example["turns"]
    columns = (turns[key] for key in ("author", "public", "private", "thought", "only"))
    dialogue = tuple(
        Turn(
            author.decode(),
            public.decode(),
            private.decode() if thought else None,
            only.decode() or None,
        )
        for author, public, private, thought, only in zip(*columns, strict=True)
    )
    meta = {key: example[key][0].decode() if len(example[key]) else None for key in _NONE}
    labels = json.loads(example["labels"])
    name, source = example["id"].decode(), example["source"].decode()
    return Record(id=name, source=source, dialogue=dialogue, labels=labels, **meta)


class Conversations(tfds.core.GeneratorBasedBuilder, skip_registration=True):  # type: ignore[call-arg]
    """What the builders below share: features, and examples out of records.

    feed: for each split, a function that yields its records. None: the kind's files in the folder
      that tfds calls manual_dir are read, each file's own splits kept.
    """

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES = {"1.0.0": "First form: turns with private text and the chair that sees them."}
    MANUAL_DOWNLOAD_INSTRUCTIONS = "Put the data set's own files into the manual folder."
    # tfds would look for it through importlib_resources, which it declares for Python 3.8 only.
    code_path = Path(__file__)
    kind = ""

    def __init__(self, *, feed: Feed | None = None, **kwargs):
        self._feed = feed
        super().__init__(file_format=FORMAT, **kwargs)

    def _info(self) -> tfds.core.DatasetInfo:
        kind = sources.kind(self.kind)
        return tfds.core.DatasetInfo(
            builder=self,
            description=kind.description,
            features=features(),
            citation=kind.citation,
            license=kind.licence,
            disable_shuffling=True,  # the pipeline shuffles; on disk the file's order is kept
        )

    def _split_generators(self, dl_manager) -> dict[str, Iterator[tuple[int, dict]]]:
        feed = self._feed
        if feed is None:
            folder = Path(dl_manager.manual_dir)
            feed = from_files(self.kind, sorted(folder.glob(sources.kind(self.kind).files)))
        return {split: self._generate_examples(read) for split, read in feed.items()}

    def _generate_examples(self, read) -> Iterator[tuple[int, dict]]:
        for number, record in enumerate(read()):
            yield number, encode(record)


class Thoughttrace(Conversations):
    kind = "thoughttrace"


class Abcd(Conversations):
    kind = "abcd"


class Wildchat(Conversations):
    kind = "wildchat"


class Lmsys(Conversations):
    kind = "lmsys"


class Prism(Conversations):
    kind = "prism"


class Plain(Conversations):
    kind = "plain"


class Desk(Conversations):
    kind = "desk"


BUILDERS: dict[str, type[Conversations]] = {
    builder.kind: builder for builder in (Thoughttrace, Abcd, Wildchat, Lmsys, Prism, Plain, Desk)
}


def from_files(
    kind: str, paths: rows.Paths, ledger: rows.Ledger | None = None, **options: Any
) -> dict[str, Callable[[], Iterator[Record]]]:
    """A feed that reads files: one split, "train", or the splits that the files themselves hold.

    ledger: shared by all splits; None gives each a new one. options: the kind's own (see `read`).
    """
    source = sources.kind(kind)
    if source.splits is None:
        return {"train": lambda: source.read(paths, ledger, **options)}
    return {
        split: (lambda split=split: source.read(paths, ledger, split=split, **options))  # type: ignore[misc]
        for split in source.splits(paths)
    }


def folder(path: str | os.PathLike[str]) -> Path:
    """The one dataset folder at or under `path` (the one with dataset_info.json).

    Raises FileNotFoundError where there is none, ValueError where there are several.
    """
    found = [Path(path)] if (Path(path) / "dataset_info.json").is_file() else []
    found = found or sorted(f.parent for f in Path(path).glob("*/*/dataset_info.json"))
    if not found:
        raise FileNotFoundError(f"{path} holds no dataset: build one there first")
    if len(found) > 1:
        listed = ", ".join(str(one) for one in found)
        raise ValueError(f"{path} holds several datasets, name one of them: {listed}")
    return found[0]


class Stored:
    """The records of one split of a dataset on disk, by number (random access; a pipeline source).

    path: the dataset's folder, or the one it lies under. Raises FileNotFoundError, ValueError.
    """

    def __init__(self, path: str | os.PathLike[str], split: str = "train"):
        self.path, self.split = folder(path), split
        builder = tfds.builder_from_directory(self.path)
        if split not in builder.info.splits:
            known = ", ".join(sorted(builder.info.splits))
            raise ValueError(f"{self.path} has no split {split!r}: use one of {known}")
        self._rows = builder.as_data_source(split=split)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Record:
        if not -len(self) <= index < len(self):
            raise IndexError(f"record {index} of {len(self)} in {self}")
        return decode(self._rows[index % len(self)])

    def __repr__(self) -> str:
        return f"Stored({str(self.path)!r}, {self.split!r})"
