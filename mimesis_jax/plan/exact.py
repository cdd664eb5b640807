"""The compilers of TPUs and GPUs without the machines: which devices they see, in which process.

libtpu (extra `tpu`) compiles for any TPU topology on any Linux host; the CUDA plugin wheels compile
for a GPU that is described by a text (its target configuration). Both read their environment before
jax is imported, so compiling is a child process's work.
"""

from __future__ import annotations

import importlib.util
from typing import Any

from mimesis_jax.plan import gpus
from mimesis_jax.plan.topology import Topology, TopologyError

# Nobody asks a metadata server; any number of processes may load libtpu.
TPU = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-16",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
GPU = {"JAX_PLATFORMS": "cpu"}


def environment(found: Topology) -> dict[str, str]:
    """What a child process needs in its environment to compile for a topology."""
    return TPU if found.kind == "tpu" else GPU


def missing(found: Topology) -> str | None:
    """What is not installed that the exact mode needs, with the mend; None where all is there."""
    if found.kind == "tpu":
        if importlib.util.find_spec("libtpu") is None:
            return (
                "the TPU compiler is not installed: pip install 'mimesis_jax[tpu]' (Linux, 213 "
                "MB), or plan with --quick"
            )
        return None
    if importlib.util.find_spec("jax_cuda12_plugin") is None:
        return (
            "the GPU compiler is not installed: pip install jax-cuda12-plugin jax-cuda12-pjrt, or "
            "plan with --quick"
        )
    return None


def devices(found: Topology) -> list[Any]:
    """The devices of a topology as its compiler knows them; nothing can be run on them.

    Raises TopologyError where the compiler is missing or does not know the topology.
    """
    from jax.experimental import topologies

    if (why := missing(found)) is not None:
        raise TopologyError(why)
    if found.kind == "gpu":
        text = gpus.target(found.chip)
        described = topologies.get_topology_desc(
            topology_name=found.name, platform="cuda", target_config=text, topology=found.grid
        )
        return list(described.devices)
    more: dict[str, Any] = {"num_slices": found.slices} if found.slices > 1 else {}
    if found.chip.name == "v4":
        more["chip_config_name"] = "megacore"
    described = topologies.get_topology_desc(topology_name=found.compiler, platform="tpu", **more)
    return list(described.devices)
