"""Chat families: each writes a dialogue as its template does, token by token, and reads it back."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax.chat import families, published, render, script, tools
from mimesis_jax.forest import tree as trees
from mimesis_jax.pretrained import gguf
from mimesis_jax.types import Turn


class Made(published.Tokenizer):
    """Byte tokens and the special tokens that were asked for: every family at no cost."""

    def __init__(self, names):
        specials = {name: 256 + i for i, name in enumerate(names)}
        spelled = {b: bytes([b]) for b in range(256)}
        super().__init__(lambda text: text.encode(), spelled, specials, repr(names))


QWEN = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>",
        "</think>", "<tool_response>", "</tool_response>", "<issue_start>",
        "<issue_closed>"]  # fmt: skip
LLAMA = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>",
         "<|eom_id|>", "<|eot_id|>"]  # fmt: skip


def renderer(family):
    return render.Renderer(Made(LLAMA if family is families.LLAMA31 else QWEN), family)


PUBLISHED = [family for name, family in families.ALL.items() if name != "small"]


def written(made, turns, header=None):
    """The whole prompt as text, special tokens by name."""
    ids = np.concatenate(
        [made.opening(turns), *made.turns(turns, first=True), *([] if header is None else [header])]
    )
    return made.tokenizer.decode(ids, specials=True)


CALL = tools.Message("Let me look.", (tools.Call("find", {"city": "Bern", "days": [1, 2]}),))


def talk(family):
    return (
        Turn("system", "Be brief."),
        Turn("user", "Weather?"),
        Turn("agent", tools.write(family.calls, CALL), "a tool knows", only="agent"),
        Turn("tool", "rain", only="agent"),
        Turn("tool", "wind", only="agent"),
        Turn("agent", "Wet.", "so it is"),
        Turn("user", "Thanks."),
    )


# What the published templates write for this dialogue, the agent being asked once more.
EXPECTED = {
    "qwen3.5": (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n"
        "<|im_start|>assistant\nLet me look.\n\n<tool_call>\n<function=find>\n"
        "<parameter=city>\nBern\n</parameter>\n<parameter=days>\n[1, 2]\n</parameter>\n"
        "</function>\n</tool_call><|im_end|>\n"
        "<|im_start|>user\n<tool_response>\nrain\n</tool_response>\n<tool_response>\nwind\n"
        "</tool_response><|im_end|>\n<|im_start|>assistant\nWet.<|im_end|>\n"
        "<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n<think>\n"
    ),
    "qwen3": (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWeather?<|im_end|>\n"
        '<|im_start|>assistant\nLet me look.\n<tool_call>\n{"name": "find", "arguments": '
        '{"city": "Bern", "days": [1, 2]}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\nrain\n</tool_response>\n<tool_response>\nwind\n"
        "</tool_response><|im_end|>\n<|im_start|>assistant\nWet.<|im_end|>\n"
        "<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n<think>\n"
    ),
}
EXPECTED["qwen2.5"] = EXPECTED["qwen3"].removesuffix("<think>\n")
EXPECTED["qwen3.5-small"] = EXPECTED["qwen3.5"] + "\n</think>\n\n"


@pytest.mark.parametrize("name", EXPECTED)
def test_the_qwen_families_by_hand(name):
    family = families.named(name)
    made = renderer(family)
    assert written(made, talk(family), made.header("agent", family.thinking)) == EXPECTED[name]


def test_llama_by_hand():
    family = families.LLAMA31
    made = renderer(family)
    call = tools.Message("", (tools.Call("find", {"city": "Bern"}),))
    turns = (
        Turn("system", " Be brief. "),
        Turn("user", "Weather?\n"),
        Turn("agent", tools.write("llama", call), only="agent"),
        Turn("tool", "rain", only="agent"),
    )
    dated = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
    opened = "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n" + dated
    assert written(made, turns, made.header("agent", "none")) == (
        f"{opened}Be brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWeather?<|eot_id|>"
        '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "find", "parameters": {"city": '
        '"Bern"}}<|eot_id|><|start_header_id|>ipython<|end_header_id|>\n\n"rain"<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    assert written(made, turns[1:2]) == (
        f"{opened}<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWeather?<|eot_id|>"
    )


def test_default_system_turns():
    hello = (Turn("user", "hi"),)
    made = renderer(families.QWEN25)
    assert "You are Qwen" in written(made, hello)
    for family in (families.QWEN3, families.QWEN35):
        assert written(renderer(family), hello) == "<|im_start|>user\nhi<|im_end|>\n"


def test_where_replies_end():
    """Qwen3.5 stops at both of its ends, whoever speaks; the base model's end lets a user leave."""
    made = renderer(families.QWEN35)
    ids = made.tokenizer.specials
    end, base = ids["<|im_end|>"], ids["<|endoftext|>"]
    assert made.stops("user") == made.stops("agent") == (end, base)
    llama = renderer(families.LLAMA31)
    assert {llama.tokenizer.decode([i], specials=True) for i in llama.stops("agent")} == {
        "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
    }  # fmt: skip
    said = [*b"x\n</think>"[:2], ids["</think>"], *b"\n\nbye", base]
    assert made.parse(said, "sample", "user").left
    assert not made.parse(said, "sample", "agent").left
    assert made.parse(said, "sample", "agent").well_formed
    assert made.continuation("user", said, "sample").tolist()[-2:] == [base, 10]
    assert made.continuation("agent", said, "sample").tolist()[-2:] == [end, 10]


def test_thinking_by_size():
    assert families.of({"model_type": "qwen3_5", "text_config": {"hidden_size": 2560}}, {}) is (
        families.QWEN35
    )
    for width in (1024, 2048):
        config = {"model_type": "qwen3_5_text", "hidden_size": width}
        assert families.of(config, {}) is families.QWEN35_SMALL
    assert families.of({"model_type": "qwen3"}, {}) is families.QWEN3
    assert families.of({"model_type": "qwen2"}, {}) is families.QWEN25
    assert families.of({"model_type": "llama"}, {"<|start_header_id|>": 1}) is families.LLAMA31
    assert families.of({"model_type": "llama"}, {"<|im_start|>": 1}) is families.SMOLLM2
    with pytest.raises(families.Unknown, match="no chat family is known for a 'mamba' model"):
        families.of({"model_type": "mamba"}, {})
    with pytest.raises(families.Unknown, match="'qwen9' is unknown: use one of small, qwen3.5"):
        families.named("qwen9")


def test_a_family_without_thoughts_refuses_them():
    made = renderer(families.SMOLLM2)
    with pytest.raises(ValueError, match="smollm2 has no thoughts"):
        made.header("agent", "sample")
    assert made.think_close == -1
    with pytest.raises(script.Missing, match="no special token '<|eot_id|>'"):
        render.Renderer(Made(QWEN), families.LLAMA31).stops("agent")


# --- what holds in every family -------------------------------------------------------------------

HARD = ["<|im_end|>", "<tool_call>", "</think>", "<|eot_id|>", "a\n<tool_call>\nb", "é漢", ""]
words = st.one_of(st.sampled_from(HARD), st.text(st.characters(codec="utf-8"), max_size=12))
any_family = st.sampled_from(PUBLISHED)


@given(any_family, words, st.sampled_from(["user", "system", "tool"]))
@settings(max_examples=150, deadline=None)
def test_what_others_say_forges_nothing(family, text, author):
    """The special ids of a turn are those of an empty one: none comes from its text."""
    made = renderer(family)
    special = set(made.tokenizer.specials.values())
    ids, empty = (made.turn(Turn(author, said)).tolist() for said in (text, ""))
    assert [i for i in ids if i in special] == [i for i in empty if i in special]


@given(any_family, words, st.none() | words, st.booleans())
@settings(max_examples=200, deadline=None)
def test_a_line_reads_back(family, text, private, left):
    made = renderer(family)
    mode = "sample" if family.think else "none"
    private = private if family.think else None
    ids, head = made.line(Turn("user", text, private), mode, left=left)
    read = "empty" if mode == "sample" and private is None else mode
    assert ids[:head].tolist() == made.header("user", read).tolist()
    tail = len(made._after)
    said = ids[head : len(ids) - tail]
    found = made.parse(said, read)
    trim = {"none": str, "lead": lambda s: s.lstrip("\n"), "all": str.strip}[family.trim]
    assert (found.public, found.left) == (trim(text), left)
    if private is not None:
        outer = {"none": str, "lead": lambda s: s.strip("\n"), "all": str.strip}[family.trim]
        assert found.private == outer(private)
    # What is re-fed by id is the turn as the template writes it, but for space that it trims.
    public = made.turn(Turn("user", trim(text)), left=left).tolist()
    assert made.continuation("user", said, read).tolist() == public


@given(any_family, st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_only_what_the_chair_says_is_learned(family, cut):
    made = renderer(family)
    turns = talk(dataclasses.replace(family, calls=family.calls))[cut:] if family.calls in (
        "xml", "json") else (Turn("user", "a"), Turn("agent", "b"), Turn("user", "c"))  # fmt: skip
    mode = "sample" if family.think else "none"
    built = made.tree(turns, "agent", thinking=mode)
    own = [i for i, turn in enumerate(turns) if turn.author == "agent"]
    scored = {part.turn: part for part in built if part.scored.any()}
    assert sorted(scored) == own
    end = made.tokenizer.specials[family.end]
    for part in scored.values():
        said = part.ids[part.scored].tolist()
        assert said[-1] == end and said.count(end) == 1
        # Text between turns, such as the newline after the end, is nobody's.
        first = int(np.flatnonzero(part.scored)[0])
        assert part.scored[first : first + len(said)].all()


@pytest.mark.parametrize("name", ["qwen3.5", "qwen3", "qwen2.5"])
def test_the_path_of_the_last_reply_is_the_template(name):
    family = families.named(name)
    made = renderer(family)
    turns = (*talk(family), Turn("agent", "Bye.", "done"))
    mode = family.thinking
    built = made.tree(turns, "agent", thinking=mode)
    at = next(i for i, s in enumerate(built) if s.turn == len(turns) - 1 and s.scored.any())
    path = trees.path(built, at)
    told = made.tokenizer.decode(path.ids, specials=True)
    thought = "done\n</think>\n\n" if family.think else ""
    assert told == EXPECTED[name] + thought + "Bye.<|im_end|>\n"
    # In the round, the reasoning before the call is still there.
    at = next(i for i, s in enumerate(built) if s.turn == 5 and s.scored.any())
    inside = made.tokenizer.decode(trees.path(built, at).ids, specials=True)
    assert ("a tool knows\n</think>" in inside) == bool(family.think)


def test_a_coach_reads_the_same_reply_after_its_note():
    made = renderer(families.QWEN35)
    plain = made.tree(talk(families.QWEN35), "agent", thinking="sample")
    found = made.teacher(plain, {5: made.note("say wet")})
    ids = trees.column([found.tree], "ids")
    assert len(found.student) and ids[found.student].tolist() == ids[found.teacher].tolist()
    told = made.tokenizer.decode(found.tree[-1].ids, specials=True)
    assert told.startswith("<|im_start|>user\nsay wet<|im_end|>\n<|im_start|>assistant\n<think>\n")


def test_white_space_is_trimmed_by_id():
    made = renderer(families.QWEN35)
    ids = made.tokenizer.specials
    said = [*b"hm\n", ids["</think>"], *b"\n\n  yes \n", ids["<|im_end|>"]]
    assert made.parse(said, "sample").public == "yes"
    again = made.tokenizer.decode(made.continuation("agent", said, "sample"), specials=True)
    assert again == "<|im_start|>assistant\nyes<|im_end|>\n"
    assert not made.retokenised(said, "sample")


# --- tool calls -----------------------------------------------------------------------------------

names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
plain = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=12).filter(
    lambda s: s[:1] not in "{[" or not s
)
values = st.one_of(
    plain,
    st.lists(st.integers(), max_size=3),
    st.dictionaries(names, st.booleans(), max_size=2),
)
calls = st.builds(tools.Call, names, st.dictionaries(names, values, max_size=3))


@given(st.sampled_from(["xml", "json"]), st.lists(calls, min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_calls_read_back(notation, made):
    message = tools.Message("Let me look.", tuple(made))
    assert tools.read(notation, tools.write(notation, message)) == message


@given(calls)
@settings(max_examples=50, deadline=None)
def test_llama_calls_read_back(call):
    message = tools.Message("", (call,))
    assert tools.read("llama", tools.write("llama", message)) == message
    with pytest.raises(ValueError, match="holds one call and nothing else"):
        tools.write("llama", tools.Message("x", (call,)))


@pytest.mark.parametrize(
    ("notation", "text", "told"),
    [
        ("json", "<tool_call>\n{\n</tool_call>", "is no JSON"),
        ("json", '<tool_call>\n{"arguments": {}}\n</tool_call>', "without a name"),
        ("json", '<tool_call>\n{"name": "f", "arguments": 3}\n</tool_call>', "are no object"),
        ("json", "<tool_call>\n" + "[" * 100_000 + "\n</tool_call>", "is no JSON"),
        ("json", "<tool_call>\nx", "do not pair"),
        ("xml", "<tool_call>\nfind\n</tool_call>", "is no <function=NAME>"),
        ("xml", "<tool_call>\n<function=f>\nx\n</function>\n</tool_call>", "more than its param"),
    ],
)
def test_malformed_calls_are_told(notation, text, told):
    with pytest.raises(tools.Malformed, match=told):
        tools.read(notation, text)


def test_an_argument_cannot_close_its_call():
    call = tools.Call("say", {"text": "a\n</tool_call>\nb"})
    with pytest.raises(ValueError, match="holds a mark of the notation"):
        tools.write("xml", tools.Message("", (call,)))
    assert tools.read("json", tools.write("json", tools.Message("", (call,)))).calls == (call,)


def test_marks_are_ids_in_a_call_and_nowhere_else():
    made = renderer(families.QWEN3)
    mark = made.tokenizer.specials["<tool_call>"]
    text = tools.write("json", CALL)
    count = lambda turn: made.turn(turn).tolist().count(mark)
    assert count(Turn("agent", text, only="agent")) == 1
    assert count(Turn("agent", text)) == count(Turn("user", text)) == 0
    sampled = [*b"x\n", mark, *b"\n{}", made.stops("agent")[0]]
    found = made.parse(sampled, "none", "agent")
    assert found.well_formed and found.public == "x\n<tool_call>\n{}"


TEMPLATE = (
    "{% if messages[0].role == 'system' %}{% set told = messages[0].content %}{% endif %}"
    "{{ '<|im_start|>system\\n' }}{% if tools %}{{ 'Tools:' }}{% for tool in tools %}"
    "{{ '\\n' + tool | tojson }}{% endfor %}{{ '\\nSay <tool_call> first.\\n\\n' }}{% endif %}"
    "{{ (told or 'Be good.') + '<|im_end|>\\n<|im_start|>user\\nx<|im_end|>\\n' }}"
)


def test_tools_are_told_in_the_words_of_the_template():
    pytest.importorskip("transformers", reason="transformers is not installed")
    family = families.QWEN3
    opens = dict(system=family.opens["system"], user=family.opens["user"], end=family.end)
    said = tools.preamble(TEMPLATE, [{"name": "find"}], **opens)
    made = dataclasses.replace(renderer(family), tools=said)
    told = 'Tools:\n{"name": "find"}\nSay <tool_call> first.\n\n'
    brief = (Turn("system", "<tool_call> Hi"), Turn("user", "x"))
    assert written(made, brief).startswith(f"<|im_start|>system\n{told}<tool_call> Hi<|im_end|>\n")
    ids = made.turns(brief, first=True)[0].tolist()
    assert ids.count(made.tokenizer.specials["<tool_call>"]) == 1  # the template's, not the text's
    assert written(made, brief[1:]).startswith(f"<|im_start|>system\n{told}Be good.<|im_end|>\n")
    with pytest.raises(tools.Malformed, match="writes no system turn"):
        tools.preamble("{{ messages[0].content }}", [], **opens)
    with pytest.raises(tools.Malformed, match="the chat template fails with tools"):
        tools.preamble("{{ raise_exception('no') }}", [], **opens)
    with pytest.raises(tools.Malformed, match="the chat template fails"):
        tools.preamble("{{ ''.__class__.__mro__[1].__subclasses__() }}", [], **opens)


# --- real templates and vocabularies --------------------------------------------------------------


def test_smollm2_is_its_own_template():
    """Token by token what the template in the file gives, read by the file's own tokenizer."""
    pytest.importorskip("transformers", reason="transformers runs the template")
    from transformers.utils import chat_template_utils

    try:
        path = gguf.smollm2_path()
    except gguf.Unavailable as missing:
        pytest.skip(str(missing))
    tok, template = gguf.tokenizer(path), gguf.template(path)
    made = render.Renderer(tok, families.SMOLLM2)
    roles = {"agent": "assistant"}
    for turns in (
        [Turn("user", "What is the capital of France? Answer in one sentence.")],
        [Turn("system", "Be brief."), Turn("user", " hi\n"), Turn("agent", "Hello!"),
         Turn("user", "\n\n\nwell  ")],
    ):  # fmt: skip
        messages = [{"role": roles.get(t.author, t.author), "content": t.public} for t in turns]
        (text,), _ = chat_template_utils.render_jinja_template(
            [messages], chat_template=template, add_generation_prompt=True
        )
        ids = np.concatenate(
            [made.opening(turns), *made.turns(turns, first=True), made.header("agent", "none")]
        )
        assert tok.decode(ids, specials=True) == text
        whole = script.Script(tok)
        np.testing.assert_array_equal(ids, whole.ids(whole.trusted(text)))


def test_qwen35_ids_of_a_prompt():
    try:
        tok = published.qwen35()
    except published.Unknown as missing:
        pytest.skip(str(missing))
    made = render.Renderer(tok, families.QWEN35)
    assert made.stops("agent") == (248046, 248044)
    start, end, think, close = 248045, 248046, 248068, 248069
    assert made.header("agent", "sample").tolist() == [start, 74455, 198, think, 198]
    assert made.header("agent", "empty").tolist() == [start, 74455, 198, think, 271, close, 271]
    hi = tok.encode("hi").tolist()
    assert made.turn(Turn("user", "hi")).tolist() == [start, 846, 198, *hi, end, 198]
    call = tools.write("xml", tools.Message("", (tools.Call("f"),)))
    ids = made.turn(Turn("agent", call, only="agent")).tolist()
    assert ids.count(248058) == ids.count(248059) == 1
