"""Turing distance: how well a small classifier tells simulated utterances from people's.

Logistic regression on hashed words, word pairs and length, tested on conversations that it was not
trained on. The distance is |accuracy - 1/2|: 0 is a simulator that cannot be told apart, 1/2 one
that always can.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from mimesis_jax import types
from mimesis_jax.evaluation import realism

BUCKETS = 128
PENALTY = 1e-3  # ridge on the weights, per example
STEPS = 60


@dataclasses.dataclass(frozen=True)
class Sample:
    """Utterances to tell apart.

    texts: [n]. talk: [n] int, the conversation of each. simulated: [conversations] bool.
    """

    texts: tuple[str, ...]
    talk: np.ndarray
    simulated: np.ndarray

    @classmethod
    def of(cls, people: Sequence[types.Dialogue], simulated: Sequence[types.Dialogue]) -> Sample:
        """All user utterances of both; conversations without one are left out."""
        talks = [[t for t in map(realism.said, side) if t] for side in (people, simulated)]
        texts = [text for side in talks for talk in side for text in talk]
        counts = [len(talk) for side in talks for talk in side]
        label = np.repeat([False, True], [len(side) for side in talks])
        return cls(tuple(texts), np.repeat(np.arange(len(counts)), counts), label)

    def matched(self, seed: int = 0) -> Sample:
        """A subset where both sides have as many utterances of every length in words."""
        rng = np.random.default_rng(seed)
        length = np.array([len(realism.words(text)) for text in self.texts], int)
        side = self.simulated[self.talk]
        keep: list[np.ndarray] = []
        for words in np.unique(length):
            both = [np.flatnonzero((length == words) & (side == s)) for s in (False, True)]
            n = min(map(len, both))
            keep += [rng.permutation(index)[:n] for index in both]
        kept = np.sort(np.concatenate(keep)) if keep else np.zeros(0, int)
        talks, talk = np.unique(self.talk[kept], return_inverse=True)
        return Sample(tuple(self.texts[i] for i in kept), talk, self.simulated[talks])


def measure(
    people: Sequence[types.Dialogue],
    simulated: Sequence[types.Dialogue],
    *,
    folds: int = 5,
    permutations: int = 100,
    seed: int = 0,
) -> Iterator[tuple[str, float]]:
    """(name, value): turing_distance, its permutation p, and both on the length-matched sample.

    p = (1 + relabellings with at least this distance) / (1 + permutations); conversations are
    relabelled, not utterances. The matched pair is left out where either side has fewer matched
    conversations than folds. Raises ValueError for fewer conversations than folds on a side.
    """
    sample = Sample.of(people, simulated)
    for name, some in (("turing", sample), ("turing_matched", sample.matched(seed))):
        least = min(int(some.simulated.sum()), int((~some.simulated).sum()))
        if least < folds:
            if name == "turing":
                raise ValueError(f"{least} conversations on a side: {folds} folds need {folds}")
            return
        found, p = distance(some, folds=folds, permutations=permutations, seed=seed)
        yield f"{name}_distance", found
        yield f"{name}_p", p
        yield f"{name}_distance/of", float(len(some.texts))


def distance(
    sample: Sample, *, folds: int = 5, permutations: int = 100, seed: int = 0
) -> tuple[float, float]:
    """|balanced accuracy - 1/2| on held-out conversations, and its permutation p.

    Folds hold whole conversations, both kinds in each. Accuracy is the mean of the two sides', so
    1/2 is chance however many utterances a side has.
    """
    rng = np.random.default_rng(seed)
    talks = len(sample.simulated)
    fold = np.zeros(talks, int)
    for side in (False, True):
        index = rng.permutation(np.flatnonzero(sample.simulated == side))
        fold[index] = np.arange(len(index)) % folds
    # Labels are shuffled inside a fold, so every fold keeps its share of both sides.
    labels = np.repeat(sample.simulated[:, None], permutations + 1, axis=1)
    for column in range(1, permutations + 1):
        for f in range(folds):
            index = np.flatnonzero(fold == f)
            labels[index, column] = labels[rng.permutation(index), column]
    truth, where = labels[sample.talk], fold[sample.talk]
    x = _features(sample.texts)
    guess = np.zeros(truth.shape, bool)
    for f in range(folds):
        train = where != f
        guess[~train] = x[~train] @ _fit(x[train], truth[train]) > 0
    right = guess == truth
    accuracy = (_mean(right, truth) + _mean(right, ~truth)) / 2
    far = np.abs(accuracy - 0.5)
    p = (1 + np.sum(far[1:] >= far[0] - 1e-12)) / (1 + permutations)
    return float(far[0]), float(p)


def _mean(value: np.ndarray, where: np.ndarray) -> np.ndarray:
    """[columns] mean of a column's values where its marks are set."""
    return (value & where).sum(axis=0) / np.maximum(1, where.sum(axis=0))


def _features(texts: Sequence[str]) -> np.ndarray:
    """[n, BUCKETS + 2]: signed hashed words and pairs to unit length, log length, a constant."""
    x = np.zeros((len(texts), BUCKETS + 2))
    for row, text in zip(x, texts, strict=True):
        found = realism.words(text)
        for item in (*found, *map(" ".join, zip(found, found[1:], strict=False))):
            # crc32, not hash(): Python salts the hash of strings in each process.
            code = zlib.crc32(item.encode())
            row[code % BUCKETS] += 1.0 if code & (1 << 20) else -1.0
        row[:BUCKETS] /= max(1.0, float(np.linalg.norm(row[:BUCKETS])))
        row[BUCKETS] = np.log1p(len(found))
    x[:, BUCKETS] -= x[:, BUCKETS].mean() if len(x) else 0.0
    x[:, BUCKETS + 1] = 1.0
    return x


def _fit(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """[D, columns] weights of one ridge logistic regression a column, both sides weighing alike.

    x: [n, D]. labels: [n, columns] bool. Nesterov's accelerated gradient with step 1 / L: all
    columns in one matrix product, which is what makes permutations cheap.
    """
    n = len(x)
    share = np.maximum(1, labels.sum(axis=0)) / n
    other = np.maximum(1, (~labels).sum(axis=0)) / n
    weight = np.where(labels, 0.5 / share, 0.5 / other) / n
    bound = np.linalg.norm(x, 2) ** 2 / 4 * weight.max(axis=0) + PENALTY
    w = look = np.zeros((x.shape[1], labels.shape[1]))
    for step in range(STEPS):
        chance = 1 / (1 + np.exp(-(x @ look)))
        slope = x.T @ ((chance - labels) * weight) + PENALTY * look
        new = look - slope / bound
        look = new + step / (step + 3) * (new - w)
        w = new
    return w
