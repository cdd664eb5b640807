"""Our own played dialogues ("desk"): records written by rollouts as jsonl, read back unchanged."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from mimesis_jax.data import records, rows
from mimesis_jax.data.records import Record

SOURCE = "desk"


def read(paths: rows.Paths, ledger: rows.Ledger | None = None) -> Iterator[Record]:
    """Records of jsonl that `write` wrote, streamed; .gz accepted. Raises as rows.jsonl."""
    return rows.jsonl(paths, records.from_json, ledger)


def write(path: str | os.PathLike[str], played: Iterable[Record]) -> int:
    """Writes records as jsonl (whole or not at all) and returns how many there were.

    Raises ValueError for labels that JSON cannot hold (NaN).
    """
    path, count = Path(path), 0
    partial = path.with_name(f"{path.name}.partial")
    with open(partial, "w", encoding="utf-8") as file:
        for record in played:
            file.write(records.to_line(record) + "\n")
            count += 1
    partial.replace(path)
    return count
