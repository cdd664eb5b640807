"""GRPO of the agent with an assistant as user, who volunteers everything: the demo's control arm.

    mimesis train --config agent_grpo_assistant --out runs/agent_grpo_assistant

reads   start: the folder of a run of `mimesis demo` (runs/demo; --config.start=FOLDER for another
        one) that has trained agent_start; its sizes, world and seats are kept
writes  the run folder; in it models/agent_grpo_assistant_user, the frozen result, and
        summary.json and report.html: the agent before and after, judged with
        the users that the start run has
time    on two cores 1.1 s a step, and a quarter of a minute to judge both agents
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
            "stage": "agent_grpo_assistant_user",
            "start": "runs/demo",
            "seed": base.seed,
            "agent_grpo_assistant_user": base.agent_grpo_assistant_user,
            "evaluation": base.evaluation,
            "checkpoints": base.checkpoints,
        }
    )
