"""Playing a step's goals over all processes: each plays some, everybody gets all episodes.

Engines, gyms and time-outs of one process are no business of the others; they meet when the last
episode is over. What is packed afterwards is the same list, in goal order, on every process, so no
batch depends on how many processes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mimesis_jax import types
from mimesis_jax.rollouts import episode_codec, play
from mimesis_jax.runs import processes


def jobs(
    make: Callable[[Any], types.Gym], goals: Sequence[Any], *, copies: int, stream: int
) -> list[play.Job]:
    """This process's part of `play.jobs`: goals go round the processes, a goal's copies together.

    Neighbours in a curriculum are of one kind and take as long, so they go to different processes;
    copies of a goal share their prompt's state in one engine. Gyms of other goals are not made.
    """
    mine, count = processes.index(), processes.count()
    return [
        play.Job(types.Key(stream, number, copy), make(goal))
        for number, goal in enumerate(goals)
        if number % count == mine
        for copy in range(copies)
    ]


def play_all(
    make: Callable[[Any], types.Gym],
    goals: Sequence[Any],
    *,
    copies: int,
    stream: int,
    **options: Any,
) -> list[types.Episode]:
    """Plays every goal `copies` times, over all processes; all episodes, by (goal, copy).

    options: of play.play (agent, user, ...). Every process gives the same goals, copies and stream.
    Raises ValueError when a gym's goal is not the one it was made of, and ProcessError when another
    process failed or is gone.
    """
    if processes.count() == 1:
        return play.play(play.jobs(make, goals, copies=copies, stream=stream), **options)
    own = play.play(jobs(make, goals, copies=copies, stream=stream), **options)
    for episode in own:
        expected = goals[episode.key.goal]
        if episode.goal is not expected and episode.goal != expected:
            raise ValueError(
                f"the gym of goal {episode.key.goal} has another goal than it was made of: over "
                "several processes only the number of a goal travels"
            )
    parts = processes.exchange(episode_codec.encode(own), f"episodes of stream {stream}")
    found: dict[tuple[int, int], types.Episode] = {}
    for data in parts:
        for episode in episode_codec.decode(data, lambda key: goals[key.goal]):
            found[episode.key.goal, episode.key.copy] = episode
    due = [(number, copy) for number in range(len(goals)) for copy in range(copies)]
    if lost := [pair for pair in due if pair not in found]:
        raise processes.ProcessError(
            f"goal {lost[0][0]}, copy {lost[0][1]} was played by nobody, {len(lost)} such: the "
            "processes have other goals than this one"
        )
    return [found[pair] for pair in due]
