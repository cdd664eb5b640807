"""Where user simulators practise: gyms, goals and rule-based partners of both domains together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mimesis_jax import types
from mimesis_jax.desk import agent, plan, recall
from mimesis_jax.desk.goals import Goal
from mimesis_jax.envs import desk
from mimesis_jax.envs import recall as recall_gym
from mimesis_jax.users import behaviours, behaviours_acting
from mimesis_jax.users import recall as recall_user

SKILLS = plan.SKILLS - {"ask_why"}  # asking why would end what hidden_bar shows, and costs a turn


class ByGoal:
    """A Respond that hands each query to the chair that knows its kind of goal."""

    def __init__(self, desk: types.Respond, recall: types.Respond):
        self.desk, self.recall = desk, recall

    def respond(self, queries: Sequence[types.Query]) -> list[types.Answer]:
        other = [query for query in queries if isinstance(query.goal, recall.Goal)]
        plain = [query for query in queries if not isinstance(query.goal, recall.Goal)]
        return [*self.desk.respond(plain), *self.recall.respond(other)]


def make(goal: Any) -> types.Gym:
    """The gym of a goal of either domain; a desk case is cut after its behaviour's turns."""
    if isinstance(goal, recall.Goal):
        return recall_gym.RecallGym(goal)
    return desk.DeskGym(goal, until=behaviours.turns(goal))


def whole(goal: Any) -> types.Gym:
    """As `make`, with desk cases played to their end."""
    return recall_gym.RecallGym(goal) if isinstance(goal, recall.Goal) else desk.DeskGym(goal)


def opposite(*, skills: frozenset[str] = SKILLS, seed: int = 0) -> ByGoal:
    """The scripted agent opposite a practising user: it offers before it confirms, and denies
    again, so that every behaviour meets what it needs; in the recall domain it asks."""
    return ByGoal(
        agent.ScriptedAgent(skills=skills, habits=plan.HABITS, seed=seed), recall.Asker()
    )  # fmt: skip


def user(acting: behaviours_acting.Acting = behaviours_acting.ACTING, *, seed: int = 0) -> ByGoal:
    """Rule-based users of both domains, for supervised data and references."""
    return ByGoal(acting.user(seed=seed), recall_user.RecallUser(acting.families, seed=seed))


def goals(step: int, rows: int, *, seed: int = 0) -> list[Goal | recall.Goal]:
    """The goals of a step of user training: of 18 rows 12 behaviours, 3 controls, 3 of recall."""
    return behaviours.goals(step, rows, seed=seed, other=recall.draw)


def corpus(
    seeds: range,
    acting: behaviours_acting.Acting = behaviours_acting.ACTING,
    *,
    recalls: float = 0.2,
) -> list[Goal | recall.Goal]:
    """Goals of supervised data, one a seed: a share `recalls` of recall, the rest labelled and
    control rows of `acting`, spread evenly. Raises ValueError when `recalls` is not in [0, 1]."""
    if not 0.0 <= recalls <= 1.0:
        raise ValueError(f"recalls={recalls} is not a share: use 0 to 1")
    turn = lambda s: int((s + 1) * recalls) > int(s * recalls)
    return [recall.draw(seed) if turn(seed) else acting.goal(seed) for seed in seeds]
