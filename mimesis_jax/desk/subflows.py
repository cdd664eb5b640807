"""Subflows: what a user may come for, the ordered form it needs and the rule that denies it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Subflow:
    """One kind of request.

    name: the request's word. needed: slots of the form, in the order they must be set.
    field, denied: the request is denied when the record's `field` is `denied`.
    """

    name: str
    needed: tuple[str, ...]
    field: str
    denied: str

    @property
    def actions(self) -> tuple[str, ...]:
        """The ordered list of actions of an allowed case."""
        return (f"look {self.field}", *(f"set {slot}" for slot in self.needed), "close")

    @property
    def guide(self) -> str:
        """The agent's guide line."""
        return (
            f"{self.name} needs {' then '.join(self.needed)} . deny if {self.field} {self.denied} ."
        )


# What denies, by field; requests that share a field share the value. With a value of its own for
# each request, a decoder of half a million parameters denies 0.3 to 0.8 of these cases, by the run.
DENIED = {"tier": "trial", "day": "holiday", "carrier": "drone"}

SUBFLOWS: dict[str, Subflow] = {
    flow.name: flow
    for flow in (
        Subflow("return", ("colour", "reason"), "tier", DENIED["tier"]),
        Subflow("swap", ("colour", "size"), "day", DENIED["day"]),
        Subflow("refund", ("amount", "reason"), "carrier", DENIED["carrier"]),
        Subflow("repair", ("reason", "day"), "tier", DENIED["tier"]),
        Subflow("upgrade", ("size", "amount"), "tier", DENIED["tier"]),
        Subflow("move", ("city", "carrier"), "day", DENIED["day"]),
        Subflow("cancel", ("reason", "amount"), "day", DENIED["day"]),
        Subflow("renewal", ("amount", "city"), "tier", DENIED["tier"]),
        Subflow("claim", ("carrier", "reason", "city"), "tier", DENIED["tier"]),
        Subflow("trade", ("colour", "size", "amount"), "carrier", DENIED["carrier"]),
        Subflow("resend", ("city", "size"), "carrier", DENIED["carrier"]),
        Subflow("refill", ("amount", "colour", "city"), "day", DENIED["day"]),
        Subflow("loan", ("size", "city", "reason"), "carrier", DENIED["carrier"]),
        Subflow("print", ("colour", "amount"), "day", DENIED["day"]),
    )
}


def read_guide(text: str) -> Subflow:
    """The subflow that a guide line describes, read from its words alone.

    Raises ValueError on a text that is no guide line.
    """
    words = text.split()
    try:
        dot, rule = words.index("."), words.index("deny")
        needed = tuple(word for word in words[2:dot] if word != "then")
        if words[1] != "needs" or words[rule + 1] != "if" or not needed:
            raise ValueError
        return Subflow(words[0], needed, words[rule + 2], words[rule + 3])
    except (ValueError, IndexError):
        raise ValueError(
            f"guide {text!r} is not of the form 'NAME needs SLOT then SLOT . deny if FIELD VALUE .'"
        ) from None
