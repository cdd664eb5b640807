"""A small byte-level BPE tokenizer whose special tokens no text can ever produce.

The first ids are the special tokens, then the 256 bytes, then whole words that were asked for,
then what byte-pair merging found in the training texts. The special tokens are not known to the
merging model at all: a person who types "<|end|>" gets ordinary tokens that decode to "<|end|>".
"""

from __future__ import annotations

import codecs
import collections
import functools
import hashlib
import json
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

SPECIALS = (
    "<|pad|>", "<|system|>", "<|user|>", "<|agent|>", "<|tool|>", "<|note|>",
    "<|end|>", "<|leave|>", "<think>", "</think>",
)  # fmt: skip
PAD, SYSTEM, USER, AGENT, TOOL, NOTE, END, LEAVE, THINK, THINK_END = range(len(SPECIALS))
LEAST = len(SPECIALS) + 256  # special tokens and bytes: no vocabulary can be smaller


class Tokenizer:
    """Text to ids and back, without loss.

    vocab_real: ids that exist. vocab: embedding rows, vocab_real rounded up to `multiple`; the
    rows from vocab_real on mean nothing and must be masked when sampling.
    hash: sha256 of everything that decides what ids a text gets.
    specials: name -> id of the tokens that no text produces.
    """

    def __init__(self, tokens: Sequence[str], merges: Sequence[tuple[str, str]], multiple: int = 1):
        """tokens: all but the special ones, in id order, in the byte alphabet of `tokenizers`."""
        self._tokens, self._merges = tuple(tokens), tuple((a, b) for a, b in merges)
        self.multiple = multiple
        self.specials = {name: i for i, name in enumerate(SPECIALS)}
        self.vocab_real = len(SPECIALS) + len(self._tokens)
        self.vocab = -(-self.vocab_real // multiple) * multiple
        ids = {token: i for i, token in enumerate(self._tokens, start=len(SPECIALS))}
        # ignore_merges: a piece that is a token is taken whole, however it would have merged.
        model = models.BPE(vocab=ids, merges=list(self._merges), ignore_merges=True)
        self._bpe = tokenizers.Tokenizer(model)
        self._bpe.pre_tokenizer = _pieces()
        table = byte_of()
        self._bytes = [b""] * len(SPECIALS)
        self._bytes += [bytes(table[c] for c in token) for token in self._tokens]

    @property
    def pad(self) -> int:
        return PAD

    def encode(self, text: str) -> np.ndarray:
        """[n] int32 ids, never a special one. Lone surrogates, which no file can hold, become
        U+FFFD; everything else comes back from `decode` exactly.

        A text is read as if a space stood before it, so that a word has one id wherever it stands:
        with two, a model of this size did not learn to copy a word to the start of a reply.
        """
        text = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        text = " " + text if text else text
        return np.asarray(self._bpe.encode(text, add_special_tokens=False).ids, np.int32)

    def decode(self, ids: Iterable[int], *, specials: bool = False) -> str:
        """The text of [n] ids, without the space that `encode` puts before each text.

        Texts begin at the start and after special tokens. Special tokens are skipped, or shown by
        name with specials=True.

        Bytes that are no UTF-8 (a sampler may emit them) become U+FFFD. Raises ValueError for an
        id that does not exist.
        """
        return "".join(self.pieces(ids, specials=specials))

    def pieces(self, ids: Iterable[int], *, specials: bool = False) -> list[str]:
        """Like `decode`, in a piece for each id; a character whose bytes are spread over several
        ids is given with the last of them."""
        first = True
        reader = codecs.getincrementaldecoder("utf-8")("replace")
        parts = []
        for i in (int(i) for i in ids):
            if not 0 <= i < self.vocab_real:
                raise ValueError(
                    f"id {i} does not exist, the last is {self.vocab_real - 1}: mask the rows"
                    f" {self.vocab_real}..{self.vocab - 1} when sampling"
                )
            shown = specials and i < len(SPECIALS)
            part = reader.decode(SPECIALS[i].encode() if shown else self._bytes[i])
            parts.append(part.removeprefix(" ") if first else part)
            first = i < len(SPECIALS)
        if rest := reader.decode(b"", final=True):
            parts[-1] += rest  # a character that is cut off: still a piece for each id
        return parts

    @functools.cached_property
    def hash(self) -> str:
        return hashlib.sha256(self._content().encode()).hexdigest()

    def save(self, path) -> None:
        """Write one json file, readable by `load`."""
        pathlib.Path(path).write_text(self._content())

    def _content(self) -> str:
        content = {
            "format": 2,
            "specials": SPECIALS,
            "multiple": self.multiple,
            "tokens": self._tokens,
            "merges": self._merges,
        }
        return json.dumps(content, ensure_ascii=True, indent=0)


def load(path) -> Tokenizer:
    """Read what `save` wrote. Raises ValueError where the special tokens are others than ours."""
    content = json.loads(pathlib.Path(path).read_text())
    if content.get("format") != 2 or tuple(content["specials"]) != SPECIALS:
        raise ValueError(
            f"{path} is format {content.get('format')} with special tokens"
            f" {content.get('specials')}, wanted format 2 with {list(SPECIALS)}: train it again"
        )
    return Tokenizer(content["tokens"], [(a, b) for a, b in content["merges"]], content["multiple"])


def train(
    texts: Iterable[str], vocab: int, *, whole: Iterable[str] = (), multiple: int = 1
) -> Tokenizer:
    """Train on texts; the same texts in any order give the same tokenizer.

    vocab: most ids, special tokens and bytes included; fewer where the texts hold fewer pairs.
    whole: words that must each be one token. multiple: see Tokenizer.
    Raises ValueError for a vocabulary too small and for a word that cannot be one token.
    """
    words = sorted(set(whole))
    whole_tokens = [_whole(word) for word in words]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    fixed = alphabet + [token for token in whole_tokens if token not in alphabet]
    room = vocab - len(SPECIALS) - len(fixed)
    if room < 0:
        raise ValueError(
            f"vocab {vocab} is too small: special tokens, bytes and {len(words)} whole words take"
            f" {vocab - room}: use at least that"
        )
    split, known = _pieces(), set(fixed)
    counts: collections.Counter[str] = collections.Counter()
    for text in texts:
        counts.update(piece for piece, _ in split.pre_tokenize_str(" " + text))
    learner = tokenizers.Tokenizer(models.BPE())
    learner.train_from_iterator(
        # Whole words need no merges, so they must not use up any.
        (piece for piece in sorted(counts) if piece not in known for _ in range(counts[piece])),
        trainers.BpeTrainer(
            vocab_size=len(alphabet) + room, initial_alphabet=alphabet, show_progress=False
        ),
    )
    learned = json.loads(learner.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learned["merges"]]
    found = sorted(learned["vocab"], key=learned["vocab"].get)
    tokens = fixed + [token for token in found if token not in known]
    made = Tokenizer(tokens, merges, multiple)
    for word in words:
        if len(made.encode(word)) != 1:
            raise ValueError(f"{word!r} became {len(made.encode(word))} tokens, wanted 1")
    return made


def _pieces() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def _whole(word: str) -> str:
    """The word after a space, in the byte alphabet."""
    pieces = [piece for piece, _ in _pieces().pre_tokenize_str(" " + word)]
    if len(pieces) != 1:
        raise ValueError(
            f"{word!r} cannot be one token: it is split into {len(pieces)} pieces before"
            " merging; use a word of letters only"
        )
    return pieces[0]


def byte_of() -> dict[str, int]:
    """Which byte a character of the byte alphabet stands for.

    Printable latin-1 characters stand for themselves; the other bytes, in order, for the
    characters from U+0100 on.
    """
    plain = [b for b in range(256) if 33 <= b <= 126 or (b >= 161 and b != 173)]
    rest = [b for b in range(256) if b not in set(plain)]
    return {chr(b): b for b in plain} | {chr(256 + n): b for n, b in enumerate(rest)}
