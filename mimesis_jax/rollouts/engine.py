"""The decode engine: many conversations on S cache slots, tokens in, tokens out.

A conversation has a trunk (what it has been told so far). A request extends the trunk, then decodes
a reply. The reply is either on a branch (private: afterwards the slot is rolled back to the trunk,
whose next extension carries the reply's public part) or on the line itself (the reply stays).
Between requests a conversation keeps its slot; when slots run short the one that was idle longest
is evicted and rebuilt from its ids at its next request.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable, Sequence

import jax
import numpy as np

from mimesis_jax.models import cache as caches
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import programs, sampling


@dataclasses.dataclass(frozen=True)
class Config:
    """slots: conversations resident at once (S). length: most tokens of a conversation with its
    reply. block: tokens decoded between two looks at the queue. buckets: prefill lengths that are
    compiled, ascending. rows: numbers of slots that are prefilled or decoded together, ascending
    (all slots is always one). stops: most stop ids of a request."""

    slots: int = 64
    length: int = 256
    block: int = 8
    buckets: tuple[int, ...] = (16, 48)
    rows: tuple[int, ...] = (24,)
    stops: int = 4

    def __post_init__(self):
        if self.slots < 1 or self.block < 1 or self.length < 1:
            raise ValueError(f"slots, block and length must be positive: {self}")
        if not self.buckets or list(self.buckets) != sorted(set(self.buckets)):
            raise ValueError(f"buckets {self.buckets} must be ascending lengths")
        if list(self.rows) != sorted(set(self.rows)) or min(self.rows, default=1) < 1:
            raise ValueError(f"rows {self.rows} must be ascending numbers of slots, from 1 on")


def _fitting(sizes: Sequence[int], wanted: int) -> int:
    """The first of ascending sizes that is at least `wanted`, else the last."""
    return next((size for size in sizes if size >= wanted), sizes[-1])


@dataclasses.dataclass(frozen=True)
class Request:
    """A reply is asked for.

    conversation: names the state on the device.
    extend: ids the trunk grows by before the reply. header: ids fed after them, on the branch.
    private: roll back to the trunk afterwards (header and reply are then forgotten).
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


@dataclasses.dataclass(frozen=True)
class Completion:
    """A reply: ids [n] int32 (stop id included), logp and behaviour [n] float32 (see
    sampling.draw), free [n] bool. stopped: a stop id was sampled; otherwise it ran into its limit
    (`full`: into the slot's length)."""

    request: Request
    ids: np.ndarray
    logp: np.ndarray
    behaviour: np.ndarray
    free: np.ndarray
    stopped: bool
    full: bool
    version: int


@dataclasses.dataclass
class _Conversation:
    trunk: list[int] = dataclasses.field(default_factory=list)  # all ids of the line
    fed: int = 0  # how many of them are in the slot
    slot: int = -1
    used: int = 0  # tick of its last request, for eviction
    busy: bool = False


@dataclasses.dataclass
class _Running:
    request: Request
    ids: list[int] = dataclasses.field(default_factory=list)
    logp: list[float] = dataclasses.field(default_factory=list)
    behaviour: list[float] = dataclasses.field(default_factory=list)
    free: list[bool] = dataclasses.field(default_factory=list)
    full: bool = False


class Engine:
    """submit requests, `advance()` for completions; one jitted block of tokens a call."""

    def __init__(
        self, spec: specs.Spec, params, config: Config, *, seed: int = 0, version: int = 0
    ):
        self.spec, self.config, self.seed = spec, config, seed
        self._chairs: dict[Hashable, _Conversation] = {}
        self._waiting: collections.deque[Request] = collections.deque()
        self._running: dict[int, _Running] = {}
        self._owner: list[Hashable | None] = [None] * config.slots
        self._knobs = sampling.idle(config.slots)
        self._stop = np.full((config.slots, config.stops), -1, np.int32)
        self._state = programs.start(spec, config.slots, config.length)
        self._tick = 0
        self.counts: collections.Counter[str] = collections.Counter()
        self.params, self.version = params, version
        self._apart = None if params is None else caches.apart(params)  # None until the first load
        self._rows = tuple(r for r in config.rows if r < config.slots)

    # --- weights and conversations ------------------------------------------------------------

    def load(self, params, version: int) -> None:
        """New weights. State computed with the old ones is dropped; conversations are rebuilt."""
        if self._running or self._waiting:
            raise ValueError(
                f"load while {self.open_requests} requests are open: finish them first"
            )
        self.params, self.version = params, version
        self._apart = caches.apart(params)
        for conversation in self._chairs.values():
            self._release(conversation)

    def submit(self, request: Request) -> None:
        """Queues a request. Errors name what could never run."""
        conversation = self._chairs.setdefault(request.conversation, _Conversation())
        if conversation.busy:
            raise ValueError(f"conversation {request.conversation} already has an open request")
        if request.limit < 1:
            raise ValueError(f"limit {request.limit}: a reply needs at least one token")
        if len(request.stop) > self.config.stops:
            raise ValueError(
                f"{len(request.stop)} stop ids, this engine takes {self.config.stops}: "
                "raise Config.stops"
            )
        if not (len(conversation.trunk) + len(request.extend) + len(request.header)):
            raise ValueError(f"conversation {request.conversation} has no token to predict from")
        conversation.busy = True
        self._waiting.append(request)

    def close(self, conversation: Hashable) -> None:
        """Forgets a conversation and frees its slot."""
        known = self._chairs.pop(conversation, None)
        if known is not None:
            if known.busy:
                self._chairs[conversation] = known
                raise ValueError(
                    f"conversation {conversation} has an open request: finish it first"
                )
            self._release(known)

    def sampled(self, conversation: Hashable) -> list[int]:
        """Ids that the open reply of a conversation has so far; [] where none is being decoded."""
        known = self._chairs.get(conversation)
        reply = self._running.get(known.slot) if known is not None and known.busy else None
        return list(reply.ids) if reply else []

    @property
    def open_requests(self) -> int:
        return len(self._waiting) + len(self._running)

    def _release(self, conversation: _Conversation) -> None:
        if conversation.slot >= 0:
            self._owner[conversation.slot] = None
        conversation.slot, conversation.fed = -1, 0

    def warm(self) -> None:
        """Compiles every program of every shape, so that no later request compiles anything."""
        none = np.zeros(self.config.slots, bool)
        self._state = programs.reset(self._state, none, none)
        self._state = programs.rollback(programs.mark(self._state, none), none)
        for rows in (*self._rows, self.config.slots):
            nowhere = self._placed(np.full(rows, self.config.slots, np.int32))
            source = np.full(rows, self.config.slots - 1, np.int32)
            for n in self.config.buckets:
                self._state = programs.extend(
                    self.spec, self._apart, self._state, nowhere,
                    np.zeros((rows, n), np.int32), np.zeros(rows, np.int32),
                )  # fmt: skip
            self._state, _ = programs.decode(
                self.spec, self._apart, self._state, nowhere,
                jax.tree.map(lambda values, at=source: values[at], self._knobs),
                self._stop[source], np.zeros(rows, bool), np.uint32(self.seed), self.config.block,
            )  # fmt: skip

    def _placed(self, slots: np.ndarray) -> np.ndarray | None:
        """Slots of rows as the programs take them: None where row r is slot r."""
        return None if len(slots) == self.config.slots else slots

    def _rows_of(self, slots: Sequence[int]) -> tuple[np.ndarray, list[int]]:
        """The slot of each row that is computed for these slots (S: none), and the row of each of
        these slots. When all slots are computed, row r is slot r."""
        rows = _fitting((*self._rows, self.config.slots), len(slots))
        place = list(slots) if rows == self.config.slots else list(range(len(slots)))
        found = np.full(rows, self.config.slots, np.int32)
        found[place] = slots
        return found, place

    # --- one turn of the crank ----------------------------------------------------------------

    def advance(self) -> list[Completion]:
        """Admits what has room, decodes one block, returns the replies that ended."""
        done = self._admit()
        if self._running:
            done += self._decode()
        return done

    def _find_slot(self) -> int:
        for slot, owner in enumerate(self._owner):
            if owner is None:
                return slot
        idle = [c for c in self._chairs.values() if c.slot >= 0 and not c.busy]
        if not idle:
            return -1
        oldest = min(idle, key=lambda c: c.used)
        slot = oldest.slot
        self._release(oldest)
        self.counts["evictions"] += 1
        return slot

    def _admit(self) -> list[Completion]:
        """Gives waiting requests a slot and prefills them together."""
        refused: list[Completion] = []
        trunks: dict[int, list[int]] = {}
        headers: dict[int, list[int]] = {}
        fresh: list[int] = []
        marked: list[int] = []
        waiting, self._waiting = self._waiting, collections.deque()
        while waiting:
            request = waiting.popleft()
            conversation = self._chairs[request.conversation]
            room = self.config.length - len(conversation.trunk)
            room -= len(request.extend) + len(request.header)
            if room < 1:
                conversation.busy = False
                self.counts["refused_full"] += 1
                refused.append(self._complete(_Running(request, full=True)))
                continue
            if conversation.slot < 0:
                slot = self._find_slot()
                if slot < 0:  # those behind it may hold a slot already: let them pass
                    self._waiting.append(request)
                    continue
                conversation.slot, conversation.fed = slot, 0
                self._owner[slot] = request.conversation
                fresh.append(slot)
                self.counts["reprefilled_tokens"] += len(conversation.trunk)
            slot = conversation.slot
            self._tick += 1
            conversation.used = self._tick
            conversation.trunk.extend(int(i) for i in request.extend)
            trunk = conversation.trunk[conversation.fed :]
            self.counts["prefill_tokens"] += len(trunk) + len(request.header)
            if request.private:
                trunks[slot], headers[slot] = trunk, list(request.header)
                marked.append(slot)
            else:
                conversation.trunk.extend(int(i) for i in request.header)
                trunks[slot] = trunk + list(request.header)
            conversation.fed = len(conversation.trunk)
            self._running[slot] = _Running(request)
            self._set_knobs(slot, request, room)
        if trunks:
            self._prefill(fresh, trunks, marked, headers)
        return refused

    def _set_knobs(self, slot: int, request: Request, room: int) -> None:
        knobs = self._knobs
        knobs.temperature[slot] = request.temperature
        knobs.top_k[slot], knobs.top_p[slot] = request.top_k, request.top_p
        knobs.min_p[slot] = request.min_p
        knobs.limit[slot] = min(request.limit, room)
        knobs.ban[slot], knobs.ban_until[slot] = request.ban, request.ban_until
        knobs.stream[slot] = np.asarray(request.stream, np.int64).astype(np.int32)
        self._stop[slot] = -1
        self._stop[slot, : len(request.stop)] = request.stop

    def _mask(self, slots) -> np.ndarray:
        mask = np.zeros(self.config.slots, bool)
        mask[list(slots)] = True
        return mask

    def _prefill(self, fresh, trunks, marked, headers) -> None:
        self._state = programs.reset(self._state, self._mask(fresh), self._mask(trunks))
        self._feed(trunks)
        if marked:
            self._state = programs.mark(self._state, self._mask(marked))
            self._feed(headers)

    def _feed(self, ids: dict[int, list[int]]) -> None:
        """Extends slots by ragged runs of ids, in pieces of the smallest shapes that fit."""
        rest = {slot: run for slot, run in ids.items() if run}
        while rest:
            longest = max(len(run) for run in rest.values())
            n = _fitting(self.config.buckets, longest)
            slots, place = self._rows_of(list(rest))
            tokens = np.zeros((len(slots), n), np.int32)
            count = np.zeros(len(slots), np.int32)
            for row, run in zip(place, rest.values(), strict=True):
                piece = run[:n]
                count[row] = len(piece)
                tokens[row, : len(piece)] = piece
            self._state = programs.extend(
                self.spec, self._apart, self._state, self._placed(slots), tokens, count
            )
            self.counts["prefill_calls"] += 1
            rest = {slot: run[n:] for slot, run in rest.items() if len(run) > n}

    def _decode(self) -> list[Completion]:
        """One block on as few rows as hold all running slots."""
        running = list(self._running.items())
        slots, place = self._rows_of([slot for slot, _ in running])
        rows = len(slots)
        source = np.minimum(slots, self.config.slots - 1)
        knobs = jax.tree.map(lambda values: values[source], self._knobs)
        active = slots < self.config.slots
        self._state, out = programs.decode(
            self.spec, self._apart, self._state, self._placed(slots), knobs, self._stop[source],
            active, np.uint32(self.seed), self.config.block,
        )  # fmt: skip
        out = jax.device_get(out)
        finished = []
        for row, (slot, reply) in zip(place, running, strict=True):
            n = int(out.count[row])
            reply.ids += out.token[row, :n].tolist()
            reply.logp += out.logp[row, :n].tolist()
            reply.behaviour += out.behaviour[row, :n].tolist()
            reply.free += out.free[row, :n].tolist()
            if out.done[row]:
                del self._running[slot]
                reply.full = bool(self._knobs.limit[slot] < reply.request.limit)
                finished.append((slot, reply))
        self.counts["decode_steps"] += int(out.steps)
        self.counts["decode_rows"] += int(out.steps) * rows
        self.counts["decoded_tokens"] += int(out.count.sum())
        return self._settle(finished)

    def _settle(self, finished: list[tuple[int, _Running]]) -> list[Completion]:
        """Rolls private replies back; a reply on the line keeps all but its last id in the slot."""
        back = [slot for slot, running in finished if running.request.private]
        if back:
            self._state = programs.rollback(self._state, self._mask(back))
        for _, running in finished:
            conversation = self._chairs[running.request.conversation]
            conversation.busy = False
            if not running.request.private:
                conversation.trunk.extend(running.ids)
                conversation.fed = len(conversation.trunk) - 1  # the last id was never fed
        return [self._complete(running) for _, running in finished]

    def _complete(self, running: _Running) -> Completion:
        ids = np.asarray(running.ids, np.int32)
        stopped = len(ids) > 0 and int(ids[-1]) in running.request.stop
        return Completion(
            request=running.request,
            ids=ids,
            logp=np.asarray(running.logp, np.float32),
            behaviour=np.asarray(running.behaviour, np.float32),
            free=np.asarray(running.free, bool),
            stopped=stopped,
            full=running.full and not stopped,
            version=self.version,
        )
