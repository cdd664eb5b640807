"""The nouns: turns and views; segments, trees and the forest; queries, replies, episodes.

One idea holds them together. A dialogue is one public trunk; what one chair thinks and the other
may not see is a branch that forks off the trunk and never rejoins it.

Axis letters, used in every docstring: P goals, G rollouts per goal, B rows, T tokens of a row,
M learned tokens of a row, N segments, C chunk, D width, H heads, K kv heads, V vocabulary,
S cache slots, L layers.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import jax
import numpy as np

Chair = Literal["user", "agent"]
Author = Literal["system", "user", "agent", "tool"]
CHAIRS: tuple[Chair, ...] = ("user", "agent")
AUTHORS: tuple[Author, ...] = ("system", "user", "agent", "tool")


# --- text -------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Turn:
    """One contribution to a dialogue.

    author: who made it.
    public: what is said.
    private: what its author's chair thought before saying it (None: no thought was recorded,
      "" : an empty thought). Only user and agent turns have one.
    only: the one chair that may read `public` (a system brief, a tool call, a tool result);
      None when both may.
    """

    author: Author
    public: str
    private: str | None = None
    only: Chair | None = None

    def __post_init__(self):
        if self.author not in AUTHORS:
            raise ValueError(f"author {self.author!r} is not one of {', '.join(AUTHORS)}")
        if self.only is not None and self.only not in CHAIRS:
            raise ValueError(f"only={self.only!r} is not a chair: use 'user', 'agent' or None")
        if self.private is not None and self.author not in CHAIRS:
            raise ValueError(
                f"a {self.author} turn has no private text: put it on the chair's turn"
            )
        if self.author in CHAIRS and self.only not in (None, self.author):
            raise ValueError(f"a {self.author} turn cannot be for the {self.only} chair only")
        if self.author == "tool" and self.only == "user":
            raise ValueError(
                "tools answer the agent: a tool turn cannot be for the user chair only"
            )


Dialogue = tuple[Turn, ...]


def view(dialogue: Sequence[Turn], chair: Chair) -> Dialogue:
    """What `chair` may see of a dialogue: its own private text, never the other's.

    Turns that are for the other chair only are left out; the other chair's private text is removed.
    """
    if chair not in CHAIRS:
        raise ValueError(f"chair {chair!r} is not one of {', '.join(CHAIRS)}")
    seen = (turn for turn in dialogue if turn.only in (None, chair))
    return tuple(
        turn
        if turn.author == chair or turn.private is None
        else dataclasses.replace(turn, private=None)
        for turn in seen
    )


def public(dialogue: Sequence[Turn]) -> Dialogue:
    """What both chairs may see: no private text and no turn that is for one chair only."""
    return tuple(dataclasses.replace(turn, private=None) for turn in dialogue if turn.only is None)


# --- segments, trees, the forest --------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Segment:
    """A run of token ids whose context is its parent's whole path, then its own earlier tokens.

    ids: [n] int32.
    parent: index in its tree of the parent segment, -1 for a root. Parents come before children.
    scored: [n] bool; the head is run for these tokens (their log-prob is wanted or learned).
    weight: [n] float32 policy or likelihood loss weight; 0 on unscored tokens.
    old_logp: [n] float32 log-prob under the sampling policy (0 where not sampled).
    advantage: [n] float32.
    gate: [n] float32 CSD gate in (0, 1).
    coached: [n] float32 CSD mask m_t: 1 where the turn has a note.
    turn: index of the dialogue turn it belongs to (named in errors; credit is given by it).
    kind: trunk (public), branch (private), teacher (a coached copy; scoring forest only).
    """

    ids: np.ndarray
    parent: int
    scored: np.ndarray
    weight: np.ndarray
    old_logp: np.ndarray
    advantage: np.ndarray
    gate: np.ndarray
    coached: np.ndarray
    turn: int = 0
    kind: Literal["trunk", "branch", "teacher"] = "trunk"

    def __len__(self) -> int:
        return len(self.ids)


def segment(
    ids,
    parent: int = -1,
    *,
    scored=None,
    weight=None,
    old_logp=None,
    advantage=None,
    gate=None,
    coached=None,
    turn: int = 0,
    kind="trunk",
) -> Segment:
    """A Segment with every per-token array filled in (scored defaults to False, floats to 0).

    A scalar is broadcast over the tokens; `weight` defaults to 1 where scored.
    """
    ids = np.asarray(ids, np.int32)

    def fill(value, dtype):
        return np.broadcast_to(np.asarray(0 if value is None else value, dtype), ids.shape).copy()

    scored = fill(scored, bool)
    weight = scored.astype(np.float32) if weight is None else fill(weight, np.float32) * scored
    return Segment(
        ids=ids,
        parent=parent,
        scored=scored,
        weight=weight,
        old_logp=fill(old_logp, np.float32),
        advantage=fill(advantage, np.float32),
        gate=fill(gate, np.float32),
        coached=fill(coached, np.float32),
        turn=turn,
        kind=kind,
    )


Tree = tuple[Segment, ...]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Blocks:
    """Which blocks of keys each block of queries of a long row may see; see forest.blocks.

    A row of T tokens is T / size blocks; P is the count of all pairs (query block, key block before
    it or equal), so that every row of that length has arrays of one shape.

    query, key: [B, P] int32; the pairs, ordered by query block, its own block first; entries from
      `count` on repeat the last query block and mean nothing.
    count: [B] int32; how many entries count.
    edges: [B, E] int32, or None; entries of the list whose block is not all visible, padded with
      P (only the kernel "splash" reads it; E is a power of two).
    size: tokens a block (static). kernel: "loop" or "splash", who reads the list (static).
    """

    query: jax.Array
    key: jax.Array
    count: jax.Array
    edges: jax.Array | None
    size: int = dataclasses.field(metadata={"static": True})
    kernel: Literal["loop", "splash"] = dataclasses.field(metadata={"static": True}, default="loop")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Forest:
    """Segments packed into fixed-shape rows in depth-first pre-order, branch before continuation.

    tokens: [B, T] int32; a run of segments (forest.order) begins a chunk, or goes on inside one.
    valid: [B, T] bool; a real token.
    position: [B, T] int32; depth on its path, from 0 at a root (RoPE).
    last: [B, T] int32; end (exclusive) of the subtree of the token's segment: t attends to s
      exactly when s <= t < last[s] (and both are valid).
    halo: [B, T/C, 3] int32; the three tokens before a chunk on its path, oldest first; T = none.
    load: [B, T/C] int32; state the chunk starts from: -1 carry on, `slots` the zero state,
      0..slots-1 a slot.
    store: [B, T/C] int32; slot that keeps the chunk's end state, -1 none.
    kept: [B, T/C] int32; tokens of the chunk, 1 to C, before the state that it stores; None: all.
    source: [B, M] int32; index in the row of the hidden state that predicts a learned token
      (the predecessor on its path, not t - 1). 0 on padding.
    target: [B, M] int32; the learned token's id.
    weight, old_logp, advantage, gate, coached: [B, M] float32; see Segment. All 0 on padding.
    slots: how many state slots the row needs at most (static).
    blocks: the attention's block lists of a long row; None: the mask is dense.
    """

    tokens: jax.Array
    valid: jax.Array
    position: jax.Array
    last: jax.Array
    halo: jax.Array
    load: jax.Array
    store: jax.Array
    source: jax.Array
    target: jax.Array
    weight: jax.Array
    old_logp: jax.Array
    advantage: jax.Array
    gate: jax.Array
    coached: jax.Array
    slots: int = dataclasses.field(metadata={"static": True}, default=2)
    blocks: Blocks | None = None
    kept: jax.Array | None = None

    @property
    def chunk(self) -> int:
        return self.tokens.shape[-1] // self.load.shape[-1]


# --- asking and answering ---------------------------------------------------------------------


class Kind(enum.StrEnum):
    """What a reply turned out to be. All but TEXT and STOP are counted and never scored."""

    TEXT = "text"  # an ordinary public message
    STOP = "stop"  # the conversation ends with this reply; `reason` says why
    EMPTY = "empty"  # nothing was said
    UNPARSED = "unparsed"  # the format was broken (an unclosed thought, a cut reply)
    REFUSED = "refused"  # stepped out of the role on safety grounds
    FAILED = "failed"  # transport, time-out or an exception; `reason` says which


@dataclasses.dataclass(frozen=True)
class Sample:
    """What a model generated for one reply, in tokens.

    header: [h] int32 ids fed after the trunk and before the sample (role marker, think marker).
    ids: [n] int32 sampled ids, the stop id included when one was sampled.
    logp: [n] float32 log-probs under the training distribution (temperature and vocabulary mask).
    free: [n] bool; False where a token was forced, so it must weigh nothing.
    version: weight version that ended it. versions: [n] int32, the one that sampled each token
      (None where the sampler does not say).
    """

    header: np.ndarray
    ids: np.ndarray
    logp: np.ndarray
    free: np.ndarray
    version: int = 0
    versions: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Key:
    """Names a reply: the random stream of its sampling depends on this and nothing else."""

    stream: int  # step or phase: separates two visits of the same goal
    goal: int
    copy: int
    turn: int = 0

    @property
    def episode(self) -> tuple[int, int, int]:
        return (self.stream, self.goal, self.copy)


@dataclasses.dataclass(frozen=True)
class Query:
    """A chair is asked for its next turn.

    turns: the dialogue so far as this chair may see it (types.view).
    goal: the gym's goal object; rule-based users read it, models only ever see `turns`.
    """

    key: Key
    chair: Chair
    turns: Dialogue
    goal: Any = None


@dataclasses.dataclass(frozen=True)
class Reply:
    kind: Kind
    public: str = ""
    private: str | None = None
    reason: str | None = None
    sample: Sample | None = None


Answer = tuple[Query, Reply]


@runtime_checkable
class Respond(Protocol):
    """Conversations in, replies out, whenever they are ready.

    `respond(queries)` takes the queries that are new and returns the answers that are ready now,
    to these or to earlier ones, in any order. Every query is answered exactly once; a call with no
    new query asks for what has become ready. A rule-based user answers at once; the decode engine
    answers as replies finish; a remote endpoint as they arrive. Failures are replies of kind
    FAILED, never exceptions.
    """

    def respond(self, queries: Sequence[Query]) -> Iterable[Answer]: ...


@runtime_checkable
class Seat(Respond, Protocol):
    """A Respond that holds a model: at the end of an episode it hands out what it computed."""

    def finish(self, episode: tuple[int, int, int]) -> Tree: ...


class Stop(enum.StrEnum):
    """Why an episode ended."""

    DONE = "done"  # the agent closed the case
    HANDED_OVER = "handed_over"  # the agent handed the case over
    LEFT = "left"  # the user left or stopped
    TURNS = "turns"  # out of turns
    LENGTH = "length"  # out of tokens
    AGENT_FORMAT = "agent_format"  # the agent's reply was empty or unparsed
    USER_FORMAT = "user_format"  # the user's reply was empty, unparsed or refused
    FAILED = "failed"  # a chair or the gym failed; `records["cause"]` says how


@dataclasses.dataclass(frozen=True)
class Feedback:
    """What a gym says after it was begun or stepped.

    turns: turns to append to the dialogue (briefs, tool results).
    next: the chair that speaks next, None when the episode is over.
    reward: reward of the agent's turn just taken.
    stop: why it is over (None while it goes on).
    """

    turns: tuple[Turn, ...] = ()
    next: Chair | None = None
    reward: float = 0.0
    stop: Stop | None = None


class Gym(Protocol):
    """A single-use environment. It knows users and tasks, never tokens."""

    goal: Any

    def begin(self) -> Feedback: ...

    def spoken(self, text: str) -> bool:
        """Whether the user hears this agent text (False: a tool call, for the agent chair only)."""
        ...

    def step(self, text: str) -> Feedback:
        """The agent said `text`."""
        ...

    def hear(self, reply: Reply) -> Feedback:
        """The user replied."""
        ...

    def outcome(self) -> dict[str, Any]:
        """Success (float in [0, 1]) under "success", and whatever is worth recording."""
        ...


@dataclasses.dataclass(frozen=True)
class Episode:
    """One finished dialogue.

    key: of its first turn. goal: the gym's goal object.
    dialogue: all turns, private text included.
    rewards: one per agent turn, in order (NaN: missing; masks the episode).
    stop: why it ended. outcome: the gym's record ("success" and more).
    trees: per learning chair, the segments that its seat computed.
    records: counts and causes worth keeping.
    """

    key: Key
    goal: Any
    dialogue: Dialogue
    rewards: tuple[float, ...]
    stop: Stop
    outcome: dict[str, Any]
    trees: dict[str, Tree] = dataclasses.field(default_factory=dict)
    records: dict[str, Any] = dataclasses.field(default_factory=dict)
