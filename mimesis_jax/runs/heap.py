"""The heap of a process that computes on CPUs: few pages to clear for what it takes anew.

A compiled step takes its temporaries from the C library, which maps a large piece of memory when it
is asked for and gives it back when it is freed. The system then clears every page of it again at
the next step: of a step of 4,096 tokens of the small hybrid that was a quarter of the processor
time (135,000 page faults, 0.22 of 0.80 s; without them 0.60 s).

Two ways out: huge pages, which the C library must be told of before the process starts, or one heap
that gives nothing back. The latter leaves no page fault at all, but the compiler's threads wait for
each other there: a first step of the small dense model, nearly all of it compiling, took 10.4 to
13.5 s with it, 8.0 s as the system has it, 9.0 s with huge pages.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from pathlib import Path

# <malloc.h> of the GNU C library: what to set, and to what.
MMAP_MAX, TRIM_THRESHOLD, TOP_PAD, ARENA_MAX = -4, -1, -2, -8
SETTINGS = {
    ARENA_MAX: 1,  # other arenas hold at most 64 MiB and map what is larger
    MMAP_MAX: 0,
    TRIM_THRESHOLD: 2**31 - 1,  # an int: at most 2 GiB stay free at the heap's end
    TOP_PAD: 64 << 20,
}
SWITCH = "MIMESIS_HEAP"
TUNABLES, HUGE = "GLIBC_TUNABLES", "glibc.malloc.hugetlb"
PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def begin() -> None:
    """Call it first of all in a process of its own: it gets huge pages for its heap, for which it
    is started anew, once, with the same words; where there are none, `keep`.

    MIMESIS_HEAP=system in the environment leaves everything as it is, as does a GLIBC_TUNABLES that
    has that setting.
    """
    if sys.platform != "linux" or os.environ.get(SWITCH) == "system":
        return
    told = os.environ.get(TUNABLES, "")
    if HUGE in told:
        return
    if not _huge():
        keep()
        return
    found = {TUNABLES: ":".join(filter(None, (told, f"{HUGE}=1")))}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **found})


def _huge() -> bool:
    """Whether the C library (2.35 or later) can ask this system for huge pages."""
    name, version = platform.libc_ver()
    try:
        numbers = tuple(int(part) for part in version.split(".")[:2])
        return name == "glibc" and numbers >= (2, 35) and "[never]" not in PAGES.read_text()
    except (OSError, ValueError):
        return False


def keep() -> bool:
    """Makes the C library keep what is freed in one heap, from here on; whether it does.

    Call it before anything has started threads. Memory that was used once stays with the process,
    so others cannot have it: MIMESIS_HEAP=system in the environment leaves everything as it is (a
    host that only feeds accelerators gains nothing). Without the GNU C library nothing happens.
    """
    if sys.platform != "linux" or os.environ.get(SWITCH) == "system":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    return all([mallopt(name, value) == 1 for name, value in SETTINGS.items()])
