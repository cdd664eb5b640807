"""The engine's books: plans of prefill by hand, slots against a plain model, metrics by hand."""

import collections

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax.rollouts import measures, prefill, rows, slots


def start(slot, trunk, branch=(7,), private=True, **more):
    given_ = {
        "at": 0, "fresh": True, "back": False, "begun": 0, "shareable": True, "mark": private
    } | more  # fmt: skip
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
    # a round goes on where its slot stands
    onward = start(0, [], fresh=False, mark=False, at=9, shareable=False)
    feed = prefill.plan([onward], share=0).stages[-1].feeds[0]
    assert (feed.back, feed.mark, feed.at, feed.ids) == (False, False, 9, [7])
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
    laid = prefill.arrays(feeds, [0, 2], rows=3, n=2)
    assert laid.tokens.tolist() == [[5, 6], [0, 0], [8, 0]] and laid.count.tolist() == [2, 0, 1]
    assert laid.fresh.tolist() == [True, False, False] and laid.back.tolist() == [
        False,
        False,
        True,
    ]
    assert laid.begun.tolist() == [0, -1, -1]
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


def test_a_watch_counts_what_happened_between_its_making_and_its_reading():
    class Chair:
        def __init__(self, **counts):
            self.engine, self.counts = Chair.Engine(), collections.Counter(counts)

        class Engine:
            counts = collections.Counter(decoded_tokens=5)

    agent, user = Chair(replies=2, refed_tokens=7), object()
    watch = measures.Watch(agent, user)
    agent.engine.counts.update(decoded_tokens=30, decode_microseconds=500_000)
    agent.counts.update(replies=4, refed_tokens=3, retokenised_turns=1)
    watch.meter.update(queries_agent=4, wait_agent_seconds=2, stray_answers=1)
    found = watch.read()
    assert found["agent_tokens"] == 30 and found["agent_tokens_per_s"] == 60
    assert found["agent_refed_tokens"] == 3 and found["agent_retokenised"] == 0.25
    assert found["wait_agent_s"] == 0.5 and found["stray_answers"] == 1
    assert not any(name.startswith("user_") for name in found)


def test_the_first_update_s_drift_is_the_sampler_s_gap():
    assert measures.sampler_gap({"drift": 0.5, "drift_max": 2.0, "loss": 1.0}) == {
        "sampler_gap_mean": 0.5, "sampler_gap_max": 2.0,
    }  # fmt: skip
    assert measures.sampler_gap({"trained_trees": 0}) == {}


# --- rows of slots, on one device and on several --------------------------------------------------


def test_rows_by_hand():
    one = rows.Book(1, 4, (2, 4))
    few = one.of([3, 1])
    assert few.local.tolist() == [3, 1] and few.place == [0, 1] and not few.whole
    all_ = one.of([3, 1, 2])  # more than two: all four, each in its own row
    assert all_.whole and all_.place == [3, 1, 2]
    assert all_.local.tolist() == [4, 1, 2, 3] and all_.real.tolist() == [False, True, True, True]
    two = rows.Book(2, 3, (1, 2, 3))
    both = two.of([4, 0, 5])  # the second device has two, so both compute two
    assert both.local.tolist() == [0, 3, 1, 2] and both.slots.tolist() == [0, 2, 4, 5]
    assert both.place == [2, 0, 3] and both.real.tolist() == [True, False, True, True]


def test_copies_stay_on_their_device_and_wait_where_there_are_more_than_rows():
    book = rows.Book(2, 3, (1, 2))
    source, target, later = book.copies([(0, 1), (3, 4), (0, 2), (3, 5), (0, 1)])
    assert later == [(0, 1)]
    assert source.tolist() == [0, 0, 0, 0] and target.tolist() == [1, 2, 1, 2]
    source, target, later = book.copies([(5, 3)])
    assert source.tolist() == [0, 2] and target.tolist() == [3, 0] and later == []


@given(st.lists(st.integers(0, 11), min_size=1, max_size=12, unique=True), st.sampled_from([1, 3]))
@settings(deadline=None)
def test_each_chosen_slot_has_a_row_of_its_own_device(chosen, groups):
    book = rows.Book(groups, 12 // groups, tuple(sorted({1, 2, 12 // groups})))
    found = book.of(chosen)
    count = len(found.local) // groups
    for slot, row in zip(chosen, found.place, strict=True):
        assert found.slots[row] == slot and found.real[row]
        assert found.local[row] == slot % book.local and row // count == slot // book.local
    assert found.real.sum() == len(chosen) and count in book.sizes


def test_each_device_shares_its_own_prompts():
    trunk = [1, 2, 3]
    plan = prefill.plan([start(slot, trunk) for slot in range(4)], share=0, local=2)
    assert [f.slot for f in plan.stages[0].feeds] == [0, 2]
    assert plan.stages[0].copies == [(0, 1), (2, 3)] and plan.saved == 6
    # stages of devices that have more of them are laid beside the others' last ones
    mixed = [start(0, [1, 2, 3, 4]), start(1, [1, 2, 9, 9]), start(2, [7])]
    plan = prefill.plan(mixed, share=2, local=2)
    assert [[f.slot for f in stage.feeds] for stage in plan.stages] == [[0], [0, 1, 2], [0, 1, 2]]


def test_slots_of_several_devices_are_given_out_in_turn():
    book = slots.Slots(6, groups=3)
    people = [slots.Conversation(n) for n in range(6)]
    assert all(book.place(one) for one in people)
    assert [one.slot for one in people] == [0, 2, 4, 1, 3, 5]
