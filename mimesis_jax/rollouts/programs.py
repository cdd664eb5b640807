"""The engine's compiled programs: prefill with roll-back and mark, copies, a block of decode steps.

They are module-level jits with the spec static, so every engine of one spec and one shape (agent,
simulator, evaluation users) shares the same compiled code.

Over several devices (a decode layout) each program runs under shard_map: a device has slots of its
own and, along the tensor axis, some of the heads. Rows stand for slots of one device, so nothing of
a cache ever moves between devices; what a tensor group exchanges is one sum a layer part and the
logits. A block ends on each device by itself.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from mimesis_jax.models import cache as caches
from mimesis_jax.models import decoder, heads, parallel
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import handover, sampling, window
from mimesis_jax.sharding.layout import HEADS, ROWS, Layout


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """cache: models.cache.Cache over S slots. hidden: [S, D], of the last token fed to each slot.
    count: [S] int32, tokens its running reply has so far."""

    cache: caches.Cache
    hidden: jax.Array
    count: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Feed:
    """What rows are fed, and what happens to their slots before.

    tokens: [R, n] int32, of row r the first count[r] [R] int32. fresh: [R] bool, the slot is
    emptied. back: [R] bool, it returns to its mark. mark: [R] bool, it is marked where it stands
    then. begun: [R] int32, the tokens that its reply has from now on, -1 leaves them as they are.
    """

    tokens: jax.Array
    count: jax.Array
    fresh: jax.Array
    back: jax.Array
    mark: jax.Array
    begun: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Block:
    """One block of at most n tokens a row.

    token [R, n] int32, logp, behaviour [R, n] float32, free [R, n] bool: the first count[r] are
    real. done [R] bool: the reply ended in this block. steps: [G] int32, steps taken by each of the
    G devices that have slots of their own (1 without a layout).
    """

    token: jax.Array
    logp: jax.Array
    behaviour: jax.Array
    free: jax.Array
    count: jax.Array
    done: jax.Array
    steps: jax.Array


# --- over devices -------------------------------------------------------------------------------

ROW: Any = P(ROWS)
_HEADS: Any = P(None, ROWS, HEADS)  # keys, values and recurrent states: by slots and heads
_TAIL: Any = P(None, ROWS, None, HEADS)
_POINT = caches.Point(ROW, _HEADS, _TAIL)
STATE = State(caches.Cache(_HEADS, _HEADS, _POINT, _POINT), ROW, ROW)  # how a State is split


def _over(layout: Layout | None, body: Callable, into: tuple, out: Any) -> Callable:
    """`body` on every device of the layout, arguments and results split as told; alone as it is."""
    if layout is None:
        return body
    return jax.shard_map(body, mesh=layout.mesh, in_specs=into, out_specs=out, check_vma=False)


def _own(spec: specs.Spec, layout: Layout | None) -> tuple[specs.Spec, parallel.Device | None]:
    """What one device computes: its spec, and itself among the others."""
    if layout is None:
        return spec, None
    lies = layout.specs(decoder.axes(spec), decoder.abstract(spec))
    return parallel.local(spec, layout), parallel.device(spec, layout, lies)


def _lies(spec: specs.Spec, layout: Layout | None) -> Any:
    return None if layout is None else handover.lies(spec, layout)


def _logits(spec: specs.Spec, params, hidden: jax.Array, layout: Layout | None) -> jax.Array:
    """Logits [R, V] of rows whose tensor group has a part of the vocabulary each."""
    if layout is None or layout.rules()["vocab"] != HEADS or layout.size(HEADS) == 1:
        return heads.logits(spec, params, hidden)
    share = spec.vocab // layout.size(HEADS)
    shared = dataclasses.replace(spec, vocab=share, vocab_real=share)
    part = heads.logits(shared, params, hidden)
    out = jax.lax.all_gather(part, HEADS, axis=-1, tiled=True)
    return jnp.where(jnp.arange(spec.vocab) < spec.vocab_real, out, -jnp.inf)


# --- the programs -------------------------------------------------------------------------------


@functools.partial(jax.jit, static_argnames=("spec", "slots", "length", "layout"))
def start(spec: specs.Spec, slots: int, length: int, layout: Layout | None = None) -> State:
    """An empty State. layout: for decoding (handover.decoding); slots are split over its rows."""
    own, _ = _own(spec, layout)
    count = slots if layout is None else slots // layout.split_rows

    def body() -> State:
        cache = caches.init(own, count, length)
        hidden = jnp.zeros((count, own.width), jnp.float32)
        return State(cache, hidden, jnp.zeros(count, jnp.int32))

    return _over(layout, body, (), STATE)()


def _rows(state: State, slots, span: int | None) -> State:
    """The state of some slots [R] only (None: of all), attention cut to `span` tokens."""
    cache = window.take(state.cache, slots, span)
    if slots is None:
        return State(cache, state.hidden, state.count)
    pick = lambda leaf: jnp.take(leaf, slots, axis=0, mode="clip")
    return State(cache, pick(state.hidden), pick(state.count))


def _back(state: State, slots, span: int | None, part: State, marks: bool = False) -> State:
    """Writes the rows back; rows past the last slot are dropped. marks: their marks may have moved
    (else a second copy of every recurrent state need not be read and written)."""
    cache = window.put(state.cache, slots, span, part.cache)
    if not marks:
        cache = dataclasses.replace(cache, marked=state.cache.marked)
    if slots is None:
        return State(cache, part.hidden, part.count)
    hidden = state.hidden.at[slots].set(part.hidden, mode="drop")
    return State(cache, hidden, state.count.at[slots].set(part.count, mode="drop"))


@functools.partial(jax.jit, static_argnames=("spec", "span", "layout"), donate_argnums=2)
def extend(spec, params, state: State, slots, feed: Feed, span: int | None = None,
           layout: Layout | None = None) -> State:  # fmt: skip
    """Empties, rolls back, marks and feeds slots, in this order, row r being slot slots[r].

    slots: [R] int32, each slot once; S for a row that stands for none. R may be less than S: only
    these rows are computed. None: row r is slot r, R = S, and nothing is copied out and back.
    span: tokens that no fed slot exceeds afterwards; attention reads no further. None: all.
    layout: as in `start`; rows and slots are then split over the devices in order, and `slots` are
    numbers on their own device.
    Returns the State.
    """
    own, device = _own(spec, layout)

    def body(params, state: State, slots, feed: Feed) -> State:
        part = _rows(state, slots, span)
        cache = caches.reset(part.cache, feed.fresh)
        cache = caches.mark(caches.rollback(cache, feed.back), feed.mark)
        cache, hidden = caches.extend(own, params, cache, feed.tokens, feed.count, device)
        hidden = jnp.where((feed.count > 0)[:, None], hidden.astype(jnp.float32), part.hidden)
        count = jnp.where(feed.begun >= 0, feed.begun, part.count)
        return _back(state, slots, span, State(cache, hidden, count), marks=True)

    run = _over(layout, body, (_lies(spec, layout), STATE, ROW, ROW), STATE)
    return run(params, state, slots, feed)


@functools.partial(jax.jit, static_argnames=("span", "layout"), donate_argnums=0)
def copy(state: State, source: jax.Array, target: jax.Array, span: int | None = None,
         layout: Layout | None = None) -> State:  # fmt: skip
    """Makes slot target[r] a copy of slot source[r] (not of its mark), both [R] int32; a target of
    S is none.

    span: tokens that no source exceeds; no more are copied. layout: as in `extend`.
    """

    def body(state: State, source, target) -> State:
        return _back(state, target, span, _rows(state, source, span))

    return _over(layout, body, (STATE, ROW, ROW), STATE)(state, source, target)


@functools.partial(jax.jit, static_argnames=("spec", "block", "span", "layout"), donate_argnums=2)
def decode(
    spec, params, state: State, slots, knobs: sampling.Knobs, stop, active, seed, enough,
    block: int, span: int | None = None, layout: Layout | None = None,
):  # fmt: skip
    """Decodes up to `block` tokens in each active row, in one loop on the device.

    slots, span, layout: as in `extend`. knobs: over R rows. stop: [R, n] int32 ids that end a reply
    (-1: none). active: [R] bool. seed: uint32. enough: int32; the block ends early when that many
    replies (of a device) have ended. A reply ends at a stop id or at knobs.limit tokens. Its last
    id is not fed to the cache. Returns (State, Block over R rows).
    """
    own, device = _own(spec, layout)

    def body(params, state: State, slots, knobs, stop, active, seed, enough):
        part = _rows(state, slots, span)
        keys = sampling.streams(seed, knobs.stream)
        logits = lambda hidden: _logits(spec, params, hidden, layout)
        feed = lambda *fed: caches.step(own, params, fed[0], fed[1], fed[2], device)
        draw = functools.partial(_step, logits, feed, keys, knobs, stop)
        part, out = _block(draw, part, active, enough, block)
        return _back(state, slots, span, part), out

    into = (_lies(spec, layout), STATE, ROW, ROW, ROW, ROW, P(), P())
    run = _over(layout, body, into, (STATE, ROW))
    return run(params, state, slots, knobs, stop, active, seed, enough)


def _step(logits: Callable, feed: Callable, keys, knobs, stop, state: State, live):
    """One token for each live row. Returns the state after it, who ended, and what was drawn."""
    drawn = sampling.draw(logits(state.hidden), keys, state.count, knobs)
    token = drawn[0]
    count = state.count + live
    ended = live & (jnp.any(token[:, None] == stop, axis=-1) | (count >= knobs.limit))
    goes = live & ~ended
    cache, hidden = feed(state.cache, token, goes)
    hidden = jnp.where(goes[:, None], hidden.astype(jnp.float32), state.hidden)
    return State(cache, hidden, count), ended, drawn


def _block(draw: Callable, state: State, active, enough, block: int) -> tuple[State, Block]:
    """Up to `block` steps in one loop on the device."""
    rows = active.shape[0]
    out = Block(
        token=jnp.zeros((rows, block), jnp.int32),
        logp=jnp.zeros((rows, block), jnp.float32),
        behaviour=jnp.zeros((rows, block), jnp.float32),
        free=jnp.zeros((rows, block), bool),
        count=jnp.zeros(rows, jnp.int32),
        done=jnp.zeros(rows, bool),
        steps=jnp.zeros(1, jnp.int32),
    )

    def body(carry):
        state, live, out = carry
        state, ended, (token, logp, behaviour, free) = draw(state, live)
        put = lambda old, new: jax.lax.dynamic_update_slice_in_dim(
            old, new[:, None].astype(old.dtype), out.steps[0], axis=1
        )
        out = Block(
            token=put(out.token, token),
            logp=put(out.logp, logp),
            behaviour=put(out.behaviour, behaviour),
            free=put(out.free, free),
            count=out.count + live,
            done=out.done | ended,
            steps=out.steps + 1,
        )
        return state, live & ~ended, out

    def going(carry):
        _, live, out = carry
        return (out.steps[0] < block) & jnp.any(live) & (jnp.sum(out.done) < enough)

    state, _, out = jax.lax.while_loop(going, body, (state, active, out))
    return state, out
