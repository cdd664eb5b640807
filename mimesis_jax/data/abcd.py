"""ABCD: customers and support agents acting by company guidelines, in the published json."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from mimesis_jax.data import records, rows
from mimesis_jax.data.records import Record
from mimesis_jax.types import Author, Chair, Turn

SOURCE = "abcd"
SPEAKERS: dict[str, tuple[Author, Chair | None]] = {
    "customer": ("user", None),
    "agent": ("agent", None),
    "action": ("tool", "agent"),  # what the agent's buttons answered: the customer never saw it
}


def read(
    paths: rows.Paths,
    ledger: rows.Ledger | None = None,
    *,
    text: Literal["original", "delexed"] = "original",
    split: str | None = None,
) -> Iterator[Record]:
    """Records of ABCD v1.1 (arXiv 2104.00783): json or gzip json, held whole as it is published.

    paths: files that are `{train: [dialogue], dev: ..., test: ...}` or a bare list (split train).
    text: `original` words, or `delexed`: lower case with facts as <slots>.
    split: only that split; None for all, in the file's order.
    The customer's brief is the scenario's flow, subflow and own facts. labels: split, flow,
    subflow, actions ([name, values] in order). Faults name the dialogue's number in its split and
    the field from the split on. Raises TooManyMalformed, FileNotFoundError, ValueError.
    """
    if text not in ("original", "delexed"):
        raise ValueError(f"text={text!r} is not a version of ABCD: use 'original' or 'delexed'")
    ledger = rows.Ledger() if ledger is None else ledger
    for path in rows.each(paths):
        for name, dialogues in _splits(path).items():
            if split not in (None, name):
                continue
            for number, row in enumerate(dialogues):
                at = f"{name}[{number}]"
                try:
                    made = parse(rows.mapping(row, at), f"{path.name}:{at}", name, text, f"{at}.")
                except rows.Malformed as fault:
                    ledger.reject(rows.Fault(str(path), number + 1, fault.field, fault.why))
                    continue
                ledger.accept()
                yield made
    ledger.check()


def splits(paths: rows.Paths) -> tuple[str, ...]:
    """Names of the splits that the files hold, in their order. Raises as `read`."""
    return tuple(dict.fromkeys(name for path in rows.each(paths) for name in _splits(path)))


def _splits(path: Path) -> dict[str, list]:
    whole = rows.document(path)
    whole = {"train": whole} if isinstance(whole, list) else whole
    if not isinstance(whole, dict) or not all(isinstance(part, list) for part in whole.values()):
        raise ValueError(f"{path} is neither a list of dialogues nor {{split: list}} of them")
    return whole


def parse(row: dict, name: str, split: str, text: str, at: str = "") -> Record:
    """One dialogue; `at` is its path in the file, ending in a dot. Raises rows.Malformed."""
    said = rows.listing(rows.member(row, text, at), f"{at}{text}")
    messages = [_message(item, f"{at}{text}[{i}]") for i, item in enumerate(said)]
    dialogue = records.conversation(
        messages, f"{at}{text}", role="speaker", content="text", roles=SPEAKERS
    )
    scenario = rows.mapping(row.get("scenario", {}), f"{at}scenario")
    flow, subflow = (rows.optional(scenario, key, f"{at}scenario.") for key in ("flow", "subflow"))
    matter = ", ".join(part.replace("_", " ") for part in (flow, subflow) if part)
    persona, summary = _facts(scenario, "personal", at), matter or None
    told: tuple[Turn, ...] = records.brief(persona, summary, _facts(scenario, "order", at))
    return Record(
        id=rows.named(row, "convo_id", name),
        source=SOURCE,
        dialogue=told + dialogue,
        persona=persona,
        summary=summary,
        labels={"split": split, "flow": flow, "subflow": subflow, "actions": _actions(row, at)},
    )


def _message(item: Any, field: str) -> Any:
    """A pair [speaker, text] as {speaker, text}; anything else as it is."""
    if not isinstance(item, list):
        return item
    if len(item) != 2:
        raise rows.Malformed(field, f"has {len(item)} parts, not [speaker, text]")
    return {"speaker": item[0], "text": item[1]}


def _facts(scenario: dict, key: str, at: str) -> str | None:
    """The scenario's `personal` or `order` facts, `name: value` a line."""
    facts = rows.mapping(scenario.get(key, {}), f"{at}scenario.{key}")
    told = [f"{name.replace('_', ' ')}: {v}" for name, v in facts.items() if isinstance(v, str)]
    return "\n".join(told) or None


def _actions(row: dict, at: str) -> list[list]:
    """[action, values] of every annotated step `take_action`, in order; [] without annotation."""
    taken = []
    for index, item in enumerate(rows.listing(row.get("delexed", []), f"{at}delexed")):
        field = f"{at}delexed[{index}]"
        targets = rows.mapping(item, field).get("targets")
        if targets is None:
            continue
        if len(rows.listing(targets, f"{field}.targets")) < 4:
            raise rows.Malformed(f"{field}.targets", f"has {len(targets)} parts, not 5")
        if targets[1] == "take_action":
            taken.append([targets[2], targets[3]])
    return taken
