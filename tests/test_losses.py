"""The token losses: hand-worked numbers, masks that hold, sums that no cutting changes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax.losses import csd, fraction, gae, likelihood, policy, reward

LN2 = float(np.log(2.0))
close = lambda a, b, tol=1e-6: np.testing.assert_allclose(np.asarray(a), b, atol=tol, rtol=tol)


# --- fraction and likelihood ------------------------------------------------------------------


def test_fraction_adds_before_it_divides():
    total = sum([fraction.Fraction(3.0, 1.0), fraction.Fraction(1.0, 3.0)])
    close(total.value(), 1.0)  # the mean of the two values would be 5/3
    close(fraction.Fraction(3.0, 1.0).over(4.0), 0.75)


def test_an_empty_fraction_is_zero_with_zero_gradient():
    close(fraction.zero().value(), 0.0)
    value = lambda x: fraction.Fraction(x, jnp.zeros(())).value()
    close(jax.grad(value)(2.0), 0.0)


def test_fraction_is_a_pytree():
    doubled = jax.jit(lambda f: f + f)(fraction.Fraction(jnp.ones(()), jnp.ones(())))
    close(doubled.numerator, 2.0)
    with pytest.raises(TypeError):
        fraction.zero() + 1.0


def test_nll_by_hand():
    loss = likelihood.nll(jnp.array([-1.0, -2.0, -9.0]), jnp.array([1.0, 0.5, 0.0]))
    close([loss.numerator, loss.denominator], [2.0, 1.5])


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
def test_nothing_masked_reaches_value_or_gradient(poison):
    weight = jnp.array([1.0, 0.0])
    dirty, clean = jnp.array([-1.0, poison]), jnp.array([-1.0, 0.0])
    losses = {
        "nll": lambda x: likelihood.nll(x, weight),
        "clipped": lambda x: policy.clipped(x, dirty, dirty * 0 + 1, weight)[0],
        "k2": lambda x: policy.kl(x, dirty * 2, weight, "k2"),
        "k3": lambda x: policy.kl(x, dirty, weight, "k3"),
        "csd": lambda x: csd.loss(x, csd.gate(dirty, clean), weight),
    }
    for name, loss in losses.items():
        value, slope = jax.value_and_grad(lambda x, loss=loss: loss(x).value())(dirty)
        assert np.isfinite(value), name
        assert np.isfinite(slope).all() and slope[1] == 0, name
        close(value, loss(clean).value())


# --- policy -----------------------------------------------------------------------------------


def test_clipped_by_hand():
    # ratios 2, 0.5, 2, 0.5 with advantages 1, 1, -1, -1 and bounds 0.8, 1.28
    logp = jnp.array([LN2, -LN2, LN2, -LN2])
    loss, metrics = policy.clipped(
        logp, jnp.zeros(4), jnp.array([1.0, 1.0, -1.0, -1.0]), jnp.ones(4)
    )
    # -min(2, 1.28) - min(0.5, 0.8) + max(2, 1.28) + max(0.5, 0.8)
    close([loss.numerator, loss.denominator], [-1.28 - 0.5 + 2.0 + 0.8, 4.0])
    read = {name: float(value.value()) for name, value in metrics.items()}
    close(read["ratio"], 1.25)
    assert read["clip_low"] == 0.25 and read["clip_high"] == 0.25 and read["clip_dual"] == 0
    # ratio - 1 - log ratio: 1 - ln 2 and -1/2 + ln 2, averaged
    close(read["kl"], 0.25)


def test_clipped_gradient_stops_at_the_bound():
    advantage, logp = jnp.array([1.0, 1.0, -1.0, -1.0]), jnp.array([LN2, -LN2, LN2, -LN2])
    value = lambda x: policy.clipped(x, jnp.zeros(4), advantage, jnp.ones(4))[0].numerator
    close(jax.grad(value)(logp), [0.0, -0.5, 2.0, 0.0])


def test_dual_clip_bounds_a_negative_advantage():
    call = lambda dual: policy.clipped(
        jnp.log(jnp.array([10.0])), jnp.zeros(1), jnp.array([-2.0]), jnp.ones(1), dual=dual
    )
    close(call(None)[0].value(), 20.0)
    close(call(3.0)[0].value(), 6.0)
    close(call(3.0)[1]["clip_dual"].value(), 1.0)
    with pytest.raises(ValueError, match="dual 1.0 is not above 1"):
        call(1.0)


def test_on_policy_gradient_is_the_policy_gradient():
    logp, advantage = jnp.array([-1.0, -2.0]), jnp.array([0.5, -1.5])
    value = lambda x: policy.clipped(x, logp, advantage, jnp.ones(2))[0].value()
    close(jax.grad(value)(logp), -np.array([0.5, -1.5]) / 2)


def test_a_huge_ratio_stays_finite():
    value = lambda x: policy.clipped(x, jnp.full(1, -500.0), -jnp.ones(1), jnp.ones(1))[0].value()
    at, slope = jax.value_and_grad(value)(jnp.zeros(1))
    assert np.isfinite(at) and np.isfinite(slope).all()


def test_aggregations_by_hand():
    # two sequences, of one token (loss 4) and three tokens (losses 1, 2, 3)
    value, weight = jnp.array([4.0, 1.0, 2.0, 3.0]), jnp.ones(4)
    share = policy.share(weight, jnp.array([0, 1, 1, 1]), 2)
    close(share, [1.0, 1 / 3, 1 / 3, 1 / 3])
    close(policy.aggregate(value, weight).value(), 2.5)
    close(policy.aggregate(value, weight, aggregation="sequence", share=share).value(), 3.0)
    fixed = policy.aggregate(value, weight, aggregation="fixed", share=share, length=5)
    close(fixed.value(), 1.0)
    close(policy.share(jnp.array([0.0, 2.0]), jnp.array([0, 1]), 3), [0.0, 0.5])


def test_aggregations_say_what_is_missing():
    one = jnp.ones(1)
    with pytest.raises(ValueError, match="needs share"):
        policy.aggregate(one, one, aggregation="sequence")
    with pytest.raises(ValueError, match="length None"):
        policy.aggregate(one, one, aggregation="fixed", share=one)
    with pytest.raises(ValueError, match="'median'"):
        policy.aggregate(one, one, aggregation="median")
    with pytest.raises(ValueError, match="give both"):
        policy.clipped(one, one, one, one, truncate=2.0)


@functools.partial(jax.jit, static_argnames="aggregation")
def whole_and_parts(logp, old, advantage, weight, share, first, aggregation):
    """Value and gradient of the batch at once, and as the sum of two micro-batches."""

    def part(x, where):
        knobs = dict(aggregation=aggregation, share=share, length=6)
        return policy.clipped(x, old, advantage, weight * where, **knobs)[0]

    total = part(logp, 1.0).denominator
    whole = jax.value_and_grad(lambda x: part(x, 1.0).value())(logp)
    parts = [
        jax.value_and_grad(lambda x, w=w: part(x, w).over(total))(logp) for w in (first, 1 - first)
    ]
    return whole, jax.tree.map(jnp.add, *parts)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6), st.sampled_from(["token", "sequence", "fixed"]))
def test_no_split_of_the_tokens_changes_loss_or_gradient(seed, aggregation):
    rng = np.random.default_rng(seed)
    n = 12
    logp, old, advantage = (jnp.asarray(rng.normal(size=n), jnp.float32) for _ in range(3))
    weight, first = (jnp.asarray(rng.integers(0, 2, n), jnp.float32) for _ in range(2))
    share = policy.share(weight, jnp.asarray(rng.integers(0, 4, n)), 4)
    whole, parts = whole_and_parts(logp, old, advantage, weight, share, first, aggregation)
    close(whole[0], parts[0], 1e-5)
    close(whole[1], parts[1], 1e-5)


def test_truncated_importance_weights():
    # trainer over sampler: 4 (truncated to 2) and 1/2, on policy
    old = jnp.log(jnp.array([0.4, 0.1]))
    sampler = jnp.log(jnp.array([0.1, 0.2]))
    loss, _ = policy.clipped(old, old, jnp.ones(2), jnp.ones(2), sampler_logp=sampler, truncate=2.0)
    close(loss.numerator, -2.5)
    value = lambda s: policy.clipped(
        old, old, jnp.ones(2), jnp.ones(2), sampler_logp=s, truncate=9.0
    )
    close(jax.grad(lambda s: value(s)[0].value())(sampler), [0.0, 0.0])
    far = policy.clipped(
        old, old, jnp.ones(2), jnp.ones(2), sampler_logp=jnp.full(2, -900.0), truncate=2.0
    )
    close(far[0].numerator, -4.0)


def test_kl_estimators_by_hand():
    logp, ref, weight = jnp.array([LN2]), jnp.zeros(1), jnp.ones(1)
    close(policy.kl(logp, ref, weight, "k1").value(), LN2)
    close(policy.kl(logp, ref, weight, "k2").value(), LN2**2 / 2)
    close(policy.kl(logp, ref, weight, "k3").value(), 0.5 - 1 + LN2)
    assert np.isfinite(policy.kl(jnp.array([-900.0]), ref, weight, "k3").value())
    with pytest.raises(ValueError, match="'k4'"):
        policy.kl(logp, ref, weight, "k4")


def test_k1_and_k3_estimate_the_exact_kl():
    p, q = np.array([0.7, 0.2, 0.1]), np.array([0.3, 0.3, 0.4])
    args = jnp.log(p), jnp.log(q), jnp.asarray(p)  # the exact mean over samples of p
    exact = float((p * np.log(p / q)).sum())
    close(policy.kl(*args, "k1").value(), exact)
    close(policy.kl(*args, "k3").value(), exact)


def test_entropy_and_disagreement():
    close(policy.entropy(jnp.array([1.0, 3.0, np.nan]), jnp.array([1.0, 1.0, 0.0])).value(), 2.0)
    mean, largest = policy.disagreement(
        jnp.array([-1.0, -2.0, np.nan]), jnp.array([-1.5, -2.1, 0.0]), jnp.array([1.0, 1.0, 0.0])
    )
    close([mean.value(), largest], [0.3, 0.5])


# --- coached self-distillation ----------------------------------------------------------------


def test_gate_by_hand():
    # beta (l_T - l_S) = ln 3 gives 3/4
    gate = csd.gate(jnp.array([np.log(3.0), 0.0]) / 5 - 1, jnp.array([-1.0, -1.0]))
    close(gate, [0.75, 0.5])
    close(csd.gate(jnp.array([np.log(3.0)]), jnp.zeros(1), beta=1.0), [0.75])


def test_no_gradient_goes_through_the_gate():
    slope = jax.grad(lambda x: jnp.sum(csd.gate(x, 2 * x) + csd.gate(-x, x)))(jnp.ones(2))
    close(slope, [0.0, 0.0])


def test_csd_loss_by_hand():
    logp, coached = jnp.array([-2.0, -4.0, -1.0]), jnp.array([1.0, 1.0, 0.0])
    gate = jnp.array([0.75, 0.5, 0.9])
    loss = csd.loss(logp, gate, coached)
    close([loss.numerator, loss.denominator], [3.5, 2.0])
    slope = jax.grad(lambda x: csd.loss(x, gate, coached).value())(logp)
    close(slope, [-0.375, -0.25, 0.0])  # never above 0: no token is pushed down


def test_csd_without_a_coached_token_is_exactly_zero():
    value = lambda x: csd.loss(x, jnp.full(2, jnp.nan), jnp.zeros(2)).value()
    at, slope = jax.value_and_grad(value)(jnp.array([-1.0, -jnp.inf]))
    assert at == 0 and (slope == 0).all()


def test_csd_metrics_and_variants():
    gate, coached = jnp.array([0.75, 0.25, 0.5, 0.9]), jnp.array([1.0, 1.0, 1.0, 0.0])
    read = {name: value.value() for name, value in csd.metrics(gate, coached).items()}
    close([read["gate"], read["above_half"]], [0.5, 1 / 3])
    close(csd.above_half(gate), [0.5, 0.0, 0.0, 0.8])
    close(csd.signed(gate, coached), [0.25, -0.25, 0.0, 0.0])


# --- action-level advantages ------------------------------------------------------------------


def test_gae_by_hand():
    # deltas with gamma 0.5: 1 + 0.5 * 4 - 2 = 1 and 3 + 0.5 * 2 - 4 = 0; gamma lam = 0.25
    close(gae.actions([1, 3], [2, 4], gamma=0.5, lam=0.5, bootstrap=2.0), [1.0, 0.0])
    # ended instead of cut: the second delta is -1
    close(gae.actions([1, 3], [2, 4], gamma=0.5, lam=0.5), [0.75, -1.0])
    assert gae.actions([], []).shape == (0,)


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=8))
def test_gae_undiscounted_without_a_critic_is_the_return(rewards):
    advantage = gae.actions(rewards, np.zeros(len(rewards)), gamma=1.0, lam=1.0)
    close(advantage, np.cumsum(rewards[::-1])[::-1], 1e-9)


@given(
    st.lists(st.tuples(st.integers(1, 3), st.floats(-2, 2)), min_size=1, max_size=5),
    st.data(),
)
def test_observation_tokens_change_no_advantage(turns, data):
    plain = np.repeat(np.arange(len(turns)), [n for n, _ in turns])
    critic = np.random.default_rng(0).normal(size=len(plain))
    rewards = [r for _, r in turns]
    where = data.draw(st.lists(st.integers(0, len(plain)), max_size=6))
    padded = np.insert(plain, where, -1)
    noisy = np.insert(critic, where, 99.0)

    def tokens(action, values):
        advantage = gae.actions(rewards, values[gae.starts(action)], gamma=0.9, lam=0.8)
        return gae.spread(advantage, action)

    spread = tokens(padded, noisy)
    close(spread[padded >= 0], tokens(plain, critic), 1e-12)
    assert (spread[padded < 0] == 0).all()


def test_gae_says_what_is_wrong():
    with pytest.raises(ValueError, match="one of each an action"):
        gae.actions([1.0], [])
    with pytest.raises(ValueError, match="gamma 1.5"):
        gae.actions([1.0], [1.0], gamma=1.5)
    with pytest.raises(ValueError, match="in order"):
        gae.starts(np.array([0, 2]))
    with pytest.raises(ValueError, match="action 1 of a token"):
        gae.spread(np.zeros(1), np.array([0, 1]))


def test_whitening_counts_turns_not_tokens():
    white = gae.whiten([np.array([1.0, 2.0]), np.array([6.0])])
    every = np.concatenate(white)
    close([every.mean(), every.std()], [0.0, 1.0])
    close(white[1], [3 / np.sqrt(14 / 3)])
    close(gae.whiten([np.array([5.0])])[0], [0.0])
    assert gae.whiten([]) == []


# --- rewards of the simulator -----------------------------------------------------------------

ROW = dict(exhibit=[1.0], placement=[1.0], naturalness=[1.0], on_task=[1.0], announced=[False])
row = lambda **change: reward.behaviour(**{**ROW, **change})


def test_behaviour_reward_by_hand():
    close(row().reward, [1.0])
    close(row(placement=[0.5], naturalness=[0.6]).reward, [(2 + 0.75 + 0.6 + 0.5) / 5])
    close(row(announced=[True]).reward, [0.5])


def test_a_polite_non_performer_earns_nothing_for_placement():
    close(row(exhibit=[0.0]).reward, [0.3])


def test_control_rows_pay_cooperation():
    pay = lambda c: row(control=[True], cooperative=[c], exhibit=[np.nan], announced=[True]).reward
    close(pay(1.0), [1.0])
    close(pay(0.0), [1.5 / 3.5])
    with pytest.raises(ValueError, match="1 control rows"):
        row(control=[True])


def test_a_judge_failure_is_masked_not_zero():
    scored = reward.behaviour([1, 1], [1, 1], [np.nan, 1], [1, 1], [False, False])
    assert scored.mask.tolist() == [False, True] and scored.failures == 1
    close(scored.reward, [0.0, 1.0])
    # placement is not needed when nothing was exhibited
    assert row(exhibit=[0.0], placement=[np.nan]).mask.tolist() == [True]
    with pytest.raises(ValueError, match="exhibit score 3.0"):
        row(exhibit=[3.0])


def test_format_gate():
    formed = reward.well_formed([True, False, True, True], [3, 3, 0, 3], thought=[4, 9, 9, 3])
    assert formed.tolist() == [True, False, False, False]
    assert reward.well_formed([True], [1]).tolist() == [True]
    scored = reward.Scored(np.array([0.8, 0.7, 0.0]), np.array([True, True, False]), failures=1)
    gated = reward.gated(scored, np.array([True, False, False]))
    close(gated.reward, [0.8, 0.0, 0.0])
    assert gated.mask.all() and (gated.malformed, gated.failures) == (2, 0)
