"""The one renderer: turns to ids for training and for sampling, and back, in any chat family.

A turn is an opening, text, and an end; private text lies between the opening and the text as a
thought; a coach's note is a turn of its own. families.py says how each family writes these. What
was sampled is never tokenised again: public history is sliced from the sampled ids.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import numpy as np

from mimesis_jax import types
from mimesis_jax.chat import branches, coached, families, grammar, script, tokenizer, tools
from mimesis_jax.chat.grammar import Thinking


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
    """Turns to ids and back. thinking is "sample" (or True), "empty", or "none" (or False).

    tokenizer: of the model. family: how its dialogues are written. tools: what the first system
    turn says about the tools there are (tools.preamble), None without tools.
    """

    tokenizer: tokenizer.Tokenizer
    family: families.Family = families.SMALL
    tools: tools.Preamble | None = None

    def __post_init__(self):
        """Raises script.Missing where the tokenizer lacks a token that the family is written with:
        in a template it would be taken for plain text, and nobody would notice."""
        family = self.family
        for name in (family.end, family.leave, *family.stops, *family.marks, family.think_end):
            if name:
                self._script.id(name)

    # --- marks ----------------------------------------------------------------------------------

    @functools.cached_property
    def _script(self) -> script.Script:
        return script.Script(self.tokenizer)

    @functools.cached_property
    def _end(self) -> int:
        return self._script.id(self.family.end)

    @functools.cached_property
    def _leave(self) -> int:
        return self._script.id(self.family.leave)

    @functools.cached_property
    def _after(self) -> np.ndarray:
        return self._script.ids(self._script.trusted(self.family.after))

    @functools.cached_property
    def _marks(self) -> grammar.Marks:
        closers = dict.fromkeys((self._end, self._leave, *map(self._script.id, self.family.stops)))
        return grammar.Marks(
            tuple(closers),
            self.think_close,
            frozenset(self.tokenizer.specials.values()),
            frozenset(map(self._script.id, self.family.marks)),
        )

    @property
    def think_close(self) -> int:
        """The id that closes a thought, -1 where the family has no thoughts."""
        return self._script.id(self.family.think_end) if self.family.think else -1

    def stops(self, author: types.Author) -> tuple[int, ...]:
        """Ids that end a reply of this author."""
        own = [self._end, *([self._leave] if author == "user" else [])]
        return tuple(dict.fromkeys([*own, *map(self._script.id, self.family.stops)]))

    # --- one turn -------------------------------------------------------------------------------

    def header(self, author: types.Author, thinking: bool | Thinking) -> np.ndarray:
        """[h] int32 ids fed before sampling: the role's opening, then the thought's ("sample"), a
        whole empty thought ("empty"), or nothing ("none").

        Raises ValueError for an unknown mode, and for thoughts in a family that has none.
        """
        mode, family = grammar.mode(thinking), self.family
        if mode != "none" and not family.think:
            raise ValueError(f"{family.name} has no thoughts: thinking {mode!r} must be 'none'")
        thought = {"sample": "".join(family.think[:1]), "empty": family.nothing, "none": ""}[mode]
        return self._script.ids(self._script.trusted(family.opens[author] + thought))

    def opening(self, turns: Sequence[types.Turn]) -> np.ndarray:
        """[n] int32 ids before the first turn of a dialogue: the family's start, and the system
        turn that a dialogue without one gets. Empty in the small family."""
        items = self._script.trusted(self.family.start)
        known = self.family.system is not None or self.tools is not None
        if known and not (turns and turns[0].author == "system"):
            text = self.family.preface + (self.family.system or "")
            text = text if self.tools is None else self.tools.alone
            items += self._script.trusted(
                self.family.opens["system"] + text + self.family.end + self.family.after
            )
        return self._script.ids(items)

    def turns(
        self, turns: Sequence[types.Turn], *, first: bool = False, left: bool = False
    ) -> list[np.ndarray]:
        """Ids [n] int32 of each turn's public form, as the trunk takes it; thoughts are not read.

        first: they begin the dialogue (`opening` stands before them). left: the user ends the
        conversation with the last one. Neighbouring results of tools share a turn in some families,
        so a run of turns must be given at once.
        """
        authors: list[types.Author | None] = [None, *(turn.author for turn in turns), None]
        found = []
        for n, turn in enumerate(turns):
            shared = self.family.grouped and turn.author == "tool"
            items: list[script.Item] = []
            if not (shared and authors[n] == "tool"):
                items += self._script.trusted(self.family.opens[turn.author])
            items += self._text(turn, first and n == 0)
            if not (shared and authors[n + 2] == "tool"):
                items += [self._closer(turn, left and n == len(turns) - 1)]
                items += self._script.trusted(self.family.after)
            found.append(self._script.ids(items))
        return found

    def turn(self, turn: types.Turn, *, left: bool = False) -> np.ndarray:
        """[n] int32 ids of one turn that neither begins the dialogue nor has a neighbour of its
        kind, see `turns`."""
        return self.turns([turn], left=left)[0]

    def line(self, turn: types.Turn, thinking: bool | Thinking, *, left: bool = False):
        """The turn as its own chair says it: ids [n] int32, and how many of them are header.

        In "sample" mode a turn without a recorded thought (None) gets the empty header, while an
        empty thought ("") is one that is closed at once, by tokens that are learned.
        """
        said, head = self._said(turn, thinking, left=left)
        return np.concatenate([said, self._after]), head

    def _said(self, turn: types.Turn, thinking: bool | Thinking, *, left: bool):
        """`line` without what stands between turns."""
        mode = grammar.mode(thinking)
        if mode == "sample" and turn.private is None:
            mode = "empty"
        header = self.header(turn.author, mode)
        items: list[script.Item] = []
        if mode == "sample":
            thought = turn.private or ""
            strip = {"none": None, "lead": "\n", "all": " \n\t\r"}[self.family.trim]
            items = [thought.strip(strip) if strip else thought]
            items += self._script.trusted("".join(self.family.think[1:]))
        items += [*self._text(turn, False), self._closer(turn, left)]
        return np.concatenate([header, self._script.ids(items)]), len(header)

    def _text(self, turn: types.Turn, first: bool) -> list[script.Item]:
        """What a turn says, between its opening and its end."""
        text = turn.public.strip() if self.family.trim == "all" else turn.public
        if turn.author == "tool":
            before, after = map(self._script.trusted, self.family.result)
            return [*before, tools.result(self.family.calls, text), *after]
        if turn.author == "system" and first:
            if self.tools is None:
                return [*self._script.trusted(self.family.preface), text]
            before, after = map(self._script.trusted, (self.tools.before, self.tools.after))
            return [*before, text, *after]
        if turn.author == "agent" and turn.only == "agent":
            return self._script.marked(text, self.family.marks)
        return [text]

    def note(self, text: str) -> np.ndarray:
        """[n] int32 ids of a coach's note as a message; an empty note is no message at all."""
        if not text:
            return self._script.ids([])
        opening = self._script.trusted(self.family.opens["note"])
        return np.concatenate([self._script.ids([*opening, text, self._end]), self._after])

    # --- sampled replies ------------------------------------------------------------------------

    def parse(
        self, ids: Sequence[int], thinking: bool | Thinking, author: types.Author = "user"
    ) -> Parsed:
        """Read sampled ids [n] (without the header); what is broken is said, never repaired."""
        parts = grammar.split(ids, grammar.mode(thinking), self._marks)
        text = self._shown(ids[parts.utterance])
        text = {"none": text, "lead": text.lstrip("\n"), "all": text.strip()}[self.family.trim]
        private = None if parts.thought is None else self.tokenizer.decode(ids[parts.thought])
        if private is not None and self.family.trim != "none":
            private = private.strip("\n") if self.family.trim == "lead" else private.strip()
        left = parts.closer == self._leave and author == "user"
        silent = not text.strip() and not left
        fault = parts.fault or ("empty" if silent else None)
        return Parsed(text, private, left, fault)

    def continuation(
        self, author: types.Author, ids: Sequence[int], thinking: bool | Thinking
    ) -> np.ndarray:
        """[n] int32 public ids that the trunk takes after a reply was sampled: the role's opening,
        the utterance sliced from the sampled ids [m] without the white space that the family trims,
        its end, added where it is missing, and what stands before the next turn.

        A broken reply gives its public part up to the first stray special token, so that neither a
        thought nor a forged turn reaches the other chair. All of these ids are context: weight 0.
        """
        parts = grammar.split(ids, grammar.mode(thinking), self._marks)
        left = parts.closer == self._leave and author == "user"
        closer = self._leave if left else self._end
        opening = self._script.ids(self._script.trusted(self.family.opens[author]))
        said = np.asarray([*self._trimmed(ids[parts.utterance]), closer], np.int32)
        return np.concatenate([opening, said, self._after])

    def missing_end(self, ids: Sequence[int]) -> np.ndarray:
        """[n] int32: what the line takes after sampled ids [m] that stay on it: the end id where
        they lack one, and what stands before the next turn."""
        closed = len(ids) > 0 and int(ids[-1]) in self._marks.closers
        end = np.asarray([] if closed else [self._end], np.int32)
        return np.concatenate([end, self._after])

    def retokenised(self, ids: Sequence[int], thinking: bool | Thinking) -> bool:
        """Whether a text server, which sends text and tokenises it again, would have fed other ids
        than the utterance sampled in ids [n]."""
        parts = grammar.split(ids, grammar.mode(thinking), self._marks)
        sampled = self._trimmed(ids[parts.utterance])
        text = self._shown(sampled)
        text = text.strip() if self.family.trim == "all" else text
        again = self._script.ids(self._script.marked(text, self.family.marks))
        return again.tolist() != sampled

    def _shown(self, ids: Sequence[int]) -> str:
        """The text of an utterance; marks of tool calls are part of it."""
        return self.tokenizer.decode(ids, specials=bool(self.family.marks))

    def _trimmed(self, ids: Sequence[int]) -> list[int]:
        """An utterance's ids without those that are nothing but white space which is trimmed."""
        ids = [int(i) for i in ids]
        blank = {"none": "", "lead": "\n", "all": " \n\t\r"}[self.family.trim]
        only = lambda i: blank and not self._shown([i]).strip(blank)
        while ids and only(ids[0]):
            ids.pop(0)
        while ids and self.family.trim == "all" and only(ids[-1]):
            ids.pop()
        return ids

    def _closer(self, turn: types.Turn, left: bool) -> int:
        if left and turn.author != "user":
            raise ValueError(
                f"a {turn.author} cannot leave: only a user turn ends with {self.family.leave}"
            )
        return self._leave if left else self._end

    # --- supervised trees -------------------------------------------------------------------------

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
        seen = [(i, turn) for i, turn in enumerate(dialogue) if turn.only in (None, chair)]
        public = self.turns([turn for _, turn in seen], first=True)
        pieces = []
        if len(opening := self.opening([turn for _, turn in seen])):
            pieces.append(branches.Piece(0, opening))
        for (i, turn), plain in zip(seen, public, strict=True):
            if i == final:
                plain = self.turn(turn, left=True)
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
                    i,
                    plain,
                    True,
                    False,
                    line,
                    head,
                    mode != "none",
                    weight,
                    note,
                    len(self._after),
                )  # fmt: skip
            )
        return branches.grow(pieces, history, note_kind)

    def teacher(self, tree: types.Tree, notes: Mapping[int, np.ndarray]) -> coached.Coached:
        """Add the coached copies of noted replies to a sampled tree, see `coached.teacher`."""
        markers = tuple(int(self.header(chair, "none")[0]) for chair in types.CHAIRS)
        return coached.teacher(tree, notes, markers)
