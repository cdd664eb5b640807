"""Knobs: how a rule-based user behaves. Typed, bounded, hashable, recorded by digest."""

from __future__ import annotations

import dataclasses
import hashlib

from mimesis_jax.desk import goals, phrases

_COUNTS = {"tries": (0, 4), "push": (0, 6), "repeats": (0, 9), "patience": (2, 12), "most": (1, 4)}


@dataclasses.dataclass(frozen=True)
class Knobs:
    """A rule-based user.

    disclosure: probability that a needed fact is volunteered in the opening.
    claims: probability that the opening states the field that the rule reads.
    most: most facts volunteered in one turn (1 to 4).
    dodge: probability that an ask is not answered; vague: share of those answered vaguely rather
    than beside the point; tries: most asks of one slot that go unanswered (0 to 4).
    push: times it asks again after a denial (0 to 6).
    repeats: asks of an answered thing that it bears (0 to 9), it leaves at the next.
    patience: turns after which it leaves (2 to 12).
    twists: how often its goals have a wrong statement, a change of mind, a hidden bar, a claim
    against the record.
    family: the phrase table that words it.
    """

    disclosure: float = 0.34
    claims: float = 0.2
    most: int = 2
    dodge: float = 0.3
    vague: float = 0.5
    tries: int = 1
    push: int = 1
    repeats: int = 1
    patience: int = 12
    twists: goals.Twists = goals.Twists()
    family: str = "calm"

    def __post_init__(self):
        for name in ("disclosure", "claims", "dodge", "vague"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"knob {name}={value} is not a probability: use 0 to 1")
        for name, (low, high) in _COUNTS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or not low <= value <= high:
                raise ValueError(f"knob {name}={value} is out of bounds: use {low} to {high}")
        if self.family not in phrases.FAMILIES:
            known = ", ".join(phrases.FAMILIES)
            raise ValueError(f"phrase family {self.family!r} is unknown: use one of {known}")

    def digest(self) -> str:
        """Twelve hex digits that name these knobs in records."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:12]

    @property
    def manner(self) -> str:
        """The one word of the brief that says what this user is like (goals.MANNERS)."""
        if self.disclosure >= 0.9:
            return "easy"
        marks = {
            "guarded": self.dodge / 0.35,
            "pushy": self.push / 1.7,
            "open": self.disclosure / 0.41,
            "picky": self.twists.bar / 0.5,
            "dreamy": (self.twists.wrong + self.twists.change) / 0.4,
        }
        word = max(marks, key=lambda mark: marks[mark])
        return word if marks[word] > 1.0 else "plain"
