"""Plain chat jsonl: {"messages": [{"role": ..., "content": ...}, ...]} on every line."""

from __future__ import annotations

from collections.abc import Iterator

from mimesis_jax.data import records, rows
from mimesis_jax.data.records import Record

SOURCE = "plain"


def read(paths: rows.Paths, ledger: rows.Ledger | None = None) -> Iterator[Record]:
    """Records of plain chat rows, streamed; .gz accepted. An `id` is kept where there is one.

    Roles: user, assistant, system and tool; the last two are for the agent's chair only, since
    they brief or answer the assistant. Raises as rows.jsonl.
    """
    return rows.jsonl(paths, parse, ledger)


def parse(row: dict, name: str) -> Record:
    """One conversation. Raises rows.Malformed."""
    dialogue = records.conversation(rows.member(row, "messages"), "messages")
    return Record(rows.named(row, "id", name), SOURCE, dialogue)
