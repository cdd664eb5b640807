"""What becomes of a run that something is done to: killed, terminated, damaged, full, doubled."""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimesis_jax import config
from mimesis_jax.runs import checkpoint, disk, folder, mirror

HERE = Path(__file__).parent
slow = pytest.mark.slow
HURRY = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # these models run for milliseconds


def start(out, *words):
    """The miniature (killed_run.py) in a process of its own."""
    command = [sys.executable, HERE / "killed_run.py", "train", "--config", HERE / "killed_run.py"]
    return subprocess.Popen(
        [*map(str, command), "--out", str(out), *words], env=os.environ | HURRY,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=out.parent,
    )  # fmt: skip


def whole(process, status=0):
    said, _ = process.communicate(timeout=500)
    assert process.returncode == status, said
    return said


def lines(out, name="metrics"):
    return list(disk.lines(out / f"{name}.jsonl"))


def timeless(out):
    """The metrics without what the clock decides."""
    clock = ("time", "seconds", "_s", "host_share")
    return [
        {key: value for key, value in line.items() if not key.endswith(clock)}
        for line in lines(out)
    ]


def results(out):
    """What must be the same however often the run was ended."""
    told = {p.parent.name: disk.read(p)["hash"] for p in out.glob("models/*/frozen.json")}
    assert set(told) == {"sft", "grpo"}
    return told, timeless(out), lines(out, "episodes")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def undisturbed(home):
    whole(start(home / "undisturbed"))
    found = results(home / "undisturbed")
    assert [line["step"] for line in found[1]] == [*range(14), *range(6)]
    assert found[0]["sft"] != found[0]["grpo"]
    return found


def wait(process, ready, seconds=300):
    """Waits until ready() is true. The process must not end before."""
    until = time.monotonic() + seconds
    while not ready():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, "the run did not come so far"
        time.sleep(0.002)


def saving(out):
    """Whether a checkpoint is being written."""
    with contextlib.suppress(OSError):  # folders come and go while they are looked at
        return any(out.glob("checkpoints/*/*tmp*"))
    return False


def kill(out, ready, delay=0.0):
    process = start(out)
    wait(process, ready)
    time.sleep(delay)
    process.kill()
    process.wait()


# --- ended from outside -------------------------------------------------------------------------


def test_a_run_that_is_killed_goes_on_and_ends_as_if_it_had_not_been(home, undisturbed):
    out = home / "killed"
    kill(out, lambda: len(lines(out)) >= 5)
    assert not (out / "models").exists()
    whole(start(out))
    assert results(out) == undisturbed
    happened = [line["event"] for line in lines(out, "events") if line["event"].endswith("start")]
    assert happened == ["start", "restart"]


@slow
def test_ten_kills_at_random_moments_also_during_saves_change_nothing(home, undisturbed):
    rng, kills, runs = np.random.default_rng(), 0, 0
    while kills < 10:
        out = home / f"killed_often_{runs}"
        updates = lambda out=out: sum(line["event"] == "update" for line in lines(out, "events"))
        due, during = updates() + int(rng.integers(1, 6)), kills % 2 == 1
        process = start(out)
        while process.poll() is None and (updates() < due or (during and not saving(out))):
            time.sleep(0.002)
        time.sleep(0.0 if during else float(rng.uniform(0, 0.05)))
        process.kill()
        if ended := process.wait() == 0:  # it was nearly done: the next kills are another run's
            assert results(out) == undisturbed
        print("ended" if ended else "killed", "during a save" * during, "at line", len(lines(out)))
        kills, runs = kills + (not ended), runs + ended
    whole(start(out))
    assert results(out) == undisturbed
    happened = [line["event"] for line in lines(out, "events") if line["event"].endswith("start")]
    assert happened[0] == "start" and set(happened[1:]) <= {"restart"}
    assert runs or len(happened) == 11


def test_sigterm_saves_at_the_next_step_and_says_how_to_go_on(home, undisturbed):
    out = home / "terminated"
    process = start(out, "--config.sft.save_every=100")
    wait(process, lambda: len(lines(out)) >= 3)
    process.send_signal(signal.SIGTERM)
    said = whole(process, 143)
    (number,) = [p.name for p in (out / "checkpoints" / "sft").iterdir() if p.name.isdigit()]
    assert f"sft was saved after step {number} of 14; to go on from the last checkpoint: " in said
    assert "Traceback" not in said and len(lines(out)) == int(number) >= 3
    assert lines(out, "events")[-1]["error"] == "Terminated"
    whole(start(out, "--config.sft.save_every=100"))
    assert results(out) == undisturbed
    played = [line["step"] for line in lines(out, "events") if line["event"] == "update"]
    assert sorted(played) == sorted([*range(14), *range(6)])  # no step was done twice


def test_a_second_sigterm_does_not_wait(home):
    code = (
        "import os, signal; from mimesis_jax.runs import signals\n"
        "me = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "with signals.heard():\n"
        "    with signals.held():\n"
        "        me(); print('held', signals.asked())\n"
        "        try: me()\n"
        "        except signals.Terminated: print('at once')\n"
        "    print('never')"
    )
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert got.stdout.split("\n")[:2] == ["held True", "at once"] and "never" not in got.stdout
    assert "Terminated: ended between two stages" in got.stderr and got.returncode == 1
    alone = "from mimesis_jax.runs import signals\nwith signals.heard(): pass\nimport os,signal;"
    alone += "os.kill(os.getpid(), signal.SIGTERM)"  # outside, SIGTERM is what it was
    assert subprocess.run([sys.executable, "-c", alone]).returncode == -signal.SIGTERM


# --- the folder and the disk --------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MB, mounted for the test. Skips where this process may not mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(path)]
    made = subprocess.run(mount, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def state_of(step):
    return {"x": jax.random.normal(jax.random.key(step), (300, 300)), "step": step}  # 360 kB


def test_a_full_disk_stops_the_run_and_the_last_checkpoint_is_whole(small_disk):
    out = small_disk / "run"
    with folder.Run(out, {"checkpoints": {"keep": 1}}) as run:
        run.begin("sft")
        run.metrics("sft", 0, {"loss": 1.0})
        with run.store("sft") as store:
            store.save(1, state_of(1), {"mark": run.mark("sft")})
            store.wait()
        ballast = out / "ballast"
        with open(ballast, "wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        with pytest.raises(disk.RunError, match="full|space") as told, run.store("sft") as store:
            store.save(2, state_of(2), {"mark": run.mark("sft")})
            store.wait()
        assert "same command" in str(told.value)
        with pytest.raises(disk.RunError, match="the disk is full: free some space"):
            for _ in range(200):
                run.metrics("sft", 1, {"loss": 1.0, "word": "long" * 100})
        ballast.unlink()
    with folder.Run(out, {"checkpoints": {"keep": 1}}) as run, run.store("sft") as store:
        found = store.restore(state_of(0))
        assert found.step == 1 and np.array_equal(found.state["x"], state_of(1)["x"])
        run.begin("sft", found.meta["mark"])
        store.save(2, state_of(2), {"mark": run.mark("sft")})
        store.wait()
        assert store.steps() == [2]
    assert [line["step"] for line in lines(out)] == [0]


def test_a_file_system_that_is_read_only_is_refused_before_anything_is_done(small_disk):
    folder.Run(small_disk / "run", {"a": 1}).close()
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(disk.RunError, match="read-only.*choose another --out"):
        folder.Run(small_disk / "run", {"a": 1})
    with pytest.raises(disk.RunError, match="read-only"):
        folder.Run(small_disk / "new", {"a": 1})


def test_a_second_command_on_the_same_folder_is_refused_by_name(home):
    with folder.Run(home / "taken", {"a": 1}):
        said = whole(start(home / "taken"), 2)
    assert "taken" in said and said.count("\n") == 1
    with folder.Run(home / "used", config.read(HERE / "killed_run.py")):
        said = whole(start(home / "used"), 2)
    assert f"is in use by process {os.getpid()}" in said and said.count("\n") == 1


def test_a_changed_configuration_is_refused_but_for_where_and_when_it_stops(tmp_path):
    made = {"sft": {"steps": 4, "optimizer": {"lr": 0.1, "explode": 100.0}}}
    folder.Run(tmp_path, made).close()
    for changed, told in (
        ({"sft": {"steps": 5, "optimizer": {"lr": 0.1}}}, "sft.steps: 4 -> 5"),
        ({"sft": {"steps": 4, "optimizer": {"lr": 0.2}}}, "sft.optimizer.lr: 0.1 -> 0.2"),
    ):
        with pytest.raises(disk.RunError, match=told):
            folder.Run(tmp_path, changed)
    free = {"sft": {"steps": 4, "optimizer": {"lr": 0.1, "explode": 10.0, "patience": 9}}}
    more = {"checkpoints": {"keep": 5}, "mesh": {"fsdp": 8}}
    with folder.Run(tmp_path, free | more) as run:
        assert run.restarted and run.checkpoints.keep == 5
    assert folder.config(tmp_path).checkpoints.keep == 5
    with pytest.raises(disk.RunError, match="steps"):
        folder.Run(tmp_path, {"sft": {"steps": 3}}, may_change=("sft.optimizer",))
    folder.Run(tmp_path, {"sft": {"steps": 4}}, may_change=("sft.optimizer",)).close()


@pytest.mark.parametrize("section", [{"keep": 0}, {"every": -1}, {"keeps": 2}, {"folder": 3}])
def test_checkpoints_that_cannot_be_are_refused_before_the_folder_is_made(tmp_path, section):
    with pytest.raises(ValueError, match="keep|every|folder"):
        folder.Run(tmp_path / "run", {"checkpoints": section})
    assert not (tmp_path / "run").exists()


def test_checkpoints_lie_where_the_configuration_says(tmp_path):
    chosen = {"checkpoints": {"keep": 1, "every": 2, "folder": str(tmp_path / "elsewhere") + "/"}}
    with folder.Run(tmp_path / "run", chosen) as run, run.store("sft") as store:
        for step in (1, 2, 3):
            store.save(step, state_of(step))
        store.wait()
        assert store.steps() == [2, 3]  # the newest, and every second
    assert (tmp_path / "elsewhere" / "sft" / "3").is_dir()
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_a_bucket_is_handed_on_as_it_is_named(tmp_path, monkeypatch):
    """gs:// itself needs a network; that no part of the name is lost on the way does not."""
    asked = []
    manager = checkpoint.ocp.CheckpointManager

    def local(path, options):
        asked.append(str(path))
        return manager(tmp_path / "bucket", options=options)

    monkeypatch.setattr(checkpoint.ocp, "CheckpointManager", local)
    checkpoint.Store("gs://bucket/run/sft").close()
    assert asked == ["gs://bucket/run/sft"]


def test_a_bucket_without_its_package_is_told_in_a_line(tmp_path):
    if importlib.util.find_spec("gcsfs") or importlib.util.find_spec("tensorflow"):
        pytest.skip("this environment can reach gs://, which a test must not try")
    with pytest.raises(disk.RunError, match="gs:// needs the package gcsfs"):
        folder.Run(tmp_path / "run", {"checkpoints": {"folder": "gs://bucket/run"}})
    with pytest.raises(disk.RunError, match="gs:// needs the package gcsfs"):
        checkpoint.Store("gs://bucket/run/sft")
    assert not (tmp_path / "run").exists()


def test_a_run_whose_machine_was_lost_goes_on_from_beside_its_checkpoints(tmp_path):
    chosen = {"a": 1, "checkpoints": {"folder": str(tmp_path / "bucket")}}
    out = tmp_path / "machine" / "run"
    with folder.Run(out, chosen) as run:
        run.begin("world")
        run.metrics("world", 0, {"x": 1})
        run.finish("world", {"hash": "aa" * 32})
        checkpoint.save_frozen(out / "models" / "world", {"w": jnp.ones(3)})
        run.begin("sft")
        for step in range(3):
            run.metrics("sft", step, {"x": 1})
        with run.store("sft") as store:
            kept = {"mark": run.mark("sft"), "hashes": run.hashes()}
            run.push()
            store.save(3, state_of(3), kept)
            store.wait()
        run.metrics("sft", 3, {"x": 1})  # is lost with the machine
        raised = RuntimeError("the machine is gone")
        run.close(raised)
    shutil.rmtree(tmp_path / "machine")
    with folder.Run(out, chosen) as run, run.store("sft") as store:
        assert run.restarted and run.done("world") == {"hash": "aa" * 32}
        found = store.restore(state_of(0))
        run.check_hashes(found.meta["hashes"])
        run.begin("sft", found.meta["mark"])
        run.metrics("sft", 3, {"x": 2})
        assert checkpoint.load_frozen(out / "models" / "world").params["w"].tolist() == [1, 1, 1]
    told = [(line["phase"], line["step"], line["x"]) for line in lines(out)]
    assert told == [("world", 0, 1), *(("sft", step, 1) for step in range(3)), ("sft", 3, 2)]
    copied = {p.name for p in (tmp_path / "bucket" / "run").iterdir()}
    assert {"config.json", "metrics.jsonl", "phases.json", "models"} <= copied
    assert not copied & {"lock", "checkpoints", "profile", "spoilt"}
    with pytest.raises(disk.RunError, match="another configuration"):
        folder.Run(tmp_path / "other", {**chosen, "a": 2})


def test_only_what_has_changed_is_copied_and_what_speaks_of_it_last(tmp_path, monkeypatch):
    here = tmp_path / "run"
    here.mkdir()
    for name in ("config.json", "phases.json", "metrics.jsonl", ".partial", "lock"):
        (here / name).write_text(name)
    copies = mirror.Mirror(here, str(tmp_path / "there"))
    order, real = [], copies._copied
    monkeypatch.setattr(copies, "_copied", lambda a, b: (order.append(b.name), real(a, b))[1])
    assert not copies.fetch()
    assert copies.push() == 3 and order == ["metrics.jsonl", "phases.json", "config.json"]
    (here / "metrics.jsonl").write_text("more lines")
    assert copies.push() == 1 and copies.push() == 0 and not copies.fetch()
    shutil.rmtree(here)
    assert copies.fetch() and (here / "metrics.jsonl").read_text() == "more lines"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["run", "there"]


# --- what a checkpoint is held to ---------------------------------------------------------------


def test_a_checkpoint_holds_everything_that_a_restart_needs(home, undisturbed):
    out = home / "undisturbed"
    ends = np.cumsum([len(line) for line in (out / "metrics.jsonl").read_bytes().splitlines(True)])
    frozen = undisturbed[0]
    for phase, step, lines_before in (("sft", 12, 0), ("sft", 14, 0), ("grpo", 4, 14)):
        told = disk.read(out / "checkpoints" / phase / str(step) / "meta" / "metadata")
        meta, leaves = told["meta"], set(told["leaves"])
        assert {"step", "skipped", "streak", "recent", "params/embed"} <= leaves
        assert any(name.startswith("moments/") and "embed" in name for name in leaves)
        assert meta["mark"]["metrics"] == ends[lines_before + step - 1]
        assert meta["mark"]["seconds"] > 0
        if phase == "sft":
            assert meta["data"]["next"] >= step and meta["hashes"] == {}
        else:  # goals and random keys are made of the step: they need no place of their own
            assert meta["engine"] == {"version": step - 1}
            assert meta["hashes"] == {"sft": frozen["sft"], "start": frozen["sft"]}


def test_a_checkpoint_made_beside_another_simulator_is_refused(tmp_path):
    with folder.Run(tmp_path, {"a": 1}) as run:
        run.begin("simulator")
        run.finish("simulator", {"hash": "aa" * 32})
        run.hash("reference", "bb" * 32)
        kept = run.hashes()
        assert kept == {"simulator": "aa" * 32, "reference": "bb" * 32}
        run.check_hashes(kept)
        run.check_hashes({"unknown": "cc" * 32})  # of a phase that is still to come
        with pytest.raises(disk.RunError, match="made with simulator dddddddddddd.*aaaaaaaaaaaa"):
            run.check_hashes(kept | {"simulator": "dd" * 32})


def test_a_clock_that_is_set_back_changes_neither_checkpoints_nor_lengths(tmp_path, monkeypatch):
    real, jump = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: real() + jump[0])
    with folder.Run(tmp_path, {"a": 1}) as run, run.store("sft") as store:
        run.begin("sft")
        for step in range(4):
            jump[0] -= 5e6 if step % 2 else -3e6
            run.metrics("sft", step, {"loss": 1.0})
            store.save(step + 1, {"x": jnp.full(3, step + 1.0)}, {"mark": run.mark("sft")})
        store.wait()
        assert store.steps() == [3, 4] and 0 <= run.seconds("sft") < 100
    jump[0] = -1e7
    with folder.Run(tmp_path, {"a": 1}) as run, run.store("sft") as store:
        found = store.restore({"x": jnp.zeros(3)})
        assert found.step == 4 and found.state["x"][0] == 4.0
        run.begin("sft", found.meta["mark"])
        assert 0 <= run.seconds("sft") < 100
    assert [line["step"] for line in lines(tmp_path)] == [0, 1, 2, 3]
    ups = [line["up"] for line in lines(tmp_path, "events")]
    assert all(0 <= up < 100 for up in ups)


def test_a_restart_with_other_packages_is_recorded(tmp_path, monkeypatch):
    folder.Run(tmp_path, {"a": 1}).close()
    other = folder.versions.gather() | {"python": "9.9.9"}
    monkeypatch.setattr(folder.versions, "gather", lambda: other)
    folder.Run(tmp_path, {"a": 1}).close()
    (restart,) = json.loads((tmp_path / "versions.json").read_text())["restarts"]
    assert restart["changed"] == {"python": "9.9.9"}
