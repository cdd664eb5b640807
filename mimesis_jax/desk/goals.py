"""Goals: what one user comes for, what it will say wrong, change or hide, and its record."""

from __future__ import annotations

import dataclasses

from mimesis_jax.desk import chance, slots, subflows

DENY = 0.18  # share of goals whose record forbids the request
MANNERS = ("open", "guarded", "pushy", "picky", "easy", "dreamy", "plain")
Pairs = tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class Twists:
    """How often goals of a user have a twist, each a probability in [0, 1].

    wrong: one fact is first stated wrong. change: the user changes its mind about one wish.
    bar: a further wish is held back until asked why. wishful: a user whom the rule denies claims
    another value for the rule's field.
    """

    wrong: float = 0.15
    change: float = 0.2
    bar: float = 0.4
    wishful: float = 0.7

    def __post_init__(self):
        for name, value in dataclasses.asdict(self).items():
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"twist {name}={value} is not a probability: use 0 to 1")


@dataclasses.dataclass(frozen=True)
class Goal:
    """One user's case. Hashable; a function of its seed, the twists and the manner.

    request: a subflow's name. wishes: the final (slot, value) pairs of the form, in its order.
    wrong: the slot first stated wrong and the wrong value. change: the slot changed and the value
    wished before. bar: the held-back wish. record: all fields. claim: what the user says the
    rule's field is. manner: one word of the brief.
    behaviour: id of a behaviour to act, None for a control. lines: further lines of the brief.
    """

    seed: int
    request: str
    wishes: Pairs
    record: Pairs
    claim: str
    wrong: tuple[str, str] | None = None
    change: tuple[str, str] | None = None
    bar: tuple[str, str] | None = None
    manner: str = "plain"
    behaviour: str | None = None
    lines: tuple[str, ...] = ()

    @property
    def id(self) -> int:
        """What names the goal in keys and records: its seed."""
        return self.seed

    @property
    def flow(self) -> subflows.Subflow:
        return subflows.SUBFLOWS[self.request]

    @property
    def allowed(self) -> bool:
        """Whether the rule allows the request, by the record."""
        return dict(self.record)[self.flow.field] != self.flow.denied

    @property
    def form(self) -> dict[str, str]:
        """What must be set at the end: {slot: value}; empty when the rule denies."""
        return {**dict(self.wishes), **dict([self.bar] if self.bar else [])} if self.allowed else {}

    def first(self, slot: str) -> str | None:
        """What the user states when first asked for `slot`; None when it has no view on it."""
        for pair in (self.wrong, self.change):
            if pair and pair[0] == slot:
                return pair[1]
        if slot == self.flow.field:
            return self.claim
        return self.final(slot)

    def final(self, slot: str) -> str | None:
        """What the user wants or knows of `slot` in the end; None when it has no view on it."""
        known = {**dict(self.record), **dict(self.wishes), **dict([self.bar] if self.bar else [])}
        return known.get(slot)


def draw(
    seed: int, twists: Twists = Twists(), *, manner: str = "plain", denied: float = DENY
) -> Goal:
    """The goal of a seed; `denied` is the probability that its record forbids the request.

    Request, wishes, record and the candidates of every twist depend on the seed alone, so users
    with other twists meet the same case; a twist happens when the seed's uniform is below its
    probability. At most one slot is stated wrong and another one changed.
    """
    rng = chance.stream("goal", seed)
    pick = lambda options: options[int(rng.integers(len(options)))]
    other = lambda slot, value: pick([v for v in slots.VALUES[slot] if v != value])
    flow = subflows.SUBFLOWS[pick(list(subflows.SUBFLOWS))]
    record = {name: pick(values) for name, values in slots.FIELDS.items()}
    forbidden = rng.random() < denied
    free = other(flow.field, flow.denied)
    record[flow.field] = flow.denied if forbidden else free
    wishes = {s: record[s] if s in record else pick(slots.WISHES[s]) for s in flow.needed}
    wrong_slot = pick(flow.needed)
    wrong = (wrong_slot, other(wrong_slot, wishes[wrong_slot]))
    movable = [s for s in flow.needed if s in slots.WISHES and s != wrong_slot]
    change_slot = pick(movable) if movable else None
    change = (change_slot, other(change_slot, wishes[change_slot])) if change_slot else None
    bar_slot = pick([s for s in slots.WISHES if s not in flow.needed])
    bar = (bar_slot, pick(slots.WISHES[bar_slot]))
    chances = rng.random(4)
    claim = free if forbidden and chances[3] < twists.wishful else record[flow.field]
    return Goal(
        seed,
        flow.name,
        tuple(wishes.items()),
        tuple(record.items()),
        claim,
        wrong=wrong if chances[0] < twists.wrong else None,
        change=change if chances[1] < twists.change else None,
        bar=bar if chances[2] < twists.bar else None,
        manner=manner,
    )


def brief(goal: Goal) -> str:
    """The user's system text: everything its words will follow from, about 24 words."""
    lines = [f"you want a {goal.request}"]
    for slot, value in goal.wishes:
        line = f"{slot} {value}"
        if goal.wrong and goal.wrong[0] == slot:
            line += f" first say {goal.wrong[1]}"
        if goal.change and goal.change[0] == slot:
            line = f"{slot} {goal.change[1]} then {value}"
        lines.append(line)
    if goal.bar:
        lines.append(f"must {goal.bar[0]} {goal.bar[1]}")
    field = goal.flow.field
    truth = dict(goal.record)[field]
    lines.append(f"{field} {truth}" + (f" say {goal.claim}" if goal.claim != truth else ""))
    lines.append(f"you are {goal.manner}")
    return " . ".join((*lines, *goal.lines)) + " ."
