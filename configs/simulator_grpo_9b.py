"""The 9B user simulator, third stage: joint GRPO on behaviours and other domains.

    mimesis train --config simulator_grpo_9b --out /mnt/runs/simulator_grpo_9b

reads   start: the run folder of simulator_thoughts_9b; opposite it the Qwen3-8B agent
writes  the run folder; its result is what agent_csd_9b begins from
needs   16 chips of v5p (v5p-32), both models resident; a judge that is a model, not there yet

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
