"""Episodes as bytes: an exact round trip, what cannot travel is named, what arrives broken is told.

And playing over several processes, with processes that are threads: who plays what, and that
everybody ends with the same episodes in goal order.
"""

import collections
import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimesis_jax import types
from mimesis_jax.rollouts import episode_codec as codec
from mimesis_jax.rollouts import play, shared
from mimesis_jax.runs import processes

floats32 = st.floats(width=32)
plain = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from([types.Stop.DONE, types.Kind.EMPTY]),
    floats32.map(np.float32), st.integers(-128, 127).map(np.int8), st.booleans().map(np.bool_),
    st.lists(floats32, max_size=3).map(lambda x: np.array(x, np.float32)),
    st.just(np.arange(6, dtype=np.int64).reshape(2, 3)),
)  # fmt: skip
keys = st.one_of(st.text(max_size=4), st.integers(0, 5), st.just("!tuple"), st.booleans())
values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
    ),
    max_leaves=8,
)  # fmt: skip
turns = st.one_of(
    st.builds(types.Turn, st.sampled_from(["user", "agent"]), st.text(max_size=8),
              st.none() | st.text(max_size=8)),
    st.builds(types.Turn, st.just("tool"), st.text(max_size=8), only=st.just("agent")),
)  # fmt: skip


@st.composite
def trees(draw):
    made = []
    for i in range(draw(st.integers(0, 3))):
        n = draw(st.integers(0, 4))
        column = lambda n=n: np.array(draw(st.lists(floats32, min_size=n, max_size=n)), np.float32)
        scored = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), bool)
        made.append(types.Segment(
            np.arange(n, dtype=np.int32), draw(st.integers(-1, i - 1)), scored, column(), column(),
            column(), column(), column(), draw(st.integers(0, 9)),
            draw(st.sampled_from(["trunk", "branch", "teacher"])),
        ))  # fmt: skip
    return tuple(made)


@st.composite
def episodes(draw):
    return types.Episode(
        key=types.Key(*(draw(st.integers(0, 9)) for _ in range(4))),
        goal="the goal",
        dialogue=tuple(draw(st.lists(turns, max_size=4))),
        rewards=tuple(draw(st.lists(st.floats() | floats32.map(np.float32), max_size=3))),
        stop=draw(st.sampled_from(list(types.Stop))),
        outcome=draw(st.dictionaries(st.text(max_size=5), values, max_size=3)),
        trees=draw(st.dictionaries(st.sampled_from(["user", "agent"]), trees(), max_size=2)),
        records=draw(st.dictionaries(keys, values, max_size=2)),
    )


def same(a, b):
    """Equal in value and in type, all the way down; NaN equals itself."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (np.ndarray, np.generic)):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a * 0 + a) ==
                                                     math.copysign(1, b * 0 + b))  # fmt: skip
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, dict):
        pairs = zip(a.items(), b.items(), strict=False)
        return len(a) == len(b) and all(same(k, m) and same(v, w) for (k, v), (m, w) in pairs)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


@given(st.lists(episodes(), max_size=3))
def test_what_arrives_is_what_was_sent(given_episodes):
    arrived = codec.decode(codec.encode(given_episodes), lambda key: "the goal")
    assert same(given_episodes, arrived)


def test_the_comparison_of_this_file_sees_differences():
    assert not same((1,), [1]) and not same(1, True) and not same(0.0, -0.0)
    assert not same(np.float32(1), 1.0) and same(float("nan"), float("nan"))
    assert not same({"a": 1}, {"a": 1.0})


def episode(**more):
    whole = {"key": types.Key(7, 2, 1), "goal": None, "dialogue": (), "rewards": (1.0,),
             "stop": types.Stop.DONE, "outcome": {}} | more  # fmt: skip
    return types.Episode(**whole)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"outcome": {"acts": {"open": [1, object()]}}}, r"outcome.acts.open\[1\] is a object"),
        ({"outcome": {"acts": collections.Counter(a=1)}}, "outcome.acts is a Counter"),
        ({"records": {"x": np.array(["a"])}}, "records.x is a ndarray"),
        ({"records": {(1, object()): 1}}, r"records: a key\[1\] is a object"),
        ({"rewards": (1 + 2j,)}, "rewards is a complex"),
    ],
)
def test_what_cannot_travel_is_named(more, words):
    with pytest.raises(codec.CodecError, match=rf"episode \(7, 2, 1\), {words}"):
        codec.encode([episode(**more)])


def test_damage_is_told():
    whole = codec.encode([episode(trees={"agent": (types.segment([1, 2]),)})] * 3)
    for broken in (b"", b"nothing", whole[:-40], whole[:100]):
        with pytest.raises(codec.CodecError, match=f"{len(broken)} bytes hold no episodes"):
            codec.decode(broken, lambda key: None)


def test_the_goal_is_the_receivers():
    arrived = codec.decode(codec.encode([episode(goal="theirs")]), lambda key: ("mine", key.goal))
    assert arrived[0].goal == ("mine", 2)


# --- playing over processes -----------------------------------------------------------------------


class Gym:
    """One agent turn: what it is paid is its goal's number and copy, said by the user's echo."""

    made: list = []  # goals that a gym was made for

    def __init__(self, goal):
        self.goal = goal
        Gym.made.append(goal)

    def begin(self):
        return types.Feedback(next="agent")

    def spoken(self, text):
        return True

    def step(self, text):
        return types.Feedback(reward=float(self.goal), stop=types.Stop.DONE)

    def hear(self, reply):
        raise AssertionError("nobody speaks")

    def outcome(self):
        return {"success": 1.0, "stop": types.Stop.DONE}


class Echo:
    def respond(self, queries):
        return [(q, types.Reply(types.Kind.TEXT, f"copy {q.key.copy}")) for q in queries]


def as_process(monkeypatch, index, count, meet):
    monkeypatch.setattr(processes, "index", lambda: index)
    monkeypatch.setattr(processes, "count", lambda: count)
    monkeypatch.setattr(processes, "exchange", meet)


GOALS = [10, 11, 12, 13, 14]


def play_all(**more):
    options = {"copies": 2, "stream": 3, "agent": Echo(), "user": Echo()} | more
    return shared.play_all(Gym, GOALS, **options)


@pytest.mark.parametrize("count", [2, 3, 7])
def test_episodes_do_not_depend_on_the_number_of_processes(monkeypatch, count):
    alone = play_all()
    sent = []
    for index in range(count):  # what each of them would send
        Gym.made = []
        as_process(monkeypatch, index, count, lambda data, name: sent.append(data) or [data])
        with pytest.raises(processes.ProcessError, match="was played by nobody"):
            play_all()
        assert Gym.made == [g for g in GOALS[index::count] for _ in range(2)]
    for index in range(count):
        as_process(monkeypatch, index, count, lambda data, name: sent)
        assert same(play_all(), alone)
    assert [(e.key.goal, e.key.copy) for e in alone] == [(g, c) for g in range(5) for c in (0, 1)]
    assert [e.rewards for e in alone] == [(float(g),) for g in GOALS for _ in (0, 1)]


def test_what_one_process_lacks_is_named(monkeypatch):
    as_process(monkeypatch, 0, 2, lambda data, name: [data])
    with pytest.raises(processes.ProcessError, match="goal 1, copy 0 was played by nobody, 4 such"):
        play_all()


def test_a_gym_with_a_goal_of_its_own_is_refused(monkeypatch):
    as_process(monkeypatch, 0, 2, lambda data, name: [data])
    with pytest.raises(ValueError, match="gym of goal 0 has another goal than it was made of"):
        shared.play_all(lambda goal: Gym(goal + 100), GOALS, copies=1, stream=0, agent=Echo(),
                        user=Echo())  # fmt: skip


def test_alone_the_jobs_are_those_of_play():
    ours, theirs = (m.jobs(Gym, GOALS, copies=2, stream=3) for m in (shared, play))
    assert [job.key for job in ours] == [job.key for job in theirs]
