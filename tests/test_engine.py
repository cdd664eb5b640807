"""The engine against the training forward, alone and in company, with forks, eviction and reuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from small_desk import quick_compiles  # noqa: F401 - acts by being here

from mimesis_jax import types
from mimesis_jax.forest import pack, tree
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import engine, scoring
from mimesis_jax.runs import checkpoint
from mimesis_jax.runs import compiles as compiling

SPEC = specs.tiny(64, 60, width=32, mlp=48)
END = 5
SHAPE = pack.Shape(rows=4, length=192, chunk=8, learned=96, slots=2)


@pytest.fixture(scope="module")
def params():
    """Random weights whose linear heads forget slowly, so that a leak of state would show."""
    p = decoder.init(SPEC, jax.random.key(1))
    slow = jnp.log(jnp.array([0.01, 0.05, 0.1, 0.3]))
    decay = p["periods"]["layer0"]["mixer"]["a_log"]
    p["periods"]["layer0"]["mixer"]["a_log"] = jnp.broadcast_to(slow, decay.shape)
    return jax.tree.map(lambda x: x * 3 if x.ndim > 2 else x, p)


def make(params, slots=4, **more):
    config = engine.Config(slots=slots, length=128, block=4, buckets=(8, 24), **more)
    return engine.Engine(SPEC, params, config, seed=11)


def request(name, extend, *, turn=0, private=True, limit=9, header=(2, 3), **more):
    return engine.Request(name, extend, header, private, (0, name, 0, turn), (END,), limit, **more)


def drain(e):
    done = []
    while e.open_requests:
        done += e.advance()
    return {d.request.conversation: d for d in done}


def words(seed, n):
    return np.random.default_rng(seed).integers(8, 60, n).tolist()


def dialogue(e, names, turns=3, private=True, **more):
    """Plays `turns` rounds in each conversation; returns per name its tree and its replies."""
    segments = {n: [] for n in names}
    trunk = {n: -1 for n in names}
    own = {n: [] for n in names}
    replies = {n: [] for n in names}
    for turn in range(turns):
        context = {n: own[n] + words(100 * n + turn, 3 + (n + turn) % 9) for n in names}
        for n in names:
            e.submit(request(n, context[n], turn=turn, private=private, **more))
        for n, done in drain(e).items():
            grown = segments[n]
            grown.append(types.segment(context[n], trunk[n], turn=turn))
            trunk[n] = len(grown) - 1
            ids = np.concatenate([[2, 3], done.ids])
            scored = np.arange(len(ids)) >= 2
            old = np.concatenate([[0, 0], done.logp])
            grown.append(types.segment(ids, trunk[n], scored=scored, old_logp=old, turn=turn))
            if private:
                own[n] = [2, *done.ids[len(done.ids) // 2 :].tolist()]  # the public part, re-fed
            else:
                trunk[n], own[n] = len(grown) - 1, []
            replies[n].append(done)
    return {n: tuple(segments[n]) for n in names}, replies


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_sampled_log_probs_are_the_training_forest_s(params, private, temperature):
    trees, _ = dialogue(make(params), [0, 1, 2, 3], private=private, temperature=temperature)
    found = scoring.score(SPEC, params, list(trees.values()), SHAPE, temperature=temperature)
    np.testing.assert_allclose(tree.column(list(trees.values()), "old_logp"), found, atol=1e-4)


def test_eviction_rebuild_and_reused_slots_change_nothing(params):
    """Nine conversations over three slots: every turn evicts, every slot has had predecessors."""
    roomy, _ = dialogue(make(params, slots=12), range(9))
    tight_engine = make(params, slots=3)
    tight, _ = dialogue(tight_engine, range(9))
    for n in range(9):
        for a, b in zip(roomy[n], tight[n], strict=True):
            np.testing.assert_array_equal(a.ids, b.ids)
    found = scoring.score(SPEC, params, list(tight.values()), SHAPE)
    np.testing.assert_allclose(tree.column(list(tight.values()), "old_logp"), found, atol=1e-4)
    assert tight_engine.counts["evictions"] > 9 and tight_engine.counts["reprefilled_tokens"] > 0
    assert make(params).counts["reprefilled_tokens"] == 0


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_alone_or_in_company_the_same_tokens(params, temperature):
    _, company = dialogue(make(params), [0, 1, 2, 3], temperature=temperature)
    for n in range(4):
        _, alone = dialogue(make(params), [n], temperature=temperature)
        for a, b in zip(company[n], alone[n], strict=True):
            np.testing.assert_array_equal(a.ids, b.ids)


def rounds(e, names, **more):
    """Per name a call, its result read on the same branch, a reply, then the user and a reply.
    Returns the trees as the trainer sees them, and the replies."""
    segments, done = {n: [types.segment(words(n, 6))] for n in names}, {n: [] for n in names}
    extend = {n: words(n, 6) for n in names}
    for turn, onward in enumerate((False, True, True, False)):
        for n in names:
            e.submit(request(n, extend[n], turn=turn, onward=onward, **more))
        for n, reply in drain(e).items():
            grown = segments[n]
            ids = np.concatenate([[2, 3], reply.ids])
            old = np.concatenate([[0, 0], reply.logp])
            scored = np.arange(len(ids)) >= 2
            tip = 0 if not turn else len(grown) - 1
            grown.append(types.segment(ids, tip, scored=scored, old_logp=old, turn=turn))
            done[n].append(reply)
            told = words(50 + 9 * n + turn, 1 + (n + turn) % 5)
            if turn == 2:  # the user speaks: the trunk takes what was public, then the user's words
                told = [2, *done[n][0].ids[-2:].tolist(), 2, *reply.ids[-2:].tolist(), *told]
            extend[n] = told
            grown.append(types.segment(told, 0 if turn == 2 else len(grown) - 1, turn=turn + 1))
    return {n: tuple(segments[n][:-1]) for n in names}, done


@pytest.mark.parametrize("slots, temperature", [(6, 1.0), (6, 0.0), (2, 1.0)])
def test_a_round_of_calls_goes_on_on_its_branch(params, slots, temperature):
    """Also where every request evicts somebody and the branch has to be computed again."""
    e = make(params, slots=slots)
    trees, done = rounds(e, range(5), temperature=temperature)
    assert gap(trees.values(), params) < 1e-4
    assert (e.counts["evictions"] > 0) == (slots == 2) == (e.counts["reprefilled_tokens"] > 0)
    _, alone = rounds(make(params, slots=6), [3], temperature=temperature)
    for a, b in zip(done[3], alone[3], strict=True):
        np.testing.assert_array_equal(a.ids, b.ids)
    # the branch was kept where it lay: only what was new was fed
    if slots == 6:
        fed = e.counts["prefill_tokens"]
        new = sum(len(reply.request.extend) + 2 for n in done for reply in done[n])
        assert fed == new + sum(2 for n in done)  # and the last id of two replies of each


def test_going_on_needs_a_private_reply_to_go_on_from(params):
    e = make(params)
    with pytest.raises(ValueError, match="no private reply to go on from"):
        e.submit(request(0, [9], onward=True))
    with pytest.raises(ValueError, match="private=True"):
        e.submit(request(0, [9], onward=True, private=False))
    e.submit(request(0, words(0, 100)))
    drain(e)
    e.submit(request(0, words(1, 20), turn=1, onward=True))  # the branch counts: no room is left
    refused = drain(e)[0]
    assert refused.full and not len(refused.ids)


def test_a_poisoned_predecessor_is_not_seen(params):
    clean = make(params, slots=1)
    _, expected = dialogue(clean, [1])
    dirty = make(params, slots=1)
    dialogue(dirty, [7], private=False, limit=30)
    dirty.close(7)
    _, found = dialogue(dirty, [1])
    for a, b in zip(expected[1], found[1], strict=True):
        np.testing.assert_array_equal(a.ids, b.ids)
        np.testing.assert_array_equal(a.logp, b.logp)


def test_limits_stops_and_full_slots_are_told_apart(params):
    e = make(params)
    e.submit(request(0, words(0, 5), limit=3, temperature=1.0))
    done = drain(e)[0]
    assert len(done.ids) <= 3 and done.stopped == (int(done.ids[-1]) == END) and not done.full
    e.submit(request(0, words(1, 118), limit=50))
    done = drain(e)[0]  # 5 + 118 + 2 leave room for three
    assert done.stopped or (len(done.ids) == 3 and done.full)
    e.submit(request(0, words(1, 9), limit=5))
    refused = drain(e)[0]
    assert refused.full and len(refused.ids) == 0 and not refused.stopped
    assert e.counts["refused_full"] == 1


def test_minimum_thinking_bans_the_close_and_marks_what_it_moved(params):
    e = make(params)
    for n in range(4):
        e.submit(request(n, words(n, 6), limit=20, ban=END, ban_until=6))
    for done in drain(e).values():
        assert END not in done.ids[:6].tolist()
        assert done.free[6:].all()
        assert not done.free[:6].all()  # at these weights END always has some mass


def test_new_weights_drop_old_state(params):
    other = jax.tree.map(lambda x: -x, params)
    e = make(params)
    dialogue(e, [0, 1])
    e.load(other, version=2)
    e.submit(request(0, words(5, 4), turn=9))
    done = drain(e)[0]
    assert done.version == 2 and e.counts["reprefilled_tokens"] > 0
    fresh = make(other)
    fresh.submit(request(0, e._known[0].trunk, turn=9))
    np.testing.assert_array_equal(drain(fresh)[0].ids, done.ids)
    e.submit(request(1, words(5, 4)))
    with pytest.raises(ValueError, match="1 requests are open"):
        e.load(params, version=3)


def test_misuse_is_refused_with_the_mend(params):
    e = make(params)
    with pytest.raises(ValueError, match="no token to predict from"):
        e.submit(request(0, [], header=()))
    with pytest.raises(ValueError, match="at least one token"):
        e.submit(request(1, [9], limit=0))
    e.submit(request(2, [9]))
    with pytest.raises(ValueError, match="already has an open request"):
        e.submit(request(2, [9]))
    with pytest.raises(ValueError, match="open request"):
        e.close(2)
    many = engine.Request(3, [9], [2], True, (0, 0, 0, 0), (1, 2, 3, 4, 5), 3)
    with pytest.raises(ValueError, match="raise Config.stops"):
        e.submit(many)
    with pytest.raises(ValueError, match="ascending"):
        engine.Config(buckets=(24, 8))


def test_nothing_recompiles_after_warm_up(params):
    e = make(params)
    e.submit(request(0, words(0, 20), top_k=3))  # both buckets, mark and roll back
    drain(e)
    e.close(0)
    e.submit(request(0, words(0, 3)))
    drain(e)
    other = jax.tree.map(lambda x: x * 1.01, params)
    with compiling.Compiles() as compiles:
        dialogue(e, [1, 2, 3], temperature=0.7, top_p=0.9, min_p=0.01, top_k=5, limit=17)
        dialogue(e, [4], private=False, temperature=0.0)
        e.load(other, version=1)
        dialogue(e, [5, 6], limit=2)
    assert compiles.count == 0


# --- sharing, company, spans, weights that change -----------------------------------------------


def gap(trees, params, **more):
    found = scoring.score(SPEC, params, list(trees), SHAPE, **more)
    return scoring.disagreement(list(trees), found)["sampler_gap_max"]


@pytest.mark.parametrize("share, saved", [(0, 3 * 20), (8, 3 * 20 + 12)])
def test_a_prompt_that_copies_share_is_prefilled_once(params, share, saved):
    """Four copies of one goal, and another goal whose prompt begins alike."""
    guide = words(1, 12)
    prompts = {n: guide + words(2, 8) for n in range(4)} | {4: guide + words(3, 5)}
    e = make(params, slots=6, share=share)
    for n, prompt in prompts.items():
        e.submit(request(n, prompt))
    done = drain(e)
    assert e.counts["shared_tokens"] == saved and e.counts["copies"] == (3 if not share else 4)
    trees = []
    for n, reply in done.items():
        ids = np.concatenate([[2, 3], reply.ids])
        own = types.segment(
            ids, 0, scored=np.arange(len(ids)) >= 2, old_logp=np.concatenate([[0, 0], reply.logp])
        )
        trees.append((types.segment(prompts[n]), own))
        alone = make(params, slots=6)
        alone.submit(request(n, prompts[n]))
        np.testing.assert_array_equal(drain(alone)[n].ids, reply.ids)
    assert gap(trees, params) < 1e-4
    assert len({reply.ids.tobytes() for n, reply in done.items() if n < 4}) > 1  # own streams


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_one_among_sixty_three_others_says_what_it_says_alone(params, temperature):
    """Company of all kinds: truncated, banned, hot, private or not, longer and shorter."""
    one = lambda: request(5, words(5, 17), temperature=temperature, limit=24)
    alone = make(params, slots=64, rows=())
    alone.submit(one())
    expected = drain(alone)[5]
    full = make(params, slots=64, rows=())
    for n in range(64):
        other = request(
            n, words(n, 1 + n % 23), limit=1 + n % 30, private=n % 3 > 0,
            temperature=0.1 * (n % 15), top_k=n % 4, top_p=1 - 0.3 * (n % 2),
            min_p=0.1 * (n % 3), ban=END, ban_until=n % 5,
        )  # fmt: skip
        full.submit(one() if n == 5 else other)
    found = drain(full)[5]
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.logp, expected.logp)


def test_narrow_attention_few_rows_and_early_ends_change_no_token(params):
    plain, _ = dialogue(make(params, slots=4), range(6))
    e = make(params, slots=4, rows=(2,), spans=(72,), enough=1)
    e.warm()
    with compiling.Compiles() as compiles:
        quick, _ = dialogue(e, range(6))
    assert compiles.count == 0
    for n in range(6):
        for a, b in zip(plain[n], quick[n], strict=True):
            np.testing.assert_array_equal(a.ids, b.ids)
    assert gap(quick.values(), params) < 1e-4


@pytest.mark.parametrize("private", [True, False])
def test_weights_may_change_midway_and_each_token_says_by_which_it_was_sampled(params, private):
    other = jax.tree.map(lambda x: x * 0.9, params)
    e = make(params)
    for n in range(3):
        e.submit(request(n, words(n, 7), limit=14, private=private, ban=END, ban_until=14))
    e.advance()  # a block of four
    with pytest.raises(ValueError, match="or load midway"):
        e.load(other, version=1)
    e.load(other, version=1, midway=True)
    done = drain(e)
    trees = []
    for n in range(3):
        assert done[n].versions.tolist() == [0] * 4 + [1] * 10 and done[n].version == 1
        ids = np.concatenate([[2, 3], done[n].ids])
        own = types.segment(
            ids, 0, scored=np.arange(len(ids)) >= 2, old_logp=np.concatenate([[0, 0], done[n].logp])
        )
        trees.append((types.segment(words(n, 7)), own))
    old, new = (scoring.score(SPEC, p, trees, SHAPE) for p in (params, other))
    sampled = tree.column(trees, "old_logp").reshape(3, 14)
    np.testing.assert_allclose(sampled[:, :4], old.reshape(3, 14)[:, :4], atol=1e-4)
    np.testing.assert_allclose(sampled[:, 4:], new.reshape(3, 14)[:, 4:], atol=1e-4)
    assert np.abs(old - new).max() > 0.01  # the test could tell
    assert e.counts["requests"] == 3


def test_a_frozen_engine_takes_its_own_weights_only(params):
    frozen = checkpoint.content_hash(params)
    config = engine.Config(slots=2, length=64, buckets=(8,), rows=())
    e = engine.Engine(SPEC, params, config, frozen=frozen)
    e.load(jax.tree.map(jnp.copy, params), version=3)
    other = {**params, "norm": params["norm"].at[0].add(1e-6)}
    with pytest.raises(ValueError, match="frozen to"):
        e.load(other, version=4)
    assert e.version == 3
    with pytest.raises(ValueError, match="frozen to"):
        engine.Engine(SPEC, other, config, frozen=frozen)


def test_who_holds_a_slot_is_admitted_first_and_loses_it_to_nobody_in_line(params):
    e = make(params, slots=2)
    for n in (0, 1):
        e.submit(request(n, words(n, 5)))
    drain(e)
    for n in (2, 3, 0, 1):  # strangers come first, but 0 and 1 need no slot
        e.submit(request(n, words(n, 4), turn=1))
    e.advance()
    assert e.counts["evictions"] == 0 and e.counts["reprefilled_tokens"] == 0
    assert sorted(drain(e)) == [0, 1, 2, 3] or e.open_requests == 0
    assert e.counts["evictions"] == 2 and e.counts["reprefilled_tokens"] == 0


def test_knobs_out_of_range_are_refused(params):
    e = make(params)
    for wrong in ({"temperature": -1.0}, {"top_p": 0.0}, {"min_p": 2.0}, {"top_k": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            e.submit(request(0, [9], **wrong))
    assert e.open_requests == 0 and e._known == {}
    for wrong in ({"spans": (9, 3)}, {"enough": 0}, {"share": -1}, {"rows": (0,)}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            engine.Config(**wrong)
