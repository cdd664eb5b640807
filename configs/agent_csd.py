"""GRPO of the agent with coached self-distillation (CSD) beside it: one arm of the demo.

    mimesis train --config agent_csd --out runs/agent_csd --config.agent_csd.loss.alpha=0.1

reads   start: the folder of a run of `mimesis demo` (runs/demo; --config.start=FOLDER for another
        one) that has trained agent_start and user_behaviours; its sizes, world and seats are kept
writes  the run folder; in it models/agent_csd, the frozen result, and
        summary.json and report.html: the agent before and after, judged with
        the users that the start run has
time    on two cores 3.2 s a step, and a quarter of a minute to judge both agents
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
            "stage": "agent_csd",
            "start": "runs/demo",
            "seed": base.seed,
            "agent_csd": base.agent_csd,
            "evaluation": base.evaluation,
            "checkpoints": base.checkpoints,
        }
    )
