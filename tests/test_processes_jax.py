"""Whole processes on this machine with JAX between them: equal updates, and ends that are told."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mimesis_jax.runs import processes
from mimesis_jax.runs import processes_wire as wire

HERE = Path(__file__).resolve().parent
DEVICES = 2  # of each process


class Started:
    """`count` processes of one case; `end()` waits for all, and no one outlives the test."""

    def __init__(self, case, count, out, command=None):
        self.case, self.count, self.out = case, count, out
        port = wire.free_port()
        flags = f"--xla_force_host_platform_device_count={DEVICES}"
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        env |= {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu", "PYTHONUNBUFFERED": "1"}
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
