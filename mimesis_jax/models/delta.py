"""The gated delta rule: token by token, in chunks, and over a forest's chunks with state slots.

Per head, with a state S [Dk, Dv] that starts at zero (Gated DeltaNet, Yang et al. 2024, eq. 10):

    S = exp(g_t) S;  u_t = beta_t (v_t - S^T k_t);  S = S + k_t u_t^T;  o_t = S^T q_t

Everything here is fp32. Queries and keys arrive normalised and scaled.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from mimesis_jax.models import stacks

HIGHEST = jax.lax.Precision.HIGHEST


def step(
    state: jax.Array, q: jax.Array, k: jax.Array, v: jax.Array, beta: jax.Array, g: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """One token of the recurrence.

    state [B, H, Dk, Dv], q and k [B, H, Dk], v [B, H, Dv], beta and g [B, H] -> the new state and
    o [B, H, Dv]. Both products read the old state, in one pass: S'^T q = S^T q + (k q) u.
    """
    state = state * jnp.exp(g)[..., None, None]
    told = jnp.sum(state * k[..., None], axis=-2)
    asked = jnp.sum(state * q[..., None], axis=-2)
    u = beta[..., None] * (v - told)
    out = asked + jnp.sum(k * q, axis=-1, keepdims=True) * u
    return state + k[..., None] * u[..., None, :], out


# --- the inverse of a chunk's unit lower triangle ---------------------------------------------


def _matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.matmul(a, b, precision=HIGHEST)


def _blocks(a: jax.Array) -> jax.Array:
    """(I + a)^-1 by 2x2 blocks from size 1 up: [[P, 0], [R, Q]]^-1 = [[p, 0], [-q R p, q]]."""
    size = a.shape[-1]
    lead = a.shape[:-2]
    inverse = jnp.ones((*lead, size, 1, 1), a.dtype)
    width = 1
    while width < size:
        pairs = size // (2 * width)
        grid = a.reshape(*lead, pairs, 2 * width, pairs, 2 * width)
        index = jnp.arange(pairs)
        tiles = jnp.moveaxis(grid, -2, -3)[..., index, index, :, :]
        corner = tiles[..., width:, :width]
        halves = inverse.reshape(*lead, pairs, 2, width, width)
        upper, lower = halves[..., 0, :, :], halves[..., 1, :, :]
        cross = -_matmul(_matmul(lower, corner), upper)
        top = jnp.concatenate([upper, jnp.zeros_like(upper)], axis=-1)
        bottom = jnp.concatenate([cross, lower], axis=-1)
        inverse = jnp.concatenate([top, bottom], axis=-2)
        width *= 2
    return inverse.reshape(*lead, size, size)


@jax.custom_vjp
def inverse(a: jax.Array) -> jax.Array:
    """(I + a)^-1 for a strictly lower triangular a [..., C, C], C a power of two.

    Recursive 2x2 blocks stay accurate on repeated keys, where Newton-Schulz and the nilpotent
    product fail by orders of magnitude; solve_triangular under vmap is slow and can deadlock XLA's
    CPU runtime. The gradient is -X^T dX X^T, which needs no trace of the recursion.
    """
    return _blocks(a)


def _inverse_fwd(a):
    x = _blocks(a)
    return x, x


def _inverse_bwd(x, dx):
    turned = jnp.swapaxes(x, -1, -2)
    return (-_matmul(_matmul(turned, dx), turned),)


inverse.defvjp(_inverse_fwd, _inverse_bwd)


# --- chunks -----------------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Chunks:
    """What a chunk does to any state it may start from; leading axes [N, B, H], N chunks in order.

    w [C, Dk], u [C, Dv]: the chunk writes u - w S. keep [C, Dk]: keys decayed to the chunk's end.
    decay []: what is left of S at the end. read [C, Dk], mix [C, C]: o = read S + mix (u - w S).
    fork: (keep, decay) likewise to the token whose state the chunk stores; None: its last one.
    """

    w: jax.Array
    u: jax.Array
    keep: jax.Array
    decay: jax.Array
    read: jax.Array
    mix: jax.Array
    fork: tuple[jax.Array, jax.Array] | None = None


def chunks(
    q: jax.Array, k: jax.Array, v: jax.Array, beta: jax.Array, g: jax.Array, size: int,
    kept: jax.Array | None = None,
) -> Chunks:  # fmt: skip
    """Everything about the chunks that does not depend on the state (the WY form).

    q, k [B, T, H, Dk], v [B, T, H, Dv], beta, g [B, T, H], T a multiple of size. A token with
    beta = 0 and g = 0 leaves the state as it is. kept: [N, B] int32, tokens of each chunk before
    the state that it stores, 1 to C; None: all of them.
    """

    def split(x):  # [B, T, H, ...] -> [N, B, H, C, ...]
        batch, length, heads = x.shape[:3]
        x = x.reshape(batch, length // size, size, heads, *x.shape[3:])
        return x.transpose(1, 0, 3, 2, *range(4, x.ndim))

    q, k, v, beta, g = split(q), split(k), split(v), split(beta), split(g)
    total = jnp.cumsum(g, axis=-1)
    # Masked before exp: above the diagonal the difference is positive and could overflow.
    lower = jnp.tril(jnp.ones((size, size), bool))
    gap = jnp.where(lower, total[..., :, None] - total[..., None, :], -jnp.inf)
    fade = jnp.exp(gap)
    turned = jnp.swapaxes(k, -1, -2)
    told = beta[..., None] * k
    strict = jnp.tril(jnp.ones((size, size), bool), -1)
    solve = inverse(jnp.where(strict, _matmul(told, turned) * fade, 0.0))
    grown = jnp.exp(total)[..., None]
    fork = None
    if kept is not None:
        kept = kept[:, :, None, None]  # beside total [N, B, H, C]
        reached = jnp.take_along_axis(total, kept - 1, axis=-1)
        left = jnp.where(jnp.arange(size) < kept, reached - total, -jnp.inf)
        fork = (k * jnp.exp(left)[..., None], jnp.exp(reached[..., 0]))
    return Chunks(
        w=_matmul(solve, told * grown),
        u=_matmul(solve, beta[..., None] * v),
        keep=k * jnp.exp(total[..., -1:] - total)[..., None],
        decay=jnp.exp(total[..., -1]),
        read=q * grown,
        mix=_matmul(q, turned) * fade,
        fork=fork,
    )


def advance(state: jax.Array, w, u, keep, decay) -> jax.Array:
    """The state [B, H, Dk, Dv] after one chunk (fields of Chunks without their leading N)."""
    written = u - _matmul(w, state)
    return decay[..., None, None] * state + _matmul(jnp.swapaxes(keep, -1, -2), written)


def outputs(parts: Chunks, starts: jax.Array) -> jax.Array:
    """o [B, T, H, Dv] of all chunks, given the states [N, B, H, Dk, Dv] that they start from."""
    written = parts.u - _matmul(parts.w, starts)
    return rows(_matmul(parts.read, starts) + _matmul(parts.mix, written))


def rows(out: jax.Array) -> jax.Array:
    """o [N, B, H, C, Dv] of chunks as [B, T, H, Dv]."""
    count, batch, heads, size, dim = out.shape
    return out.transpose(1, 0, 3, 2, 4).reshape(batch, count * size, heads, dim)


def line(parts: Chunks, initial: jax.Array) -> tuple[jax.Array, jax.Array]:
    """States [N, B, H, Dk, Dv] that consecutive chunks start from, and the last one's end state."""

    def body(state, xs):
        return advance(state, *xs), state

    end, starts = jax.lax.scan(body, initial, (parts.w, parts.u, parts.keep, parts.decay))
    return starts, end


# --- the forest's states ----------------------------------------------------------------------
#
# A row's slots are a stack [B, slots, H, Dk, Dv]; while chunks are walked it is wide, see stacks.


def blank(batch: int, slots: int, *shape: int) -> tuple[jax.Array, jax.Array]:
    """What a row starts from: the zero state [B, *shape] and empty slots [B, slots, *shape]."""
    return jnp.zeros((batch, *shape)), jnp.zeros((batch, slots, *shape))


def _walk(parts: Chunks, load, store, state, stack):
    """Start states [N, B, H, Dk, Dv], what is written [N, B, H, C, Dv], end state and stack."""
    slots = stack.shape[1]

    def body(carry, xs):
        state, stack = carry
        w, u, keep, decay, fork, load, store = xs
        fresh = (load >= 0)[:, None, None, None]
        start = jnp.where(fresh, stacks.take(stack, jnp.maximum(load, 0)), state)
        written = u - _matmul(w, start)
        after = lambda keep, decay: (
            decay[..., None, None] * start + _matmul(jnp.swapaxes(keep, -1, -2), written)
        )
        end = after(keep, decay)
        kept = end if fork is None else after(*fork)
        stack = stacks.put(stack, kept, jnp.where(store < 0, slots + 1, store))
        return (end, stack), (start, written)

    xs = (parts.w, parts.u, parts.keep, parts.decay, parts.fork, load, store)
    (state, stack), (starts, written) = jax.lax.scan(body, (state, stacks.wide(stack)), xs)
    return starts, written, state, stack[:, :slots]


@jax.custom_vjp
def walk(
    parts: Chunks, load: jax.Array, store: jax.Array, state: jax.Array, stack: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Follows a forest's chunks in row order, from the state and slots that earlier ones left.

    load, store: [N, B] int32, see types.Forest: a chunk starts from the chunk before it (-1), from
    a slot, or from zero (`slots`), and may keep its end state, or the one at its fork.
    state: [B, H, Dk, Dv], what the first chunk carries on from. stack: [B, slots, H, Dk, Dv].

    Returns o [N, B, H, C, Dv] of the chunks, the last one's end state, and the stack after them.

    The gradient walks back with nothing but the states' cotangent and their slots; everything that
    is a product of saved values is done for all chunks at once, outside the sequential loop. No
    checkpoint is put on the loop's body: it would save all slots at every chunk.
    """
    starts, written, state, stack = _walk(parts, load, store, state, stack)
    return _matmul(parts.read, starts) + _matmul(parts.mix, written), state, stack


def _walk_fwd(parts, load, store, state, stack):
    starts, written, state, stack = _walk(parts, load, store, state, stack)
    out = _matmul(parts.read, starts) + _matmul(parts.mix, written)
    return (out, state, stack), (parts, load, store, starts, written)


def _walk_bwd(saved, cotangents):
    parts, load, store, starts, written = saved
    dout, dstate, dstack = cotangents
    slots = dstack.shape[1]
    zero = jnp.zeros_like(dstate)
    turn = lambda x: jnp.swapaxes(x, -1, -2)

    def body(carry, xs):
        dstate, dstack = carry
        w, keep, decay, fork, load, store, dstart, dwritten = xs
        # Whoever loaded the slot that this chunk stored has left its cotangent there.
        stored = (store >= 0)[:, None, None, None]
        slot = jnp.where(store < 0, slots + 1, store)
        dkept = jnp.where(stored, stacks.take(dstack, slot), 0.0)
        dstack = stacks.put(dstack, zero, slot)
        dend = dstate
        if fork is None:
            dend = dstate + dkept
        else:
            dwritten = dwritten + _matmul(fork[0], dkept)
            dstart = dstart + fork[1][..., None, None] * dkept
        dwritten = dwritten + _matmul(keep, dend)
        dstart = dstart + decay[..., None, None] * dend - _matmul(turn(w), dwritten)
        fresh = (load >= 0)[:, None, None, None]
        source = jnp.where(load < 0, slots + 1, load)
        dstack = stacks.put(dstack, stacks.take(dstack, source) + dstart, source)
        told = (dend, dwritten) if fork is None else (dend, dwritten, dkept)
        return (jnp.where(fresh, 0.0, dstart), dstack), told

    by_read, by_mix = _matmul(turn(parts.read), dout), _matmul(turn(parts.mix), dout)
    xs = (parts.w, parts.keep, parts.decay, parts.fork, load, store, by_read, by_mix)
    carry = (dstate, stacks.wide(dstack))
    (dstate, dstack), (dends, dwritten, *dkept) = jax.lax.scan(body, carry, xs, reverse=True)
    of_end = lambda down: (_matmul(written, turn(down)), jnp.sum(down * starts, axis=(-1, -2)))
    keep, decay = of_end(dends)
    dparts = Chunks(
        w=-_matmul(dwritten, turn(starts)),
        u=dwritten,
        keep=keep,
        decay=decay,
        read=_matmul(dout, turn(starts)),
        mix=_matmul(dout, turn(written)),
        fork=of_end(dkept[0]) if dkept else None,
    )
    return dparts, None, None, dstate, dstack[:, :slots]


walk.defvjp(_walk_fwd, _walk_bwd)
