r"""User mid-training on conversations of your own: human turns are learned, public text only.

    mimesis train --config user_midtrain --config.data.source=wildchat \
        --config.data.paths=FILE --config.data.held_out=200 --config.data.validation=100

reads   data.paths: files of one kind (data.source: thoughttrace, abcd, wildchat, lmsys, prism,
        plain or desk), or one folder that `mimesis data build` made; by default the ThoughtTrace
        sample
writes  the run folder; user_midtrain/ in it is what `user_thoughts` starts from
time    on the sample 5:05 of the 6:17 of thoughttrace.py; the steps decide, not the set's size

Expected on the sample (see thoughttrace.py): nll_before 5.525, nll_midtrain 5.445, unigram 6.485,
trigram 5.897. For a larger set raise base.steps, model.width and model.vocab with it.
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
            "start": "",
            "stages": ("base", "user_midtrain"),
            "data": {
                "source": "thoughttrace",
                "paths": ("../shared/data/thoughttrace/sample.jsonl",),
                "split": "train",
                "held_out": 5,
                "validation": 3,
                "max_bad_share": 0.01,
            },
            "checkpoints": {"keep": 2, "every": 0, "folder": ""},
            "model": {"vocab": 2048, "width": 192, "mlp": 576, "periods": 2, "chunk": 16},
            "rows": {"rows": 2, "length": 768, "context": 384, "turn": 160},
            # One device. More: --config.mesh.fsdp=2, the rows are split over them.
            "mesh": {"preset": "fsdp", "data": 1, "fsdp": 1, "tensor": 1},
            "base": {
                "steps": 420,
                "save_every": 60,
                "optimizer": {"lr": 3e-3, "warmup": 20, **adamw},
            },
            "user_midtrain": {
                "steps": 60,
                "save_every": 10,
                "optimizer": {"lr": 5e-4, "warmup": 20, **adamw},
            },
        }
    )
