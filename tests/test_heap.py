"""The kept heap: a large array that was freed is not cleared by the system again."""

import os
import platform
import subprocess
import sys

import pytest

from mimesis_jax.runs import heap

# Six arrays of 128 MiB one after another, written to; page faults after the first two. They are
# made in a thread, as compiled programs make theirs.
CHILD = """
import resource, sys, threading
import numpy as np
from mimesis_jax.runs import heap
kept = heap.keep()
def work():
    for k in range(6):
        if k == 2:
            global start
            start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        np.empty(1 << 27, np.uint8)[::4096] = 1
    print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - start)
thread = threading.Thread(target=work)
thread.start(); thread.join()
"""


def faults(setting: str) -> tuple[bool, int]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], env=env | {heap.SWITCH: setting}, capture_output=True,
        text=True, timeout=120, check=True,
    )  # fmt: skip
    kept, count = done.stdout.split()
    return kept == "True", int(count)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the heap is the GNU C library's")
def test_freed_memory_is_not_cleared_again():
    kept, few = faults("")
    assert kept
    assert few < 1000  # of 4 x 32,768 pages
    left, many = faults("system")
    assert not left
    # With huge pages an array of 128 MiB is 64 of them, cleared four times.
    assert many >= 4 * 64 and many > few


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("started anew"))
    assert heap.keep() is False
    heap.begin()


@pytest.fixture
def begun(monkeypatch):
    """What `begin` does: ("exec", words, tunables) or ("keep",)."""
    seen = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv(heap.SWITCH, raising=False)
    monkeypatch.delenv(heap.TUNABLES, raising=False)
    monkeypatch.setattr(heap, "keep", lambda: seen.append(("keep",)))
    monkeypatch.setattr(
        os, "execve", lambda _, words, env: seen.append(("exec", words, env[heap.TUNABLES]))
    )
    return seen


def test_huge_pages_are_asked_for_once(monkeypatch, begun):
    monkeypatch.setattr(heap, "_huge", lambda: True)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "mimesis_jax.cli", "demo"])
    heap.begin()
    words = [sys.executable, "-m", "mimesis_jax.cli", "demo"]
    assert begun == [("exec", words, "glibc.malloc.hugetlb=1")]
    monkeypatch.setenv(heap.TUNABLES, "glibc.malloc.hugetlb=1")
    heap.begin()
    assert len(begun) == 1, "not twice"
    monkeypatch.setenv(heap.TUNABLES, "glibc.malloc.check=0")
    heap.begin()
    assert begun[1][2] == "glibc.malloc.check=0:glibc.malloc.hugetlb=1"
    monkeypatch.setenv(heap.SWITCH, "system")
    heap.begin()
    assert len(begun) == 2


def test_without_huge_pages_the_heap_is_kept(monkeypatch, begun, tmp_path):
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(heap, "PAGES", tmp_path / "enabled")
    heap.begin()
    (tmp_path / "enabled").write_text("always madvise [never]")
    heap.begin()
    assert begun == [("keep",)] * 2
    (tmp_path / "enabled").write_text("always [madvise] never")
    heap.begin()
    assert begun[2][0] == "exec"
    monkeypatch.setattr(platform, "libc_ver", lambda: ("glibc", "2.31"))
    heap.begin()
    assert begun[3] == ("keep",)
