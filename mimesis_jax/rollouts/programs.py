"""The engine's compiled programs: prefill, a block of decode steps, mark and roll back.

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
from mimesis_jax.rollouts import sampling


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


@functools.partial(jax.jit, donate_argnums=0)
def reset(state: State, fresh: jax.Array, begun: jax.Array) -> State:
    """Empties the slots in `fresh` [S] bool; the slots in `begun` start a new reply."""
    count = jnp.where(begun, 0, state.count)
    return State(caches.reset(state.cache, fresh), state.hidden, count)


@functools.partial(jax.jit, static_argnames="spec", donate_argnums=2)
def extend(spec, params, state: State, slots, tokens: jax.Array, count: jax.Array):
    """Feeds the first count[r] of tokens [R, n] to slot slots[r].

    slots: [R] int32, each slot once; S for a row that stands for none. R may be less than S: only
    these rows are computed. None: row r is slot r, R = S, and nothing is copied out and back.
    Returns the State.
    """
    if slots is None:
        cache, hidden = caches.extend(spec, params, state.cache, tokens, count)
        fed = jnp.where((count > 0)[:, None], hidden.astype(jnp.float32), state.hidden)
        return State(cache, fed, state.count)
    part, hidden = caches.extend(spec, params, caches.take(state.cache, slots), tokens, count)
    cache = caches.put(state.cache, slots, part)
    fed = jnp.where(count > 0, slots, state.count.shape[0])
    hidden = state.hidden.at[fed].set(hidden.astype(jnp.float32), mode="drop")
    return State(cache, hidden, state.count)


@functools.partial(jax.jit, donate_argnums=0)
def mark(state: State, mask: jax.Array) -> State:
    """Marks the trunk of the slots in mask [S] bool."""
    return dataclasses.replace(state, cache=caches.mark(state.cache, mask))


@functools.partial(jax.jit, donate_argnums=0)
def rollback(state: State, mask: jax.Array) -> State:
    """Takes the slots in mask [S] bool back to their mark."""
    return dataclasses.replace(state, cache=caches.rollback(state.cache, mask))


@functools.partial(jax.jit, static_argnames=("spec", "block"), donate_argnums=2)
def decode(
    spec, params, state: State, slots, knobs: sampling.Knobs, stop, active, seed, block: int
):
    """Decodes up to `block` tokens in each active row, in one loop on the device.

    slots: [R] int32, the slot of each row, each once; S for a row that stands for none. R may be
    less than S: only these rows are computed. None: row r is slot r, R = S, and nothing is copied
    out and back. knobs: over R rows. stop: [R, n] int32 ids that end
    a reply (-1: none). active: [R] bool. seed: uint32.
    A reply ends at a stop id or at knobs.limit tokens. Its last id is not fed to the cache.
    Returns (State, Block over R rows).
    """
    whole, rows = state, active.shape[0]
    if slots is not None:
        state = State(
            caches.take(whole.cache, slots),
            jnp.take(whole.hidden, slots, axis=0, mode="clip"),
            jnp.take(whole.count, slots, mode="clip"),
        )
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
        return (out.steps < block) & jnp.any(live)

    state, _, out = jax.lax.while_loop(going, body, (state, active, out))
    if slots is None:
        return state, out
    return State(
        caches.put(whole.cache, slots, state.cache),
        whole.hidden.at[slots].set(state.hidden, mode="drop"),
        whole.count.at[slots].set(state.count, mode="drop"),
    ), out
