"""The rollout bench: its lengths, that its own side never recompiles, and the peer where it is."""

import importlib.util

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_desk import quick_compiles  # noqa: F401 - acts by being here

from mimesis_jax.bench import measure, peer, rollout
from mimesis_jax.models import decoder
from mimesis_jax.rollouts import engine

HAVE_PEER = importlib.util.find_spec("tunix") is not None
SIZES = rollout.QUICK


@pytest.fixture(scope="module")
def params():
    return decoder.init(rollout.SPEC, jax.random.key(0))


@given(st.integers(16, 80), st.integers(0, 9))
@settings(deadline=None)
def test_lengths_have_the_mean_and_the_tail_that_were_asked_for(count, seed):
    drawn = rollout.lengths(count, 48.0, 256, seed)
    assert len(drawn) == count and min(drawn) >= 1 and max(drawn) <= 256
    assert abs(np.mean(drawn) - 48) < 1
    assert max(drawn) > np.mean(drawn) > min(drawn)


def test_the_default_workload_is_the_stated_one():
    drawn = rollout.lengths(64, 48.0, 256)
    assert abs(np.mean(drawn) - 48) < 0.5 and max(drawn) > 150
    assert rollout._spans(32, 288) == (96, 160, 224)


def test_ours_answers_every_workload_and_never_recompiles(params):
    config = engine.Config(
        slots=SIZES.slots, length=SIZES.opening + SIZES.longest, block=4, buckets=(SIZES.opening,),
        rows=(1,), spans=(12,), enough=1,
    )  # fmt: skip
    ours = rollout.Ours(params, config)
    assert rollout.compiles(params, ours, SIZES) == 0
    wanted = [3, 9, 1, 16, 2]
    for number, limit in enumerate(wanted):
        ours.submit(number, rollout.prompts(1, SIZES.opening, number)[0], limit)
    assert ours.drain() == sum(wanted)
    assert 0 < ours.steady["decoded_tokens"] <= ours.steady["slot_steps"]


def test_private_turns_feed_the_public_half_again_and_nothing_else(params):
    found = rollout.private_turns(params, SIZES)
    half = SIZES.said - SIZES.said // 2
    assert found["refed_tokens"] == SIZES.talks * (SIZES.turns - 1) * half
    assert found["reprefilled_tokens"] == 0
    turns = SIZES.talks * SIZES.turns
    assert found["prefill_tokens"] == turns * (SIZES.told + 1) + found["refed_tokens"]


@pytest.mark.skipif(HAVE_PEER, reason="the peer is installed: nothing to refuse")
def test_without_the_peer_the_mend_is_named(params):
    with pytest.raises(measure.BenchError, match="environment of its own"):
        peer.sampler(rollout.SPEC, params, 32)


@pytest.mark.skipif(not HAVE_PEER, reason="google-tunix is not installed (extra `peers`)")
def test_both_sides_say_the_same_greedily_and_the_bench_has_its_keys(params):
    asked = rollout.prompts(2, 8, 3)
    theirs = peer.sample(
        peer.sampler(rollout.SPEC, params, 24), asked, 12, temperature=0.0, width=8
    )
    ours = engine.Engine(rollout.SPEC, params, engine.Config(slots=2, length=24, buckets=(8,)))
    for number, ids in enumerate(asked):
        ours.submit(engine.Request(number, ids, (), False, (0, number, 0, 0), (), 12, 0.0))
    done = []
    while ours.open_requests:
        done += ours.advance()
    for reply in done:
        np.testing.assert_array_equal(reply.ids, theirs[reply.request.conversation])
    result = rollout.run(["--quick", "--repeats", "1"])
    assert result["compiles_after_warmup"] == result["reprefilled_tokens"] == 0
    assert {"fixed_ratio", "ragged_ratio", "multiturn_ratio", "slots_busy", "refed_tokens"} <= set(
        result
    )
    assert len(result["peer_sweep"]) == 6
