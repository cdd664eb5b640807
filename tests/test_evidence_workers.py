"""Seeds shared among processes: who takes what, and what is said when one fails or goes."""

import dataclasses
import functools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_processes import wait

from mimesis_jax import config as configs
from mimesis_jax.build import evidence_workers as workers
from mimesis_jax.runs import disk, lock


@dataclasses.dataclass
class Job:
    """Done when its file is there."""

    path: Path
    weight: float = 10.0

    @property
    def what(self):
        return self.path.name

    def done(self):
        return self.path.exists()


def work(out, how, seeds):
    """Writes what it sees; a process with seed 1 does what `how` says."""
    for seed in seeds:
        print(f"working on {seed}")
        cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {}
        (out / f"cores_{seed}").write_text(",".join(map(str, cores)))
        if seed == 1 and how == "refuses":
            raise disk.RunError("the disk is full: make room")
        if seed == 1 and how == "breaks":
            raise KeyError("planted")
        if seed == 1 and how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "hangs":
            (out / f"pid_{seed}").write_text(str(os.getpid()))
            time.sleep(300)
        (out / f"done_{seed}").write_text("")


def share(out, how, seeds=(0, 1, 2)):
    jobs = [Job(out / f"done_{seed}") for seed in seeds]
    workers.share(functools.partial(work, out, how), seeds, 2, out, jobs, "work")


def test_how_many(monkeypatch):
    monkeypatch.setattr(workers, "_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(workers, "_memory", lambda: 64 << 30)
    assert [workers.count(None, n) for n in (0, 1, 2, 5)] == [1, 1, 2, 4]
    assert [workers.count(n, 5) for n in (1, 3, 9)] == [1, 3, 5]
    monkeypatch.setattr(workers, "_memory", lambda: 9 << 30)
    assert workers.count(None, 5) == 2 and workers.count(4, 5) == 4
    with pytest.raises(configs.ConfigError, match="--workers 0: use 1 or more"):
        workers.count(0, 5)


def test_each_takes_its_seeds_on_its_cores_and_what_is_done_is_told(tmp_path, capfd):
    before = os.sched_getaffinity(0)
    share(tmp_path, "")
    cores = [set((tmp_path / f"cores_{s}").read_text().split(",")) for s in range(3)]
    assert cores[0] == cores[2] and os.sched_getaffinity(0) == before
    if len(before) > 1:
        assert not cores[0] & cores[1]
    logs = {p.name: p.read_text() for p in (tmp_path / "logs").iterdir()}
    assert logs == {
        "seeds_0_2.log": "working on 0\nworking on 2\n", "seeds_1.log": "working on 1\n"
    }  # fmt: skip
    said = capfd.readouterr().err
    assert "2 processes share the seeds" in said and "work 30/30" in said
    assert all(f"finished done_{s}" in said for s in range(3)) and "working" not in said


def test_more_processes_than_cores_share_them(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_cores", lambda: sorted(os.sched_getaffinity(0))[:1])
    share(tmp_path, "")
    assert all((tmp_path / f"done_{seed}").exists() for seed in range(3))


@pytest.mark.parametrize(
    "how, words",
    [
        ("refuses", "seed 1: the disk is full: make room"),
        ("breaks", r"seed 1: KeyError: 'planted' \(see .*seeds_1.log\)"),
        ("killed", "seed 1: the process ended with SIGKILL, as when memory has run out"),
    ],
)
def test_what_one_could_not_do_is_told_and_the_others_go_on(tmp_path, capfd, how, words):
    with pytest.raises(disk.RunError, match=words):
        share(tmp_path, how)
    assert (tmp_path / "done_2").exists() and not (tmp_path / "done_1").exists()
    assert "mimesis: seed 1: " in capfd.readouterr().err
    assert ("planted" in (tmp_path / "logs" / "seeds_1.log").read_text()) == (how == "breaks")


alive = lambda pid: lock._alive({"pid": pid})


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nobody_works_on_when_the_first_process_has_ended(tmp_path, end):
    code = (
        "import test_evidence_workers as t, pathlib, signal\nfrom mimesis_jax.runs import signals\n"
        # Ignored where the tests were started in the background.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"with signals.heard(): t.share(pathlib.Path({str(tmp_path)!r}), 'hangs')"
    )
    here = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    first = subprocess.Popen([sys.executable, "-c", code], env=here, stderr=subprocess.DEVNULL)
    try:
        there = [tmp_path / "pid_0", tmp_path / "pid_1"]
        assert wait(lambda: all(path.exists() and path.read_text() for path in there), 60)
        pids = [int(path.read_text()) for path in there]
        assert all(map(alive, pids))
        first.send_signal(end)
        first.wait(60)
        assert wait(lambda: not any(map(alive, pids)), 60)
    finally:
        first.kill()
        first.wait()
