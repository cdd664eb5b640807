"""Users and gyms that raise, hang or answer garbage: each fails its own episode and is counted."""

import collections
import dataclasses
import threading
import time
import zlib

import pytest
from test_play import CountGym, Goal, Scripted

from mimesis_jax import types
from mimesis_jax.rollouts import play, pool
from mimesis_jax.types import Feedback, Key, Kind, Query, Reply, Stop

EPISODES = 500
FAULTS = ("raises", "hangs", "garbage")


def drawn(name, share=0.05):
    """One of FAULTS with that probability each, from a name alone; None otherwise."""
    number = zlib.crc32(repr(name).encode()) % 10_000 / 10_000
    return FAULTS[int(number / share)] if number < len(FAULTS) * share else None


class User:
    """Says who it talks to and how often; a call may go wrong as its key has it."""

    def __init__(self, faulty, end):
        self.faulty, self.end = faulty, end

    def respond(self, queries):
        (query,) = queries
        key = query.key
        fault = drawn(key) if self.faulty else None
        if fault == "raises":
            raise RuntimeError(f"poison of {key}")
        if fault == "hangs":
            self.end.wait(60)
        if fault == "garbage":
            other = dataclasses.replace(query, key=dataclasses.replace(key, goal=key.goal + 1))
            return [
                None, 7, [], [None], [(query, "poison")], [(other, Reply(Kind.TEXT, "poison"))],
                [(query, Reply("poison"))], [(query, Reply(Kind.TEXT, b"poison"))],
                [(query, Reply(Kind.TEXT, "poison\ud800"))],
                [(query, Reply(Kind.TEXT, "poison"))] * 2,
            ][key.goal % 10]  # fmt: skip
        said = sum(turn.author == "user" for turn in query.turns)
        return [(query, Reply(Kind.TEXT, f"user {key.goal} turn {said}"))]


class Agent:
    """Takes eight queries a pass and a while for them, as a busy engine does."""

    def __init__(self, pace):
        self.pace, self.held = pace, collections.deque()

    def respond(self, queries):
        self.held.extend(queries)
        now = [self.held.popleft() for _ in range(min(8, len(self.held)))]
        if now:
            time.sleep(self.pace)
        return [(q, Reply(Kind.TEXT, f"agent hears {q.turns[-1].public}")) for q in now]

    def finish(self, episode):
        return ()


def expected():
    """(stop, cause) of each episode by walking its user's keys: turns 2, 4 and 6."""
    out = []
    names = {"raises": "raised", "hangs": "timeout", "garbage": "garbage"}
    for goal in range(EPISODES):
        faults = [drawn(Key(3, goal, 0, turn)) for turn in (2, 4, 6)]
        first = next((fault for fault in faults if fault), None)
        out.append(names[first] if first else None)
    return out


def run(faulty, timeout, pace=0.016):
    end = threading.Event()
    threads = pool.Pool(workers=16, timeout=timeout)
    user = pool.Chair(User(faulty, end), threads)
    todo = play.jobs(CountGym, [Goal(i) for i in range(EPISODES)], copies=1, stream=3)
    began = time.monotonic()
    try:
        episodes = play.play(todo, agent=Agent(pace), user=user, at_once=128)
    finally:
        end.set()
        threads.close()
    return episodes, time.monotonic() - began, user, threads


def test_five_hundred_episodes_with_faulty_users_end_and_nothing_leaks(record_property):
    clean, clean_seconds, _, _ = run(False, timeout=30.0)
    assert all(e.stop is Stop.DONE for e in clean)
    timeout = 0.02 * clean_seconds
    faulty, seconds, user, threads = run(True, timeout)
    record_property("wall_ratio", seconds / clean_seconds)
    print(f"clean {clean_seconds:.2f} s, faulty {seconds:.2f} s, time-out {timeout * 1e3:.0f} ms")

    assert [e.key.goal for e in faulty] == list(range(EPISODES))
    wanted = expected()
    count = collections.Counter(wanted)
    assert min(count["raised"], count["timeout"], count["garbage"]) > 40
    found = dict(play.causes(faulty))
    assert found == {
        "stop_done": count[None], "stop_failed": EPISODES - count[None],
        **{f"cause_user_{name}": n for name, n in count.items() if name},
    }  # fmt: skip
    assert user.counts["kind_failed"] == EPISODES - count[None]
    assert threads.counts["fault_timeout"] == count["timeout"]
    for before, after, cause in zip(clean, faulty, wanted, strict=True):
        if cause is None:  # untouched episodes are what they were, word for word
            assert after.dialogue == before.dialogue and after.rewards == before.rewards
        else:
            assert after.dialogue == before.dialogue[: len(after.dialogue)]
            assert all(r != r for r in after.rewards)  # missing, not zero
            assert after.records["cause"].startswith(f"user: failed: {cause}")
        assert "poison" not in str(after.dialogue)
    assert seconds <= 1.3 * clean_seconds


class Odd(CountGym):
    """A gym that goes wrong in its second step, as its goal's number has it."""

    end = threading.Event()

    def step(self, text):
        if self.said == 1:
            match self.goal.number:
                case 1:
                    raise RuntimeError("the gym broke")
                case 2:
                    self.end.wait(60)
                    self.said = 99  # late: nobody may see it
                case 3:
                    return "done"
        return super().step(text)

    def outcome(self):
        if self.goal.number == 4:
            raise KeyError("no record")
        return "well" if self.goal.number == 5 else super().outcome()


@pytest.mark.parametrize("threaded", [True, False])
def test_gyms_that_raise_hang_or_hand_back_garbage(threaded):
    threads = pool.Pool(workers=4, timeout=0.2) if threaded else None
    numbers = [0, 1, 3, 4, 5] + ([2, 2, 2, 2, 2, 2] if threaded else [])
    todo = play.jobs(Odd, [Goal(i) for i in numbers], copies=1, stream=0)
    Odd.end.clear()
    try:
        episodes = play.play(
            todo, agent=Scripted("agent", ["one", "two", "three"]), user=Scripted("user", ["hi"]),
            gyms=threads,
        )  # fmt: skip
    finally:
        Odd.end.set()
    causes = {e.goal.number: e.records.get("cause") for e in episodes}
    assert causes[0] is None and causes[1] == "gym: raised: RuntimeError: the gym broke"
    assert causes[3] == "gym: garbage: str where a Feedback was due"
    assert causes[4].startswith("gym: raised: KeyError") and causes[5].startswith("gym: garbage")
    stops = {e.goal.number: e.stop for e in episodes}
    assert stops[0] is stops[4] is stops[5] is Stop.DONE  # the dialogue itself was whole
    assert stops[1] is stops[3] is Stop.FAILED and episodes[3].outcome == {}
    if threaded:  # six hanging gyms over four threads: each has its own time
        assert causes[2] == "gym: timeout: no answer in 0.2 s" and stops[2] is Stop.FAILED
        assert all(e.outcome == {} for e in episodes if e.goal.number == 2)
    # a turn whose gym failed is for the agent's eyes only: it may have been a call
    assert episodes[1].dialogue[-1] == types.Turn("agent", "two", None, None)
    assert len(episodes[1].rewards) == 2


def test_a_slow_gym_holds_up_its_own_episode_only():
    class Slow(CountGym):
        def step(self, text):
            time.sleep(0.3 if self.goal.number == 0 else 0)
            return super().step(text)

    ended = []
    todo = play.jobs(Slow, [Goal(i) for i in range(4)], copies=1, stream=0)
    meter = collections.Counter()
    play.play(
        todo, agent=Scripted("agent", ["one", "two", "three"]), user=Scripted("user", ["hi"]),
        gyms=pool.Pool(workers=2, timeout=5), meter=meter,
        done=lambda e: ended.append(e.goal.number),
    )  # fmt: skip
    assert ended[-1] == 0 and sorted(ended) == [0, 1, 2, 3]
    assert meter["queries_agent"] == 12 and meter["queries_user"] == 12
    assert meter["wait_gym_seconds"] > 0.9 and meter["idle_for_gym_seconds"] > 0.5
    assert meter["idle_for_user_seconds"] == meter["stray_answers"] == 0


def test_patience_ends_a_query_that_nobody_answers_and_drops_what_comes_later():
    class Forgetful(Scripted):
        """Loses the first query of goal 1 and answers it when it has been given up."""

        lost, told = None, False

        def respond(self, queries):
            if queries and queries[0].key.goal == 1:
                self.lost = queries[0]
                return []
            if not queries and not self.told and time.monotonic() > began + 0.3:
                self.told = True
                return [(self.lost, Reply(Kind.TEXT, "late"))]
            return super().respond(queries)

    class Slow(Scripted):
        def respond(self, queries):
            time.sleep(0.1 if queries else 0)  # keeps goal 0 going past the late answer
            return super().respond(queries)

    began = time.monotonic()
    meter = collections.Counter()
    todo = play.jobs(CountGym, [Goal(i) for i in range(2)], copies=1, stream=0)
    agent, user = Slow("agent", ["one", "look", "two", "look", "three"]), Forgetful("user", ["hi"])
    episodes = play.play(todo, agent=agent, user=user, patience=0.2, meter=meter)
    assert [e.stop for e in episodes] == [Stop.DONE, Stop.FAILED]
    assert episodes[1].records["cause"] == "user: failed: timeout: no answer in 0.2 s"
    assert user.told and meter["stray_answers"] == 1
    assert "late" not in str(episodes[0].dialogue) + str(episodes[1].dialogue)


def test_a_call_answers_once_and_a_late_one_is_dropped():
    threads, gate = pool.Pool(workers=2, timeout=0.1), threading.Event()
    threads.submit("slow", lambda: gate.wait(10))
    threads.submit("quick", lambda: 5)
    got = {}
    until = time.monotonic() + 5
    while len(got) < 2 and time.monotonic() < until:
        for tag, outcome in threads.ready():
            assert tag not in got
            got[tag] = outcome
        time.sleep(0.01)
    assert got["quick"].value == 5 and got["slow"].fault == "timeout"
    gate.set()
    while not threads.counts["late"]:
        time.sleep(0.01)
    assert threads.ready() == []
    threads.submit("exit", lambda: exec("raise SystemExit(3)"))
    threads.submit("after", lambda: "alive")  # a thread that was told to exit goes on
    outcomes = {}
    while len(outcomes) < 2:
        outcomes |= dict(threads.ready())
        time.sleep(0.01)
    assert outcomes["exit"].fault == "raised" and "SystemExit" in outcomes["exit"].reason
    assert outcomes["after"].value == "alive"
    threads.close()
    with pytest.raises(ValueError, match="closed"):
        threads.submit("x", lambda: 0)


def test_a_call_never_waits_behind_a_slow_one_while_threads_may_be_added():
    """An idle thread counts once: two calls at the same moment need two threads."""
    for _ in range(20):
        threads, gate = pool.Pool(workers=2, timeout=20), threading.Event()
        threads.submit("warm", lambda: 0)
        while not threads.ready():
            time.sleep(0.001)
        time.sleep(0.002)  # its thread is idle again
        threads.submit("slow", gate.wait)
        threads.submit("quick", lambda: 1)
        until, got = time.monotonic() + 10, []
        while not got and time.monotonic() < until:
            got = threads.ready()
            time.sleep(0.001)
        gate.set()
        threads.close()
        assert [tag for tag, _ in got] == ["quick"]


def test_too_many_hanging_calls_are_refused_by_name():
    threads, gate = pool.Pool(workers=2, timeout=0.05, hanging=2), threading.Event()
    for n in range(2):
        threads.submit(n, lambda: gate.wait(10))
    lost = []
    while len(lost) < 2:
        lost += threads.ready()
        time.sleep(0.01)
    threads.submit(2, lambda: 1)
    ((tag, outcome),) = threads.ready()
    gate.set()
    assert tag == 2 and outcome.fault == "exhausted" and "2 calls hang" in outcome.reason
    with pytest.raises(ValueError, match="must be positive"):
        pool.Pool(workers=0)


def test_a_chair_that_raises_fails_the_one_query():
    class Picky(Scripted):
        def respond(self, queries):
            if any(q.key.goal == 1 for q in queries):
                raise OSError("no line")
            return super().respond(queries)

    todo = play.jobs(CountGym, [Goal(i) for i in range(3)], copies=1, stream=7)
    agent = Scripted("agent", ["one", "two", "three"])
    episodes = play.play(todo, agent=agent, user=Picky("user", ["hi"]))
    assert [e.stop for e in episodes] == [Stop.DONE, Stop.FAILED, Stop.DONE]
    assert dict(play.causes(episodes)) == {
        "stop_done": 2, "stop_failed": 1, "cause_user_raised": 1,
    }  # fmt: skip
    seat = Agent(0)
    with pytest.raises(ValueError, match="a seat answers over several calls"):
        pool.Chair(seat, pool.Pool())
    query = Query(Key(0, 0, 0), "user", ())
    assert pool.checked(query, [(query, Feedback())]).kind is Kind.FAILED
