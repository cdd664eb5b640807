"""Many users behind one door: each query goes to the user that its episode belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from mimesis_jax import types
from mimesis_jax.rollouts import pool


class Router:
    """types.Seat over named Responds. `choose(key)` names the one that plays an episode."""

    def __init__(self, rooms: dict[str, types.Respond], choose: Callable[[types.Key], str]):
        self.rooms, self.choose = rooms, choose

    def respond(self, queries: Sequence[types.Query]) -> Iterable[types.Answer]:
        by_room: dict[str, list[types.Query]] = {name: [] for name in self.rooms}
        for query in queries:
            name = self.choose(query.key)
            if name not in by_room:
                raise ValueError(f"user {name!r} is not one of {', '.join(self.rooms)}")
            by_room[name].append(query)
        answers: list[types.Answer] = []
        for name, room in self.rooms.items():
            mine = by_room[name]
            if isinstance(room, types.Seat) or not mine:
                answers.extend(room.respond(mine))
            else:  # what a rule raises is the fault of one query
                answers.extend(pool.guarded(room, mine))
        return answers

    def finish(self, episode: tuple[int, int, int]) -> types.Tree:
        room = self.rooms[self.choose(types.Key(*episode))]
        return room.finish(episode) if isinstance(room, types.Seat) else ()
