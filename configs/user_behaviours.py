"""Joint GRPO of the user simulator on thirteen behaviours and recall: the demo's third user stage.

    mimesis train --config user_behaviours --config.user_behaviours.steps=40

reads   start: the folder of a run of `mimesis demo` (runs/demo; --config.start=FOLDER for another
        one) that has trained user_midtrain and user_thoughts; its sizes, world and seats are kept
writes  the run folder; in it models/user_behaviours, the frozen result, and
        summary.json and report.html: the behaviours before and after, and manners
time    on two cores 2.9 s a step, and a quarter of a minute to judge before and after
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
            "stage": "user_behaviours",
            "start": "runs/demo",
            "seed": base.seed,
            "user_behaviours": base.user_behaviours,
            "evaluation": base.evaluation,
            "checkpoints": base.checkpoints,
        }
    )
