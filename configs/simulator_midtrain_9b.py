"""The 9B user simulator, first stage: the human turns of conversations, public text only.

    mimesis train --config simulator_midtrain_9b --out /mnt/runs/simulator_midtrain_9b

reads   model.checkpoint: the folder of Qwen3.5-9B; data.paths: WildChat files or a built dataset
writes  the run folder; its result is what simulator_thoughts_9b begins from
needs   16 chips of v5p (v5p-32); 5,000 steps of 32 rows of 16,384 tokens are 2.6e9 tokens

Not runnable yet: `mimesis train` refuses kind "large", since no trainer spans devices. The file
says what is to be planned and run; nothing of it was measured.
"""

from pathlib import Path

from ml_collections import ConfigDict

from mimesis_jax import config


def get_config() -> ConfigDict:
    """Sections of large.py; any value can be set with --config.KEY=VALUE."""
    base = config.read(Path(__file__).with_name("large.py"))
    return ConfigDict(
        {
            "kind": "large",
            "stage": "simulator_midtrain",
            "seed": base.seed,
            "start": "",
            "model": base.trained.simulator_9b,
            "mesh": base.mesh,
            "micro_batches": base.micro_batches,
            "data": base.conversations,
            "shape": base.long_rows,
            "simulator_midtrain": base.simulator_midtrain,
        }
    )
