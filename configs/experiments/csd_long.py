"""What CSD does in 300 steps: entropy, length and gate, where self-distillation has collapsed.

    mimesis evidence --config experiments/csd_long --seeds 1 --out runs/evidence

arms    with the reference population as user (rules are quick), 4 x 8 episodes a step: alpha 0,
        0.05 and 0.3, and 0.3 with an entropy bonus as a guard; one seed, so a look and no test
time    about 22 minutes on one core
came    0.80, 0.79, 0.77, 0.79 with the nine users: no collapse; entropy falls to 0.05 to 0.07 with
        and without CSD, the gate's AUC from 0.97 to 0.6 to 0.8, turns stay; 0.3 ends 0.04 below it
"""

from pathlib import Path

from mimesis_jax import config


def get_config():
    """See base.py; any value can be set with --config.KEY=VALUE."""
    made = config.read(Path(__file__).with_name("base.py"))
    with made.unlocked():
        made.name = "csd_long"
        made.agent.steps, made.agent.goals, made.agent.save_every = 300, 4, 50
        made.tokens //= 4
        made.arms = {
            "long_00": {"user": "reference"},
            "long_05": {"user": "reference", "alpha": 0.05},
            "long_30": {"user": "reference", "alpha": 0.3},
            "long_30_entropy": {"user": "reference", "alpha": 0.3, "entropy": 0.01},
        }
        made.against = "long_00"
    return made
