"""Meshes, tables and layouts: what is refused, where things lie, and equal updates everywhere."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from mimesis_jax.models import decoder, parallel
from mimesis_jax.models import spec as specs
from mimesis_jax.sharding import layout, mesh, table

HERE = Path(__file__).resolve().parent


def devices(count: int, **axes) -> jax.sharding.AbstractMesh:
    """A mesh of `count` devices that are not there: enough to say where things lie."""
    sizes = {"data": 1, "fsdp": count, "tensor": 1} | axes
    return jax.sharding.AbstractMesh(tuple(sizes.values()), tuple(sizes))


# --- meshes -----------------------------------------------------------------------------------


def test_one_axis_fills_what_the_others_leave():
    assert mesh.sizes(mesh.Config(), 8) == {"data": 1, "fsdp": 8, "tensor": 1}
    config = mesh.Config("multislice", data=2, fsdp=-1, tensor=2)
    assert mesh.sizes(config, 16) == {"data": 2, "fsdp": 4, "tensor": 2}
    assert mesh.sizes(mesh.Config("fsdp", 1, 4, 1), 4)["fsdp"] == 4


@pytest.mark.parametrize(
    "config, count, said",
    [
        (dict(fsdp=3), 8, "needs 3 devices, there are 8: set --config.mesh.fsdp=-1 to fill"),
        (dict(preset="fsdp_tp", tensor=3), 8, "needs a multiple of 3 devices, there are 8"),
        (dict(tensor=2), 8, "preset 'fsdp' has no axis 'tensor', which is 2 here"),
        (dict(data=2, preset="fsdp_tp"), 8, "--config.mesh.preset=multislice"),
    ],
)
def test_meshes_that_do_not_fit(config, count, said):
    with pytest.raises(ValueError, match=said):
        mesh.sizes(mesh.Config(**config), count)


@pytest.mark.parametrize(
    "config, said",
    [
        (dict(preset="fsdb"), "did you mean fsdp?"),
        (dict(fsdp=0), "mesh.fsdp is 0"),
        (dict(data=-1), "two axes of the mesh are -1"),
    ],
)
def test_configurations_that_mean_nothing(config, said):
    with pytest.raises(ValueError, match=said):
        mesh.Config(**config)


# --- layouts ----------------------------------------------------------------------------------


def lies(spec: specs.Spec, where: layout.Layout) -> dict[str, P]:
    flat, _ = jax.tree_util.tree_flatten_with_path(
        where.specs(decoder.axes(spec), decoder.abstract(spec)), is_leaf=lambda x: isinstance(x, P)
    )
    return {jax.tree_util.keystr(p, simple=True, separator="/"): place for p, place in flat}


def test_every_matrix_is_split_in_training_and_none_by_width_in_decoding():
    spec = specs.qwen35_4b()
    where = layout.Layout(devices(16, fsdp=4, tensor=4), "fsdp_tp")
    train = lies(spec, where)
    assert train["embed"] == P("tensor", "fsdp")
    assert train["periods/layer0/mixer/q"] == P(None, "fsdp", "tensor", None)
    assert train["periods/layer3/mixer/out"] == P(None, "tensor", None, "fsdp")
    assert train["norm"] == P(None)
    decode = lies(spec, layout.Layout(where.mesh, "fsdp_tp", "decode"))
    assert decode["periods/layer0/mixer/q"] == P(None, None, "tensor", None)
    assert not any("fsdp" in place for place in decode.values())
    # What is left whole in training are vectors alone: less than a thousandth of the model.
    shapes = jax.tree.leaves(decoder.abstract(spec))
    whole = sum(x.size for x, place in zip(shapes, train.values(), strict=True) if not any(place))
    assert 0 < whole < 1e-3 * decoder.parameter_count(spec)


def test_bytes_a_device_holds_are_its_share():
    spec = specs.qwen35_9b()
    where = layout.Layout(devices(16), "fsdp")
    total = 0
    for x, place in zip(
        jax.tree.leaves(decoder.abstract(spec)), lies(spec, where).values(), strict=True
    ):
        total += x.size // int(np.prod([where.size(name) for name in place if name], dtype=int))
    assert total == pytest.approx(
        decoder.parameter_count(spec) / 16, rel=3e-3
    )  # vectors and taps are whole


def test_few_kv_heads_stay_whole_and_nothing_else_may():
    spec = specs.qwen35_4b()  # 4 kv heads
    where = layout.Layout(devices(8, fsdp=1, tensor=8), "fsdp_tp")
    assert lies(spec, where)["periods/layer3/mixer/k"] == P(None, None, None, None)
    assert parallel.local(spec, where).kv_heads == 1
    odd = layout.Layout(devices(3, fsdp=1, tensor=3), "fsdp_tp")
    with pytest.raises(ValueError, match=r"its axis '\w+' of \d+ cannot be split over the 3"):
        lies(spec, odd)
    wide = layout.Layout(devices(48), "fsdp")
    with pytest.raises(ValueError, match=r"embed: its axis 'width' of 2560 .*mesh.fsdp=40"):
        lies(spec, wide)


def test_an_axis_in_no_table_is_named():
    where = layout.Layout(devices(2))
    with pytest.raises(ValueError, match="x/y: the logical axis 'colour' is in no table"):
        where.spec("x/y", ("colour",), (4,))


def test_rows_that_cannot_be_split():
    where = layout.Layout(devices(8, data=2, fsdp=4), "multislice")
    where.check_rows(16)
    with pytest.raises(
        ValueError, match=r"12 rows .* over the 8 devices .* --config.shape.rows=16"
    ):
        where.check_rows(12)


def test_presets_name_their_axes():
    for name, tables in table.PRESETS.items():
        used = {axis for rules in (tables.train, tables.decode) for axis in rules.values() if axis}
        assert used <= set(tables.axes), name
        assert set(tables.train) == set(tables.decode)
    with pytest.raises(ValueError, match="neither 'train' nor 'decode'"):
        table.preset("fsdp").rules("serve")


# --- the same update everywhere ---------------------------------------------------------------


@pytest.fixture(scope="module")
def told() -> dict:
    """What tests/across.py says on eight virtual devices, in a process of its own."""
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
    got = subprocess.run(
        [sys.executable, str(HERE / "across.py")],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert got.returncode == 0, got.stderr[-3000:]
    return json.loads(got.stdout)


@pytest.mark.slow
def test_updates_agree_on_every_mesh_and_in_any_micro_batches(told):
    """SFT, GRPO and GRPO + CSD: gradients, moments and parameters, to 1e-5 of each tensor."""
    assert told["losses"] == ["grpo", "grpo_csd", "logp", "sft"] and told["tensors"] > 150
    assert len(told["worst"]) == 6
    assert {where: worst for where, worst in told["worst"].items() if worst > 1e-5} == {}


@pytest.mark.slow
def test_nothing_large_is_whole_on_every_device(told):
    """Parameters, gradient accumulators and both moments."""
    assert len(told["replicated"]) == 4
    assert {where: names for where, names in told["replicated"].items() if names} == {}
