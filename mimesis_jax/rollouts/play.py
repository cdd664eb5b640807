"""Playing episodes: many gyms, two chairs, one loop of events.

Each pass hands every chair its new queries and takes the answers that are ready, so an episode
that waits for a slow user, tool or endpoint never holds up another one.
"""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mimesis_jax import types


@dataclasses.dataclass
class _Running:
    key: types.Key
    gym: types.Gym
    dialogue: list[types.Turn] = dataclasses.field(default_factory=list)
    rewards: list[float] = dataclasses.field(default_factory=list)
    records: dict[str, Any] = dataclasses.field(default_factory=dict)
    stop: types.Stop | None = None


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
) -> list[types.Episode]:
    """Plays every job to its end and returns the episodes in the order of `todo`.

    at_once: episodes open at the same time. done: called for each episode as it ends.
    A chair or gym that raises ends its own episode with Stop.FAILED and a cause; nothing else.
    """
    chairs: dict[types.Chair, types.Respond] = {"agent": agent, "user": user}
    waiting = collections.deque(todo)
    open_: dict[tuple, _Running] = {}
    new: dict[types.Chair, list[types.Query]] = {"agent": [], "user": []}
    ended: dict[tuple, types.Episode] = {}

    def follow(run: _Running, feedback: types.Feedback) -> None:
        run.dialogue.extend(feedback.turns)
        if feedback.stop is not None or feedback.next is None:
            run.stop = feedback.stop or types.Stop.DONE
            episode = _finish(run, chairs)
            ended[run.key.episode] = episode
            open_.pop(run.key.episode, None)
            if done is not None:
                done(episode)
            return
        chair = feedback.next
        key = dataclasses.replace(run.key, turn=len(run.dialogue))
        turns = types.view(run.dialogue, chair)
        new[chair].append(types.Query(key, chair, turns, run.gym.goal))

    while waiting or open_:
        while waiting and len(open_) < at_once:
            job = waiting.popleft()
            run = _Running(job.key, job.gym)
            if job.key.episode in open_ or job.key.episode in ended:
                raise ValueError(
                    f"two episodes share the key {job.key.episode}: give each its own copy number"
                )
            open_[job.key.episode] = run
            follow(run, _guarded(run, job.gym.begin))
        answered = 0
        for chair, respond in chairs.items():
            queries, new[chair] = new[chair], []
            for query, reply in respond.respond(queries):
                answered += 1
                run = open_[query.key.episode]
                follow(run, _hear(run, chair, reply))
        if open_ and not answered and not any(new.values()):
            time.sleep(0.001)  # only remote chairs leave nothing to do
    return [ended[job.key.episode] for job in todo]


def _guarded(run: _Running, call: Callable, *args) -> types.Feedback:
    try:
        return call(*args)
    except Exception as error:  # a gym's fault is its own episode's, whatever it is
        run.records["cause"] = f"gym: {type(error).__name__}: {error}"
        return types.Feedback(stop=types.Stop.FAILED)


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


def _hear(run: _Running, chair: types.Chair, reply: types.Reply) -> types.Feedback:
    """Appends a reply's turn and steps the gym; replies that are no turns end the episode."""
    stop = _ENDS.get((chair, reply.kind))
    if stop is None:
        only: types.Chair | None = None
        if chair == "agent":
            try:
                only = None if run.gym.spoken(reply.public) else "agent"
            except Exception as error:  # as in _guarded
                run.records["cause"] = f"gym: {type(error).__name__}: {error}"
                stop = types.Stop.FAILED
    if stop is not None:
        run.records.setdefault(
            "cause", f"{chair}: {reply.kind}" + (f": {reply.reason}" if reply.reason else "")
        )
        if reply.reason == "length":
            stop = types.Stop.LENGTH
        if chair == "agent":
            run.rewards.append(0.0 if stop is types.Stop.AGENT_FORMAT else float("nan"))
        return types.Feedback(stop=stop)
    run.dialogue.append(types.Turn(chair, reply.public, reply.private, only))
    if chair == "agent":
        feedback = _guarded(run, run.gym.step, reply.public)
        run.rewards.append(float("nan") if feedback.stop is types.Stop.FAILED else feedback.reward)
        return feedback
    feedback = _guarded(run, run.gym.hear, reply)
    if run.rewards:
        run.rewards[-1] += (
            feedback.reward
        )  # what the user's reply decides belongs to the turn before
    return feedback


def _finish(run: _Running, chairs: dict[types.Chair, types.Respond]) -> types.Episode:
    trees: dict[str, types.Tree] = {}
    for chair, respond in chairs.items():
        if isinstance(respond, types.Seat):
            trees[chair] = respond.finish(run.key.episode)
    broken = run.stop in (types.Stop.USER_FORMAT, types.Stop.FAILED, types.Stop.LENGTH)
    rewards = tuple(float("nan") for _ in run.rewards) if broken else tuple(run.rewards)
    try:
        outcome = run.gym.outcome()
    except Exception as error:  # as in _guarded
        run.records.setdefault("cause", f"gym: {type(error).__name__}: {error}")
        outcome = {}
    return types.Episode(
        key=run.key, goal=run.gym.goal, dialogue=tuple(run.dialogue), rewards=rewards,
        stop=run.stop or types.Stop.FAILED, outcome=outcome, trees=trees, records=run.records,
    )  # fmt: skip


def causes(episodes: Sequence[types.Episode]) -> Iterator[tuple[str, int]]:
    """Counts of stop reasons and failure causes, for metrics."""
    counts: collections.Counter[str] = collections.Counter()
    for episode in episodes:
        counts[f"stop_{episode.stop}"] += 1
        if "cause" in episode.records:
            counts[f"cause_{episode.records['cause'].split(':')[0]}"] += 1
    yield from sorted(counts.items())
