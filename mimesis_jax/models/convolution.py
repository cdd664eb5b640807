"""The causal convolution of a forest's chunks: what leads a chunk is what comes before on its path.

A row at once gathers the three tokens before each chunk (`halo`); a long row, taken in parts, hands
them on as the delta rule hands on its state, through the same slots (`trail`).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mimesis_jax.models import spec as specs
from mimesis_jax.models import stacks

TAIL = specs.KERNEL - 1


def apply(window: jax.Array, taps: jax.Array, length: int) -> jax.Array:
    """silu of the causal convolution of window [..., TAIL + length, ch] with taps [4, ch].

    The last tap is the token's own. The result [..., length, ch] keeps the window's dtype.
    """
    taps, wide = taps.astype(window.dtype).astype(jnp.float32), window.astype(jnp.float32)
    # Summed in fp32 and rounded once: in bf16 each of the four terms would round.
    out = taps[0] * wide[..., :length, :]
    for j in range(1, specs.KERNEL):
        out = out + taps[j] * wide[..., j : j + length, :]
    return jax.nn.silu(out).astype(window.dtype)


def halo(u: jax.Array, before: jax.Array) -> jax.Array:
    """u [B, T, ch] as windows [B, N, TAIL + C, ch], led by the tokens before [B, N, 3] (T: none).

    before: types.Forest.halo.
    """
    batch, length, channels = u.shape
    count = before.shape[1]
    rows = jnp.minimum(before, length - 1).reshape(batch, count * TAIL, 1)
    lead = jnp.take_along_axis(u, rows, axis=1).reshape(batch, count, TAIL, channels)
    lead = jnp.where((before < length)[..., None], lead, jnp.zeros((), u.dtype))
    own = u.reshape(batch, count, length // count, channels)
    return jnp.concatenate([lead, own], axis=2)


def trail(
    u: jax.Array,
    count: jax.Array,
    load: jax.Array,
    store: jax.Array,
    tail: jax.Array,
    stack: jax.Array,
    kept: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Windows [N, B, TAIL + C, ch] of chunks u [N, B, C, ch] in row order.

    Returns them with the tail and the stack after the last chunk.

    count: [N, B] int32, real tokens of each chunk, its first ones. load, store: [N, B], see
    delta.walk. tail [B, TAIL, ch]: the last inputs before the first chunk; stack [B, slots, TAIL,
    ch]: those that the slots keep. kept: [N, B], see types.Forest.
    """
    slots = stack.shape[1]

    def body(carry, xs):
        tail, stack = carry
        u, count, kept, load, store = xs
        fresh = (load >= 0)[:, None, None]
        lead = jnp.where(fresh, stacks.take(stack, jnp.maximum(load, 0)), tail)
        window = jnp.concatenate([lead, u], axis=1)
        ahead = lambda count: jnp.take_along_axis(  # column i of the window is input i - TAIL
            window, (count[:, None] + jnp.arange(TAIL))[..., None], axis=1
        )
        tail = ahead(count)
        fork = tail if kept is None else ahead(jnp.minimum(kept, count))
        stack = stacks.put(stack, fork, jnp.where(store < 0, slots + 1, store))
        return (tail, stack), window

    carry, windows = jax.lax.scan(body, (tail, stacks.wide(stack)), (u, count, kept, load, store))
    return windows, carry[0], carry[1][:, :slots]
