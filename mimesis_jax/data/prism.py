"""PRISM: people of many countries, each talking to several models and choosing among replies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from mimesis_jax.data import records, rows
from mimesis_jax.data.records import Record
from mimesis_jax.types import Turn

SOURCE = "prism"
LABELS = ("user_id", "conversation_type", "open_feedback")


def read(
    conversations: rows.Paths,
    ledger: rows.Ledger | None = None,
    *,
    utterances: rows.Paths | None = None,
    survey: rows.Paths | None = None,
) -> Iterator[Record]:
    """Records of PRISM (arXiv 2404.16019), streamed by conversation; .gz accepted.

    conversations: `conversations.jsonl`; a row's `conversation_history` holds prompts and all
      replies, of which the chosen one is kept (the rest never became part of the talk).
    utterances: `utterances.jsonl`, for conversation rows without a history: found by
      `conversation_id` through an index of file positions, read when needed.
    survey: `survey.jsonl`; a user's `self_description` becomes the persona and the brief.
    A turn without a chosen reply, or with different chosen ones, is malformed.
    labels: user_id, conversation_type, open_feedback. Raises as rows.jsonl.
    """
    ledger = rows.Ledger() if ledger is None else ledger
    personas = _personas(survey, ledger) if survey is not None else {}
    with contextlib.ExitStack() as files:
        spoken = _Utterances(utterances, files) if utterances is not None else None
        parse = lambda row, name: parse_conversation(row, name, personas, spoken)
        yield from rows.jsonl(conversations, parse, ledger)


def _personas(survey: rows.Paths, ledger: rows.Ledger) -> dict[str, str]:
    """Self-description by user id: 1,500 people, a few hundred words each."""

    def parse(row: dict, name: str) -> tuple[str, str | None]:
        return rows.text(rows.member(row, "user_id"), "user_id"), rows.optional(
            row, "self_description"
        )

    # Judged by a ledger of its own: a bad survey must not hide among good conversations.
    own = rows.Ledger(ledger.max_bad_share, ledger.keep)
    return {user: told for user, told in rows.jsonl(survey, parse, own) if told is not None}


class _Utterances:
    """Rows of utterances by conversation, read from disk by position when asked for."""

    def __init__(self, paths: rows.Paths, files: contextlib.ExitStack):
        self._files: list[tuple[Path, IO[bytes]]] = []
        self._places: dict[str, list[tuple[int, int]]] = {}
        for path in rows.each(paths):
            file = files.enter_context(rows.opened(path))
            self._files.append((path, file))
            while True:
                start = file.tell()
                if not (raw := file.readline(rows.MAX_ROW_BYTES)):
                    break
                try:
                    row = rows.decoded(raw)
                except rows.Malformed:
                    continue  # its conversation is then short of a turn, and named for that
                if isinstance(row, dict) and isinstance(row.get("conversation_id"), str):
                    places = self._places.setdefault(row["conversation_id"], [])
                    places.append((len(self._files) - 1, start))

    def history(self, conversation: str) -> list[dict[str, Any]]:
        """The conversation's rows in the shape of a `conversation_history`."""
        history: list[dict[str, Any]] = []
        for number, start in self._places.get(conversation, []):
            path, file = self._files[number]
            file.seek(start)
            row = rows.decoded(file.readline(rows.MAX_ROW_BYTES))
            said = {"turn": row.get("turn")}
            at = {"role": "user", "content": row.get("user_prompt")}
            if not any(item["turn"] == row.get("turn") for item in history):
                history.append(said | at)
            reply = {"role": "model", "content": row.get("model_response")}
            history.append(said | reply | {"if_chosen": row.get("if_chosen")})
        return history


def parse_conversation(
    row: dict, name: str, personas: dict[str, str], spoken: _Utterances | None = None
) -> Record:
    """One conversation. Raises rows.Malformed."""
    history, field = row.get("conversation_history"), "conversation_history"
    if history is None and spoken is not None:
        history = spoken.history(rows.named(row, "conversation_id", name))
        field = "utterances"
    if history is None:
        raise rows.Malformed(field, "is missing: give the utterances file too")
    user = rows.optional(row, "user_id")
    persona = personas.get(user) if user is not None else None
    return Record(
        id=rows.named(row, "conversation_id", name),
        source=SOURCE,
        dialogue=records.brief(persona) + _turns(rows.listing(history, field), field),
        persona=persona,
        labels={key: row[key] for key in LABELS if key in row},
    )


def _turns(history: list, field: str) -> tuple[Turn, ...]:
    """Prompt, chosen reply, prompt, chosen reply ... in order of the items' `turn` number."""
    prompts: dict[int, str] = {}
    chosen: dict[int, str] = {}
    for index, item in enumerate(history):
        at = f"{field}[{index}]"
        item = rows.mapping(item, at)
        turn = rows.member(item, "turn", f"{at}.")
        if not isinstance(turn, int) or isinstance(turn, bool):
            raise rows.Malformed(f"{at}.turn", "is not a whole number")
        role = rows.member(item, "role", f"{at}.")
        if role not in ("user", "model"):
            raise rows.Malformed(f"{at}.role", f"{role!r} is not one of user, model")
        if role == "model" and item.get("if_chosen") is not True:
            continue
        said = rows.text(rows.member(item, "content", f"{at}."), f"{at}.content")
        if role == "user" and not said.strip():
            raise rows.Malformed(f"{at}.content", "is a blank human turn")
        # Two models may give one reply word for word, and both are then marked as chosen.
        if (prompts if role == "user" else chosen).setdefault(turn, said) != said:
            raise rows.Malformed(f"{at}.content", f"turn {turn} has two different {role} texts")
    if missing := sorted(prompts.keys() ^ chosen.keys()):
        raise rows.Malformed(field, f"turn {missing[0]} lacks its prompt or its chosen reply")
    pairs = ((Turn("user", prompts[t]), Turn("agent", chosen[t])) for t in sorted(prompts))
    return records.spoken((turn for pair in pairs for turn in pair), field)
