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
    assert heap.keep() is False
