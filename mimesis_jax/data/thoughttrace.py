"""ThoughtTrace: conversations whose users told, turn by turn, why they wrote what they wrote."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from mimesis_jax.data import records, rows
from mimesis_jax.data.records import Record

SOURCE = "thoughttrace"
ROLES = {role: records.CHAT[role] for role in ("user", "assistant")}


def read(paths: rows.Paths, ledger: rows.Ledger | None = None) -> Iterator[Record]:
    """Records of ThoughtTrace's jsonl (arXiv 2605.20087), streamed; .gz accepted.

    A human turn's private text is its self-reported reasons, one a line; "" where none was given.
    The user chair's brief is the task summary and the expectation. Trailing assistant turns are
    dropped (MIMESIS, thought-augmented SFT). labels: `reasons` (labels of each human turn),
    `reactions` ([content, label] lists of each reply, the dropped one's included), model, provider.
    Raises as rows.jsonl.
    """
    return rows.jsonl(paths, parse, ledger)


def _notes(message: dict, key: str, at: str) -> list[tuple[str, str | None]]:
    """(content, label) of each reason or reaction; none where the key is missing or null."""
    notes = []
    found = message.get(key)
    for index, note in enumerate([] if found is None else rows.listing(found, f"{at}.{key}")):
        here = f"{at}.{key}[{index}]."
        note = rows.mapping(note, here[:-1])
        content = rows.text(rows.member(note, "content", here), f"{here}content")
        notes.append((content, rows.optional(note, "label", here)))
    return notes


def parse(row: dict, name: str) -> Record:
    """One conversation. Raises rows.Malformed."""
    messages = rows.member(row, "messages")
    spoken = records.conversation(messages, "messages", role="type", roles=ROLES)
    turns, reasons, reactions = [], [], []
    for index, (turn, message) in enumerate(zip(spoken, messages, strict=True)):
        if turn.author == "user":
            told = _notes(message, "reasons", f"messages[{index}]")
            thought = "\n".join(content for content, _ in told if content.strip())
            turn = dataclasses.replace(turn, private=thought)
            reasons.append([label for _, label in told])
        else:
            felt = _notes(message, "reactions", f"messages[{index}]")
            reactions.append([list(note) for note in felt])
        turns.append(turn)
    summary, expectation = (rows.optional(row, f"task_{key}") for key in ("summary", "expectation"))
    return Record(
        id=rows.named(row, "id", name),
        source=SOURCE,
        dialogue=records.brief(summary, expectation) + records.until_last_user(tuple(turns)),
        summary=summary,
        expectation=expectation,
        labels={
            "reasons": reasons,
            "reactions": reactions,
            "model": rows.optional(row, "model_name"),
            "provider": rows.optional(row, "model_provider"),
        },
    )
