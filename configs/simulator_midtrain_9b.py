"""The 9B user simulator, first stage: the human turns of conversations, public text only.

    mimesis train --config simulator_midtrain_9b --out /mnt/runs/simulator_midtrain_9b

reads   model.checkpoint: the folder of Qwen3.5-9B; data.paths: WildChat files or a built dataset
writes  the run folder; its result is what simulator_thoughts_9b begins from
needs   16 chips of v5p (v5p-32); 5,000 steps of 32 rows of 16,384 tokens are 2.6e9 tokens

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
