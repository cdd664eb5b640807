"""The trigram: it sums to one everywhere, counts as by hand, and tunes its weights on new text."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax import types
from mimesis_jax.evaluation import trigram

V = 5


def row(*ids, scored=None):
    return trigram.Row(
        np.array(ids), np.ones(len(ids), bool) if scored is None else np.array(scored)
    )


def distribution(model, *context):
    """p(. | context), asked word by word."""
    ask = lambda w: row(*context, w, scored=[False] * len(context) + [True])
    return np.exp([model.logp(ask(w))[0] for w in range(model.vocab)])


lines = st.lists(st.integers(0, V - 2), min_size=1, max_size=8).map(lambda ids: row(*ids))
texts = st.lists(lines, min_size=1, max_size=5)


@settings(deadline=None, max_examples=60)
@given(texts, texts, st.lists(st.integers(0, V - 1), max_size=3))
def test_it_sums_to_one_after_any_context_and_unseen_words_are_possible(train, valid, context):
    p = distribution(trigram.fit(train, valid, V), *context)
    np.testing.assert_allclose(p.sum(), 1.0, rtol=1e-12)
    assert (p > 0).all()  # id V - 1 is in neither split


def test_counts_by_hand():
    # words 0 1 2, 0 1 3, 4 1 2
    train = [row(0, 1, 2), row(0, 1, 3), row(4, 1, 2)]
    model = trigram.fit(train, train, V)
    terms = model._terms([row(0, 1, 2, scored=[False, False, True])])[0]
    np.testing.assert_allclose(terms, [1 / 2, 2 / 3, 2 / 9, 1 / 5])
    # the pair (3, 1) is new, so its trigram term is the bigram's; after 2 nothing was ever seen
    assert model._terms([row(3, 1, 2)])[2].tolist()[:2] == pytest.approx([2 / 3, 2 / 3])
    assert model._terms([row(2, 2)])[1].tolist()[:2] == pytest.approx([2 / 9, 2 / 9])
    # the start of a row is a context of its own: two of three rows open with 0
    assert model._terms([row(0)])[0].tolist()[:3] == pytest.approx([2 / 3, 2 / 3, 2 / 9])


def test_only_scored_tokens_are_counted_and_measured():
    train = [row(0, 1, 2, scored=[False, False, True])]
    model = trigram.fit(train, train, V)
    assert model._terms([row(1)])[0].tolist()[2] == 0.0  # 1 was context only
    names = dict(model.measure([row(0, 1, 2, scored=[False, True, True])]))
    assert names["nll_trigram/tokens"] == 2


def test_em_by_hand_on_one_round():
    train = [row(0, 1), row(0, 2)]
    model = trigram.fit(train, [row(0)], V, rounds=1)
    # terms of the first word 0 at a start: 1, 1, 1/2, 1/5, blamed alike
    expected = np.array([1, 1, 1 / 2, 1 / 5]) / 2.7
    np.testing.assert_allclose(model.weights, expected, atol=2e-6)


def test_em_never_lowers_the_validation_likelihood():
    rng = np.random.default_rng(0)
    draw = lambda n: [row(*np.cumsum(rng.integers(0, 3, 12)) % V) for _ in range(n)]
    train, valid = draw(20), draw(10)
    losses = [trigram.fit(train, valid, V, rounds=r).nll(valid) for r in (0, 1, 2, 4, 8, 50)]
    assert all(b <= a + 1e-5 for a, b in zip(losses, losses[1:], strict=False))
    assert losses[-1] < losses[0] - 0.01


def test_it_beats_shorter_contexts_where_the_text_has_order_two():
    # each word is the sum of the two before it, mod V, nine times in ten
    rng = np.random.default_rng(1)

    def line():
        ids = list(rng.integers(0, V, 2))
        for _ in range(30):
            ids.append((ids[-1] + ids[-2]) % V if rng.random() < 0.9 else rng.integers(0, V))
        return row(*ids)

    train, valid, test = ([line() for _ in range(n)] for n in (40, 10, 20))
    model = trigram.fit(train, valid, V)
    assert model.weights[0] > 0.8
    # entropy of the source is 0.61 nats a word after the first two, of 1.61 each
    assert 0.5 < model.nll(test) < 0.85


def test_an_unseen_word_costs_at_most_the_floor():
    model = trigram.fit([row(0, 0, 0)], [row(0, 0)], V)
    assert model.nll([row(4)]) <= -np.log(0.9 * trigram.LEAST_UNIFORM / V)


def test_rows_of_a_tree_follow_its_paths():
    tree = (
        types.segment([1, 2, 3]),
        types.segment([4], 0),
        types.segment([5, 6], 1, scored=[False, True], kind="branch"),
        types.segment([7, 8], 1, scored=True),
        types.segment([9], 1, scored=True, weight=0.0),
    )
    found = trigram.rows([tree])
    assert [r.ids.tolist() for r in found] == [[3, 4, 5, 6], [3, 4, 7, 8]]
    assert [r.scored.tolist() for r in found] == [[0, 0, 0, 1], [0, 0, 1, 1]]
    root = trigram.rows([(types.segment([1, 2], scored=[False, True]),)])
    assert root[0].ids.tolist() == [1, 2]


def test_wrong_rows_say_so():
    good = [row(0, 1)]
    with pytest.raises(ValueError, match="leave the vocabulary"):
        trigram.fit([row(V)], good, V)
    with pytest.raises(ValueError, match="no scored token"):
        trigram.fit(good, [row(0, scored=[False])], V)
    with pytest.raises(ValueError, match="nothing to measure"):
        trigram.fit(good, good, V).nll([])
    with pytest.raises(ValueError, match="2 ids but 1 marks"):
        trigram.fit([trigram.Row(np.array([1, 2]), np.array([True]))], good, V)
