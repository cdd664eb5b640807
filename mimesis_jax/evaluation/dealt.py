"""Measuring dealt out over the processes of a run: each does its share, everybody gets all of it.

    params = dealt.here(params)                       # nobody then has to wait for another
    found = dealt.results(arms, play, opponents)      # agent -> cross.Result
    more = dealt.values({"gap": gap, "manners": manners}, after=len(arms))

An agent is played by one process, with all its users: what an engine computes together stays
together, so that a result is the same to the bit on any number of processes whose engines have as
many devices each. What is measured must touch no array that spans processes, as no other process
comes along.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from mimesis_jax.evaluation import cross
from mimesis_jax.rollouts import episode_codec
from mimesis_jax.runs import checkpoint, disk, processes


def here(params: Any) -> Any:
    """Parameters whole on this process's first device; themselves where they lie on one device.

    A collective where they span processes: every process must call it.
    """
    if all(len(leaf.sharding.device_set) == 1 for leaf in jax.tree.leaves(params)):
        return params
    device = jax.local_devices()[0]
    return jax.tree.map(lambda leaf: jax.device_put(checkpoint.whole(leaf), device), params)


def mine(number: int) -> bool:
    """Whether this process does the work of that number: they go round."""
    return number % processes.count() == processes.index()


def results(
    agents: Sequence[str],
    play: Callable[[str], cross.Result],
    opponents: Mapping[str, cross.Opponent],
) -> dict[str, cross.Result]:
    """play(agent) of every agent, by name; over several processes each plays some of them.

    opponents: those of every play, the same on every process, as agents are. Episodes are exchanged
    whole (rollouts.episode_codec), their goals stay at home. Raises ProcessError when another
    process failed or is gone, and CodecError for an episode that cannot be sent.
    """
    if processes.count() == 1:
        return {name: play(name) for name in agents}
    own = [play(name) for number, name in enumerate(agents) if mine(number)]
    sent = episode_codec.encode([e for r in own for name in r.users for e in r.episodes[name]])
    users = tuple(opponents)
    goal = lambda key: opponents[users[key.copy]].goals[key.goal]
    parts = [
        episode_codec.decode(data, goal)
        for data in processes.exchange(sent, "agents with all users")
    ]
    size = sum(len(one.goals) for one in opponents.values())
    found = {}
    for number, name in enumerate(agents):
        round_, who = divmod(number, processes.count())
        found[name] = cross.result(users, parts[who][round_ * size : (round_ + 1) * size])
    return found


def values(works: Mapping[str, Callable[[], Any]], *, after: int = 0) -> dict[str, Any]:
    """What each of `works` gives, by name; over several processes each does some of them.

    after: how many works were dealt just before, so that this round goes on behind them. They give
    json values (disk.plain; not-a-number is null where it was sent). Raises ProcessError when
    another process failed or is gone.
    """
    if processes.count() == 1:
        return {name: work() for name, work in works.items()}
    own = {
        name: disk.plain(work())
        for number, (name, work) in enumerate(works.items(), after)
        if mine(number)
    }
    sent = processes.agree(own, f"measured: {', '.join(works)}")
    found = {name: value for part in sent for name, value in part.items()}
    return {name: found[name] for name in works}
