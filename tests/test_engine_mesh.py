"""The engine over eight (virtual) devices says what it says on one; weights reach it from device to
device; nothing of a cache moves between devices."""

import functools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ALWAYS, SLOW = ("slices",), ("rows", "heads beyond kv heads")


@functools.cache
def found(*names):
    """What tests/many_engines.py printed of these meshes, all compiled in one process."""
    env = os.environ | {
        "XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)]),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, HERE / "many_engines.py", *names], env=env, capture_output=True, text=True,
        timeout=540,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def of(name):
    return found(*(ALWAYS if name in ALWAYS else SLOW))


SPLIT = {"rows": (8, 1), "slices": (4, 2), "heads beyond kv heads": (2, 4)}  # slots, heads
each_mesh = pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in SPLIT]
)


@each_mesh
def test_tokens_are_those_of_one_device(name):
    """Greedy and sampled, with shared prompts, rounds, evictions and rebuilds.

    Log-probs to 2e-5: a tensor group sums a layer's parts in another order than one product does,
    and where only rows are split a device's products have fewer rows, which a CPU may block
    otherwise.
    """
    one = of(name)["meshes"][name]
    assert one["tokens"] and one["logp"] < 2e-5
    assert one["late"] == 0  # after warm(), two temperatures and another load included
    assert one["counts"]["evictions"] > 0 and one["counts"]["reprefilled_tokens"] > 0


@each_mesh
def test_a_device_has_its_slots_and_its_heads_only(name):
    (rows, heads), whole = SPLIT[name], of(name)
    one = whole["meshes"][name]
    # two kv heads: over four devices each has one of them, and two have the same one
    assert one["keys_on_a_device"] * rows * min(heads, 2) == whole["keys"]
    assert one["state_on_a_device"] * rows * heads == whole["state"]


@each_mesh
def test_a_step_exchanges_sums_of_a_layer_and_logits_and_nothing_of_the_cache(name):
    traffic = of(name)["meshes"][name]["traffic"]
    rows, heads = SPLIT[name]
    slots = 8 // rows
    if heads == 1:
        assert traffic == {}
        return
    # embeddings, and two sums a layer: 2 periods of 2 layers of width 32; logits of 64 ids
    assert traffic["all-reduce"] == [f"f32[{slots},32]"] * 9
    assert traffic["all-gather"] == [f"f32[{slots},64]"]
    assert set(traffic) == {"all-reduce", "all-gather"}


@pytest.mark.slow
def test_prompts_are_computed_once_a_device():
    alone = found(*SLOW)["alone"]
    rows, both = (found(*SLOW)["meshes"][name]["counts"] for name in SLOW)
    assert alone["shared_tokens"] > 0 and rows.get("shared_tokens", 0) == 0  # one slot a device
    assert 0 < both["shared_tokens"] < 2 * alone["shared_tokens"]  # four slots a device


def test_weights_are_handed_over_without_the_host():
    moved = found(*ALWAYS)["handed_over"]
    assert len(moved) == 8
    for name, (equal, laid) in moved.items():
        assert equal and laid, name


def test_what_cannot_be_laid_out_is_refused_with_the_mend():
    refused = found(*ALWAYS)["refused"]
    assert refused["slots"] == (
        "6 slots cannot be split over the 8 devices of data x fsdp: use --config.engine.slots=8"
    )
    assert "cannot be split over the 4 devices" in refused["heads"]


def test_two_processes_share_training_and_decode_apart():
    """Each gets a whole copy on its own devices, from either order of the trainer's, and plays as
    many conversations as it likes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])}
    both = [
        subprocess.Popen(
            [sys.executable, HERE / "two_engines.py", str(index), str(port)], env=env, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for index in range(2)
    ]  # fmt: skip
    try:
        told = [one.communicate(timeout=400) for one in both]
    finally:
        for one in both:
            one.kill()
    assert [one.returncode for one in both] == [0, 0], "\n".join(err[-3000:] for _, err in told)
    for index, (text, _) in enumerate(told):
        out = json.loads(text.splitlines()[-1])
        assert out["count"] == 3 + 2 * index
        assert out["mine"] == out["equal"] == out["tokens"] == [True, True]
        assert "spread over several processes" in out["no layout"]
        assert f"this is process {index}: decoding never spans processes" in out["everybody's"]
