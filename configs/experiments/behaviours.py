"""Does the user's joint GRPO teach it to act the thirteen behaviours, and nothing where not asked?

    mimesis evidence --config experiments/behaviours --seeds 5 --out runs/evidence

reads   each seed's simulator before and after; trains no agent
wanted  mean rate 0.2 above before and 0.6 at least, 10 of 13 rising, controls at most 0.15, bad
        format at most 0.02
time    about half a minute a seed on one core; the preparation not counted
came    five seeds: 0.20 before, 0.71 after (0.68 to 0.73), 13 rising, controls 0.008, bad format
        0.004; weak are a creeping goal (0.10), contradicting oneself (0.25), stacked limits (0.26)
"""

from pathlib import Path

from mimesis_jax import config


def get_config():
    """See base.py; any value can be set with --config.KEY=VALUE."""
    made = config.read(Path(__file__).with_name("base.py"))
    with made.unlocked():
        made.name = "behaviours"
        made.measures.behaviours = {"rows": 24}
    return made
