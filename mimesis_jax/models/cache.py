"""The decode cache: per slot the keys and values, the recurrent state and the convolution's tail.

A recurrent state cannot be cropped like keys and values, so each slot also keeps a marked copy of
it: mark where the public trunk ends, decode a private branch, roll back, extend the trunk.

What belongs to one layer of one period is an array of its own: a slice of a stack would be copied
for every token (measured: most of the time of a step at 16 slots).
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from flax import nnx

from mimesis_jax.models import context, decoder, deltanet, parallel
from mimesis_jax.models import spec as specs

Layers = dict[str, jax.Array]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Point:
    """Where a slot stands, apart from keys and values, which only grow.

    length: [S] int32, tokens in the slot. state: per linear layer [1, S, H, Dk, Dv] fp32.
    tail: per linear layer [1, S, 3, channels], the convolution's last inputs, oldest first.
    A layer is called layer0 in the first period, layer0.2 in the third.
    """

    length: jax.Array
    state: Layers
    tail: Layers


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """S slots of at most `capacity` tokens.

    keys, values: per full layer [1, S, K, length, head_dim]; only a slot's first `length`
      entries mean anything. now: where the slots stand; marked: where rollback returns to.
    """

    keys: Layers
    values: Layers
    now: Point
    marked: Point

    @property
    def length(self) -> jax.Array:
        """[S] int32, tokens in each slot."""
        return self.now.length

    @property
    def slots(self) -> int:
        return self.now.length.shape[0]

    @property
    def capacity(self) -> int | None:
        """Tokens that fit in a slot; None without a full layer, where nothing grows."""
        return next((keys.shape[3] for keys in self.keys.values()), None)


def _named(name: str, period: int) -> str:
    return f"{name}.{period}" if period else name


def _layers(spec: specs.Spec) -> list[tuple[str, specs.LayerKind]]:
    """Name and kind of every layer of every period."""
    return [
        (_named(name, period), kind)
        for period in range(spec.periods)
        for name, kind in zip(spec.names, spec.period, strict=True)
    ]


def apart(params: decoder.Params) -> decoder.Params:
    """The parameters with each period's weights as arrays of their own, for `step` and `extend`.

    Both take stacked weights too, but have to cut them out of the stack in every call. The weights
    of the periods are copied: whoever decodes from these alone should let go of `params`.
    """
    return {**params, "periods": _cut(params["periods"])}


def cut(stack):
    """Traced: a stack [periods, ...] of weights as a tuple of one pytree a period."""
    count = jax.tree.leaves(stack)[0].shape[0]
    return tuple(jax.tree.map(lambda leaf, i=i: leaf[i], stack) for i in range(count))


_cut = jax.jit(cut)


def _opened(spec: specs.Spec, params: decoder.Params, device: parallel.Device):
    """The decoder's module, and the modules of its periods."""
    if not isinstance(params["periods"], tuple):
        model = decoder.module(spec, params)
        return model, [model.period(period) for period in range(spec.periods)]
    parts = params["periods"]
    # A module does not look at the shapes of its weights: one period's do for the whole stack.
    model = decoder.module(spec, {**params, "periods": parts[0]})
    graph, _ = nnx.split(model.periods)
    return model, [nnx.merge(graph, nnx.State(device.open(part))) for part in parts]


def init(spec: specs.Spec, slots: int, length: int) -> Cache:
    """An empty cache of `slots` slots for `length` tokens each."""
    keys: Layers = {}
    state: Layers = {}
    tail: Layers = {}
    lead = (1, slots)
    for name, kind in _layers(spec):
        if kind == "full":
            keys[name] = jnp.zeros((*lead, spec.kv_heads, length, spec.head_dim), spec.dtype)
        else:
            size = (spec.linear_value_heads, spec.linear_key_dim, spec.linear_value_dim)
            state[name] = jnp.zeros((*lead, *size), jnp.float32)
            tail[name] = jnp.zeros((*lead, deltanet.TAIL, spec.conv_channels), spec.dtype)
    point = Point(jnp.zeros(slots, jnp.int32), state, tail)
    # Copies, because a donated buffer must not be two leaves of one pytree.
    copy = lambda tree: jax.tree.map(jnp.copy, tree)
    return Cache(keys, copy(keys), point, copy(point))


def _feed(
    spec: specs.Spec, params, cache: Cache, tokens, count, device: parallel.Device | None
) -> tuple[Cache, jax.Array]:
    """Feeds tokens [S, n], of each row the first count [S]; returns the last one's hidden state."""
    device = device or dataclasses.replace(parallel.ALONE, dtype=spec.dtype)
    model, periods = _opened(spec, params, device)
    slots, width = tokens.shape
    rows = context.rows(spec, cache.length, count, width)
    keys, values = dict(cache.keys), dict(cache.values)
    state, tail = dict(cache.now.state), dict(cache.now.tail)
    x = device.lookup(model.embed[...], tokens.reshape(-1))
    layers = [layer for period in periods for layer in period.layers()]
    for (name, kind), layer in zip(_layers(spec), layers, strict=True):
        if kind == "full":
            mixed, keys[name], values[name] = layer.mixer.extend(
                layer.enter(x), rows, keys[name], values[name], 0
            )
        else:
            mixed, new, last = layer.mixer.extend(
                layer.enter(x), rows, state[name][0], tail[name][0]
            )
            state[name], tail[name] = new[None], last[None]
        x = layer.leave(x, mixed, device)
    end = jnp.maximum(count - 1, 0)[:, None, None]
    h = jnp.take_along_axis(x.reshape(slots, width, -1), end, axis=1)[:, 0]
    now = Point(cache.length + count, state, tail)
    return Cache(keys, values, now, cache.marked), model.normed(h)


def extend(
    spec: specs.Spec,
    params: decoder.Params,
    cache: Cache,
    tokens: jax.Array,
    count: jax.Array,
    device: parallel.Device | None = None,
) -> tuple[Cache, jax.Array]:
    """Feeds the first count[s] of tokens [S, n] int32 to each slot; a count of 0 leaves it alone.

    Returns the cache and h [S, D], the hidden state (after the final norm) of each slot's last new
    token; where count is 0 it is meaningless. The caller sees to it that length + count stays
    within the capacity: what lies beyond is dropped.
    device: this one of several that share the heads (under shard_map; spec is then its own, and
      params are `apart`).
    """
    width = tokens.shape[1]
    if width > 1:  # whole chunks, of the smallest power of two that will do
        size = min(spec.chunk, 1 << (width - 1).bit_length())
        tokens = jnp.pad(tokens, ((0, 0), (0, -width % size)))
    return _feed(spec, params, cache, tokens, count.astype(jnp.int32), device)


def step(
    spec: specs.Spec,
    params: decoder.Params,
    cache: Cache,
    token: jax.Array,
    active: jax.Array,
    device: parallel.Device | None = None,
) -> tuple[Cache, jax.Array]:
    """Feeds token [S] int32 to the slots that are active [S] bool; the others are left alone.

    device: as in `extend`. Returns the cache and h [S, D], the hidden state after the final norm.
    """
    return _feed(spec, params, cache, token[:, None], active.astype(jnp.int32), device)


def _choose(mask: jax.Array, then: Point, other: Point) -> Point:
    """Slot by slot: `then` where mask [S], `other` elsewhere."""

    def pick(axis):
        return lambda a, b: jnp.where(
            mask.reshape((1,) * axis + (-1,) + (1,) * (a.ndim - axis - 1)), a, b
        )

    return Point(
        pick(0)(then.length, other.length),
        jax.tree.map(pick(1), then.state, other.state),
        jax.tree.map(pick(1), then.tail, other.tail),
    )


def mark(cache: Cache, mask: jax.Array) -> Cache:
    """Remembers where the slots in mask [S] bool stand."""
    return dataclasses.replace(cache, marked=_choose(mask, cache.now, cache.marked))


def rollback(cache: Cache, mask: jax.Array) -> Cache:
    """Takes the slots in mask [S] bool back to their mark and forgets what they were fed since."""
    return dataclasses.replace(cache, now=_choose(mask, cache.marked, cache.now))


def reset(cache: Cache, mask: jax.Array) -> Cache:
    """Empties the slots in mask [S] bool, their marks included.

    Keys and values need no clearing: a slot attends to its own first `length` entries, and each of
    these is written before it counts.
    """
    empty = jax.tree.map(jnp.zeros_like, cache.now)
    now, marked = _choose(mask, empty, cache.now), _choose(mask, empty, cache.marked)
    return dataclasses.replace(cache, now=now, marked=marked)


def fork(cache: Cache, source: jax.Array) -> Cache:
    """Makes slot s a copy of slot source[s] [S] int32, mark included; source[s] == s leaves it."""

    def take(point):
        layers = lambda tree: jax.tree.map(lambda leaf: leaf[:, source], tree)
        return Point(point.length[source], layers(point.state), layers(point.tail))

    keys, values = (
        {name: leaf[:, source] for name, leaf in part.items()}
        for part in (cache.keys, cache.values)
    )
    return Cache(keys, values, take(cache.now), take(cache.marked))


def take(cache: Cache, slots: jax.Array) -> Cache:
    """The cache of some slots [R] int32 only; a number past the last slot takes the last one."""

    def cut(axis):
        return lambda leaf: jnp.take(leaf, slots, axis=axis, mode="clip")

    return _each(cut, cache)


def put(cache: Cache, slots: jax.Array, part: Cache) -> Cache:
    """Writes what `take` cut out back into slots [R]; rows past the last slot are dropped."""

    def write(axis):
        def one(leaf, new):
            place = (slice(None),) * axis + (slots,)
            return leaf.at[place].set(new, mode="drop")

        return one

    return _each(write, cache, part)


def _each(make, *caches: Cache) -> Cache:
    """Maps over the leaves of caches; make(axis) is the function for leaves with slots there."""
    first, second = make(0), make(1)

    def point(*points: Point) -> Point:
        return Point(
            first(*(p.length for p in points)),
            jax.tree.map(second, *(p.state for p in points)),
            jax.tree.map(second, *(p.tail for p in points)),
        )

    return Cache(
        jax.tree.map(second, *(c.keys for c in caches)),
        jax.tree.map(second, *(c.values for c in caches)),
        point(*(c.now for c in caches)),
        point(*(c.marked for c in caches)),
    )
