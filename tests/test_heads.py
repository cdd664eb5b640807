"""The output head: log-probs and entropy by hand, in chunks against whole, gradients included."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimesis_jax.models import heads
from mimesis_jax.models import spec as specs


def inputs(vocab=24, real=24, width=16, rows=3, length=10, learned=7, seed=0):
    spec = specs.tiny(vocab, real, width=width, mlp=8)
    rng = np.random.default_rng(seed)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    params = {"embed": draw(vocab, width)}
    source = jnp.asarray(rng.integers(0, length, (rows, learned)))
    target = jnp.asarray(rng.integers(0, real, (rows, learned)))
    return spec, params, draw(rows, length, width), source, target


def naive(spec, params, hidden, source, target, temperature):
    """Everything written out: all logits at once, log_softmax, gathers."""
    h = hidden[jnp.arange(len(source))[:, None], source]
    out = jnp.einsum("bmd,vd->bmv", h, params["embed"][: spec.vocab_real]) / temperature
    logp = jax.nn.log_softmax(out)
    own = jnp.take_along_axis(logp, target[..., None], axis=-1)[..., 0]
    return own, -jnp.sum(jnp.exp(logp) * logp, axis=-1)


def test_by_hand():
    spec = specs.tiny(3, 2, width=2, mlp=8)
    params = {"embed": jnp.asarray([[1.0, 0.0], [0.0, 0.0], [9.0, 9.0]])}
    hidden = jnp.asarray([[[0.0, 5.0], [2 * np.log(3.0), 1.0]]], jnp.float32)
    source, target = jnp.asarray([[1, 1, 0]]), jnp.asarray([[0, 1, 0]])
    logp, entropy = heads.score(spec, params, hidden, source, target, temperature=2.0)
    # Logits log 3 and 0 at temperature 2: probabilities 3/4 and 1/4; then a coin.
    np.testing.assert_allclose(jnp.exp(logp), [[0.75, 0.25, 0.5]], rtol=1e-6)
    h = -(0.75 * np.log(0.75) + 0.25 * np.log(0.25))
    np.testing.assert_allclose(entropy, [[h, h, np.log(2.0)]], rtol=1e-6)


@pytest.mark.parametrize("cells", [24, 24 * 4, 24 * 5, 1 << 24])
def test_chunks_equal_the_naive_head(cells, monkeypatch):
    monkeypatch.setattr(heads, "CELLS", cells)  # 1, 4, 5 tokens at a time, and all
    spec, params, hidden, source, target = inputs(real=20)
    rng = np.random.default_rng(1)
    a, b = (jnp.asarray(rng.normal(size=source.shape), jnp.float32) for _ in range(2))

    def loss(score, params, hidden, temperature):
        logp, entropy = score(params, hidden, temperature)
        return jnp.sum(a * logp + b * entropy), (logp, entropy)

    ours = lambda p, h, t: heads.score(spec, p, h, source, target, temperature=t)
    plain = lambda p, h, t: naive(spec, p, h, source, target, t)
    run = lambda f: jax.grad(loss, (1, 2, 3), has_aux=True)(f, params, hidden, 0.7)
    for got, want in zip(jax.tree.leaves(run(ours)), jax.tree.leaves(run(plain)), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5 * float(jnp.abs(want).max()) + 1e-6)


def test_large_vocabularies_never_exist_at_once():
    vocab = 4096
    spec, params, hidden, source, target = inputs(vocab, vocab, learned=4096, rows=4, length=8)
    loss = lambda p: jnp.sum(heads.score(spec, p, hidden, source, target)[0])
    whole = 4 * source.size * vocab  # bytes of all logits in fp32
    memory = jax.jit(jax.grad(loss)).lower(params).compile().memory_analysis()
    # One chunk is a quarter of it, and a chunk's gradient needs a few arrays of that size.
    assert memory.temp_size_in_bytes < 1.1 * whole
    assert source.size * vocab == 4 * heads.CELLS


def test_logits_agree_with_scores_and_mask_what_does_not_exist():
    spec, params, hidden, source, target = inputs(vocab=24, real=20)
    out = heads.logits(spec, params, hidden)
    assert out.shape == (3, 10, 24) and out.dtype == jnp.float32
    assert bool(jnp.isneginf(out[..., 20:]).all()) and bool(jnp.isfinite(out[..., :20]).all())
    logp, _ = heads.score(spec, params, hidden, source, target)
    all_logp = jax.nn.log_softmax(out[jnp.arange(3)[:, None], source])
    want = jnp.take_along_axis(all_logp, target[..., None], axis=-1)[..., 0]
    np.testing.assert_allclose(logp, want, atol=1e-5)


def test_rows_that_do_not_exist_get_no_gradient():
    spec, params, hidden, source, target = inputs(vocab=24, real=20)
    loss = lambda p: sum(jnp.sum(x) for x in heads.score(spec, p, hidden, source, target))
    grad = jax.grad(loss)(params)["embed"]
    assert bool((grad[20:] == 0).all()) and bool((grad[:20] != 0).any())


def test_untied_head_and_bfloat16():
    spec, params, hidden, source, target = inputs()
    apart = {"embed": 0 * params["embed"], "head": params["embed"]}
    untied = dataclasses.replace(spec, tied=False)
    got, _ = heads.score(untied, apart, hidden, source, target)
    want, _ = heads.score(spec, params, hidden, source, target)
    np.testing.assert_allclose(got, want)
    narrow, _ = heads.score(spec, params, hidden.astype(jnp.bfloat16), source, target)
    assert narrow.dtype == jnp.float32
    np.testing.assert_allclose(narrow, want, atol=0.2)
