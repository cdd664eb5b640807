"""A forest's block lists for jax's splash attention kernel: the tree mask of long rows on a TPU.

The kernel is made for masks known when it is traced, but all it reads of a mask are arrays: for
every (query block, key block) whether it is empty, partial or full, and the partial blocks'
contents. They are filled in here for each row from its list, so rows differ without recompiling.
Nothing of the size [T, T] is made; the partial blocks are E * S * S bits stored as bytes a row.

The other kernels of jax cannot take the mask: flash attention on TPUs and pallas' mha on GPUs know
segments (equal ids see each other) and causality, cuDNN's (jax.nn.dot_product_attention) lengths,
windows or a dense bias [T, T]. An ancestor is neither of these.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mimesis_jax import types


def _mask(last: jax.Array, query: jax.Array, key: jax.Array, size: int) -> jax.Array:
    """[E, S, S] bool: contents of the blocks (query [E], key [E]) under last [T]."""
    place = jnp.arange(size, dtype=jnp.int32)
    t = (query[:, None] * size + place)[:, :, None]
    s = (key[:, None] * size + place)[:, None, :]
    return (s <= t) & (t < last[s])


def _row(q, keys, values, last, query, key, count, edges, *, size: int, interpret: bool):
    """One row: q [H, T, d], keys, values [K, T, d], last [T], its list -> [H, T, d]."""
    from jax.experimental.pallas.ops.tpu import splash_attention as kernel
    from jax.experimental.pallas.ops.tpu.splash_attention import (
        splash_attention_kernel,
        splash_attention_mask_info,
    )

    number = last.shape[0] // size
    listed = jnp.arange(len(query)) < count
    # Entries past the count, and edges past the last one (P), are dropped: they aim outside.
    column = jnp.where(listed, key, number)
    blank = jnp.zeros((1, number, number), jnp.int32)
    some, at = jnp.minimum(edges, len(query) - 1), jnp.arange(len(edges), dtype=jnp.int32)
    there = (0, jnp.where(edges < len(query), query[some], number), key[some])
    state = blank.at[0, query, column].set(2, mode="drop").at[there].set(1, mode="drop")
    place = blank.at[there].set(at, mode="drop")
    partial = _mask(last, query[some], key[some], size)

    def info(fetch, contents):
        return splash_attention_mask_info.MaskInfo(
            data_next=jnp.where(state > 0, fetch, 0),
            mask_next=place,
            block_mask=state,
            partial_mask_blocks=contents,
            q_sequence=None,
        )

    lines = jnp.arange(number, dtype=jnp.int32)
    across, down = info(lines[None, None, :], partial), info(lines[None, :, None], partial.mT)
    sizes = kernel.BlockSizes(
        block_q=size,
        block_kv=size,
        block_q_dkv=size,
        block_kv_dkv=size,
        block_q_dq=size,
        block_kv_dq=size,
    )
    run = splash_attention_kernel.SplashAttentionKernel(
        across,
        across,
        down,
        block_sizes=sizes,
        is_mqa=False,
        save_residuals=False,
        mask_value=splash_attention_kernel.DEFAULT_MASK_VALUE,
        attn_logits_soft_cap=None,
        residual_checkpoint_name=None,
        mask_function=None,
        interpret=interpret,
    )
    return run(q, keys, values)


def attend(
    q: jax.Array,
    keys: jax.Array,
    values: jax.Array,
    last: jax.Array,
    blocks: types.Blocks,
    *,
    interpret: bool = False,
) -> jax.Array:
    """Attention of q [B, T, H, d] over keys, values [B, K, T, d] -> [B, T, H*d], on a TPU.

    last: [B, T] int32; t sees s exactly when s <= t < last[s] (every token sees itself).
    blocks: the lists of these rows, planned with kernel "splash", of a size S that is a multiple
    of 128. interpret: run the kernel as plain operations, on any device, for tests.

    Raises ValueError for lists without edges, which are planned for the loop.
    """
    if blocks.edges is None:
        raise ValueError("the block lists have no edges: plan them with kernel='splash'")
    batch, length, heads, dim = q.shape
    blocks = jax.tree.map(jnp.asarray, blocks)
    row = lambda *xs: _row(*xs, size=blocks.size, interpret=interpret)
    out = jax.vmap(row)(
        (q * dim**-0.5).swapaxes(1, 2),
        keys,
        values,
        last,
        blocks.query,
        blocks.key,
        blocks.count,
        blocks.edges,
    )
    return out.swapaxes(1, 2).reshape(batch, length, heads * dim)
