"""Agent acts: the small grammar in which a desk agent speaks, its parser and its formatter."""

from __future__ import annotations

import dataclasses
from typing import Literal

from mimesis_jax.desk import slots, subflows

Name = Literal["ask", "look", "set", "offer", "deny", "ask_why", "confirm", "hand_over", "close"]
NAMES: tuple[Name, ...] = (
    "ask", "look", "set", "offer", "deny", "ask_why", "confirm", "hand_over", "close",
)  # fmt: skip
_BARE: dict[str, Name] = {
    "why": "ask_why",
    "confirm": "confirm",
    "hand over": "hand_over",
    "close": "close",
}
_TEXT: dict[Name, str] = {name: text for text, name in _BARE.items()}
MOST_PAIRS = 4  # slots of the longest form and a hidden bar


@dataclasses.dataclass(frozen=True)
class Act:
    """One agent act.

    name: its kind. target: the slot of ask and look, the request of offer and deny, else "".
    pairs: the (slot, value) pairs of set, in the order given; () otherwise.
    """

    name: Name
    target: str = ""
    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def spoken(self) -> bool:
        """Whether the user hears it; look and set are calls that a tool answers."""
        return self.name not in ("look", "set")


def ask(slot: str) -> Act:
    """Ask the user for a slot."""
    return Act("ask", slot)


def look(slot: str) -> Act:
    """Look a slot up in the record."""
    return Act("look", slot)


def set_(*pairs: tuple[str, str]) -> Act:
    """Fill one or more slots of the form, in the guide's order."""
    return Act("set", pairs=pairs)


def write(act: Act) -> str:
    """The text of an act; `parse` reads it back."""
    if act.name == "set":
        return "set " + " ".join(word for pair in act.pairs for word in pair)
    return _TEXT.get(act.name) or f"{act.name} {act.target}"


def parse(text: str) -> Act | None:
    """The act that a text is, None when it is none of the grammar.

    `ask s`, `look s`, `set s v [s v ...]` (at most MOST_PAIRS pairs), `offer x`, `deny x`, `why`,
    `confirm`, `hand over`, `close`; s a slot, v one of its values, x a subflow's name.
    """
    words = text.split()
    if (bare := _BARE.get(" ".join(words))) is not None:
        return Act(bare)
    match words:
        case ["ask" | "look" as name, slot] if slot in slots.VALUES:
            return Act("ask" if name == "ask" else "look", slot)
        case ["offer" | "deny" as name, x] if x in subflows.SUBFLOWS:
            return Act("offer" if name == "offer" else "deny", x)
        case ["set", *rest] if rest and len(rest) % 2 == 0 and len(rest) <= 2 * MOST_PAIRS:
            pairs = tuple(zip(rest[::2], rest[1::2], strict=True))
            if all(slots.SLOT_OF.get(value) == slot for slot, value in pairs):
                return Act("set", pairs=pairs)
    return None
