"""A miniature of `mimesis train` of kind "people" by the command line, for tests that end it.

    python tests/people_run.py train --config tests/people_run.py --config.data.paths=FILE \\
        --config.mesh.fsdp=-1 --out OUT --processes 2 --process I --coordinator 127.0.0.1:PORT

With KILL=PHASE:N in the environment a process that is not the first kills itself in step N of that
phase, when it would report it.
"""

import json
import os
import signal
import sys

import numpy as np
from ml_collections import ConfigDict

from mimesis_jax import cli
from mimesis_jax.runs import processes_folder

WORDS = (
    "tea milk water please thanks more sugar cold warm cup pot leaf green black now later".split()
)


def made(number, rng):
    """A row of ThoughtTrace's form whose every conversation has a word of its own."""
    say = lambda n: " ".join(rng.choice(WORDS, n)) + f" own{number}own"
    messages = []
    for turn in range(3):
        reasons = [{"content": say(3), "label": "task_motivation"}]
        messages.append({"type": "user", "id": 2 * turn, "content": say(4), "reasons": reasons})
        messages.append({"type": "assistant", "id": 2 * turn + 1, "content": say(60)})
    return {"id": f"c{number}", "messages": messages, "task_summary": say(4)}


def write(path, count=6):
    """A file of so many conversations."""
    rng = np.random.default_rng(0)
    path.write_text("".join(json.dumps(made(n, rng)) + "\n" for n in range(count)))


def get_config():
    """Four rows a batch, so that four devices have one each. eps is as large as gradients are: what
    is noise beside them moves a parameter by next to nothing."""
    guard = {"explode": 100.0, "patience": 2}
    adam = {"lr": 1e-2, "warmup": 1, "eps": 1e-3, **guard}
    stage = {"steps": 4, "save_every": 2, "optimizer": adam}
    return ConfigDict(
        {
            "kind": "people",
            "seed": 0,
            "data": {"paths": ("talk.jsonl",), "held_out": 2, "validation": 1},
            "model": {"vocab": 300, "width": 16, "mlp": 16, "periods": 1, "chunk": 8},
            "rows": {"rows": 4, "length": 256, "context": 64, "turn": 40},
            "mesh": {"preset": "fsdp", "data": 1, "fsdp": 1, "tensor": 1},
            "base": stage, "user_midtrain": stage, "user_thoughts": stage,
            "checkpoints": {"keep": 2, "every": 0, "folder": ""},
        }
    )  # fmt: skip


def die(run, phase, step, scalars):
    """In place of Follower.metrics."""
    if f"{phase}:{step}" == os.environ.get("KILL"):
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    processes_folder.Follower.metrics = die
    sys.exit(cli.main())
