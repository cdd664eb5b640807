"""WildChat-1M: real conversations of the public with an assistant, one jsonl row each."""

from __future__ import annotations

from collections.abc import Iterator

from mimesis_jax.data import records, rows
from mimesis_jax.data.records import Record

SOURCE = "wildchat"


def read(paths: rows.Paths, ledger: rows.Ledger | None = None) -> Iterator[Record]:
    """Records of WildChat's rows as jsonl (arXiv 2405.01470), streamed; .gz accepted.

    labels: model, language, toxic, redacted of the row, where given. Raises as rows.jsonl.
    """
    return rows.jsonl(paths, parse, ledger)


def parse(row: dict, name: str) -> Record:
    """One conversation. Raises rows.Malformed."""
    return Record(
        id=rows.named(row, "conversation_hash", name),
        source=SOURCE,
        dialogue=records.conversation(rows.member(row, "conversation"), "conversation"),
        labels={key: row[key] for key in ("model", "language", "toxic", "redacted") if key in row},
    )
