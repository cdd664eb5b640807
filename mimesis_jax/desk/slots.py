"""Slots of the small world: eight kinds of eight values; every value word names its slot.

Five are wishes that only the user knows; three are fields of the record that `look` shows.
Words are unique over all tables, so a value is recognised wherever it is said.
"""

from __future__ import annotations

WISHES: dict[str, tuple[str, ...]] = {
    "colour": ("red", "blue", "green", "black", "white", "grey", "pink", "brown"),
    "size": ("tiny", "small", "medium", "large", "huge", "narrow", "wide", "tall"),
    "city": ("rome", "paris", "oslo", "cairo", "lima", "delhi", "tokyo", "berlin"),
    "amount": ("half", "double", "single", "triple", "dozen", "pair", "quarter", "whole"),
    "reason": ("broken", "late", "torn", "stained", "missing", "loud", "heavy", "faded"),
}
FIELDS: dict[str, tuple[str, ...]] = {
    "carrier": ("truck", "train", "ship", "plane", "bike", "van", "boat", "drone"),
    "tier": ("basic", "bronze", "silver", "gold", "member", "guest", "staff", "trial"),
    "day": (
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
        "sunday",
        "holiday",
    ),
}
VALUES: dict[str, tuple[str, ...]] = WISHES | FIELDS
SLOT_OF: dict[str, str] = {value: slot for slot, values in VALUES.items() for value in values}


def mentioned(text: str) -> dict[str, str]:
    """The slot values that a text names: {slot: value}, the last mention of a slot wins."""
    return {SLOT_OF[word]: word for word in text.split() if word in SLOT_OF}
