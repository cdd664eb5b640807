"""How like people a simulated user is: broken manners, naturalness, behaviour rates, difficulty."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from mimesis_jax import types
from mimesis_jax.evaluation import leaks, rate, statistics

# A user who talks like the one who serves: the usual offers of an assistant, or a role marker.
_SERVES = re.compile(
    r"<\|im_(start|end)\|>|^\s*(assistant|agent)\s*:|\bas an ai\b|\bai (language )?model\b"
    r"|\bhow (can|may) i (help|assist)\b|\banything else i can (help|assist|do for you)\b"
    r"|\bi('d| would) be (happy|glad) to (help|assist)\b"
    r"|\bthank you for (contacting|reaching out)\b",
    re.IGNORECASE,
)
BAD = (types.Kind.EMPTY, types.Kind.UNPARSED, types.Kind.REFUSED, types.Kind.FAILED)


def measure(
    episodes: Sequence[types.Episode],
    reference: Sequence[types.Dialogue],
    *,
    slots: leaks.Slots | None = None,
    asked: leaks.Asked | None = None,
    serves: Callable[[str], bool] | None = None,
) -> Iterator[tuple[str, float]]:
    """(name, value) of what a simulated user's episodes show, judge-free.

    episodes: played with the simulator; their user trees, if any, are searched for leaks.
    reference: people's (or the reference population's) dialogues: the band of naturalness, and the
      same measures under "reference/" where they can be taken.
    slots, asked: see leaks.early_disclosure. serves: see `role_flips`.
    """
    dialogues = [episode.dialogue for episode in episodes]
    trees = [episode.trees["user"] for episode in episodes if "user" in episode.trees]
    yield from leaks.measure(dialogues, trees, slots=slots, asked=asked)
    yield from bad_replies(episodes)
    yield from stops(episodes)
    band = Band.of(reference)
    for prefix, some in (("", dialogues), ("reference/", reference)):
        yield from role_flips(some, serves=serves).named(f"{prefix}role_flip_rate")
        yield from repeats(some).named(f"{prefix}repeat_rate")
        yield from band.share(some).named(f"{prefix}natural_rate")
    for name, value in leaks.measure(reference, slots=slots, asked=asked):
        yield f"reference/{name}", value


def said(dialogue: types.Dialogue) -> list[str]:
    """The user's public utterances, in order."""
    return [turn.public for turn in dialogue if turn.author == "user"]


def words(text: str) -> list[str]:
    """Lower-case words and numbers; marks between them do not count."""
    return re.findall(r"\w+(?:'\w+)?", text.lower())


# --- broken manners ---------------------------------------------------------------------------


def bad_replies(episodes: Sequence[types.Episode]) -> Iterator[tuple[str, float]]:
    """Shares of the user's replies that were empty, unparsed, refused, failed; and bad format.

    The episode ends with such a reply and its record's cause says "user: <kind>". Bad format is
    empty or unparsed. Counted are the user's turns and the replies that did not become one.
    """
    ended = [_user_cause(episode) for episode in episodes]
    replies = sum(len(said(e.dialogue)) for e in episodes) + sum(k is not None for k in ended)
    for kind in BAD:
        yield from rate.Rate(ended.count(kind), replies).named(f"{kind}_rate")
    broken = ended.count(types.Kind.EMPTY) + ended.count(types.Kind.UNPARSED)
    yield from rate.Rate(broken, replies).named("bad_format_rate")


def _user_cause(episode: types.Episode) -> types.Kind | None:
    """The kind of the user's reply that ended the episode, None where none did."""
    chair, _, rest = str(episode.records.get("cause", "")).partition(": ")
    kind = rest.partition(": ")[0]
    return types.Kind(kind) if chair == "user" and kind in BAD else None


def stops(
    episodes: Sequence[types.Episode],
    *,
    finished: Callable[[types.Episode], bool] | None = None,
) -> Iterator[tuple[str, float]]:
    """Premature stops (user left, matter open) and missing ones (out of turns, matter done).

    finished: whether the user's matter was settled; by default an outcome "success" of 1 or more.
    Premature counts over episodes not finished, missing over finished ones; failed episodes are
    left out. A user whose behaviour is to walk away stops early on purpose: compare with the
    reference population's rate.
    """
    settled = finished or (lambda e: float(e.outcome.get("success", 0.0)) >= 1.0)
    whole = [e for e in episodes if e.stop is not types.Stop.FAILED]
    open_, done = [e for e in whole if not settled(e)], [e for e in whole if settled(e)]
    left = sum(e.stop is types.Stop.LEFT for e in open_)
    endless = sum(e.stop in (types.Stop.TURNS, types.Stop.LENGTH) for e in done)
    yield from rate.Rate(left, len(open_)).named("premature_stop_rate")
    yield from rate.Rate(endless, len(done)).named("missing_stop_rate")


def role_flips(
    dialogues: Sequence[types.Dialogue], *, serves: Callable[[str], bool] | None = None
) -> rate.Rate:
    """User's utterances that speak from the agent's chair.

    serves: says so of a text; by default offers that assistants make and role markers. A world
    with its own grammar of agent acts passes its parser.
    """
    flipped = serves or (lambda text: _SERVES.search(text) is not None)
    texts = [text for dialogue in dialogues for text in said(dialogue)]
    return rate.Rate(sum(bool(flipped(text)) for text in texts), len(texts))


def repeats(dialogues: Sequence[types.Dialogue]) -> rate.Rate:
    """User's utterances after the first that say word for word what the user said before."""
    again = later = 0
    for dialogue in dialogues:
        texts = [tuple(words(text)) for text in said(dialogue)]
        later += max(0, len(texts) - 1)
        again += sum(text in texts[:i] for i, text in enumerate(texts))
    return rate.Rate(again, later)


# --- naturalness ------------------------------------------------------------------------------


def repetition(text: str, earlier: Sequence[str]) -> float:
    """Share of a text's word pairs said before, in it or in `earlier` texts; 0 without a pair."""
    known: set[tuple[str, str]] = set()
    for old in earlier:
        known.update(_pairs(old))
    own = _pairs(text)
    repeated = 0
    for pair in own:
        repeated += pair in known
        known.add(pair)
    return repeated / len(own) if own else 0.0


def _pairs(text: str) -> list[tuple[str, str]]:
    found = words(text)
    return list(zip(found, found[1:], strict=False))


@dataclasses.dataclass(frozen=True)
class Band:
    """Where the middle of the reference population's utterances lies.

    length: (least, most) words. repetition: (least, most), see `repetition`.
    """

    length: tuple[float, float]
    repetition: tuple[float, float]

    @classmethod
    def of(
        cls, reference: Sequence[types.Dialogue], *, low: float = 0.05, high: float = 0.95
    ) -> Band:
        """Between two quantiles of the user's utterances. Raises ValueError without any."""
        texts = [said(dialogue) for dialogue in reference]
        lengths = [len(words(text)) for talk in texts for text in talk]
        again = [repetition(text, talk[:i]) for talk in texts for i, text in enumerate(talk)]
        if not lengths:
            raise ValueError("the reference holds no user utterance: a band needs some")
        (shortest, longest), (least, most) = (np.quantile(x, [low, high]) for x in (lengths, again))
        return cls((float(shortest), float(longest)), (float(least), float(most)))

    def holds(self, text: str, earlier: Sequence[str] = ()) -> bool:
        """Whether an utterance, said after `earlier` ones of the same user, is inside the band."""
        inside = lambda value, ends: ends[0] <= value <= ends[1]
        return inside(len(words(text)), self.length) and inside(
            repetition(text, earlier), self.repetition
        )

    def share(self, dialogues: Sequence[types.Dialogue]) -> rate.Rate:
        """User's utterances inside both ranges; of the reference itself at least about 0.8."""
        talks = [said(dialogue) for dialogue in dialogues]
        held = [self.holds(text, talk[:i]) for talk in talks for i, text in enumerate(talk)]
        return rate.Rate(sum(held), len(held))


# --- against people ---------------------------------------------------------------------------


def dice(people: float, simulated: float) -> float:
    """2 min(H, M) / (H + M) of two rates >= 0; 1 where both are 0."""
    total = people + simulated
    return 2 * min(people, simulated) / total if total else 1.0


def tau_usi(
    people: Mapping[str, float],
    simulated: Mapping[str, float],
    people_success: Mapping[str, float],
    simulated_success: Mapping[str, float],
) -> Iterator[tuple[str, float]]:
    """Overlap of behaviour rates and agreement of outcomes with people, each in [0, 1].

    people, simulated: rate in [0, 1] of each behaviour dimension. *_success: mean success of one
    agent on each task. Yields tau_usi/dice/<dimension>, their mean tau_usi/dice, and
    tau_usi/calibration = 1 - mean over tasks |success with people - success with the simulator|.
    Raises ValueError where dimensions or tasks differ.
    """
    for what, a, b in (
        ("dimensions", people, simulated),
        ("tasks", people_success, simulated_success),
    ):
        if set(a) != set(b) or not a:
            raise ValueError(f"{what} {sorted(set(a) ^ set(b))} are on one side only: measure both")
    overlap = {name: dice(people[name], simulated[name]) for name in people}
    yield from ((f"tau_usi/dice/{name}", value) for name, value in overlap.items())
    yield "tau_usi/dice", float(np.mean(list(overlap.values())))
    errors = [abs(people_success[task] - simulated_success[task]) for task in people_success]
    yield "tau_usi/calibration", 1.0 - float(np.mean(errors))


def difficulty_gap(
    reference: Sequence[float], simulator: Sequence[float], clusters: Sequence, **knobs
) -> statistics.Interval:
    """Success of one fixed agent with reference users minus with the simulator, goal by goal.

    reference, simulator: [n] success on the same goals. clusters, knobs: see statistics.mean_ci.
    Below 0: the simulator makes the task too easy. Raises ValueError for unequal lengths.
    """
    return statistics.paired_difference(reference, simulator, clusters, **knobs)
