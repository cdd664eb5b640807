"""Names of machines, and that the launchers' table says the same."""

import subprocess
from pathlib import Path

import pytest

from mimesis_jax.plan import topology

LAUNCH = Path(__file__).resolve().parent.parent / "launch"


@pytest.mark.parametrize(
    "name, compiler, chips, devices, hosts, slices",
    [
        ("v5p:2x2x4", "v5p:2x2x4", 16, 16, 4, 1),
        ("v5p-32", "v5p:2x2x4", 16, 16, 4, 1),  # counts cores
        ("v4-8", "v4:2x2x1", 4, 4, 1, 1),
        ("v5e-16", "v5e:4x4", 16, 16, 4, 1),
        ("v5litepod-8", "v5e:2x4", 8, 8, 1, 1),
        ("v6e-64", "v6e:8x8", 64, 64, 16, 1),
        ("tpu7x-16", "tpu7x:2x2x2", 8, 16, 2, 1),  # two jax devices a chip
        ("2xv5e-16", "v5e:4x4", 32, 32, 8, 2),
        ("h100x8", "1x1x8", 8, 8, 1, 1),
        ("H100x16", "1x2x8", 16, 16, 2, 1),
        ("a100x4", "1x1x4", 4, 4, 1, 1),
    ],
)
def test_names(name, compiler, chips, devices, hosts, slices):
    found = topology.parse(name)
    assert (found.compiler, found.chips, found.devices) == (compiler, chips, devices)
    assert (found.hosts, found.slices, found.local) == (hosts, slices, devices // hosts)


@pytest.mark.parametrize(
    "name, mend",
    [
        ("v5p-30", "use v5p-16 or v5p-32"),
        ("v5e-17", "use v5e-16 or v5e-32"),
        ("v6e:3x3", "did you mean v6e:2x4"),
        ("v5p:2x2", "did you mean v5p:2x2x1"),
        ("v5x-16", "use one of v4, v5e, v5p, v6e, tpu7x"),
        ("h100x12", "use h100x16"),
        ("h10x8", "did you mean h100x8"),
        ("b999x8", "use one of a100-40"),
        ("0xv5e-16", "1 is the least"),
        ("", "did you mean"),
    ],
)
def test_errors_name_the_nearest(name, mend):
    with pytest.raises(topology.TopologyError, match=mend):
        topology.parse(name)


def test_the_launchers_have_the_same_table():
    """chips.sh is asked for every size of every generation, by its own names."""
    names = [
        f"{generation}-{(2 if generation in topology.CORES else 1) * size}"
        for generation, axes in topology.TPUS.items()
        for size in topology.GRIDS[axes]
        if size <= 512  # the launchers' table ends there
    ]
    asked = [name.replace("v5e-", "v5litepod-") for name in names]
    script = f"""
        die() {{ echo "$2" >&2; exit "$1"; }}
        . {LAUNCH}/chips.sh
        for type in {" ".join(asked)}; do
            echo "$(generation_of $type) $(chips_of $type) $(hosts_of $type) $(topology_of $type)"
        done"""
    told = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, timeout=60)
    assert told.returncode == 0, told.stderr
    for name, line in zip(names, told.stdout.splitlines(), strict=True):
        found = topology.parse(name)
        assert line == f"{found.chip.name} {found.chips} {found.hosts} {found.grid}", name
