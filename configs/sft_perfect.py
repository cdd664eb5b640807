"""The start agent trained on dialogues of the agent without mistakes: what imitation alone reaches.

    mimesis train --config sft_perfect --out runs/sft_perfect

reads   start: the folder of a run of `mimesis demo` (runs/demo; --config.start=FOLDER for another
        one) that has trained agent_start; its sizes, world and seats are kept
writes  the run folder; in it models/sft_perfect, the frozen result, and
        summary.json and report.html: the agent before and after, judged with
        the users that the start run has
time    on two cores half a minute, judging both agents included
"""

from pathlib import Path

from ml_collections import ConfigDict

from mimesis_jax import config


def get_config() -> ConfigDict:
    """The demo's own values; any of them can be set with --config.KEY=VALUE."""
    base = config.read(Path(__file__).with_name("demo.py"))
    return ConfigDict(
        {
            "kind": "stage",
            "stage": "sft_perfect",
            "start": "runs/demo",
            "seed": base.seed,
            "sft_perfect": base.sft_perfect,
            "evaluation": base.evaluation,
            "checkpoints": base.checkpoints,
        }
    )
