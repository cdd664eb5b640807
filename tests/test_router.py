"""The router: queries to the user that their episode belongs to, trees back from it."""

import pytest

from mimesis_jax import types
from mimesis_jax.rollouts import router
from mimesis_jax.types import Key, Kind, Query, Reply, Turn


class Echo:
    """Answers at once with its name; keeps how often it was asked."""

    def __init__(self, name):
        self.name, self.calls = name, []

    def respond(self, queries):
        self.calls.append(list(queries))
        return [(query, Reply(Kind.TEXT, self.name)) for query in queries]


class Slow(Echo):
    """A seat that answers only when it is asked again, and hands out a segment at the end."""

    def __init__(self, name):
        super().__init__(name)
        self.held = []

    def respond(self, queries):
        ready, self.held = self.held, list(queries)
        return [(query, Reply(Kind.TEXT, self.name)) for query in ready]

    def finish(self, episode):
        return (types.segment([1, *episode]),)


def query(goal, copy):
    return Query(Key(1, goal, copy), "user", (Turn("system", "brief"),))


def users():
    return router.Router({"quick": Echo("quick"), "slow": Slow("slow")},
                         lambda key: ("quick", "slow")[key.copy])  # fmt: skip


def test_answers_come_from_the_right_room_when_they_are_ready():
    door = users()
    asked = [query(0, 1), query(0, 0), query(1, 1)]
    first = list(door.respond(asked))
    assert [(q.key.episode, r.public) for q, r in first] == [((1, 0, 0), "quick")]
    # no new query: every room is still asked for what has become ready
    later = list(door.respond([]))
    assert [(q.key.episode, r.public) for q, r in later] == [
        ((1, 0, 1), "slow"), ((1, 1, 1), "slow"),
    ]  # fmt: skip
    assert door.rooms["quick"].calls == [[asked[1]], []]


def test_trees_come_from_the_seat_that_played_and_a_rule_has_none():
    door = users()
    assert isinstance(door, types.Seat)
    (part,) = door.finish((1, 5, 1))
    assert part.ids.tolist() == [1, 1, 5, 1]
    assert door.finish((1, 5, 0)) == ()


def test_a_name_without_a_room_is_refused():
    lost = router.Router({"quick": Echo("quick")}, lambda key: "nobody")
    with pytest.raises(ValueError, match="user 'nobody' is not one of quick"):
        lost.respond([query(0, 0)])
