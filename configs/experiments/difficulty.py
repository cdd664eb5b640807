"""Is the simulator as hard as the people it stands for, and an assistant playing the user too easy?

    mimesis evidence --config experiments/difficulty --seeds 5 --out runs/evidence

reads   one agent with reference users, the simulator and the assistant, the same cases: the start,
        and the arm trained on the simulator (claim 1's, trained here where it is not there yet)
wanted  gap of the simulator (reference minus it) within 0.05, the assistant's larger
time    about half a minute a seed on two cores where the arm is there
came    five seeds: -0.03 [-0.10, 0.05] by the start and +0.02 [-0.03, 0.06] by the arm trained on
        it, of the assistant -0.47 and -0.13. (At temperature 1 +0.04 and +0.09 on four seeds,
        before world.twisted +0.08 and +0.14 on one: docs/log.md)
"""

from pathlib import Path

from mimesis_jax import config


def get_config():
    """See base.py; any value can be set with --config.KEY=VALUE."""
    made = config.read(Path(__file__).with_name("base.py"))
    with made.unlocked():
        made.name = "difficulty"
        made.arms = {"simulator": {"user": "simulator"}}
        made.measures.difficulty = {"goals": 192, "agents": ("start", "simulator")}
    return made
