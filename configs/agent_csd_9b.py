"""The Qwen3-8B agent: multi-turn GRPO with CSD against the frozen 9B simulator.

    mimesis train --config agent_csd_9b --out /mnt/runs/agent_csd_9b

reads   model.checkpoint: the folder of Qwen3-8B; start: the run folder of simulator_grpo_9b,
        whose frozen simulator is the user
writes  the run folder; its result is what an evaluation begins from
needs   16 chips of v5p (v5p-32), or 64 of v6e (v6e-64) with --config.mesh.fsdp=64
        --config.shape.rows=64; both models are resident

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
            "stage": "agent_csd",
            "seed": base.seed,
            "start": "runs/simulator_grpo_9b",
            "model": base.trained.agent_9b,
            "opposite": base.frozen.simulator_9b,
            "mesh": base.mesh,
            "micro_batches": base.micro_batches,
            "shape": base.episode_rows,
            "engine": base.engine,
            "user_seat": base.user_seat,
            "agent_seat": base.agent_seat,
            "turns": base.turns,
            "agent_csd": base.agent_csd,
        }
    )
