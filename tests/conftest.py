"""Settings of all tests: none is timed, since machines are busy; compiled programs are let go."""

import gc
from pathlib import Path

import jax
import pytest
from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")

MAPS = Path("/proc/self/maps")
MANY = 15_000  # Linux lets a process have 65,530; past them XLA's compiler dies of a wild pointer


@pytest.fixture(autouse=True, scope="module")
def programs_are_let_go():
    """Each compiled program holds a few mapped pieces of memory for as long as jax keeps it."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        jax.clear_caches()
        gc.collect()
