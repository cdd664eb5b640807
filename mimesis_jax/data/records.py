"""The record: a dialogue and where it comes from, as every loader yields it and tfds keeps it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from mimesis_jax import types
from mimesis_jax.data import rows
from mimesis_jax.types import Author, Chair, Dialogue, Turn

# Role in a chat file -> author and, where only one chair sees it, which.
CHAT: Mapping[str, tuple[Author, Chair | None]] = {
    "user": ("user", None),
    "assistant": ("agent", None),
    "system": ("system", "agent"),
    "tool": ("tool", "agent"),
}


@dataclasses.dataclass(frozen=True)
class Record:
    """One dialogue of a source.

    id: unique in its source. source: the source's short name ("wildchat", "desk").
    dialogue: human turns have author "user", the assistant's author "agent".
    persona, summary, expectation: who the user is, what they came for, what they hoped to get.
    labels: whatever else is worth keeping, as plain JSON values (lists, not tuples).
    """

    id: str
    source: str
    dialogue: Dialogue
    persona: str | None = None
    summary: str | None = None
    expectation: str | None = None
    labels: dict[str, Any] = dataclasses.field(default_factory=dict)


def brief(*parts: str | None) -> tuple[Turn, ...]:
    """What the user chair knows beforehand, as a system turn for its eyes only; () for nothing.

    parts: persona, task summary, expectation (MIMESIS, section on thought-augmented SFT); those
      that are None are left out, the rest are set a blank line apart.
    """
    told = "\n\n".join(part for part in parts if part is not None)
    return (Turn("system", told, only="user"),) if told else ()


def conversation(
    messages: Any,
    field: str,
    *,
    role: str = "role",
    content: str = "content",
    roles: Mapping[str, tuple[Author, Chair | None]] = CHAT,
) -> Dialogue:
    """Turns of a list of chat messages `{role, content}`, checked.

    field: path of the list in its row, for errors. role, content: names of the two keys.
    roles: what each role becomes. Raises rows.Malformed; a list without a human turn and a blank
    human turn are malformed, since there is nothing in them to learn.
    """
    turns = []
    for index, message in enumerate(rows.listing(messages, field)):
        at = f"{field}[{index}]"
        message = rows.mapping(message, at)
        name = rows.text(rows.member(message, role, f"{at}."), f"{at}.{role}")
        if name not in roles:
            raise rows.Malformed(f"{at}.{role}", f"{name!r} is not one of {', '.join(roles)}")
        said = rows.text(rows.member(message, content, f"{at}."), f"{at}.{content}")
        author, only = roles[name]
        if author == "user" and not said.strip():
            raise rows.Malformed(f"{at}.{content}", "is a blank human turn")
        turns.append(Turn(author, said, only=only))
    return spoken(turns, field)


def spoken(turns: Iterable[Turn], field: str) -> Dialogue:
    """The turns as a Dialogue, when a human says something in it. Raises rows.Malformed."""
    dialogue = tuple(turns)
    if not dialogue:
        raise rows.Malformed(field, "is empty")
    if not any(turn.author == "user" for turn in dialogue):
        raise rows.Malformed(field, "holds no human turn")
    return dialogue


def until_last_user(dialogue: Dialogue) -> Dialogue:
    """The dialogue without the turns after the last human one: nothing learned follows them."""
    last = max((i for i, turn in enumerate(dialogue) if turn.author == "user"), default=-1)
    return dialogue[: last + 1]


# --- as JSON ----------------------------------------------------------------------------------


def to_json(record: Record) -> dict[str, Any]:
    """The record as a JSON object that `from_json` reads back to an equal record."""
    turns = []
    for turn in record.dialogue:
        row: dict[str, Any] = {"author": turn.author, "public": turn.public}
        if turn.private is not None:
            row["private"] = turn.private
        if turn.only is not None:
            row["only"] = turn.only
        turns.append(row)
    row = {"id": record.id, "source": record.source, "turns": turns}
    for key in ("persona", "summary", "expectation"):
        if (value := getattr(record, key)) is not None:
            row[key] = value
    return row | ({"labels": record.labels} if record.labels else {})


def from_json(row: dict[str, Any], name: str = "", source: str = "desk") -> Record:
    """The record of a JSON object made by `to_json`; its inverse.

    name, source: used where the object names none. Raises rows.Malformed.
    """
    turns = []
    for index, item in enumerate(rows.listing(rows.member(row, "turns"), "turns")):
        at = f"turns[{index}]"
        item = rows.mapping(item, at)
        said = rows.text(rows.member(item, "public", f"{at}."), f"{at}.public")
        author = rows.text(rows.member(item, "author", f"{at}."), f"{at}.author")
        private, only = item.get("private"), item.get("only")
        if private is not None:
            rows.text(private, f"{at}.private")
        try:
            turns.append(Turn(author, said, private, only))  # type: ignore[arg-type]
        except ValueError as error:
            raise rows.Malformed(at, str(error)) from None
    meta = {}
    for key in ("persona", "summary", "expectation"):
        if (value := row.get(key)) is not None:
            meta[key] = rows.text(value, key)
    return Record(
        id=rows.named(row, "id", name),
        source=rows.named(row, "source", source),
        dialogue=spoken(turns, "turns"),
        labels=rows.mapping(row.get("labels", {}), "labels"),
        **meta,
    )


def to_line(record: Record) -> str:
    """The record as one line of jsonl, without the line break. Raises ValueError for NaN labels."""
    return json.dumps(to_json(record), ensure_ascii=False, allow_nan=False)


def of_episode(episode: types.Episode, source: str = "desk") -> Record:
    """A played episode as a Record: its dialogue, private text included, and how it ended.

    The goal object stays behind: what a user needs of it is in the dialogue's brief.
    """
    key = episode.key
    rewards = [None if math.isnan(r) else float(r) for r in episode.rewards]  # JSON has no NaN
    labels: dict[str, Any] = {"stop": str(episode.stop), "rewards": rewards}
    if "success" in episode.outcome:
        labels["success"] = float(episode.outcome["success"])
    name = f"{key.stream}/{key.goal}/{key.copy}"
    return Record(name, source, episode.dialogue, labels=labels)
