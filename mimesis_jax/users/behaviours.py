"""The thirteen behaviours: their ids, how a brief asks for one, when it can begin, its cases.

A behaviour is acted and never named: the brief ends with an act line ("act : hide what you want"),
which names in a few words what is done and with which values, and nothing of it is said aloud.
Ids are those of MIMESIS (arXiv 2610.09484); definitions and rules are ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mimesis_jax.desk import acts, chance, phrases_behaviour, slots, subflows
from mimesis_jax.desk import goals as desk_goals
from mimesis_jax.users import history

FRANK = "frank"  # manner of behaviour rows and their controls: answers what is asked, truly
NO_TWISTS = desk_goals.Twists(0.0, 0.0, 0.0, 0.0)
_WITH_BAR = desk_goals.Twists(0.0, 0.0, 1.0, 0.0)
# values that are more of the same, in order; the other values of these slots have no rank
LADDERS: dict[str, tuple[str, ...]] = {
    "size": ("tiny", "small", "medium", "large", "huge"),
    "amount": ("quarter", "half", "single", "double", "triple", "dozen"),
}

Past = Sequence[history.Exchange]
Needs = Callable[[desk_goals.Goal, Past, acts.Act | None], bool]


# --- needs: whether a behaviour can be acted in the user turn that replies to `act` ---------


def stated(past: Past) -> dict[str, str]:
    """{slot: value last stated by the user}."""
    said: dict[str, str] = {}
    for exchange in past:
        said |= exchange.said
    return said


def _always(goal: desk_goals.Goal, past: Past, act: acts.Act | None) -> bool:
    return True


def _answering(goal: desk_goals.Goal, past: Past, act: acts.Act | None) -> bool:
    return bool(past) and act is not None


def proposes(goal: desk_goals.Goal, act: acts.Act | None) -> bool:
    """Whether an act is a concrete proposal: an offer of the request, or "confirm"."""
    return act is not None and (
        act.name == "confirm" or (act.name == "offer" and act.target == goal.request)
    )


def _unheard_bar(goal: desk_goals.Goal, past: Past, act: acts.Act | None) -> bool:
    return proposes(goal, act) and goal.bar is not None and goal.bar[0] not in stated(past)


def _granted(goal: desk_goals.Goal, past: Past, act: acts.Act | None) -> bool:
    said = stated(past)
    return proposes(goal, act) and any(said.get(s) in rungs for s, rungs in LADDERS.items())


def asks_known(goal: desk_goals.Goal, past: Past, act: acts.Act | None) -> bool:
    """Whether the agent asks for a fact that the user has and has not yet stated."""
    return (
        act is not None
        and act.name == "ask"
        and goal.final(act.target) is not None
        and act.target not in stated(past)
    )


def _denied(goal: desk_goals.Goal, past: Past, act: acts.Act | None) -> bool:
    return act is not None and act.name == "deny" and act.target == goal.request


def pending(act: acts.Act | None) -> bool:
    """Whether the agent waits for an answer."""
    return act is not None and act.name in ("ask", "confirm", "offer", "ask_why")


def _thread(goal: desk_goals.Goal, past: Past, act: acts.Act | None) -> bool:
    return len(past) >= 2 and pending(act)


def _heard_fact(goal: desk_goals.Goal, past: Past, act: acts.Act | None) -> bool:
    return bool(past) and bool(stated(past))


# --- the table ---------


@dataclasses.dataclass(frozen=True)
class Behaviour:
    """One behaviour.

    published: its published name. hint: the words of the act line; values may follow.
    needs: whether it can begin in a turn. window: user turns after the first turn where it can in
    which a beginning is still well placed. turns: user turns after which training may cut.
    fits: which cases it can be acted in. values: what follows the hint, from a case and chance.
    bar: whether its cases have a held-back wish.
    """

    id: str
    published: str
    hint: str
    needs: Needs
    turns: int
    window: int = 1
    fits: Callable[[desk_goals.Goal], bool] = lambda goal: goal.allowed
    values: Callable[[desk_goals.Goal, np.random.Generator], tuple[str, ...]] = lambda goal, rng: ()
    bar: bool = False


def _wished(goal: desk_goals.Goal) -> list[str]:
    """Needed slots that only the user knows, so that the agent has to ask for them."""
    return [slot for slot, _ in goal.wishes if slot in slots.WISHES]


def _two_asks(goal: desk_goals.Goal) -> bool:
    return goal.allowed and len(_wished(goal)) >= 2


def _ladder(goal: desk_goals.Goal) -> tuple[str, ...]:
    """The slot that can grow and its last three rungs; () where the wish is too low for that."""
    for slot, value in goal.wishes:
        rungs = LADDERS.get(slot, ())
        if value in rungs[2:]:
            at = rungs.index(value)
            return (slot, *rungs[at - 2 : at + 1])
    return ()


def _others(count: int) -> Callable[[desk_goals.Goal, np.random.Generator], tuple[str, ...]]:
    def draw(goal: desk_goals.Goal, rng: np.random.Generator) -> tuple[str, ...]:
        names = [name for name in subflows.SUBFLOWS if name != goal.request]
        return tuple(names[int(i)] for i in rng.permutation(len(names))[:count])

    return draw


def _conditions(goal: desk_goals.Goal, rng: np.random.Generator) -> tuple[str, ...]:
    words = list(phrases_behaviour.CONDITIONS)
    return tuple(words[int(i)] for i in rng.permutation(len(words))[:3])


def _false_field(goal: desk_goals.Goal, rng: np.random.Generator) -> tuple[str, ...]:
    field = goal.flow.field
    options = [v for v in slots.FIELDS[field] if v not in (goal.final(field), goal.flow.denied)]
    return (field, options[int(rng.integers(len(options)))])


def _other_value(goal: desk_goals.Goal, rng: np.random.Generator) -> tuple[str, ...]:
    slot = _wished(goal)[0]
    options = [v for v in slots.VALUES[slot] if v != goal.final(slot)]
    return (slot, options[int(rng.integers(len(options)))])


_ROWS = (
    Behaviour("hidden_bar", "hidden evaluation criteria", "hide what you want",
              _unheard_bar, 6, bar=True),
    Behaviour("creeping_goal", "incremental goalpost shifting", "more each time",
              _granted, 6, fits=lambda g: g.allowed and bool(_ladder(g)),
              values=lambda g, rng: _ladder(g)),
    Behaviour("wont_clarify", "clarification non-cooperation", "dodge two asks",
              asks_known, 5, fits=_two_asks),
    Behaviour("keeps_pushing", "infeasibility persistence", "push after no",
              _denied, 4, fits=lambda g: not g.allowed),
    Behaviour("thin_then_blames", "underspecified, then blames", "blame them for it",
              _unheard_bar, 6, bar=True),
    Behaviour("jumps_topic", "abrupt intent switching", "jump to",
              _answering, 3, values=_others(1)),
    Behaviour("stacks_limits", "artificial constraint stacking", "limits",
              _answering, 3, values=_conditions),
    Behaviour("wrong_premise", "fabricated / false premise", "false",
              _always, 2, fits=lambda g: True, values=_false_field),
    Behaviour("low_signal_pressure", "impatient low-signal pressure", "press them",
              _answering, 4, fits=_two_asks),
    Behaviour("walks_away", "unresolved thread abandonment", "vanish",
              _thread, 5, window=2),
    Behaviour("contradicts_self", "self-contradiction", "mixed tales",
              _heard_fact, 4, window=2, fits=_two_asks, values=_other_value),
    Behaviour("pours_requests", "request overloading", "pour",
              _always, 2, fits=lambda g: True, values=_others(2)),
    Behaviour("talks_down", "belittling / entitled pressure", "rank",
              _answering, 3),
)  # fmt: skip
TABLE: dict[str, Behaviour] = {row.id: row for row in _ROWS}
IDS: tuple[str, ...] = tuple(TABLE)
CONTROL_TURNS = 5  # user turns of a control row in training


def said_line(goal: desk_goals.Goal) -> tuple[str, ...]:
    """The words after the hint of a goal's act line: what the behaviour is acted with."""
    if goal.behaviour is None or not goal.lines:
        return ()
    return tuple(goal.lines[-1].split()[2 + len(TABLE[goal.behaviour].hint.split()) :])


def turns(goal: desk_goals.Goal) -> int:
    """User turns after which a training episode may be cut: its window has passed by then."""
    return TABLE[goal.behaviour].turns if goal.behaviour else CONTROL_TURNS


def first_turn(goal: desk_goals.Goal, past: Past, behaviour: str) -> int | None:
    """Index of the first user turn in which the needs of a behaviour were met, None if in none."""
    needs = TABLE[behaviour].needs
    for i, exchange in enumerate(past):
        if needs(goal, past[:i], exchange.act):
            return i
    return None


# --- cases ---------


def case(seed: int, behaviour: str) -> desk_goals.Goal:
    """The goal of a seed for a behaviour: the first of the seed's draws that the behaviour fits,
    with its act line. Raises ValueError for an unknown id."""
    row = TABLE.get(behaviour)
    if row is None:
        raise ValueError(f"behaviour {behaviour!r} is unknown: use one of {', '.join(IDS)}")
    rng = chance.stream("case", seed, behaviour)
    twists = _WITH_BAR if row.bar else NO_TWISTS
    while True:  # a third of the draws fits the narrowest row
        drawn = desk_goals.draw(int(rng.integers(1 << 40)), twists, manner=FRANK)
        if row.fits(drawn):
            break
    line = " ".join(("act :", row.hint, *row.values(drawn, rng)))
    return dataclasses.replace(drawn, seed=seed, behaviour=behaviour, lines=(line,))


def control(goal: desk_goals.Goal) -> desk_goals.Goal:
    """The same scenario with no behaviour."""
    return dataclasses.replace(goal, behaviour=None, lines=())


def goals(
    step: int,
    rows: int,
    *,
    seed: int = 0,
    other: Callable[[int], Any] | None = None,
    shares: tuple[float, float] = (1 / 6, 1 / 6),
) -> list[Any]:
    """The goals of a step of user training: behaviours, their controls, another domain.

    rows: how many in all (18 by default of the trainer: 12, 3 and 3). seed: of the run; the same
    (step, rows, seed) gives the same goals. other: makes a goal of the other domain from a seed
    (None: those rows are behaviours). shares: of controls and of the other domain.
    Behaviours go round in order, across steps, so that each is met equally often.
    Raises ValueError when the shares leave no row for behaviours.
    """
    controls = round(rows * shares[0])
    others = round(rows * shares[1]) if other is not None else 0
    acted = rows - controls - others
    if acted < 1:
        raise ValueError(f"rows={rows} with shares {shares} has no behaviour row: use more rows")
    rng = chance.stream("step", seed, step)
    fresh = lambda: int(rng.integers(1 << 40))
    turn = lambda first: IDS[first % len(IDS)]
    made: list[Any] = [case(fresh(), turn(step * acted + i)) for i in range(acted)]
    made += [control(case(fresh(), turn(step * controls + i))) for i in range(controls)]
    return made + [other(fresh()) for _ in range(others)] if other is not None else made
