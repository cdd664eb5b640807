"""From files to learned tokens: every human turn is one learned turn, with its exact words."""

import json
from pathlib import Path

import numpy as np
import pytest

from mimesis_jax.chat import render, tokenizer
from mimesis_jax.data import abcd, pipeline, records, swap, thoughttrace
from mimesis_jax.forest import pack
from mimesis_jax.types import Turn

SAMPLES = Path(__file__).parents[2] / "shared" / "data"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the real samples are not here")


@pytest.fixture(scope="module")
def renderer():
    texts = ["the order number is 9. thank you so much, I want to know more"] * 3
    if SAMPLES.is_dir():
        texts = (SAMPLES / "thoughttrace" / "sample.jsonl").read_text().splitlines()[:5]
    return render.Renderer(tokenizer.train(texts, 600))


def learned(tree):
    """(turn, learned ids) of every segment in which something is learned, in order."""
    return [(part.turn, part.ids[part.scored].tolist()) for part in tree if part.scored.any()]


def said(renderer, ids):
    """(thought, words) that learned ids say: ... </think> ... <|end|>, or no thought at all."""
    assert ids[-1] == tokenizer.END and tokenizer.END not in ids[:-1]
    at = ids.index(tokenizer.THINK_END) if tokenizer.THINK_END in ids else None
    words = ids[:-1] if at is None else ids[at + 1 : -1]
    assert min(words) >= len(tokenizer.SPECIALS)  # nothing but text
    thought = None if at is None else renderer.tokenizer.decode(ids[:at])
    return thought, renderer.tokenizer.decode(words)


def test_what_is_learned_of_a_small_dialogue(renderer):
    record = records.Record(
        "r", "x",
        (Turn("system", "You want tea.", only="user"), Turn("agent", "Hi?"),
         Turn("user", "Tea.", "I want tea"), Turn("user", "Please."), Turn("agent", "Here.", "ok"),
         Turn("user", "Thanks."), Turn("agent", "Bye.")),
    )  # fmt: skip
    tree = swap.tree(swap.midtrain(record), renderer)
    words = [said(renderer, ids) for _, ids in learned(tree)]
    assert words == [(None, "Tea."), (None, "Please."), (None, "Thanks.")]
    tree = swap.tree(swap.thoughts(record), renderer)
    words = [said(renderer, ids) for _, ids in learned(tree)]
    assert words == [("I want tea", "Tea."), ("", "Please."), ("", "Thanks.")]
    everything = renderer.tokenizer.decode(np.concatenate([part.ids for part in tree]))
    assert "ok" not in everything and "Bye." not in everything
    # Each thought is on a branch of its own: the next turn's path does not hold it.
    second = next(part for part in tree if part.scored.any() and part.turn == 3)
    path = []
    while second.parent >= 0:
        second = tree[second.parent]
        path.append(renderer.tokenizer.decode(second.ids))
    assert "".join(reversed(path)) == "You want tea.Hi?Tea."


def humans(row, text=None):
    """(words, thought) of every human turn, straight from the file's own row."""
    if text is not None:
        return [(words, None) for speaker, words in text(row) if speaker == "customer"]
    return [
        (message["content"], "\n".join(reason["content"] for reason in message["reasons"]))
        for message in row["messages"]
        if message["type"] == "user"
    ]


@needs_samples
def test_thoughttrace_every_human_turn_is_learned_once_and_exactly(renderer):
    path = SAMPLES / "thoughttrace" / "sample.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    count = 0
    for record, row in zip(thoughttrace.read(path), rows, strict=True):
        told = humans(row)
        plain = learned(swap.tree(swap.midtrain(record), renderer))
        assert [said(renderer, ids) for _, ids in plain] == [(None, words) for words, _ in told]
        deep = learned(swap.tree(swap.thoughts(record), renderer))
        assert [said(renderer, ids) for _, ids in deep] == [(why, words) for words, why in told]
        for turns in (plain, deep):
            assert len({turn for turn, _ in turns}) == len(turns) == len(told)
        count += len(deep)
    assert count == 164


@needs_samples
@pytest.mark.parametrize("text", ["original", "delexed"])
def test_abcd_every_customer_turn_is_learned_once_and_exactly(renderer, text):
    path = SAMPLES / "abcd" / "abcd_sample.json"
    pairs = {
        "original": lambda row: row["original"],
        "delexed": lambda row: [(item["speaker"], item["text"]) for item in row["delexed"]],
    }
    count = 0
    for record, row in zip(abcd.read(path, text=text), json.loads(path.read_text()), strict=True):
        told = humans(row, pairs[text])
        for swapped, thought in ((swap.midtrain, None), (swap.thoughts, "")):
            tree = swap.tree(swapped(record), renderer)
            words = [said(renderer, ids) for _, ids in learned(tree)]
            assert words == [(thought, said_) for said_, _ in told]
            shown = renderer.tokenizer.decode(np.concatenate([part.ids for part in tree]))
            actions = [said_ for speaker, said_ in pairs[text](row) if speaker == "action"]
            assert not any(action in shown for action in actions)
        count += len(told)
    assert count == 31


@needs_samples
def test_real_records_reach_packed_batches(renderer):
    """An epoch of batches holds every learned token of the sample once, with weight 1."""
    found = list(thoughttrace.read(SAMPLES / "thoughttrace" / "sample.jsonl"))
    learn = lambda record: swap.tree(swap.thoughts(record), renderer)
    trees = [learn(record) for record in found]
    shape = pack.Shape(rows=2, length=24576, chunk=32, learned=4096, slots=1)
    # As many batches as an epoch of the same trees needs when nothing waits across its end.
    stream = pipeline.Batches([pipeline.Source("t", found, learn)], shape, seed=0, window=1)
    seen, drawn = 0, 0
    while drawn < len(found):
        forest = next(stream)
        drawn = stream.trees
        seen += int((forest.weight > 0).sum())
    order = pipeline.stream([pipeline.Source("t", found, learn)], seed=0)
    names = [record.id for record in found]
    per = [sum(int(part.scored.sum()) for part in tree) for tree in trees]
    state = stream.get_state()
    taken = [n for n in range(state["next"]) if n not in state["waiting"]]
    assert seen == sum(per[names.index(order[n][1].id)] for n in taken)
    assert stream.skipped == 0
