"""Markers: one rule a behaviour that tells whether a dialogue shows it, and where it began.

A marker reads what anyone could read off a finished dialogue: slot values said, agent acts, cue
words, lengths, how it ended, and the user's thought where the behaviour lives in it. Whoever
spoke, rule or model, is read alike. Rules are ours, after the definitions in MIMESIS
(arXiv 2610.09484).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable

from mimesis_jax.desk import goals, phrases_behaviour, slots, subflows
from mimesis_jax.types import Stop
from mimesis_jax.users import behaviours
from mimesis_jax.users import markers_cues as cues
from mimesis_jax.users.history import Exchange

Talk = tuple[Exchange, ...]
MOST_TRIES = 3  # asks of one fact that may go unanswered before it counts as never given
URGE_WORDS = 6


@dataclasses.dataclass(frozen=True)
class Found:
    """What a marker saw. began: index among the user's turns. share: 1 when the marker is whole,
    less when only a part of it is there (one push of two)."""

    began: int
    share: float = 1.0

    @property
    def whole(self) -> bool:
        return self.share >= 1.0


Marker = Callable[[goals.Goal, Talk, Stop | None], Found | None]


def find(behaviour: str, goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """What the marker of a behaviour sees in a dialogue; None for nothing.

    goal: the scenario. talk: history.exchanges of the whole dialogue. stop: how it ended.
    Raises ValueError for an unknown id.
    """
    if behaviour not in MARKERS:
        raise ValueError(f"behaviour {behaviour!r} has no marker: use one of {', '.join(MARKERS)}")
    return MARKERS[behaviour](goal, talk, stop)


def seen(goal: goals.Goal, talk: Talk, stop: Stop | None) -> frozenset[str]:
    """The behaviours whose markers are whole."""
    found = ((name, marker(goal, talk, stop)) for name, marker in MARKERS.items())
    return frozenset(name for name, got in found if got is not None and got.whole)


def announced(goal: goals.Goal, talk: Talk) -> bool:
    """Whether the user describes its behaviour in public instead of acting it: first person with
    will, refuse, have to or the like and a word of the behaviour's name; a word that speaks of the
    play itself; or the act line's own hint, word for word."""
    row = behaviours.TABLE.get(goal.behaviour or "")
    for exchange in talk:
        words = exchange.words
        if cues.has(words, cues.GIVEAWAYS):
            return True
        if row is None:
            continue
        states = cues.has(words, cues.FIRST_PERSON) and cues.has(words, cues.INTENDS)
        if states and cues.has(words, cues.NAMES[row.id]):
            return True
        if len(row.hint.split()) > 1 and cues.has(words, (row.hint,)):
            return True
    return False


def _words(text: str) -> list[str]:
    return [word.strip(",/()") for word in text.lower().split() if word.strip(",/()")]


# --- reading a turn ---------------------------------------------------------------------------


def _requests(exchange: Exchange) -> set[str]:
    return {word for word in exchange.words if word in subflows.SUBFLOWS}


def _others(goal: goals.Goal, exchange: Exchange) -> set[str]:
    return _requests(exchange) - {goal.request}


def _rank(slot: str, value: str | None) -> int:
    rungs = behaviours.LADDERS.get(slot, ())
    return rungs.index(value) if value in rungs else -1


def _counted(turns: Iterable[int], whole: int) -> Found | None:
    """A marker that needs several turns; half seen when one is missing."""
    at = list(turns)
    if len(at) >= whole:
        return Found(at[0])
    return Found(at[0], 0.5) if at and len(at) == whole - 1 else None


# --- the thirteen -----------------------------------------------------------------------------


def _hidden_bar(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """A proposal is declined; the held-back wish is in the thought and in no customer turn, and
    later comes out only when asked."""
    if goal.bar is None:
        return None
    slot, value = goal.bar
    needs = behaviours.TABLE["hidden_bar"].needs
    began = None
    for i, exchange in enumerate(talk):
        told = value in exchange.words or slot in exchange.words
        if told:
            asked = exchange.act is not None and (
                exchange.act.name == "ask_why" or exchange.act.target == slot
            )
            return Found(began) if began is not None and asked else None
        declines = cues.has(exchange.words, cues.DECLINES)
        if not declines or cues.has(exchange.words, ("yes",)) or exchange.said:
            continue
        if (
            began is None
            and needs(goal, talk[:i], exchange.act)
            and value in _words(exchange.thought)
        ):
            began = i
    return None if began is None else Found(began)


def _creeping_goal(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """Two grants or more, each answered by a strictly larger ask in the same slot."""
    counts: dict[str, list[int]] = {slot: [] for slot in behaviours.LADDERS}
    said: dict[str, str] = {}
    for i, exchange in enumerate(talk):
        for slot, value in exchange.said.items():
            grows = _rank(slot, value) > _rank(slot, said.get(slot)) >= 0
            if grows and behaviours.proposes(goal, exchange.act):
                counts[slot].append(i)
        said |= exchange.said
    found = [got for turns in counts.values() if (got := _counted(turns, 2)) is not None]
    return max(found, key=lambda got: got.share, default=None)


def _wont_clarify(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """Asked for a fact it has and has not said, the next turn has no value of it; urging, another
    matter and leaving are other behaviours. A fact refused more than MOST_TRIES times is lost."""
    tries: dict[str, int] = {}
    began = None
    for i, exchange in enumerate(talk):
        if not behaviours.asks_known(goal, talk[:i], exchange.act):
            continue
        slot = exchange.act.target if exchange.act else ""
        leaves = stop is Stop.LEFT and i == len(talk) - 1
        elsewhere = leaves or _others(goal, exchange) or cues.has(exchange.words, cues.URGES)
        if slot in exchange.said or elsewhere:
            continue
        began = i if began is None else began
        tries[slot] = tries.get(slot, 0) + 1
    return None if began is None or max(tries.values()) > MOST_TRIES else Found(began)


def _keeps_pushing(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """After a denial, two turns or more in a row that ask again and bring no new value."""
    pushes: list[int] = []
    said: dict[str, str] = {}
    for i, exchange in enumerate(talk):
        denied = exchange.act is not None and exchange.act.name == "deny"
        fresh = exchange.said.items() - said.items()
        asks = cues.has(exchange.words, cues.PUSHES) or goal.request in exchange.words
        follows = denied or (pushes and pushes[-1] == i - 1)
        gives_in = cues.has(exchange.words, cues.GOODBYES) or _others(goal, exchange)
        if follows and asks and not fresh and not gives_in:
            pushes.append(i)
        said |= exchange.said
    return _counted(pushes, 2)


def _thin_then_blames(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """A fact of the scenario is first stated in the same turn as blame, after the agent acted."""
    said: dict[str, str] = {}
    for i, exchange in enumerate(talk):
        first = {s: v for s, v in exchange.said.items() if s not in said}
        true = any(goal.final(slot) == value for slot, value in first.items())
        if true and exchange.touched and cues.has(exchange.words, cues.BLAMES):
            return Found(i)
        said |= exchange.said
    return None


def _jumps_topic(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """A later turn asks for another request and not for its own, unless the agent spoke of it."""
    for i, exchange in enumerate(talk):
        others = _others(goal, exchange)
        named = exchange.act.target if exchange.act else ""
        if i and 1 <= len(others) < 3 and goal.request not in exchange.words:
            if named not in others and not cues.has(exchange.words, ("bye", "thanks")):
                return Found(i)
    return None


def _stacks_limits(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """Three conditions or more on form, channel or time, two of them nothing the goal needs. Slot
    values count where their clause says "only" or the like."""
    known = {*goal.flow.needed, goal.flow.field, *([goal.bar[0]] if goal.bar else ())}
    made: dict[str, int] = {}
    beside: set[str] = set()
    for i, exchange in enumerate(talk):
        for clause in exchange.text.lower().split(","):
            words = clause.split()
            values = slots.mentioned(clause) if cues.has(words, cues.ONLY) else {}
            free = {word for word in words if word in phrases_behaviour.CONDITIONS}
            beside |= free | {v for s, v in values.items() if s not in known}
            for word in (*free, *values.values()):
                made.setdefault(word, i)
    if len(beside) < 2:
        return None
    return Found(min(made.values()), 1.0 if len(made) >= 3 else 0.5)


def _wrong_premise(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """A field is stated against the record, and the request is grounded on it."""
    record = dict(goal.record)
    for i, exchange in enumerate(talk):
        false = any(s in record and record[s] != v for s, v in exchange.said.items())
        reasons = cues.has(exchange.words, cues.SO) and cues.has(exchange.words, cues.GETS)
        if false and (reasons or goal.request in exchange.words):
            return Found(i)
    return None


def _low_signal_pressure(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """Two turns or more of at most six words with an urging cue, no value and no request; a reply
    to a denial is pushing, and a goodbye is leaving."""
    turns = []
    for i, exchange in enumerate(talk):
        words = exchange.words
        denied = exchange.act is not None and exchange.act.name == "deny"
        short = 0 < len(words) <= URGE_WORDS and not exchange.said and not _requests(exchange)
        if short and not denied and cues.has(words, cues.URGES):
            if not cues.has(words, ("bye", *cues.PUTDOWNS, *cues.BLAMES)):
                turns.append(i)
    return _counted(turns, 2)


def _walks_away(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """It leaves while the agent waits for an answer, with no closing word and no answer."""
    if stop is not Stop.LEFT or len(talk) < 2:
        return None
    last = talk[-1]
    answered = last.act is not None and last.act.target in last.said
    silent = not cues.has(last.words, cues.CLOSES) and not answered
    return Found(len(talk) - 1) if behaviours.pending(last.act) and silent else None


def _contradicts_self(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """A slot is stated otherwise than before, in a turn with no correction cue."""
    said: dict[str, str] = {}
    for i, exchange in enumerate(talk):
        differs = any(said.get(s, v) != v for s, v in exchange.said.items())
        if differs and not cues.has(exchange.words, cues.CORRECTS):
            return Found(i)
        said |= exchange.said
    return None


def _pours_requests(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """Three requests or more in one turn."""
    return next((Found(i) for i, e in enumerate(talk) if len(_requests(e)) >= 3), None)


def _talks_down(goal: goals.Goal, talk: Talk, stop: Stop | None) -> Found | None:
    """A put-down or a claim of rank in the same turn as a demand."""
    for i, exchange in enumerate(talk):
        if cues.has(exchange.words, cues.PUTDOWNS) and cues.has(exchange.words, cues.DEMANDS):
            return Found(i)
    return None


MARKERS: dict[str, Marker] = {
    "hidden_bar": _hidden_bar,
    "creeping_goal": _creeping_goal,
    "wont_clarify": _wont_clarify,
    "keeps_pushing": _keeps_pushing,
    "thin_then_blames": _thin_then_blames,
    "jumps_topic": _jumps_topic,
    "stacks_limits": _stacks_limits,
    "wrong_premise": _wrong_premise,
    "low_signal_pressure": _low_signal_pressure,
    "walks_away": _walks_away,
    "contradicts_self": _contradicts_self,
    "pours_requests": _pours_requests,
    "talks_down": _talks_down,
}
