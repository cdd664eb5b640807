"""Claim 1: does it matter which user trains the agent?

    mimesis evidence --config experiments/training_user --seeds 5 --out runs/evidence

arms    simulator, reference (its "humans"), assistant as user at 100, 80 and 60 % of cooperative
        people, sft_perfect (as many learnable tokens of perfect dialogues), the start, the ceiling
claim   simulator minus assistant_100, over nine users whom nobody trained with
time    TIME
came    not run yet
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
