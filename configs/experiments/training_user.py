"""Claim 1: does it matter which user trains the agent?

    mimesis evidence --config experiments/training_user --seeds 5 --out runs/evidence

arms    simulator, reference (its "humans"), assistant as user at 100, 80 and 60 % of cooperative
        people, sft_perfect (as many learnable tokens of perfect dialogues), the start, the ceiling
claim   simulator minus assistant_100, over nine users whom nobody trained with
time    about 12 minutes a seed on two cores, 7 of them the preparation
came    one seed so far (the models of a demo run as --start): start 0.29, simulator 0.67, reference
        0.73, assistant 0.42 (1.00 with its own user), at 80 % 0.69, at 60 % 0.75, SFT on perfect
        0.70, ceiling 0.95; simulator minus assistant +0.25 [0.21, 0.29] by the goals
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
