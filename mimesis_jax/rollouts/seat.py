"""A seat: an engine and a renderer that together sit in one chair. Text outside, tokens inside.

What the engine was fed and what it sampled are kept as segments, so that the tree an episode is
trained on holds exactly those ids: nothing is ever re-tokenised.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable, Iterable, Sequence
from typing import Literal, get_args

import numpy as np

from mimesis_jax import types
from mimesis_jax.chat import render
from mimesis_jax.rollouts import engine as engines

Thinking = Literal["sample", "empty", "none"]
History = Literal["drop_at_user", "drop", "keep"]


@dataclasses.dataclass(frozen=True)
class Config:
    """How a chair speaks.

    thinking: "sample" a private thought before the message, "empty" (a closed empty thought is
      put before it), or "none" (no thought block; the reply stays on the trunk).
    limit: most tokens of a reply, thought included. min_think: fewest tokens of a sampled thought.
    history: how long own thoughts stay in context, as `Renderer.tree` has it: "drop_at_user" (until
      the other chair speaks: a round of calls and results keeps them), "drop" (until the next turn
      of any kind) or "keep" (for good: all lies on one line). None: as the renderer's family does.

    Raises ValueError for a thinking or a history that is none of these.
    """

    thinking: Thinking = "none"
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    limit: int = 48
    min_think: int = 0
    history: History | None = None

    def __post_init__(self):
        for name, known in (("thinking", get_args(Thinking)), ("history", get_args(History))):
            value = getattr(self, name)
            if value not in known and (name, value) != ("history", None):
                raise ValueError(f"{name} {value!r}: use one of {', '.join(known)}")


@dataclasses.dataclass
class _Memory:
    """What a seat knows of one episode."""

    seen: int = 0  # turns of the view already rendered
    own: list[int] | None = None  # public ids of the last own reply, still to be put on the trunk
    trunk: int = -1  # index of the last trunk segment
    inner: int = -1  # the segment that a round's private line ends with; -1 while there is none
    end: list[int] = dataclasses.field(default_factory=list)  # ids between that line and a turn
    later: list[int] = dataclasses.field(
        default_factory=list
    )  # the trunk's, when the round is over
    segments: list[types.Segment] = dataclasses.field(default_factory=list)


class ModelSeat:
    """types.Seat. One engine may serve several seats (other chairs, other settings)."""

    def __init__(self, engine: engines.Engine, renderer: render.Renderer, chair: types.Chair,
                 config: Config):  # fmt: skip
        self.engine, self.renderer, self.chair, self.config = engine, renderer, chair, config
        self._open: dict[Hashable, types.Query] = {}
        self._memory: dict[Hashable, _Memory] = {}
        self.counts: collections.Counter[str] = collections.Counter()

    # --- types.Respond ------------------------------------------------------------------------

    def respond(self, queries: Sequence[types.Query]) -> Iterable[types.Answer]:
        for query in queries:
            self._submit(query)
        if not self._open:
            return []
        answers = []
        for completion in self.engine.advance():
            query = self._open.pop(completion.request.conversation)
            answers.append((query, self._reply(query, completion)))
        return answers

    def finish(self, episode: tuple[int, int, int]) -> types.Tree:
        """The episode's segments as this seat computed them; its state is freed."""
        name = (self.chair, *episode)
        self.engine.close(name)
        memory = self._memory.pop(name, None)
        return tuple(memory.segments) if memory else ()

    # --- between text and tokens --------------------------------------------------------------

    @property
    def _private(self) -> bool:
        return self.config.thinking != "none" and self._history != "keep"

    @property
    def _history(self) -> History:
        return self.config.history or self.renderer.family.history

    def _context(self, memory: _Memory, query: types.Query) -> tuple[list[int], bool]:
        """Ids that are new to this chair, and whether they go on on its private line."""
        first, turns = memory.seen == 0, list(query.turns[memory.seen :])
        if memory.own is not None:  # the own turn's ids are those sampled
            at = next((n for n, turn in enumerate(turns) if turn.author == self.chair), None)
            turns = turns if at is None else turns[:at] + turns[at + 1 :]
        new = [int(i) for i in self.renderer.opening(turns)] if first else []
        for ids in self.renderer.turns(turns, first=first):
            new.extend(int(i) for i in ids)
        own = list(memory.own or ())
        memory.seen, memory.own = len(query.turns), None
        heard = any(t.author in types.CHAIRS and t.author != self.chair for t in turns)
        if memory.inner >= 0 and not heard:
            memory.later += own + new
            return memory.end + new, True
        again, memory.later, memory.inner = memory.later + own, [], -1
        self.counts["refed_tokens"] += len(again) if self._private else 0
        return again + new, False

    def _submit(self, query: types.Query) -> None:
        name = (self.chair, *query.key.episode)
        memory = self._memory.setdefault(name, _Memory())
        context, onward = self._context(memory, query)
        if context:
            tip = memory.inner if onward else memory.trunk
            kind: Literal["branch", "trunk"] = "branch" if onward else "trunk"
            memory.segments.append(types.segment(context, tip, turn=query.key.turn, kind=kind))
            if onward:
                memory.inner = len(memory.segments) - 1
            else:
                memory.trunk = len(memory.segments) - 1
        config = self.config
        sampled = config.thinking == "sample"
        key = query.key
        self.engine.submit(
            engines.Request(
                conversation=name,
                extend=context,
                header=list(self._header()),
                private=self._private,
                onward=onward,
                # Two chairs that share a seed must not share a stream.
                stream=(key.stream, key.goal, key.copy, 2 * key.turn + (self.chair == "agent")),
                stop=tuple(self.renderer.stops(self.chair)),
                limit=config.limit,
                temperature=config.temperature,
                top_k=config.top_k,
                top_p=config.top_p,
                min_p=config.min_p,
                ban=self.renderer.think_close if sampled and config.min_think else -1,
                ban_until=config.min_think,
            )
        )
        self._open[name] = query

    def _header(self):
        return self.renderer.header(self.chair, self.config.thinking)

    def _reply(self, query: types.Query, completion: engines.Completion) -> types.Reply:
        """Parses what was sampled, records its segment, types the outcome."""
        name = completion.request.conversation
        memory = self._memory[name]
        header = np.asarray(self._header(), np.int32)
        sample = types.Sample(
            header, completion.ids, completion.logp, completion.free, completion.version,
            completion.versions,
        )  # fmt: skip
        ids = completion.ids.tolist()
        parsed = self.renderer.parse(ids, self.config.thinking, self.chair)
        self._record(memory, query, sample)
        memory.end = [int(i) for i in self.renderer.missing_end(ids)]
        if self._private:
            public = self.renderer.continuation(self.chair, ids, self.config.thinking)
            memory.own = [int(i) for i in public]
        else:
            memory.own = memory.end
        self.counts["replies"] += 1
        if not completion.stopped:
            kind = types.Kind.UNPARSED
            reason = "length" if completion.full else "cut"
        elif parsed.fault == "empty":
            kind, reason = types.Kind.EMPTY, None
        elif not parsed.well_formed:
            kind, reason = types.Kind.UNPARSED, parsed.fault
        elif parsed.left:
            kind, reason = types.Kind.STOP, "left"
        else:
            kind, reason = types.Kind.TEXT, None
        self.counts[f"kind_{kind}"] += 1
        if completion.stopped and self.renderer.retokenised(ids, self.config.thinking):
            self.counts["retokenised_turns"] += 1  # what a text server would have fed differently
        return types.Reply(kind, parsed.public, parsed.private, reason, sample)

    def _record(self, memory: _Memory, query: types.Query, sample: types.Sample) -> None:
        header, ids = sample.header, sample.ids
        zeros, blank = np.zeros(len(header), np.float32), np.zeros(len(header), bool)
        # A reply directly at the root of an empty trunk has no predecessor for its first header
        # token; headers are never scored, so every scored token has one.
        reply = types.segment(
            np.concatenate([header, ids]),
            memory.trunk if memory.inner < 0 else memory.inner,
            scored=np.concatenate([blank, np.ones(len(ids), bool)]),
            weight=np.concatenate([zeros, sample.free.astype(np.float32)]),
            old_logp=np.concatenate([zeros, sample.logp]),
            turn=query.key.turn,
            kind="trunk" if self.config.thinking == "none" else "branch",
        )
        memory.segments.append(reply)
        if not self._private:
            memory.trunk = len(memory.segments) - 1
        elif self._history == "drop_at_user":
            # An empty reply (refused by a full slot) leaves no line that could go on.
            memory.inner = len(memory.segments) - 1 if len(ids) else -1
