"""Measuring dealt out over processes: the same to the bit on any number of them."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import small_desk
from small_desk import quick_compiles  # noqa: F401 - acts in this module

from mimesis_jax.desk import agent as scripted
from mimesis_jax.envs import desk
from mimesis_jax.evaluation import cross, dealt
from mimesis_jax.rollouts import seat
from mimesis_jax.runs import processes
from mimesis_jax.users import population

AGENTS = ("plain", "bold", "rule", "again")  # three models that take turns on one engine, and rules


def opponents():
    """Two users by rule and one that is a model, each with four goals."""
    rooms = {
        name: cross.Opponent(people.user(seed=3), people.goals(range(900, 904)))
        for name, people in list(population.EVALUATION.items())[:2]
    }
    model = small_desk.make_seat("user", small_desk.params(), seed=5, slots=4, limit=24)
    goals = population.SIMULATOR.goals(range(900, 904))
    return rooms | {"model": cross.Opponent(model, goals)}


@functools.cache
def weights(name):
    """Of three agents; "again" is "plain" once more."""
    noise = np.random.default_rng(0 if name == "bold" else 1)
    move = lambda leaf: leaf + 0.01 * noise.normal(size=leaf.shape).astype(leaf.dtype)
    return jax.tree.map(move, small_desk.params())


def player(played):
    """What plays an agent, as a process of its own would: with its own engines."""
    rooms = opponents()
    held = small_desk.make_seat("agent", small_desk.params(), slots=4).engine

    def play(name):
        played.append(name)
        who = scripted.ScriptedAgent(0.7)
        if name != "rule":
            held.load(weights(name), version=0)
            chosen = seat.Config(limit=24, temperature=0.8)
            who = seat.ModelSeat(held, small_desk.renderer(), "agent", chosen)
        return cross.against(who, rooms, desk.DeskGym, stream=41)

    return play, rooms


def as_process(monkeypatch, index, count, meet):
    monkeypatch.setattr(processes, "index", lambda: index)
    monkeypatch.setattr(processes, "count", lambda: count)
    monkeypatch.setattr(processes, "exchange", meet)
    monkeypatch.setattr(processes, "agree", meet)


class Asked(Exception):
    """What a process does not live to see in these tests: the others' answers."""


def told(result):
    """All that a result has, episodes to the last bit of a log-prob."""
    episodes = [e for name in result.users for e in result.episodes[name]]
    trees = [
        (chair, *(np.asarray(getattr(s, f.name)).tolist() for f in dataclasses.fields(s)))
        for e in episodes for chair, tree in e.trees.items() for s in tree
    ]  # fmt: skip
    rest = [(e.key, e.goal, e.dialogue, e.rewards, e.stop, e.outcome) for e in episodes]
    return repr((result.users, result.success.tolist(), trees, rest))


def sent(monkeypatch, count, work):
    """What each of `count` processes brings to the first meeting of `work(index)`."""
    brought = []

    def meet(value, name, timeout=None):
        brought.append(value)
        raise Asked

    for index in range(count):
        as_process(monkeypatch, index, count, meet)
        with pytest.raises(Asked):
            work(index)
    return brought


@pytest.fixture(scope="module")
def alone():
    """The results of one process."""
    played = []
    play, rooms = player(played)
    found = dealt.results(AGENTS, play, rooms)
    assert tuple(played) == tuple(found) == AGENTS
    return found


def test_an_agent_is_played_alike_whoever_was_played_before(alone):
    assert told(alone["plain"]) == told(alone["again"]) != told(alone["bold"])
    turns = [t.public for e in alone["bold"].episodes["model"] for t in e.dialogue]
    assert len(set(turns)) > 4  # both models speak


@pytest.mark.parametrize("count", [2, 3, 5])
def test_results_of_any_number_of_processes_are_those_of_one(monkeypatch, alone, count):
    shares = []

    def work(index):
        shares.append([])
        dealt.results(AGENTS, *player(shares[-1]))

    brought = sent(monkeypatch, count, work)
    assert shares == [list(AGENTS[index::count]) for index in range(count)]
    as_process(monkeypatch, count - 1, count, lambda *_: brought)
    found = dealt.results(AGENTS, *player([]))
    assert tuple(found) == AGENTS
    for name in AGENTS:
        assert told(found[name]) == told(alone[name]), name


def test_values_go_on_where_the_agents_ended(monkeypatch):
    done = []
    works = {
        name: lambda n=name: done.append(n) or {"of": n, "none": float("nan")} for name in "abc"
    }
    alone = dealt.values(works)
    assert done == ["a", "b", "c"] and alone["b"]["of"] == "b"
    done.clear()
    brought = sent(monkeypatch, 2, lambda index: dealt.values(works, after=3))
    assert done == ["b", "a", "c"]  # process 0 has the even numbers: 4; process 1 has 3 and 5
    assert [list(part) for part in brought] == [["b"], ["a", "c"]]
    as_process(monkeypatch, 1, 2, lambda *_: brought)
    found = dealt.values(works, after=3)
    assert list(found) == ["a", "b", "c"] and found["c"] == {"of": "c", "none": None}


def test_parameters_on_one_device_stay_where_they_are():
    params = {"a": jax.numpy.ones(3)}
    assert dealt.here(params) is params
