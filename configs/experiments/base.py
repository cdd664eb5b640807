"""What all experiments share, so that they share their preparations and arms: nothing to run.

Every arm of a seed begins with the same start, reads the same list of goals as far as its tokens
last, and takes as many steps, updates and learnable tokens; no turn cost and no discount.
"""

from pathlib import Path

from ml_collections import ConfigDict

from mimesis_jax import config

STEPS = 20  # of about 16 x 8 episodes, two updates each
TOKENS = 2600  # learnable tokens a step: about what 128 episodes with the simulator have


def get_config():
    """The common sections; an experiment gives name, arms and what is told of them.

    demo: the preparation of each seed. agent, tokens, curve_goals: see evidence_arms.Training.
    arms: {name: see evidence_arms.Arm}. against, claims, dose, measures: see evidence_plan.
    """
    demo = config.read(Path(__file__).parents[1] / "demo.py")
    agent = demo.agent_grpo.copy_and_resolve_references()
    with agent.unlocked():
        agent.steps, agent.save_every = STEPS, 5
    return ConfigDict(
        {
            "kind": "evidence",
            "name": "base",
            "demo": demo,
            "agent": agent,
            "tokens": TOKENS,
            "curve_goals": 6,
            "evaluation": {"goals": 96, "temperature": 0.5, "behaviour_rows": 12},
            "arms": {},
            "against": "start",
            "claims": {},
            "dose": {},
            "measures": {},
            "strict": True,
        }
    )
