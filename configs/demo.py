"""The main job on a laptop: simulator in three stages, frozen; agents against it; judged; reported.

mimesis demo --out runs/demo            (make demo)
mimesis demo --out runs/quick --quick   (make demo QUICK=1): proves the path, claims nothing
"""

from ml_collections import ConfigDict

GUARD = {"explode": 100.0, "patience": 5}  # see trainers.optimizer.Config


def supervised(steps, lr, save_every=100):
    optimizer = ConfigDict({"method": "muon", "lr": lr, "warmup": 10, **GUARD})
    return ConfigDict({"steps": steps, "save_every": save_every, "optimizer": optimizer})


def agent(steps, alpha):
    return ConfigDict(
        {
            "steps": steps,
            "goals": 16,
            "copies": 8,
            "updates": 2,
            "csd_updates": 1,
            "beta": 5.0,
            "save_every": 5,
            "stream": 1000,
            "loss": {"eps_low": 0.2, "eps_high": 0.28, "alpha": alpha, "entropy": 0.0},
            "credit": {"score": "sum", "credit": "equalized", "gamma": 1.0},
            "optimizer": {
                "method": "adamw",
                "lr": 1.5e-4,
                "warmup": 2,
                "decay": "constant",
                "weight_decay": 0.0,
                **GUARD,
            },
        }
    )


def get_config():
    config = ConfigDict()
    config.kind = "demo"
    config.seed = 0
    config.model = ConfigDict({"width": 128, "mlp": 384, "periods": 1, "chunk": 8})
    config.vocab = 1024
    config.shape = ConfigDict({"rows": 8, "length": 256, "chunk": 8, "learned": 160, "slots": 2})
    # One device. More: --config.mesh.fsdp=8, see docs/sharding.md; the rows of shape are split.
    config.mesh = ConfigDict({"preset": "fsdp", "data": 1, "fsdp": 1, "tensor": 1})
    config.engine = ConfigDict({"slots": 64, "length": 224, "block": 8, "buckets": (16, 48)})
    config.world = ConfigDict(
        {
            "base": 8000,  # dialogues of all six training families, both chairs learn
            "denied": 0.25,  # share of them with many denied cases
            "open": 0.15,  # ... with people who say all at once
            "naive": 0.1,  # ... with the agent that the start imitates
            "start": 2500,  # dialogues of that agent,
            "start_q": 0.95,  # which is right that often at each turn,
            "start_having": 0.45,  # and has each of the desk's skills in that share of dialogues
            "user": 2000,  # of the third that the simulator is trained on
            "twisted": 1500,  # more of these, of cases with something to correct alone
            "practice": 4000,  # behaviour, control and recall rows of that third
            "model_user": 1200,  # of each model user of the evaluation
            "perfect": 2000,  # of the scripted agent without mistakes (arm sft_perfect)
            "drills": 3000,
            "held_out": 200,
            "value_weight": 3.0,  # loss weight of slot values beside other tokens
            "reworded": 0.0,  # of user turns in the agent's rows, their filler words
            "notes": 0.25,  # share of the start agent's turns that carry a coach's note
        }
    )
    config.drill = supervised(90, 3e-3)
    config.base = supervised(1000, 4e-3)
    config.user_midtrain = supervised(50, 1e-3)
    config.user_thoughts = supervised(400, 1e-3)
    config.model_user = supervised(130, 1e-3)
    config.agent_start = supervised(100, 1e-3)
    config.sft_perfect = supervised(80, 7e-4)
    config.user_behaviours = ConfigDict(
        {
            "steps": 32,
            "rows": 18,
            "copies": 8,
            "updates": 1,
            "save_every": 5,
            "stream": 2000,
            "loss": {"eps_low": 0.2, "eps_high": 0.28},
            "credit": {"score": "sum", "credit": "equalized", "gamma": 1.0},
            "optimizer": {
                "method": "adamw",
                "lr": 3e-4,
                "warmup": 2,
                "decay": "constant",
                "weight_decay": 0.0,
                **GUARD,
            },
        }
    )
    config.agent_grpo = agent(28, 0.0)
    config.agent_csd = agent(28, 0.05)
    config.agent_grpo_assistant_user = agent(28, 0.0)
    config.user_seat = ConfigDict({"thinking": "sample", "temperature": 1.0, "limit": 40})
    config.agent_seat = ConfigDict({"thinking": "none", "temperature": 1.0, "limit": 16})
    # As it serves and is measured; at 1 its rare slips make it harder than people (docs/log.md).
    config.simulator = ConfigDict({"temperature": 0.8})
    # Newest ones that stay, steps whose multiples stay for good (0: none), and where ("": in OUT).
    config.checkpoints = ConfigDict({"keep": 2, "every": 0, "folder": ""})
    config.evaluation = ConfigDict({"goals": 24, "temperature": 0.5, "behaviour_rows": 12})
    # What --quick changes: the same path in few steps.
    short = {"steps": 25, "save_every": 10}
    config.quick = ConfigDict(
        {
            "world": {
                "base": 300, "start": 150, "user": 120, "twisted": 60, "practice": 250,
                "model_user": 100, "perfect": 100, "drills": 200, "held_out": 30,
            },
            "drill": short, "base": short, "user_midtrain": short, "user_thoughts": short,
            "model_user": short, "agent_start": short, "sft_perfect": short,
            "user_behaviours": {"steps": 3, "rows": 18, "copies": 2, "save_every": 2},
            "agent_grpo": {"steps": 3, "goals": 4, "copies": 4, "save_every": 2},
            "agent_csd": {"steps": 3, "goals": 4, "copies": 4, "save_every": 2},
            "agent_grpo_assistant_user": {"steps": 3, "goals": 4, "copies": 4, "save_every": 2},
            "evaluation": {"goals": 6, "behaviour_rows": 2},
        }
    )  # fmt: skip
    return config
