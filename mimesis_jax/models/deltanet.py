"""The gated DeltaNet layer: projections, causal convolution, delta rule, gated norm."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from flax import nnx

from mimesis_jax.models import convolution, delta, long_rows, norms, weights
from mimesis_jax.models import spec as specs
from mimesis_jax.models.context import Rows, Trees

TAIL = convolution.TAIL


def table(spec: specs.Spec) -> weights.Table:
    """Parameters of one layer; q, k, v and their taps are apart so that heads shard cleanly."""
    width, keys, values = spec.width, spec.linear_key_heads, spec.linear_value_heads
    key, value, taps = spec.linear_key_dim, spec.linear_value_dim, specs.KERNEL
    weight = weights.Weight
    return {
        "q": weight((width, keys, key), ("width", "linear_keys", None)),
        "k": weight((width, keys, key), ("width", "linear_keys", None)),
        "v": weight((width, values, value), ("width", "linear_values", None)),
        "z": weight((width, values, value), ("width", "linear_values", None)),
        "b": weight((width, values), ("width", "linear_values")),
        "a": weight((width, values), ("width", "linear_values")),
        "conv_q": weight((taps, keys, key), (None, "linear_keys", None), "taps"),
        "conv_k": weight((taps, keys, key), (None, "linear_keys", None), "taps"),
        "conv_v": weight((taps, values, value), (None, "linear_values", None), "taps"),
        "a_log": weight((values,), ("linear_values",), "log_decay", "float32"),
        "dt_bias": weight((values,), ("linear_values",), "ones"),
        "norm": weight((value,), (None,), "ones", "float32"),
        "out": weight((values, value, width), ("linear_values", None, "width")),
    }


def _heads_axis(weight: weights.Weight) -> int | None:
    """The axis of a weight that runs over heads, None without one."""
    found = [i for i, name in enumerate(weight.axes) if name in ("linear_keys", "linear_values")]
    return found[0] if found else None


def _start(spec: specs.Spec, batch: int, slots: int):
    """What a row starts from: (state, its slots), (the convolution's last inputs, their slots)."""
    shape = (spec.linear_value_heads, spec.linear_key_dim, spec.linear_value_dim)
    tails = delta.blank(batch, slots, TAIL, spec.conv_channels)
    return delta.blank(batch, slots, *shape), jax.tree.map(lambda t: t.astype(spec.dtype), tails)


class DeltaNet(weights.Holder):
    """Gated DeltaNet (Yang et al. 2024) as in Qwen3.5."""

    q: nnx.Param
    k: nnx.Param
    v: nnx.Param
    z: nnx.Param
    b: nnx.Param
    a: nnx.Param
    conv_q: nnx.Param
    conv_k: nnx.Param
    conv_v: nnx.Param
    a_log: nnx.Param
    dt_bias: nnx.Param
    norm: nnx.Param
    out: nnx.Param

    def __init__(self, spec: specs.Spec, make: weights.Make, path: str):
        super().__init__(table(spec), make, path)
        self.spec = spec

    def inputs(self, x: jax.Array, batch: int) -> list[jax.Array]:
        """What the convolution runs over: q, k and v, each [B, T, channels], of x [B*T, D]."""
        parts = (weights.product(x, w[...]) for w in (self.q, self.k, self.v))
        return [u.reshape(batch, -1, u.shape[-1]) for u in parts]

    def taps(self) -> list[jax.Array]:
        return [w[...].reshape(specs.KERNEL, -1) for w in (self.conv_q, self.conv_k, self.conv_v)]

    def rates(self, x: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
        """beta in (0, 1) and log-decay g <= 0, both [B, T, Hv] fp32 and 0 on padding."""
        wide = valid[..., None]
        b = weights.product(x, self.b[...]).astype(jnp.float32).reshape(*valid.shape, -1)
        a = weights.product(x, self.a[...]).astype(jnp.float32).reshape(*valid.shape, -1)
        speed = jnp.exp(self.a_log[...].astype(jnp.float32))
        g = -speed * jax.nn.softplus(a + self.dt_bias[...].astype(jnp.float32))
        return jnp.where(wide, jax.nn.sigmoid(b), 0.0), jnp.where(wide, g, 0.0)

    def split(self, mixed: jax.Array) -> list[jax.Array]:
        """The q, k and v of channels [..., 2 * keys + values] that lie one after another."""
        keys = self.spec.linear_key_heads * self.spec.linear_key_dim
        return jnp.split(mixed, (keys, 2 * keys), axis=-1)

    def rule(self, q, k, v, beta, g, load, store, state, stack, kept=None):
        """The delta rule over chunks in row order, from convolved q, k, v [B, n, channels].

        beta, g: [B, n, Hv]; load, store, kept [n / C, B]; state, stack: see delta.walk. Returns o
        [B, n, Hv, Dv] fp32, and the state and stack after the last chunk.
        """
        size = q.shape[1] // load.shape[0]
        parts = delta.chunks(*self._heads(q, k, v), beta, g, size, kept)
        out, state, stack = delta.walk(parts, load, store, state, stack)
        return delta.rows(out), state, stack

    def _heads(self, q, k, v) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Convolved q, k, v [..., channels] as fp32 heads [..., Hv, d]; q and k normalised."""
        spec = self.spec
        lead = q.shape[:-1]
        q = q.reshape(*lead, spec.linear_key_heads, spec.linear_key_dim).astype(jnp.float32)
        k = k.reshape(*lead, spec.linear_key_heads, spec.linear_key_dim).astype(jnp.float32)
        v = v.reshape(*lead, spec.linear_value_heads, spec.linear_value_dim).astype(jnp.float32)
        q = norms.unit(q) * spec.linear_key_dim**-0.5
        k = norms.unit(k)
        share = spec.linear_value_heads // spec.linear_key_heads
        if share > 1:  # value head h reads key head h // share
            q, k = jnp.repeat(q, share, axis=-2), jnp.repeat(k, share, axis=-2)
        return q, k, v

    def gate(self, out: jax.Array, x: jax.Array) -> jax.Array:
        """Gated norm of out [.., Hv, Dv] as [N, Hv*Dv]; x [N, D] is the layer's input."""
        z = weights.product(x, self.z[...])
        out = out.reshape(-1, self.spec.linear_value_heads, self.spec.linear_value_dim)
        y = norms.gated(out, z.reshape(out.shape), self.norm[...], eps=self.spec.eps)
        return y.reshape(len(x), -1)

    def finish(self, out: jax.Array, x: jax.Array) -> jax.Array:
        """Gated norm and output product of out [.., Hv, Dv]; x [N, D] is the layer's input."""
        return weights.product(self.gate(out, x), self.out[...], inputs=2)

    def __call__(self, x: jax.Array, trees: Trees) -> jax.Array:
        """x [B*T, D] -> [B*T, D] over a forest's rows; long rows go a group of chunks at a time."""
        batch, length = trees.valid.shape
        size = length // trees.load.shape[1]
        if cut := long_rows.parts(self.spec, length, size):
            return self._long(x, trees, cut)
        x = jnp.where(trees.valid.reshape(-1, 1), x, jnp.zeros((), x.dtype))
        q, k, v = (
            convolution.apply(convolution.halo(u, trees.halo), taps, size).reshape(
                batch, length, -1
            )
            for u, taps in zip(self.inputs(x, batch), self.taps(), strict=True)
        )
        beta, g = self.rates(x, trees.valid)
        (state, stack), _ = _start(self.spec, batch, trees.slots)
        kept = None if trees.kept is None else trees.kept.T
        out, _, _ = self.rule(q, k, v, beta, g, trees.load.T, trees.store.T, state, stack, kept)
        return self.finish(out, x)

    def _long(self, x: jax.Array, trees: Trees, cut: long_rows.Parts) -> jax.Array:
        """`__call__` over long rows, see long_rows."""
        some = long_rows.fewer(self.spec, cut.shares)
        made = lambda own: DeltaNet(some, lambda path, _: own[path.removeprefix("part.")], "part")
        layer = long_rows.Layer(
            spec=self.spec,
            cut=cut,
            slots=trees.slots,
            group=lambda own, *rest: made(own).part(*rest),
            blank=functools.partial(_start, some),
            axes=tuple((name, _heads_axis(weight)) for name, weight in table(self.spec).items()),
        )
        own = {name: getattr(self, name)[...] for name, _ in layer.axes}
        rows = x.reshape(*trees.valid.shape, -1)
        out = long_rows.run(layer, own, rows, trees.valid, trees.load, trees.store, trees.kept)
        return out.reshape(x.shape)

    def part(self, x: jax.Array, valid: jax.Array, load, store, kept, carry):
        """What some chunks of long rows add to the result: [B, n, D] fp32, and the carry after.

        x [B, n, D], valid [B, n], load and store [B, n / C], kept the same or None; carry: see
        _start.
        """
        (state, stack), (tail, tails) = carry
        batch, length = valid.shape
        load, store, kept = jax.tree.map(jnp.transpose, (load, store, kept))
        size = length // len(load)
        flat = jnp.where(valid[..., None], x, jnp.zeros((), x.dtype)).reshape(-1, x.shape[-1])
        u = jnp.concatenate(self.inputs(flat, batch), axis=-1)
        u = u.reshape(batch, len(load), size, -1).swapaxes(0, 1)
        real = jnp.sum(valid.reshape(batch, -1, size), axis=-1, dtype=jnp.int32)
        windows, tail, tails = convolution.trail(u, real.T, load, store, tail, tails, kept)
        mixed = convolution.apply(windows, jnp.concatenate(self.taps(), axis=-1), size)
        q, k, v = self.split(mixed.swapaxes(0, 1).reshape(batch, length, -1))
        out, state, stack = self.rule(
            q, k, v, *self.rates(flat, valid), load, store, state, stack, kept
        )
        y = self.gate(out, flat)
        back = self.out[...].reshape(y.shape[-1], -1).astype(y.dtype)
        y = jnp.matmul(y, back, preferred_element_type=jnp.float32)
        return y.reshape(*valid.shape, -1), ((state, stack), (tail, tails))

    def extend(
        self, x: jax.Array, rows: Rows, state: jax.Array, tail: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """x [S*n, D] after each slot's own past -> (y [S*n, D], new state, new tail).

        state [S, H, Dk, Dv] fp32; tail [S, TAIL, channels], the last inputs of the convolution.
        One token a slot goes by the recurrence, more by chunks (n a multiple of spec.chunk).
        """
        slots, count = rows.valid.shape
        x = jnp.where(rows.valid.reshape(-1, 1), x, jnp.zeros((), x.dtype))
        window = jnp.concatenate([tail, jnp.concatenate(self.inputs(x, slots), axis=-1)], axis=1)
        last = rows.count[:, None] + jnp.arange(TAIL)  # column i of the window is input i - TAIL
        tail = jnp.take_along_axis(window, last[..., None], axis=1)
        taps = jnp.concatenate(self.taps(), axis=-1)
        mixed = convolution.apply(window, taps, count)
        heads = self._heads(*self.split(mixed))
        beta, g = self.rates(x, rows.valid)
        if count == 1:
            one = (part[:, 0] for part in (*heads, beta, g))
            state, out = delta.step(state, *one)
        else:
            parts = delta.chunks(*heads, beta, g, min(self.spec.chunk, count))
            starts, state = delta.line(parts, state)
            out = delta.outputs(parts, starts)
        return self.finish(out, x), state, tail
