"""Whole processes on this machine with JAX between them: equal updates, and ends that are told."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mimesis_jax.runs import processes
from mimesis_jax.runs import processes_wire as wire

HERE = Path(__file__).resolve().parent
DEVICES = 2  # of each process
HURRY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # these models run for milliseconds


class Started:
    """`count` processes of one case; `end()` waits for all, and no one outlives the test."""

    def __init__(self, case, count, out, command=None, **more):
        self.case, self.count, self.out = case, count, out
        port = wire.free_port()
        flags = f"--xla_force_host_platform_device_count={DEVICES}"
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        env |= {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONUNBUFFERED": "1"} | more
        self.running, self.files = [], []
        for i in range(count):
            words = [sys.executable, str(HERE / "processes_worker.py"), case, str(i)]
            words += [str(count), str(port), str(out)]
            self.files.append(open(out / f"{case}-{i}.log", "w"))
            self.running.append(subprocess.Popen(
                command(i, port) if command else words, env=env, stdout=self.files[-1],
                stderr=subprocess.STDOUT,
            ))  # fmt: skip

    def end(self, timeout, stopped=()):
        """Exit statuses. Processes in `stopped` are killed when the others have ended."""
        until = time.monotonic() + timeout
        try:
            for i, one in enumerate(self.running):
                if i not in stopped:
                    one.wait(max(0.1, until - time.monotonic()))
        finally:
            for one in self.running:
                one.kill()  # which also ends what is stopped
                one.wait(10)
            for file in self.files:
                file.close()
        return [one.returncode for one in self.running]

    def said(self, i):
        return (self.out / f"{self.case}-{i}.log").read_text()

    def told(self, i):
        return json.loads((self.out / f"{self.case}-{i}.json").read_text())


def check_losses(out, count, timeout):
    run = Started("meet+losses", count, out)
    statuses = run.end(timeout)
    assert statuses == [0] * count, "\n".join(run.said(i)[-2000:] for i in range(count))
    told = run.told(0)
    assert told["devices"] == DEVICES * count
    assert told["losses"] == ["grpo", "grpo_csd", "logp", "sft"] and told["tensors"] > 150
    assert told["worst"] <= 1e-5, told["at"]
    assert [run.told(i)["lead"] for i in range(count)] == [True] + [False] * (count - 1)


@pytest.mark.slow
def test_two_processes_meet_and_update_as_one_device_does(tmp_path):
    """SFT, GRPO and GRPO + CSD on 2 processes x 2 devices: gradients and updates to 1e-5."""
    check_losses(tmp_path, 2, 500)


@pytest.mark.slow
def test_four_processes_meet_and_update_as_one_device_does(tmp_path):
    check_losses(tmp_path, 4, 590)


def test_one_killed_the_other_says_who_and_ends_within_a_minute(tmp_path):
    run = Started("killed", 2, tmp_path)
    statuses = run.end(200)
    assert statuses == [processes.LOST, -signal.SIGKILL], run.said(0)
    died = float(run.said(1).split("now ")[1].split()[0])
    assert time.time() - died < 60
    assert "mimesis: process 1 (host" in run.said(0)
    assert "is gone: its connection ended without a word" in run.said(0)
    assert "give the same command on every worker again" in run.said(0)
    assert "Traceback" not in run.said(0)


def test_process_0_killed_the_other_says_so(tmp_path):
    """JAX alone aborts here with a stack trace: its service went away with process 0."""
    run = Started("lead_killed", 2, tmp_path)
    assert run.end(200) == [-signal.SIGKILL, processes.LOST], run.said(1)
    assert "mimesis: process 0 (host" in run.said(1) and "is gone" in run.said(1)
    assert "stack trace" not in run.said(1)


def test_a_process_that_nothing_wakes_leaves_no_lock(tmp_path):
    run = Started("stuck", 2, tmp_path)
    assert run.end(200) == [processes.LOST, -signal.SIGKILL], run.said(0)
    assert "Process 0 ends too" in run.said(0) and not (tmp_path / "lock").exists()


@pytest.mark.slow
def test_a_killed_run_goes_on_and_under_another_number_of_processes(tmp_path):
    """Two processes, one killed after step 4 of 6, started again: bit-equal to a run that nobody
    disturbed; then from the same checkpoint on one process: equal to tolerance."""
    whole, cut, alone = (tmp_path / name for name in ("whole", "cut", "alone"))
    for folder in (whole, cut, alone):
        folder.mkdir()
    run = Started("trained", 2, whole, **HURRY)
    assert run.end(300) == [0, 0], run.said(0)[-3000:] + run.said(1)[-3000:]
    run = Started("trained", 2, cut, KILL="1:4", **HURRY)
    assert run.end(300) == [processes.LOST, -signal.SIGKILL], run.said(0)[-3000:]
    shutil.copytree(cut / "run", alone / "run")
    run = Started("trained", 2, cut, **HURRY)
    assert run.end(300) == [0, 0], run.said(0)[-3000:]
    assert run.told(0) == run.told(1) and run.told(0)["first"] == 4
    assert run.told(0)["hash"] == json.loads((whole / "trained-0.json").read_text())["hash"]
    assert steps(cut) == steps(whole) and len(steps(whole)) == 6
    own = sorted(path.name for path in (cut / "run" / "process-1").iterdir())
    assert own == ["events.jsonl"]

    run = Started("trained", 1, alone, **HURRY)
    assert run.end(300) == [0], run.said(0)[-3000:]
    assert run.told(0)["first"] == 4
    with np.load(whole / "params-2.npz") as two, np.load(alone / "params-1.npz") as one:
        assert len(two.files) > 20
        for name in two.files:
            np.testing.assert_allclose(one[name], two[name], rtol=2e-4, atol=2e-5, err_msg=name)


def steps(folder):
    """The metrics of each step but its times."""
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    kept = ("step", "nll", "grad_norm", "tokens", "lr")
    return [{name: json.loads(line)[name] for name in kept} for line in lines]


@pytest.mark.slow
def test_one_that_hangs_is_named(tmp_path):
    run = Started("stopped", 2, tmp_path)
    statuses = run.end(200, stopped=(1,))
    assert statuses[0] == processes.LOST, run.said(0)
    assert "mimesis: process 1 (host" in run.said(0) and "gave no sign of life" in run.said(0)


@pytest.mark.slow
def test_a_fault_of_one_is_told_by_the_other(tmp_path):
    run = Started("fault", 2, tmp_path)
    assert run.end(200) == [processes.LOST, 2]
    assert "failed: ValueError: planted: batch 48 is not a multiple of 32" in run.said(0)
    assert "mimesis: planted: batch 48" in run.said(1)


# --- the command line -----------------------------------------------------------------------------


def command(out, *words, devices=DEVICES):
    """The command of process i of two, as Started takes it."""
    here = [sys.executable, str(HERE / "processes_run.py"), "train", "--out", str(out / "run")]
    here += ["--config", str(HERE / "processes_run.py")]

    def of(i, port):
        where = ["--processes", "2", "--process", str(i), "--coordinator", f"127.0.0.1:{port}"]
        return here + where + list(words[i] if words else ())

    return of


def test_configurations_that_differ_are_named_before_jax_starts(tmp_path):
    words = ([], ["--config.sft.steps=7"])
    run = Started("skew", 2, tmp_path, command(tmp_path, *words))
    assert run.end(120) == [processes.REFUSED] * 2, run.said(0)
    for i in (0, 1):
        assert "config.sft.steps is 6 on process 0 (host" in run.said(i)
        assert "and 7 on process 1 (host" in run.said(i)
        assert len(run.said(i).splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_a_command_that_was_started_once_says_so(tmp_path):
    of = command(tmp_path, ["--arrive", "2"])
    run = Started("alone", 1, tmp_path, of)
    assert run.end(120) == [processes.LOST]
    assert run.said(0).startswith("mimesis: 1 of 2 processes arrived within 2 s")
    assert "process 1 is missing: start the same command on every worker" in run.said(0)
    assert not (tmp_path / "run").exists()


def log(out, name="metrics"):
    return [json.loads(line) for line in (out / "run" / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_the_command_is_killed_goes_on_and_learns_what_one_process_learns(tmp_path):
    """Supervised, then GRPO + CSD: on one process of four devices, and on two of two devices, of
    which one is killed and both are started again. The episodes are the same to the letter."""
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={2 * DEVICES}"}
    alone = Started("one", 1, one, lambda i, port: command(one)(i, port)[:7], **HURRY, **flags)
    assert alone.end(300) == [0], alone.said(0)[-3000:]

    run = Started("two", 2, two, command(two), **HURRY)
    until = time.monotonic() + 200
    metrics = two / "run" / "metrics.jsonl"
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 5:
        assert time.monotonic() < until and run.running[0].poll() is None, run.said(0)[-3000:]
        time.sleep(0.05)
    run.running[1].kill()
    assert run.end(60) == [processes.LOST, -signal.SIGKILL], run.said(0)[-3000:]
    assert "mimesis: process 1 (host" in run.said(0)
    assert not (two / "run" / "lock").exists()
    run = Started("two", 2, two, command(two), **HURRY)
    assert run.end(300) == [0, 0], run.said(0)[-3000:] + run.said(1)[-3000:]

    got, want = log(two), log(one)
    assert [line["step"] for line in got] == [line["step"] for line in want] == [*range(6), 0, 1]
    for a, b in zip(got, want, strict=True):
        learned = {"nll", "grad_norm", "policy_loss", "csd_loss", "gate_mean", "tokens"} & set(b)
        assert len(learned) >= 3
        for name in learned:
            assert a[name] == pytest.approx(b[name], rel=1e-3, abs=1e-5), (a["step"], name)
    timeless = lambda lines: [{k: v for k, v in line.items() if k != "csd"} for line in lines]
    assert timeless(log(two, "episodes")) == timeless(log(one, "episodes"))
    assert [path.name for path in (two / "run" / "process-1").iterdir()] == ["events.jsonl"]
    assert run.said(1).strip().splitlines()[-1] == "}"  # each says the summary
