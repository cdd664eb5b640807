"""The scripted agent: the desk procedure, followed with probability q, from its own view only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mimesis_jax import types
from mimesis_jax.desk import acts, chance, plan, slots

# Of the agent whose dialogues the learned agent starts from: right nearly always, and without most
# of the steps that only some users make decisive. (Mere errors would be no start: a model that
# imitates q = 0.6 leaves the errors out as soon as its temperature is lowered.)
START_Q, START_HAVING = 0.95, 0.45
_MISTAKES = ("guess", "close", "idle", "look", "offer", "hand_over")
_WEIGHTS = np.array([0.23, 0.15, 0.42, 0.12, 0.06, 0.02])


class ScriptedAgent:
    """Answers in the agent chair; satisfies types.Respond.

    q: probability of the right act at each turn; 1 is the perfect agent. Otherwise it guesses the
    form, closes early, asks idly, looks needlessly, offers, or hands over.
    skills: a subset of plan.SKILLS; a skill left out is a step never taken.
    having: probability of having each of these skills in an episode; a step that most episodes
    lack is what a start learns to leave out and reinforcement can find.
    habits: a subset of plan.HABITS; steps that the procedure does not need.
    Randomness hashes (seed, episode, agent turn).
    """

    def __init__(
        self,
        q: float = 1.0,
        *,
        skills: frozenset[str] = plan.SKILLS,
        having: float = 1.0,
        habits: frozenset[str] = frozenset(),
        seed: int = 0,
    ):
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"q={q} is not a probability: use 0 to 1")
        if not 0.0 <= having <= 1.0:
            raise ValueError(f"having={having} is not a probability: use 0 to 1")
        if unknown := skills - plan.SKILLS:
            raise ValueError(f"skills {sorted(unknown)} are unknown: use {sorted(plan.SKILLS)}")
        if unknown := habits - plan.HABITS:
            raise ValueError(f"habits {sorted(unknown)} are unknown: use {sorted(plan.HABITS)}")
        self.q, self.skills, self.habits, self.seed = q, skills, habits, seed
        self.having = having

    def respond(self, queries: Sequence[types.Query]) -> list[types.Answer]:
        return [(query, self._reply(query)) for query in queries]

    def _reply(self, query: types.Query) -> types.Reply:
        try:
            case = plan.read(query.turns)
        except ValueError as error:
            return types.Reply(types.Kind.FAILED, reason=str(error))
        rng = chance.stream("agent", self.seed, query.key.episode, case.taken)
        # two orders of the same procedure: asking first meets more dodges, so that asking again is
        # common enough to learn; the perfect agent looks first and saves the asks of denied cases
        order = chance.stream("order", self.seed, query.key.episode).random()
        look_first = self.q == 1.0 or order < 0.5
        right = plan.best(case, self._had(query.key), look_first=look_first, habits=self.habits)
        if rng.random() >= self.q:
            right = _mistake(case, rng)
        return types.Reply(types.Kind.TEXT, acts.write(right or _guess(case, rng)))

    def _had(self, key: types.Key) -> frozenset[str]:
        """The skills it has in an episode."""
        if self.having == 1.0:
            return self.skills
        has = lambda skill: (
            chance.stream("skill", self.seed, key.episode, skill).random() < self.having
        )
        return frozenset(skill for skill in self.skills if has(skill))


def _mistake(case: plan.Case, rng: np.random.Generator) -> acts.Act:
    match _MISTAKES[int(rng.choice(len(_MISTAKES), p=_WEIGHTS))]:
        case "guess":
            return _guess(case, rng)
        case "idle":
            # a confirmation before its time is idle too, and keeps the act common enough to learn
            slot = case.missing[0] if case.missing else _pick(rng, tuple(slots.WISHES))
            return acts.Act("confirm") if rng.random() < 0.25 else acts.ask(slot)
        case "look":
            return acts.look(_pick(rng, tuple(slots.VALUES)))
        case "offer":
            return acts.Act("offer", case.flow.name)
        case "hand_over":
            return acts.Act("hand_over")
    return acts.Act("close")


def _guess(case: plan.Case, rng: np.random.Generator) -> acts.Act:
    """Fill the form with what was heard and, for the rest, with any value."""
    known = case.known
    pairs = ((s, known.get(s) or _pick(rng, slots.VALUES[s])) for s in case.flow.needed)
    return acts.set_(*pairs)


def _pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]
