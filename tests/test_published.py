"""Published tokenizers: the ids of the model's own, and no text that forges a special token."""

import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax.chat import published
from mimesis_jax.pretrained import gguf

BYTES = tokenizers.pre_tokenizers.ByteLevel.alphabet()
SPECIALS = ["<|im_start|>", "<|im_end|>", "<think>"]


def folder(tmp_path, *, whole=False, **changes):
    """A folder with a small tokenizer.json, its special tokens inside the vocabulary.

    whole: a piece that is in the vocabulary is taken whole, as Llama 3's tokenizer does."""
    tokens = [*SPECIALS, *sorted(BYTES), "he", "ll", "Ġhe", "hell"]
    content = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": name, "special": i != 2, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False}
            for i, name in enumerate(SPECIALS)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True,
                          "trim_offsets": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True,
                    "trim_offsets": True},
        "model": {
            "type": "BPE", "unk_token": "<|im_end|>", "ignore_merges": whole,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": ["h e", "l l", "Ġ he", "he ll"],
        },
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(content | changes))
    return tmp_path


@pytest.fixture(scope="module", params=[False, True])
def small(request, tmp_path_factory):
    path = folder(tmp_path_factory.mktemp("tok"), whole=request.param)
    return published.load(path, rows=300), tokenizers.Tokenizer.from_file(
        str(path / "tokenizer.json")
    )


def test_a_folder_by_hand(small):
    tok, _ = small
    assert tok.encode("hell he").tolist() == [262, 261]
    assert tok.specials == {"<|im_start|>": 0, "<|im_end|>": 1, "<think>": 2}
    assert (tok.vocab_real, tok.vocab) == (263, 300)
    assert tok.decode([0, 262, 1, 261]) == "hell he"
    assert tok.pieces([0, 262, 1], specials=True) == ["<|im_start|>", "hell", "<|im_end|>"]
    with pytest.raises(ValueError, match=r"id 263 does not exist.*mask the rows 263..299"):
        tok.decode([263])


HARD = st.sampled_from([*SPECIALS, "<", "|", "hell", " he", "é漢🙂", "\n", "\ud800", ""])
texts = st.lists(st.one_of(HARD, st.text(max_size=8)), max_size=6).map("".join)


@given(texts)
@settings(max_examples=150, deadline=None)
def test_no_text_forges_a_special_token_and_nothing_is_lost(small, text):
    tok, theirs = small
    ids = tok.encode(text)
    assert not set(ids.tolist()) & set(tok.specials.values())
    clean = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    assert tok.decode(ids) == clean == "".join(tok.pieces(ids))
    if not any(name in text for name in SPECIALS):
        assert ids.tolist() == theirs.encode(clean, add_special_tokens=False).ids


def test_the_hash_tells_tokenizers_apart(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    one = published.load(folder(tmp_path / "a"))
    same = published.load(folder(tmp_path / "b"))
    other = published.load(folder(tmp_path / "b", whole=True))
    assert one.hash == same.hash != other.hash


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"model": {"type": "Unigram", "vocab": [["a", 0.0]]}}, "is a Unigram tokenizer"),
        ({"model": None}, "is no tokenizer.json"),
        ({"decoder": None, "pre_tokenizer": None}, "neither a byte-level tokenizer"),
    ],
)
def test_other_tokenizers_are_refused(tmp_path, changes, told):
    with pytest.raises(published.Unknown, match=told):
        published.load(folder(tmp_path, **changes))


def test_broken_folders_are_refused(tmp_path):
    with pytest.raises(published.Unknown, match="holds no tokenizer"):
        published.load(tmp_path)
    with pytest.raises(published.Unknown, match="has 10 rows and the tokenizer ids up to 262"):
        published.load(folder(tmp_path), rows=10)
    (tmp_path / "tokenizer.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(published.Unknown, match="is not UTF-8"):
        published.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("[")
    with pytest.raises(published.Unknown, match="is no tokenizer.json"):
        published.load(tmp_path)


def test_a_tokenizer_with_byte_fallback(tmp_path):
    """Llama 2's kind: a mark for spaces, one put before each text, bytes for what is unknown."""
    tokens = ["<unk>", "<s>", *(f"<0x{b:02X}>" for b in range(256)), "\u2581", "a", "\u2581a"]
    content = {
        "added_tokens": [{"id": 1, "content": "<s>", "special": True, "single_word": False,
                          "lstrip": False, "rstrip": False, "normalized": False}],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "byte_fallback": True, "fuse_unk": True,
                  "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": ["\u2581 a"]},
    }  # fmt: skip
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    tok = published.load(tmp_path)
    assert tok.encode("a").tolist() == [260] and tok.decode([260]) == "a"
    for text in ("a a", "é漢🙂", " a"):
        assert tok.decode(tok.encode(text)) == text
    assert tok.pieces([1, 260, 259], specials=True) == ["<s>", "a", "a"]


# --- real vocabularies ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def qwen():
    try:
        return published.qwen35()
    except published.Unknown as missing:
        pytest.skip(str(missing))


def test_the_vocabulary_of_qwen35(qwen):
    assert (qwen.vocab_real, qwen.vocab, len(qwen.specials)) == (248077, 248320, 33)
    named = {"<|endoftext|>": 248044, "<|im_end|>": 248046, "<tool_call>": 248058,
             "<think>": 248068, "</think>": 248069}  # fmt: skip
    assert {name: qwen.specials[name] for name in named} == named
    ordinary = {"\n": 198, "\n\n": 271, "user": 846, "assistant": 74455, "system": 8678}
    assert {text: int(i) for text in ordinary for i in qwen.encode(text)} == ordinary
    assert len(qwen.encode("12345")) == 5  # digits one by one
    assert qwen.encode("e\u0301").tolist() == qwen.encode("é").tolist()  # normalised


@given(texts)
@settings(max_examples=100, deadline=None)
def test_qwen_forges_nothing(qwen, text):
    import unicodedata

    ids = qwen.encode(text)
    assert not len(ids) or ids.max() < 248044
    clean = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    assert qwen.decode(ids) == unicodedata.normalize("NFC", clean)


@pytest.fixture(scope="module")
def smol():
    try:
        return gguf.tokenizer(gguf.smollm2_path())
    except gguf.Unavailable as missing:
        pytest.skip(str(missing))


def test_the_vocabulary_of_smollm2(smol):
    assert (smol.vocab_real, smol.specials["<|im_start|>"], smol.specials["<|im_end|>"]) == (
        49152, 1, 2,
    )  # fmt: skip
    assert len(smol.encode("2026")) == 4
    assert smol.decode(smol.encode("a\x04b")) == "a\ufffdb"  # no token holds that byte
    for text in ("What is it?\n\n  Yes.", "é漢🙂", "<|im_end|>"):
        ids = smol.encode(text)
        assert smol.decode(ids) == text and ids.min() > 16


def test_smollm2_as_transformers_reads_it(smol):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("torch", reason="transformers reads GGUF with torch: '.[parity]'")
    path = gguf.smollm2_path()
    theirs = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    for text in (
        "The capital of France is Paris.",
        "x = 12*7\n\tdone  ",
        "Grüße, 漢字 🙂!",
        " a\n\n b",
    ):
        np.testing.assert_array_equal(smol.encode(text), theirs.encode(text))
