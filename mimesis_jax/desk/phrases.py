"""Phrase tables: how families of users word what they mean.

A family words every kind of utterance (KINDS). Training families and evaluation families share
no phrase; the words of evaluation phrases are words of training phrases, because a model this
small cannot read a word it never saw. Placeholders: {x} the request, {s} a slot, {v} its value.
"""

from __future__ import annotations

from collections.abc import Mapping

from mimesis_jax.desk import phrases_behaviour, phrases_evaluation, phrases_training

KINDS: dict[str, str] = {
    "open": "opens with the request {x}",
    "add": "a fact said along with the opening: {s} {v}",
    "tell": "answers an ask with the value {v}",
    "dodge": "answers an ask with something else",
    "vague": "answers an ask with no value",
    "unknown": "was asked for something it has no view on",
    "again": "was asked once more for what it has said: {v}",
    "mend": "puts a wrong statement right: {s} {v}",
    "change": "has changed its mind: {s} {v}",
    "yes": "agrees",
    "hint": "is not content and does not say why",
    "bar": "names the held-back wish: {s} {v}",
    "nobar": "was asked why, has nothing held back",
    "push": "asks again for what was denied",
    "fair": "accepts a denial and leaves",
    "leave": "gives up and leaves",
    "puzzled": "did not understand",
}


def read_lines(text: str) -> dict[str, tuple[str, ...]]:
    """{kind: phrases} of lines of the form "kind: phrase | phrase", whatever the kinds.

    A line that begins with "|" carries on the one before it.
    """
    found: dict[str, tuple[str, ...]] = {}
    for line in text.strip().replace("\n|", " |").splitlines():
        kind, _, rest = line.partition(":")
        found[kind.strip()] = tuple(" ".join(p.split()) for p in rest.split("|") if p.strip())
    return found


def read_table(text: str) -> dict[str, tuple[str, ...]]:
    """A family from lines of the form "kind: phrase | phrase".

    Raises ValueError when a kind is missing, unknown or has no phrase.
    """
    family = read_lines(text)
    if family.keys() != KINDS.keys() or not all(family.values()):
        odd = sorted(family.keys() ^ KINDS.keys()) or [k for k, v in family.items() if not v]
        raise ValueError(f"phrase table has kinds {odd} wrong: give each of {list(KINDS)} a phrase")
    return family


def _read(tables: Mapping[str, str]) -> dict[str, dict[str, tuple[str, ...]]]:
    return {name: read_table(text) for name, text in tables.items()}


TRAINING = _read(phrases_training.TABLES)
EVALUATION = _read(phrases_evaluation.TABLES)
FAMILIES: dict[str, dict[str, tuple[str, ...]]] = TRAINING | EVALUATION
BEHAVIOUR = read_lines(phrases_behaviour.TABLE)


def words(families: Mapping[str, Mapping[str, tuple[str, ...]]]) -> set[str]:
    """The distinct words of some families, placeholders left out."""
    texts = (
        text for family in families.values() for options in family.values() for text in options
    )
    return {word for text in texts for word in text.split() if not word.startswith("{")}
