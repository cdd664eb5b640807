"""Rooflines by hand, and which collectives leave an island."""

import pytest

from mimesis_jax.plan import roofline, topology

V5P = topology.parse("v5p-32")
MESH = {"data": 1, "fsdp": 16, "tensor": 1}


def test_the_three_times_and_the_bound():
    # v5p: 459 TFLOP/s, 2765 GB/s of memory, 1200 GB/s of links, both directions together.
    work = roofline.Work(done=459e12, traffic=2765e9 / 2, wanted=16 * 459e12 * 0.6)
    found = roofline.least(work, {"fsdp": 600e9 / 4}, V5P, MESH)
    assert found.seconds == pytest.approx({"compute": 1.0, "hbm": 0.5, "links": 0.25})
    assert found.bound == "compute" and found.least == pytest.approx(1.0)
    assert found.mfu == pytest.approx(0.6)  # the rest was made again
    slow = roofline.least(work, {"fsdp": 600e9 * 2}, V5P, MESH)
    assert slow.bound == "links" and slow.mfu == pytest.approx(0.3)


def test_a_device_of_a_chip_with_two_has_half_of_everything():
    pod = topology.parse("tpu7x-8")
    work = roofline.Work(done=2307e12 / 2, traffic=7380e9 / 2, wanted=8 * 2307e12 / 2)
    found = roofline.least(work, {"fsdp": 1200e9 / 4}, pod, {"data": 1, "fsdp": 8, "tensor": 1})
    assert found.seconds == pytest.approx({"compute": 1.0, "hbm": 1.0, "links": 1.0})
    assert found.mfu == pytest.approx(1.0)


def test_nothing_to_do_takes_no_time():
    found = roofline.least(roofline.Work(0, 0, 0), {}, V5P, MESH)
    assert found.least == 0 and found.mfu == 0


@pytest.mark.parametrize(
    "name, mesh, axis, leaves",
    [
        ("v5p-32", MESH, "fsdp", False),  # one slice is one island
        ("2xv5e-16", {"data": 2, "fsdp": 16, "tensor": 1}, "data", True),
        ("2xv5e-16", {"data": 2, "fsdp": 16, "tensor": 1}, "fsdp", False),
        ("2xv5e-16", {"data": 2, "fsdp": 16, "tensor": 1}, "data+fsdp", True),
        ("2xv5e-16", {"data": 2, "fsdp": 16, "tensor": 1}, "other", True),
        ("h100x16", {"data": 2, "fsdp": 8, "tensor": 1}, "fsdp", False),
        ("h100x16", {"data": 1, "fsdp": 16, "tensor": 1}, "fsdp", True),
        ("h100x16", {"data": 1, "fsdp": 2, "tensor": 8}, "tensor", False),
        ("h100x8", {"data": 1, "fsdp": 8, "tensor": 1}, "fsdp", False),
        ("h100x16", {"data": 1, "fsdp": 1, "tensor": 8}, "tensor", False),  # an engine's own mesh
    ],
)
def test_what_crosses_islands(name, mesh, axis, leaves):
    assert roofline.crosses(axis, topology.parse(name), mesh) is leaves


def test_what_leaves_an_island_is_slower():
    two = topology.parse("2xv5e-16")
    mesh = {"data": 2, "fsdp": 16, "tensor": 1}
    nothing = roofline.Work(0, 0, 0)
    inside = roofline.least(nothing, {"fsdp": 1e9}, two, mesh).seconds["links"]
    across = roofline.least(nothing, {"data": 1e9}, two, mesh).seconds["links"]
    assert inside == pytest.approx(1 / 200) and across == pytest.approx(1 / 3.125)
