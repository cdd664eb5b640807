"""LMSYS-Chat-1M: conversations with many models (gated: fetched by the user, read from disk)."""

from __future__ import annotations

from collections.abc import Iterator

from mimesis_jax.data import records, rows
from mimesis_jax.data.records import Record

SOURCE = "lmsys"


def read(paths: rows.Paths, ledger: rows.Ledger | None = None) -> Iterator[Record]:
    """Records of LMSYS-Chat-1M's rows as jsonl (arXiv 2309.11998), streamed; .gz accepted.

    labels: model, language, redacted of the row, where given. Raises as rows.jsonl.
    """
    return rows.jsonl(paths, parse, ledger)


def parse(row: dict, name: str) -> Record:
    """One conversation. Raises rows.Malformed."""
    return Record(
        id=rows.named(row, "conversation_id", name),
        source=SOURCE,
        dialogue=records.conversation(rows.member(row, "conversation"), "conversation"),
        labels={key: row[key] for key in ("model", "language", "redacted") if key in row},
    )
