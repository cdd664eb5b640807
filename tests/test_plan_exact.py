"""The machines' compilers, with no machine: one block for a TPU and a GPU, every Pallas kernel."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mimesis_jax.plan import exact, quick, topology

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow


def compiled(machines, *names):
    """What plan_exact.py says for some machines; skips where their compiler is not installed."""
    found = topology.parse(machines)
    if (why := exact.missing(found)) is not None:
        pytest.skip(why)
    environment = quick.environment(found, "exact") | {"MIMESIS_PLANS": os.devnull}
    done = subprocess.run(
        [sys.executable, HERE / "plan_exact.py", machines, *names], capture_output=True, text=True,
        timeout=580, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("machines", ["v5e-4", "h100x4"])
def test_one_block_is_compiled_for_other_machines(machines):
    update = compiled(machines, "update")["update"]
    assert update["refused"] is None and update["peak_bytes"] > update["argument_bytes"]
    counted = sum(update["bytes_by_kind"].values())
    # The machine pads small arrays to its tiles: a thousandth more.
    assert update["argument_bytes"] == pytest.approx(counted, rel=2e-3)
    head = [row for row in update["collectives"] if "heads.py" in row["source"]]
    scatter = next(row for row in head if row["operation"] != "all-gather")
    assert scatter["axis"] == "fsdp" and scatter["times"] == 1
    assert scatter["bytes"] == 4 * 2048 * 512
    assert not [h for h in update["hints"] if h["kind"] == "gradient reduced in a loop"]


@pytest.mark.parametrize("machines", ["v5e-4", "v5p-8", "v6e-4"])
def test_the_splash_kernel_is_compiled_for_every_generation(machines):
    told = compiled(machines, "splash")["splash"]
    assert "tpu_custom_call" in told["calls"]
