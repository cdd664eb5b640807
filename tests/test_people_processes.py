"""Real conversations on several processes: what one process learns, killed and restarted too."""

import json
import signal
import sys
from pathlib import Path

import jax
import numpy as np
import people_run
import pytest
from test_processes_jax import HURRY, Started

from mimesis_jax.build import people
from mimesis_jax.runs import checkpoint, processes

FILE = Path(people_run.__file__)


@pytest.fixture
def hasty():
    """Compiled without optimisations: these models run for milliseconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def command(source, out):
    """The command of process i of two."""
    here = [sys.executable, str(FILE), "train", "--config", str(FILE), "--out", str(out)]
    here += [f"--config.data.paths={source}", "--config.mesh.fsdp=-1", "--processes", "2"]
    return lambda i, port: [*here, "--process", str(i), "--coordinator", f"127.0.0.1:{port}"]


@pytest.mark.slow
def test_two_processes_killed_and_restarted_learn_what_one_learns(tmp_path, hasty):
    """Three stages on two processes of two devices each, one killed in the second stage and both
    started again, against one process of one device. Then one process reads what the two made."""
    source, out = tmp_path / "talk.jsonl", tmp_path / "two"
    people_run.write(source)
    run = Started("people", 2, tmp_path, command(source, out), KILL="user_midtrain:2", **HURRY)
    assert run.end(280) == [processes.LOST, -signal.SIGKILL], run.said(0)[-3000:]
    assert not (out / "user_midtrain").exists() and not (out / "lock").exists()
    run = Started("people", 2, tmp_path, command(source, out), **HURRY)
    assert run.end(280) == [0, 0], run.said(0)[-3000:] + run.said(1)[-3000:]

    config = people_run.get_config()
    config.data.paths = (str(source),)
    want = people.train(config, tmp_path / "one")
    got = json.loads((out / "summary.json").read_text())
    exact = ("best_step", "conversations", "turns", "tokens", "vocab", "parameters", "left_out")
    assert {name: got[name] for name in exact} == {name: want[name] for name in exact}
    for name in [name for name in want if name.startswith("nll_")]:
        assert got[name] == pytest.approx(want[name], rel=1e-4), name
    for stage in people.STAGES:
        one, two = (flat(tmp_path / run / stage) for run in ("one", "two"))
        assert one.keys() == two.keys() and len(one) > 10
        for name in one:
            np.testing.assert_allclose(two[name], one[name], rtol=1e-4, atol=2e-5, err_msg=name)
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    steps = lambda name: [line["step"] for line in lines if line["phase"] == name]
    for stage in people.STAGES:
        assert steps(stage) == [0, 1, 2, 3] and steps(f"{stage}_validation") == [0, 2, 4]
    own = sorted(path.name for path in (out / "process-1").iterdir())
    assert own == ["events.jsonl"]

    assert people.train(config, out)["hashes"] == got["hashes"]
    config.start, config.stages = str(out), ("user_thoughts",)
    further = people.train(config, tmp_path / "further")
    assert further["nll_trigram"] == want["nll_trigram"]


def flat(path):
    """Frozen parameters by name."""
    found, _ = jax.tree_util.tree_flatten_with_path(checkpoint.load_frozen(path).params)
    return {jax.tree_util.keystr(key): np.asarray(leaf) for key, leaf in found}
