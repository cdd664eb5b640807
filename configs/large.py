"""What the eight large runs share: the papers' settings of each stage, models, meshes and shapes.

The files simulator_{midtrain,thoughts,grpo}_{4b,9b}.py and agent_csd_{4b,9b}.py are each one of
these, by its name. A figure marked [paper] is the published one (arXiv 2610.09484); the others are
ours, chosen so that the shapes are plausible on 16 chips of v5p, and measured by nobody yet.

`mimesis train` runs them (build/large.py), on as many processes and devices as the mesh has, and
`mimesis plan` says beforehand what they need; `launch/README.md` says on which machines. Tests run
the same four stages on small checkpoints.
"""

from ml_collections import ConfigDict

MODELS = {  # the sizes' simulators and agents: preset of the spec, checkpoint
    "simulator_4b": ("qwen35_4b", "checkpoints/Qwen3.5-4B"),
    "simulator_9b": ("qwen35_9b", "checkpoints/Qwen3.5-9B"),
    "agent_4b": ("qwen3_4b", "checkpoints/Qwen3-4B"),
    "agent_9b": ("qwen3_8b", "checkpoints/Qwen3-8B"),
}


def model(preset: str, checkpoint: str) -> dict:
    """A trained model: bf16 computation, fp32 weights of record, layers computed again."""
    return {
        "preset": preset,
        "checkpoint": checkpoint,
        "dtype": "bfloat16",
        "param_dtype": "float32",
        "remat": "full",
    }


def frozen(preset: str, checkpoint: str) -> dict:
    """A model that only decodes."""
    return model(preset, checkpoint) | {"param_dtype": "bfloat16", "remat": "none"}


def optimizer(lr: float, **fields) -> dict:
    """AdamW as every stage has it."""
    return {"lr": lr, "warmup": 50, "floor": 0.1, "weight_decay": 0.01, "clip": 1.0, **fields}


def grpo(**fields) -> dict:
    """What both GRPO stages share: n = 8 and clip 0.2/0.28 [paper], no KL, one update a batch."""
    loss = {"eps_low": 0.2, "eps_high": 0.28, "entropy": 0.0}
    return {"copies": 8, "updates": 1, "save_every": 10, "loss": loss} | fields


def midtrain() -> dict:
    """User-role mid-training: lr 3e-5 cosine, 5,000 steps, context 16k [paper]; 32 rows a step."""
    return {"steps": 5000, "save_every": 250, "optimizer": optimizer(3e-5, decay="cosine")}


def thoughts() -> dict:
    """Thought SFT: lr 1e-7, 3 epochs [paper]; the steps follow from the data (`epochs`)."""
    return {"steps": 300, "save_every": 50, "optimizer": optimizer(1e-7, decay="cosine")}


def behaviours() -> dict:
    """Joint GRPO of the user: lr 8e-6, no KL [paper]; one reward a dialogue."""
    credit = {"score": "sum", "credit": "equalized", "gamma": 1.0}
    rate = optimizer(8e-6, warmup=10, decay="constant", weight_decay=0.0)
    return grpo(steps=200, rows=64, stream=2000, credit=credit, optimizer=rate)


def agent() -> dict:
    """Multi-turn GRPO with CSD: r2g with gamma 0.8, alpha 0.01 with lr 1e-6, beta 5 [paper].

    CSD in every update, as published; with one update a batch that is the on-policy one.
    """
    loss = {"eps_low": 0.2, "eps_high": 0.28, "alpha": 0.01, "entropy": 0.0}
    credit = {"score": "r2g", "credit": "r2g", "gamma": 0.8}
    rate = optimizer(1e-6, warmup=10, decay="constant", weight_decay=0.0)
    own = {"loss": loss, "credit": credit, "optimizer": rate, "csd_updates": 1, "beta": 5.0}
    return grpo(steps=300, goals=16, stream=1000, **own)


# Rows are of all devices together: a multiple of data x fsdp.
LONG_ROWS = {"rows": 16, "length": 16384, "chunk": 64, "learned": 6144, "slots": 1}
EPISODE_ROWS = {"rows": 16, "length": 8192, "chunk": 64, "learned": 4096, "slots": 2}
MESH = {"preset": "fsdp", "data": 1, "fsdp": 16, "tensor": 1}
CONVERSATIONS = {
    "source": "wildchat", "paths": ("data/wildchat",), "split": "train", "held_out": 2000,
    "validation": 500, "max_bad_share": 0.01, "epochs": 1,
}  # fmt: skip
ANNOTATED = {
    "source": "thoughttrace", "paths": ("data/thoughttrace",), "split": "train",
    "held_out": 200, "validation": 100, "max_bad_share": 0.01, "epochs": 3,
}  # fmt: skip
PLAYED = {  # what a stage that plays has besides its models
    # Slots and rows of one process: each decodes on its own devices.
    "engine": {
        "slots": 32, "length": 8192, "block": 16, "buckets": (64, 256, 1024, 4096), "rows": (8,)
    },
    # min_think 4 [paper]
    "user_seat": {"thinking": "sample", "temperature": 1.0, "limit": 512, "min_think": 4},
    "agent_seat": {"thinking": "sample", "temperature": 1.0, "limit": 1024},
    "turns": 16,  # of a gym
    "shape": EPISODE_ROWS,
}  # fmt: skip


def stages(size: str) -> dict[str, dict]:
    """The sections of the four runs of a size, "4b" or "9b", each begun from the one before it."""
    user, served = MODELS[f"simulator_{size}"], MODELS[f"agent_{size}"]
    begun = lambda stage: f"runs/{stage}_{size}"
    return {
        "simulator_midtrain": {
            "start": "", "model": model(*user), "data": CONVERSATIONS, "shape": LONG_ROWS,
            "simulator_midtrain": midtrain(),
        },
        "simulator_thoughts": {
            "start": begun("simulator_midtrain"), "model": model(*user), "data": ANNOTATED,
            "shape": LONG_ROWS, "simulator_thoughts": thoughts(),
        },
        "simulator_grpo": {
            "start": begun("simulator_thoughts"), "model": model(*user),
            "opposite": frozen(*served), **PLAYED, "simulator_grpo": behaviours(),
        },
        "agent_csd": {
            "start": begun("simulator_grpo"), "model": model(*served),
            "opposite": frozen(*user), **PLAYED, "agent_csd": agent(),
        },
    }  # fmt: skip


def get_config() -> ConfigDict:
    """The eight runs by the names of their files."""
    common = {"kind": "large", "seed": 0, "mesh": MESH, "micro_batches": 2}
    return ConfigDict(
        {
            f"{stage}_{size}": {**common, "stage": stage, **sections}
            for size in ("4b", "9b")
            for stage, sections in stages(size).items()
        }
    )
