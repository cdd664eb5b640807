"""The desk procedure: what an agent's own view amounts to, and the right next act in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from mimesis_jax import types
from mimesis_jax.desk import acts, record, slots, subflows

SKILLS = frozenset(("look", "reask", "ask_why", "confirm"))
# steps that the procedure does not need: "offer" names the request before it is confirmed, "firm"
# says a denial again instead of closing after the first one
HABITS = frozenset(("offer", "firm"))
FIRM = 3  # denials of a firm agent before it closes


@dataclasses.dataclass(frozen=True)
class Case:
    """What an agent knows, read off its own view: guide, users' words, tool answers, own acts.

    said, looked, form: {slot: value} as the user stated it, as the record showed it, as it was
    set. asked: {slot: times asked}. why, confirmed: whether the user was asked why at all, and to
    confirm since it last stated something unasked. denied: whether the last verdict given was no.
    taken: agent turns so far. offered: whether the request was ever offered. denials: how often
    it was denied.
    """

    flow: subflows.Subflow
    said: dict[str, str]
    looked: dict[str, str]
    form: dict[str, str]
    asked: dict[str, int]
    why: bool
    confirmed: bool
    denied: bool
    taken: int
    offered: bool = False
    denials: int = 0

    @property
    def known(self) -> dict[str, str]:
        """Best knowledge of each slot: the record over the user's word."""
        return self.said | self.looked

    @property
    def missing(self) -> tuple[str, ...]:
        """Needed slots that nobody has named yet, in the guide's order."""
        return tuple(slot for slot in self.flow.needed if slot not in self.known)

    @property
    def pending(self) -> tuple[tuple[str, str], ...]:
        """(slot, value) pairs to set: needed ones in order, then further wishes heard."""
        known = self.known
        further = (slot for slot in slots.WISHES if slot not in self.flow.needed)
        return tuple(
            (slot, known[slot])
            for slot in (*self.flow.needed, *further)
            if slot in known and self.form.get(slot) != known[slot]
        )


def read(view: Sequence[types.Turn]) -> Case:
    """The case as the agent's view tells it.

    Raises ValueError when the view does not begin with a guide line.
    """
    guide = next((turn.public for turn in view if turn.author == "system"), "")
    flow = subflows.read_guide(guide)
    said: dict[str, str] = {}
    looked: dict[str, str] = {}
    form: dict[str, str] = {}
    asked: dict[str, int] = {}
    why = confirmed = denied = offered = False
    taken = denials = 0
    act: acts.Act | None = None
    for turn in view:
        if turn.author == "user":
            news = slots.mentioned(turn.public)
            if any(said.get(slot) != value for slot, value in news.items()):
                confirmed = act is not None and act.name == "confirm"
            said |= news
        elif turn.author == "tool" and act is not None:
            if act.name == "look":
                looked |= slots.mentioned(turn.public) if act.target in slots.FIELDS else {}
            elif act.name == "set" and turn.public == "ok":
                form |= dict(act.pairs)
                denied = False
        elif turn.author == "agent":
            taken, act = taken + 1, acts.parse(turn.public)
            if act is None:
                continue
            why, confirmed = why or act.name == "ask_why", confirmed or act.name == "confirm"
            if act.name == "ask":
                asked[act.target] = asked.get(act.target, 0) + 1
            if act.name in ("offer", "deny") and act.target == flow.name:
                denied = act.name == "deny"
                offered, denials = offered or not denied, denials + denied
    return Case(
        flow, said, looked, form, asked, why, confirmed, denied, taken, offered, denials
    )  # fmt: skip


def best(
    case: Case,
    skills: frozenset[str] = SKILLS,
    *,
    look_first: bool = True,
    habits: frozenset[str] = frozenset(),
) -> acts.Act | None:
    """The right next act: look the rule up, deny or gather, ask why, confirm, set, close.

    An agent that lacks a skill leaves that step out: without "look" it believes what it heard,
    without "reask" it gives a slot up after one ask (None: it has to guess), without "ask_why"
    and "confirm" it goes on at once. With two turns left it sets what it has and closes.
    look_first: whether the rule is looked up before the user is asked, or after.
    habits: a subset of HABITS, none of which the procedure needs.
    """
    flow, known = case.flow, case.known
    left = record.TURNS - case.taken
    gathered = not case.missing
    if "look" in skills and flow.field not in case.looked and (look_first or gathered):
        return acts.look(flow.field)
    if known.get(flow.field) == flow.denied:
        again = "firm" in habits and case.denials < FIRM and left > 1
        done = case.denied and not again
        return acts.Act("close") if done else acts.Act("deny", flow.name)
    if not gathered:
        slot = case.missing[0]
        if slot in slots.FIELDS and "look" in skills:
            return acts.look(slot)
        if "reask" in skills or not case.asked.get(slot):
            return acts.ask(slot)
        return None
    if left > 2 and not case.offered and "offer" in habits:
        return acts.Act("offer", flow.name)
    if left > 2 and not case.why and "ask_why" in skills:
        return acts.Act("ask_why")
    if left > 2 and not case.confirmed and "confirm" in skills:
        return acts.Act("confirm")
    if case.pending:
        return acts.set_(*case.pending[: acts.MOST_PAIRS])
    return acts.Act("close")
