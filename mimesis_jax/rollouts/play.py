"""Playing episodes: many gyms, two chairs, one loop of events.

Each pass hands every chair its new queries and takes the answers that are ready, so an episode
that waits for a slow user, tool or endpoint never holds up another one.
"""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from mimesis_jax import types
from mimesis_jax.rollouts import pool as pools


@dataclasses.dataclass(eq=False)
class _Running:
    key: types.Key
    gym: types.Gym
    dialogue: list[types.Turn] = dataclasses.field(default_factory=list)
    rewards: list[float] = dataclasses.field(default_factory=list)
    records: dict[str, Any] = dataclasses.field(default_factory=dict)
    stop: types.Stop | None = None
    stuck: bool = False  # a gym's call was given up and may still run: the gym is not called again


@dataclasses.dataclass(frozen=True)
class Job:
    """One episode to play: its key (turn 0) and its gym, made and used once."""

    key: types.Key
    gym: types.Gym


def jobs(
    make: Callable[[Any], types.Gym], goals: Sequence[Any], *, copies: int, stream: int
) -> list[Job]:
    """P goals times G copies, in goal order; `stream` tells apart visits of the same goals.

    A goal is known by its place among `goals`, so that its random stream does not depend on what
    the gym keeps in it.
    """
    return [
        Job(types.Key(stream, number, copy), make(goal))
        for number, goal in enumerate(goals)
        for copy in range(copies)
    ]


def play(
    todo: Sequence[Job],
    *,
    agent: types.Respond,
    user: types.Respond,
    at_once: int = 1024,
    done: Callable[[types.Episode], None] | None = None,
    gyms: pools.Pool | None = None,
    patience: float | None = None,
    meter: collections.Counter[str] | None = None,
) -> list[types.Episode]:
    """Plays every job to its end and returns the episodes in the order of `todo`.

    at_once: episodes open at the same time. done: called for each episode as it ends.
    gyms: a pool in whose threads gyms are called, for gyms that may be slow or hang; without one
      they are called in the loop itself. patience: seconds after which a query that is still open
      is given up, None for no bound; what comes later is dropped (queries to a seat, which holds
      state for the episode, are never given up).
    meter: counts what happened: queries_CHAIR, stray_answers; wait_CHAIR_seconds and
      wait_gym_seconds, summed over episodes; idle_seconds, in which the loop had nothing to do, and
      idle_for_CHAIR_seconds, in which somebody waited for that chair (they may overlap).

    A gym that raises, hangs or hands back anything but a Feedback, and a chair that raises or hands
    back anything but a Reply, end their own episode with Stop.FAILED and a cause; nothing else.
    A seat that raises is a fault of this library and is raised.
    """
    keys: set[tuple] = set()
    for job in todo:
        if job.key.episode in keys:
            raise ValueError(
                f"two episodes share the key {job.key.episode}: give each its own copy number"
            )
        keys.add(job.key.episode)
    table = _Table({"agent": agent, "user": user}, gyms, patience, done,
                   collections.Counter() if meter is None else meter)  # fmt: skip
    waiting = collections.deque(todo)
    while waiting or table.open:
        while waiting and len(table.open) < at_once:
            table.seat(waiting.popleft())
        table.turn()
    return [table.ended[job.key.episode] for job in todo]


@dataclasses.dataclass(eq=False)
class _Step:
    """A call of a gym: what it answers, and what it said when it got so far."""

    run: _Running
    chair: types.Chair | None  # whose reply is handed on; None for begin and outcome
    reply: types.Reply | None
    since: float
    spoken: bool = False  # unknown is not spoken: a text may then not be shown to the user
    last: bool = False  # the gym's outcome


class _Table:
    """The open episodes, their queries and the calls of their gyms."""

    def __init__(self, chairs, gyms, patience, done, meter):
        self.chairs: dict[types.Chair, types.Respond] = chairs
        self.gyms, self.patience, self.done, self.meter = gyms, patience, done, meter
        self.open: dict[tuple, _Running] = {}
        self.ended: dict[tuple, types.Episode] = {}
        self._new: dict[types.Chair, list[types.Query]] = {"agent": [], "user": []}
        self._asked: dict[types.Chair, dict[types.Key, tuple[_Running, float]]]
        self._asked = {"agent": {}, "user": {}}
        self._steps = 0  # calls of gyms that are in the pool
        self._moved = False

    def seat(self, job: Job) -> None:
        run = _Running(job.key, job.gym)
        self.open[job.key.episode] = run
        self._call(_Step(run, None, None, time.monotonic()), job.gym.begin)

    def turn(self) -> None:
        """One pass over both chairs and the gyms; rests a moment when nothing moved."""
        self._moved = False
        for chair in self.chairs:
            for query, reply in self._answers(chair):
                self._heard(chair, query, reply)
            self._give_up(chair)
        if self.gyms is not None:
            for step, outcome in self.gyms.ready():
                self._steps -= 1
                self._stepped(step, outcome)
        if self.open and not self._moved and not any(self._new.values()):
            self._rest()

    # --- chairs ---------------------------------------------------------------------------------

    def _ask(self, run: _Running, chair: types.Chair) -> None:
        key = dataclasses.replace(run.key, turn=len(run.dialogue))
        query = types.Query(key, chair, types.view(run.dialogue, chair), run.gym.goal)
        self._new[chair].append(query)
        self._asked[chair][key] = (run, time.monotonic())
        self.meter[f"queries_{chair}"] += 1

    def _answers(self, chair: types.Chair) -> Iterable[types.Answer]:
        """Hands new queries over; a chair that is no seat gets them one by one, so that what it
        raises is the fault of one."""
        respond, queries = self.chairs[chair], self._new[chair]
        self._new[chair] = []
        if isinstance(respond, types.Seat) or not queries:
            return respond.respond(queries)
        return pools.guarded(respond, queries)

    def _heard(self, chair: types.Chair, query: Any, reply: Any) -> None:
        asked = self._asked[chair].pop(getattr(query, "key", types.Key(-1, -1, -1)), None)
        if asked is None:  # answered twice, after it was given up, or never asked
            self.meter["stray_answers"] += 1
            return
        run, since = asked
        self._moved = True
        self.meter[f"wait_{chair}_seconds"] += time.monotonic() - since
        reply = pools.sound(reply)
        stop = _ENDS.get((chair, reply.kind))
        if stop is not None:
            self._broken(run, chair, reply, stop)
            return
        step = _Step(run, chair, reply, time.monotonic())
        if chair == "user":
            self._call(step, lambda: run.gym.hear(reply))
            return

        def taken() -> types.Feedback:
            step.spoken = bool(run.gym.spoken(reply.public))
            return run.gym.step(reply.public)

        self._call(step, taken)

    def _broken(self, run, chair: types.Chair, reply: types.Reply, stop: types.Stop) -> None:
        """A reply that is no turn ends the episode."""
        run.records["cause"] = f"{chair}: {reply.kind}" + (
            f": {reply.reason}" if reply.reason else ""
        )
        if reply.reason == "length":
            stop = types.Stop.LENGTH
        if chair == "agent":
            run.rewards.append(0.0 if stop is types.Stop.AGENT_FORMAT else float("nan"))
        self._fed(run, types.Feedback(stop=stop))

    def _give_up(self, chair: types.Chair) -> None:
        if self.patience is None or isinstance(self.chairs[chair], types.Seat):
            return
        now = time.monotonic()
        late = [key for key, (_, t) in self._asked[chair].items() if now - t > self.patience]
        for key in late:
            reason = f"timeout: no answer in {self.patience:g} s"
            query = types.Query(key, chair, ())
            self._heard(chair, query, types.Reply(types.Kind.FAILED, reason=reason))

    def _rest(self) -> None:
        began = time.monotonic()
        time.sleep(0.001)
        took = time.monotonic() - began
        self.meter["idle_seconds"] += took
        for chair, asked in self._asked.items():
            if asked:
                self.meter[f"idle_for_{chair}_seconds"] += took
        if self._steps:
            self.meter["idle_for_gym_seconds"] += took

    # --- gyms -----------------------------------------------------------------------------------

    def _call(self, step: _Step, call: Callable[[], Any]) -> None:
        if self.gyms is not None:
            self._steps += 1
            self.gyms.submit(step, call)
            return
        try:
            outcome = pools.Outcome(call())
        except Exception as error:  # a gym's fault is its own episode's, whatever it is
            outcome = pools.Outcome(fault="raised", reason=f"{type(error).__name__}: {error}")
        self._stepped(step, outcome)

    def _stepped(self, step: _Step, outcome: pools.Outcome) -> None:
        """Takes what a gym handed back: nothing of an episode is changed in a gym's own thread."""
        run, value, fault = step.run, outcome.value, outcome.fault
        self._moved = True
        self.meter["wait_gym_seconds"] += time.monotonic() - step.since
        wanted: type = dict if step.last else types.Feedback
        if fault is None and not isinstance(value, wanted):
            fault, what = "garbage", f"{type(value).__name__} where a {wanted.__name__} was due"
            outcome = pools.Outcome(fault=fault, reason=what)
        if fault is not None:
            run.stuck = run.stuck or fault == "timeout"
            run.records.setdefault("cause", f"gym: {fault}: {outcome.reason}")
        if step.last:
            self._close(run, value if fault is None else {})
            return
        feedback = value if fault is None else types.Feedback(stop=types.Stop.FAILED)
        failed = feedback.stop is types.Stop.FAILED
        if step.reply is not None and step.chair is not None:
            only: types.Chair | None = None if step.chair == "user" or step.spoken else "agent"
            reply = step.reply
            run.dialogue.append(types.Turn(step.chair, reply.public, reply.private, only))
        if step.chair == "agent":
            run.rewards.append(float("nan") if failed else feedback.reward)
        elif run.rewards:  # what the user's reply decides belongs to the turn before
            run.rewards[-1] += feedback.reward
        self._fed(run, feedback)

    def _fed(self, run: _Running, feedback: types.Feedback) -> None:
        run.dialogue.extend(feedback.turns)
        if feedback.stop is None and feedback.next is not None:
            self._ask(run, feedback.next)
            return
        self._moved = True
        run.stop = feedback.stop or types.Stop.DONE
        if run.stuck:  # its last call may still run: it is not asked for more
            self._close(run, {})
            return
        self._call(_Step(run, None, None, time.monotonic(), last=True), run.gym.outcome)

    def _close(self, run: _Running, outcome: dict[str, Any]) -> None:
        trees: dict[str, types.Tree] = {}
        for chair, respond in self.chairs.items():
            if isinstance(respond, types.Seat):
                trees[chair] = respond.finish(run.key.episode)
        broken = run.stop in (types.Stop.USER_FORMAT, types.Stop.FAILED, types.Stop.LENGTH)
        rewards = tuple(float("nan") for _ in run.rewards) if broken else tuple(run.rewards)
        episode = types.Episode(
            key=run.key, goal=run.gym.goal, dialogue=tuple(run.dialogue), rewards=rewards,
            stop=run.stop or types.Stop.FAILED, outcome=outcome, trees=trees, records=run.records,
        )  # fmt: skip
        self.ended[run.key.episode] = episode
        del self.open[run.key.episode]
        if self.done is not None:
            self.done(episode)


_ENDS = {
    ("agent", types.Kind.FAILED): types.Stop.FAILED,
    ("user", types.Kind.FAILED): types.Stop.FAILED,
    ("agent", types.Kind.EMPTY): types.Stop.AGENT_FORMAT,
    ("agent", types.Kind.UNPARSED): types.Stop.AGENT_FORMAT,
    ("agent", types.Kind.REFUSED): types.Stop.AGENT_FORMAT,
    ("user", types.Kind.EMPTY): types.Stop.USER_FORMAT,
    ("user", types.Kind.UNPARSED): types.Stop.USER_FORMAT,
    ("user", types.Kind.REFUSED): types.Stop.USER_FORMAT,
}


def causes(episodes: Sequence[types.Episode]) -> Iterator[tuple[str, int]]:
    """Counts of stop reasons and causes, for metrics: stop_STOP, cause_WHO_WHAT.

    WHO is a chair or the gym; WHAT a kind of reply, or of a fault: raised, timeout, garbage and
    what else the chair names (a remote one: connection, rate, server, ...).
    """
    counts: collections.Counter[str] = collections.Counter()
    for episode in episodes:
        counts[f"stop_{episode.stop}"] += 1
        cause = episode.records.get("cause")
        if cause is None:
            continue
        who, what, *more = str(cause).split(": ")
        if what == types.Kind.FAILED and more and more[0].isidentifier():
            what = more[0]
        counts[f"cause_{who}_{what}"] += 1
    yield from sorted(counts.items())
