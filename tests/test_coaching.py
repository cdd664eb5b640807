"""CSD's scoring: what a note moves, on which tokens, and the controls, by numbers and by hand."""

import numpy as np
import pytest
import small_desk
from small_desk import quick_compiles  # noqa: F401 - acts by being here

from mimesis_jax.chat.tokenizer import END
from mimesis_jax.coach import template
from mimesis_jax.forest import pack
from mimesis_jax.forest import tree as trees
from mimesis_jax.losses import csd
from mimesis_jax.rollouts import corpus, scoring
from mimesis_jax.trainers import coaching
from mimesis_jax.types import Turn, segment

BETA = 5.0
THINKING = (
    Turn("system", "guide", only="agent"),
    Turn("user", "hello i want a change", "hold back"),
    Turn("agent", "ask size", "size is missing"),
    Turn("user", "large", ""),
    Turn("agent", "confirm", "all is there"),
    Turn("user", "yes", ""),
    Turn("agent", "close", "done"),
)


def agents(thinking="none"):
    """Dialogues and the agent's trees: played ones on a line, or one whose turns think."""
    if thinking == "none":
        played = small_desk.episodes()[:3]
        own = [corpus.agent_tree(e, small_desk.renderer()) for e in played]
        return [e.dialogue for e in played], with_samples(own)
    tree = small_desk.renderer().tree(THINKING, "agent", thinking=thinking, history="drop")
    return [THINKING, THINKING], with_samples([tree, tree])


def with_samples(own, seed=0):
    """As if sampled: log-probs of a sampler, and some forced tokens."""
    rng = np.random.default_rng(seed)
    n = trees.scored_count(own)
    weight = (rng.random(n) < 0.85).astype(np.float32)
    return trees.carry(own, old_logp=-3 * rng.random(n), weight=weight)


def coach(own, notes, **more):
    return coaching.coached(
        small_desk.spec(), small_desk.params(), own, notes, renderer=small_desk.renderer(),
        shape=small_desk.SHAPE, beta=BETA, **more,
    )  # fmt: skip


def plain(own, temperature=1.0):
    return scoring.score(
        small_desk.spec(), small_desk.params(), own, small_desk.SHAPE, temperature=temperature
    )


def on(dialogue, text):
    """The same note on every agent turn."""
    return {i: text for i, turn in enumerate(dialogue) if turn.author == "agent"}


@pytest.mark.parametrize("thinking", ["none", "sample"])
def test_a_null_note_moves_nothing(thinking):
    dialogues, own = agents(thinking)
    out, metrics = coach(own, [on(d, "") for d in dialogues])
    free = trees.column(own, "weight") > 0
    assert 0 < free.sum() < len(free)
    # beta times a difference of 1e-5, through a sigmoid of slope 1/4
    np.testing.assert_allclose(trees.column(out, "gate")[free], 0.5, atol=BETA * 1e-5 / 4)
    np.testing.assert_array_equal(trees.column(out, "coached"), free)
    assert not trees.column(out, "gate")[~free].any()
    np.testing.assert_allclose(trees.column(out, "old_logp"), plain(own), atol=1e-5)
    assert metrics["gate_mean"] == pytest.approx(0.5, abs=1e-4)
    assert metrics["coached_tokens"] == free.sum() and metrics["none_share"] == 0.0


def naive_teacher(tree, turn, note, temperature):
    """l_T of one turn by the long way: its path with the note before the reply, as one row."""
    (i,) = [k for k, part in enumerate(tree) if part.turn == turn and part.scored.any()]
    reply = tree[i]
    context = [tree[k].ids for k in trees.ancestry(tree, i)[:-1]]
    ids = np.concatenate([*context, small_desk.renderer().note(note), reply.ids])
    scored = np.zeros(len(ids), bool)
    scored[len(ids) - len(reply) + np.flatnonzero(reply.scored)] = True
    return plain([(segment(ids, scored=scored),)], temperature)


@pytest.mark.parametrize("thinking", ["none", "sample"])
def test_gates_lie_on_the_noted_turns_tokens_and_are_the_long_way_s(thinking):
    """Every other agent turn has a note, each its own; one forest equals row after row."""
    dialogues, own = agents(thinking)
    notes = []
    for number, dialogue in enumerate(dialogues):
        turns = sorted(on(dialogue, ""))
        notes.append({t: f"ask for {t} now" if (k + number) % 2 else None
                      for k, t in enumerate(turns)})  # fmt: skip
    out, metrics = coach(own, notes, temperature=0.7)
    student = plain(own, 0.7)
    np.testing.assert_allclose(trees.column(out, "old_logp"), student, atol=1e-5)
    at = 0
    for tree, marked, said in zip(own, out, notes, strict=True):
        for before, after in zip(tree, marked, strict=True):
            n = int(before.scored.sum())
            note = said.get(before.turn) if n else None
            gate, coached = after.gate[after.scored], after.coached[after.scored]
            if note is None:
                assert not gate.any() and not coached.any()
            else:
                free = before.weight[before.scored] > 0
                teacher = naive_teacher(tree, before.turn, note, 0.7)
                wanted = csd.gate(teacher, student[at : at + n], beta=BETA)
                np.testing.assert_allclose(gate, np.where(free, wanted, 0), atol=1e-4)
                np.testing.assert_array_equal(coached, free)
                # a real note does move something, where not all tokens were forced
                assert not free.any() or np.abs(gate[free] - 0.5).max() > 1e-3
            at += n
            assert not after.gate[~after.scored].any() and not after.coached[~after.scored].any()
            np.testing.assert_array_equal(after.weight, before.weight)
    said = [text for one in notes for text in one.values()]
    assert metrics["none_share"] == pytest.approx(said.count(None) / len(said))


def test_without_any_note_nothing_is_coached():
    dialogues, own = agents()
    for notes in ([on(d, None) for d in dialogues], [{} for _ in dialogues]):
        out, metrics = coach(own, notes)
        assert not trees.column(out, "coached").any() and not trees.column(out, "gate").any()
        # Chunks of half the size: the same sums in another order.
        np.testing.assert_allclose(trees.column(out, "old_logp"), plain(own), atol=1e-5)
        assert metrics["coached_tokens"] == 0 and metrics["gate_mean"] == 0.5
        assert metrics["none_share"] == 1.0
    out, metrics = coach([], [])
    assert out == [] and np.isfinite(list(metrics.values())).all()


def test_the_sampler_gap_is_between_the_sampler_and_the_trainer():
    dialogues, own = agents()
    exact = trees.carry(own, old_logp=plain(own))
    _, metrics = coach(exact, [{} for _ in dialogues])
    assert metrics["sampler_gap_max"] < 1e-5
    moved = trees.carry(own, old_logp=plain(own) - 0.25)
    _, metrics = coach(moved, [{} for _ in dialogues])
    assert metrics["sampler_gap_mean"] == pytest.approx(0.25, abs=1e-4)


def test_the_scoring_rows_hold_two_trees_with_their_teachers():
    wide = coaching.rows(pack.Shape(rows=8, length=256, chunk=8, learned=160, slots=2))
    assert (wide.rows, wide.length, wide.chunk, wide.learned) == (2, 1024, 4, 320)
    assert wide.long and wide.block == 64
    short = coaching.rows(pack.Shape(rows=3, length=36, chunk=4, learned=20, slots=2))
    assert (short.rows, short.length, short.chunk, short.long) == (1, 144, 4, False)
    odd = coaching.rows(pack.Shape(rows=4, length=72, chunk=8, learned=20, slots=2))
    assert odd.length == 288 and not odd.long  # no whole number of blocks
    long = pack.Shape(rows=3, length=1536, chunk=8, learned=160, slots=2)
    assert coaching.rows(long) is long


def test_the_probes_on_played_dialogues():
    dialogues, own = agents()
    notes = [template.TemplateCoach().notes(d) for d in dialogues]
    assert any(text for said in notes for text in said.values())
    probe = lambda said: coaching.probes(
        small_desk.spec(), small_desk.params(), own, said, renderer=small_desk.renderer(),
        shape=small_desk.SHAPE, beta=BETA,
    )  # fmt: skip
    found = probe(notes)
    assert found["null_probe_abs"] < 1e-4 and np.isfinite(found["placebo_gap"])
    # another episode's note is no other note where all say the same
    same = probe([on(d, "ask for more") for d in dialogues])
    assert same["placebo_gap"] == pytest.approx(0.0, abs=1e-6)


def test_placebo_gap_by_hand(monkeypatch):
    """A scorer by rule: a note raises its own episode's reply by 0.2 nats, another's by nothing.

    True gates are sigmoid(5 * 0.2) = 0.7311, placebo gates 1/2.
    """
    render = small_desk.renderer()
    words = ("size", "change")
    dialogues = [(Turn("user", "hello"), Turn("agent", word)) for word in words]
    own = [render.tree(d, "agent", thinking="none") for d in dialogues]
    ids = [set(render.tokenizer.encode(word).tolist()) for word in words]
    assert not ids[0] & ids[1]

    def score(spec, params, grown, shape, *, temperature, names, **_):
        out = []
        for tree in grown:
            for part in tree:
                note = part.ids[: list(part.ids).index(END) + 1] if part.kind == "teacher" else []
                said = set(part.ids[part.scored].tolist())
                agrees = part.kind == "teacher" and bool(
                    said & set(np.asarray(note).tolist()) - {END}
                )
                out += [-1.0 + 0.2 * agrees] * int(part.scored.sum())
        return np.array(out, np.float32)

    monkeypatch.setattr(coaching.scoring, "score", score)
    found = coaching.probes(
        None,
        None,
        own,
        [{1: words[0]}, {1: words[1]}],
        renderer=render,
        shape=small_desk.SHAPE,
        beta=BETA,
    )
    assert found["placebo_gap"] == pytest.approx(0.7311 - 0.5, abs=1e-4)
    _, metrics = coaching.coached(
        None,
        None,
        own,
        [{1: words[0]}, {1: None}],
        renderer=render,
        shape=small_desk.SHAPE,
        beta=BETA,
    )
    assert metrics["gate_mean"] == pytest.approx(0.7311, abs=1e-4)
    assert metrics["gate_share_above_half"] == 1.0 and metrics["none_share"] == 0.5
    # nobody else has a note: there is no placebo, and no gap to report
    alone = coaching.probes(
        None, None, own, [{1: words[0]}, {}], renderer=render, shape=small_desk.SHAPE, beta=BETA
    )
    assert alone["placebo_gap"] == 0.0
