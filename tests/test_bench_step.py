"""The step bench at tiny sizes: recorded chairs, what is counted, baselines, the GPU script."""

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from small_desk import quick_compiles  # noqa: F401 - acts by being here

from mimesis_jax import cli, types
from mimesis_jax.bench import (
    measure,
    peer,
    step,
    step_cost,
    step_kinds,
    step_learners,
    step_peer,
    step_recorded,
    step_table,
    step_workload,
)
from mimesis_jax.forest import pack
from mimesis_jax.models import decoder, flops
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import engine
from mimesis_jax.trainers import agent

HAVE_PEER = importlib.util.find_spec("tunix") is not None
SCRIPT = Path(__file__).resolve().parent.parent / "launch" / "bench_gpu.sh"


def small() -> step_workload.Settings:
    """The tiny model's settings, smaller still."""
    made = step_workload.named("tiny")
    return dataclasses.replace(
        made,
        model=lambda vocab, real: specs.tiny(vocab, real, width=32, mlp=32),
        shape=dataclasses.replace(made.shape, rows=2),
        engine=engine.Config(slots=6, length=224, block=8, buckets=(16, 48), rows=()),
        train=dataclasses.replace(made.train, goals=2, copies=3),
        vocab=512,
    )


@pytest.fixture(scope="module")
def made():
    return step_workload.world(small(), decoder.Compute())


@pytest.fixture(scope="module")
def timed(made):
    plan = step_kinds.Plan(step_kinds.KINDS, 1, float("inf"))
    return step_kinds.timed(step_kinds.Steps(made), plan, lambda text: None)


# --- chairs that say what was recorded ----------------------------------------------------------


def test_an_untrained_model_plays_the_recorded_episodes(made, timed):
    made.state, metrics, episodes, trees = agent.step(made.state, 99, made.parts, made.train)
    assert [e.dialogue for e in episodes] == [e.dialogue for e in made.played.episodes]
    assert [e.rewards for e in episodes] == [e.rewards for e in made.played.episodes]
    # What the seats computed is what the renderer would have made of the same dialogues.
    wanted = sum(len(s) for tree in made.played.agent_trees() for s in tree)
    assert abs(sum(len(s) for e in episodes for s in e.trees["agent"]) - wanted) <= len(episodes)
    assert all(np.all(s.old_logp <= 0) for tree in trees for s in tree)
    assert metrics["masked_episodes"] == 0


def test_recorded_ids_are_those_that_the_seat_would_parse(made):
    renderer = made.played.renderer
    seats = made.settings.agent_seat, made.settings.user_seat
    for chair, config in zip(types.CHAIRS[::-1], seats, strict=True):
        thinking = config.thinking
        said = step_recorded.said(made.played.episodes, renderer, chair, thinking)
        for episode in made.played.episodes:
            for i, turn in enumerate(episode.dialogue):
                name = (episode.key.goal, episode.key.copy, i)
                assert (name in said) == (turn.author == chair)
                if name in said:
                    parsed = renderer.parse(said[name].tolist(), thinking, chair)
                    assert parsed.well_formed and parsed.public == turn.public
                    assert said[name][-1] in renderer.stops(chair)
                    assert parsed.left == (
                        chair == "user" and episode.stop is types.Stop.LEFT
                        and i == len(episode.dialogue) - 1
                    )  # fmt: skip


def test_a_reply_without_a_record_is_named(made):
    held = made.engines["agent"]
    asked = engine.Request("x", [3], (), False, (1, 7, 0, 4), (), 3)
    with pytest.raises(measure.BenchError, match="goal 7, copy 0 has no recorded reply at turn 2"):
        held.submit(asked)


def test_a_slot_that_is_too_short_is_named(made):
    said = {(0, 0, 2): np.arange(9, dtype=np.int32)}
    config = engine.Config(slots=1, length=8, block=8, buckets=(4,), rows=())
    params = decoder.init(made.spec, jax.random.key(1))
    held = step_recorded.Recorded(made.spec, params, config, said=said)
    held.submit(engine.Request("x", [3, 4], (), False, (1, 0, 0, 4), (), 3))
    with pytest.raises(measure.BenchError, match="9 tokens did not fit a slot of 8"):
        while held.open_requests:
            held.advance()


# --- what is counted ----------------------------------------------------------------------------


def test_every_kind_has_its_phases_and_nothing_recompiles(timed):
    for kind in step_kinds.KINDS:
        one = timed[kind]
        assert one["step_s"] > 0 and len(one["passes_s"]) == 2 and one["noise"] >= 0
        assert set(one["phases_s"]) <= set(step_table.PHASES)
        assert one["repeats"] == [1, 1]
        for tokens in one["tokens"].values():
            assert 0 <= tokens["real"] <= tokens["computed"]
        assert one["model_flops"]["step"] == sum(
            n for name, n in one["model_flops"].items() if name != "step"
        )
        assert all(share is None for share in one["mfu"].values())  # a CPU is in no table
        assert one["tflops"]["update"] > 0
    assert timed["compiles"] > 0 and timed["compile_s"] > 0
    assert timed["compiles_after_warmup"] == 0, timed["compiled_after_warmup"]
    assert (
        timed["csd"]["tokens"]["scoring"]["real"] > 0 == timed["grpo"]["tokens"]["scoring"]["real"]
    )


def test_phases_of_a_watched_step_add_up_to_it(made, timed):
    seen = step_kinds.Steps(made).run("csd", watch=True)
    parts = sum(value for name, value in seen.seconds.items() if name != "step")
    assert parts == pytest.approx(seen.seconds["step"], rel=1e-6)
    assert min(seen.seconds.values()) >= 0


def test_an_update_counts_what_the_trainer_packs(made, timed):
    made.state, metrics, episodes, trees = agent.step(made.state, 98, made.parts, made.train)
    alpha = made.train.loss.alpha
    work, packed = step_cost.update(made.spec, trees, made.settings.shape, [alpha])
    assert work.tokens == metrics["tokens"]
    assert 1 - work.tokens / work.places == pytest.approx(metrics["padding_share"])
    assert work.places == sum(f.valid.size for f in packed.forests)


def test_forests_cost_what_their_mask_allows():
    spec = specs.tiny(64, width=32, mlp=32)
    ids = np.arange(1, 11)
    tree = (types.segment(ids), types.segment(ids[:4], 0, scored=True))
    packed = pack.pack([tree], pack.Shape(1, 32, 8, 8, 2))
    work = step_cost.forests(spec, packed, backward=False)
    assert work.tokens == 14 and work.places == 32
    assert work.flops == flops.forward(spec, tokens=14, pairs=flops.line(14), learned=4)
    assert step_cost.forests(spec, packed, backward=True).flops == 3 * work.flops


def test_a_rollout_costs_what_its_line_does():
    spec = specs.tiny(64, width=32, mlp=32)
    tree = (types.segment(np.arange(1, 7)), types.segment(np.arange(1, 5), 0, scored=True))
    counts = {
        "prefill_tokens": 6, "shared_tokens": 0, "decoded_tokens": 4, "prefill_cells": 16,
        "decode_rows": 8,
    }  # fmt: skip
    found = step_cost.rollout(spec, [tree], counts)
    assert found["prefill"] == step_cost.Work(
        6, 16, flops.forward(spec, tokens=6, pairs=flops.line(6), learned=0)
    )
    assert found["decode"].flops == sum(flops.decode(spec, context=n) for n in range(7, 11))
    halved = step_cost.rollout(spec, [tree, tree], counts | {"prefill_tokens": 12,
                               "shared_tokens": 6, "decoded_tokens": 8})  # fmt: skip
    assert halved["prefill"].tokens == 6 and halved["prefill"].flops == found["prefill"].flops
    assert halved["decode"].flops == 2 * found["decode"].flops


def test_mfu_is_of_all_devices_and_of_known_ones_only(monkeypatch):
    assert step_cost.rate(4_000_000, 2.0, 1) == {"tflops": 2e-6, "mfu": None}

    class Device:
        device_kind = "TPU v5e"

    monkeypatch.setattr(step_cost.jax, "devices", lambda: [Device()])
    assert step_cost.rate(394_000_000_000_000, 2.0, 2)["mfu"] == pytest.approx(0.5)


# --- words, tables, baselines -------------------------------------------------------------------

FIGURES: dict[str, Any] = {
    "kinds": {
        "grpo": {
            "step_s": 2.0, "passes_s": [1.9, 2.1], "noise": 0.1, "first_s": 9.0, "compiles": 3,
            "compile_s": 5.0, "phases_s": {"update": 1.0, "text": 0.2},
            "tokens": {"update": {"real": 1000, "computed": 1500}},
            "tokens_per_s": {"update": 1000.0}, "tflops": {"update": 0.5, "step": 0.4},
            "mfu": {"update": 0.25, "step": None},
        }
    },
    "settings": {"model": "tiny", "config": None, "devices": 1, "preset": "fsdp", "goals": 2,
                 "copies": 3, "updates": 1, "shape": {"rows": 2}, "device": "cpu"},
    "machine": {"device": "cpu"},
    "memory": {"held": 1 << 30, "peak": None, "programs": {"apply": 1 << 29}},
    "compiles": 7, "compile_s": 6.0, "compiles_after_warmup": 0, "parameters": 1234,
}  # fmt: skip


def test_the_table_has_a_row_for_every_phase_and_the_step():
    rows = step_table.lines(FIGURES)
    update = next(row for row in rows if "update" in row)
    assert update.split() == ["grpo", "update", "1.0000", "1,000", "1,500", "1,000", "0.5", "25.0%"]
    assert any(row.split()[:3] == ["grpo", "step", "2.0000"] for row in rows)
    assert "held 1.000, apply 0.500" in rows[-2] and "after that: 0" in rows[-1]


def test_a_baseline_must_be_measured_alike_and_holds_its_bound(tmp_path):
    path = tmp_path / "then.json"
    path.write_text(json.dumps(FIGURES))
    then = step_table.baseline(path)
    step_table.same(FIGURES["settings"], ["grpo"], then, path)
    for name, value in (("goals", 4), ("model", "0.8b"), ("device", "TPU v4")):
        with pytest.raises(measure.BenchError, match=f"measured with {name}"):
            step_table.same(FIGURES["settings"] | {name: value}, ["grpo"], then, path)
    with pytest.raises(measure.BenchError, match="has no sft: it has grpo"):
        step_table.same(FIGURES["settings"], ["sft"], then, path)
    now = json.loads(json.dumps(FIGURES))
    now["kinds"]["grpo"]["step_s"] = 2.19
    assert step_table.compared(now, then, 0.1)["past_bound"] == []
    now["kinds"]["grpo"]["step_s"] = 2.21
    found = step_table.compared(now, then, 0.1)
    assert found["past_bound"] == ["grpo takes 1.105 of the baseline's time, the bound is 1.100"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"kinds": 1}'])
def test_a_file_without_figures_is_no_baseline(tmp_path, text):
    path = tmp_path / "f.json"
    path.write_text(text)
    with pytest.raises(measure.BenchError, match="has no figures of this bench"):
        step_table.baseline(path)
    with pytest.raises(measure.BenchError, match="No such file"):
        step_table.baseline(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--model", "tinny"], "did you mean tiny"),
        (["--kinds", "sft,ppo"], "'ppo' is none of sft, grpo, csd"),
        (["--devices", "64"], "there are .* here"),
        (["--preset", "fsd"], "did you mean fsdp"),
        (["--repeats", "0"], "use 1 or more"),
        (["--bound", "0"], "use more than 0"),
        (["--config", "thoughttrace"], "trains no agent"),
    ],
)
def test_wrong_words_are_refused_before_anything_runs(words, told, monkeypatch):
    monkeypatch.setattr(step_workload, "world", lambda *_: pytest.fail("measured all the same"))
    with pytest.raises(ValueError, match=told):
        step.run(words)


def test_every_model_has_settings_that_fit():
    for name, make in step_workload.models().items():
        settings = make()
        spec = settings.model(1024, 1000)
        assert spec.chunk == settings.shape.chunk, name
        assert settings.shape.length % spec.chunk == 0
    assert step_workload.named("4b").model(1, 1).width == specs.qwen35_4b().width


def test_a_configuration_gives_its_sizes():
    demo = step_workload.configured("demo")
    assert demo.shape == pack.Shape(rows=8, length=256, chunk=8, learned=160, slots=2)
    assert demo.train.goals == 16 and demo.train.loss.alpha == 0.05
    assert demo.user_seat.thinking == "sample" and demo.vocab == 1024
    stage = step_workload.configured("agent_grpo")  # the rest is the run's that it starts from
    assert stage.engine == demo.engine and stage.train.loss.alpha == 0
    large = step_workload.configured("agent_csd_4b")
    assert large.model(1, 1).vocab == specs.qwen3_4b().vocab and large.remat == "full"
    assert large.model(1, 1).chunk == large.shape.chunk == 64


def test_the_verb_writes_figures_and_fails_past_the_bound(tmp_path, monkeypatch, capsys):
    settings = small()
    monkeypatch.setattr(step_workload, "named", lambda model: settings)
    words = ["bench", "step", "--repeats", "1", "--kinds", "sft"]
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    assert cli.main([*words, "--json", str(first)]) == 0
    figures = json.loads(first.read_text())
    assert {"kinds", "memory", "formula", "settings", "machine"} <= set(figures)
    assert set(figures["memory"]["programs"]) == {"score", "reinforce", "supervised", "apply"}
    assert min(figures["memory"]["programs"].values()) > 0 < figures["memory"]["held"]
    assert figures["compiles_after_warmup"] == 0
    assert "phase" in capsys.readouterr().err
    figures["kinds"]["sft"]["step_s"] = 1e-9
    first.write_text(json.dumps(figures))
    assert cli.main([*words, "--baseline", str(first), "--json", str(second)]) == 2
    assert "of the baseline's time" in capsys.readouterr().err
    assert json.loads(second.read_text())["ratios"]["sft"] > 1


MANY = """
import dataclasses, sys
sys.path.insert(0, {tests!r})
import test_bench_step as t
from mimesis_jax.bench import step_kinds, step_workload
settings = t.small()
settings = dataclasses.replace(
    settings, shape=dataclasses.replace(settings.shape, rows=4),
    engine=dataclasses.replace(settings.engine, slots=8),
)
made = step_workload.world(settings, step_workload.computing(settings, 2, {preset!r}))
steps = step_kinds.Steps(made)
for kind in ("sft", "csd"):
    seen = steps.run(kind, count=True)
    assert seen.seconds["step"] > 0 and seen.work["update"].tokens > 0
lies = {{len(leaf.sharding.device_set) for leaf in t.jax.tree.leaves(made.state.params)}}
assert lies == {{2}}, lies
print("done")
"""


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["fsdp", "fsdp_tp"])
def test_steps_run_over_two_devices(preset):
    flags = "--xla_force_host_platform_device_count=2"
    env = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    got = subprocess.run(
        [sys.executable, "-c", MANY.format(tests=str(Path(__file__).parent), preset=preset)],
        env=env, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert got.returncode == 0 and got.stdout.strip().endswith("done"), got.stderr[-2000:]


# --- the GPU script -----------------------------------------------------------------------------


def script(*words, **env):
    inherited = {k: v for k, v in os.environ.items() if k != "OUT"}
    return subprocess.run(
        [str(SCRIPT), *words], env=inherited | env, capture_output=True, text=True, timeout=550
    )


def test_the_script_refuses_what_means_nothing(tmp_path):
    for words, env, told in (
        ((), {}, "OUT is not set"),
        (("--seconds", "x"), {"OUT": str(tmp_path)}, "--seconds x: use a whole number"),
        (("--modle", "tiny"), {"OUT": str(tmp_path)}, "'--modle' is no setting"),
        (("--goals",), {"OUT": str(tmp_path)}, "--goals needs a value"),
        (("--python", "no-such"), {"OUT": str(tmp_path)}, "there is no no-such"),
    ):
        got = script(*words, **env)
        assert got.returncode == 2 and told in got.stderr
    got = script("--help")
    assert got.returncode == 0 and "--seconds N" in got.stdout
    assert not list(tmp_path.iterdir())


def test_the_script_says_what_the_interpreter_lacks(tmp_path):
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'jax'\" >&2\nexit 1\n")
    bare.chmod(0o755)
    got = script("--python", str(bare), OUT=str(tmp_path / "out"))
    assert got.returncode == 2 and "No module named 'jax'" in got.stderr


def test_a_model_that_fails_is_told_in_its_table(tmp_path):
    got = script("--model", "tinny", "--python", sys.executable, OUT=str(tmp_path))
    assert got.returncode == 1
    assert "did you mean tiny" in (tmp_path / "step_tinny.txt").read_text()
    assert "exit code 2" in (tmp_path / "bench_gpu.txt").read_text()


@pytest.mark.slow
def test_the_script_runs_through_on_this_machine(tmp_path):
    words = ("--model", "tiny", "--goals", "3", "--copies", "3", "--repeats", "1")
    got = script(*words, "--python", sys.executable, OUT=str(tmp_path), JAX_PLATFORMS="cpu")
    assert got.returncode == 0, got.stdout + got.stderr
    figures = json.loads((tmp_path / "step_tiny.json").read_text())
    assert list(figures["kinds"]) == ["sft", "grpo", "csd"]
    assert figures["compiles_after_warmup"] == 0
    assert "agent_decode" in (tmp_path / "bench_gpu.txt").read_text()


# --- the peer -----------------------------------------------------------------------------------

TINY = step_learners.Sizes(prompts=2, copies=2, told=8, said=8)


@pytest.mark.skipif(HAVE_PEER, reason="the peer is installed: nothing to refuse")
def test_without_the_peer_the_mend_is_named():
    with pytest.raises(measure.BenchError, match="environment of its own"):
        step.run(["--peer", "tunix"])


@pytest.mark.parametrize("shared", [True, False])
def test_our_learner_takes_whole_steps_and_recompiles_nothing(shared):
    from mimesis_jax.bench import rollout
    from mimesis_jax.runs import compiles

    params = decoder.init(step_learners.SPEC, jax.random.key(0))
    learner = step_learners.OurLearner(params, TINY, step_learners.Ours(4, shared))
    prompts = rollout.prompts(2, 8, 1)
    learner.step(prompts)
    learner.step(prompts)
    with compiles.Compiles() as seen:
        learner.step(prompts)
    assert seen.count == 0, seen.names
    assert learner.engine.counts["decoded_tokens"] == 3 * 4 * 8
    assert learner.metrics["tokens"] == (2 * 8 + 4 * 8 if shared else 4 * 16)
    assert learner.metrics["drift_max"] < 1e-4  # scored by the weights that are updated
    moved = jax.tree.map(lambda a, b: bool((a != b).any()), learner.state.params, params)
    assert all(jax.tree.leaves(moved))


@pytest.mark.skipif(not HAVE_PEER, reason="google-tunix is not installed (extra `peers`)")
def test_the_peer_learns_from_batches_handed_one_at_a_time():
    found = step_peer.compared(1, TINY)
    assert found["compiles_after_warmup"] == 0
    assert len(found["peer_sweep"]) == len(found["our_sweep"]) == 4
    assert found["step_ratio"] > 0 and found["first_step_ratio"] > 0
    assert found["peer"].startswith(f"google-tunix {peer.VERSION}")
