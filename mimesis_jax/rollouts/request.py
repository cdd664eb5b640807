"""What an engine is configured by, what it is asked for and what it answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np

from mimesis_jax.rollouts import sampling


@dataclasses.dataclass(frozen=True)
class Config:
    """slots: conversations resident at once (S). length: most tokens of a conversation with its
    reply. block: tokens decoded between two looks at the queue. enough: while somebody waits for a
    slot, a block ends early when that many replies have ended. buckets: prefill lengths that are
    compiled, ascending. rows: numbers of slots that are prefilled or decoded together, ascending
    (all slots is always one). spans: lengths of conversations up to which alone attention reads,
    ascending (the whole length is always one). stops: most stop ids of a request. share: fewest
    tokens that new conversations must have in common to be prefilled once for all, 0 for whole
    prompts only (a prompt computed in two pieces differs in its last bits from one in one piece).
    """

    slots: int = 64
    length: int = 256
    block: int = 8
    buckets: tuple[int, ...] = (16, 48)
    rows: tuple[int, ...] = (24,)
    stops: int = 4
    spans: tuple[int, ...] = ()
    enough: int = 1 << 30
    share: int = 0

    def __post_init__(self):
        if self.slots < 1 or self.block < 1 or self.length < 1 or self.enough < 1:
            raise ValueError(f"slots, block, length and enough must be positive: {self}")
        if not self.buckets or list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"buckets {self.buckets} must be ascending lengths")
        if list(self.rows) != sorted(set(self.rows)) or min(self.rows, default=1) < 1:
            raise ValueError(f"rows {self.rows} must be ascending numbers of slots, from 1 on")
        if list(self.spans) != sorted(set(self.spans)) or min(self.spans, default=1) < 1:
            raise ValueError(f"spans {self.spans} must be ascending lengths, from 1 on")
        if self.share < 0:
            raise ValueError(f"share {self.share} must be a number of tokens, 0 for whole prompts")


@dataclasses.dataclass(frozen=True)
class Request:
    """A reply is asked for.

    conversation: names the state on the device.
    extend: ids the trunk grows by before the reply. header: ids fed after them, on the branch.
    private: roll back to the trunk afterwards (header and reply are then forgotten).
    onward: go on from the conversation's last private reply instead: `extend` is fed on its branch
      and the trunk stays (a round of calls and results, whose reasoning stays in context).
    stream: (stream, goal, copy, turn), the name of the request's random stream.
    limit: most sampled tokens. stop: ids that end the reply (the id is part of it).
    ban, ban_until: `ban` may not be sampled before that many tokens (minimum thinking).
    """

    conversation: Hashable
    extend: Sequence[int]
    header: Sequence[int]
    private: bool
    stream: tuple[int, int, int, int]
    stop: tuple[int, ...]
    limit: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    ban: int = sampling.NO_BAN
    ban_until: int = 0
    onward: bool = False

    def check(self, stops: int) -> None:
        """Raises ValueError naming what could never run; stops: most stop ids of the engine."""
        if self.limit < 1:
            raise ValueError(f"limit {self.limit}: a reply needs at least one token")
        if self.onward and not self.private:
            raise ValueError("onward=True goes on on a private branch: ask with private=True too")
        if len(self.stop) > stops:
            raise ValueError(
                f"{len(self.stop)} stop ids, this engine takes {stops}: raise Config.stops"
            )
        if not self.temperature >= 0 or not 0 < self.top_p or not 0 <= self.min_p <= 1:
            raise ValueError(
                f"temperature {self.temperature}, top_p {self.top_p}, min_p {self.min_p}: use a "
                "temperature of at least 0, top_p above 0 (1: off), min_p from 0 (off) to 1"
            )
        if self.top_k < 0:
            raise ValueError(f"top_k {self.top_k}: use 0 (off) or a number of ids")


@dataclasses.dataclass(frozen=True)
class Completion:
    """A reply: ids [n] int32 (stop id included), logp and behaviour [n] float32 (see
    sampling.draw), free [n] bool, versions [n] int32 of the weights that sampled each token.
    stopped: a stop id was sampled; otherwise it ran into its limit (`full`: into the slot's
    length). version: of the weights that ended it."""

    request: Request
    ids: np.ndarray
    logp: np.ndarray
    behaviour: np.ndarray
    free: np.ndarray
    stopped: bool
    full: bool
    version: int
    versions: np.ndarray | None = None


@dataclasses.dataclass
class Running:
    """A request on its way: what has been sampled, and how far it may go.

    placed: its ids are on its conversation's line already (it is being rebuilt). since: when it
    was submitted, in seconds of a monotonic clock.
    """

    request: Request
    since: float = 0.0
    limit: int = 0
    placed: bool = False
    ids: list[int] = dataclasses.field(default_factory=list)
    logp: list[float] = dataclasses.field(default_factory=list)
    behaviour: list[float] = dataclasses.field(default_factory=list)
    free: list[bool] = dataclasses.field(default_factory=list)
    versions: list[int] = dataclasses.field(default_factory=list)

    def complete(self, version: int) -> Completion:
        ids = np.asarray(self.ids, np.int32)
        stopped = len(ids) > 0 and int(ids[-1]) in self.request.stop
        return Completion(
            request=self.request,
            ids=ids,
            logp=np.asarray(self.logp, np.float32),
            behaviour=np.asarray(self.behaviour, np.float32),
            free=np.asarray(self.free, bool),
            stopped=stopped,
            full=self.limit < self.request.limit and not stopped,
            version=version,
            versions=np.asarray(self.versions, np.int32),
        )
