"""Loaders: what each format becomes, and what becomes of rows that are not what they should be."""

import gzip
import json
from pathlib import Path

import pytest

from mimesis_jax.data import abcd, lmsys, plain, prism, rows, thoughttrace, wildchat
from mimesis_jax.types import Turn

SAMPLES = Path(__file__).parents[2] / "shared" / "data"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the real samples are not here")


def lines(path, *values):
    """Writes each value as a line: bytes and text as they are, anything else as JSON."""
    with open(path, "wb") as file:
        for value in values:
            raw = value if isinstance(value, (bytes, str)) else json.dumps(value)
            file.write((raw if isinstance(raw, bytes) else raw.encode()) + b"\n")
    return path


def chat(*said):
    return {"messages": [{"role": role, "content": content} for role, content in said]}


GOOD = chat(("user", "Hi."), ("assistant", "Hello."))


def test_plain_chat_becomes_turns(tmp_path):
    row = chat(("system", "Be kind."), ("user", "Hi."), ("assistant", "Hello."), ("tool", "42"))
    (record,) = plain.read(lines(tmp_path / "a.jsonl", row | {"id": 7}))
    assert record.id == "7" and record.source == "plain"
    assert record.dialogue == (
        Turn("system", "Be kind.", only="agent"),
        Turn("user", "Hi."),
        Turn("agent", "Hello."),
        Turn("tool", "42", only="agent"),
    )


def test_a_row_without_id_is_named_by_file_and_line_and_gzip_is_read(tmp_path):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n" + json.dumps(GOOD).encode() + b"\n"))
    assert [record.id for record in plain.read(path)] == ["a.jsonl.gz:2"]


def test_several_files_are_read_in_order(tmp_path):
    paths = [lines(tmp_path / f"{n}.jsonl", GOOD | {"id": n}) for n in "ab"]
    assert [record.id for record in plain.read(paths)] == ["a", "b"]


HOSTILE = {
    "a list": ([GOOD], "-", "not an object"),
    "not json": ('{"messages": [', "-", "not JSON"),
    "not a number of json": ('{"messages": NaN}', "-", "NaN is not JSON"),
    "nested too deep": ("[" * 100_000, "-", "not readable"),
    "endless number": ("1" * 10_000, "-", "not readable"),
    "not utf-8": (b'{"messages": "\xff"}', "-", "not UTF-8"),
    "no messages": ({}, "messages", "missing"),
    "messages of text": ({"messages": "hi"}, "messages", "is text, not a list"),
    "empty conversation": ({"messages": []}, "messages", "empty"),
    "no human": (chat(("assistant", "Hi.")), "messages", "no human turn"),
    "message of a number": ({"messages": [3]}, "messages[0]", "is a number, not an object"),
    "null content": (chat(("user", "a"), ("assistant", None)), "messages[1].content", "is null"),
    "content of a list": (chat(("user", ["a"])), "messages[0].content", "is a list"),
    "no content": ({"messages": [{"role": "user"}]}, "messages[0].content", "missing"),
    "no role": ({"messages": [{"content": "a"}]}, "messages[0].role", "missing"),
    "unknown role": (chat(("robot", "a")), "messages[0].role", "'robot' is not one of user"),
    "role of a number": (chat((1, "a")), "messages[0].role", "is a number"),
    "blank human turn": (chat(("user", " \n")), "messages[0].content", "blank"),
    "half a character": (r'{"messages":[{"role":"user","content":"\ud800"}]}',
                         "messages[0].content", "half a character at 0"),
    "id of a list": (GOOD | {"id": []}, "id", "is a list"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_row_is_named_and_left_out(tmp_path, name):
    row, field, why = HOSTILE[name]
    path = lines(tmp_path / "bad.jsonl", GOOD, row, GOOD)
    ledger = rows.Ledger(max_bad_share=0.5)
    assert len(list(plain.read(path, ledger))) == 2
    (fault,) = ledger.faults
    assert (fault.file, fault.line, fault.field) == (str(path), 2, field)
    assert why in fault.why
    assert (ledger.good, ledger.bad) == (2, 1)


def test_a_huge_line_is_left_out_without_being_held(tmp_path):
    path = lines(tmp_path / "a.jsonl", GOOD, b"x" * 5000, GOOD)
    ledger = rows.Ledger(0.5)
    assert len(list(rows.jsonl(path, plain.parse, ledger, max_row_bytes=1000))) == 2
    assert ledger.faults[0].line == 2 and "longer than 1000 bytes" in ledger.faults[0].why
    # A line of exactly the limit is not huge, with or without its line break.
    raw = json.dumps(GOOD).encode()
    (tmp_path / "b.jsonl").write_bytes(raw + b"\n" + raw)
    assert len(list(rows.jsonl(tmp_path / "b.jsonl", plain.parse, max_row_bytes=len(raw)))) == 2


def test_a_run_stops_only_past_the_set_share(tmp_path):
    path = lines(tmp_path / "a.jsonl", *[GOOD] * 8, {}, {})
    assert len(list(plain.read(path, rows.Ledger(0.2)))) == 8
    with pytest.raises(rows.TooManyMalformed) as error:
        list(plain.read(path, rows.Ledger(0.19, keep=1)))
    message = str(error.value)
    assert "2 of 10 rows are malformed (20.00%, limit 19.00%)" in message
    assert f"{path}:9: messages: is missing" in message and "and 1 more" in message


def test_a_file_of_another_format_is_left_early(tmp_path):
    path = lines(tmp_path / "a.jsonl", *[{}] * 100_000)
    ledger = rows.Ledger()
    with pytest.raises(rows.TooManyMalformed, match="100 of 100 rows"):
        list(plain.read(path, ledger))
    assert ledger.bad == rows.HOPELESS


def test_a_share_that_is_none_a_missing_file_and_a_cut_gzip_are_refused(tmp_path):
    with pytest.raises(ValueError, match="max_bad_share=2"):
        rows.Ledger(2)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        list(plain.read(tmp_path / "nowhere.jsonl"))
    with pytest.raises(ValueError, match="name at least one"):
        list(plain.read([]))
    cut = tmp_path / "cut.jsonl.gz"
    cut.write_bytes(gzip.compress(json.dumps(GOOD).encode() * 50)[:-12])
    with pytest.raises(ValueError, match="cannot be read to its end"):
        list(plain.read(cut))


def trace(**changes):
    return {
        "id": "t1",
        "messages": [
            {"content": "Soy milk?", "type": "user", "id": 1, "reasons": [
                {"content": "It is slow.", "label": "task_motivation"},
                {"content": "And I like it.", "label": "social_and_others"}]},
            {"content": "A press.", "type": "assistant", "id": 2,
             "reactions": [{"content": "Good.", "label": "scope_fit"}]},
            {"content": "Which?", "type": "user", "id": 3, "reasons": []},
            {"content": "That one.", "type": "assistant", "id": 4, "reactions": []},
        ],
        "model_name": "m", "model_provider": "p",
        "task_summary": "Soy milk.", "task_expectation": "A way.",
    } | changes  # fmt: skip


def test_thoughttrace_keeps_reasons_as_thoughts(tmp_path):
    (record,) = thoughttrace.read(lines(tmp_path / "a.jsonl", trace()))
    assert record.dialogue == (
        Turn("system", "Soy milk.\n\nA way.", only="user"),
        Turn("user", "Soy milk?", "It is slow.\nAnd I like it."),
        Turn("agent", "A press."),
        Turn("user", "Which?", ""),
    )
    assert record.labels["reasons"] == [["task_motivation", "social_and_others"], []]
    assert record.labels["reactions"] == [[["Good.", "scope_fit"]], []]
    assert (record.summary, record.expectation) == ("Soy milk.", "A way.")


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({"reasons": "because"}, "messages[0].reasons"),
        ({"reasons": ["because"]}, "messages[0].reasons[0]"),
        ({"reasons": [{"label": "x"}]}, "messages[0].reasons[0].content"),
        ({"reasons": [{"content": None}]}, "messages[0].reasons[0].content"),
        ({"reasons": [{"content": "a", "label": 3}]}, "messages[0].reasons[0].label"),
        ({"type": "robot"}, "messages[0].type"),
    ],
)
def test_thoughttrace_names_the_field(tmp_path, message, field):
    row = trace()
    row["messages"][0] |= message
    ledger = rows.Ledger(1.0)
    assert list(thoughttrace.read(lines(tmp_path / "a.jsonl", row), ledger)) == []
    assert ledger.faults[0].field == field


@needs_samples
def test_the_thoughttrace_sample_is_read_whole():
    path = SAMPLES / "thoughttrace" / "sample.jsonl"
    raw = [json.loads(line) for line in path.read_text().splitlines()]
    read = list(thoughttrace.read(path, rows.Ledger(0.0)))
    assert [record.id for record in read] == [row["id"] for row in raw]
    human = empty = 0
    for record, row in zip(read, raw, strict=True):
        said = [turn for turn in record.dialogue if turn.author == "user"]
        told = [m for m in row["messages"] if m["type"] == "user"]
        assert [turn.public for turn in said] == [m["content"] for m in told]
        for turn, message in zip(said, told, strict=True):
            assert turn.private == "\n".join(r["content"] for r in message["reasons"])
        assert record.dialogue[-1].author == "user"
        human, empty = human + len(said), empty + sum(turn.private == "" for turn in said)
    assert (len(read), human, empty) == (20, 164, 10)


def dialogue(**changes):
    return {
        "convo_id": 5,
        "scenario": {"personal": {"customer_name": "al"}, "order": {"order_id": "9"},
                     "product": {}, "flow": "product_defect", "subflow": "return_size"},
        "original": [["agent", "Hi!"], ["customer", "Order 9."], ["action", "Pulled up."]],
        "delexed": [
            {"speaker": "agent", "text": "hi!", "targets": ["r", "retrieve_utterance", None, []]},
            {"speaker": "customer", "text": "order <id>.", "targets": ["r", None, None, [], -1]},
            {"speaker": "action", "text": "pulled up.",
             "targets": ["r", "take_action", "pull-up-account", ["al"], -1]},
        ],
    } | changes  # fmt: skip


@pytest.mark.parametrize("packed", [False, True])
def test_abcd_reads_splits_and_both_versions(tmp_path, packed):
    whole = json.dumps({"train": [dialogue()], "dev": [], "test": [dialogue(convo_id=6)]}).encode()
    path = tmp_path / "abcd.json"
    path.write_bytes(gzip.compress(whole) if packed else whole)
    assert abcd.splits(path) == ("train", "dev", "test")
    first, second = abcd.read(path)
    assert (first.id, second.id) == ("5", "6") and second.labels["split"] == "test"
    facts = "customer name: al\n\nproduct defect, return size\n\norder id: 9"
    assert first.dialogue == (
        Turn("system", facts, only="user"),
        Turn("agent", "Hi!"),
        Turn("user", "Order 9."),
        Turn("tool", "Pulled up.", only="agent"),
    )
    assert first.labels["actions"] == [["pull-up-account", ["al"]]]
    (delexed,) = abcd.read(path, text="delexed", split="test")
    assert [turn.public for turn in delexed.dialogue[1:]] == ["hi!", "order <id>.", "pulled up."]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"original": [["agent"]]}, "train[1].original[0]"),
        ({"original": [["customer", None]]}, "train[1].original[0].text"),
        ({"original": [["ghost", "boo"]]}, "train[1].original[0].speaker"),
        ({"original": None}, "train[1].original"),
        ({"scenario": []}, "train[1].scenario"),
        ({"delexed": [{"targets": []}]}, "train[1].delexed[0].targets"),
    ],
)
def test_abcd_names_dialogue_and_field(tmp_path, change, field):
    path = lines(tmp_path / "a.json", [dialogue(), dialogue(**change)])
    ledger = rows.Ledger(0.5)
    assert len(list(abcd.read(path, ledger))) == 1
    assert (ledger.faults[0].line, ledger.faults[0].field) == (2, field)


def test_abcd_refuses_what_is_no_document(tmp_path):
    with pytest.raises(ValueError, match="neither a list"):
        list(abcd.read(lines(tmp_path / "a.json", {"train": 3})))
    with pytest.raises(ValueError, match="not JSON"):
        list(abcd.read(lines(tmp_path / "a.json", '{"train": [')))
    with pytest.raises(ValueError, match="text='upper'"):
        list(abcd.read(lines(tmp_path / "a.json", [dialogue()]), text="upper"))


@needs_samples
@pytest.mark.parametrize("text", ["original", "delexed"])
def test_the_abcd_sample_is_read_whole(text):
    path = SAMPLES / "abcd" / "abcd_sample.json"
    read = list(abcd.read(path, rows.Ledger(0.0), text=text))
    humans = []
    for record, row in zip(read, json.loads(path.read_text()), strict=True):
        pairs = row["original"] if text == "original" else [
            (item["speaker"], item["text"]) for item in row["delexed"]]  # fmt: skip
        author = {"customer": "user", "agent": "agent", "action": "tool"}
        assert [(turn.author, turn.public) for turn in record.dialogue[1:]] == [
            (author[speaker], said) for speaker, said in pairs
        ]
        humans.append(sum(turn.author == "user" for turn in record.dialogue))
        assert all(turn.only == "agent" for turn in record.dialogue if turn.author == "tool")
    assert humans == [13, 10, 8]


def test_wildchat_and_lmsys(tmp_path):
    talk = [{"content": "Hi", "role": "user", "toxic": False, "turn_identifier": 1},
            {"content": "", "role": "assistant"}]  # fmt: skip
    row = {"conversation_hash": "h", "model": "m", "conversation": talk, "language": "English"}
    (record,) = wildchat.read(lines(tmp_path / "w.jsonl", row | {"toxic": True, "turn": 1}))
    assert (record.id, record.source) == ("h", "wildchat")
    assert record.labels == {"model": "m", "language": "English", "toxic": True}
    row = {"conversation_id": "c", "conversation": talk, "redacted": False}
    (same,) = lmsys.read(lines(tmp_path / "l.jsonl", row))
    assert (same.id, same.source, same.labels) == ("c", "lmsys", {"redacted": False})
    assert record.dialogue == same.dialogue == (Turn("user", "Hi"), Turn("agent", ""))


HISTORY = [
    {"turn": 0, "role": "user", "content": "Hi"},
    {"turn": 0, "role": "model", "content": "No", "if_chosen": False, "within_turn_id": 0},
    {"turn": 0, "role": "model", "content": "Yes", "if_chosen": True, "within_turn_id": 1},
    {"turn": 1, "role": "user", "content": "Why"},
    {"turn": 1, "role": "model", "content": "So", "if_chosen": True, "within_turn_id": 0},
    {"turn": 1, "role": "model", "content": "So", "if_chosen": True, "within_turn_id": 1},
]
CHOSEN = (Turn("user", "Hi"), Turn("agent", "Yes"), Turn("user", "Why"), Turn("agent", "So"))


def test_prism_follows_the_chosen_replies(tmp_path):
    row = {"conversation_id": "c1", "user_id": "u", "conversation_history": HISTORY}
    path = lines(tmp_path / "conversations.jsonl", row | {"conversation_type": "unguided"})
    (record,) = prism.read(path)
    assert record.dialogue == CHOSEN and record.persona is None
    assert record.labels == {"user_id": "u", "conversation_type": "unguided"}
    survey = lines(tmp_path / "s.jsonl", {"user_id": "u", "self_description": "I knit."})
    (record,) = prism.read(path, survey=survey)
    assert record.persona == "I knit."
    assert record.dialogue == (Turn("system", "I knit.", only="user"), *CHOSEN)


@pytest.mark.parametrize("packed", [False, True])
def test_prism_joins_utterances_where_the_history_is_elsewhere(tmp_path, packed):
    talk = {"c0": ("A", "B"), "c1": ("C", "D")}
    said = [
        {"conversation_id": c, "turn": t, "user_prompt": f"{c}?{t}", "model_response": f"{r}{t}",
         "if_chosen": r == talk[c][1]}
        for t in (0, 1) for c in ("c1", "c0") for r in talk[c]
    ]  # fmt: skip
    utterances = lines(tmp_path / "utterances.jsonl", "broken", *said)
    if packed:
        raw = utterances.read_bytes()
        utterances.write_bytes(gzip.compress(raw))
    rows_ = [{"conversation_id": "c0"}, {"conversation_id": "c1"}, {"conversation_id": "c2"}]
    ledger = rows.Ledger(0.5)
    path = lines(tmp_path / "conversations.jsonl", *rows_)
    first, second = prism.read(path, ledger, utterances=utterances)
    assert [turn.public for turn in first.dialogue] == ["c0?0", "B0", "c0?1", "B1"]
    assert [turn.public for turn in second.dialogue] == ["c1?0", "D0", "c1?1", "D1"]
    assert (ledger.faults[0].line, ledger.faults[0].field) == (3, "utterances")


@pytest.mark.parametrize(
    ("item", "field"),
    [
        ({"turn": 0, "role": "model", "content": "Other", "if_chosen": True}, "[6].content"),
        ({"turn": 2, "role": "user", "content": "And"}, ""),
        ({"turn": "2", "role": "user", "content": "And"}, "[6].turn"),
        ({"turn": 2, "role": "robot", "content": "And"}, "[6].role"),
        ({"turn": 2, "role": "user", "content": None}, "[6].content"),
    ],
)
def test_prism_names_what_is_wrong(tmp_path, item, field):
    path = lines(tmp_path / "c.jsonl", {"conversation_history": [*HISTORY, item]})
    ledger = rows.Ledger(1.0)
    assert list(prism.read(path, ledger)) == []
    assert ledger.faults[0].field == f"conversation_history{field}"


def test_prism_without_history_asks_for_the_utterances(tmp_path):
    with pytest.raises(rows.TooManyMalformed, match="give the utterances file too"):
        list(prism.read(lines(tmp_path / "c.jsonl", {"conversation_id": "c"})))
