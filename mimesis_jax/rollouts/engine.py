"""The decode engine: many conversations on S cache slots, tokens in, tokens out.

A conversation has a trunk (what it has been told so far). A request extends the trunk, then decodes
a reply. The reply is either on a branch (private: the slot then goes back to the trunk, whose next
extension carries the reply's public part) or on the line itself (the reply stays). A round of calls
and results may go on on the branch (onward) before the slot goes back.
Between requests a conversation keeps its slot; when slots run short the one that was idle longest
is evicted and rebuilt from its ids at its next request.
"""

from __future__ import annotations

import collections
import time
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import handover, prefill, programs, request, rows, sampling, slots
from mimesis_jax.runs import checkpoint
from mimesis_jax.sharding.layout import Layout

Config = request.Config
Request = request.Request
Completion = request.Completion
NEVER = 1 << 30


class Engine:
    """submit requests, `advance()` for completions; one jitted block of tokens a call.

    counts: see rollouts.measures, which makes metrics of them.
    """

    def __init__(
        self, spec: specs.Spec, params, config: Config, *, seed: int = 0, version: int = 0,
        frozen: str | None = None, layout: Layout | None = None,
    ):  # fmt: skip
        """params: None until the first load. frozen: content hash (runs.checkpoint) that whatever
        is loaded must have; a simulator's engine takes no other weights. layout: a mesh of this
        process's devices; slots are split over data x fsdp, heads over tensor (None: one device).
        """
        self._layout = None if layout is None else handover.decoding(layout)
        self._groups = 1 if self._layout is None else self._layout.split_rows
        if config.slots % self._groups:
            up = -(-config.slots // self._groups) * self._groups
            raise ValueError(
                f"{config.slots} slots cannot be split over the {self._groups} devices of data x "
                f"fsdp: use --config.engine.slots={up}"
            )
        self.spec, self.config, self.seed, self.frozen = spec, config, seed, frozen
        self._known: dict[Hashable, slots.Conversation] = {}
        self._waiting: collections.deque[request.Running] = collections.deque()
        self._running: dict[int, request.Running] = {}
        self._slots = slots.Slots(config.slots, self._groups)
        self._knobs = sampling.idle(config.slots)
        self._stop = np.full((config.slots, config.stops), -1, np.int32)
        self._depth = np.zeros(config.slots, np.int64)  # tokens in each slot, branch included
        self._state = programs.start(spec, config.slots, config.length, self._layout)
        local = config.slots // self._groups
        sizes = (*(count for count in config.rows if count < local), local)
        self._rows = rows.Book(self._groups, local, sizes)
        self._spans = (*(s for s in config.spans if s < config.length), config.length)
        self.counts: collections.Counter[str] = collections.Counter()
        self._params: Any = None  # as the programs read them; the caller's are not kept
        self.version = version
        if params is not None:
            self.load(params, version)

    # --- weights and conversations ------------------------------------------------------------

    def load(self, params, version: int, *, midway: bool = False) -> None:
        """New weights. State computed with the old ones is dropped; conversations are rebuilt.

        midway: open replies go on under the new weights, from the tokens that they have (each
        token's version is in its completion); otherwise open requests are refused.
        Raises ValueError for open requests, and when the weights are not the frozen ones.
        """
        if self.open_requests and not midway:
            raise ValueError(
                f"load while {self.open_requests} requests are open: finish them first, or load "
                "midway"
            )
        if self.frozen is not None and (found := checkpoint.content_hash(params)) != self.frozen:
            raise ValueError(
                f"these weights have the hash {found[:12]}, this engine is frozen to "
                f"{self.frozen[:12]}: load the model that it was made for"
            )
        self._params = None  # the old copy goes before the new one comes
        self._params, self.version = handover.local(self.spec, params, self._layout), version
        self._waiting.extendleft(sorted(self._running.values(), key=lambda r: -r.since))
        self._running.clear()
        for conversation in self._known.values():
            self._slots.release(conversation)

    def submit(self, asked: Request) -> None:
        """Queues a request. Errors name what could never run."""
        conversation = self._known.get(asked.conversation) or slots.Conversation(asked.conversation)
        if conversation.busy:
            raise ValueError(f"conversation {asked.conversation} already has an open request")
        asked.check(self.config.stops)
        fed = len(asked.extend) + len(asked.header)
        if not fed and (asked.private or not conversation.trunk):
            raise ValueError(
                f"conversation {asked.conversation} has no token to predict from: extend it, or "
                "give a header"
            )
        if asked.onward and not conversation.branch:
            raise ValueError(
                f"conversation {asked.conversation} has no private reply to go on from: ask with "
                "onward=False"
            )
        self._known[asked.conversation] = conversation
        self._slots.hold(conversation)
        self._waiting.append(request.Running(asked, since=time.monotonic()))

    def close(self, conversation: Hashable) -> None:
        """Forgets a conversation and frees its slot."""
        known = self._known.get(conversation)
        if known is None:
            return
        if known.busy:
            raise ValueError(f"conversation {conversation} has an open request: finish it first")
        self._slots.release(known)
        del self._known[conversation]

    def sampled(self, conversation: Hashable) -> list[int]:
        """Ids that the open reply of a conversation has so far; [] where none is being decoded."""
        known = self._known.get(conversation)
        reply = self._running.get(known.slot) if known is not None and known.busy else None
        return list(reply.ids) if reply else []

    @property
    def layout(self) -> Layout | None:
        """How its programs are laid over devices; None on one."""
        return self._layout

    @property
    def open_requests(self) -> int:
        return len(self._waiting) + len(self._running)

    @property
    def waiting(self) -> int:
        """Requests that have no slot yet."""
        return len(self._waiting)

    def warm(self) -> None:
        """Compiles every program of every shape, so that no later request compiles anything."""
        for count in self._rows.sizes:
            none = self._rows.choose([], count)
            for span in self._spans:
                self._state = programs.copy(
                    self._state, np.zeros_like(none.local), none.local, span, self._layout
                )
                for n in self.config.buckets:
                    self._extend(none, prefill.nothing(len(none.local), n), span)
                self._block(none, span, NEVER)

    # --- one turn of the crank ----------------------------------------------------------------

    def advance(self) -> list[Completion]:
        """Admits what has room, decodes one block, returns the replies that ended."""
        done = self._admit() if self._waiting else []
        if self._running:
            done += self._decode()
        return done

    def _admit(self) -> list[Completion]:
        """Gives waiting requests a slot and prefills them together."""
        began = time.perf_counter()
        refused: list[Completion] = []
        starts: list[prefill.Start] = []
        for running in self._in_line():
            conversation = self._known[running.request.conversation]
            if not running.placed and not self._fits(running, conversation):
                self.counts["refused_full"] += 1
                self._slots.rest(conversation)
                refused.append(running.complete(self.version))
                continue
            if conversation.slot < 0 and not self._slots.place(conversation):
                self._waiting.append(running)
                continue
            starts.append(self._start(running, conversation))
        self.counts["evictions"] = self._slots.evictions
        if starts:
            plan = prefill.plan(starts, self.config.share, self._rows.local)
            self.counts["shared_tokens"] += plan.saved
            for stage in plan.stages:
                self._feed(stage.feeds)
                self._copy(stage.copies)
        self.counts["admit_microseconds"] += int(1e6 * (time.perf_counter() - began))
        return refused

    def _in_line(self) -> Iterator[request.Running]:
        """Those whose conversation holds a slot first: they cost nobody a slot."""
        waiting, self._waiting = self._waiting, collections.deque()
        resident = lambda r: self._known[r.request.conversation].slot >= 0
        yield from [r for r in waiting if resident(r)]
        yield from [r for r in waiting if not resident(r)]

    def _fits(self, running: request.Running, conversation: slots.Conversation) -> bool:
        asked = running.request
        room = self.config.length - len(conversation.trunk)
        room -= len(asked.extend) + len(asked.header)
        room -= len(conversation.branch) if asked.onward else 0
        running.limit = max(0, min(asked.limit, room))
        return room >= 1

    def _start(self, running: request.Running, conversation: slots.Conversation) -> prefill.Start:
        """Puts a request's ids on its line and says what its slot has to be fed."""
        asked, slot = running.request, conversation.slot
        fresh = conversation.fed == 0
        onward = asked.onward and not fresh  # the slot stands on the branch that it goes on on
        held = len(conversation.branch) - 1 if onward else 0  # the last id was never fed
        again = len(conversation.trunk) if fresh else 0  # was computed once, and lost
        again += max(0, len(conversation.branch) - 1) if fresh and asked.onward else 0
        self.counts["resident_tokens"] += conversation.fed + held
        if running.placed:
            again += len(running.ids) + (len(asked.header) if asked.private else 0)
        elif asked.onward:
            conversation.branch.extend(int(i) for i in asked.extend)
        else:
            conversation.branch.clear()
            conversation.trunk.extend(int(i) for i in asked.extend)
            if not asked.private:
                conversation.trunk.extend(int(i) for i in asked.header)
        inner = [*conversation.branch[held:], *asked.header, *running.ids]
        start = prefill.Start(
            slot=slot, at=conversation.fed + held, fresh=fresh,
            back=conversation.branched and not onward, private=asked.private,
            mark=asked.private and not onward, begun=len(running.ids),
            shareable=fresh and not running.ids,
            trunk=conversation.trunk[conversation.fed :] + ([] if asked.private else running.ids),
            branch=inner if asked.private else [],
        )  # fmt: skip
        self.counts["reprefilled_tokens"] += again
        self.counts["prefill_tokens"] += len(start.trunk) + len(start.branch)
        self.counts["requests"] += not running.placed
        waited = time.monotonic() - running.since
        self.counts["wait_slot_microseconds"] += 0 if running.placed else int(1e6 * waited)
        running.placed = True
        conversation.fed, conversation.branched = len(conversation.trunk), asked.private
        self._depth[slot] = start.at + len(start.trunk) + len(start.branch)
        self._running[slot] = running
        self._set_knobs(slot, running)
        return start

    def _set_knobs(self, slot: int, running: request.Running) -> None:
        knobs, asked = self._knobs, running.request
        knobs.temperature[slot] = asked.temperature
        knobs.top_k[slot], knobs.top_p[slot] = asked.top_k, asked.top_p
        knobs.min_p[slot] = asked.min_p
        knobs.limit[slot] = running.limit
        knobs.ban[slot], knobs.ban_until[slot] = asked.ban, asked.ban_until
        knobs.stream[slot] = np.asarray(asked.stream, np.int64).astype(np.int32)
        self._stop[slot] = -1
        self._stop[slot, : len(asked.stop)] = asked.stop

    # --- programs on rows ---------------------------------------------------------------------

    def _feed(self, feeds: Sequence[prefill.Feed]) -> None:
        """Extends slots by ragged runs of ids, in pieces of the smallest shapes that fit."""
        rest = list(feeds)
        while rest:
            n = rows.fitting(self.config.buckets, max(len(feed.ids) for feed in rest))
            these = self._rows.of([feed.slot for feed in rest])
            deepest = max(feed.at + min(n, len(feed.ids)) for feed in rest)
            fed = prefill.arrays(rest, these.place, len(these.local), n)
            self._extend(these, fed, rows.fitting(self._spans, deepest))
            self.counts["prefill_calls"] += 1
            self.counts["prefill_cells"] += len(these.local) * n
            rest = [feed.after(n) for feed in rest if len(feed.ids) > n]

    def _extend(self, these: rows.Rows, feed: programs.Feed, span: int) -> None:
        at = None if these.whole else these.local
        self._state = programs.extend(
            self.spec, self._params, self._state, at, feed, span, self._layout
        )

    def _copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies slots, (from, to) each, as far as the fullest of them reaches."""
        while pairs:
            depth = max(self._depth[a] for a, _ in pairs)
            source, target, later = self._rows.copies(pairs)
            span = rows.fitting(self._spans, depth)
            self._state = programs.copy(self._state, source, target, span, self._layout)
            self.counts["copies"] += len(pairs) - len(later)
            pairs = later

    def _block(self, these: rows.Rows, span: int, enough: int) -> programs.Block:
        at = None if these.whole else these.local
        knobs = jax.tree.map(lambda values: values[these.slots], self._knobs)
        self._state, out = programs.decode(
            self.spec, self._params, self._state, at, knobs, self._stop[these.slots], these.real,
            np.uint32(self.seed), np.int32(enough), self.config.block, span, self._layout,
        )  # fmt: skip
        return out

    def _decode(self) -> list[Completion]:
        """One block on as few rows as hold all running slots."""
        began = time.perf_counter()
        running = list(self._running.items())
        these = self._rows.of([slot for slot, _ in running])
        deepest = max(self._depth[slot] for slot, _ in running) + self.config.block
        span = rows.fitting(self._spans, deepest)
        enough = self.config.enough if self._waiting else NEVER
        out = jax.device_get(self._block(these, span, enough))
        took = time.perf_counter()
        finished = []
        for row, (slot, reply) in zip(these.place, running, strict=True):
            n = int(out.count[row])
            reply.ids += out.token[row, :n].tolist()
            reply.logp += out.logp[row, :n].tolist()
            reply.behaviour += out.behaviour[row, :n].tolist()
            reply.free += out.free[row, :n].tolist()
            reply.versions += [self.version] * n
            self._depth[slot] += n
            if out.done[row]:
                finished.append(self._ended(slot, reply))
        self.counts["decode_steps"] += int(out.steps.max())
        self.counts["decode_rows"] += int(out.steps.sum()) * (len(these.local) // self._groups)
        self.counts["slot_steps"] += int(out.steps.max()) * self.config.slots
        self.counts["decoded_tokens"] += int(out.count.sum())
        self.counts["blocks"] += 1
        self.counts["decode_microseconds"] += int(1e6 * (took - began))
        self.counts["settle_microseconds"] += int(1e6 * (time.perf_counter() - took))
        return finished

    def _ended(self, slot: int, reply: request.Running) -> Completion:
        """A private reply goes back to the trunk before that is fed again; one on the line keeps
        all but its last id in the slot."""
        del self._running[slot]
        knobs = self._knobs  # an empty slot asks for no truncation, which costs all rows a sort
        knobs.top_k[slot], knobs.top_p[slot], knobs.min_p[slot] = 0, 1.0, 0.0
        conversation = self._known[reply.request.conversation]
        if reply.request.private:
            conversation.branch.extend([*map(int, reply.request.header), *reply.ids])
        else:
            conversation.trunk.extend(reply.ids)
            conversation.fed = len(conversation.trunk) - 1  # the last id was never fed
        self._slots.rest(conversation)
        return reply.complete(self.version)
