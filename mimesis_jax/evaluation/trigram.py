"""An interpolated trigram over token ids: the baseline that a trained user model must beat.

p(c | a, b) = l3 f(c | a, b) + l2 f(c | b) + l1 f(c) + l0 / V, with the weights l tuned by EM on a
validation split (deleted interpolation, Jelinek and Mercer 1980). Where a context was never seen
its f is the next shorter one's, so every term sums to 1 over the vocabulary and so does p.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from mimesis_jax import types

# A word that neither split holds must stay possible.
LEAST_UNIFORM = 1e-6


@dataclasses.dataclass(frozen=True)
class Row:
    """Tokens and which of them count.

    ids: [n] int. scored: [n] bool; the others are context only, neither counted nor measured.
    """

    ids: np.ndarray
    scored: np.ndarray


@dataclasses.dataclass(frozen=True)
class _Table:
    """Counts of (context, word) pairs, sorted for look-up; words are 0 .. V - 1."""

    vocab: int
    pairs: np.ndarray
    pair_counts: np.ndarray
    contexts: np.ndarray
    context_counts: np.ndarray

    @classmethod
    def count(cls, context: np.ndarray, word: np.ndarray, vocab: int) -> _Table:
        pairs, pair_counts = np.unique(context * vocab + word, return_counts=True)
        contexts, context_counts = np.unique(context, return_counts=True)
        return cls(vocab, pairs, pair_counts, contexts, context_counts)

    def frequency(self, context: np.ndarray, word: np.ndarray, shorter: np.ndarray) -> np.ndarray:
        """[n] share of the word after its context; `shorter` where the context is new."""
        total = _look(self.contexts, self.context_counts, context)
        here = _look(self.pairs, self.pair_counts, context * self.vocab + word)
        return np.where(total > 0, here / np.maximum(total, 1), shorter)


@dataclasses.dataclass(frozen=True)
class Trigram:
    """A fitted model. weights: [4] of trigram, bigram, unigram, uniform; they sum to 1."""

    vocab: int
    weights: np.ndarray
    tables: tuple[_Table, _Table, _Table]

    def logp(self, row: Row) -> np.ndarray:
        """[scored tokens] nats of each scored token given the two tokens before it in the row."""
        return np.log(self._terms([row]) @ self.weights)

    def nll(self, rows: Sequence[Row]) -> float:
        """Mean nats per scored token. Raises ValueError where no token is scored."""
        if not any(row.scored.any() for row in rows):
            raise ValueError("no token is scored: nothing to measure")
        return float(-np.log(self._terms(rows) @ self.weights).mean())

    def measure(self, rows: Sequence[Row]) -> Iterator[tuple[str, float]]:
        """(name, value): nll_trigram in nats per token and how many tokens it was measured on."""
        yield "nll_trigram", self.nll(rows)
        yield "nll_trigram/tokens", float(sum(int(row.scored.sum()) for row in rows))

    def _terms(self, rows: Sequence[Row]) -> np.ndarray:
        two, one, word = _grams(rows, self.vocab)
        trigram, bigram, unigram = self.tables
        uniform = np.full(len(word), 1.0 / self.vocab)
        f1 = unigram.frequency(np.zeros_like(word), word, uniform)
        f2 = bigram.frequency(one, word, f1)
        f3 = trigram.frequency(two, word, f2)
        return np.stack([f3, f2, f1, uniform], axis=-1)


def fit(
    train: Sequence[Row], validation: Sequence[Row], vocab: int, *, rounds: int = 50
) -> Trigram:
    """Counts on `train`, interpolation weights by EM on `validation`.

    vocab: V, ids are 0 .. V - 1. rounds: EM rounds (the likelihood never falls).
    Raises ValueError for ids outside the vocabulary or a validation split without scored tokens.
    """
    two, one, word = _grams(train, vocab)
    tables = (
        _Table.count(two, word, vocab),
        _Table.count(one, word, vocab),
        _Table.count(np.zeros_like(word), word, vocab),
    )
    model = Trigram(vocab, np.full(4, 0.25), tables)
    terms = model._terms(validation)
    if len(terms) == 0:
        raise ValueError("the validation split has no scored token: weights cannot be tuned")
    weights = model.weights
    for _ in range(rounds):
        blamed = terms * weights
        weights = (blamed / blamed.sum(axis=-1, keepdims=True)).mean(axis=0)
    weights = weights + LEAST_UNIFORM * np.array([0, 0, 0, 1.0])
    return dataclasses.replace(model, weights=weights / weights.sum())


def rows(trees: Sequence[types.Tree]) -> list[Row]:
    """The learned tokens (weight > 0) of trees, each after the two tokens before it on its path.

    So the trigram is measured on the very tokens that a model is.
    """
    found = []
    for tree in trees:
        for part in tree:
            learned = np.asarray(part.weight) > 0
            if learned.any():
                before = _before(tree, part)
                scored = np.concatenate([np.zeros(len(before), bool), learned])
                found.append(Row(np.concatenate([before, part.ids]), scored))
    return found


def _before(tree: types.Tree, part: types.Segment) -> np.ndarray:
    """The last two tokens of a segment's parent path, fewer near the root."""
    ids: list[int] = []
    parent = part.parent
    while parent >= 0 and len(ids) < 2:
        ids = [int(i) for i in tree[parent].ids[-2:]] + ids
        parent = tree[parent].parent
    return np.array(ids[-2:], np.int64)


def _grams(rows: Sequence[Row], vocab: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per scored token [n] int64: the two before it as one number, the one before it, itself.

    The start of a row is a word of its own, V, so that contexts there differ from all others.
    """
    two, one, word = [], [], []
    for row in rows:
        ids, scored = np.asarray(row.ids, np.int64), np.asarray(row.scored, bool)
        if ids.shape != scored.shape:
            raise ValueError(f"{ids.size} ids but {scored.size} marks: give one mark a token")
        if ids.size and not (0 <= ids.min() and ids.max() < vocab):
            raise ValueError(
                f"ids {ids.min()} .. {ids.max()} leave the vocabulary 0 .. {vocab - 1}"
            )
        padded = np.concatenate([[vocab, vocab], ids])
        two.append((padded[:-2] * (vocab + 1) + padded[1:-1])[scored])
        one.append(padded[1:-1][scored])
        word.append(ids[scored])
    if not word:
        return (np.zeros(0, np.int64),) * 3
    return np.concatenate(two), np.concatenate(one), np.concatenate(word)


def _look(keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """[n] values at the wanted keys, 0 where a key is absent. keys: sorted."""
    if len(keys) == 0:
        return np.zeros(len(wanted), np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, values[at], 0)
