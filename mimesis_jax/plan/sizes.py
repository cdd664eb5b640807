"""Bytes and work counted from sizes: what arrays take, what a program holds and does at least.

Arguments are exact: the parts of a device are what their shardings say. What a program holds while
it runs is an estimate (the compiler decides), made of the arrays that the layers' text names; the
exact mode replaces it by the compiler's own peak and keeps the estimate for its division by kind.

Work supposes full rows: every place a real token, every row one causal line.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax.models import decoder, flops, heads, long_rows
from mimesis_jax.models import spec as specs
from mimesis_jax.plan.roofline import Work
from mimesis_jax.plan.settings import Settings
from mimesis_jax.rollouts import request
from mimesis_jax.sharding.layout import HEADS, WIDTH, Layout

F32 = 4
COPIES = 3  # of the logits of a decode step: as they are, tempered, normed


@functools.lru_cache(maxsize=64)
def shapes(spec: specs.Spec) -> Any:
    """`decoder.abstract`, kept: a search asks for it hundreds of times."""
    return decoder.abstract(spec)


@functools.lru_cache(maxsize=64)
def axes(spec: specs.Spec) -> Any:
    """`decoder.axes`, kept."""
    return decoder.axes(spec)


def local(tree: Any) -> int:
    """Bytes that one device holds of arrays (ShapeDtypeStructs with shardings)."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        part = leaf.shape if leaf.sharding is None else leaf.sharding.shard_shape(leaf.shape)
        total += math.prod(part) * np.dtype(leaf.dtype).itemsize
    return total


def _split(layout: Layout) -> int:
    """Devices that share the heads of a row: the tensor axis."""
    return layout.size(HEADS)


def _devices(layout: Layout) -> int:
    return math.prod(layout.mesh.shape.values())


def weights(spec: specs.Spec) -> tuple[int, int]:
    """(parameters of one period, of the head's matrix)."""
    period = sum(leaf.size for leaf in jax.tree.leaves(shapes(spec)["periods"])) // spec.periods
    return period, spec.vocab * spec.width


# --- what a token leaves in a period ----------------------------------------------------------


def token(spec: specs.Spec, split: int, what: str, length: int = 0) -> int:
    """Bytes a token of one period that a device holds, the heads split over `split`.

    length: of the rows; delta layers of long ones are taken in parts and leave only what goes in
    and comes out (models.long_rows).

    what: "all" arrays that the layers make, "dots" the products with weights alone, "input" the
    period's own.
    """
    item = jnp.dtype(spec.dtype).itemsize
    if what == "input":
        return spec.width * item
    total = 0.0
    for kind in spec.period:
        inner, wide = _mixer(spec, kind)
        if kind == "linear" and length and long_rows.parts(spec, length, spec.chunk) is not None:
            inner, wide = 0, spec.width * split
        mlp = 2 * spec.mlp
        if what == "dots":
            total += item * ((inner + mlp) / split + 2 * spec.width)
        else:
            total += item * ((2 * inner + mlp + spec.mlp) / split + 4 * spec.width)
            total += F32 * wide / split
    return round(total)


def _mixer(spec: specs.Spec, kind: str) -> tuple[int, int]:
    """(numbers a token of a layer's products, fp32 numbers a token that its core makes)."""
    if kind == "full":
        halves = 2 if spec.attn_output_gate else 1
        inner = spec.head_dim * (spec.heads * halves + 2 * spec.kv_heads)
        return inner, spec.heads * spec.head_dim
    keys = spec.linear_key_heads * spec.linear_key_dim
    values = spec.linear_value_heads * spec.linear_value_dim
    grown = spec.linear_value_heads * spec.linear_key_dim  # q and k, one for each value head
    # q, k, v; w, u, keep, read; what is written and read; a state and two C x C a chunk.
    core = 5 * grown + 4 * values + 2 * spec.linear_value_heads * spec.chunk
    return 2 * keys + 2 * values, core + values * spec.linear_key_dim // spec.chunk


# --- what programs hold -----------------------------------------------------------------------


def _rows(settings: Settings, layout: Layout) -> int:
    """Tokens of a micro-batch on one device."""
    return settings.shape.rows // layout.split_rows * settings.shape.length


def _opened(spec: specs.Spec, layout: Layout) -> int:
    """Bytes of one period's weights and of the head's as they are computed with."""
    item = jnp.dtype(spec.dtype).itemsize
    period, head = weights(spec)
    return (period + head) * item // _split(layout)


def training(settings: Settings, layout: Layout) -> dict[str, int]:
    """Held by the update of a micro-batch beside its arguments, by kind."""
    spec, split, tokens = settings.model.spec, _split(layout), _rows(settings, layout)
    length = settings.shape.length
    one = tokens * token(spec, split, "all", length)
    kept = {"none": "all", "dots": "dots", "full": "input"}[settings.model.remat]
    # What is made again for the gradient is one period at a time, and so is its cotangent.
    activations = spec.periods * tokens * token(spec, split, kept, length) + 2 * one
    if settings.model.remat == "none" and layout.size(WIDTH) > 1:
        # What a period gathered of its weights is kept for the way back as well.
        activations += spec.periods * weights(spec)[0] * jnp.dtype(spec.dtype).itemsize // split
    scores = 0 if settings.shape.long else _scores(spec, split, tokens, settings.shape.length)
    item = jnp.dtype(spec.dtype).itemsize
    period, head = weights(spec)
    # The head's gradient is summed up whole, in fp32, before it is scattered.
    temporaries = _opened(spec, layout) + (period * item + head * F32) // split
    learned = settings.shape.rows // layout.split_rows * settings.shape.learned
    return {
        "gradients": local_gradients(settings, layout),
        "activations": activations + scores,
        "logits": 2 * F32 * min(heads.HELD, learned * spec.vocab // split),
        "temporaries": temporaries,
    }


def _scores(spec: specs.Spec, split: int, tokens: int, length: int) -> int:
    """Bytes of a period's dense attention scores and of their shares."""
    return 2 * F32 * spec.period.count("full") * spec.heads // split * tokens * length


def local_gradients(settings: Settings, layout: Layout) -> int:
    """Bytes of a device's part of the gradients, fp32."""
    spec = settings.model.spec
    places = layout.params(axes(spec), shapes(spec))
    parts = jax.tree.map(
        lambda x, place: math.prod(place.shard_shape(x.shape)), shapes(spec), places
    )
    return F32 * sum(jax.tree.leaves(parts))


def scoring(settings: Settings, layout: Layout) -> dict[str, int]:
    """Held by the scoring forward."""
    spec, split, tokens = settings.model.spec, _split(layout), _rows(settings, layout)
    scores = 0 if settings.shape.long else _scores(spec, split, tokens, settings.shape.length)
    return {
        "activations": tokens * token(spec, split, "all") + scores,
        "logits": 2 * F32 * heads.BLOCK,
        "temporaries": _opened(spec, layout),
    }


def fed(config: request.Config, layout: Layout) -> tuple[int, int]:
    """(rows of a device, tokens a row) of the largest prefill: the fewest rows that are compiled,
    of the longest bucket. A device has slots of its own and rows for them."""
    slots = config.slots // layout.split_rows
    return next((n for n in config.rows if n < slots), slots), config.buckets[-1]


def prefilling(spec: specs.Spec, layout: Layout, config: request.Config) -> dict[str, int]:
    """Held by the largest prefill: the fed rows' share of the cache is cut out and put back."""
    rows, width = fed(config, layout)
    split, tokens = _split(layout), rows * width
    full = spec.periods * spec.period.count("full")
    item = jnp.dtype(spec.dtype).itemsize
    cut = 2 * rows * config.length * spec.kv_heads * spec.head_dim * full * item // split
    layer = tokens * token(spec, split, "all") // len(spec.period)
    scores = 2 * F32 * spec.heads // split * tokens * config.length if full else 0
    return {"activations": layer + scores, "temporaries": cut}


def decoding(spec: specs.Spec, layout: Layout, config: request.Config) -> dict[str, int]:
    """Held by a block of decode steps."""
    slots, split = config.slots // layout.split_rows, _split(layout)
    return {
        "activations": slots * token(spec, split, "all"),
        "logits": COPIES * F32 * slots * spec.vocab,
    }


# --- work -------------------------------------------------------------------------------------


def update(settings: Settings, layout: Layout) -> Work:
    """Of the update of one micro-batch: forward, what is made again, backward."""
    spec, rows = settings.model.spec, settings.shape
    tokens, pairs = rows.rows * rows.length, rows.rows * flops.line(rows.length)
    count = flops.count(spec, tokens=tokens, pairs=pairs, learned=rows.rows * rows.learned)
    again = {
        "none": 0,
        "dots": count.attention + count.delta,
        "full": count.total - count.head,
    }[settings.model.remat]
    made = _rows(settings, layout) * spec.periods * token(spec, _split(layout), "all")
    opened = jnp.dtype(spec.dtype).itemsize * weights(spec)[0] * spec.periods // _split(layout)
    walks = 3 if settings.model.remat == "none" else 4  # forward, again, backward twice
    traffic = walks * (opened + made) + 3 * local_gradients(settings, layout)
    return Work((3 * count.total + again) / _devices(layout), traffic, 3 * count.total)


def score(settings: Settings, layout: Layout) -> Work:
    """Of one scoring forward."""
    spec, rows = settings.model.spec, settings.shape
    tokens, pairs = rows.rows * rows.length, rows.rows * flops.line(rows.length)
    total = flops.forward(spec, tokens=tokens, pairs=pairs, learned=rows.rows * rows.learned)
    made = _rows(settings, layout) * spec.periods * token(spec, _split(layout), "all")
    opened = jnp.dtype(spec.dtype).itemsize * weights(spec)[0] * spec.periods // _split(layout)
    return Work(total / _devices(layout), opened + made, total)


def apply(settings: Settings, layout: Layout) -> Work:
    """Of the optimizer: gradients are read, parameters and two moments read and written."""
    return Work(0, 7 * local_gradients(settings, layout), 0)


def _cache(spec: specs.Spec, config: request.Config, layout: Layout) -> tuple[int, int]:
    """Bytes of a device's (keys and values, recurrent states) of all slots."""
    devices = _devices(layout)
    full = spec.periods * spec.period.count("full")
    item = jnp.dtype(spec.dtype).itemsize
    grown = 2 * full * config.slots * config.length * spec.kv_heads * spec.head_dim * item
    state = spec.linear_value_heads * spec.linear_key_dim * spec.linear_value_dim
    fixed = (spec.layers - full) * config.slots * state * F32
    return grown // devices, fixed // devices


def decode(spec: specs.Spec, layout: Layout, config: request.Config) -> Work:
    """Of one block: every step reads the weights and, of every slot, all places of the cache."""
    devices = _devices(layout)
    steps = config.block
    wanted = config.slots * steps * flops.decode(spec, context=config.length // 2)
    done = config.slots * steps * flops.decode(spec, context=config.length) / devices
    item = jnp.dtype(spec.dtype).itemsize
    period, head = weights(spec)
    read = item * (period * spec.periods + head) // _split(layout)
    grown, fixed = _cache(spec, config, layout)
    return Work(done, steps * (read + grown + 2 * fixed), wanted)


def prefill(spec: specs.Spec, layout: Layout, config: request.Config) -> Work:
    """Of the largest prefill: attention reads all places of the fed slots, seen or not."""
    rows, width = fed(config, layout)
    tokens, parts = rows * width, layout.split_rows
    wanted = parts * flops.forward(spec, tokens=tokens, pairs=rows * flops.line(width), learned=0)
    read = flops.forward(spec, tokens=tokens, pairs=tokens * config.length, learned=0)
    item = jnp.dtype(spec.dtype).itemsize
    period, _ = weights(spec)
    made = tokens * spec.periods * token(spec, _split(layout), "all")
    traffic = item * period * spec.periods // _split(layout) + made
    return Work(read / _split(layout), traffic, wanted)


# --- traffic ----------------------------------------------------------------------------------


def sent(settings: Settings, layout: Layout, *, gradient: bool) -> dict[str, int]:
    """Bytes that a device sends by axis for a micro-batch: a forward, or also its gradient.

    Weights are gathered along fsdp a period at a time (once more for what is made again) and their
    gradients scattered; along tensor two sums a layer; along data the gradients are summed.
    """
    spec, split = settings.model.spec, _split(layout)
    item = jnp.dtype(spec.dtype).itemsize
    wide, copies = layout.size(WIDTH), layout.size("data")
    period, head = weights(spec)
    again = gradient and settings.model.remat != "none"
    stack = item * period * spec.periods // split
    tokens = _rows(settings, layout)
    gathered = stack * (1 + again) + item * head // split + item * tokens * spec.width
    if gradient:
        gathered += stack + (F32 + item) * head // split + item * tokens * spec.width
    sums = 2 * spec.layers * (1 + again + gradient)
    found = {
        WIDTH: gathered * (wide - 1) // wide,
        HEADS: sums * 2 * tokens * spec.width * item * (split - 1) // split,
    }
    if gradient:
        found["data"] = 2 * local_gradients(settings, layout) * (copies - 1) // copies
    return {axis: count for axis, count in found.items() if count}


def sent_decoding(spec: specs.Spec, layout: Layout, tokens: int, steps: int) -> dict[str, int]:
    """Bytes that a device sends by axis for `steps` times `tokens` tokens of its slots."""
    split, item = _split(layout), jnp.dtype(spec.dtype).itemsize
    count = steps * 2 * spec.layers * 2 * tokens * spec.width * item * (split - 1) // split
    return {HEADS: count} if count else {}
