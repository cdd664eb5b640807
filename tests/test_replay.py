"""Updates that go wrong: left out, counted, and after some in a row kept and computed again."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import small_desk
import test_trainers
from hypothesis import given, settings
from hypothesis import strategies as st
from small_desk import quick_compiles  # noqa: F401 - acts by being here

from mimesis_jax import cli, types
from mimesis_jax.build import replay, replay_trace, spoilt
from mimesis_jax.forest import pack
from mimesis_jax.forest import tree as trees
from mimesis_jax.rollouts import scoring
from mimesis_jax.runs import batches, compiles, disk, folder
from mimesis_jax.trainers import guard, optimizer, reinforce, supervised

SHAPE = pack.Shape(rows=2, length=160, chunk=8, learned=96, slots=2)
LOSS = reinforce.Loss(alpha=0.3, temperature=0.9)
PLAIN = optimizer.Config(lr=1e-3, warmup=0, decay="constant", patience=3)
NAN, INF = float("nan"), float("inf")


def forests(count=2, seed=0):
    """Supervised micro-batches."""
    own = trees.carry(test_trainers.sampled(seed=seed), weight=np.ones(weights(seed), np.float32))
    return pack.pack(own, SHAPE).forests[:count]


def weights(seed=0):
    return trees.scored_count(test_trainers.sampled(seed=seed))


def spoil(forest, **columns):
    """The forest with a column's first learned token changed."""
    changed = {}
    for name, value in columns.items():
        array = np.array(getattr(forest, name))
        array[np.argwhere(np.asarray(forest.weight) != 0)[0][0], 0] = value
        changed[name] = array
    return dataclasses.replace(forest, **changed)


def spoilt_trees(**columns):
    own = test_trainers.sampled()
    for name, value in columns.items():
        column = np.array(trees.column(own, name))
        column[np.flatnonzero(trees.column(own, "weight"))[5]] = value
        own = trees.carry(own, **{name: column})
    return own


# --- an update that is left out -----------------------------------------------------------------


def test_the_limit_is_the_running_median_by_hand():
    limit = lambda norms, explode: float(optimizer.limit(recent(norms), explode))
    assert limit([1.0] * 7, 10.0) == INF  # too few to say what is usual
    assert limit([1, 2, 3, 4, 5, 6, 7, 8], 10.0) == 40.0  # the lower of the two in the middle
    assert limit([9, 1, 1, 1, 1, 1, 1, 1, 1], 3.0) == 3.0
    assert limit([2.0] * 32, 0.0) == INF


def recent(norms):
    held = np.full(optimizer.RECENT, NAN, np.float32)
    held[: len(norms)] = norms
    return jnp.asarray(held)


@given(st.lists(st.floats(2**-20, 2**20, width=32), min_size=8, max_size=32), st.integers(0, 31))
def test_the_limit_does_not_depend_on_the_order(norms, turn):
    turned = norms[turn % len(norms) :] + norms[: turn % len(norms)]
    a, b = (float(optimizer.limit(recent(n), 2.0)) for n in (norms, turned))
    assert a == b and 2 * min(norms) <= a <= 2 * max(norms)


def one(value, state, config=PLAIN, **more):
    """An update whose gradient is `value` everywhere."""
    grads = jax.tree.map(lambda x: jnp.full(x.shape, value, jnp.float32), state.params)
    return optimizer.apply(state, grads, np.float32(1e-3), config, **more)


def test_an_exploding_update_changes_nothing_and_the_next_good_one_ends_the_streak():
    params = {"a": jnp.ones(4), "b": jnp.zeros((2, 2))}
    state = optimizer.init(params, PLAIN)
    for n in range(10):
        state, norm = one(1.0 + n / 10, state, explode=np.float32(5.0))
    assert int(state.step) == 10 and int(state.skipped) == 0
    np.testing.assert_allclose(np.asarray(state.recent)[:3], np.sqrt(8) * np.array([1, 1.1, 1.2]),
                               rtol=1e-6)  # fmt: skip
    before = jax.device_get((state.params, state.moments, state.recent))
    for streak, bad in enumerate((8.0, NAN, INF, -1e30), start=1):  # the median is 1.4
        state, norm = one(bad, state, explode=np.float32(5.0))
        assert (int(state.skipped), int(state.streak), int(state.step)) == (streak, streak, 10)
    after = jax.device_get((state.params, state.moments, state.recent))
    jax.tree.map(np.testing.assert_array_equal, after, before)
    state, _ = one(6.9, state, explode=np.float32(5.0))  # below 5 x 1.4
    assert (int(state.skipped), int(state.streak), int(state.step)) == (4, 0, 11)
    state, _ = one(1e6, state)  # no limit was given
    assert (int(state.skipped), int(state.step)) == (4, 12)


def test_the_limit_is_a_knob_that_recompiles_nothing():
    params = {"a": jnp.ones(5)}
    tight, loose = (dataclasses.replace(PLAIN, explode=x, patience=p) for x, p in ((9, 1), (2, 7)))
    state, _ = one(1.0, optimizer.init(params, tight), tight, explode=np.float32(9.0))
    with compiles.Compiles() as seen:
        one(1.0, state, loose, explode=np.float32(2.0))
    assert seen.count == 0 or seen.names == ["_full"] * seen.count


@pytest.mark.parametrize("wrong", [{"explode": -1.0}, {"explode": 0.5}, {"patience": -1}])
def test_limits_that_mean_nothing_are_refused(wrong):
    with pytest.raises(ValueError, match="explode .* must be 1 or more, patience"):
        optimizer.Config(**wrong)


# --- the batch on the disk ----------------------------------------------------------------------


def equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(np.testing.assert_array_equal, a, b)


def test_forests_and_trees_come_back_as_they_were(tmp_path):
    own = test_trainers.sampled()
    given = forests()
    long = pack.Shape(rows=1, length=256, chunk=8, learned=200, slots=2, dense=128)
    listed = pack.pack(own, long).forests[0]
    assert listed.blocks is not None
    facts = {"step": 3, "lr": 0.5, "name": "x"}
    batches.save(tmp_path / "a.npz", batches.Batch([*given, listed], own, ["a"] * 6, facts))
    found = batches.load(tmp_path / "a.npz")
    assert found.facts == facts and found.names == ["a"] * 6
    for before, after in zip([*given, listed], found.forests, strict=True):
        equal(before, after)
        assert after.slots == before.slots
    for before, after in zip(own, found.trees, strict=True):
        for one, other in zip(before, after, strict=True):
            for field in dataclasses.fields(types.Segment):
                np.testing.assert_array_equal(
                    getattr(one, field.name), getattr(other, field.name), field.name
                )
    batches.save(tmp_path / "b.npz", batches.Batch())
    assert batches.load(tmp_path / "b.npz") == batches.Batch([], [], [], {})
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "b.npz"]


@settings(max_examples=15)
@given(st.floats(0.0, 0.99), st.integers(0, 255))
def test_a_damaged_batch_is_told_and_nothing_of_it_is_run(tmp_path_factory, share, byte):
    path = tmp_path_factory.mktemp("batch") / "a.npz"
    batches.save(path, batches.Batch(trees=test_trainers.sampled(), names=["a"] * 6))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(disk.RunError, match="no batch, or a damaged one"):
        batches.load(path)
    path.write_bytes(bytes([byte]) * 100)
    with pytest.raises(disk.RunError, match="no batch, or a damaged one"):
        batches.load(path)
    path.unlink()
    with pytest.raises(disk.RunError, match="is not there"):
        batches.load(path)


def test_a_pickle_in_the_file_is_not_opened(tmp_path):
    np.savez(tmp_path / "a.npz", told=np.array([{"facts": 1}], dtype=object))
    with pytest.raises(disk.RunError, match="damaged"):
        batches.load(tmp_path / "a.npz")


# --- stopping -----------------------------------------------------------------------------------


def stopped(tmp_path, given, *, from_step=2, config=PLAIN, steps=20):
    """A supervised run whose batches are `given` from a step on; gives the run folder."""
    good = forests(seed=1)
    stream = (good if i < from_step else given for i in range(steps))
    chosen = supervised.Config(steps=steps, save_every=2, optimizer=config)
    with folder.Run(tmp_path / "run", {"seed": 0}) as run:
        run.begin("sft")
        with pytest.raises(disk.RunError) as told, spoilt.watched(run, "sft", small_desk.spec()):
            supervised.train(
                small_desk.spec(), optimizer.init(small_desk.params(), config), stream, chosen,
                report=lambda i, metrics: run.metrics("sft", i, metrics),
            )  # fmt: skip
    return run.path, str(told.value)


def test_a_run_stops_after_some_in_a_row_and_says_what_to_do(tmp_path):
    path, said = stopped(tmp_path, [spoil(forest, weight=NAN) for forest in forests()])
    assert "sft, step 4: 3 updates in a row were left out" in said and "the last norm: nan" in said
    assert f"`mimesis replay {path} --step 4`" in said
    assert "--config.sft.optimizer.explode" in said
    counted = [(line["step"], line["skipped"], line["streak"])
               for line in disk.lines(path / "metrics.jsonl")]  # fmt: skip
    assert counted == [(0, 0, 0), (1, 0, 0), (2, 1, 1), (3, 2, 2), (4, 3, 3)]
    events = [line["event"] for line in disk.lines(path / "events.jsonl")]
    assert events == ["start", "spoilt", "stop"]
    again = replay.read(spoilt.find(path))
    assert int(again.state.step) == 2 and int(again.state.skipped) == 3
    assert again.spec == small_desk.spec() and again.facts["phase"] == "sft"
    # what was kept is what the two good updates made
    state = optimizer.init(small_desk.params(), PLAIN)
    for _ in range(2):
        state, _ = supervised.update(small_desk.spec(), state, forests(seed=1), 1e-3, PLAIN)
    equal(jax.device_get(again.state.params), jax.device_get(state.params))


def test_one_bad_batch_among_good_ones_stops_nothing():
    bad = [spoil(forest, weight=NAN) for forest in forests()]
    stream = (bad if i % 3 else forests(seed=1) for i in range(9))
    config = supervised.Config(steps=9, save_every=9, optimizer=PLAIN)
    state = supervised.train(
        small_desk.spec(), optimizer.init(small_desk.params(), PLAIN), stream, config
    )
    assert int(state.skipped) == 6 and int(state.step) == 3 and int(state.streak) == 2


def test_halt_saves_the_step_at_hand():
    saved, asked = [], iter([False, False, True, True])
    config = supervised.Config(steps=20, save_every=50, optimizer=PLAIN)

    def save(step, state):
        saved.append(step)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        supervised.train(
            small_desk.spec(), optimizer.init(small_desk.params(), PLAIN),
            (forests() for _ in range(20)), config, save=save, halt=lambda: next(asked),
        )  # fmt: skip
    assert saved == [3]


# --- replaying ----------------------------------------------------------------------------------


def test_replay_of_a_supervised_batch_names_the_column_and_the_token(tmp_path, capsys):
    path, _ = stopped(tmp_path, [forests()[0], spoil(forests()[1], weight=INF)])
    assert cli.main(["replay", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("sft, step 4: 3 updates in a row were left out (norm ")
    assert "first value that is not finite, micro-batch 1" in said
    assert (
        "forward   batch, column weight: 1 value not finite, the first at learned token 0" in said
    )
    assert "gradient of" in said and "periods/layer0/mlp/gate" in said
    assert cli.main(["replay", str(path), "--step", "4"]) == 0
    assert capsys.readouterr().out == said
    assert cli.main(["replay", str(path), "--step", "9"]) == 2
    assert "has no batch of step 9: it has kept sft-4" in capsys.readouterr().err
    assert cli.main(["replay", str(tmp_path)]) == 2
    assert "is no run folder" in capsys.readouterr().err


def rewarded(tmp_path, own, name="grpo", config=PLAIN, loss=LOSS, state=None):
    """A reinforced step, again and again, until the run stops."""
    names = [f"goal {n} copy 0" for n in range(len(own))]
    state = optimizer.init(small_desk.params(), config) if state is None else state
    with folder.Run(tmp_path / "run", {"seed": 0}) as run, pytest.raises(disk.RunError) as told:
        run.begin(name)
        with spoilt.watched(run, name, small_desk.spec()):
            for step in range(20):
                state, out = reinforce.update(
                    small_desk.spec(), state, own, SHAPE, loss, 1e-3, config, names
                )
                kept = functools.partial(reinforce.batch, own, names, SHAPE, loss)
                guard.hold(step, out, config, state, 1e-3, kept)
    return run.path, str(told.value)


def test_replay_of_a_reinforced_batch_names_the_episode(tmp_path):
    path, said = rewarded(tmp_path, spoilt_trees(advantage=NAN))
    assert "grpo, step 2: 3 updates in a row" in said
    said = replay.replay(path)
    assert "forward   batch, column advantage: 1 value not finite, the first in goal 0" in said
    assert "turn 2, token" in said


def test_replay_names_the_part_of_the_loss(tmp_path):
    path, _ = rewarded(tmp_path, spoilt_trees(gate=3e38), loss=dataclasses.replace(LOSS, alpha=9.0))
    said = replay.replay(path)
    assert "forward   loss, gate x log-prob: 1 value not finite, the first in goal" in said


def test_replay_of_an_exploding_batch_shows_who_weighs_so_much(tmp_path):
    config = dataclasses.replace(PLAIN, explode=20.0)
    state = optimizer.init(small_desk.params(), config)
    for _ in range(9):
        state, out = reinforce.update(
            small_desk.spec(), state, test_trainers.sampled(), SHAPE, LOSS, 1e-4, config
        )
    assert int(state.skipped) == 0
    path, said = rewarded(tmp_path, spoilt_trees(advantage=1e7), config=config, state=state)
    assert "more than 20 times its running median" in said
    said = replay.replay(path)
    assert "every value and every gradient is finite" in said and "layer 1" in said
    assert "median norm of the last 9" in said
    (line,) = [line for line in said.splitlines() if "ratio x advantage: at most" in line]
    assert "in goal 0 copy 0, turn 2" in line
    shares = [
        float(line.split()[2].rstrip("%")) for line in said.splitlines() if "periods/" in line
    ]
    assert len(shares) > 20 and 0 < sum(shares) <= 100.5
    again = replay.read(spoilt.find(path))
    norm = [line.split()[1] for line in said.splitlines() if line.startswith("norm")]
    assert float(norm[0]) == pytest.approx(float(again.facts["grad_norm"]), rel=1e-4)


PLACES = {
    "embedding": ("embed",),
    "layer 0": ("periods", "layer0", "mlp", "down"),
    "layer 1": ("periods", "layer1", "mixer", "out"),
    "final norm": ("norm",),
    "head": ("head",),
}


@pytest.mark.parametrize("place", PLACES)
def test_weights_that_are_not_finite_are_found_where_they_are(place):
    params = jax.tree.map(lambda x: x, small_desk.params())
    inside = params
    for key in PLACES[place][:-1]:
        inside = inside[key]
    name = PLACES[place][-1]
    inside[name] = inside[name].at[(0,) * inside[name].ndim].set(NAN)
    trace = replay_trace.forward(small_desk.spec(), params, forests()[0], None, where)
    assert trace.fault.place == f"parameters of {place}" and trace.fault.count == 1


def where(row, token):
    return f"row {row} token {token}"


def test_values_that_overflow_are_found_in_the_layer_that_makes_them():
    params = small_desk.params()
    layer = params["periods"]["layer1"]
    loud = {**layer, "mlp": jax.tree.map(lambda x: x * 1e18, layer["mlp"])}
    params = {**params, "periods": {**params["periods"], "layer1": loud}}
    trace = replay_trace.forward(small_desk.spec(), params, forests()[0], None, where)
    assert trace.fault.place == "layer 1" and trace.fault.at.startswith("at token ")
    assert [name for name, _ in trace.largest] == [
        "embedding", "layer 0", "layer 1", "final norm",
    ]  # fmt: skip


def test_gradients_are_followed_from_the_head_backwards():
    grads = jax.tree.map(np.zeros_like, jax.device_get(small_desk.params()))
    assert replay_trace.backward(small_desk.spec(), grads) is None
    grads["embed"][0, 0] = NAN
    grads["periods"]["layer1"]["norm_in"][0, 0] = INF
    found = replay_trace.backward(small_desk.spec(), grads)
    assert str(found) == "gradient of layer 1: 1 value not finite, the first in norm_in"


def test_the_walk_is_the_models_own_forward():
    forest, spec, params = forests()[0], small_desk.spec(), small_desk.params()
    *_, logp, _ = replay_trace._walk(spec, params, forest, np.float32(0.9))
    want = scoring.forward(spec, params, forest, np.float32(0.9))
    np.testing.assert_allclose(logp, want, atol=1e-5)
