"""The rule judge of user training: finished dialogues into scores, rewards and means.

Scores and their weights follow MIMESIS (arXiv 2610.09484); the rules that give them are ours. The
reference says what is natural: lengths, repeats and likelihood of dialogues that reference users
spoke in the same rows.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mimesis_jax import types
from mimesis_jax.desk import goals, recall, subflows
from mimesis_jax.losses import reward
from mimesis_jax.types import Stop
from mimesis_jax.users import behaviours, history, markers

# (episodes) -> [n] mean log-prob per token of the user's words under a fixed model
Likelihood = Callable[[Sequence[types.Episode]], np.ndarray]
LEAST = 20  # reference dialogues of one label below which the pooled band is used
_FLEXIBLE = ("wrong_premise", "contradicts_self", "creeping_goal")  # say what the act line lists
_BROKEN = (Stop.USER_FORMAT, Stop.LENGTH)


# --- what is natural ----------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Band:
    """What the middle 90 % of reference dialogues have.

    length: least and most mean words of a user turn. repeats: least and most share of the user's
    word triples that it had said before. floor: 5th percentile of the mean log-prob per token;
    minus infinity without a likelihood.
    """

    length: tuple[float, float]
    repeats: tuple[float, float]
    floor: float = float("-inf")


@dataclasses.dataclass(frozen=True)
class Reference:
    """Bands by label (a behaviour's id, "control"), and "" for all dialogues pooled."""

    bands: dict[str, Band]

    def band(self, label: str) -> Band:
        return self.bands.get(label) or self.bands[""]


def label(goal: goals.Goal) -> str:
    return goal.behaviour or "control"


def length(dialogue: Sequence[types.Turn]) -> float:
    """Mean words of a user turn; 0.0 without one."""
    counts = [len(turn.public.split()) for turn in dialogue if turn.author == "user"]
    return float(np.mean(counts)) if counts else 0.0


def repeats(dialogue: Sequence[types.Turn]) -> float:
    """Share of the user's runs of three words (fewer in shorter turns) that it had said before."""
    before: set[tuple[str, ...]] = set()
    total = again = 0
    for turn in dialogue:
        if turn.author != "user":
            continue
        words = tuple(turn.public.split())
        runs = [words[i : i + 3] for i in range(max(1, len(words) - 2))]
        total += len(runs)
        for run in runs:
            again += run in before
            before.add(run)
    return again / total if total else 0.0


def _ends(
    measure: Callable[[Sequence[types.Turn]], float], talks: Sequence[types.Dialogue]
) -> tuple[float, float]:
    low, high = np.percentile([measure(talk) for talk in talks], (5, 95))
    return float(low), float(high)


def fit(episodes: Sequence[types.Episode], likelihood: Likelihood | None = None) -> Reference:
    """The reference's bands from its dialogues (recall episodes are passed over).

    likelihood: rates the reference too, so that it has a floor; the same one goes to the judge.
    Raises ValueError for fewer than LEAST dialogues.
    """
    desk = [e for e in episodes if isinstance(e.goal, goals.Goal)]
    if len(desk) < LEAST:
        raise ValueError(f"{len(desk)} reference dialogues are too few for a band: give {LEAST}")
    logp = None if likelihood is None else np.asarray(likelihood(desk), np.float64)
    groups: dict[str, list[int]] = collections.defaultdict(list)
    for i, episode in enumerate(desk):
        groups[label(episode.goal)].append(i)
        groups[""].append(i)
    bands = {}
    for name, members in groups.items():
        if name and len(members) < LEAST:
            continue
        talks = [desk[i].dialogue for i in members]
        floor = float("-inf") if logp is None else float(np.percentile(logp[members], 5))
        bands[name] = Band(_ends(length, talks), _ends(repeats, talks), floor)
    return Reference(bands)


# --- one dialogue -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Scores of one desk dialogue, each in [0, 1].

    exhibit: share of the marker that is there. placement: it began within the window after the
    first turn where it could. on_task: facts stated as the scenario has them. cooperative: asks
    answered, 0 where any marker fires. natural: length and repeats within the band, mean of both.
    needs: whether the behaviour could be acted at all. markers: ids of all whole markers.
    """

    exhibit: float
    placement: float
    on_task: float
    cooperative: float
    natural: tuple[bool, bool]
    announced: bool
    needs: bool
    markers: frozenset[str]


def verdict(episode: types.Episode, reference: Reference) -> Verdict:
    """Judges one desk dialogue by rule."""
    goal, dialogue, stop = episode.goal, episode.dialogue, episode.stop
    talk = history.exchanges(dialogue)
    seen = markers.seen(goal, talk, stop)
    exhibit = placement = 0.0
    needs = False
    if goal.behaviour is not None:
        found = markers.find(goal.behaviour, goal, talk, stop)
        first = behaviours.first_turn(goal, talk, goal.behaviour)
        needs = first is not None
        exhibit = found.share if found is not None else 0.0
        if found is not None and first is not None:
            window = behaviours.TABLE[goal.behaviour].window
            placement = float(first <= found.began <= first + window)
    band = reference.band(label(goal))
    within = lambda value, ends: ends[0] <= value <= ends[1]
    return Verdict(
        exhibit,
        placement,
        on_task(goal, talk),
        0.0 if seen else answered(goal, talk, stop),
        (within(length(dialogue), band.length), within(repeats(dialogue), band.repeats)),
        markers.announced(goal, talk),
        needs,
        seen,
    )


def on_task(goal: goals.Goal, talk: markers.Talk) -> float:
    """Share of what is stated that the scenario holds, the opening's request included.

    A value is right when it is what the user first says or finally wants of its slot, or when the
    act line gives it to a behaviour that states other values; stacking conditions may name slots
    that the scenario leaves open, jumping and pouring other requests. [ours]
    """
    line = behaviours.said_line(goal)
    right = [bool(talk) and goal.request in talk[0].words]
    for exchange in talk:
        for slot, value in exchange.said.items():
            granted = goal.behaviour in _FLEXIBLE and value in line
            open_ = goal.behaviour == "stacks_limits" and slot not in goal.flow.needed
            right.append(granted or open_ or value in (goal.first(slot), goal.final(slot)))
        others = {w for w in exchange.words if w in subflows.SUBFLOWS} - {goal.request}
        if goal.behaviour not in ("jumps_topic", "pours_requests"):
            right += [False] * len(others)
    return float(np.mean(right))


def answered(goal: goals.Goal, talk: markers.Talk, stop: Stop | None) -> float:
    """Share of asks, of facts that the user has and had not stated, that the next turn answers;
    leaving while the agent waits is one more that it does not. 1.0 where nothing was asked."""
    asks: list[bool] = []
    for i, exchange in enumerate(talk):
        if behaviours.asks_known(goal, talk[:i], exchange.act):
            asks.append(exchange.act is not None and exchange.act.target in exchange.said)
    if talk and stop is Stop.LEFT and behaviours.pending(talk[-1].act):
        asks.append(False)
    return float(np.mean(asks)) if asks else 1.0


# --- all of a step ------------------------------------------------------------------------------


class RuleJudge:
    """Rates finished episodes of the desk and recall domains; `judge(params, episodes)`.

    `params` is not read: the judge is the same from the first step to the last.
    """

    def __init__(self, reference: Reference, likelihood: Likelihood | None = None):
        """reference: of `fit`. likelihood: the one that it was fitted with; without it naturalness
        is the mean of length and repeats alone."""
        self.reference, self.likelihood = reference, likelihood

    def __call__(
        self, params: Any, episodes: Sequence[types.Episode]
    ) -> tuple[reward.Scored, dict[str, float]]:
        """One reward an episode and the step's means.

        Behaviour rows, controls: losses.reward.behaviour. Recall rows: the share of right answers.
        A broken user reply or an empty utterance is reward 0 and counted; an episode that failed
        otherwise is masked. Means: behaviour_rate and rate_ID (whole markers), needs_met,
        exhibit, placement, announced over behaviour rows; control_rate (any marker) and
        cooperative over controls; naturalness, on_task over both; recall; each where it has rows.
        """
        n = len(episodes)
        formed = np.array([well_formed(e) for e in episodes], bool)
        lost = np.array([failed(e) for e in episodes], bool)
        values, mask = np.zeros(n), ~lost
        desk = [i for i, e in enumerate(episodes) if isinstance(e.goal, goals.Goal)]
        means: dict[str, float] = {}
        if desk:
            made = [verdict(episodes[i], self.reference) for i in desk]
            natural = self._natural([episodes[i] for i in desk], made)
            scored = _score([episodes[i].goal for i in desk], made, natural, lost[desk])
            values[desk], mask[desk] = scored.reward, scored.mask
            keep = [k for k, i in enumerate(desk) if not lost[i]]
            means |= _means(
                [episodes[desk[k]].goal for k in keep],
                [made[k] for k in keep],
                natural[keep],
                formed[[desk[k] for k in keep]],
            )
        others = [i for i, e in enumerate(episodes) if isinstance(e.goal, recall.Goal)]
        for i in others:
            values[i] = 0.0 if lost[i] else recall.score(episodes[i].goal, episodes[i].dialogue)
        if kept := [i for i in others if not lost[i]]:
            means["recall"] = float(np.mean(values[kept] * formed[kept]))
        whole = reward.Scored(np.where(mask, values, 0.0), mask, failures=int((~mask).sum()))
        return reward.gated(whole, formed), means

    def _natural(self, episodes: Sequence[types.Episode], made: Sequence[Verdict]) -> np.ndarray:
        """[n]: mean of the indicators length, repeats and, with a likelihood, likelihood."""
        parts = [[float(v) for v in verdict_.natural] for verdict_ in made]
        if self.likelihood is not None:
            logp = np.asarray(self.likelihood(episodes), np.float64)
            for part, episode, value in zip(parts, episodes, logp, strict=True):
                part.append(float(value >= self.reference.band(label(episode.goal)).floor))
        return np.array([np.mean(part) for part in parts])


def well_formed(episode: types.Episode) -> bool:
    """Whether every user reply was a closed thought and an utterance: the format gate."""
    cause = str(episode.records.get("cause", ""))
    if episode.stop is Stop.USER_FORMAT or (episode.stop in _BROKEN and cause.startswith("user")):
        return False
    return all(turn.public.strip() for turn in episode.dialogue if turn.author == "user")


def failed(episode: types.Episode) -> bool:
    """Whether something other than the user broke the episode, so that it says nothing of it."""
    if not well_formed(episode):
        return False
    return episode.stop in (Stop.FAILED, Stop.AGENT_FORMAT, Stop.LENGTH)


def _score(
    cases: Sequence[goals.Goal], made: Sequence[Verdict], natural: np.ndarray, lost: np.ndarray
) -> reward.Scored:
    """losses.reward.behaviour over desk rows; NaN where the episode says nothing of the user."""
    column = lambda name: np.where(lost, np.nan, [float(getattr(v, name)) for v in made])
    return reward.behaviour(
        column("exhibit"),
        column("placement"),
        np.where(lost, np.nan, natural),
        column("on_task"),
        np.array([v.announced for v in made], bool),
        control=np.array([goal.behaviour is None for goal in cases], bool),
        cooperative=column("cooperative"),
    )


def _means(
    cases: Sequence[goals.Goal], made: Sequence[Verdict], natural: np.ndarray, formed: np.ndarray
) -> dict[str, float]:
    rows = list(zip(cases, made, formed, strict=True))
    acted = [(g, v, good) for g, v, good in rows if g.behaviour is not None]
    plain = [v for g, v, _ in rows if g.behaviour is None]
    means: dict[str, float] = {}
    shown: dict[str, list[bool]] = collections.defaultdict(list)
    for goal, given, good in acted:
        shown[goal.behaviour or ""].append(bool(good) and goal.behaviour in given.markers)
    if acted:
        means["behaviour_rate"] = float(np.mean([hit for hits in shown.values() for hit in hits]))
        means |= {f"rate_{name}": float(np.mean(hits)) for name, hits in sorted(shown.items())}
        for name, key in (("needs", "needs_met"), ("exhibit", "exhibit"),
                          ("placement", "placement"), ("announced", "announced")):  # fmt: skip
            means[key] = float(np.mean([float(getattr(v, name)) for _, v, _ in acted]))
    if plain:
        means["control_rate"] = float(np.mean([bool(v.markers) for v in plain]))
        means["cooperative"] = float(np.mean([v.cooperative for v in plain]))
    if rows:
        means["naturalness"] = float(natural.mean())
        means["on_task"] = float(np.mean([v.on_task for _, v, _ in rows]))
    return means
