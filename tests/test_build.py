"""The demo in miniature by its own commands: killed, gone on, measured again, and begun from."""

import collections
import io
import json
import os
import signal
import subprocess
import sys
import time

import jax
import pytest

from mimesis_jax import cli, config
from mimesis_jax.build import begun, parts, single, verbs
from mimesis_jax.runs import compiles, disk
from mimesis_jax.users import behaviours, population

slow = pytest.mark.slow
HURRY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # these models run for milliseconds
# Learns just enough for replies that end, so that there are turns to reward and to coach. GRPO
# takes a little CSD here: without any success it would have nothing to learn from.
CONFIG = '''"""The demo in miniature."""
from mimesis_jax import config
from mimesis_jax.build import parts

def get_config():
    small = parts.hurried(config.read("demo"))
    with small.unlocked():
        small.quick = config.ConfigDict()
        small.model.width, small.model.mlp = 32, 64
        small.shape.rows = 4
        small.engine.slots = 16
        rows = {"base": 160, "user": 60, "practice": 100, "model_user": 30, "perfect": 30}
        small.world.update({**rows, "drills": 40, "held_out": 12})
        small.evaluation.update({"goals": 2, "behaviour_rows": 1})
        steps = {"drill": 4, "base": 24, "user_midtrain": 4, "user_thoughts": 40}
        steps |= {"model_user": 4, "agent_start": 8, "sft_perfect": 4}
        for name, count in steps.items():
            small[name].update({"steps": count, "save_every": 20})
            small[name].optimizer.lr = 1e-2
        small.user_behaviours.update({"steps": 3, "copies": 2, "save_every": 2})
        for name, count, alpha in zip(parts.AGENTS, (8, 3, 2), (0.01, 0.1, 0.0)):
            small[name].update({"steps": count, "goals": 2, "copies": 4, "save_every": 2})
            small[name].loss.alpha = alpha
    return small
'''


def mimesis(*words, cwd):
    """The command line in a process of its own, as a person starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "mimesis_jax.cli", *map(str, words)], cwd=cwd,
        env=os.environ | HURRY, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def whole(process):
    said, _ = process.communicate(timeout=500)
    assert process.returncode == 0, said
    return said


def lines(path):
    return list(disk.lines(path)) if path.exists() else []


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with the configuration; runs in it share their compiled programs."""
    path = tmp_path_factory.mktemp("build")
    (path / "mini.py").write_text(CONFIG)
    jax.config.update("jax_disable_most_optimizations", True)
    yield path
    jax.config.update("jax_disable_most_optimizations", False)
    compiles.compile_cache(None)


def demo(home, name):
    return mimesis("demo", "--quick", "--config", "mini.py", "--out", name, cwd=home)


@pytest.fixture(scope="module")
def run(home):
    whole(demo(home, "whole"))
    return home / "whole"


# --- the whole path -----------------------------------------------------------------------------


@slow
def test_the_summary_has_every_figure(run):
    found = json.loads((run / "summary.json").read_text())
    assert set(found) >= {
        "seconds", "setup_seconds", "quick", "simulator", "agent", "csd", "difficulty_gap",
        "compiles_after_warmup", "phases",
    }  # fmt: skip
    assert set(found["simulator"]) >= {
        "nll_before", "nll_midtrain", "nll_thoughts", "nll_trigram", "behaviour_rate_before",
        "behaviour_rate_after", "behaviour_rates", "control_rate_after", "bad_format_rate",
        "thought_leak_rate", "thought_overlap_rate", "hash_start", "hash_end",
    }  # fmt: skip
    assert set(found["csd"]) >= {
        "alpha", "gate_mean", "none_share", "null_probe_abs", "placebo_gap", "params_differ",
    }  # fmt: skip
    assert set(found["difficulty_gap"]) >= {
        "reference", "simulator", "assistant", "gap_simulator", "gap_assistant", "ci95",
    }  # fmt: skip
    arms = {"start", "grpo", "csd", "grpo_assistant_user", "sft_perfect", "ceiling"}
    assert set(found["agent"]) == arms
    users = {*population.EVALUATION, *population.MODEL_USERS}
    for arm in found["agent"].values():
        assert set(arm["by_user"]) == users and len(users) == 9
        low, high = arm["ci95"]
        assert 0 <= low <= high <= 1
        # These model users hardly speak, and of nothing but malformed replies there is no mean.
        heard = [value for value in arm["by_user"].values() if value is not None]
        assert all(0 <= arm["by_user"][name] <= 1 for name in population.EVALUATION)
        assert arm["mean"] == pytest.approx(sum(heard) / len(heard))
    assert set(found["simulator"]["behaviour_rates"]) == set(behaviours.IDS)
    assert found["quick"] is True and found["seconds"] > 0.9 * sum(found["phases"].values())
    # What must hold of any run, however little it was trained.
    assert found["simulator"]["hash_start"] == found["simulator"]["hash_end"]
    assert found["simulator"]["thought_leak_rate"] == 0
    assert found["csd"]["null_probe_abs"] < 1e-3 and found["csd"]["params_differ"] is True
    assert found["agent"]["ceiling"]["by_user"]["easy"] == 1.0
    assert found["simulator"]["nll_thoughts"] < found["simulator"]["nll_before"]
    assert "QUICK" in (run / "report.html").read_text()


@slow
def test_a_finished_run_is_read_not_run_again(home, run):
    kept = json.loads((run / "summary.json").read_text())
    logs = {name: (run / name).read_bytes() for name in ("metrics.jsonl", "events.jsonl")}
    changed = lambda: {
        path.relative_to(run): (path.stat().st_mtime_ns, path.stat().st_size)
        for path in sorted(run.rglob("*"))
    }
    before = changed()
    assert "summary.json" in whole(demo(home, "whole"))  # it says where its answer is
    assert json.loads((run / "summary.json").read_text()) == kept
    assert {name: (run / name).read_bytes() for name in logs} == logs
    assert changed() == before  # no file made, written or removed, nor a lock taken and given back


@slow
def test_killed_in_the_agents_training_it_goes_on_and_ends_as_if_it_had_not_been(home, run):
    out = home / "killed"
    process = demo(home, "killed")
    steps = lambda phase: [x["step"] for x in lines(out / "metrics.jsonl") if x["phase"] == phase]
    deadline = time.monotonic() + 500
    while max(steps("agent_grpo"), default=-1) < 3:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    phases = json.loads((out / "phases.json").read_text())
    assert "done" in phases["user_behaviours"] and "done" not in phases["agent_grpo"]
    assert not (out / "summary.json").exists()

    whole(demo(home, "killed"))
    counts = lambda path: collections.Counter((x["phase"], x["step"]) for x in lines(path))
    assert counts(out / "metrics.jsonl") == counts(run / "metrics.jsonl")
    assert set(counts(out / "metrics.jsonl").values()) == {1}
    # It went on from a checkpoint: the first two steps were played once.
    played = collections.Counter(
        x["step"] for x in lines(out / "events.jsonl")
        if x["event"] == "rollout" and x["phase"] == "agent_grpo"
    )  # fmt: skip
    assert played[0] == played[1] == 1 and set(played) == set(range(8))
    figures = lambda path: without_time(json.loads((path / "summary.json").read_text()))
    assert figures(out) == figures(run)
    hashes = lambda path: {
        p.parent.name: json.loads(p.read_text())["hash"] for p in path.glob("models/*/frozen.json")
    }
    assert hashes(out) == hashes(run) and hashes(run)["agent_grpo"] != hashes(run)["agent_start"]


def without_time(summary):
    """A summary less what two runs of the same seed may differ in."""
    timed = ("seconds", "setup_seconds", "phases", "compiles_after_warmup")
    return {key: value for key, value in summary.items() if key not in timed}


# --- stages, evaluation, conversation -----------------------------------------------------------


@slow
def test_a_stage_is_trained_from_the_models_of_another_run(home, run):
    given = {"start": str(run), "agent_csd.steps": "3", "agent_csd.goals": "2",
             "agent_csd.copies": "4", "agent_csd.loss.alpha": "0.1", "agent_csd.save_every": "2",
             "evaluation.goals": "2"}  # fmt: skip
    before = sorted((p, p.stat().st_mtime_ns) for p in run.rglob("*"))
    found = verbs.train(config.read("agent_csd", given), home / "stage")
    assert sorted((p, p.stat().st_mtime_ns) for p in run.rglob("*")) == before
    # The same steps from the same models as the demo's own arm.
    there = json.loads((run / "models" / "agent_csd" / "frozen.json").read_text())
    assert found["hash"] == there["hash"]
    arms = json.loads((run / "summary.json").read_text())["agent"]
    assert found["agent"] == {"start": arms["start"], "csd": arms["csd"]}
    assert found["simulator"]["hash_start"] == found["simulator"]["hash_end"]
    assert found["quick"] is True and set(found["phases"]) == {"agent_csd", "evaluation"}
    assert [x["step"] for x in lines(home / "stage" / "metrics.jsonl")] == [0, 1, 2]
    assert (home / "stage" / "report.html").exists()
    again = verbs.train(config.read("agent_csd", given), home / "stage")
    assert without_time(again) == without_time(found) and again["phases"] == found["phases"]
    with pytest.raises(disk.RunError, match="another configuration"):
        verbs.train(config.read("agent_csd", given | {"agent_csd.steps": "4"}), home / "stage")

    # What was begun from a run is begun from, too; it has the models of its start.
    assert begun.Begun(home / "stage").frozen("agent_start").hash
    names = ("start,csd", str(home / "stage"))
    asked = config.read(
        "evaluate", {"run": str(run), "simulator": "false", "evaluation.goals": "2"}
    )
    asked.agents = names
    measured = verbs.evaluate(asked, home / "measured")
    assert measured["agent"] == {**found["agent"], "stage": found["agent"]["csd"]}
    assert measured["paired"]["stage_minus_start"] == measured["paired"]["csd_minus_start"]
    assert json.loads((home / "measured" / "evaluate.json").read_text()) == measured


@slow
def test_the_user_stage_and_the_simulators_measures_are_the_demos(home, run):
    given = {"start": str(run), "user_behaviours.steps": "3", "user_behaviours.copies": "2",
             "user_behaviours.save_every": "2", "evaluation.behaviour_rows": "1"}  # fmt: skip
    found = verbs.train(config.read("user_behaviours", given), home / "user")
    whole_run = json.loads((run / "summary.json").read_text())
    assert found["hash"] == whole_run["simulator"]["hash_end"]
    same = ("behaviour_rates", "control_rate_after", "bad_format_rate")
    for name in same:
        assert found["simulator"][name] == whole_run["simulator"][name]

    asked = {"run": str(run), "evaluation.goals": "2", "evaluation.behaviour_rows": "1"}
    chosen = config.read("evaluate", asked)
    chosen.agents = ()
    measured = verbs.evaluate(chosen, home / "simulator")
    assert measured["difficulty_gap"] == whole_run["difficulty_gap"]
    for name in (*same, "nll_before", "nll_midtrain", "nll_thoughts", "nll_trigram"):
        assert measured["simulator"][name] == whole_run["simulator"][name]
    assert "agent" not in measured


@slow
@pytest.mark.parametrize("chair", ["agent", "user"])
def test_a_person_talks_with_the_models_of_a_run(run, chair):
    told = io.StringIO()
    read = io.StringIO("close\nhello\n")
    verbs.chat(run, chair=chair, goal=1, thoughts=True, read=read, write=told)
    case = population.SIMULATOR.goal(900_000 + 70_000 + 1)
    shown = told.getvalue()
    assert f"want a {case.request}" in shown  # the user's brief: first, or at the end
    assert ("guide" in shown) == (chair == "agent")
    assert "the case is" in shown.splitlines()[-1 if chair == "user" else -2]


# --- one clear line -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("demo --config.agent_grpo.stepz=3", "did you mean config.agent_grpo.steps?"),
        (
            "train --config agent_grpo --config.agent_csd.steps=3",
            "did you mean config.agent_grpo.s",
        ),
        ("train --config agent_grpo --config.start=nowhere", "nowhere is no folder"),
        ("train --config agent_grpo --config.start=.", ". is no run folder"),
        ("train --config evaluate", "config.kind='evaluate' is nothing to train"),
        ("evaluate --config demo", "config.kind='demo' is nothing to evaluate"),
        ("evaluate --config evaluate --config.run=nowhere", "nowhere is no folder"),
        ("chat nowhere", "nowhere is no folder"),
        ("chat . --goal 10000", "--goal 10000 is no case: use 0 to 9999"),
        ("chat .", ". is no run folder"),
        ("chat people", "a run of kind 'people', not of the small world"),
        ("chat begun", "begun has only been begun"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name, made in (("people", {"kind": "people"}), ("begun", config.read("demo"))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(config.dump(made))
    assert cli.main(words.split()) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["begun", "people"]


def test_an_unfinished_run_says_what_is_missing(tmp_path):
    class Unfinished(begun.Begun):
        def __init__(self, path):
            self.path, self.start = tmp_path, None

    (tmp_path / "models" / "base").mkdir(parents=True)
    (tmp_path / "models" / "base" / "frozen.json").write_text("{}")
    with pytest.raises(disk.RunError, match=r"has not trained agent_start \(it has base\)"):
        Unfinished(tmp_path).frozen("agent_start")


@pytest.mark.parametrize(
    "name",
    ["agent_grpo", "agent_csd", "agent_grpo_assistant", "sft_perfect", "user_behaviours"],
)
def test_a_stage_has_the_demos_own_values(name):
    stage, base = config.read(name), config.read("demo")
    assert stage.kind == "stage" and stage.stage in single.STAGES and stage.stage in stage
    assert stage[stage.stage] == base[stage.stage] and stage.evaluation == base.evaluation
    fitted = begun.settings(single.merged(base, stage))
    assert fitted == parts.desk(base)
    assert set(single.NEEDED) == set(single.STAGES)
