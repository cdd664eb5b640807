"""Updates: the same whatever the packing, the long way's gradients, and what is skipped."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_desk
from small_desk import quick_compiles  # noqa: F401 - acts by being here

from mimesis_jax import types
from mimesis_jax.forest import pack
from mimesis_jax.forest import tree as trees
from mimesis_jax.rollouts import scoring
from mimesis_jax.trainers import optimizer, reinforce, supervised
from mimesis_jax.types import Turn

# One AdamW step is then g / (|g| + 1): as smooth in the gradient as plain descent.
SMOOTH = optimizer.Config(lr=1.0, warmup=0, decay="constant", eps=1.0, weight_decay=0.0, clip=1e9)
WIDE = pack.Shape(rows=8, length=160, chunk=8, learned=96, slots=2)  # all in one micro-batch
NARROW = pack.Shape(rows=1, length=160, chunk=8, learned=96, slots=2)  # one row at a time
LOSS = reinforce.Loss(alpha=0.3, entropy=0.01, temperature=0.9)


def dialogue(number):
    """Three thinking turns, different in each dialogue."""
    words = ["size", "colour", "plan", "change", "address", "large"]
    pick = lambda k: words[(number + k) % len(words)]
    turns = [Turn("system", f"guide {pick(0)}", only="agent")]
    for k in range(3):
        turns.append(Turn("user", f"hello i want {pick(k)} {pick(k + number)}"))
        turns.append(Turn("agent", f"ask {pick(k + 1)}", f"{pick(k + 2)} is missing"))
    return tuple(turns)


def sampled(count=6, seed=0, coached=True):
    """Trees as after scoring and credit: some tokens forced, some turns coached."""
    rng = np.random.default_rng(seed)
    render = small_desk.renderer()
    own = [
        render.tree(dialogue(n), "agent", thinking="sample", history="drop") for n in range(count)
    ]
    n = trees.scored_count(own)
    turn = trees.column(own, "turn")
    mask = (turn != 4) & (rng.random(n) < 0.9) & coached
    return trees.carry(
        own,
        weight=(rng.random(n) < 0.9),
        old_logp=-6 + rng.normal(size=n),
        advantage=rng.normal(size=n),
        gate=rng.random(n) * mask,
        coached=mask,
    )


def fresh(config=SMOOTH):
    return optimizer.init(small_desk.params(), config)


def change(state):
    """What an update did to the parameters, as one vector."""
    moved = jax.tree.map(lambda a, b: a - b, state.params, small_desk.params())
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(jax.device_get(moved))])


def update(own, shape=WIDE, loss=LOSS):
    state, metrics = reinforce.update(small_desk.spec(), fresh(), own, shape, loss, 1.0, SMOOTH)
    return change(state), metrics


def close(a, b, rtol):
    """Relative to the largest entry: tiny ones are rounding."""
    np.testing.assert_allclose(a, b, atol=rtol * np.abs(b).max())


LOSSES = ("policy_loss", "csd_loss", "entropy", "drift", "drift_max", "ratio", "clip_high", "kl")


def test_neither_packing_nor_micro_batches_change_loss_or_gradient():
    own = sampled()
    one, metrics = update(own)
    many, apart = update(own, NARROW)
    assert len(pack.pack(own, WIDE).forests) == 1 and len(pack.pack(own, NARROW).forests) >= 3
    close(many, one, 1e-5)
    for name in (*LOSSES, "grad_norm"):
        assert apart[name] == pytest.approx(metrics[name], rel=1e-5, abs=1e-6), name
    assert metrics["trained_trees"] == apart["trained_trees"] == 6
    assert metrics["tokens"] == sum(len(part) for tree in own for part in tree)
    back, _ = update(own[::-1])
    close(back, one, 1e-5)


def naive(own):
    """Each scored segment's whole path as a row of its own: the expansion without a forest."""
    rows = []
    for tree in own:
        for i, part in enumerate(tree):
            if part.scored.any():
                path = trees.path(tree, i)
                scored = np.zeros(len(path.ids), bool)
                scored[path.scored] = True
                rows.append((types.segment(path.ids, scored=scored, turn=part.turn),))
    columns = {name: trees.column(own, name) for name in trees.COLUMNS}
    return trees.carry(rows, **columns)


def test_gradients_are_those_of_the_naive_expansion():
    own = sampled()
    rows = naive(own)
    assert len(rows) == 3 * len(own)
    assert sum(len(r[0]) for r in rows) > 1.5 * sum(len(p) for t in own for p in t)
    forest, metrics = update(own)
    expanded, wanted = update(rows)
    close(forest, expanded, 1e-4)
    for name in LOSSES:
        assert metrics[name] == pytest.approx(wanted[name], rel=1e-4, abs=1e-5), name
    # and each of the two losses moves something
    for alone in (dataclasses.replace(LOSS, alpha=0.0), dataclasses.replace(LOSS, alpha=3.0)):
        assert np.abs(update(own, loss=alone)[0] - forest).max() > 1e-3 * np.abs(forest).max()


def test_trees_that_teach_nothing_are_left_out():
    own = sampled()
    bare = dict(weight=np.zeros, coached=np.zeros, gate=np.zeros)
    mask = lambda tree: trees.carry(
        [tree], **{name: zeros(trees.scored_count([tree])) for name, zeros in bare.items()}
    )[0]
    dead = [mask(tree) for tree in sampled(3, seed=5)]
    one, metrics = update(own)
    mixed, found = update([dead[0], *own[:4], dead[1], *own[4:], dead[2]])
    close(mixed, one, 1e-5)
    assert found["trained_trees"] == 6 and found["tokens"] == metrics["tokens"]
    start = fresh()
    state, nothing = reinforce.update(
        small_desk.spec(), start, dead, WIDE, LOSS, 1.0, SMOOTH
    )  # fmt: skip
    assert nothing == {"trained_trees": 0} and state is start


def test_coached_trees_without_weight_are_learned_from_only_with_alpha():
    """A group without variance: no policy loss, still CSD."""
    own = sampled()
    flat = trees.carry(own[3:], weight=np.zeros(trees.scored_count(own[3:])))
    _, metrics = update(own[:3] + flat)
    assert metrics["trained_trees"] == 6
    _, metrics = update(own[:3] + flat, loss=dataclasses.replace(LOSS, alpha=0.0))
    assert metrics["trained_trees"] == 3
    moved, metrics = update(flat)
    assert metrics["policy_loss"] == 0.0 and metrics["csd_loss"] > 0 and np.abs(moved).max() > 0


def test_alpha_zero_and_nothing_coached_are_plain_grpo():
    own, bare = sampled(), sampled(coached=False)
    off = dataclasses.replace(LOSS, alpha=0.0)
    plain, metrics = update(bare, loss=off)
    for found, more in (update(own, loss=off), update(bare)):
        np.testing.assert_array_equal(found, plain)  # exactly: 0 is added, no NaN
        assert more["policy_loss"] == metrics["policy_loss"]
    assert update(bare)[1]["csd_loss"] == 0.0
    assert np.isfinite(plain).all() and np.isfinite(list(metrics.values())).all()


def test_ratios_start_at_one_and_move_against_the_advantage():
    """With old log-probs of the trainer the loss is minus the mean advantage; one step lowers it
    and raises log-probs of good tokens."""
    own = sampled(coached=False)
    _, first = update(own)
    own = trees.carry(own, old_logp=scoring.score(
        small_desk.spec(), small_desk.params(), own, WIDE, temperature=0.9))  # fmt: skip
    loss = reinforce.Loss(temperature=0.9)
    state, metrics = reinforce.update(
        small_desk.spec(), fresh(), own, WIDE, loss, 0.01, SMOOTH
    )  # fmt: skip
    weight, a = trees.column(own, "weight"), trees.column(own, "advantage")
    assert metrics["ratio"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["policy_loss"] == pytest.approx(-(weight * a).sum() / weight.sum(), rel=1e-4)
    assert metrics["drift_max"] < 1e-4 < first["drift_max"]
    _, after = reinforce.update(small_desk.spec(), state, own, WIDE, loss, 0.01, SMOOTH)
    assert after["policy_loss"] < metrics["policy_loss"]


# --- supervised ----------------------------------------------------------------------------------


def supervised_update(own, shape):
    forests = pack.pack(own, shape).forests
    state, metrics = supervised.update(small_desk.spec(), fresh(), forests, 1.0, SMOOTH)
    return change(state), {name: float(value) for name, value in metrics.items()}


def test_supervised_updates_do_not_depend_on_packing():
    render = small_desk.renderer()
    own = [
        render.tree(dialogue(n), "agent", thinking="sample", learn=lambda i, turn: i / 2)
        for n in range(6)
    ]
    one, metrics = supervised_update(own, WIDE)
    many, apart = supervised_update(own, NARROW)
    close(many, one, 1e-5)
    assert apart["nll"] == pytest.approx(metrics["nll"], rel=1e-5)
    logp = scoring.score(small_desk.spec(), small_desk.params(), own, WIDE)
    weight = trees.column(own, "weight")
    assert set(weight) == {1.0, 2.0, 3.0}
    assert metrics["nll"] == pytest.approx(-(weight * logp).sum() / weight.sum(), rel=1e-5)


def test_supervised_training_learns_reports_and_saves():
    batch = pack.pack(sampled(), WIDE).forests
    config = supervised.Config(
        steps=7, save_every=3, optimizer=optimizer.Config(lr=1e-2, warmup=2, decay="cosine")
    )

    def endless():
        while True:
            yield batch

    seen, saved = [], []
    state = optimizer.init(small_desk.params(), config.optimizer)
    state = supervised.train(
        small_desk.spec(), state, endless(), config, first=1,
        report=lambda i, m: seen.append((i, m)), save=lambda i, s: saved.append(i),
    )  # fmt: skip
    assert [i for i, _ in seen] == [1, 2, 3, 4, 5, 6] and saved == [3, 6, 7]
    assert seen[-1][1]["nll"] < seen[0][1]["nll"] - 0.1
    assert seen[0][1]["lr"] == optimizer.rate(config.optimizer, 1, 7)
    assert int(state.step) == 6 and int(state.skipped) == 0


# --- the optimizer -------------------------------------------------------------------------------


def test_rate_by_hand():
    cosine = optimizer.Config(lr=2.0, warmup=4, decay="cosine", floor=0.1)
    assert [optimizer.rate(cosine, i, 12) for i in range(5)] == [0.5, 1.0, 1.5, 2.0, 2.0]
    assert optimizer.rate(cosine, 8, 12) == pytest.approx(2.0 * (0.1 + 0.9 * 0.5))  # half way
    assert optimizer.rate(cosine, 12, 12) == pytest.approx(0.2)  # at the floor, and there it stays
    assert optimizer.rate(cosine, 40, 12) == pytest.approx(0.2)
    assert optimizer.rate(cosine, 6, 12) == pytest.approx(
        2.0 * (0.1 + 0.45 * (1 + math.cos(math.pi / 4)))
    )
    constant = optimizer.Config(lr=2.0, warmup=0, decay="constant")
    assert [optimizer.rate(constant, i, 5) for i in (0, 4, 9)] == [2.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="decay 'linear' is unknown"):
        optimizer.Config(decay="linear")
    with pytest.raises(ValueError, match="lr 0.0 and clip 1.0 must be positive"):
        optimizer.Config(lr=0.0)


SMALL = {"matrix": jnp.ones((1, 2, 2)), "norm": jnp.ones((1, 2))}


def test_a_step_by_hand_clips_and_decays_matrices_only():
    """Gradient 3 and 4: norm 5, clipped to 1, so 0.6 and 0.8; Adam's first step is their sign.
    Decay 0.5 acts on the matrix alone."""
    config = optimizer.Config(lr=0.1, warmup=0, decay="constant", weight_decay=0.5, eps=1e-12)
    grads = {"matrix": jnp.zeros((1, 2, 2)).at[0, 0, 0].set(3.0),
             "norm": jnp.zeros((1, 2)).at[0, 1].set(-4.0)}  # fmt: skip
    state, norm = optimizer.apply(optimizer.init(SMALL, config), grads, np.float32(0.1), config)
    assert float(norm) == pytest.approx(5.0)
    np.testing.assert_allclose(state.params["matrix"][0], [[0.85, 0.95], [0.95, 0.95]], rtol=1e-5)
    np.testing.assert_allclose(state.params["norm"][0], [1.0, 1.1], rtol=1e-5)
    assert int(state.step) == 1 and int(state.skipped) == 0
    np.testing.assert_array_equal(SMALL["matrix"], np.ones((1, 2, 2)))  # donation ate a copy


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 3e38])
def test_a_gradient_that_is_not_finite_changes_nothing_and_is_counted(bad):
    """3e38 is finite itself, its norm is not."""
    config = optimizer.Config(warmup=0)
    good = jax.tree.map(jnp.ones_like, SMALL)
    state, _ = optimizer.apply(optimizer.init(SMALL, config), good, np.float32(0.1), config)
    before = jax.device_get(state)
    spoilt = {**good, "norm": jnp.full((1, 2), bad)}
    state, norm = optimizer.apply(state, spoilt, np.float32(0.1), config)
    assert not np.isfinite(norm)
    assert int(state.step) == 1 and int(state.skipped) == 1
    for old, new in zip(
        jax.tree.leaves((before.params, before.moments)),
        jax.tree.leaves((state.params, state.moments)), strict=True,
    ):  # fmt: skip
        np.testing.assert_array_equal(old, new)
    state, _ = optimizer.apply(state, good, np.float32(0.1), config)  # and it goes on
    assert int(state.step) == 2 and int(state.skipped) == 1
    assert (np.asarray(state.params["matrix"]) < before.params["matrix"]).all()


def test_muon_turns_a_matrix_by_its_orthogonal_factor_and_leaves_the_rest_to_adam():
    """The first Muon step of a projection [layers, in, heads, size] is, layer by layer, near the
    orthogonal factor U V^T of its gradient seen as a matrix [in, heads * size], of an RMS near
    0.2. All else takes Nadam's, by hand sign(g) (1 + 0.9 * 0.1 / (1 - 0.9^2))."""
    rng = np.random.default_rng(3)
    shapes = {"q": (2, 12, 3, 4), "out": (2, 3, 4, 12), "conv_q": (2, 4, 3, 4), "norm": (2, 12)}
    params = {name: jnp.asarray(rng.normal(size=s), jnp.float32) for name, s in shapes.items()}
    grads = {name: jnp.asarray(rng.normal(size=s), jnp.float32) for name, s in shapes.items()}
    config = optimizer.Config(method="muon", lr=1.0, warmup=0, clip=1e9, weight_decay=0.0)
    state, _ = optimizer.apply(optimizer.init(params, config), grads, np.float32(1.0), config)
    moved = {name: np.asarray(params[name] - state.params[name]) for name in shapes}
    for name, flat in (("q", (2, 12, 12)), ("out", (2, 12, 12))):
        for step, gradient in zip(
            moved[name].reshape(flat), np.asarray(grads[name]).reshape(flat), strict=True
        ):
            u, _, vt = np.linalg.svd(gradient)
            along = np.sum(step * (u @ vt)) / np.linalg.norm(step) / np.linalg.norm(u @ vt)
            assert along > 0.95
            assert np.sqrt(np.mean(step**2)) == pytest.approx(optimizer.UPDATE_RMS, rel=0.25)
    for name in ("conv_q", "norm"):
        np.testing.assert_allclose(moved[name], np.sign(grads[name]) * (1 + 0.09 / 0.19), rtol=1e-3)
    with pytest.raises(ValueError, match="method 'sgd' is unknown"):
        optimizer.Config(method="sgd")
