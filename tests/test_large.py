"""The large stages on small checkpoints: each from the one before it, on a mesh, and refusals."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from people_run import made as conversation
from test_published import BYTES, folder

from mimesis_jax import config, pretrained
from mimesis_jax.build import large, large_data, verbs
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.runs import checkpoint, disk

TOKENS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>",
    "</tool_call>", "<tool_response>", "</tool_response>",
)  # fmt: skip
SIZES = dict(vocab=280, vocab_real=280, width=32, mlp=48, heads=4, kv_heads=2, head_dim=8,
             rotary_dim=8, init_std=0.1)  # fmt: skip
USER = specs.Spec(
    **SIZES, period=("linear", "full"), periods=1, linear_key_heads=2, linear_value_heads=2,
    linear_key_dim=8, linear_value_dim=8,
)  # fmt: skip
AGENT = specs.Spec(
    **SIZES, period=("full",), periods=2, norm="plain", qk_norm="plain", attn_output_gate=False
)


@pytest.fixture(autouse=True)
def hasty():
    """Compiled without optimisations and kept nowhere: these models run for milliseconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def published(path: Path, spec: specs.Spec, seed: int) -> str:
    """A folder as the hub has it: random weights, and a tokenizer with the family's tokens."""
    pretrained.save(path, spec, decoder.init(spec, jax.random.key(seed)))
    pieces = [*TOKENS, *sorted(BYTES)]
    added = [
        {"id": i, "content": name, "special": "think" not in name, "single_word": False,
         "lstrip": False, "rstrip": False, "normalized": False}
        for i, name in enumerate(TOKENS)
    ]  # fmt: skip
    folder(path, added_tokens=added, model={
        "type": "BPE", "unk_token": "<|im_end|>", "ignore_merges": False,
        "vocab": {token: i for i, token in enumerate(pieces)}, "merges": [],
    })  # fmt: skip
    return str(path)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Checkpoints and conversations."""
    home = tmp_path_factory.mktemp("large")
    published(home / "user", USER, 0)
    published(home / "agent", AGENT, 1)
    rng = np.random.default_rng(0)
    lines = "".join(json.dumps(conversation(n, rng)) + "\n" for n in range(8))
    (home / "talk.jsonl").write_text(lines)
    return home


def small(home: Path, name: str, start: str = "") -> ConfigDict:
    """A large configuration, its models and shapes made small."""
    made = config.read(name)
    with made.unlocked():
        made.start = str(home / start) if start else ""
        made.mesh.fsdp, made.micro_batches = 1, 2
        made.shape = {"rows": 2, "length": 512, "chunk": 8, "learned": 384, "slots": 2}
        for key, folder in (("model", "user"), ("opposite", "agent")):
            if key in made:
                if name.startswith("agent"):
                    folder = {"user": "agent", "agent": "user"}[folder]
                made[key].update(preset="", checkpoint=str(home / folder), dtype="float32")
        own = made[made.stage]
        own.steps, own.save_every, own.optimizer.warmup = 2, 1, 1
        own.optimizer.lr = 1e-3
        if "data" in made:
            made.data.update(source="thoughttrace", paths=(str(home / "talk.jsonl"),),
                             held_out=2, validation=1)  # fmt: skip
        else:
            own.copies = 2
            made.engine = {"slots": 4, "length": 512, "block": 8, "buckets": (64,), "stops": 4}
            made.user_seat.limit = made.agent_seat.limit = 12
            made.user_seat.min_think = 2
            made.turns = 2
        if "rows" in own:
            own.rows = 4
        if "goals" in own:
            own.goals = 2
    return made


CHAIN = ("simulator_midtrain", "simulator_thoughts", "simulator_grpo", "agent_csd")


@pytest.mark.slow
def test_four_stages_each_from_the_one_before(home):
    before, last = "", ""
    for stage in CHAIN:
        made = small(home, f"{stage}_4b", before)
        if stage == "agent_csd":
            made.agent_csd.loss.alpha = 0.1
        told = verbs.train(made, home / stage)
        assert told["stage"] == stage and told["hash"]
        frozen = checkpoint.load_frozen(home / stage / "models" / stage, expect=told["hash"])
        if before:
            known = json.loads((home / stage / "versions.json").read_text())["hashes"]
            assert known["simulator" if stage == "agent_csd" else "start"] == last
        if "data" in made:
            assert told["steps"] <= 2 and told["nll_held_out"] < told["nll_held_out_before"]
        assert frozen.meta["stage"] == stage
        lines = (home / stage / "metrics.jsonl").read_text().splitlines()
        phases = [json.loads(line)["phase"] for line in lines]
        assert phases.count(stage) == min(2, told.get("steps", 2))
        before, last = stage, told["hash"]
    again = verbs.train(small(home, "simulator_midtrain_4b"), home / "simulator_midtrain")
    assert (
        again["hash"] == json.loads((home / "simulator_midtrain/summary.json").read_text())["hash"]
    )


def test_epochs_bound_the_steps(home):
    made = large.settings(small(home, "simulator_midtrain_4b"))
    own = large.voice(made.model, made)
    found = large_data.read(made.data, own.renderer, made.shape, 0)
    places = sum(
        -(-len(s.ids) // 8) * 8 for item in found.train["user_midtrain"] for s in found.tree(item)
    )
    once = large_data.steps(found, "user_midtrain", made.data, made.shape, 1)
    assert (once - 1) * 1024 < places <= once * 1024
    many = dataclasses.replace(made.data, epochs=50)
    assert large_data.steps(found, "user_midtrain", many, made.shape, 1) == -(-50 * places // 1024)


@pytest.mark.parametrize(
    "name, change, said",
    [
        ("simulator_midtrain_4b", {"stage": "midtrain"}, "did you mean simulator_midtrain"),
        ("simulator_thoughts_4b", {"start": ""}, "config.start is missing: name the run folder"),
        ("simulator_midtrain_4b", {"micro_batches": 0}, "config.micro_batches=0: 1 is the least"),
        ("simulator_midtrain_4b", {"enigne": {}}, "unknown key config.enigne"),
        ("simulator_midtrain_4b", {"mesh.fsdp": 7}, "a mesh of data 1 x fsdp 7"),
        ("simulator_midtrain_4b", {"model.preset": "qwen35_4b"}, "is no qwen35_4b: vocab is 280"),
        ("simulator_midtrain_4b", {"model.preset": "qwen35_5b"}, "did you mean qwen35_"),
        ("simulator_midtrain_4b", {"model.checkpoint": "nowhere"}, "there is no model at nowhere"),
        ("simulator_thoughts_4b", {"start": "nowhere"}, "has not finished simulator_midtrain"),
    ],
)
def test_refused_before_anything_is_written(home, tmp_path, name, change, said):
    made = small(home, name, "x")
    with made.unlocked():
        for key, value in change.items():
            *path, last = key.split(".")
            place = made
            for part in path:
                place = place[part]
            place[last] = value
    with pytest.raises((config.ConfigError, ValueError, disk.RunError), match=said):
        verbs.train(made, tmp_path / "run")
    assert not (tmp_path / "run" / "models").exists()


MANY = """
import sys
sys.path.insert(0, {here!r})
import jax
jax.config.update("jax_disable_most_optimizations", True)
import test_large
from pathlib import Path
from mimesis_jax.build import verbs
made = test_large.small(Path({home!r}), "simulator_midtrain_4b")
with made.unlocked():
    made.mesh.fsdp = 2
print("hash", verbs.train(made, Path({out!r}))["nll_held_out"])
"""


@pytest.mark.slow
def test_a_stage_on_two_devices_learns_the_same(home, tmp_path):
    alone = verbs.train(small(home, "simulator_midtrain_4b"), tmp_path / "one")
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=2"
    code = MANY.format(here=str(Path(__file__).parent), home=str(home), out=str(tmp_path / "two"))
    got = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert got.returncode == 0, got.stderr[-3000:]
    nll = float(got.stdout.split()[-1])
    assert nll == pytest.approx(alone["nll_held_out"], abs=1e-4)
