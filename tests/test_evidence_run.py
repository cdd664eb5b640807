"""The evidence in miniature by its own command: prepared, killed, gone on, shared, shown."""

import collections
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mimesis_jax.build import begun
from mimesis_jax.runs import disk

slow = pytest.mark.slow
HURRY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # these models run for milliseconds
CONFIG = '''"""Two experiments in miniature."""
from mimesis_jax import config
from mimesis_jax.build import parts

def small_demo():
    small = parts.hurried(config.read("demo"))
    with small.unlocked():
        small.quick = config.ConfigDict()
        small.model.width, small.model.mlp = 32, 64
        small.shape.rows = 4
        small.engine.slots = 16
        rows = {"base": 160, "user": 60, "practice": 100, "model_user": 30, "perfect": 30}
        small.world.update({**rows, "drills": 40, "held_out": 12})
        steps = {"drill": 4, "base": 24, "user_midtrain": 4, "user_thoughts": 40}
        steps |= {"model_user": 4, "agent_start": 8, "sft_perfect": 4}
        for name, count in steps.items():
            small[name].update({"steps": count, "save_every": 20})
            small[name].optimizer.lr = 1e-2
        small.user_behaviours.update({"steps": 2, "copies": 2, "save_every": 2})
    return small

def get_config():
    made = config.read("experiments/base")
    with made.unlocked():
        made.demo, made.strict, made.name = small_demo(), False, "training_user"
        made.agent.update({"steps": 6, "goals": 2, "copies": 4, "save_every": 2})
        made.tokens, made.curve_goals, made.evaluation.goals = 120, 1, 2
        made.arms = {"simulator": {"user": "simulator", "alpha": 0.1},
                     "assistant_100": {"user": "assistant_100"}}
        made.against = "assistant_100"
        made.claims.claim_training_user = ("simulator", "assistant_100")
        made.dose.cooperative = ("assistant_100",)
    return made
'''
OTHER = '''"""The other experiment: one arm of the first under another name, and measures."""
import mini

def get_config():
    made = mini.get_config()
    with made.unlocked():
        made.name = "csd"
        made.arms = {"alpha_00": {"user": "assistant_100", "coach": "leaking"},
                     "perfect": {"learns": "perfect"}}
        made.against, made.claims, made.dose = "alpha_00", {}, {}
        made.measures = {"difficulty": {"goals": 2, "agents": ("start", "alpha_00")},
                         "mechanism": {"goals": 3}, "behaviours": {"rows": 1}}
    return made
'''


def mimesis(home, *words):
    """The command line in a process of its own, as a person starts it."""
    return subprocess.Popen(
        [sys.executable, "-m", "mimesis_jax.cli", "evidence", *map(str, words)], cwd=home,
        env=os.environ | HURRY | {"PYTHONPATH": str(home)}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def whole(process):
    said, _ = process.communicate(timeout=900)
    assert process.returncode == 0, said
    return said


def lines(path):
    return list(disk.lines(path)) if path.exists() else []


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with both configurations and one miniature preparation, which is the start."""
    path = tmp_path_factory.mktemp("evidence")
    (path / "mini.py").write_text(CONFIG)
    (path / "other.py").write_text(OTHER)
    whole(mimesis(path, "--config", "mini.py", "--seeds", 1, "--out", "first"))
    return path


@slow
@pytest.mark.timeout(1800)
def test_two_arms_of_two_seeds_through_kill_and_resume(home):
    start = home / "first" / "seed_0" / "prepared"
    assert begun.Begun(start).frozen("agent_start").hash
    words = ("--config", "mini.py", "--seeds", 2, "--start", start)
    words += ("--workers", 1, "--out", "second")
    process, out = mimesis(home, *words), home / "second"
    arms = lambda seed: {p.name.split("-")[0]: p for p in (out / f"seed_{seed}/arms").glob("*")}
    steps = lambda: [
        line["step"]
        for path in (out / "seed_1" / "arms").glob("simulator*/metrics.jsonl")
        for line in lines(path)
        if line["phase"] == "agent"
    ]
    deadline = time.monotonic() + 900
    while max(steps(), default=-1) < 3:
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    # Seed 0 was finished and has a page already; its arms are not touched again.
    assert json.loads((out / "evidence.json").read_text())["seeds"] == 1
    before = {p: p.stat().st_mtime_ns for p in (out / "seed_0").rglob("*")}
    whole(mimesis(home, *words))
    assert {p: p.stat().st_mtime_ns for p in (out / "seed_0").rglob("*")} == before

    claims = json.loads((out / "evidence.json").read_text())
    assert claims["seeds"] == 2 and len(claims["claim_training_user"]["ci95"]) == 2
    held = json.loads((out / "results.json").read_text())["experiments"]["training_user"]
    assert [len(arm["seeds"]) for arm in held["arms"].values()] == [2] * 4  # two ceilings are one
    for seed in (0, 1):
        for arm, count in (("simulator_csd_0.1_honest", 6), ("assistant_100", 6)):
            found = lines(arms(seed)[arm] / "metrics.jsonl")
            seen = collections.Counter((x["phase"], x["step"]) for x in found)
            assert {seen["agent", i] for i in range(count)} == {1}
            assert {seen["curve", i] for i in (2, 4, 6)} == {1}
    # Learnable tokens keep to the plan. (This simulator hardly speaks: most of its episodes have
    # nothing to learn from, and an arm plays at most twice the configured goals.)
    assert 0.5 * 720 < held["arms"]["assistant_100"]["learnable_tokens"] < 1.5 * 720
    goals = {x["goals"] for x in lines(arms(1)["simulator_csd_0.1_honest"] / "metrics.jsonl")
             if x["phase"] == "agent"}  # fmt: skip
    assert goals <= {2, 3, 4}
    killed = lines(arms(1)["simulator_csd_0.1_honest"] / "events.jsonl")
    played = collections.Counter(x["step"] for x in killed if x["event"] == "rollout")
    assert played[0] == played[1] == 1 and set(played) == set(range(6))
    # From the same models with the same seed the first folder's arm came out the same.
    hashed = lambda path: json.loads((path / "models/agent/frozen.json").read_text())["hash"]
    first = next((home / "first/seed_0/arms").glob("simulator*"))
    assert hashed(first) == hashed(arms(0)[first.name.split("-")[0]])
    assert hashed(first) != hashed(arms(1)[first.name.split("-")[0]])

    # Two processes with a seed each make what one made with both.
    words = (*words[:-3], 2, "--out", "third")
    said = whole(mimesis(home, *words))
    assert "2 processes share the seeds" in said and "finished simulator of seed 1" in said
    assert json.loads((home / "third" / "evidence.json").read_text()) == claims
    assert sorted(p.name for p in (home / "third/logs").iterdir()) == ["seeds_0.log", "seeds_1.log"]
    assert "processes share" not in whole(mimesis(home, *words))  # nothing is left to share


@slow
@pytest.mark.timeout(1800)
def test_another_experiment_shares_preparation_and_arms(home):
    out = home / "first"
    before = {p: p.stat().st_mtime_ns for p in out.glob("seed_0/arms/assistant*/**/*")}
    said = whole(mimesis(home, "--config", "other.py", "--seeds", 1, "--out", "first"))
    assert before and before == {p: p.stat().st_mtime_ns for p in before}
    claims = json.loads((out / "evidence.json").read_text())
    assert set(claims["difficulty"]) == {"start", "alpha_00"} and claims["mechanism"]
    assert claims["claim_training_user"] and "evidence.html" in said
    told = json.loads((out / "results.json").read_text())["experiments"]
    honest = told["csd"]["measures"]["mechanism"]["honesty"]
    # Nothing is said of dialogues that broke off before the agent's first word.
    assert {honest["honest_2"], honest["honest_1"]} <= {None, 1.0}
    html = (out / "evidence.html").read_text()
    assert "What the gate tells apart" in html and "Behaviour rates" in html
    # Nothing is left to do: the same command only writes the page again.
    again = whole(mimesis(home, "--config", "other.py", "--seeds", 1, "--out", "first"))
    assert json.loads((out / "evidence.json").read_text()) == claims
    assert "finished" not in again.split("evidence.html")[0].split("{")[0]
