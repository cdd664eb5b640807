"""Records: through JSON and back, played ones on disk, and the rows a chair learns from them."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax import types
from mimesis_jax.data import played, records, rows, swap
from mimesis_jax.types import Turn

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
turns = st.one_of(
    st.builds(Turn, st.just("user"), words, st.none() | words, st.sampled_from([None, "user"])),
    st.builds(Turn, st.just("agent"), words, st.none() | words, st.sampled_from([None, "agent"])),
    st.builds(Turn, st.just("system"), words, only=st.sampled_from([None, "user", "agent"])),
    st.builds(Turn, st.just("tool"), words, only=st.sampled_from([None, "agent"])),
)
any_record = st.builds(
    records.Record,
    id=words.filter(bool),
    source=words.filter(bool),
    dialogue=st.lists(turns, max_size=5).map(lambda some: (*some, Turn("user", "bye"))),
    persona=st.none() | words,
    summary=st.none() | words,
    expectation=st.none() | words,
    labels=st.dictionaries(words, json_values, max_size=3),
)


@given(any_record)
def test_a_record_survives_its_json(record):
    assert records.from_json(json.loads(records.to_line(record))) == record


def test_played_records_are_written_whole_and_read_back(tmp_path):
    episode = types.Episode(
        types.Key(3, 1, 0), None, (Turn("user", "Hi", "hm"), Turn("agent", "Yo")),
        (math.nan,), types.Stop.DONE, {"success": 0.5},
    )  # fmt: skip
    record = records.of_episode(episode)
    assert record.labels == {"stop": "done", "rewards": [None], "success": 0.5}
    assert played.write(tmp_path / "e.jsonl", [record]) == 1
    assert list(played.read(tmp_path / "e.jsonl")) == [record]
    with pytest.raises(ValueError, match="JSON"):
        bad = records.Record("x", "desk", record.dialogue, labels={"x": math.nan})
        played.write(tmp_path / "f.jsonl", [bad])
    assert not (tmp_path / "f.jsonl").exists()


@pytest.mark.parametrize(
    ("turn", "field"),
    [
        ({"author": "ghost", "public": "a"}, "turns[0]"),
        ({"author": "system", "public": "a", "private": "b"}, "turns[0]"),
        ({"author": "user", "public": "a", "private": 3}, "turns[0].private"),
        ({"author": "user"}, "turns[0].public"),
    ],
)
def test_a_broken_played_turn_is_named(tmp_path, turn, field):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"turns": [turn]}) + "\n")
    ledger = rows.Ledger(1.0)
    assert list(played.read(path, ledger)) == []
    assert ledger.faults[0].field == field


TALK = records.Record(
    "r",
    "x",
    (
        Turn("system", "You want tea.", only="user"),
        Turn("system", "A tea shop."),
        Turn("user", "Tea.", "I want tea"),
        Turn("tool", "stock 3", only="agent"),
        Turn("agent", "Which?", "which one"),
        Turn("user", "Green."),
        Turn("agent", "Here."),
    ),
)


def test_midtrain_learns_public_human_turns():
    row = swap.midtrain(TALK)
    shop, tea, green = Turn("system", "A tea shop."), Turn("user", "Tea."), Turn("user", "Green.")
    assert row.dialogue == (shop, tea, Turn("agent", "Which?"), green)
    assert (row.id, row.chair, row.thinking) == ("r", "user", "none")
    kept = swap.midtrain(TALK, brief=True).dialogue
    assert kept == (Turn("system", "You want tea.", only="user"), *row.dialogue)


def test_thoughts_learn_the_thought_then_the_words():
    row = swap.thoughts(TALK)
    assert (row.chair, row.thinking) == ("user", "sample")
    assert [turn.private for turn in row.dialogue] == [None, None, "I want tea", None, ""]
    assert row.dialogue[0].public == "You want tea."


def test_the_agent_sees_its_own_and_nothing_else():
    row = swap.agent(TALK, thinking="sample")
    assert [turn.private for turn in row.dialogue] == [None, None, None, "which one", None, None]
    assert all("You want" not in turn.public for turn in row.dialogue)
    assert all(turn.private is None for turn in swap.agent(TALK).dialogue)


@settings(max_examples=50)
@given(any_record)
def test_no_row_of_a_chair_holds_what_the_other_thinks(record):
    for row in (swap.midtrain(record, brief=True), swap.thoughts(record)):
        assert all(turn.private is None for turn in row.dialogue if turn.author == "agent")
        assert all(turn.only in (None, "user") for turn in row.dialogue)
        said = [turn.public for turn in record.dialogue if turn.author == "user"]
        assert [turn.public for turn in row.dialogue if turn.author == "user"] == said
