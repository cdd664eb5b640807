"""The one renderer of the small family: turns to ids for training and for sampling, and back.

A turn is `<|author|> text <|end|>`; private text lies between the role marker and the text as
`<think> thought </think>`; a coach's note is a message of its own, `<|note|> text <|end|>`. What
was sampled is never tokenised again: public history is sliced from the sampled ids.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from mimesis_jax import types
from mimesis_jax.chat import branches, coached, grammar, tokenizer
from mimesis_jax.chat.grammar import Thinking

MARKERS: dict[types.Author, int] = {
    "system": tokenizer.SYSTEM,
    "user": tokenizer.USER,
    "agent": tokenizer.AGENT,
    "tool": tokenizer.TOOL,
}


@dataclasses.dataclass(frozen=True)
class Parsed:
    """What sampled ids say.

    public, private: the texts; private is None where no thought was to be sampled or it never
      closed. left: the user ended the conversation.
    fault: None when well formed; "unclosed_thought", "stray_special" (a special token where none
      belongs), "cut" (no end token), or "empty" (nothing said, and not left).
    """

    public: str
    private: str | None
    left: bool
    fault: grammar.Fault | None

    @property
    def well_formed(self) -> bool:
        return self.fault is None


@dataclasses.dataclass(frozen=True)
class Renderer:
    """Turns to ids and back. thinking is "sample" (or True), "empty", or "none" (or False)."""

    tokenizer: tokenizer.Tokenizer

    @property
    def think_close(self) -> int:
        """The id that closes a thought."""
        return tokenizer.THINK_END

    def stops(self, author: types.Author) -> tuple[int, ...]:
        """Ids that end a reply of this author."""
        return grammar.CLOSERS if author == "user" else (tokenizer.END,)

    def header(self, author: types.Author, thinking: bool | Thinking) -> np.ndarray:
        """[h] int32 ids fed before sampling: the role marker, then the thought's opening
        ("sample"), a whole empty thought ("empty"), or nothing ("none")."""
        return _ids(grammar.header(MARKERS[author], grammar.mode(thinking)))

    def turn(self, turn: types.Turn, *, left: bool = False) -> np.ndarray:
        """[n] int32 ids of a turn's public form, as the trunk takes it; its thought is not read.

        left: the user ends the conversation with this turn.
        """
        text = self.tokenizer.encode(turn.public)
        return _ids([MARKERS[turn.author], *text, _closer(turn, left)])

    def line(self, turn: types.Turn, thinking: bool | Thinking, *, left: bool = False):
        """The turn as its own chair says it: ids [n] int32, and how many of them are header.

        In "sample" mode a turn without a recorded thought (None) gets the empty header, while an
        empty thought ("") is one that is closed at once, by a token that is learned.
        """
        mode = grammar.mode(thinking)
        if mode == "sample" and turn.private is None:
            mode = "empty"
        head = grammar.header(MARKERS[turn.author], mode)
        thought: list[int] = []
        if mode == "sample":
            thought = [*self.tokenizer.encode(turn.private or ""), tokenizer.THINK_END]
        text = self.tokenizer.encode(turn.public)
        return _ids([*head, *thought, *text, _closer(turn, left)]), len(head)

    def note(self, text: str) -> np.ndarray:
        """[n] int32 ids of a coach's note as a message; an empty note is no message at all."""
        if not text:
            return _ids([])
        return _ids([tokenizer.NOTE, *self.tokenizer.encode(text), tokenizer.END])

    def parse(self, ids: Sequence[int], thinking: bool | Thinking) -> Parsed:
        """Read sampled ids [n] (without the header); what is broken is said, never repaired."""
        parts = grammar.split(ids, grammar.mode(thinking))
        text = self.tokenizer.decode(ids[parts.utterance])
        private = None if parts.thought is None else self.tokenizer.decode(ids[parts.thought])
        left = parts.closer == tokenizer.LEAVE
        silent = not text.strip() and not left
        fault = parts.fault or ("empty" if silent else None)
        return Parsed(text, private, left, fault)

    def continuation(
        self, author: types.Author, ids: Sequence[int], thinking: bool | Thinking
    ) -> np.ndarray:
        """[n] int32 public ids that the trunk takes after a reply was sampled: the role marker, the
        utterance sliced from the sampled ids [m], and its end, added where it is missing.

        A broken reply gives its public part up to the first stray special token, so that neither a
        thought nor a forged turn reaches the other chair. All of these ids are context: weight 0.
        """
        parts = grammar.split(ids, grammar.mode(thinking))
        closer = tokenizer.END if parts.closer is None else parts.closer
        return _ids([MARKERS[author], *ids[parts.utterance], closer])

    def missing_end(self, ids: Sequence[int]) -> np.ndarray:
        """[0 or 1] int32: the end id where sampled ids [n] lack one (they stay on the trunk)."""
        closed = len(ids) > 0 and int(ids[-1]) in grammar.CLOSERS
        return _ids([] if closed else [tokenizer.END])

    def retokenised(self, ids: Sequence[int], thinking: bool | Thinking) -> bool:
        """Whether a text server, which sends text and tokenises it again, would have fed other ids
        than the utterance sampled in ids [n]."""
        parts = grammar.split(ids, grammar.mode(thinking))
        sampled = [int(i) for i in ids[parts.utterance]]
        return self.tokenizer.encode(self.tokenizer.decode(sampled)).tolist() != sampled

    def tree(
        self,
        dialogue: Sequence[types.Turn],
        chair: types.Chair,
        *,
        thinking: bool | Thinking,
        learn: Callable[[int, types.Turn], float] | None = None,
        history: branches.History = "drop_at_user",
        notes: Mapping[int, str | None] | None = None,
        note_kind: Literal["branch", "teacher"] = "branch",
        left: bool = False,
    ) -> types.Tree:
        """The supervised tree of a dialogue from one chair's view.

        learn(i, turn): loss weight of the chair's turn i of the dialogue, 0 for not learned (None:
          1 for all). Everything after a learned turn's header is scored: thought, utterance, end.
        thinking: "none" learns on the trunk; "sample" and "empty" put own turns on branches, and
          the trunk takes their public form with weight 0.
        history: how long own private text stays in context, see `branches.grow`.
        notes: turn of the dialogue -> a coach's note directly before that reply, on a branch of
          its own, never in later context. note_kind: "branch" learns the reply after its note,
          "teacher" learns the plain reply and scores the noted one with weight 0.
        left: the user ends the conversation with its last turn.

        Returns only what leads to something scored, () where nothing is. Raises ValueError for an
        unknown mode or history, a negative weight, or a note on a turn that is not the chair's.
        """
        if history not in branches.HISTORIES:
            raise ValueError(f"history {history!r}: use one of {', '.join(branches.HISTORIES)}")
        mode, notes = grammar.mode(thinking), notes or {}
        for i in notes:
            if not (0 <= i < len(dialogue) and dialogue[i].author == chair):
                raise ValueError(
                    f"note on turn {i}, which is not the {chair}'s: note own turns only"
                )
        final = max((i for i, t in enumerate(dialogue) if left and t.author == "user"), default=-1)
        pieces = []
        for i, turn in enumerate(dialogue):
            if turn.only not in (None, chair):
                continue
            plain = self.turn(turn, left=i == final)
            if turn.author != chair:
                other = turn.author in types.CHAIRS
                pieces.append(branches.Piece(i, plain, other=other))
                continue
            weight = 1.0 if learn is None else float(learn(i, turn))
            if weight < 0:
                raise ValueError(f"turn {i} has weight {weight}, the least is 0")
            line, head = self.line(turn, mode, left=i == final)
            note = self.note(notes.get(i) or "")
            pieces.append(
                branches.Piece(
                    i, plain, True, False, line, head, mode != "none", weight, note
                )  # fmt: skip
            )
        return branches.grow(pieces, history, note_kind)

    def teacher(self, tree: types.Tree, notes: Mapping[int, np.ndarray]) -> coached.Coached:
        """Add the coached copies of noted replies to a sampled tree, see `coached.teacher`."""
        return coached.teacher(tree, notes)


def _ids(values) -> np.ndarray:
    return np.asarray(values, np.int32)


def _closer(turn: types.Turn, left: bool) -> int:
    if left and turn.author != "user":
        raise ValueError(f"a {turn.author} cannot leave: only a user turn ends with <|leave|>")
    return tokenizer.LEAVE if left else tokenizer.END
