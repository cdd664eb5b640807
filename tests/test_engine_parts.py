"""The engine's books: plans of prefill by hand, slots against a plain model, metrics by hand."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax.rollouts import measures, prefill, slots


def start(slot, trunk, branch=(7,), private=True, **more):
    given_ = {"at": 0, "fresh": True, "back": False, "begun": 0, "shareable": True} | more
    return prefill.Start(
        slot=slot, private=private, trunk=list(trunk), branch=list(branch), **given_
    )


def test_equal_prompts_are_fed_once_and_copied_before_the_branches():
    plan = prefill.plan([start(0, [1, 2, 3]), start(1, [1, 2, 3]), start(2, [1, 2, 9])], share=0)
    trunks, branches = plan.stages
    assert [(f.slot, f.at, f.ids, f.fresh) for f in trunks.feeds] == [
        (0, 0, [1, 2, 3], True), (2, 0, [1, 2, 9], True),
    ]  # fmt: skip
    assert trunks.copies == [(0, 1)] and plan.saved == 3
    assert [(f.slot, f.at, f.ids, f.mark, f.fresh) for f in branches.feeds] == [
        (slot, 3, [7], True, False) for slot in range(3)
    ]


def test_a_common_beginning_is_a_stage_of_its_own():
    plan = prefill.plan([start(0, [1, 2, 3, 4]), start(1, [1, 2, 3]), start(2, [1, 2, 3])], share=2)
    opening, trunks, _ = plan.stages
    assert [(f.slot, f.ids, f.begun) for f in opening.feeds] == [(0, [1, 2], 0)]
    assert opening.copies == [(0, 1)]  # slot 2 gets it with its whole prompt
    assert [(f.slot, f.at, f.ids, f.fresh) for f in trunks.feeds] == [
        (0, 2, [3, 4], False), (1, 2, [3], False),
    ]  # fmt: skip
    assert trunks.copies == [(1, 2)] and plan.saved == 2 + 3
    short = prefill.plan([start(0, [1, 2, 3, 4]), start(1, [1, 2, 3])], share=3)
    assert len(short.stages) == 2 and short.saved == 0


def test_what_may_not_be_shared_is_fed_itself():
    resident = start(1, [1, 2], fresh=False, back=True, at=5, shareable=False)
    plan = prefill.plan([start(0, [1, 2]), resident], share=1)
    trunks, branches = plan.stages
    assert [(f.slot, f.at, f.back) for f in trunks.feeds] == [(0, 0, False), (1, 5, True)]
    assert trunks.copies == [] and branches.feeds[1].at == 7
    # nothing to feed on the trunk: emptying and rolling back ride on the branch
    bare = prefill.plan([start(0, [], back=True, fresh=False, at=4, shareable=False)], share=0)
    feed = bare.stages[-1].feeds[0]
    assert (feed.back, feed.mark, feed.at, feed.begun) == (True, True, 4, 0)
    assert bare.stages[0].feeds == []


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=6), st.integers(0, 4))
@settings(deadline=None)
def test_whatever_is_shared_every_slot_ends_with_its_own_ids(trunks, share):
    starts = [start(slot, trunk) for slot, trunk in enumerate(trunks)]
    plan = prefill.plan(starts, share)
    held = {slot: ["stale"] for slot in range(len(trunks))}
    computed = 0
    for stage in plan.stages:
        for feed in stage.feeds:
            before = [] if feed.fresh else held[feed.slot]
            assert len(before) == feed.at
            held[feed.slot] = before + feed.ids
            computed += len(feed.ids)
        for source, target in stage.copies:
            held[target] = list(held[source])
    assert held == {slot: [*trunk, 7] for slot, trunk in enumerate(trunks)}
    assert computed + plan.saved == sum(len(trunk) + 1 for trunk in trunks)


def test_feeds_are_laid_out_in_pieces():
    feeds = [prefill.Feed(3, 0, [5, 6, 7], fresh=True, begun=0), prefill.Feed(1, 9, [8], back=True)]
    rows = prefill.arrays(feeds, [0, 2], rows=3, n=2)
    assert rows.tokens.tolist() == [[5, 6], [0, 0], [8, 0]] and rows.count.tolist() == [2, 0, 1]
    assert rows.fresh.tolist() == [True, False, False] and rows.back.tolist() == [
        False,
        False,
        True,
    ]
    assert rows.begun.tolist() == [0, -1, -1]
    rest = feeds[0].after(2)
    assert (rest.at, rest.ids, rest.fresh, rest.begun) == (2, [7], False, -1)


@given(st.lists(st.tuples(st.sampled_from("srfx"), st.integers(0, 5)), max_size=60))
def test_slots_evict_whoever_was_idle_longest(events):
    """s: a request starts; r: it ends; f: slot freed; x: closed. Against lists."""
    book = slots.Slots(3)
    people = [slots.Conversation(n) for n in range(6)]
    resident, idle = {}, []
    for what, n in events:
        who = people[n]
        if what == "s" and not who.busy:
            book.hold(who)
            idle = [m for m in idle if m != n]
            if n not in resident:
                room = len(resident) < 3
                if not room and idle:
                    del resident[idle.pop(0)]
                    room = True
                assert book.place(who) == room
                if room:
                    resident[n] = who.slot
                else:
                    book.rest(who)  # gives up waiting
        elif what == "r" and who.busy:
            book.rest(who)
            idle.append(n)
        elif what in "fx" and not who.busy:
            book.release(who)
            resident.pop(n, None)
            idle = [m for m in idle if m != n]
        assert {m: p.slot for m, p in enumerate(people) if p.slot >= 0} == resident
        assert len(set(resident.values())) == len(resident)


def test_metrics_by_hand():
    before = {"decoded_tokens": 100, "slot_steps": 200, "requests": 1}
    now = collections.Counter(
        decoded_tokens=190, slot_steps=300, decode_rows=200, requests=3,
        decode_microseconds=800_000,
        admit_microseconds=100_000, settle_microseconds=100_000, prefill_tokens=60,
        resident_tokens=40, shared_tokens=20, prefill_cells=80, wait_slot_microseconds=500_000,
    )  # fmt: skip
    found = measures.engine(now, before)
    assert found["tokens"] == 90 and found["tokens_per_s"] == pytest.approx(90)
    assert found["slots_busy"] == 0.9 and found["rows_busy"] == 0.45
    assert found["prefill_tokens"] == 40 and found["prefill_filled"] == 0.5
    assert found["saved_by_residency"] == 0.4 and found["saved_by_sharing"] == 0.2
    assert found["wait_slot_s"] == 0.25 and found["host_share"] == pytest.approx(0.2)
    assert set(measures.engine({}).values()) == {0.0}
    seat = measures.seat({"replies": 4, "kind_text": 3, "kind_empty": 1, "retokenised_turns": 1})
    assert seat == {"refed_tokens": 0, "retokenised": 0.25, "kind_text": 0.75, "kind_empty": 0.25}
    loop = measures.waiting({"queries_user": 2, "wait_user_seconds": 3.0, "wait_gym_seconds": 1.0})
    assert (loop["wait_user_s"], loop["wait_gym_s"], loop["wait_agent_s"]) == (1.5, 0.5, 0.0)
    assert np.isfinite(list(loop.values())).all()
