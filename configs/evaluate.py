r"""What a run has trained, measured anew: every agent with every user, and the simulator.

    mimesis evaluate --config evaluate --out runs/evaluate
    mimesis evaluate --config evaluate --config.run=runs/quick --config.agents=start,grpo \
        --config.simulator=false --config.evaluation.goals=48

reads   run: the folder of a run of `mimesis demo` (or of a stage that was begun from one).
        agents: start, grpo, csd, grpo_assistant_user, sft_perfect, ceiling (the scripted agent
        without mistakes), or folders of stage runs; the paired differences are from the first
writes  evaluate.json in OUT, and the same to standard output; nothing is trained
time    on two cores about a minute for everything
"""

from pathlib import Path

from ml_collections import ConfigDict

from mimesis_jax import config


def get_config() -> ConfigDict:
    """The values by section; any of them can be set with --config.KEY=VALUE."""
    base = config.read(Path(__file__).with_name("demo.py"))
    return ConfigDict(
        {
            "kind": "evaluate",
            "run": "runs/demo",
            "agents": ("start", "grpo", "csd", "grpo_assistant_user", "sft_perfect", "ceiling"),
            "simulator": True,
            "evaluation": base.evaluation,
        }
    )
