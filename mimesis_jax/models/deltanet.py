"""The gated DeltaNet layer: projections, causal convolution, delta rule, gated norm."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from mimesis_jax.models import delta, norms, weights
from mimesis_jax.models import spec as specs
from mimesis_jax.models.context import Rows, Trees

TAIL = specs.KERNEL - 1


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


def _conv(window: jax.Array, taps: jax.Array, length: int) -> jax.Array:
    """silu of the causal convolution of window [..., TAIL + length, ch] with taps [4, ch].

    The last tap is the token's own. The result [..., length, ch] keeps the window's dtype.
    """
    taps = taps.astype(window.dtype)
    out = sum(taps[j] * window[..., j : j + length, :] for j in range(specs.KERNEL))
    return jax.nn.silu(out)


def _halo(u: jax.Array, halo: jax.Array) -> jax.Array:
    """u [B, T, ch] as [B, N, TAIL + C, ch]: each chunk led by the tokens before it on its path."""
    batch, length, channels = u.shape
    count = halo.shape[1]
    rows = jnp.minimum(halo, length - 1).reshape(batch, count * TAIL, 1)
    before = jnp.take_along_axis(u, rows, axis=1).reshape(batch, count, TAIL, channels)
    before = jnp.where((halo < length)[..., None], before, jnp.zeros((), u.dtype))
    own = u.reshape(batch, count, length // count, channels)
    return jnp.concatenate([before, own], axis=2)


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

    def _inputs(self, x: jax.Array, batch: int) -> list[jax.Array]:
        """What the convolution runs over: q, k and v, each [B, T, channels], of x [B*T, D]."""
        parts = (weights.product(x, w[...]) for w in (self.q, self.k, self.v))
        return [u.reshape(batch, -1, u.shape[-1]) for u in parts]

    def _taps(self) -> list[jax.Array]:
        return [w[...].reshape(specs.KERNEL, -1) for w in (self.conv_q, self.conv_k, self.conv_v)]

    def _rates(self, x: jax.Array, valid: jax.Array) -> tuple[jax.Array, jax.Array]:
        """beta in (0, 1) and log-decay g <= 0, both [B, T, Hv] fp32 and 0 on padding."""
        wide = valid[..., None]
        b = weights.product(x, self.b[...]).astype(jnp.float32).reshape(*valid.shape, -1)
        a = weights.product(x, self.a[...]).astype(jnp.float32).reshape(*valid.shape, -1)
        speed = jnp.exp(self.a_log[...].astype(jnp.float32))
        g = -speed * jax.nn.softplus(a + self.dt_bias[...].astype(jnp.float32))
        return jnp.where(wide, jax.nn.sigmoid(b), 0.0), jnp.where(wide, g, 0.0)

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

    def _finish(self, out: jax.Array, x: jax.Array) -> jax.Array:
        """Gated norm and output product of out [.., Hv, Dv]; x [N, D] is the layer's input."""
        z = weights.product(x, self.z[...])
        out = out.reshape(-1, self.spec.linear_value_heads, self.spec.linear_value_dim)
        y = norms.gated(
            out.astype(x.dtype), z.reshape(out.shape), self.norm[...], eps=self.spec.eps
        )
        return weights.product(y.reshape(len(x), -1), self.out[...], inputs=2)

    def __call__(self, x: jax.Array, trees: Trees) -> jax.Array:
        """x [B*T, D] -> [B*T, D] over a forest's rows."""
        batch, length = trees.valid.shape
        x = jnp.where(trees.valid.reshape(-1, 1), x, jnp.zeros((), x.dtype))
        size = length // trees.load.shape[1]
        q, k, v = (
            _conv(_halo(u, trees.halo), taps, size).reshape(batch, length, -1)
            for u, taps in zip(self._inputs(x, batch), self._taps(), strict=True)
        )
        beta, g = self._rates(x, trees.valid)
        parts = delta.chunks(*self._heads(q, k, v), beta, g, size)
        starts = delta.walk(
            trees.slots, parts.w, parts.u, parts.keep, parts.decay, trees.load.T, trees.store.T
        )
        return self._finish(delta.outputs(parts, starts), x)

    def extend(
        self, x: jax.Array, rows: Rows, state: jax.Array, tail: jax.Array
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """x [S*n, D] after each slot's own past -> (y [S*n, D], new state, new tail).

        state [S, H, Dk, Dv] fp32; tail [S, TAIL, channels], the last inputs of the convolution.
        One token a slot goes by the recurrence, more by chunks (n a multiple of spec.chunk).
        """
        slots, count = rows.valid.shape
        x = jnp.where(rows.valid.reshape(-1, 1), x, jnp.zeros((), x.dtype))
        window = jnp.concatenate([tail, jnp.concatenate(self._inputs(x, slots), axis=-1)], axis=1)
        last = rows.count[:, None] + jnp.arange(TAIL)  # column i of the window is input i - TAIL
        tail = jnp.take_along_axis(window, last[..., None], axis=1)
        taps = jnp.concatenate(self._taps(), axis=-1)
        mixed = _conv(window, taps, count)
        keys = self.spec.linear_key_heads * self.spec.linear_key_dim
        heads = self._heads(mixed[..., :keys], mixed[..., keys : 2 * keys], mixed[..., 2 * keys :])
        beta, g = self._rates(x, rows.valid)
        if count == 1:
            one = (part[:, 0] for part in (*heads, beta, g))
            state, out = delta.step(state, *one)
        else:
            parts = delta.chunks(*heads, beta, g, min(self.spec.chunk, count))
            starts, state = delta.line(parts, state)
            out = delta.outputs(parts, starts)
        return self._finish(out, x), state, tail
