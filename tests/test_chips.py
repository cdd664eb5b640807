"""The table of chips: names as devices give them, figures per device, what is not in it."""

import pytest

from mimesis_jax.sharding import chips


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("TPU v4", "v4"),
        ("TPU v5 lite", "v5e"),
        ("TPU v5lite", "v5e"),
        ("TPU v5e", "v5e"),
        ("TPU v5", "v5p"),
        ("TPU v5p", "v5p"),
        ("TPU v6 lite", "v6e"),
        ("TPU v6e", "v6e"),
        ("TPU7x", "tpu7x"),
        ("NVIDIA A100-SXM4-40GB", "a100-40"),
        ("NVIDIA A100-SXM4-80GB", "a100-80"),
        ("NVIDIA A100 80GB PCIe", "a100-80"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA B200", "b200"),
    ],
)
def test_a_device_kind_names_its_chip(kind, name):
    found = chips.of(kind)
    assert found is not None and found.name == name
    assert chips.named(name.upper()) is found


@pytest.mark.parametrize(
    "kind", ["cpu", "", "TPU v3", "TPU v4 lite", "NVIDIA H100 PCIe", "NVIDIA H200 NVL", "TPU v50"]
)
def test_an_unknown_device_has_no_chip(kind):
    assert chips.of(kind) is None


def test_no_kind_belongs_to_two_chips():
    for chip in chips.CHIPS:
        for other in chips.CHIPS:
            assert chip is other or not set(chip.kinds) & set(other.kinds)
    assert len(set(chips.NAMES)) == len(chips.CHIPS)


def test_peaks_are_those_that_the_design_states():
    stated = {
        "v4": 275, "v5e": 197, "v5p": 459, "v6e": 918, "tpu7x": 2307, "a100-40": 312,
        "a100-80": 312, "h100": 989, "h200": 989, "b200": 2250,
    }  # fmt: skip
    assert {chip.name: chip.tflops for chip in chips.CHIPS} == stated


def test_figures_of_a_device_are_its_part_of_the_chip():
    half = chips.named("tpu7x")
    assert half.device_flops == 2307e12 / 2
    assert half.device_bytes == 96 * 2**30
    assert chips.named("v5e").device_flops == 197e12
    assert chips.named("v5e").device_bytes == 16 * 2**30


def test_every_chip_says_where_it_is_from_and_has_sane_figures():
    for chip in chips.CHIPS:
        assert chip.source
        assert chip.hbm >= 16 and chip.bandwidth > 500 and chip.links >= 400
        assert 100 < 1e3 * chip.tflops / chip.bandwidth < 600  # FLOP for each byte of memory


def test_a_wrong_name_is_told_the_right_ones():
    with pytest.raises(ValueError, match="'v5' is not in the table: use one of v4, v5e, v5p"):
        chips.named("v5")
