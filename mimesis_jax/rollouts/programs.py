"""The engine's compiled programs: prefill with roll-back and mark, copies, a block of decode steps.

They are module-level jits with the spec static, so every engine of one spec and one shape (agent,
simulator, evaluation users) shares the same compiled code.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp

from mimesis_jax.models import cache as caches
from mimesis_jax.models import heads
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import sampling, window


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
    real. done [R] bool: the reply ended in this block. steps: [] int32, steps taken.
    """

    token: jax.Array
    logp: jax.Array
    behaviour: jax.Array
    free: jax.Array
    count: jax.Array
    done: jax.Array
    steps: jax.Array


@functools.partial(jax.jit, static_argnames=("spec", "slots", "length"))
def start(spec: specs.Spec, slots: int, length: int) -> State:
    """An empty State."""
    cache = caches.init(spec, slots, length)
    hidden = jnp.zeros((slots, spec.width), jnp.float32)
    return State(cache, hidden, jnp.zeros(slots, jnp.int32))


def _rows(state: State, slots, span: int | None) -> State:
    """The state of some slots [R] only (None: of all), attention cut to `span` tokens."""
    cache = window.take(state.cache, slots, span)
    if slots is None:
        return State(cache, state.hidden, state.count)
    pick = lambda leaf: jnp.take(leaf, slots, axis=0, mode="clip")
    return State(cache, pick(state.hidden), pick(state.count))


def _back(state: State, slots, span: int | None, part: State) -> State:
    """Writes the rows back; rows past the last slot are dropped."""
    cache = window.put(state.cache, slots, span, part.cache)
    if slots is None:
        return State(cache, part.hidden, part.count)
    hidden = state.hidden.at[slots].set(part.hidden, mode="drop")
    return State(cache, hidden, state.count.at[slots].set(part.count, mode="drop"))


@functools.partial(jax.jit, static_argnames=("spec", "span"), donate_argnums=2)
def extend(spec, params, state: State, slots, feed: Feed, span: int | None = None) -> State:
    """Empties, rolls back, marks and feeds slots, in this order, row r being slot slots[r].

    slots: [R] int32, each slot once; S for a row that stands for none. R may be less than S: only
    these rows are computed. None: row r is slot r, R = S, and nothing is copied out and back.
    span: tokens that no fed slot exceeds afterwards; attention reads no further. None: all.
    Returns the State.
    """
    part = _rows(state, slots, span)
    cache = caches.reset(part.cache, feed.fresh)
    cache = caches.mark(caches.rollback(cache, feed.back), feed.mark)
    cache, hidden = caches.extend(spec, params, cache, feed.tokens, feed.count)
    hidden = jnp.where((feed.count > 0)[:, None], hidden.astype(jnp.float32), part.hidden)
    count = jnp.where(feed.begun >= 0, feed.begun, part.count)
    return _back(state, slots, span, State(cache, hidden, count))


@functools.partial(jax.jit, donate_argnums=0)
def copy(state: State, source: jax.Array, target: jax.Array) -> State:
    """Makes slot target[r] a copy of slot source[r], both [R] int32; a target of S is none."""
    part = _rows(state, source, None)
    return _back(state, target, None, part)


@functools.partial(jax.jit, static_argnames=("spec", "block", "span"), donate_argnums=2)
def decode(
    spec, params, state: State, slots, knobs: sampling.Knobs, stop, active, seed, enough,
    block: int, span: int | None = None,
):  # fmt: skip
    """Decodes up to `block` tokens in each active row, in one loop on the device.

    slots, span: as in `extend`. knobs: over R rows. stop: [R, n] int32 ids that end a reply (-1:
    none). active: [R] bool. seed: uint32. enough: int32; the block ends early when that many
    replies have ended. A reply ends at a stop id or at knobs.limit tokens. Its last id is not fed
    to the cache. Returns (State, Block over R rows).
    """
    whole, rows = state, active.shape[0]
    state = _rows(whole, slots, span)
    keys = sampling.streams(seed, knobs.stream)
    out = Block(
        token=jnp.zeros((rows, block), jnp.int32),
        logp=jnp.zeros((rows, block), jnp.float32),
        behaviour=jnp.zeros((rows, block), jnp.float32),
        free=jnp.zeros((rows, block), bool),
        count=jnp.zeros(rows, jnp.int32),
        done=jnp.zeros(rows, bool),
        steps=jnp.int32(0),
    )

    def body(carry):
        state, live, out = carry
        logits = heads.logits(spec, params, state.hidden)
        token, logp, behaviour, free = sampling.draw(logits, keys, state.count, knobs)
        count = state.count + live
        ended = live & (jnp.any(token[:, None] == stop, axis=-1) | (count >= knobs.limit))
        cache, hidden = caches.step(spec, params, state.cache, token, live & ~ended)
        hidden = jnp.where((live & ~ended)[:, None], hidden.astype(jnp.float32), state.hidden)
        put = lambda old, new: jax.lax.dynamic_update_slice_in_dim(
            old, new[:, None].astype(old.dtype), out.steps, axis=1
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
        return State(cache, hidden, count), live & ~ended, out

    def going(carry):
        _, live, out = carry
        return (out.steps < block) & jnp.any(live) & (jnp.sum(out.done) < enough)

    state, _, out = jax.lax.while_loop(going, body, (state, active, out))
    return _back(whole, slots, span, state), out
