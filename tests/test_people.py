"""Real conversations end to end: reading, splitting, shortening, three stages, errors."""

import functools
import json
from pathlib import Path

import jax
import numpy as np
import people_run
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ml_collections import ConfigDict
from people_run import WORDS

from mimesis_jax import config
from mimesis_jax.build import people, people_data
from mimesis_jax.chat import render, tokenizer
from mimesis_jax.data import abcd, shorten, swap, thoughttrace
from mimesis_jax.forest import pack
from mimesis_jax.runs import folder
from mimesis_jax.types import Turn

SAMPLES = Path(__file__).parents[2] / "shared" / "data"
SAMPLE = SAMPLES / "thoughttrace" / "sample.jsonl"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the real samples are not here")


@functools.cache
def render_of():
    """For properties, which fixtures do not reach."""
    return render.Renderer(tokenizer.train([" ".join(WORDS)] * 4, 400))


@pytest.fixture(scope="module")
def renderer():
    return render_of()


@pytest.fixture
def hasty():
    """Compiled without optimisations: these models run for milliseconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "talk.jsonl"
    people_run.write(path)
    return path


def small(path, **more):
    stage = {"steps": 3, "save_every": 2, "optimizer": {"lr": 1e-2, "warmup": 1}}
    values = {
        "kind": "people",
        "data": {"paths": (str(path),), "held_out": 2, "validation": 1},
        "model": {"vocab": 300, "width": 16, "mlp": 16, "periods": 1, "chunk": 8},
        "rows": {"rows": 2, "length": 256, "context": 64, "turn": 40},
        "base": stage, "user_midtrain": stage, "user_thoughts": stage,
    }  # fmt: skip
    return ConfigDict(values | more)


# --- the whole of it --------------------------------------------------------------------------


class Stopped(BaseException):
    """What a kill is to a test."""


def test_all_three_stages_stopped_and_gone_on_give_the_same_parameters(
    source, tmp_path, monkeypatch, hasty
):
    whole = people.train(small(source), tmp_path / "whole")
    kept = folder.Run.metrics
    for phase, at in (("base", 2), ("user_thoughts", 1)):

        def stop(run, name, step, scalars, phase=phase, at=at):
            if (name, step) == (phase, at):
                raise Stopped
            kept(run, name, step, scalars)

        monkeypatch.setattr(folder.Run, "metrics", stop)
        with pytest.raises(Stopped):
            people.train(small(source), tmp_path / "cut")
        monkeypatch.setattr(folder.Run, "metrics", kept)
    again = people.train(small(source), tmp_path / "cut")
    assert again["hashes"] == whole["hashes"] and len(set(whole["hashes"].values())) == 3
    same = lambda told: {k: v for k, v in told.items() if k not in ("seconds", "phases")}
    assert same(again) == same(whole)
    lines = [json.loads(x) for x in (tmp_path / "cut" / "metrics.jsonl").read_text().splitlines()]
    steps = lambda name: [line["step"] for line in lines if line["phase"] == name]
    for stage in people.STAGES:
        assert steps(stage) == [0, 1, 2] and steps(f"{stage}_validation") == [0, 2, 3]

    assert whole["conversations"] == {"train": 3, "validation": 1, "held_out": 2}
    assert whole["turns"]["human"] == 18 and whole["turns"]["left_out"] == 0
    assert whole["turns"]["user_midtrain"] == whole["turns"]["user_thoughts"] == 9
    assert whole["turns"]["held_out"] == 6
    assert json.loads((tmp_path / "whole" / "summary.json").read_text()) == whole
    for name in ("before", "midtrain", "thoughts", "thoughts_brief", "unigram", "trigram"):
        assert 0 < whole[f"nll_{name}"] < 2 * np.log(300)
    assert whole["nll_midtrain"] < whole["nll_before"]

    # A finished run is read, not trained again; another run goes on from its last stage.
    assert same(people.train(small(source), tmp_path / "whole")) == same(whole)
    more = dict(start=str(tmp_path / "whole"), stages=("user_thoughts",))
    further = people.train(small(source, **more), tmp_path / "further")
    assert further["nll_unigram"] == whole["nll_unigram"]
    assert set(further["hashes"].values()).isdisjoint(whole["hashes"].values())
    with pytest.raises(ValueError, match="held-out conversations were trained on"):
        people.train(small(source, seed=1, **more), tmp_path / "mixed")
    assert not (tmp_path / "mixed").exists()


def test_held_out_people_are_in_nothing_that_is_learned(source):
    settings_ = config.freeze(people.Config, small(source))
    split = people_data.read(settings_.data, 0)
    names = split.names()
    assert sorted(sum(names.values(), [])) == [f"c{n}" for n in range(6)]
    assert names != people_data.read(settings_.data, 1).names()
    assert names == people_data.read(settings_.data, 0).names()
    marks = {part: [f"own{name[1:]}own" for name in found] for part, found in names.items()}
    fitted = " ".join(people_data.texts(split.fitted))
    assert all(mark in fitted for mark in marks["train"] + marks["validation"])
    assert not any(mark in fitted for mark in marks["held_out"])
    renderer = render.Renderer(tokenizer.train(people_data.texts(split.fitted), 300))
    sets = people_data.prepare(split, renderer, settings_.rows, 8)
    for stage in people.STAGES:
        for items, part in ((sets.train, "train"), (sets.validation, "validation")):
            trees = sets.trees(items[stage])
            text = " ".join(renderer.tokenizer.decode(p.ids) for tree in trees for p in tree)
            for other, found in marks.items():
                assert [mark in text for mark in found] == [other == part] * len(found)


def test_all_contexts_measure_the_same_words(source):
    split = people_data.read(people_data.Data(paths=(str(source),), held_out=2, validation=1), 0)
    renderer = render.Renderer(tokenizer.train(people_data.texts(split.fitted), 300))
    sets = people_data.prepare(split, renderer, people_data.Rows(1, 256, 64, 40), 8)
    words = {
        context: [p.ids[p.scored].tolist() for t in sets.trees(found) for p in t if p.scored.any()]
        for context, found in sets.measured["held_out"].items()
    }
    assert words["public"] == words["empty"] == words["brief"] and len(words["brief"]) == 6
    said = {renderer.tokenizer.decode(ids[:-1]) for ids in words["public"]}
    assert said == {t.public for r in split.parts["held_out"] for t in r.dialogue
                    if t.author == "user"}  # fmt: skip
    shown = {c: [renderer.tokenizer.decode(p.ids) for t in sets.trees(found) for p in t]
             for c, found in sets.measured["held_out"].items()}  # fmt: skip
    briefs = [str(r.summary) for r in split.parts["held_out"]]
    assert all(any(brief in text for text in shown["brief"]) for brief in briefs)
    assert not any(
        brief in text for c in ("public", "empty") for text in shown[c] for brief in briefs
    )


# --- wrong input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "error", "said"),
    [
        (None, FileNotFoundError, "is not a file"),
        ("", ValueError, "holds 0 conversations"),
        ('{"id": "a"}\n', ValueError, "messages: is missing"),
    ],
)
def test_wrong_files_are_told_before_anything_is_written(content, error, said, tmp_path):
    path = tmp_path / "talk.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(error, match=said):
        people.train(small(path), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_wrong_settings_are_told_before_anything_is_written(source, tmp_path):
    out = tmp_path / "out"
    for more, said in (
        ({"stages": ("user_thoughts", "base")}, "in that order"),
        ({"stages": ()}, "in that order"),
        ({"data": {"paths": (str(source),), "held_out": 5, "validation": 1}}, "need 7"),
        ({"data": {"paths": (str(source),), "source": "talk"}}, "'talk' is not a source"),
        ({"stepz": 3}, "unknown key config.stepz"),
    ):
        with pytest.raises(ValueError, match=said):
            people.train(small(source, **more), out)
    assert not out.exists()


@pytest.mark.parametrize("name", ["thoughttrace", "user_midtrain", "user_thoughts"])
def test_the_configurations_fit_their_parts(name):
    read = config.freeze(people.Config, config.read(name))
    assert read.kind == "people" and read.data.paths
    assert bool(read.start) == (name == "user_thoughts")


# --- shortening -------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=400), st.integers(shorten.LEAST, 120))
def test_a_cut_text_keeps_its_ends_and_the_limit(text, most):
    tok = render_of().tokenizer
    short = shorten.cut(text, most, tok)
    assert len(tok.encode(short)) <= most
    if len(tok.encode(text)) <= most:
        assert short == text
    else:
        head, tail = short.split(shorten.GAP)[0], short.split(shorten.GAP)[-1]
        assert text.startswith(head) and text.endswith(tail)


def test_a_cut_falls_between_words(renderer):
    text = " ".join(f"word{n}" for n in range(200))
    short = shorten.cut(text, 60, renderer.tokenizer)
    assert short.count(shorten.GAP) == 1
    assert set(short.replace(shorten.GAP, " ").split()) <= set(text.split())
    with pytest.raises(ValueError, match="the least is 24"):
        shorten.cut(text, 8, renderer.tokenizer)


dialogues = st.lists(
    st.tuples(st.sampled_from(["user", "agent"]), st.integers(1, 30), st.integers(0, 12)),
    min_size=1, max_size=14,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(dialogues, st.booleans(), st.sampled_from(["none", "empty", "sample"]))
def test_windows_learn_each_human_turn_once_in_order(drawn, briefed, thinking):
    renderer = render_of()
    brief = (Turn("system", "green tea please", only="user"),) if briefed else ()
    turns = brief + tuple(
        Turn(author, f"{n} " + " ".join(WORDS[i % 16] for i in range(size)),
             "tea " * thought if author == "user" else None)
        for n, (author, size, thought) in enumerate(drawn)
    )  # fmt: skip
    row = swap.Row("r", turns, "user", thinking)
    found = shorten.windows(row, renderer, length=96, chunk=8, context=24)
    shape = pack.Shape(1, 96, 8, 96, 1)
    learned = []
    for window in found.windows:
        tree = shorten.tree(window, renderer)
        assert sum(block.length for block in pack.blocks(tree, shape)) <= 96
        assert window.row.dialogue[: len(brief)] == brief
        shown = window.row.dialogue[len(brief) :]
        at = turns.index(shown[0])
        assert turns[at : at + len(shown)] == shown  # whole turns that follow one another
        learned += [window.row.dialogue[p.turn].public for p in tree if p.scored.any()]
    gone = [turns[int(text.split("turn ")[1].split(":")[0])].public for text in found.left_out]
    human = [turn.public for turn in turns if turn.author == "user"]
    assert sorted(learned + gone) == sorted(human)
    assert learned == [public for public in human if public not in gone]
    assert sum(window.learned for window in found.windows) == len(learned)


def test_a_window_begins_with_the_most_recent_turns_that_fit(renderer):
    """By hand: turns of 1 + n + 1 tokens; 24 a row, at most 10 of history before the first."""
    say = lambda author, n: Turn(author, " ".join(["tea"] * n))
    assert len(renderer.turn(say("user", 4))) == 6
    sizes = [("user", 4), ("agent", 6), ("user", 2), ("agent", 7), ("user", 3), ("user", 18)]
    turns = tuple(say(author, n) for author, n in sizes)
    found = shorten.windows(
        swap.Row("r", turns, "user", "none"), renderer, length=24, chunk=8, context=10
    )
    # 6 + 8 + 4 = 18, the reply of 9 is over. Then 5 after the reply (9, the turn before it would
    # make 13). The last takes 20 of 24, so of 10 tokens of history only 4 have room: none.
    assert [(w.row.dialogue, w.first) for w in found.windows] == [
        (turns[:3], 0), (turns[3:5], 1), (turns[5:], 0),
    ]  # fmt: skip


def test_a_turn_that_no_row_holds_is_left_out_by_name(renderer):
    turns = (Turn("user", "tea " * 40), Turn("agent", "more"), Turn("user", "milk"))
    row = swap.Row("r7", turns, "user", "none")
    found = shorten.windows(row, renderer, length=24, chunk=8, context=16)
    assert [w.row.dialogue for w in found.windows] == [turns[1:]]
    assert len(found.left_out) == 1 and found.left_out[0].startswith("r7, turn 0: ")


@given(st.integers(2, 9), st.integers(1, 40))
def test_stretches_learn_every_token_but_the_first_once(length, words):
    renderer = render_of()
    turns = (Turn("user", "tea " * words, "hidden"), Turn("agent", "milk " * words, "hidden"))
    pieces = shorten.stretches("r", turns, renderer, length)
    trees = [shorten.line(piece) for piece in pieces]
    assert all(len(piece.ids) <= length for piece in pieces)
    learned = np.concatenate([tree[0].ids[tree[0].scored] for tree in trees])
    whole = np.concatenate([renderer.turn(turn) for turn in turns])
    assert learned.tolist() == whole[1:].tolist()


# --- the real samples -------------------------------------------------------------------------


@needs_samples
def test_every_human_turn_of_the_real_sample_is_learned_exactly_once():
    found = list(thoughttrace.read(SAMPLE))
    texts = list(people_data.texts(found[:4]))
    renderer = render.Renderer(tokenizer.train(texts, 1024))
    shape = pack.Shape(1, 1024, 16, 1024, 1)
    count = 0
    for record in found:
        human = [turn for turn in record.dialogue if turn.author == "user"]
        for swapped, thought in ((swap.midtrain, False), (swap.thoughts, True)):
            row, _ = shorten.trim(swapped(record), 160, renderer.tokenizer)
            made = shorten.windows(row, renderer, length=1024, chunk=16, context=384)
            assert made.left_out == ()
            learned = []
            for window in made.windows:
                tree = shorten.tree(window, renderer)
                assert sum(b.length for b in pack.blocks(tree, shape)) <= 1024
                learned += [p.ids[p.scored].tolist() for p in tree if p.scored.any()]
            want = []
            for turn in human:
                ids = renderer.tokenizer.encode(turn.public).tolist() + [tokenizer.END]
                why = renderer.tokenizer.encode(turn.private or "").tolist() + [tokenizer.THINK_END]
                want.append(why + ids if thought else ids)
            assert learned == want
        count += len(human)
    assert count == 164


@needs_samples
def test_a_dataset_folder_and_abcd_are_read_too(tmp_path):
    from mimesis_jax.data import build

    build.build("thoughttrace", SAMPLE, tmp_path / "set", say=lambda text: None)
    stored = people_data.read(people_data.Data(paths=(str(tmp_path / "set"),)), 0)
    assert stored == people_data.read(people_data.Data(paths=(str(SAMPLE),)), 0)
    file = SAMPLES / "abcd" / "abcd_sample.json"
    data = people_data.Data("abcd", (str(file),), held_out=1, validation=1)
    split = people_data.read(data, 0)
    assert [len(part) for part in split.parts.values()] == [1, 1, 1]
    assert sorted(sum(split.names().values(), [])) == sorted(r.id for r in abcd.read(file))
