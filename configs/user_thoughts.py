"""Thoughts on top of user mid-training: each human turn is its private thought, then its words.

    mimesis train --config user_thoughts --config.start=runs/user_midtrain

reads   start: the run folder of `user_midtrain` (its sizes and tokenizer are kept), and data.paths
        as there; conversations without recorded thoughts teach empty ones. A held-out conversation
        that `start` was trained on is an error: give both the same data, seed and counts
writes  the run folder; user_thoughts/ in it is the frozen user model
time    on the sample a minute of the 6:17 of thoughttrace.py

Expected on the sample, after user_midtrain (see thoughttrace.py): nll_thoughts 5.445 behind an
empty thought, 5.434 with the brief too; unigram 6.485, trigram 5.897.
"""

from ml_collections import ConfigDict


def get_config() -> ConfigDict:
    """The values by section; any of them can be set with --config.KEY=VALUE."""
    adamw = dict(decay="cosine", floor=0.1, weight_decay=0.1, clip=1.0)
    adamw |= dict(explode=100.0, patience=5)
    return ConfigDict(
        {
            "kind": "people",
            "seed": 0,
            "start": "runs/user_midtrain",
            "stages": ("user_thoughts",),
            "data": {
                "source": "thoughttrace",
                "paths": ("../shared/data/thoughttrace/sample.jsonl",),
                "split": "train",
                "held_out": 5,
                "validation": 3,
                "max_bad_share": 0.01,
            },
            "rows": {"rows": 2, "length": 768, "context": 384, "turn": 160},
            # One device. More: --config.mesh.fsdp=2, the rows are split over them.
            "mesh": {"preset": "fsdp", "data": 1, "fsdp": 1, "tensor": 1},
            "checkpoints": {"keep": 2, "every": 0, "folder": ""},
            "user_thoughts": {
                "steps": 60,
                "save_every": 10,
                "optimizer": {"lr": 5e-4, "warmup": 20, **adamw},
            },
        }
    )
