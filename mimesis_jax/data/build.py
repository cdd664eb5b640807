"""Datasets built from raw files and described: the work of `mimesis data build` and `data show`."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mimesis_jax.data import records, rows, sources


@dataclasses.dataclass(frozen=True)
class Built:
    """What `build` did. path: the dataset folder; counts: records by split; bad: rows left out."""

    kind: str
    path: Path
    counts: dict[str, int]
    bad: int
    faults: tuple[rows.Fault, ...]

    def __str__(self) -> str:
        listed = ", ".join(f"{split} {count}" for split, count in self.counts.items())
        lines = [f"{self.kind}: {listed} records in {self.path}"]
        if self.bad:
            lines.append(f"{self.bad} malformed rows were left out, the first of them:")
            lines += [f"  {fault}" for fault in self.faults]
        return "\n".join(lines)


def build(
    kind: str,
    source: rows.Paths | Mapping[str, rows.Paths],
    out: str | os.PathLike[str],
    *,
    max_bad_share: float = 0.01,
    say: Callable[[str], None] = print,
    **options: Any,
) -> Built:
    """Reads source files and writes them as a tfds dataset (ArrayRecord) into the folder `out`.

    kind: thoughttrace, abcd, wildchat, lmsys, prism, plain or desk (sources.KINDS).
    source: a file, several, or {split: files}. Without split names all is "train", except where
      the files name splits themselves (abcd).
    out: must not exist or be empty. It is written beside its place and renamed when whole, so a
      folder that exists is complete. Read it with builders.Stored(out, split).
    max_bad_share: share of malformed rows in [0, 1] past which the build stops.
    options: the kind's own: abcd text="delexed"; prism utterances=, survey=.
    say: gets what is worth telling: counts and malformed rows.
    Raises FileExistsError for a non-empty out, rows.TooManyMalformed, FileNotFoundError,
    ValueError for an unknown kind, a broken file, a split without a record.
    """
    from mimesis_jax.data import builders  # brings tfds

    sources.kind(kind)
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out} exists and is not empty: name a new folder or remove it")
    ledger, counts = rows.Ledger(max_bad_share), dict[str, int]()
    feed = _feed(builders, kind, source, ledger, options)
    counted = {name: _count(name, read, counts) for name, read in feed.items()}
    out.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=f".{out.name}.partial-", dir=out.parent))
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # tfds prints of downloads; there are none
            builder = builders.BUILDERS[kind](data_dir=partial, feed=counted)
            builder.download_and_prepare()
        shutil.rmtree(partial / "downloads", ignore_errors=True)
        partial.chmod(0o755)  # mkdtemp's folders are their owner's only
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    done = Built(kind, builders.folder(out), counts, ledger.bad, tuple(ledger.faults))
    say(str(done))
    return done


def _feed(builders, kind: str, source, ledger: rows.Ledger, options: dict[str, Any]) -> dict:
    """{split: function to records} of one file, several, or {split: files}."""
    if not isinstance(source, Mapping):
        return builders.from_files(kind, source, ledger, **options)
    read = sources.kind(kind).read
    return {
        split: lambda paths=paths: read(paths, ledger, **options) for split, paths in source.items()
    }


def _count(split: str, read: Callable, counts: dict[str, int]) -> Callable:
    def counted():
        counts[split] = 0
        for record in read():
            counts[split] += 1
            yield record
        if not counts[split]:
            raise ValueError(f"split {split!r} holds no record: leave it out or mend its files")

    return counted


@dataclasses.dataclass(frozen=True)
class Description:
    """A dataset on disk. counts: records by split; size: bytes; first: the first record's JSON."""

    name: str
    version: str
    path: Path
    description: str
    citation: str
    licence: str
    counts: dict[str, int]
    size: int
    first: dict[str, Any]

    def __str__(self) -> str:
        listed = ", ".join(f"{split} {count}" for split, count in self.counts.items())
        lines = [
            f"{self.name} {self.version} in {self.path}",
            self.description,
            f"citation  {self.citation or '-'}",
            f"licence   {self.licence or '-'}",
            f"records   {listed} ({self.size / 1e6:.1f} MB)",
            f"first     {self.first['id']}",
        ]
        for turn in self.first["turns"]:
            seen = f" (for the {turn['only']} only)" if "only" in turn else ""
            if turn.get("private"):
                lines.append(f"  {turn['author']} thinks: {_short(turn['private'])}")
            lines.append(f"  {turn['author']}{seen}: {_short(turn['public'])}")
        return "\n".join(lines)


def _short(text: str, width: int = 90) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 3]}..."


def describe(path: str | os.PathLike[str]) -> Description:
    """What a dataset folder holds: `print(describe(path))` is what `mimesis data show` shows.

    path: the dataset's folder or the one it lies under. Raises FileNotFoundError, ValueError.
    """
    from mimesis_jax.data import builders  # brings tfds

    info = builders.tfds.builder_from_directory(builders.folder(path)).info
    counts = {split: part.num_examples for split, part in info.splits.items()}
    split = "train" if "train" in counts else next(iter(counts))
    return Description(
        name=info.name,
        version=str(info.version),
        path=builders.folder(path),
        description=info.description,
        citation=info.citation,
        licence=info.redistribution_info.license,
        counts=counts,
        size=int(info.dataset_size),
        first=records.to_json(builders.Stored(path, split)[0]),
    )
