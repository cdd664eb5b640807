"""Whether an update fits is told before it is made: figures of the compiler, held to a device's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimesis_jax.runs import compiles, disk
from mimesis_jax.trainers import memory

MIB = 2**20


def lowered():
    """A program with 4 MiB of arguments, 4 MiB of temporaries at least, and 4 bytes of result."""
    x = jax.ShapeDtypeStruct((1024, 1024), jnp.float32)
    return jax.jit(lambda x: jnp.sum(jnp.sort(x @ x, axis=0)[::7])).lower(x)


def test_what_does_not_fit_is_refused_with_figures():
    """Arguments lie on the device already; temporaries and results come on top."""
    need = lowered().compile().memory_analysis()
    more = need.temp_size_in_bytes + need.output_size_in_bytes - need.alias_size_in_bytes
    assert more >= 4 * MIB
    what = "an update of 8 rows of 256 tokens"
    memory.compiled(lowered(), what, memory.ROWS, (10 * MIB, 10 * MIB + more))
    with pytest.raises(disk.RunError) as told:
        memory.compiled(lowered(), what, memory.ROWS, (10 * MIB, 10 * MIB + more - 1))
    assert str(told.value).startswith(what)
    assert f"{more / 2**30:.2f} GiB of a device beside the 0.01 GiB in use" in str(told.value)
    assert "--config.shape.rows" in str(told.value) and "mimesis plan" in str(told.value)


def test_a_program_is_compiled_where_the_device_does_not_say_what_it_has():
    program = jax.jit(lambda x: x * 2 + 1)
    with compiles.Compiles() as counted:
        memory.compiled(program.lower(np.float32(1)), "doubling", memory.ROWS, None)
        program(np.float32(3))
    assert counted.count == 1, "the call finds the program"


def test_room_is_read_from_the_device(monkeypatch):
    class Device:
        def memory_stats(self):
            return {"bytes_limit": 100, "bytes_in_use": 60}

    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    assert memory.room() == (60, 100)
    monkeypatch.setattr(Device, "memory_stats", lambda self: None)
    assert memory.room() is None


def test_a_device_that_runs_out_in_a_first_call_says_what_makes_it_smaller(monkeypatch):
    def full():
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes.")

    monkeypatch.setattr(memory, "room", lambda: (0, 3 * 2**30))
    with pytest.raises(disk.RunError) as told, memory.told("decoding 8 slots", "use fewer slots"):
        full()
    assert str(told.value).startswith("decoding 8 slots does not fit a device, it has 3.00 GiB: ")
    assert "use fewer slots" in str(told.value)
    with pytest.raises(jax.errors.JaxRuntimeError), memory.told("a", "b"):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")
