"""The heap of a process that computes on CPUs: what is freed stays with it and is not cleared anew.

A compiled step takes its temporaries from the C library, which maps a large piece of memory when it
is asked for and gives it back when it is freed. The system then clears every page of it again at
the next step: of a step of 4,096 tokens of the small hybrid that was a quarter of the processor
time (135,000 page faults, 0.22 of 0.80 s; without them 0.60 s).
"""

from __future__ import annotations

import ctypes
import os
import sys

# <malloc.h> of the GNU C library: what to set, and to what.
MMAP_MAX, TRIM_THRESHOLD, TOP_PAD, ARENA_MAX = -4, -1, -2, -8
SETTINGS = {
    ARENA_MAX: 1,  # other arenas hold at most 64 MiB and map what is larger
    MMAP_MAX: 0,
    TRIM_THRESHOLD: 2**31 - 1,  # an int: at most 2 GiB stay free at the heap's end
    TOP_PAD: 64 << 20,
}
SWITCH = "MIMESIS_HEAP"


def keep() -> bool:
    """Makes the C library keep what is freed, from here on; whether it does.

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
