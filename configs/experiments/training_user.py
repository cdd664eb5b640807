"""Claim 1: does it matter which user trains the agent?

    mimesis evidence --config experiments/training_user --seeds 5 --out runs/evidence

arms    simulator, reference (its "humans"), assistant as user at 100, 80 and 60 % of cooperative
        people, sft_perfect (as many learnable tokens of perfect dialogues), the start, the ceiling
claim   simulator minus assistant_100, over nine users whom nobody trained with
time    about 21 minutes a seed on one core, 10 of them the preparation: 55 minutes for five on two
came    five seeds: start 0.34, simulator 0.71, reference 0.77, assistant 0.40 (1.00 with its own
        user), at 80 % 0.68, at 60 % 0.75, SFT on perfect 0.75, ceiling 0.94; simulator minus
        assistant +0.31 [0.20, 0.42], by Student's t over seeds [0.14, 0.49]
"""

from pathlib import Path

from mimesis_jax import config


def get_config():
    """See base.py; any value can be set with --config.KEY=VALUE."""
    made = config.read(Path(__file__).with_name("base.py"))
    users = ("simulator", "reference", "assistant_100", "assistant_80", "assistant_60")
    with made.unlocked():
        made.name = "training_user"
        made.arms = {name: {"user": name} for name in users}
        made.arms.sft_perfect = {"learns": "perfect"}
        made.against = "assistant_100"
        made.claims.claim_training_user = ("simulator", "assistant_100")
        made.dose.cooperative = ("reference", "assistant_60", "assistant_80", "assistant_100")
    return made
