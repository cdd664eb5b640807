"""The whole loss on thinking dialogues with tool calls: the forest against one sequence a turn.

The sequences are written from the text, turn by turn, without any tree: history without reasoning,
then the round since the user's last turn with it, then the reply. That is what a trainer without a
forest feeds, and what a chat template makes.
"""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import small_desk
from hypothesis import given, settings
from hypothesis import strategies as st
from small_desk import quick_compiles  # noqa: F401 - acts by being here

from mimesis_jax.bench import expansion
from mimesis_jax.forest import pack
from mimesis_jax.forest import tree as trees
from mimesis_jax.losses import csd
from mimesis_jax.rollouts import scoring
from mimesis_jax.trainers import coaching, optimizer, reinforce
from mimesis_jax.types import Turn, segment

WIDE = pack.Shape(rows=4, length=320, chunk=8, learned=160, slots=3)
BETA, TEMPERATURE = 5.0, 0.9
KNOBS = dataclasses.asdict(reinforce.Loss(alpha=0.3, temperature=TEMPERATURE))
WORDS = ("size", "colour", "plan", "change", "address", "large", "blue", "basic")


def dialogue(number, rounds=3):
    """Rounds of: the user; a thought and a call; its result; a second thought and the reply."""
    pick = lambda k: WORDS[(3 * number + k) % len(WORDS)]
    turns = [Turn("system", "guide set size then colour", only="agent")]
    for k in range(rounds):
        turns.append(Turn("user", f"hello i want {pick(k)} {pick(k + number)}"))
        if (number + k) % 3:  # some rounds have no call
            turns.append(Turn("agent", f"look {pick(k)}", f"{pick(k + 1)} first", only="agent"))
            turns.append(Turn("tool", f"{pick(k + 2)} is {pick(k + 4)}", only="agent"))
        turns.append(Turn("agent", f"ask {pick(k + 3)}", f"{pick(k + 5)} is missing , ask"))
    return tuple(turns)


DIALOGUES = [dialogue(n) for n in range(4)]
NOTES = [
    {i: (f"ask for the {WORDS[i % 8]}" if (i + n) % 3 else None)
     for i, turn in enumerate(d) if turn.author == "agent"}
    for n, d in enumerate(DIALOGUES)
]  # fmt: skip


def planted():
    """The dialogues as the agent's trees, with a sampler's log-probs, credit and forced tokens."""
    own = [
        small_desk.renderer().tree(d, "agent", thinking="sample", history="drop_at_user")
        for d in DIALOGUES
    ]
    rng = np.random.default_rng(0)
    n = trees.scored_count(own)
    return trees.carry(
        own, weight=rng.random(n) < 0.9, advantage=rng.normal(size=n), old_logp=-3 * rng.random(n)
    )


def sequence(turns, i, note=""):
    """Turn i of a dialogue as one sequence, from the text alone."""
    render = small_desk.renderer()
    user = max(k for k in range(i) if turns[k].author == "user")
    ids = []
    for k in range(i):
        kept = k > user and turns[k].author == "agent"
        ids += list(render.line(turns[k], "sample")[0] if kept else render.turn(turns[k]))
    reply, head = render.line(turns[i], "sample")
    ids += [*render.note(note), *reply]
    scored = np.zeros(len(ids), bool)
    scored[len(ids) - len(reply) + head :] = True
    return (segment(ids, scored=scored, turn=i),)


def sequences(notes=None):
    """One sequence an agent turn of all dialogues; with notes, only of the noted turns."""
    out = []
    for turns, said in zip(DIALOGUES, NOTES, strict=True):
        for i in said:
            if notes is None or said[i]:
                out.append(sequence(turns, i, notes and said[i]))
    return out


def score(rows):
    return scoring.score(
        small_desk.spec(), small_desk.params(), rows, WIDE, temperature=TEMPERATURE
    )


def learned(rows, shape, shared=True):
    """(gradient, policy loss, CSD loss) of GRPO + CSD over all micro-batches."""
    packed = pack.pack(rows, shape, shared=shared)
    forests = packed.forests
    totals = {
        name: np.float32(max(1e-9, sum(getattr(f, column).sum() for f in forests)))
        for name, column in (("policy", "weight"), ("csd", "coached"))
    }
    grads, losses = optimizer.zeros(small_desk.params()), np.zeros(2)
    for forest in forests:
        grads, sums, _ = reinforce.accumulate(
            small_desk.spec(), small_desk.params(), grads, forest, KNOBS, totals
        )
        losses += [float(sums["policy_loss"]), float(sums["csd_loss"])]
    return jax.device_get(grads), losses / [totals["policy"], totals["csd"]]


def apart(found, wanted):
    """The largest relative distance |a - b| / |b| of any parameter's gradient."""
    norm = lambda x: float(np.linalg.norm(np.asarray(x, np.float64)))
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True)
    return max(norm(a - b) / norm(b) for a, b in pairs if norm(b))


def coached(own):
    return coaching.coached(
        small_desk.spec(), small_desk.params(), own, NOTES, renderer=small_desk.renderer(),
        shape=WIDE, beta=BETA, temperature=TEMPERATURE,
    )[0]  # fmt: skip


@functools.cache
def marked():
    """The trees after the scoring forest, with clipping to do: old log-probs moved a little."""
    own = coached(planted())
    old = trees.column(own, "old_logp")
    return trees.carry(own, old_logp=old + np.random.default_rng(1).normal(0, 0.2, old.shape))


# --- equal to the expansion --------------------------------------------------------------------


def test_the_scoring_forest_is_the_long_way_s():
    """Log-probs, teachers after their notes (after a tool result too) and the gate between."""
    own = planted()
    out = coached(own)
    student = score(sequences())
    np.testing.assert_allclose(trees.column(out, "old_logp"), student, atol=1e-4)
    turn = trees.column(own, "turn")
    episode = np.repeat(np.arange(len(own)), [trees.scored_count([t]) for t in own])
    noted = np.array([bool(NOTES[e][t]) for e, t in zip(episode, turn, strict=True)])
    free = trees.column(own, "weight") > 0
    teacher = np.zeros(len(turn), np.float32)
    teacher[noted] = score(sequences(notes=True))
    wanted = np.where(noted & free, csd.gate(teacher, student, beta=BETA), 0.0)
    np.testing.assert_allclose(trees.column(out, "gate"), wanted, atol=1e-4)
    np.testing.assert_array_equal(trees.column(out, "coached"), noted & free)
    called = [t for d, said in zip(DIALOGUES, NOTES, strict=True) for t in said
              if d[t - 1].author == "tool" and said[t]]  # fmt: skip
    assert called and 0 < noted.sum() < len(noted) and np.abs(wanted[wanted > 0] - 0.5).max() > 0.01


def test_gradients_of_the_whole_loss_are_the_expansion_s():
    own = marked()
    columns = {name: trees.column(own, name) for name in trees.COLUMNS}
    rows = trees.carry(sequences(), **columns)
    tokens = lambda some: sum(len(part) for one in some for part in one)
    assert len(rows) > 3 * len(own) and tokens(rows) > 1.5 * tokens(own)
    found, losses = learned(own, WIDE)
    wanted, long = learned(rows, WIDE, shared=False)
    assert apart(found, wanted) < 1e-4
    np.testing.assert_allclose(losses, long, rtol=1e-4)
    quiet = trees.carry(own, coached=np.zeros(len(columns["gate"])))
    assert apart(learned(quiet, WIDE)[0], wanted) > 1e-3  # CSD is part of what was compared


def test_the_bench_s_expansion_is_the_long_way_with_a_round_on_one_sequence():
    own = marked()
    found = expansion.expand(own)
    assert sorted(found.numbers.tolist()) == list(range(trees.scored_count(own)))
    rounds = sum(turn.author == "user" for d in DIALOGUES for turn in d)
    assert len(found.rows) == rounds < len(sequences())
    np.testing.assert_array_equal(
        trees.column(found.rows, "advantage"), trees.column(own, "advantage")[found.numbers]
    )
    np.testing.assert_allclose(score(found.rows), score(own)[found.numbers], atol=1e-4)
    assert apart(learned(found.rows, WIDE)[0], learned(own, WIDE)[0]) < 1e-4
    line = (segment([1, 2]), segment([3, 4], 0, scored=True), segment([5], 1, scored=True),
            segment([6], 2))  # fmt: skip
    (row,) = expansion.expand([line]).rows
    assert row[0].ids.tolist() == [1, 2, 3, 4, 5] and row[0].scored.tolist() == [0, 0, 1, 1, 1]


def test_padded_rows_hold_one_sequence_each():
    rows = [(segment([1] * n, scored=[False] * (n - 1) + [True]),) for n in (3, 9, 5)]
    shape = pack.Shape(rows=2, length=16, chunk=8, learned=1, slots=1)
    one, two = expansion.padded(rows, shape).forests
    assert one.valid.sum(1).tolist() == [3, 9] and two.valid.sum(1).tolist() == [5, 0]
    with pytest.raises(ValueError, match="sequence 1, turn 0.*20 tokens long.*row has 16"):
        expansion.padded([rows[0], (segment([1] * 20),)], shape)


# --- whatever the packing ----------------------------------------------------------------------

SHAPES = [
    dataclasses.replace(WIDE, rows=1, length=144, learned=60),  # the trees are cut
    dataclasses.replace(WIDE, rows=2, length=208, learned=96),
    dataclasses.replace(WIDE, rows=3),
    dataclasses.replace(WIDE, rows=2, length=208, learned=96, inside=True),
]


def test_some_of_the_shapes_cut_the_trees():
    assert any(len(pack.blocks(one, SHAPES[0])) > 1 for one in planted())


@functools.cache
def apart_and_whole():
    """Nothing shared, no tree cut, in one micro-batch."""
    return learned(marked(), WIDE, shared=False)


@given(st.sampled_from(SHAPES), st.permutations(range(4)), st.booleans())
@settings(max_examples=12, deadline=None)
def test_packing_changes_neither_loss_nor_gradient(shape, places, shared):
    own = marked()
    wanted, losses = apart_and_whole()
    found, moved = learned([own[i] for i in places], shape, shared)
    assert apart(found, wanted) < 2e-5
    np.testing.assert_allclose(moved, losses, rtol=1e-5)
