"""`fi_proxy`: is a simulated user nearer to the person it plays than to others? Without a judge.

A stand-in for the fidelity index, in which a judge answers "same person?" on five dimensions. Here
each dimension is a few counts of a user's utterances, and "yes" is a distance below the median of
the simulated user's distances to all people. Figures of the two are not comparable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mimesis_jax import types
from mimesis_jax.evaluation import realism, statistics

DIMENSIONS = ("affect", "style", "competence", "information", "pacing")
_WARM = frozenset("thanks thank please great good sorry appreciate glad kindly".split())
_COLD = frozenset("no not never wrong bad terrible useless ridiculous annoying hurry asap".split())
_SURE = frozenset("exactly specifically because first then already tried instead actually".split())


def features(dialogues: Sequence[types.Dialogue]) -> dict[str, np.ndarray]:
    """A person's profile: per dimension a few numbers of what the person said in public.

    dialogues: all of one person, at least one utterance. Raises ValueError without any.
    """
    talks = [talk for talk in map(realism.said, dialogues) if talk]
    if not talks:
        raise ValueError("a user without an utterance has no profile: leave it out")
    texts = [text for talk in talks for text in talk]
    tokens = [realism.words(text) for text in texts]
    every = [word for line in tokens for word in line]
    lengths = np.array([len(line) for line in tokens], float)
    opening = np.mean([len(realism.words(talk[0])) for talk in talks])
    letters = "".join(texts)
    share = lambda some: sum(word in some for word in every) / max(1, len(every))
    marks = lambda some: sum(letters.count(mark) for mark in some) / len(texts)
    early = [
        np.mean([len(realism.words(t)) for t in talk[: (len(talk) + 1) // 2]]) for talk in talks
    ]
    late = [np.mean([len(realism.words(t)) for t in talk[len(talk) // 2 :]]) for talk in talks]
    again = [realism.repetition(t, talk[:i]) for talk in talks for i, t in enumerate(talk)]
    found = {
        "affect": [share(_WARM), share(_COLD), marks("!")],
        "style": [
            np.mean([len(word) for word in every]) if every else 0.0,
            sum(letter.isupper() for letter in letters) / max(1, len(letters)),
            marks(".,;:"),
        ],
        "competence": [share(_SURE), marks("0123456789"), len(set(every)) / max(1, len(every))],
        "information": [marks("?"), np.mean(again), opening],
        "pacing": [
            np.mean([len(talk) for talk in talks]),
            lengths.mean(),
            np.mean(late) - np.mean(early),
        ],
    }
    return {name: np.asarray(values, np.float64) for name, values in found.items()}


def measure(
    people: Sequence[Sequence[types.Dialogue]],
    simulated: Sequence[Sequence[types.Dialogue]],
    *,
    draws: int = 2000,
    seed: int = 0,
) -> Iterator[tuple[str, float]]:
    """(name, value): fi_proxy = share of yes with the right profile minus with a shuffled one.

    people, simulated: per user its dialogues; simulated[i] plays people[i]. At least 3 users.
    The shuffled share is exact: the mean over all wrong profiles. The interval is a bootstrap over
    users. Yields fi_proxy with its ends, fi_proxy/correct, fi_proxy/shuffled and one per dimension.
    Raises ValueError for fewer users or unequal numbers.
    """
    if len(people) != len(simulated) or len(people) < 3:
        raise ValueError(
            f"{len(people)} people and {len(simulated)} simulated users: give 3 pairs or more"
        )
    real, fake = [features(p) for p in people], [features(s) for s in simulated]
    yes = np.stack(
        [_same([f[d] for f in fake], [r[d] for r in real]) for d in DIMENSIONS]
    )  # [5, simulated, people]
    n = len(people)
    right = np.einsum("dii->di", yes).astype(float)
    wrong = (yes.sum(axis=2) - right) / (n - 1)
    gain = (right - wrong).mean(axis=0)
    yield from statistics.mean_ci(gain, np.arange(n), draws=draws, seed=seed).named("fi_proxy")
    yield "fi_proxy/correct", float(right.mean())
    yield "fi_proxy/shuffled", float(wrong.mean())
    for name, value in zip(DIMENSIONS, (right - wrong).mean(axis=1), strict=True):
        yield f"fi_proxy/{name}", float(value)


def _same(fake: Sequence[np.ndarray], real: Sequence[np.ndarray]) -> np.ndarray:
    """[simulated, people] bool: nearer than the simulated user's median person.

    Features are scaled by their spread among people. Ties with the median are a no, so that a
    simulator without any person in it earns nothing.
    """
    a, b = np.stack(fake), np.stack(real)
    scale = b.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    distance = np.linalg.norm((a[:, None] - b[None]) / scale, axis=-1)
    return distance < np.median(distance, axis=1, keepdims=True) - 1e-12
