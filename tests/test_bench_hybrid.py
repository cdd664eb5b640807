"""The hybrid bench: its floor counts every weight, its figures are what they say."""

import dataclasses

import pytest

from mimesis_jax.bench import hybrid, measure
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs


def test_products_are_all_weights_but_norms_and_taps():
    spec = hybrid.model(2048, 16)
    assert decoder.parameter_count(spec) == 1_172_280
    counted = sum(a * b for a, b in hybrid.products(spec))
    # Norms: 9 of width 128, q and k norms of 32, three delta norms of 32; taps 4 x 384 and the
    # decay's two vectors of 4, in three layers.
    assert decoder.parameter_count(spec) - counted == 9 * 128 + 2 * 32 + 3 * (32 + 4 * 384 + 8)
    large = dataclasses.replace(specs.qwen35_4b(), periods=1)
    off = decoder.parameter_count(large) - sum(a * b for a, b in hybrid.products(large))
    assert 0 < off < 2e-4 * decoder.parameter_count(large)


def test_length_must_fit_all_chunks():
    with pytest.raises(measure.BenchError, match="96 is not a multiple of 64"):
        hybrid.run(["--length", "96"])


def test_figures_by_hand():
    """4,000 tokens in 0.5 s (best 0.4) are 8,000 a second, at best 10,000; the floor's is 0.2 s."""
    clock = {"plain": 0.5, "remat": 0.8, "floor": 0.2, "floor_remat": 0.4, "chunk8": 1.0,
             "mlp": 0.01}  # fmt: skip
    times = hybrid.Times(clock, clock | {"plain": 0.4}, {n: 2 * s for n, s in clock.items()})
    found = hybrid.figures(times, 4000, 16, {"mlp": (4, None)})
    assert found["tokens_per_s"]["plain"] == 8000 and found["best_tokens_per_s"]["plain"] == 10000
    assert found["share_of_floor"] == found["share_of_floor_core_s"] == pytest.approx(0.4)
    assert found["chunks"] == {"8": 4000, "16": 8000}
    assert found["parts_ms"] == {"mlp": 40} and found["parts_core_ms"] == {"mlp": 80}
    assert list(found["meets"].values()) == [True, True]


@pytest.mark.slow
def test_figures_of_a_small_run():
    sizes = ["--rows", "1", "--length", "64", "--vocab", "64", "--repeats", "2"]
    found = hybrid.run(sizes)
    rate = found["tokens_per_s"]
    assert found["share_of_floor"] == pytest.approx(rate["plain"] / rate["floor"])
    assert rate["floor"] > rate["plain"] > 0
    assert set(found["chunks"]) == {"8", "16", "32", "64"}
    assert set(found["parts_ms"]) == {"head", "mlp", "delta_rule", "convolution", "attention"}
