"""Whether a step's programs fit their devices, known before the first rollout."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

from mimesis_jax.runs import disk

GIB = 2**30
MESH = "a mesh of more devices (mimesis plan says beforehand)"
ROWS = (
    "use fewer --config.shape.rows, a shorter --config.shape.length, --config.model.remat=full, or "
    + MESH
)


def room() -> tuple[int, int] | None:
    """(bytes in use, bytes that there are) of this process's first device; None where it does not
    say, as a CPU."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" not in stats:
        return None
    return int(stats.get("bytes_in_use", 0)), int(stats["bytes_limit"])


def compiled(lowered: Any, what: str, mend: str, there: tuple[int, int] | None) -> None:
    """Compiles a lowered program, which its next call then finds; see `told` for the words.

    there: see `room`. Raises RunError where the program needs more than a device has beside what
    lies there already, its arguments included.
    """
    with told(what, mend):
        memory = lowered.compile().memory_analysis()
    if there is None or memory is None:
        return
    held, limit = there
    more = memory.temp_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    if held + more > limit:
        raise disk.RunError(
            f"{what} needs {more / GIB:.2f} GiB of a device beside the {held / GIB:.2f} GiB in "
            f"use, it has {limit / GIB:.2f} GiB: {mend}"
        )


@contextlib.contextmanager
def told(what: str, mend: str) -> Iterator[None]:
    """Around a first call: a device that runs out of memory in it is a RunError that says so.

    what: is computed, with its sizes. mend: how it gets smaller.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        device = room()
        has = "" if device is None else f", it has {device[1] / GIB:.2f} GiB"
        raise disk.RunError(f"{what} does not fit a device{has}: {mend}") from error
