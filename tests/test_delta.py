"""The gated delta rule: the recurrence by hand, chunks and the triangular inverse against it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimesis_jax.models import delta


def rule_inputs(rng, length=32, batch=2, heads_=3, key=8, value=6):
    unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
    q, k = (unit(rng.normal(size=(batch, length, heads_, key))) for _ in range(2))
    v = rng.normal(size=(batch, length, heads_, value))
    beta = rng.uniform(0, 1, (batch, length, heads_))
    g = -rng.uniform(0.01, 0.3, (batch, length, heads_))
    return [jnp.asarray(x, jnp.float32) for x in (q, k, v, beta, g)]


@jax.jit
def recur(q, k, v, beta, g):
    def body(state, xs):
        return delta.step(state, *xs)

    zero = jnp.zeros((q.shape[0], q.shape[2], q.shape[3], v.shape[3]))
    state, out = jax.lax.scan(body, zero, [jnp.moveaxis(x, 1, 0) for x in (q, k, v, beta, g)])
    return jnp.moveaxis(out, 0, 1), state


@functools.partial(jax.jit, static_argnums=0)
def chunked(size, q, k, v, beta, g):
    parts = delta.chunks(q, k, v, beta, g, size)
    zero = jnp.zeros((q.shape[0], q.shape[2], q.shape[3], v.shape[3]))
    starts, end = delta.line(parts, zero)
    return delta.outputs(parts, starts), end


def test_step_by_hand():
    state = jnp.asarray([[[[2.0], [4.0]]]])  # B = H = 1, Dk = 2, Dv = 1
    q, k = jnp.asarray([[[1.0, 1.0]]]), jnp.asarray([[[1.0, 0.0]]])
    v, beta, g = jnp.asarray([[[3.0]]]), jnp.asarray([[0.5]]), jnp.log(jnp.asarray([[0.5]]))
    # Decayed to (1, 2); u = 0.5 (3 - 1) = 1; state (2, 2); o = 2 + 2.
    new, out = delta.step(state, q, k, v, beta, g)
    np.testing.assert_allclose(new[0, 0, :, 0], [2.0, 2.0], rtol=1e-6)
    np.testing.assert_allclose(out[0, 0], [4.0], rtol=1e-6)


def test_chunks_equal_the_recurrence():
    inputs = rule_inputs(np.random.default_rng(0))
    out, state = recur(*inputs)
    for size in (1, 2, 8, 16, 32):
        got, end = chunked(size, *inputs)
        np.testing.assert_allclose(got, out, atol=2e-6)
        np.testing.assert_allclose(end, state, atol=2e-6)


def test_chunk_gradients_equal_the_recurrence():
    rng = np.random.default_rng(1)
    inputs = rule_inputs(rng)
    weight = jnp.asarray(rng.normal(size=inputs[2].shape), jnp.float32)
    want = jax.grad(lambda xs: jnp.sum(weight * recur(*xs)[0]))(inputs)
    got = jax.grad(lambda xs: jnp.sum(weight * chunked(8, *xs)[0]))(inputs)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * float(jnp.abs(b).max()))


def test_identical_keys_stay_accurate():
    rng = np.random.default_rng(2)
    q, k, v, _, g = rule_inputs(rng, length=128)
    k = jnp.broadcast_to(k[:, :1], k.shape)
    beta = jnp.full(g.shape, 0.999)
    out, _ = recur(q, k, v, beta, 0 * g)
    got, _ = chunked(64, q, k, v, beta, 0 * g)
    assert float(jnp.linalg.norm(got - out) / jnp.linalg.norm(out)) < 2e-6


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 64])
def test_inverse_against_numpy(size):
    rng = np.random.default_rng(size)
    a = np.tril(rng.uniform(-1, 1, (3, 2, size, size)), -1)
    want = np.linalg.inv(np.eye(size) + a)
    got = delta.inverse(jnp.asarray(a, jnp.float32))
    np.testing.assert_allclose(got, want, atol=2e-6 * np.abs(want).max())


def test_inverse_gradient_by_differences():
    rng = np.random.default_rng(3)
    a = jnp.asarray(np.tril(rng.normal(size=(4, 4)), -1), jnp.float32)
    weight = jnp.asarray(rng.normal(size=(4, 4)), jnp.float32)
    got = jax.grad(lambda a: jnp.sum(weight * delta.inverse(a)))(a)
    exact = lambda a: np.sum(np.asarray(weight) * np.linalg.inv(np.eye(4) + a))
    for i, j in ((1, 0), (3, 0), (2, 1), (3, 2)):
        nudge = np.zeros((4, 4))
        nudge[i, j] = 1e-5
        wide = np.asarray(a, np.float64)
        slope = (exact(wide + nudge) - exact(wide - nudge)) / 2e-5
        np.testing.assert_allclose(got[i, j], slope, rtol=1e-4, atol=1e-5)


def test_strong_decay_is_finite():
    q, k, v, beta, g = rule_inputs(np.random.default_rng(4))
    grads = jax.grad(lambda g: jnp.sum(chunked(16, q, k, v, beta, g)[0]))(g * 0 - 50.0)
    assert bool(jnp.isfinite(grads).all())
