"""What each supervised stage of the small world learns from, rendered when the stage is run."""

from __future__ import annotations

from collections.abc import Sequence

from mimesis_jax import types
from mimesis_jax.build import world
from mimesis_jax.build.stages import source


class Sources:
    """Sources of each supervised stage; their rows are rendered only when the stage is run."""

    def __init__(self, made: world.World):
        self.made = made

    def drills(self, weight: float) -> list:
        return [
            source(f"drill_{chair}", Late(lambda c=chair: self.made.drill_trees[c]), weight)
            for chair in ("agent", "user")
        ]

    def base(self) -> list:
        made = self.made
        return [
            source("agent", Late(lambda: made.agent_trees(made.base)), 2.0),
            source("user", Late(lambda: made.user_trees(made.base, thinking="none")), 0.6),
            source("thinking", Late(lambda: made.user_trees(made.base, thinking="sample")), 0.6),
            source(
                "practice", Late(lambda: made.user_trees(made.practised, thinking="sample")), 0.5
            ),
            *self.drills(0.15),
        ]

    def user(self, thinking: str) -> list:
        made = self.made
        return [
            source("plain", Late(lambda: made.user_trees(made.user, thinking=thinking))),
            source(
                "practice", Late(lambda: made.user_trees(made.practised, thinking=thinking)), 2.0
            ),
        ]

    def thoughts(self) -> list:
        """Thoughts before words; a share without annotation, as real sources have them."""
        made = self.made
        bare = Late(lambda: made.unannotated_trees([*made.user, *made.practised]))
        return [*self.user("sample"), source("unannotated", bare, 0.7)]

    def model_user(self, name: str) -> list:
        made = self.made
        trees = Late(lambda: made.user_trees(made.model_user(name), thinking="sample"))
        return [source(name, trees)]

    def start(self) -> list:
        made = self.made
        return [source("start", Late(lambda: made.agent_trees(made.start, noted=True)))]

    def perfect(self) -> list:
        made = self.made
        return [source("perfect", Late(lambda: made.agent_trees(made.perfect)))]


class Late(Sequence[types.Tree]):
    """A list that is made when it is first read."""

    def __init__(self, make):
        self._make, self._made = make, None

    def _list(self):
        if self._made is None:
            self._made = self._make()
        return self._made

    def __len__(self) -> int:
        return len(self._list())

    def __getitem__(self, index):
        return self._list()[index]
