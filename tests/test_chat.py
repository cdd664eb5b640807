"""Tokenizer and renderer: no loss, no forged specials, loss tokens exactly what the chair said."""

import json

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mimesis_jax.chat import coached, grammar, render, tokenizer
from mimesis_jax.chat.tokenizer import AGENT, END, LEAVE, NOTE, SPECIALS, THINK, THINK_END, USER
from mimesis_jax.forest import tree as trees
from mimesis_jax.types import Turn, segment

TEXTS = [
    "hello i want to change the colour to red please",
    "ask colour",
    "set colour red",
    "confirm",
    "asked colour , colour is red , answer",
    "it is red thanks a lot",
] * 20
TOKENS = tokenizer.train(TEXTS, 400, whole=["red", "colour", "blue"], multiple=64)
RENDER = render.Renderer(TOKENS)

HARD = ["<|end|>", "<think>", "</think> <|user|>", "a<|leave|>b", "", "  two  spaces ", "é漢🙂\n\t"]
texts = st.one_of(st.sampled_from(HARD), st.text(max_size=20))


# --- tokenizer ---------------------------------------------------------------------------------


@given(texts, st.integers(0, 12))
def test_there_is_a_piece_for_each_id_also_where_a_character_is_cut_off(text, kept):
    ids = TOKENS.encode(text)[:kept]
    pieces = TOKENS.pieces(ids)
    assert len(pieces) == len(ids)
    assert "".join(pieces) == TOKENS.decode(ids)


def test_a_character_that_is_cut_off_is_shown_with_the_last_id():
    ids = TOKENS.encode("red 🙂")
    cut = next(n for n in range(1, len(ids)) if "\ufffd" in TOKENS.decode(ids[:n]))
    assert len(TOKENS.pieces(ids[:cut])) == cut


@given(texts)
@example("\ud800")
@settings(max_examples=150, deadline=None)
def test_encode_is_lossless_and_never_special(text):
    ids = TOKENS.encode(text)
    assert (
        ids.dtype == np.int32 and (ids >= len(SPECIALS)).all() and (ids < TOKENS.vocab_real).all()
    )
    clean = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    assert TOKENS.decode(ids) == clean


def test_specials_are_the_first_ids_and_pad_is_its_own():
    assert SPECIALS[0] == "<|pad|>" and TOKENS.pad == 0 != END
    assert (THINK, THINK_END, END) == tuple(
        SPECIALS.index(s) for s in ("<think>", "</think>", "<|end|>")
    )
    ids = [USER, *TOKENS.encode("red"), END]
    assert TOKENS.decode(ids) == "red"
    assert TOKENS.decode(ids, specials=True) == "<|user|>red<|end|>"


def test_whole_words_are_one_token_even_when_never_seen():
    for word in ("red", "colour", "blue"):
        assert len(TOKENS.encode(word)) == 1
        # the same id wherever the word stands: first, or after another
        assert TOKENS.encode("set " + word)[-1] == TOKENS.encode(word)[0]
    assert len(TOKENS.encode("set colour blue")) == 3
    with pytest.raises(ValueError, match="'x-ray' cannot be one token: it is split into 3"):
        tokenizer.train(TEXTS, 400, whole=["x-ray"])


def test_merges_shorten_the_training_text():
    assert len(TOKENS.encode("please")) == 1
    bare = tokenizer.train(TEXTS, tokenizer.LEAST)
    assert bare.vocab_real == tokenizer.LEAST and len(bare.encode("please")) == 7
    with pytest.raises(ValueError, match="vocab 265 is too small: .* 0 whole words take 266"):
        tokenizer.train(TEXTS, tokenizer.LEAST - 1)


def test_vocab_is_rounded_up():
    assert TOKENS.vocab_real <= 400 and TOKENS.vocab % 64 == 0
    assert 0 <= TOKENS.vocab - TOKENS.vocab_real < 64
    with pytest.raises(ValueError, match=f"id {TOKENS.vocab_real} does not exist"):
        TOKENS.decode([TOKENS.vocab_real])


def test_training_ignores_order_and_files_keep_everything(tmp_path):
    again = tokenizer.train(TEXTS[::-1], 400, whole=["blue", "colour", "red"], multiple=64)
    assert again.hash == TOKENS.hash
    TOKENS.save(tmp_path / "t.json")
    loaded = tokenizer.load(tmp_path / "t.json")
    assert loaded.hash == TOKENS.hash and (loaded.vocab, loaded.vocab_real) == (
        TOKENS.vocab,
        TOKENS.vocab_real,
    )
    text = "change the colour to purple é"
    assert loaded.encode(text).tolist() == TOKENS.encode(text).tolist()
    assert tokenizer.train(TEXTS[:5], 400).hash != TOKENS.hash
    content = json.loads((tmp_path / "t.json").read_text())
    (tmp_path / "other.json").write_text(json.dumps(content | {"specials": ["<s>"]}))
    with pytest.raises(ValueError, match="train it again"):
        tokenizer.load(tmp_path / "other.json")


def test_bytes_that_are_no_utf8_decode_to_replacement():
    half = TOKENS.encode("é")[:-1]
    assert len(half) == 2 and TOKENS.decode(half) == "\ufffd"


# --- sampling side -----------------------------------------------------------------------------


def say(text):
    return TOKENS.encode(text).tolist()


def test_headers():
    assert RENDER.header("user", "sample").tolist() == [USER, THINK]
    assert RENDER.header("user", True).tolist() == [USER, THINK]
    assert RENDER.header("user", "empty").tolist() == [USER, THINK, THINK_END]
    assert RENDER.header("agent", "none").tolist() == [AGENT]
    assert RENDER.header("agent", False).tolist() == [AGENT]
    with pytest.raises(ValueError, match="thinking='maybe' is no mode"):
        RENDER.header("agent", "maybe")
    assert RENDER.stops("user") == (END, LEAVE) and RENDER.stops("agent") == (END,)


@pytest.mark.parametrize(
    "ids, thinking, expected",
    [
        ([*say("why"), THINK_END, *say("no"), END], "sample", ("no", "why", False, None)),
        ([THINK_END, *say("no"), END], "sample", ("no", "", False, None)),
        ([*say("no"), END], "empty", ("no", None, False, None)),
        ([*say("bye"), LEAVE], "none", ("bye", None, True, None)),
        ([LEAVE], "none", ("", None, True, None)),
        ([*say("why"), END], "sample", ("", None, False, "unclosed_thought")),
        ([], "sample", ("", None, False, "unclosed_thought")),
        ([*say("why"), THINK_END, *say("n")], "sample", ("n", "why", False, "cut")),
        ([*say("why"), THINK_END, END], "sample", ("", "why", False, "empty")),
        ([*say(" "), END], "none", (" ", None, False, "empty")),
        ([*say("no"), THINK_END, *say("x"), END], "none", ("x", None, False, "stray_special")),
        ([*say("no"), AGENT, *say("x"), END], "none", ("no", None, False, "stray_special")),
        ([*say("a"), END, *say("b"), END], "none", ("a", None, False, "stray_special")),
    ],
)
def test_parse(ids, thinking, expected):
    found = RENDER.parse(np.array(ids, np.int32), thinking)
    assert (found.public, found.private, found.left, found.fault) == expected
    assert found.well_formed == (expected[3] is None)


def test_two_closed_thoughts_are_broken_and_leak_nothing():
    ids = [*say("a"), THINK_END, *say("secret"), THINK_END, *say("x"), THINK, *say("more"), END]
    assert RENDER.parse(ids, True).fault == "stray_special"
    assert RENDER.continuation("user", ids, True).tolist() == [USER, *say("x"), END]


@given(texts.filter(bool), texts)
@settings(max_examples=80, deadline=None)
def test_sampled_ids_are_refed_exactly(thought, text):
    """Any split of the bytes into tokens comes back as it was sampled."""
    spelled = [len(SPECIALS) + b for b in range(256)]
    spaced = (" " + text).encode() if text else b""
    by_byte = [next(i for i in spelled if TOKENS._bytes[i] == bytes([b])) for b in spaced]
    sample = np.array([*say(thought), THINK_END, *by_byte, END], np.int32)
    refed = RENDER.continuation("user", sample, "sample")
    assert refed.tolist() == [USER, *by_byte, END]
    assert RENDER.parse(sample, "sample").public == text
    # what a text server would have fed differs exactly where the spelling does
    assert RENDER.retokenised(sample, "sample") == (say(text) != by_byte)


def test_a_missing_end_is_added():
    assert RENDER.continuation("agent", say("ask"), "none").tolist() == [AGENT, *say("ask"), END]
    assert RENDER.missing_end(say("ask")).tolist() == [END]
    assert RENDER.missing_end([*say("ask"), LEAVE]).tolist() == []
    assert RENDER.continuation("agent", [*say("hm"), END], "sample").tolist() == [AGENT, END]


@given(texts, st.none() | texts, st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_rendered_line_parses_back(text, private, left):
    turn = Turn("user", text.replace("\ud800", ""), private)
    ids, head = RENDER.line(turn, "sample", left=left)
    mode = "empty" if private is None else "sample"
    assert ids[:head].tolist() == RENDER.header("user", mode).tolist()
    found = RENDER.parse(ids[head:], mode)
    assert (found.public, found.private, found.left) == (turn.public, private, left)
    public = RENDER.turn(turn, left=left).tolist()
    assert RENDER.continuation("user", ids[head:], mode).tolist() == public


# --- supervised trees --------------------------------------------------------------------------

TALK = (
    Turn("system", "you want red", only="user"),
    Turn("system", "ask first", only="agent"),
    Turn("user", "hello", "be vague"),
    Turn("agent", "ask colour", "need colour"),
    Turn("user", "it is red"),
    Turn("agent", "set colour red", only="agent"),
    Turn("tool", "ok", only="agent"),
    Turn("agent", "confirm", "all set"),
    Turn("user", "thanks", ""),
)


def learned(tree):
    """Per scored segment, (turn, kind, text of the scored tokens with specials)."""
    return [
        (s.turn, s.kind, TOKENS.decode(s.ids[s.scored], specials=True))
        for s in tree
        if s.scored.any()
    ]


def context(tree, turn):
    """The whole path of a turn's scored segment, as text."""
    i = next(i for i, s in enumerate(tree) if s.turn == turn and s.scored.any())
    return TOKENS.decode(trees.path(tree, i).ids, specials=True)


def test_user_tree_by_hand():
    made = RENDER.tree(TALK, "user", thinking="sample", left=True)
    assert learned(made) == [
        (2, "branch", "be vague</think>hello<|end|>"),
        (4, "branch", "it is red<|end|>"),  # an unrecorded thought is an empty header
        (8, "branch", "</think>thanks<|leave|>"),  # an empty thought is closed at once
    ]
    assert context(made, 8) == (
        "<|system|>you want red<|end|><|user|>hello<|end|><|agent|>ask colour<|end|>"
        "<|user|>it is red<|end|><|agent|>confirm<|end|><|user|><think></think>thanks<|leave|>"
    )
    assert made[-1].turn == 8  # nothing is rendered that leads to nothing scored
    assert (trees.column([made], "weight") == 1).all()


def test_without_thinking_everything_is_one_line():
    made = RENDER.tree(TALK, "user", thinking=False, learn=lambda i, t: 0.5 * (i != 4))
    assert learned(made) == [(2, "trunk", "hello<|end|>"), (8, "trunk", "thanks<|end|>")]
    assert [s.parent for s in made] == list(range(-1, len(made) - 1))
    assert set(trees.column([made], "weight").tolist()) == {0.5}


def test_empty_mode_scores_the_same_tokens_as_none():
    plain, empty = (RENDER.tree(TALK, "user", thinking=m) for m in ("none", "empty"))
    assert trees.column([plain], "ids").tolist() == trees.column([empty], "ids").tolist()
    assert "be vague" not in context(empty, 8)


@pytest.mark.parametrize(
    "history, seven, has_first_thought",
    [("drop_at_user", True, False), ("drop", False, False), ("keep", True, True)],
)
def test_history(history, seven, has_first_thought):
    """Turns 5 to 7 are one round of the agent: call, result, reply."""
    talk = (*TALK[:5], Turn("agent", "look", "look now", only="agent"), *TALK[6:])
    made = RENDER.tree(talk, "agent", thinking=True, history=history)
    assert [turn for turn, *_ in learned(made)] == [3, 5, 7]
    assert ("look now" in context(made, 7)) == seven
    assert ("need colour" in context(made, 7)) == has_first_thought
    assert "<|agent|>" in context(made, 7).split("<|tool|>")[0]
    with pytest.raises(ValueError, match="history 'sometimes': use one of drop_at_user"):
        RENDER.tree(talk, "agent", thinking=True, history="sometimes")


def test_notes_as_inline_branches():
    made = RENDER.tree(TALK, "agent", thinking=False, notes={3: "ask it", 5: None})
    assert learned(made) == [
        (3, "branch", "ask colour<|end|>"),
        (5, "trunk", "set colour red<|end|>"),
        (7, "trunk", "confirm<|end|>"),
    ]
    assert context(made, 3).endswith("<|end|><|note|>ask it<|end|><|agent|>ask colour<|end|>")
    assert "ask it" not in context(made, 7) and "ask colour" in context(made, 7)
    with pytest.raises(ValueError, match="note on turn 4, which is not the agent's"):
        RENDER.tree(TALK, "agent", thinking=False, notes={4: "x"})


def test_teacher_kind_equals_teacher_added_later():
    notes = {3: "ask it", 7: "close"}
    for thinking in ("none", "sample"):
        at_once = RENDER.tree(TALK, "agent", thinking=thinking, notes=notes, note_kind="teacher")
        plain = RENDER.tree(TALK, "agent", thinking=thinking)
        later = RENDER.teacher(plain, {i: RENDER.note(text) for i, text in notes.items()}).tree
        for made in (at_once, later):
            teachers = [
                trees.path(made, i).ids.tolist() for i, s in enumerate(made) if s.kind == "teacher"
            ]
            assert len(teachers) == 2 and all(
                not s.weight.any() for s in made if s.kind == "teacher"
            )
            if made is at_once:
                expected = teachers
        assert teachers == expected


def test_nothing_learned_is_an_empty_tree():
    assert RENDER.tree(TALK, "agent", thinking=True, learn=lambda i, t: 0) == ()
    with pytest.raises(ValueError, match="turn 3 has weight -1.0, the least is 0"):
        RENDER.tree(TALK, "agent", thinking=True, learn=lambda i, t: -1)


@st.composite
def dialogues(draw):
    """Dialogues whose public and private texts are marked by author and turn."""
    turns = [Turn("system", "brief-user", only="user"), Turn("system", "brief-agent", only="agent")]
    for i in range(draw(st.integers(1, 7))):
        author = draw(st.sampled_from(["user", "agent", "tool"]))
        private = None
        if author != "tool":
            private = draw(st.sampled_from([None, "", f"hide-{author}-{i}"]))
        only = draw(st.sampled_from([None, "agent"])) if author != "user" else None
        tail = draw(st.sampled_from(["", "<|end|>", " red", "</think>"]))
        turns.append(Turn(author, f"say-{author}-{i}{tail}", private, only))
    return tuple(turns)


@given(
    dialogues(),
    st.sampled_from(["user", "agent"]),
    st.sampled_from(["sample", "empty", "none"]),
    st.sampled_from(["drop_at_user", "drop", "keep"]),
    st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_trees_show_nothing_of_the_other_and_learn_exactly_the_own(
    talk, chair, mode, history, noted
):
    other = "agent" if chair == "user" else "user"
    own = [i for i, t in enumerate(talk) if t.author == chair]
    notes = {i: f"note-{i}" for i in own[::2]} if noted else {}
    made = RENDER.tree(talk, chair, thinking=mode, history=history, notes=notes)
    shown = [TOKENS.decode(s.ids, specials=False) for s in made]
    assert not any(f"hide-{other}" in text or f"brief-{other}" in text for text in shown)
    if chair == "user":
        hidden = [t.public for t in talk if t.only == "agent"]
        assert not any(public in text for public in hidden for text in shown)
    scored = {s.turn: s for s in made if s.scored.any()}
    assert sorted(scored) == own
    for i, part in scored.items():
        thought = talk[i].private if mode == "sample" else None
        ids = part.ids[part.scored].tolist()
        closed = [] if thought is None else [*say(thought), THINK_END]
        assert ids == [*closed, *say(talk[i].public), END]
    # kinds are true: a trunk segment holds no private text, a note is on its own branch only
    for k, part in enumerate(made):
        if part.kind == "trunk":
            assert "hide-" not in shown[k] and "note-" not in shown[k]
        if NOTE in part.ids:
            assert not any(child.parent == k for child in made)


@given(dialogues(), st.sampled_from(["user", "agent"]))
@settings(max_examples=60, deadline=None)
def test_supervised_context_is_what_a_seat_would_feed(talk, chair):
    """With history "drop", the path of each learned turn is the public turns before it, as the
    trunk takes them, then the header: exactly what sampling feeds."""
    made = RENDER.tree(talk, chair, thinking="sample", history="drop")
    for k, part in enumerate(made):
        if part.scored.any():
            seen = [t for t in talk[: part.turn] if t.only in (None, chair)]
            turn = talk[part.turn]
            mode = "empty" if turn.private is None else "sample"
            fed = np.concatenate([*map(RENDER.turn, seen), RENDER.header(chair, mode)])
            path = trees.path(made, k)
            assert path.ids[: path.scored[0]].tolist() == fed.tolist()


# --- the coached teacher -----------------------------------------------------------------------


def reply(text, parent, turn, kind="trunk", forced=()):
    ids = np.array([AGENT, *say(text), END], np.int32)
    scored = np.arange(len(ids)) > 0
    weight = np.where(np.isin(np.arange(len(ids)), forced), 0.0, 1.0)
    return segment(ids, parent, scored=scored, weight=weight, turn=turn, kind=kind)


def test_teacher_pairs_the_same_sampled_tokens():
    root = segment(RENDER.turn(Turn("user", "hello")))
    plain = (
        root,
        reply("ask colour", 0, 1, forced=[1]),
        segment(RENDER.turn(Turn("user", "red")), 1),
        reply("confirm", 2, 3),
    )
    found = coached.teacher(plain, {3: RENDER.note("confirm it"), 1: RENDER.note("")})
    ids = trees.column([found.tree], "ids")
    assert ids[found.student].tolist() == ids[found.teacher].tolist()
    count = trees.scored_count([plain])
    np.testing.assert_array_equal(ids[:count], trees.column([plain], "ids"))
    assert sorted([*found.student, *found.teacher]) == list(range(2 * count))
    assert trees.column([found.tree], "weight")[found.teacher].sum() == 0
    first, second = found.tree[-2:]
    assert first.parent == 2 and second.parent == 0
    assert TOKENS.decode(first.ids, specials=True) == (
        "<|note|>confirm it<|end|><|agent|>confirm<|end|>"
    )
    assert second.ids.tolist() == plain[1].ids.tolist()


def test_teacher_splits_a_segment_that_holds_earlier_turns():
    line = np.concatenate([RENDER.turn(Turn("user", "hello")), [AGENT], say("ask"), [END]])
    scored = np.arange(len(line)) > len(line) - len(say("ask")) - 2
    plain = (
        segment(line, scored=scored, turn=1, old_logp=np.arange(len(line))),
        segment(RENDER.turn(Turn("user", "red")), 0, turn=2),
        reply("confirm", 1, 3),
    )
    found = RENDER.teacher(plain, {1: RENDER.note("x")})
    assert [s.parent for s in found.tree] == [-1, 0, 1, 2, 0]
    assert TOKENS.decode(found.tree[0].ids, specials=True) == "<|user|>hello<|end|>"
    np.testing.assert_array_equal(
        trees.column([found.tree], "old_logp")[found.student],
        trees.column([plain], "old_logp")[found.student],
    )
    assert trees.path(found.tree, 3).ids.tolist() == trees.path(plain, 2).ids.tolist()


def test_teacher_refuses_a_note_without_a_reply():
    plain = (segment(RENDER.turn(Turn("user", "hello"))), reply("ask", 0, 1))
    with pytest.raises(ValueError, match=r"turn 4 has 0 scored segments.*scored turns are \[1\]"):
        coached.teacher(plain, {4: RENDER.note("x")})
    none = coached.teacher(plain, {})
    assert none.tree == plain and len(none.student) == 0


def test_grammar_is_about_ids_alone():
    assert grammar.split([50, THINK_END, 51, END], "sample") == grammar.Parts(
        slice(0, 1), slice(2, 3), END, None
    )
