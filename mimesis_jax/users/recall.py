"""The rule-based user of the recall domain: says what its persona has, and that it has no more."""

from __future__ import annotations

from collections.abc import Sequence

from mimesis_jax import types
from mimesis_jax.desk import acts, chance, phrases, recall
from mimesis_jax.users import population


class RecallUser:
    """Answers as the persona of each query's goal; satisfies types.Respond.

    families: phrase tables; a goal's seed picks one. Randomness hashes (seed, goal, episode, turn).
    """

    def __init__(
        self, families: tuple[str, ...] = population.SIMULATOR_FAMILIES, *, seed: int = 0
    ):  # fmt: skip
        self.families, self.seed = families, seed

    def respond(self, queries: Sequence[types.Query]) -> list[types.Answer]:
        return [(query, self._reply(query)) for query in queries]

    def _reply(self, query: types.Query) -> types.Reply:
        goal = query.goal
        if not isinstance(goal, recall.Goal):
            reason = f"goal of type {type(goal).__name__}: the recall user plays recall goals only"
            return types.Reply(types.Kind.FAILED, reason=reason)
        last = next((t.public for t in reversed(query.turns) if t.author == "agent"), "")
        act = acts.parse(last)
        rng = chance.stream("recall user", self.seed, goal.seed, query.key.episode, last)
        pick = lambda options: options[int(rng.integers(len(options)))]
        family = chance.stream("recall family", goal.seed).integers(len(self.families))
        table = phrases.FAMILIES[self.families[int(family)]]
        if act is None or act.name != "ask":
            return types.Reply(types.Kind.TEXT, pick(table["puzzled"]), "not clear , ask")
        slot = act.target
        value = dict(goal.persona).get(slot)
        if value is None:
            text, thought = pick(table["unknown"]), f"asked {slot} , not told , no idea"
        else:
            text = pick(table["tell"]).format(s=slot, v=value)
            thought = f"asked {slot} , it is {value} , tell"
        return types.Reply(types.Kind.TEXT, text, thought)
