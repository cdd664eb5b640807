"""The 4B user simulator, second stage: each human turn is its thought, then its words.

    mimesis train --config simulator_thoughts_4b --out /mnt/runs/simulator_thoughts_4b

reads   start: the run folder of simulator_midtrain_4b; data.paths: ThoughtTrace
writes  the run folder; its result is what simulator_grpo_4b begins from
needs   16 chips of v5p (v5p-32); three epochs, so the steps follow from the size of the set

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
