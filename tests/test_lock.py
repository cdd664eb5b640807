"""The lock of a run folder: who holds it, signs of life, and when it is taken over."""

import json
import os
import subprocess
import threading
import time

import pytest

from mimesis_jax.runs import disk, lock


def test_the_lock_of_a_dead_process_is_taken_over(tmp_path):
    dead = subprocess.Popen(["true"])
    dead.wait()
    path = tmp_path / "lock"
    # The second one's holder was killed while writing.
    for left in (json.dumps({"pid": dead.pid, "host": lock._host()}), "half a li"):
        path.write_text(left)
        held = lock.Lock(path)
        assert json.loads(path.read_text())["pid"] == os.getpid()
        held.release()
        assert not path.exists()


def test_a_living_process_keeps_its_lock_unless_its_number_was_given_away(tmp_path):
    path = tmp_path / "lock"
    path.write_text(json.dumps({"pid": os.getppid(), "host": lock._host()}))
    with pytest.raises(disk.RunError, match=f"process {os.getppid()}"):
        lock.Lock(path)
    path.write_text(json.dumps({"pid": os.getppid(), "host": lock._host(), "born": 1}))
    lock.Lock(path).release()  # the pid was given to another process


def test_the_lock_of_another_host_is_only_taken_over_by_hand(tmp_path):
    """However long its holder has been silent, and though its number is our own."""
    path = tmp_path / "a run" / "lock"
    path.parent.mkdir()
    known = {"pid": os.getpid(), "host": "elsewhere", "since": "2026-01-02 03:04:05+0000"}
    path.write_text(json.dumps(known | {"beat": 15.0}))
    os.utime(path, (1.7e9, 1.7e9))
    before = path.read_text()
    with pytest.raises(disk.RunError) as told:
        lock.Lock(path)
    said = str(told.value)
    assert f"process {os.getpid()} on elsewhere since 2026-01-02 03:04:05+0000" in said
    beaten = time.strftime(lock.TIME, time.localtime(1.7e9))
    assert f"its last sign of life is of {beaten}, " in said and "comes every 15 s" in said
    ago = int(said.split(f"{beaten}, ")[1].split(" s ago")[0])
    assert abs(time.time() - 1.7e9 - ago) < 60
    by_hand = said.split("by `")[1].split("`")[0]
    assert path.read_text() == before and path.stat().st_mtime == 1.7e9
    subprocess.run(by_hand, shell=True, check=True)
    lock.Lock(path).release()


def test_a_holder_gives_signs_of_life_and_leaves_anothers_lock_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT", 0.02)
    path = tmp_path / "lock"
    held = lock.Lock(path)
    os.utime(path, (1.7e9, 1.7e9))
    until = time.monotonic() + 20
    while path.stat().st_mtime == 1.7e9 and time.monotonic() < until:
        time.sleep(0.01)
    assert abs(time.time() - path.stat().st_mtime) < 60
    path.unlink()  # by hand, and wrongly: it is alive
    other = lock.Lock(path)
    held.release()
    assert path.exists()
    other.release()
    assert not path.exists()
    assert not {held._beating, other._beating} & set(threading.enumerate())


def test_an_end_by_force_leaves_no_lock_but_anothers(tmp_path):
    """Who restarts on another host could not take it over."""
    mine, theirs = lock.Lock(tmp_path / "mine"), lock.Lock(tmp_path / "theirs")
    theirs.path.unlink()  # somebody took it over by hand
    theirs.path.write_text("{}")
    lock.leave()
    assert not mine.path.exists() and theirs.path.exists()
    lock.leave()
    mine.release()
    theirs.release()
    assert theirs.path.exists()
