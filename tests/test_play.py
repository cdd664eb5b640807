"""The event loop: order, keys, views, typed outcomes, and faults that stay with their episode."""

import dataclasses
import math

import pytest

from mimesis_jax import types
from mimesis_jax.rollouts import play, router
from mimesis_jax.types import Feedback, Kind, Reply, Stop, Turn


@dataclasses.dataclass(frozen=True)
class Goal:
    number: int


class CountGym:
    """The user greets; the agent may call a tool with "look"; three spoken turns end it."""

    def __init__(self, goal):
        self.goal, self.said, self.heard = goal, 0, 0

    def begin(self):
        brief = Turn("system", "user brief", only="user")
        guide = Turn("system", "agent guide", only="agent")
        return Feedback((brief, guide), next="user")

    def spoken(self, text):
        return text != "look"

    def step(self, text):
        if text == "raise":
            raise RuntimeError("the gym broke")
        if text == "look":
            return Feedback((Turn("tool", "found", only="agent"),), next="agent")
        self.said += 1
        if self.said == 3:
            return Feedback(reward=1.0, stop=Stop.DONE)
        return Feedback(next="user")

    def hear(self, reply):
        self.heard += 1
        return Feedback(next="agent", reward=0.25)

    def outcome(self):
        return {"success": float(self.said == 3), "heard": self.heard}


class Scripted:
    """Answers from a list by how many turns it has made; keeps what it was asked."""

    def __init__(self, chair, replies, delay=0):
        self.chair, self.replies, self.delay = chair, replies, delay
        self.asked, self.held = [], []

    def respond(self, queries):
        self.held += [(self.delay, q) for q in queries]
        self.asked += queries
        ready = [q for wait, q in self.held if wait <= 0]
        self.held = [(wait - 1, q) for wait, q in self.held if wait > 0]
        out = []
        for query in ready:
            made = sum(t.author == self.chair for t in query.turns)
            reply = self.replies[min(made, len(self.replies) - 1)]
            out.append((query, reply if isinstance(reply, Reply) else Reply(Kind.TEXT, reply)))
        return out


def run(agent, user, goals=3, copies=2, **more):
    todo = play.jobs(CountGym, [Goal(i) for i in range(goals)], copies=copies, stream=7)
    return play.play(todo, agent=agent, user=user, **more)


def test_episodes_come_back_in_order_with_all_turns_and_rewards():
    agent = Scripted("agent", ["one", "look", "two", "three"])
    user = Scripted("user", [Reply(Kind.TEXT, "hi", "secret"), "more"], delay=2)
    episodes = run(agent, user, at_once=2)
    assert [e.key.episode for e in episodes] == [(7, g, c) for g in range(3) for c in range(2)]
    episode = episodes[0]
    said = [(t.author, t.public, t.only) for t in episode.dialogue[2:]]
    assert said == [
        ("user", "hi", None), ("agent", "one", None), ("user", "more", None),
        ("agent", "look", "agent"), ("tool", "found", "agent"), ("agent", "two", None),
        ("user", "more", None), ("agent", "three", None),
    ]  # fmt: skip
    # the reward of hearing belongs to the agent turn that was answered
    assert episode.rewards == (0.25, 0.0, 0.25, 1.0)
    assert episode.stop is Stop.DONE and episode.outcome == {"success": 1.0, "heard": 3}


def test_each_chair_sees_its_own_view_and_keys_name_the_turn():
    agent = Scripted("agent", ["one", "look", "two", "three"])
    user = Scripted("user", [Reply(Kind.TEXT, "hi", "secret"), "more"])
    run(agent, user, goals=1, copies=1)
    for query in agent.asked:
        assert all(t.private is None for t in query.turns if t.author == "user")
        assert "user brief" not in [t.public for t in query.turns]
    for query in user.asked:
        assert not {"look", "found", "agent guide"} & {t.public for t in query.turns}
    assert user.asked[1].turns[1].private == "secret"
    keys = [q.key.turn for q in agent.asked]
    assert keys == [3, 5, 7, 9] and len({q.key for q in agent.asked + user.asked}) == 7


@pytest.mark.parametrize(
    "kind, chair, stop",
    [
        (Kind.EMPTY, "user", Stop.USER_FORMAT),
        (Kind.UNPARSED, "user", Stop.USER_FORMAT),
        (Kind.REFUSED, "user", Stop.USER_FORMAT),
        (Kind.FAILED, "user", Stop.FAILED),
        (Kind.FAILED, "agent", Stop.FAILED),
        (Kind.UNPARSED, "agent", Stop.AGENT_FORMAT),
        (Kind.EMPTY, "agent", Stop.AGENT_FORMAT),
    ],
)
def test_replies_that_are_no_turns_end_and_mask_the_episode(kind, chair, stop):
    bad = Reply(kind, reason="because")
    agent = Scripted("agent", ["one", bad] if chair == "agent" else ["one", "two", "three"])
    user = Scripted("user", ["hi", bad] if chair == "user" else ["hi"])
    (episode,) = run(agent, user, goals=1, copies=1)
    assert episode.stop is stop and episode.records["cause"].startswith(f"{chair}: {kind}")
    if stop is Stop.AGENT_FORMAT:  # the agent's own fault is a zero it learns from
        assert episode.rewards == (0.25, 0.0)
    else:  # anybody else's fault is no reward at all
        assert all(math.isnan(r) for r in episode.rewards)


def test_a_gym_that_raises_ends_its_own_episode_only():
    class Some(Scripted):
        def respond(self, queries):
            for query, reply in super().respond(queries):
                yield query, Reply(Kind.TEXT, "raise") if query.key.goal == 1 else reply

    episodes = run(Some("agent", ["one", "two", "three"]), Scripted("user", ["hi"]))
    stops = [e.stop for e in episodes]
    assert stops == [Stop.DONE] * 2 + [Stop.FAILED] * 2 + [Stop.DONE] * 2
    assert "the gym broke" in episodes[2].records["cause"]
    assert dict(play.causes(episodes)) == {"stop_done": 4, "stop_failed": 2, "cause_gym_raised": 2}


def test_two_episodes_of_one_key_are_refused():
    job = play.Job(types.Key(0, 0, 0), CountGym(Goal(0)))
    with pytest.raises(ValueError, match="share the key"):
        play.play([job, job], agent=Scripted("agent", ["x"]), user=Scripted("user", ["hi"]))


def test_router_sends_each_episode_to_its_user():
    rooms = {"a": Scripted("user", ["from a"]), "b": Scripted("user", ["from b"], delay=1)}
    users = router.Router(rooms, lambda key: "ab"[key.copy])
    episodes = run(Scripted("agent", ["one", "two", "three"]), users)
    assert [e.dialogue[2].public for e in episodes] == ["from a", "from b"] * 3
    with pytest.raises(ValueError, match="is not one of a, b"):
        lost = router.Router(rooms, lambda key: "c")
        run(Scripted("agent", ["one"]), lost, goals=1, copies=1)
