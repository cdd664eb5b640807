"""The symbolic user: rules and phrases, no model; a function of goal, knobs and public history."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from mimesis_jax import types
from mimesis_jax.desk import acts, chance, goals, phrases
from mimesis_jax.users import history
from mimesis_jax.users import knobs as knobs_

MET, GAVE_UP = "goal met", "given up"  # reasons of a STOP reply


@dataclasses.dataclass(frozen=True)
class Move:
    """What a user does next, before it is worded.

    thought: the private reasoning. says: (kind of phrase, slot, value) in the order said.
    reason: why it leaves with this, None when it stays.
    """

    thought: str
    says: tuple[tuple[str, str, str], ...]
    reason: str | None = None


def move(
    goal: goals.Goal, knobs: knobs_.Knobs, state: history.State, rng: np.random.Generator
) -> Move:
    """The next move of a user in `state`. Draws from `rng` and from nothing else."""
    if not state.opened:
        return _opening(goal, knobs, rng)
    if state.turns >= knobs.patience:
        return Move("too long , leave", (("leave", "", ""),), GAVE_UP)
    act = state.act
    if act is None or (act.name in ("offer", "deny") and act.target != goal.request):
        return Move("not clear , ask", (("puzzled", "", ""),))
    match act.name:
        case "ask":
            return _asked(goal, knobs, state, act, rng)
        case "confirm":
            return _confirmed(goal, state)
        case "offer":
            if bar := _unsaid_bar(goal, state):
                return Move(f"offer , {bar[0]} must {bar[1]} , hold back", (("hint", *bar),))
            return Move("offer , fine", (("yes", "", ""),))
        case "ask_why":
            if goal.bar:
                slot, value = goal.bar
                return Move(f"asked why , {slot} must {value} , tell", (("bar", slot, value),))
            return Move("asked why , no more wish", (("nobar", "", ""),))
        case "deny":
            return _denied(knobs, state)
    return Move("not clear , ask", (("puzzled", "", ""),))


def _opening(goal: goals.Goal, knobs: knobs_.Knobs, rng: np.random.Generator) -> Move:
    told: list[str] = []
    kept: list[str] = []
    for slot in goal.flow.needed:
        volunteers = rng.random() < knobs.disclosure and len(told) < knobs.most
        (told if volunteers else kept).append(slot)
    if rng.random() < knobs.claims and len(told) < knobs.most:
        told.append(goal.flow.field)
    facts = [(slot, goal.first(slot) or "") for slot in told]
    thought = [f"want {goal.request}", *(f"tell {slot} {value}" for slot, value in facts)]
    if kept:
        thought.append("keep " + " ".join(kept))
    return Move(" , ".join(thought), (("open", "", ""), *(("add", *fact) for fact in facts)))


def _asked(
    goal: goals.Goal,
    knobs: knobs_.Knobs,
    state: history.State,
    act: acts.Act,
    rng: np.random.Generator,
) -> Move:
    slot = act.target
    if (said := state.said.get(slot)) is not None:
        if state.needless > knobs.repeats:
            thought = f"asked {slot} again , said {said} , leave"
            return Move(thought, (("leave", "", ""),), GAVE_UP)
        return Move(f"asked {slot} again , said {said} , repeat", (("again", slot, said),))
    value, truth = goal.first(slot), goal.final(slot)
    if value is None:
        return Move(f"asked {slot} , no wish", (("unknown", slot, ""),))
    if state.unanswered < knobs.tries and rng.random() < knobs.dodge:
        how = "vague" if rng.random() < knobs.vague else "dodge"
        return Move(f"asked {slot} , it is {value} , {how}", ((how, slot, ""),))
    act_ = "tell" if value == truth else f"say {value}"
    return Move(f"asked {slot} , it is {truth} , {act_}", (("tell", slot, value),))


def _confirmed(goal: goals.Goal, state: history.State) -> Move:
    thought, says = ["confirm"], []
    for slot, _ in goal.wishes:
        said, final = state.said.get(slot), goal.final(slot) or ""
        if said is None or said == final:
            continue
        changed = goal.change is not None and goal.change == (slot, said)
        thought.append(f"{slot} {'now' if changed else 'is'} {final} not {said}")
        says.append(("change" if changed else "mend", slot, final))
    if bar := _unsaid_bar(goal, state):
        thought.append(f"{bar[0]} must {bar[1]} , hold back")
        if not says:
            says.append(("hint", *bar))
    elif not says:
        thought.append("all right")
        says.append(("yes", "", ""))
    return Move(" , ".join(thought), tuple(says))


def _denied(knobs: knobs_.Knobs, state: history.State) -> Move:
    if state.denials <= knobs.push:
        return Move("denied , push", (("push", "", ""),))
    return Move("denied , accept", (("fair", "", ""),), GAVE_UP)


def _unsaid_bar(goal: goals.Goal, state: history.State) -> tuple[str, str] | None:
    return goal.bar if goal.bar and state.said.get(goal.bar[0]) != goal.bar[1] else None


def word(says: Iterable[tuple[str, str, str]], goal: goals.Goal, family: str,
         rng: np.random.Generator) -> str:  # fmt: skip
    """The utterance: one phrase for each thing said, joined; of the family's, or of the table of
    behaviours, which all families share."""
    table = {**phrases.BEHAVIOUR, **phrases.FAMILIES[family]}
    parts = []
    for kind, slot, value in says:
        options = table[kind]
        text = options[int(rng.integers(len(options)))]
        parts.append(text.format(x=goal.request, s=slot, v=value))
    return " , ".join(parts)


Moves = Callable[[goals.Goal, knobs_.Knobs, history.State, np.random.Generator], Move]


class SymbolicUser:
    """Answers as the user of each query's goal; satisfies types.Respond.

    Everything is rebuilt from the public history, so a dialogue that another user (a model) began
    can be carried on. Randomness hashes (seed, goal, episode, user turn): the same query has the
    same answer whatever was asked before it.
    """

    def __init__(self, knobs: Callable[[int], knobs_.Knobs], *, seed: int = 0, moves: Moves = move):
        """knobs: the knobs of the person that a goal's seed names (population.Population.knobs).

        moves: what decides the next move; `move` above, or something that acts a behaviour first.
        """
        self.knobs, self.seed, self.moves = knobs, seed, moves

    def respond(self, queries: Sequence[types.Query]) -> list[types.Answer]:
        return [(query, self._reply(query)) for query in queries]

    def _reply(self, query: types.Query) -> types.Reply:
        goal = query.goal
        if not isinstance(goal, goals.Goal):
            reason = f"goal of type {type(goal).__name__}: the symbolic user plays desk goals only"
            return types.Reply(types.Kind.FAILED, reason=reason)
        knobs = self.knobs(goal.seed)
        state = history.read(query.turns)
        rng = chance.stream("user", self.seed, goal.seed, query.key.episode, state.turns)
        made = self.moves(goal, knobs, state, rng)
        text = word(made.says, goal, knobs.family, rng)
        kind = types.Kind.TEXT if made.reason is None else types.Kind.STOP
        return types.Reply(kind, text, made.thought, made.reason)
