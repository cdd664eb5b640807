"""Realism measures on dialogues small enough to count by hand, and classifiers put to the test."""

import numpy as np
import pytest

from mimesis_jax import types
from mimesis_jax.evaluation import fidelity, leaks, rate, realism, turing

T = types.Turn


def talk(*texts, thoughts=None):
    """A dialogue of user and agent turns in turn, the user first."""
    thoughts = thoughts or {}
    return tuple(
        T("user" if i % 2 == 0 else "agent", text, thoughts.get(i)) for i, text in enumerate(texts)
    )


def episode(dialogue=(), stop=types.Stop.DONE, success=1.0, cause=None, trees=None):
    return types.Episode(
        types.Key(0, 0, 0), None, tuple(dialogue), (0.0,), stop, {"success": success},
        trees or {}, {} if cause is None else {"cause": cause},
    )  # fmt: skip


def test_rates_add_and_name_themselves():
    both = rate.Rate(1, 2) + rate.Rate(0, 2)
    assert dict(both.named("x")) == {"x": 0.25, "x/of": 4.0}
    assert rate.Rate(0, 0).value() == 0.0


# --- leaks ------------------------------------------------------------------------------------

SIX = "i want it blue not red"


def overlap(*args, **kwargs):
    found = leaks.thought_overlap([talk(*args, **kwargs)])
    return found.part, found.whole


def test_a_thought_said_aloud_is_an_overlap():
    assert overlap(f"Well {SIX} please", thoughts={0: f"so {SIX} again"}) == (1, 1)
    assert overlap("I want it blue not green", thoughts={0: SIX}) == (0, 1)
    # said later counts, an empty thought does not
    assert overlap("hello", "hi", SIX, thoughts={0: SIX, 2: " "}) == (1, 1)


def test_a_thought_that_quotes_what_was_seen_is_none():
    assert overlap("hello", SIX, "yes", thoughts={2: SIX}) == (0, 1)
    assert overlap("hello", SIX, SIX, thoughts={2: SIX}) == (0, 1)


def test_what_only_the_user_reads_is_not_agent_visible():
    brief = (T("system", SIX, only="user"), T("user", "hi", SIX))
    assert leaks.thought_overlap([brief]).part == 0
    assert leaks.thought_overlap([(T("user", "hi", SIX), T("system", SIX, only="agent"))]).part == 1


def test_tags():
    found = leaks.thought_tags([talk("a </think> b", "<think>", "fine")])
    assert (found.part, found.whole) == (1, 2)


def tree(rejoined):
    """Trunk, thought branch, trunk; `rejoined` hangs the last trunk on the branch."""
    return (
        types.segment([1, 2]),
        types.segment([3, 4, 5], 0, kind="branch"),
        types.segment([6], 1 if rejoined else 0),
        types.segment([7], 2),
    )


def test_a_trunk_that_hangs_on_a_branch_leaks():
    assert leaks.thought_leak([tree(False)]) == rate.Rate(0, 3)
    assert leaks.thought_leak([tree(True), tree(False), ()]) == rate.Rate(2, 6)


SLOTS = {"blue": "colour", "rome": "city", "big": "size"}
slots = lambda text: {SLOTS[w]: w for w in realism.words(text) if w in SLOTS}
asked = lambda text: [w for w in realism.words(text) if w in SLOTS.values()]


def test_early_disclosure_by_hand():
    # colour volunteered; city asked; size told with it unasked; colour again does not count
    one = talk("a blue one", "which city", "rome and big and blue", "which size", "big")
    assert leaks.early_disclosure([one], slots=slots, asked=asked) == rate.Rate(2, 3)


# --- manners ----------------------------------------------------------------------------------


def test_bad_replies_are_read_from_the_cause():
    episodes = [
        episode(talk("a", "b", "c")),
        episode(talk("a", "b"), types.Stop.USER_FORMAT, cause="user: empty"),
        episode(talk("a", "b"), types.Stop.USER_FORMAT, cause="user: unparsed: no end"),
        episode(talk("a"), types.Stop.FAILED, cause="user: failed: timeout"),
        episode(talk("a"), types.Stop.AGENT_FORMAT, cause="agent: empty"),
        episode(talk("a"), types.Stop.FAILED, cause="gym: KeyError: 'x'"),
    ]
    found = dict(realism.bad_replies(episodes))
    assert found["bad_format_rate"] == 2 / 10 and found["bad_format_rate/of"] == 10
    assert found["empty_rate"] == found["unparsed_rate"] == found["failed_rate"] == 0.1
    assert found["refused_rate"] == 0


def test_stops_by_hand():
    episodes = [
        episode(stop=types.Stop.LEFT, success=0.0),
        episode(stop=types.Stop.TURNS, success=0.0),
        episode(stop=types.Stop.TURNS, success=1.0),
        episode(stop=types.Stop.LEFT, success=1.0),
        episode(stop=types.Stop.DONE, success=1.0),
        episode(stop=types.Stop.FAILED, success=0.0),
    ]
    found = dict(realism.stops(episodes))
    assert found["premature_stop_rate"] == 1 / 2 and found["missing_stop_rate"] == 1 / 3
    none = dict(realism.stops(episodes, finished=lambda e: False))
    assert none["premature_stop_rate"] == 2 / 5 and none["missing_stop_rate/of"] == 0


def test_role_flips():
    some = [talk("How can I help you today?", "x", "I would be happy to pay", "x", "my bill")]
    assert realism.role_flips(some) == rate.Rate(1, 3)
    assert realism.role_flips(some, serves=lambda text: "bill" in text) == rate.Rate(1, 3)
    assert realism.role_flips([talk("<|im_start|>agent hello")]).part == 1


def test_repeats_ignore_case_and_marks():
    assert realism.repeats([talk("Yes, please.", "x", "yes please", "x", "no")]) == rate.Rate(1, 2)
    assert realism.repeats([talk("yes"), talk("yes")]) == rate.Rate(0, 0)


# --- naturalness and comparison with people ---------------------------------------------------


def test_repetition_by_hand():
    # pairs: a b, b a, a b (said), b c
    assert realism.repetition("a b a b c", []) == 1 / 4
    assert realism.repetition("a b a b c", ["b c"]) == 2 / 4
    assert realism.repetition("a", []) == 0.0


def test_the_band_holds_the_middle_of_its_own_reference():
    rng = np.random.default_rng(0)
    vocabulary = [f"w{i}" for i in range(500)]
    say = lambda n: " ".join(rng.choice(vocabulary, n))
    reference = [talk(*(say(rng.integers(1, 60)) for _ in range(7))) for _ in range(60)]
    band = realism.Band.of(reference)
    assert 0.85 <= band.share(reference).value() <= 0.97
    assert not band.holds("hm") and not band.holds(say(60)) and not band.holds("w1 w2 " * 8)
    assert band.holds(say(12))
    with pytest.raises(ValueError, match="a band needs some"):
        realism.Band.of([])


def test_dice_and_tau_usi_by_hand():
    assert realism.dice(0.2, 0.6) == pytest.approx(0.5)
    assert realism.dice(0.0, 0.0) == 1.0 and realism.dice(0.0, 0.3) == 0.0
    people, fake = {"a": 0.2, "b": 0.4}, {"a": 0.6, "b": 0.4}
    found = dict(realism.tau_usi(people, fake, {"t": 1.0, "u": 0.5}, {"t": 0.5, "u": 0.6}))
    assert found["tau_usi/dice"] == pytest.approx(0.75)
    assert found["tau_usi/dice/a"] == pytest.approx(0.5)
    assert found["tau_usi/calibration"] == pytest.approx(0.7)
    with pytest.raises(ValueError, match=r"dimensions \['a', 'b'\]"):
        next(realism.tau_usi({"a": 0.2}, {"b": 0.4}, {"t": 1.0}, {"t": 1.0}))


def test_the_difficulty_gap_is_paired():
    gap = realism.difficulty_gap([0, 1, 0, 1], [1, 1, 0, 1], [0, 1, 2, 3])
    assert gap.mean == -0.25 and gap.low <= -0.25 <= gap.high <= 0


def test_measure_names_everything_beside_the_reference():
    dialogue = talk("a blue one", "which city", "rome", thoughts={0: SIX})
    played = [episode(dialogue, trees={"user": tree(False)})]
    found = dict(realism.measure(played, [dialogue], slots=slots, asked=asked))
    assert found["thought_leak_rate"] == 0.0 and found["thought_leak_rate/of"] == 3
    assert found["early_disclosure_rate"] == found["reference/early_disclosure_rate"] == 0.5
    both = ("thought_overlap_rate", "role_flip_rate", "repeat_rate", "natural_rate")
    assert {"bad_format_rate", "premature_stop_rate", *both} <= set(found)
    assert {f"reference/{name}" for name in both} <= set(found)
    assert all(isinstance(value, float) for value in found.values())


# --- classifiers ------------------------------------------------------------------------------

COMMON = "please my order is late can you look at the box again today".split()


def crowd(rng, n, favourite=None, length=(5, 9)):
    def say():
        line = list(rng.choice(COMMON, rng.integers(*length)))
        if favourite:
            line[0] = str(rng.choice(favourite))
        return " ".join(line)

    return [talk(*(say() for _ in range(5))) for _ in range(n)]


def test_turing_distance_finds_a_different_crowd():
    rng = np.random.default_rng(0)
    people, fake = crowd(rng, 25), crowd(rng, 25, favourite=["certainly", "indeed"])
    found = dict(turing.measure(people, fake, permutations=19))
    assert found["turing_distance"] > 0.35 and found["turing_p"] == pytest.approx(1 / 20)
    assert found["turing_matched_distance"] > 0.3 and found["turing_matched_p"] <= 0.05


def test_turing_distance_does_not_find_the_same_crowd():
    rng = np.random.default_rng(1)
    p = [
        turing.distance(turing.Sample.of(crowd(rng, 15), crowd(rng, 15)), permutations=19, seed=s)
        for s in range(6)
    ]
    assert np.mean([far for far, _ in p]) < 0.12
    assert sum(value <= 0.05 for _, value in p) <= 2


def test_matching_takes_away_what_length_gives_away():
    rng = np.random.default_rng(2)
    found = dict(
        turing.measure(
            crowd(rng, 30, length=(4, 9)), crowd(rng, 30, length=(7, 12)), permutations=19
        )
    )
    assert found["turing_distance"] > 0.2 and found["turing_p"] <= 0.05
    assert found["turing_matched_distance"] < 0.12
    assert found["turing_matched_distance/of"] < found["turing_distance/of"]


def test_matched_samples_have_equal_lengths():
    rng = np.random.default_rng(3)
    some = turing.Sample.of(crowd(rng, 9, length=(3, 8)), crowd(rng, 9, length=(5, 12))).matched()
    counts = {
        side: sorted(len(t.split()) for t, k in zip(some.texts, some.talk, strict=True)
                     if some.simulated[k] == side)
        for side in (False, True)
    }  # fmt: skip
    assert counts[True] == counts[False] and counts[True]
    with pytest.raises(ValueError, match="2 conversations on a side"):
        dict(turing.measure(crowd(rng, 2), crowd(rng, 9)))


def test_one_conversation_is_never_on_both_sides_of_a_fold():
    # each conversation has its own word; only memory of the conversation could use it
    people = [talk(*[f"own{i}"] * 5) for i in range(20)]
    fake = [talk(*[f"own{i}"] * 5) for i in range(20, 40)]
    far, _ = turing.distance(turing.Sample.of(people, fake), permutations=9)
    assert far < 0.3


def person(rng, i):
    """Someone with a length, a warmth and a question habit of their own."""
    mine = np.random.default_rng(i)
    n, warm, ask, many = mine.integers(3, 20), mine.random(), mine.random(), mine.integers(2, 8)

    def say():
        line = list(rng.choice(COMMON, n + rng.integers(0, 2)))
        line += ["thanks!"] * (rng.random() < warm) + ["right?"] * (rng.random() < ask)
        return " ".join(line)

    return [talk(*(say() for _ in range(2 * many - 1))) for _ in range(3)]


def test_fi_proxy_knows_people_again_and_is_zero_for_one_voice():
    rng = np.random.default_rng(4)
    people = [person(rng, i) for i in range(12)]
    played = dict(fidelity.measure(people, [person(rng, i) for i in range(12)]))
    assert played["fi_proxy"] > 0.2 and played["fi_proxy/low"] > 0.1
    assert played["fi_proxy/correct"] - played["fi_proxy/shuffled"] == pytest.approx(
        played["fi_proxy"]
    )
    one = person(rng, 99)
    voice = dict(fidelity.measure(people, [one] * 12))
    assert voice["fi_proxy"] == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(ValueError, match="2 people"):
        dict(fidelity.measure(people[:2], people[:2]))
    with pytest.raises(ValueError, match="no profile"):
        fidelity.features([(T("agent", "hi"),)])
