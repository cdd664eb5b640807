"""The Qwen3-8B agent: multi-turn GRPO with CSD against the frozen 9B simulator.

    mimesis train --config agent_csd_9b --out /mnt/runs/agent_csd_9b

reads   model.checkpoint: the folder of Qwen3-8B; start: the run folder of simulator_grpo_9b,
        whose frozen simulator is the user
writes  the run folder; its result is what an evaluation begins from
needs   16 chips of v5p (v5p-32), or 64 of v6e (v6e-64) with --config.mesh.fsdp=64
        --config.shape.rows=64 --config.engine.buckets=64,256,1024; both models are resident

Nothing of it was measured at this size yet; the same stages run on small checkpoints in
tests/test_large.py.
"""

from pathlib import Path

from ml_collections import ConfigDict

from mimesis_jax import config


def get_config() -> ConfigDict:
    """The run of this name in large.py; any value can be set with --config.KEY=VALUE."""
    here = Path(__file__)
    return config.read(here.with_name("large.py"))[here.stem]
