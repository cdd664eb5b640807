"""Run by tests/test_plan.py in a process of its own: argument bytes compiled and counted.

Arguments: pairs NAME:TOPOLOGY. Compiles the optimizer's step of each, which has all of the sharded
state (parameters, both moments, gradients), and the update of the first one, for virtual devices.
Writes to standard output a json list of {"name", "program", "compiled", "counted"}.
"""

import json
import os
import sys

os.environ["XLA_FLAGS"] = (
    "--xla_force_host_platform_device_count=64 --xla_backend_optimization_level=0"
)
os.environ["JAX_PLATFORMS"] = "cpu"

import jax

from mimesis_jax import config
from mimesis_jax.plan import programs, settings, topology

WIDER = {64: {"mesh.fsdp": "16", "mesh.tensor": "4", "mesh.preset": "fsdp_tp"}}


def main(words: list[str]) -> None:
    told = []
    for number, word in enumerate(words):
        name, machines = word.split(":")
        found = topology.parse(machines)
        plan = settings.of(config.read(name, WIDER.get(found.devices, {})))
        devices = jax.devices()[: found.devices]
        layout = programs.train_layout(plan, found, devices)
        for one in programs.training(plan, layout, found):
            if one.name == "apply" or (one.name == "update" and number == 0):
                memory = one.lower(None).compile().memory_analysis()
                told.append({
                    "name": word, "program": one.name,
                    "compiled": memory.argument_size_in_bytes, "counted": one.bytes(),
                })  # fmt: skip
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
