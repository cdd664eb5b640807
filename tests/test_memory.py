"""Whether an update fits is told before it is made: figures of the compiler, held to a device's."""

import jax
import jax.numpy as jnp
import pytest

from mimesis_jax.runs import disk
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
    memory.check(lowered, (8, 256), (10 * MIB, 10 * MIB + more))
    with pytest.raises(disk.RunError) as told:
        memory.check(lowered, (8, 256), (10 * MIB, 10 * MIB + more - 1))
    assert "8 rows of 256 tokens" in str(told.value)
    assert f"{more / 2**30:.2f} GiB of a device beside the 0.01 GiB in use" in str(told.value)
    assert "--config.shape.rows" in str(told.value) and "mimesis plan" in str(told.value)


def test_a_device_that_does_not_say_is_asked_nothing():
    memory.check(lambda: pytest.fail("was compiled"), (8, 256), None)


def test_room_is_read_from_the_device(monkeypatch):
    class Device:
        def memory_stats(self):
            return {"bytes_limit": 100, "bytes_in_use": 60}

    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    assert memory.room() == (60, 100)
    monkeypatch.setattr(Device, "memory_stats", lambda self: None)
    assert memory.room() is None
