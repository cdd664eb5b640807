"""The output heads: log-probs, entropy, top-k, values; chunks and shards against the whole."""

import dataclasses
import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType

from mimesis_jax.models import heads, vocabulary
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


# Tokens at a time (1, 4, 5, all of 21) and rows of the vocabulary (all of 24, 7 with overlap, 12).
CHUNKS = [(24, 24), (24 * 4, 24), (24 * 5, 24), (21 * 7, 7), (4 * 7, 7), (5 * 12, 12), (1 << 24, 1)]


@pytest.mark.parametrize(("cells", "thin"), CHUNKS)
def test_chunks_equal_the_naive_head(cells, thin, monkeypatch):
    monkeypatch.setattr(heads, "CELLS", cells)
    monkeypatch.setattr(vocabulary, "THIN", thin)
    spec, params, hidden, source, target = inputs(real=20)
    rng = np.random.default_rng(1)
    a, b = (jnp.asarray(rng.normal(size=source.shape), jnp.float32) for _ in range(2))

    def loss(score, params, hidden, temperature):
        logp, entropy = score(params, hidden, temperature)
        return jnp.sum(a * logp + b * entropy), (logp, entropy)

    ours = lambda p, h, t: heads.score(spec, p, h, source, target, temperature=t)
    plain = lambda p, h, t: naive(spec, p, h, source, target, t)
    run = lambda f: jax.jit(jax.grad(loss, (1, 2, 3), has_aux=True), static_argnums=0)(
        f, params, hidden, 0.7
    )
    for got, want in zip(jax.tree.leaves(run(ours)), jax.tree.leaves(run(plain)), strict=True):
        np.testing.assert_allclose(got, want, atol=1e-5 * float(jnp.abs(want).max()) + 1e-6)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 10**5), st.integers(1, 3 * 10**5), st.integers(1, 1 << 26))
def test_sizes_of_chunks(tokens, rows, cells):
    chunk, block = vocabulary.sizes(tokens, rows, cells)
    assert 1 <= chunk <= tokens and 1 <= block <= rows
    # No more than asked for, unless one token under a thin block is already more.
    assert chunk * block <= max(cells, min(rows, vocabulary.THIN))
    count, size = vocabulary.even(tokens, chunk)
    assert (count - 1) * size < tokens <= count * size and size <= chunk


def test_peaked_distributions_keep_their_entropy(monkeypatch):
    monkeypatch.setattr(heads, "CELLS", 1)
    monkeypatch.setattr(vocabulary, "THIN", 2)
    spec = specs.tiny(6, width=1, mlp=8)
    gap = 16.0  # the largest logit is 1000 + gap, alone in the last block; the five others are 1000
    params = {"embed": jnp.asarray([[1000.0]] * 5 + [[1000.0 + gap]])}
    one = jnp.ones((1, 1, 1))
    zero = jnp.zeros((1, 1), jnp.int32)
    logp, entropy = heads.score(spec, params, one, zero, zero + 5)
    share = 5 * np.exp(-gap)  # of the five beside the one
    np.testing.assert_allclose(logp[0, 0], -np.log1p(share), rtol=0.1)
    want = np.log1p(share) + share / (1 + share) * gap
    np.testing.assert_allclose(entropy[0, 0], want, rtol=0.02)


@pytest.mark.parametrize(("cells", "thin"), [(1 << 24, 1), (1, 7), (21 * 5, 5)])
def test_top_ids_are_those_of_the_whole(cells, thin, monkeypatch):
    monkeypatch.setattr(heads, "CELLS", cells)
    monkeypatch.setattr(vocabulary, "THIN", thin)
    spec, params, hidden, source, target = inputs(real=20)
    params["embed"] = params["embed"].at[11].set(params["embed"][3])  # a tie, in two blocks
    got = heads.read(spec, params, hidden, source, target, temperature=0.7, top=6)
    h = hidden[jnp.arange(3)[:, None], source]
    logp = jax.nn.log_softmax(heads.logits(spec, params, h) / 0.7)
    values, ids = jax.lax.top_k(logp, 6)
    assert got.top_logp.shape == (3, 7, 6) and got.top_ids.dtype == jnp.int32
    np.testing.assert_allclose(got.top_logp, values, atol=1e-5)
    np.testing.assert_array_equal(got.top_ids, ids)
    scored, _ = heads.score(spec, params, hidden, source, target, temperature=0.7)
    np.testing.assert_allclose(got.logp, scored, rtol=1e-5, atol=1e-5)
    loss = lambda h: jnp.sum(heads.read(spec, params, h, source, target, top=2).top_logp)
    assert not np.any(jax.grad(loss)(hidden))  # said so: no gradient through the top


def test_large_vocabularies_never_exist_at_once():
    vocab = 4096
    spec, params, hidden, source, target = inputs(vocab, vocab, learned=4096, rows=4, length=8)
    loss = lambda p: jnp.sum(heads.score(spec, p, hidden, source, target)[0])
    whole = 4 * source.size * vocab  # bytes of all logits in fp32
    memory = jax.jit(jax.grad(loss)).lower(params).compile().memory_analysis()
    # A block is an eighth of it, and its gradient needs a second array of that size.
    assert memory.temp_size_in_bytes < 0.35 * whole
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


# --- reading and learning in one pass ---------------------------------------------------------


def clipped(logp, entropy, columns, knobs):
    """A loss like the trainers': a ratio, clipped, and an entropy bonus, with its sums."""
    ratio = jnp.exp(logp - columns["old"])
    held = jnp.clip(ratio, 0.8, 1.28)
    term = -jnp.minimum(ratio * columns["advantage"], held * columns["advantage"])
    total = jnp.sum(columns["weight"] * (term - knobs * entropy))
    return total, {"cut": jnp.sum(jnp.where(ratio == held, 0.0, columns["weight"]))}


@pytest.mark.parametrize(("cells", "held", "thin"), [(1, 24 * 5, 7), (24, 1, 24), (1 << 24, 1, 1)])
def test_learning_in_one_pass_is_the_loss_of_the_scores(cells, held, thin, monkeypatch):
    monkeypatch.setattr(heads, "CELLS", cells)
    monkeypatch.setattr(heads, "HELD", held)
    monkeypatch.setattr(vocabulary, "THIN", thin)
    spec, params, hidden, source, target = inputs(real=20)
    rng = np.random.default_rng(3)
    draw = lambda: jnp.asarray(rng.normal(size=source.shape), jnp.float32)
    old = naive(spec, params, hidden, source, target, 0.7)[0] + 0.2 * draw()
    columns = {"old": old, "advantage": draw(), "weight": (draw() > 0).astype(jnp.float32)}

    def ours(params, hidden, temperature):
        out = heads.learn(spec, params, hidden, source, target, clipped, columns,
                          jnp.float32(0.1), temperature=temperature)  # fmt: skip
        return 3 * out[0] + 5 * jnp.sum(out[2]), out  # logp is told, and a constant

    def plain(params, hidden, temperature):
        logp, entropy = naive(spec, params, hidden, source, target, temperature)
        total, sums = clipped(logp, entropy, columns, 0.1)
        stopped = jax.lax.stop_gradient(logp)
        return 3 * total + 5 * jnp.sum(stopped), (total, sums, logp, entropy)

    run = lambda f: jax.jit(jax.grad(f, (0, 1, 2), has_aux=True))(params, hidden, 0.7)
    got, want = run(ours), run(plain)
    assert 0 < float(want[1][1]["cut"]) < float(columns["weight"].sum())
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5 * float(jnp.abs(b).max()) + 1e-6)
    value = ours(params, hidden, 0.7)[1]  # without a gradient
    for a, b in zip(jax.tree.leaves(value), jax.tree.leaves(want[1]), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
def test_narrow_compute_has_gradients_in_the_dtype_of_what_they_belong_to(stored, monkeypatch):
    monkeypatch.setattr(heads, "CELLS", 24 * 4)
    monkeypatch.setattr(vocabulary, "THIN", 8)
    spec, params, hidden, source, target = inputs(real=20)
    params = jax.tree.map(lambda x: x.astype(stored), params)
    narrow = hidden.astype(jnp.bfloat16)
    both = lambda p, h: sum(map(jnp.sum, heads.score(spec, p, h, source, target)))
    one = lambda p, h: heads.learn(
        spec, p, h, source, target, lambda l, e, c, k: (jnp.sum(l) + jnp.sum(e), ()), ()
    )[0]
    wide = jax.tree.map(lambda x: x.astype(jnp.float32), (params, narrow))
    want = jax.grad(both, (0, 1))(*wide)
    for loss in (both, one):
        got = jax.grad(loss, (0, 1))(params, narrow)
        assert got[0]["embed"].dtype == stored and got[1].dtype == jnp.bfloat16
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            gap = jnp.linalg.norm(a.astype(jnp.float32) - b) / jnp.linalg.norm(b)
            assert gap < 0.02  # a mantissa of 8 bits


# --- values, refusals, shards -----------------------------------------------------------------


def test_values_by_hand():
    spec = specs.tiny(4, width=2, mlp=8)
    head = heads.value_init(spec)
    hidden = jnp.asarray([[[1.0, 2.0], [3.0, -1.0]]], jnp.bfloat16)
    source = jnp.asarray([[1, 0, 1]])
    assert not np.any(heads.value(head, hidden, source))
    head = {"weight": jnp.asarray([0.5, 1.0]), "bias": jnp.asarray(10.0)}
    np.testing.assert_allclose(heads.value(head, hidden, source), [[10.5, 12.5, 10.5]])
    grad = jax.grad(lambda head: jnp.sum(heads.value(head, hidden, source)))(head)
    np.testing.assert_allclose(grad["weight"], [7.0, 0.0])
    np.testing.assert_allclose(grad["bias"], 3.0)


def test_what_cannot_be_is_refused():
    spec, params, hidden, source, target = inputs(vocab=24, real=20)
    with pytest.raises(ValueError, match="top 21 of 20 ids"):
        heads.read(spec, params, hidden, source, target, top=21)
    with pytest.raises(ValueError, match="AxisType.Auto"):
        heads.Shard(jax.make_mesh((1,), ("data",), axis_types=(AxisType.Explicit,)))
    mesh = jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,))
    with pytest.raises(ValueError, match="the mesh has no axis 'model'"):
        heads.Shard(mesh, vocab="model")
    with pytest.raises(ValueError, match="both the vocabulary and the rows"):
        heads.Shard(mesh, vocab="data", rows=("data",))


SHARDED = """
import sys
sys.path.insert(0, {here!r})
import test_heads
test_heads.shards()
"""


def test_a_vocabulary_over_several_devices():
    """In a process of its own: the number of devices is fixed before jax starts."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    code = SHARDED.format(here=os.path.dirname(__file__))
    got = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert got.returncode == 0, got.stderr[-3000:]
    assert got.stdout.split() == ["read", "learn", "refused"]


def shards():
    """What the test above runs on 8 devices: 2 of rows, 4 of the vocabulary."""
    named = lambda *names: jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*names))
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
    shard = heads.Shard(mesh, vocab="model", rows=("data",))
    heads.CELLS, heads.HELD, vocabulary.THIN = 60, 5 * 92 // 4, 8
    # 92 rows are 23 a device: blocks overlap, and the last device has only ids that do not exist.
    spec, params, hidden, source, target = inputs(vocab=92, real=66, rows=4)
    ones = {"old": 0.0 * source, "advantage": 0.1 + source, "weight": 1.0 + target % 2}

    def read(params, hidden, where):
        out = heads.read(spec, params, hidden, source, target, top=5, shard=where)
        return jnp.sum(out.logp) - 2 * jnp.sum(out.entropy * out.logp), out

    def learn(params, hidden, where):
        out = heads.learn(spec, params, hidden, source, target, clipped, ones, 0.3, shard=where)
        return out[0], out

    spread = jax.device_put(params, named("model")), jax.device_put(hidden, named("data"))
    for loss in (read, learn):
        run = jax.jit(jax.grad(loss, (0, 1), has_aux=True), static_argnums=2)
        want = run(params, hidden, None)
        program = run.lower(*spread, shard).compile()
        got = program(*spread)
        for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * float(np.abs(b).max()))
        # Neither whole logits nor the whole matrix is on any device: no array has all 92 rows.
        assert not re.search(r"\[(\d+,)*92[,\]]", program.as_text()), loss.__name__
        assert re.search(r"\[(\d+,)*23[,\]]", program.as_text())
        print(loss.__name__)
    try:
        heads.score(spec, params, hidden[:3], source[:3], target[:3], shard=shard)
    except ValueError as error:
        assert "a batch of 3 cannot be split over 2 devices" in str(error)
        print("refused")


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
