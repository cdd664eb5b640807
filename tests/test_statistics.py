"""Intervals, pairs, sample sizes and AUC: hand-worked numbers and what a bootstrap must show."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax.evaluation import statistics


def test_clusters_widen_the_interval():
    rng = np.random.default_rng(0)
    goal = np.repeat(np.arange(20), 10)
    values = rng.normal(size=20)[goal] + 0.1 * rng.normal(size=200)
    by_goal = statistics.mean_ci(values, goal)
    by_row = statistics.mean_ci(values, np.arange(200))
    assert by_goal.low < by_goal.mean < by_goal.high
    assert by_goal.half_width > 2.5 * by_row.half_width
    # the standard error of 20 goal means
    expected = 1.96 * values.reshape(20, 10).mean(1).std(ddof=1) / np.sqrt(20)
    assert by_goal.half_width == pytest.approx(expected, rel=0.15)


def test_weights_count_as_often_as_they_say():
    """1 and 0 with weights 3 and 1 are the mean of 1, 1, 1, 0; twice the weights change nothing."""
    found = statistics.mean_ci([1.0, 0.0], [0, 1], weights=[3.0, 1.0])
    assert found.mean == pytest.approx(0.75)
    assert found == statistics.mean_ci([1.0, 0.0], [0, 1], weights=[6.0, 2.0])
    with pytest.raises(ValueError, match=r"weights of shape \(3,\) for 2 values"):
        statistics.mean_ci([1.0, 0.0], [0, 1], weights=[1.0, 1.0, 1.0])


def test_two_factors_show_both_sources_of_noise():
    goal, seed = np.repeat(np.arange(12), 6), np.tile(np.arange(6), 12)
    values = np.random.default_rng(1).normal(size=6)[seed]  # all noise comes from the seeds
    assert statistics.mean_ci(values, goal).half_width < 1e-9
    both = statistics.mean_ci(values, np.stack([goal, seed], 1))
    assert both.half_width == pytest.approx(statistics.mean_ci(values, seed).half_width, rel=0.1)


def test_one_seed_adds_nothing():
    values, goal = np.arange(8.0), np.arange(8)
    alone = statistics.mean_ci(values, goal)
    crossed = statistics.mean_ci(values, np.stack([goal, np.zeros(8, int)], 1))
    assert crossed.low == pytest.approx(alone.low, abs=0.3)
    assert crossed.high == pytest.approx(alone.high, abs=0.3)


def test_coverage_is_near_the_level():
    rng = np.random.default_rng(2)
    goal = np.repeat(np.arange(30), 3)
    hits = 0
    for trial in range(150):
        values = rng.normal(size=30)[goal] + rng.normal(size=90)
        ci = statistics.mean_ci(values, goal, draws=300, seed=trial)
        hits += ci.low <= 0 <= ci.high
    assert 0.86 <= hits / 150 <= 0.99


def test_same_seed_same_interval_and_a_constant_has_no_width():
    values, goal = [0.0, 1.1, 1.7, 0.3, 1.9, 2.6, 4.2], ["a", "a", "b", "c", "d", "e", "f"]
    assert statistics.mean_ci(values, goal, seed=3) == statistics.mean_ci(values, goal, seed=3)
    assert statistics.mean_ci(values, goal, seed=3) != statistics.mean_ci(values, goal, seed=4)
    assert statistics.mean_ci([2.0, 2.0], [0, 1]) == statistics.Interval(2.0, 2.0, 2.0)


def test_crossed_factors_with_holes():
    ci = statistics.mean_ci([1.0, 2.0], [[0, 0], [1, 1]])
    assert 1.0 <= ci.low <= 1.5 <= ci.high <= 2.0


def test_pairing_removes_what_goals_share():
    rng = np.random.default_rng(4)
    hard = rng.normal(size=40) * 5
    a, b = hard + 0.3, hard + 0.01 * rng.normal(size=40)
    gap = statistics.paired_difference(a, b, np.arange(40))
    assert gap.mean == pytest.approx(0.3, abs=0.01) and gap.low > 0.29
    assert dict(gap.named("gap"))["gap/low"] == gap.low
    with pytest.raises(ValueError, match="2 values against 1"):
        statistics.paired_difference([1.0, 2.0], [1.0], [0, 1])


def test_wrong_values_say_so():
    with pytest.raises(ValueError, match="1 values are not finite"):
        statistics.mean_ci([1.0, np.nan], [0, 1])
    with pytest.raises(ValueError, match="at least one"):
        statistics.mean_ci([], [])
    with pytest.raises(ValueError, match="for 2 values"):
        statistics.mean_ci([1.0, 2.0], [0])
    with pytest.raises(ValueError, match="level 95"):
        statistics.mean_ci([1.0], [0], level=95)


def test_goals_needed_by_hand():
    # goal means 0 and 1: s = sqrt(1/2); (1.95996 * 0.70711 / 0.1)^2 = 192.07
    assert statistics.goals_needed([0, 0, 1, 1], [0, 0, 1, 1], 0.1) == 193
    assert statistics.goals_needed([1, 1, 1], [0, 1, 2], 0.1) == 2
    with pytest.raises(ValueError, match="at least 2"):
        statistics.goals_needed([1.0], [0], 0.1)
    with pytest.raises(ValueError, match="half_width 0"):
        statistics.goals_needed([1.0, 2.0], [0, 1], 0)


def test_the_goals_asked_for_give_the_width_asked_for():
    rng = np.random.default_rng(5)
    pilot = rng.normal(size=200)
    n = statistics.goals_needed(pilot, np.arange(200), 0.15)
    ci = statistics.mean_ci(rng.normal(size=n), np.arange(n))
    assert ci.half_width == pytest.approx(0.15, rel=0.2)


def test_auc_by_hand():
    assert statistics.auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == 0.75
    assert statistics.auc([1, 1, 1], [0, 1, 1]) == 0.5
    # pairs (2>1), (2=2): 1.5 of 2
    assert statistics.auc([1, 2, 2], [0, 0, 1]) == 0.75
    with pytest.raises(ValueError, match="both kinds"):
        statistics.auc([1, 2], [1, 1])
    with pytest.raises(ValueError, match="NaN"):
        statistics.auc([1, np.nan], [1, 0])
    with pytest.raises(ValueError, match="one label a score"):
        statistics.auc([1, 2], [1])


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=15))
def test_auc_counts_pairs(rows):
    scores, labels = np.array([s for s, _ in rows]), np.array([b for _, b in rows])
    if labels.all() or not labels.any():
        return
    pairs = [(p > n) + (p == n) / 2 for p in scores[labels] for n in scores[~labels]]
    assert statistics.auc(scores, labels) == pytest.approx(np.mean(pairs))
    assert statistics.auc(-scores, labels) == pytest.approx(1 - np.mean(pairs))
