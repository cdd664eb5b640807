"""Acting: the symbolic user that plays a goal's behaviour, and the population of such users."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from mimesis_jax import types
from mimesis_jax.desk import chance, goals, phrases_behaviour
from mimesis_jax.users import behaviours, history, population, symbolic
from mimesis_jax.users import knobs as knobs_
from mimesis_jax.users.symbolic import Move

WALKED = "walked away"  # reason of the STOP of walks_away
MOST_URGES = 2
MOST_DODGES = 2
MOST_PUSHES = 2

Say = tuple[str, str, str]
Play = Callable[[goals.Goal, history.State, Move], Move | None]


def move(
    goal: goals.Goal, knobs: knobs_.Knobs, state: history.State, rng: np.random.Generator
) -> Move:
    """The next move of a user that acts its goal's behaviour where it can, and is frank else.

    A move of the behaviour has a thought that begins "act HINT": what is done and with what.
    Draws from `rng` and from nothing else.
    """
    told = _as_told(goal, state)
    frank = _frank(told, knobs, state, rng)
    name = goal.behaviour
    if name is None or not behaviours.TABLE[name].needs(goal, state.past, state.act):
        if name == "contradicts_self" and not state.past:
            return _first_tale(goal, frank)
        return frank
    return _PLAYS[name](goal, state, frank) or frank


def _as_told(goal: goals.Goal, state: history.State) -> goals.Goal:
    """The goal as the act line makes the user tell it: a step of what creeps, a false field."""
    words = behaviours.said_line(goal)
    if goal.behaviour == "creeping_goal":
        slot, *steps = words
        now = state.said.get(slot, steps[0])
        wishes = tuple((s, now if s == slot else v) for s, v in goal.wishes)
        return dataclasses.replace(goal, wishes=wishes)
    if goal.behaviour == "wrong_premise":
        return dataclasses.replace(goal, claim=words[1])
    return goal


def _frank(
    goal: goals.Goal, knobs: knobs_.Knobs, state: history.State, rng: np.random.Generator
) -> Move:
    """The plain user's move, except that a held-back wish is told at the first proposal."""
    if behaviours.proposes(goal, state.act) and goal.bar and goal.bar[0] not in state.said:
        slot, value = goal.bar
        if goal.behaviour not in ("hidden_bar", "thin_then_blames"):
            name = state.act.name if state.act else ""
            return Move(f"{name} , {slot} must {value} , tell", (("bar", slot, value),))
    return symbolic.move(goal, knobs, state, rng)


# --- one function a behaviour: its move where its needs are met, None when it is done ---------


def _acting(goal: goals.Goal, frank: Move, says: Sequence[Say], then: str = "") -> Move:
    hint = behaviours.TABLE[goal.behaviour or ""].hint.split()[0]
    thought = " , ".join(part for part in (f"act {hint} {then}".strip(), frank.thought) if part)
    return Move(thought, tuple(says))


def _hide(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    slot, value = goal.bar or ("", "")
    hold = dataclasses.replace(frank, thought=f"{slot} must {value} , hold back")
    return _acting(goal, hold, [("hint", slot, value)])


def _creep(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    slot, *steps = behaviours.said_line(goal)
    now = state.said.get(slot)
    if now not in steps[:-1]:
        return None
    following = steps[steps.index(now) + 1]
    fresh = Move(f"want {slot} {following}", ())
    return _acting(goal, fresh, [("more", slot, following)])


def _refuse(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    slot = state.act.target if state.act else ""
    if state.unanswered >= MOST_DODGES or any(
        e.act is not None and e.act.name == "ask" and e.act.target != slot for e in state.past
    ):
        return None
    return _acting(goal, Move(f"asked {slot} , it is {goal.final(slot)}", ()), [("refuse", "", "")])


def _push(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    if state.denials > MOST_PUSHES:
        return None
    return _acting(goal, Move("denied , push", ()), [("push", "", "")])


def _blame(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    slot, value = goal.bar or ("", "")
    return _acting(goal, Move(f"{slot} must {value}", ()), [("blame", slot, value)])


def _jump(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    (other,) = behaviours.said_line(goal)
    if _uttered(state, other):
        return None
    return _acting(goal, Move(f"want {other}", ()), [("jump", "", other)])


def _stack(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    words = behaviours.said_line(goal)
    if any(_uttered(state, word) for word in words):
        return None
    limits = [("limit", phrases_behaviour.CONDITIONS[word], word) for word in words]
    return _acting(goal, frank, [*frank.says, *limits], " ".join(words))


def _premise(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    field, value = behaviours.said_line(goal)
    if _uttered(state, value):
        return None
    true = Move(f"{field} is {goal.final(field)} , say {value}", ())
    return _acting(goal, true, [*frank.says, ("premise", field, value)])


def _press(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    heard = dataclasses.replace(frank, thought=frank.thought.split(" , ")[0])
    return _acting(goal, heard, [("urge", "", "")]) if state.turns <= MOST_URGES else None


def _vanish(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    left = _acting(goal, Move("leave", ()), [("trail", "", "")])
    return dataclasses.replace(left, reason=WALKED)


def _first_tale(goal: goals.Goal, frank: Move) -> Move:
    """The opening says the other value of the act line; nothing is contradicted yet."""
    slot, value = behaviours.said_line(goal)
    says = [say for say in frank.says if say[1] != slot]
    return Move(f"{frank.thought} , say {slot} {value}", (*says, ("add", slot, value)))


def _tale(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    slot, value = behaviours.said_line(goal)
    true = goal.final(slot) or ""
    if state.said.get(slot) != value:
        return None
    says = [say for say in frank.says if say[1] != slot]
    return _acting(goal, frank, [*says, ("tale", slot, true)], f"{slot} {true}")


def _pour(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    words = behaviours.said_line(goal)
    if state.past:
        return None
    more = [("pour", "", word) for word in words]
    return _acting(goal, frank, [frank.says[0], *more, *frank.says[1:]], " ".join(words))


def _belittle(goal: goals.Goal, state: history.State, frank: Move) -> Move | None:
    return _acting(goal, frank, [*frank.says, ("down", "", "")]) if state.turns == 1 else None


def _uttered(state: history.State, word: str) -> bool:
    return any(word in exchange.text.split() for exchange in state.past)


_PLAYS: dict[str, Play] = {
    "hidden_bar": _hide,
    "creeping_goal": _creep,
    "wont_clarify": _refuse,
    "keeps_pushing": _push,
    "thin_then_blames": _blame,
    "jumps_topic": _jump,
    "stacks_limits": _stack,
    "wrong_premise": _premise,
    "low_signal_pressure": _press,
    "walks_away": _vanish,
    "contradicts_self": _tale,
    "pours_requests": _pour,
    "talks_down": _belittle,
}


# --- users and populations ---------

RATE = 0.4  # of dialogues whose label is acted in supervised data (desk-world.md)
CONTROLS = 0.25  # share of goals that are controls


class ActingUser:
    """A symbolic user whose label is acted with probability `rate`; satisfies types.Respond.

    One coin a dialogue decides for all its turns: it hashes (seed, goal, episode). A dialogue whose
    coin says no is played as its control, with the act line still in the brief.
    """

    def __init__(
        self, knobs: Callable[[int], knobs_.Knobs], *, rate: float = RATE, seed: int = 0
    ):  # fmt: skip
        """Raises ValueError when `rate` is not in [0, 1]."""
        if not 0.0 <= rate <= 1.0:
            raise ValueError(f"rate={rate} is not a probability: use 0 to 1")
        self.rate, self.seed = rate, seed
        self.inner = symbolic.SymbolicUser(knobs, seed=seed, moves=move)

    def acts(self, goal: goals.Goal, episode: tuple[int, int, int]) -> bool:
        """The coin of a dialogue."""
        return chance.stream("act", self.seed, goal.seed, episode).random() < self.rate

    def respond(self, queries: Sequence[types.Query]) -> list[types.Answer]:
        played = []
        for query in queries:
            goal = query.goal
            if isinstance(goal, goals.Goal) and not self.acts(goal, query.key.episode):
                goal = behaviours.control(goal)
            played.append(dataclasses.replace(query, goal=goal))
        answers = self.inner.respond(played)
        return [(query, reply) for query, (_, reply) in zip(queries, answers, strict=True)]


@dataclasses.dataclass(frozen=True)
class Acting:
    """Users that act behaviours; has the doors of population.Population.

    families: phrase tables. rate: probability that a label is acted. controls: share of goals with
    no label. A goal's seed names its behaviour, its case and its person.
    """

    families: tuple[str, ...] = population.SIMULATOR_FAMILIES
    rate: float = RATE
    controls: float = CONTROLS
    name: str = "acting"

    def knobs(self, seed: int) -> knobs_.Knobs:
        """A frank person: few facts volunteered, every ask answered, nothing pushed."""
        rng = chance.stream("frank", seed)
        family = self.families[int(rng.integers(len(self.families)))]
        shown = 0.1 + 0.2 * float(rng.random())
        return knobs_.Knobs(
            disclosure=shown, claims=0.0, most=1, dodge=0.0, tries=0, push=0, repeats=3,
            twists=behaviours.NO_TWISTS, family=family,
        )  # fmt: skip

    def goal(self, seed: int) -> goals.Goal:
        rng = chance.stream("label", seed)
        behaviour = behaviours.IDS[int(rng.integers(len(behaviours.IDS)))]
        drawn = behaviours.case(seed, behaviour)
        return behaviours.control(drawn) if rng.random() < self.controls else drawn

    def goals(self, seeds: range) -> list[goals.Goal]:
        return [self.goal(seed) for seed in seeds]

    def user(self, *, seed: int = 0) -> ActingUser:
        return ActingUser(self.knobs, rate=self.rate, seed=seed)


ACTING = Acting()  # the simulator's users
