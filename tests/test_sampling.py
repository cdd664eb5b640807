"""Sampling: distributions by counting, truncation by hand, streams that belong to the request."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimesis_jax.rollouts import sampling

P = np.array([0.5, 0.25, 0.15, 0.1], np.float32)
N = 4000


def draws(**knobs):
    """N slots that sample from P, each with its own stream."""
    base = sampling.idle(N)
    base.stream[:, 1] = np.arange(N)
    for name, value in knobs.items():
        getattr(base, name)[:] = value
    keys = sampling.streams(jnp.uint32(3), base.stream)
    logits = jnp.tile(jnp.log(jnp.asarray(P)), (N, 1))
    logits = jnp.concatenate(
        [logits, jnp.full((N, 1), -jnp.inf)], axis=1
    )  # a row that is not there
    out = jax.jit(sampling.draw)(logits, keys, jnp.zeros(N, jnp.int32), base)
    return [np.asarray(x) for x in out]


def shares(token):
    return np.bincount(token, minlength=5) / len(token)


def test_samples_follow_the_distribution_and_report_it():
    token, logp, behaviour, free = draws()
    np.testing.assert_allclose(shares(token)[:4], P, atol=0.025)
    assert shares(token)[4] == 0
    np.testing.assert_allclose(logp, np.log(P)[token], rtol=1e-5)
    np.testing.assert_allclose(behaviour, logp, atol=1e-5)
    assert free.all()


def test_temperature_is_part_of_the_log_prob():
    token, logp, _, _ = draws(temperature=0.5)
    cold = P**2 / np.sum(P**2)
    np.testing.assert_allclose(shares(token)[:4], cold, atol=0.025)
    np.testing.assert_allclose(logp, np.log(cold)[token], rtol=1e-5)


@pytest.mark.parametrize(
    "knobs, kept",
    [({"top_k": 2}, 2), ({"top_p": 0.8}, 3), ({"top_p": 0.75}, 2), ({"min_p": 0.4}, 2)],
)
def test_truncation_keeps_the_right_tokens_and_reports_both_log_probs(knobs, kept):
    token, logp, behaviour, _ = draws(**knobs)
    renormalised = P[:kept] / P[:kept].sum()
    np.testing.assert_allclose(shares(token)[:kept], renormalised, atol=0.03)
    assert token.max() == kept - 1
    np.testing.assert_allclose(logp, np.log(P)[token], rtol=1e-5)
    np.testing.assert_allclose(behaviour, np.log(renormalised)[token], rtol=1e-4)


def test_greedy_takes_the_best_at_temperature_one_log_probs():
    token, logp, behaviour, _ = draws(temperature=0.0)
    assert (token == 0).all() and (behaviour == 0).all()
    np.testing.assert_allclose(logp, np.log(P[0]), rtol=1e-5)


def test_a_ban_moves_the_distribution_and_says_so():
    token, logp, behaviour, free = draws(ban=0, ban_until=1)
    assert token.min() == 1 and not free.any()
    np.testing.assert_allclose(logp, np.log(P)[token], rtol=1e-5)
    np.testing.assert_allclose(behaviour, np.log(P / P[1:].sum())[token], rtol=1e-4)
    late = draws(ban=0, ban_until=0)
    assert late[0].min() == 0 and late[3].all()


def test_a_ban_of_what_would_not_have_come_leaves_the_token_free():
    assert draws(ban=4, ban_until=1)[3].all()


def test_streams_depend_on_the_name_alone():
    one = sampling.idle(3)
    one.stream[:] = [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 3, 4]]
    keys = jax.random.key_data(sampling.streams(jnp.uint32(7), one.stream))
    assert (keys[0] == keys[2]).all() and (keys[0] != keys[1]).any()
    other = jax.random.key_data(sampling.streams(jnp.uint32(8), one.stream))
    assert (other[0] != keys[0]).any()


def test_alone_or_among_others_the_same_token():
    base = sampling.idle(8)
    base.stream[:, 1] = np.arange(8)
    logits = jax.random.normal(jax.random.key(0), (8, 11))
    whole = sampling.draw(
        logits, sampling.streams(jnp.uint32(0), base.stream), jnp.zeros(8, jnp.int32), base
    )
    for slot in range(8):
        rolled = jax.tree.map(lambda x: np.roll(x, 1, axis=0), base)
        alone = sampling.draw(
            jnp.roll(logits, 1, axis=0), sampling.streams(jnp.uint32(0), rolled.stream),
            jnp.zeros(8, jnp.int32), rolled,
        )  # fmt: skip
        assert int(alone[0][(slot + 1) % 8]) == int(whole[0][slot])
    assert dataclasses.is_dataclass(base)
