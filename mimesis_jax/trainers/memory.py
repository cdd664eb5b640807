"""Whether an update fits its devices, asked of the compiler before the first rollout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from mimesis_jax.runs import disk

GIB = 2**30


def room() -> tuple[int, int] | None:
    """(bytes in use, bytes that there are) of this process's first device; None where it does not
    say, as a CPU."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" not in stats:
        return None
    return int(stats.get("bytes_in_use", 0)), int(stats["bytes_limit"])


def check(lower: Callable[[], Any], tokens: tuple[int, int], there: tuple[int, int] | None) -> None:
    """Raises RunError where a program needs more than a device has beside what lies there already.

    lower: gives the lowered program; it is compiled only where there is something to hold it to
    (the compilation cache hands it to the first update). tokens: rows of a micro-batch, and their
    length. there: see `room`.
    """
    if there is None:
        return
    held, limit = there
    memory = lower().compile().memory_analysis()
    if memory is None:
        return
    # Its arguments lie there already.
    more = memory.temp_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
    if held + more > limit:
        raise disk.RunError(
            f"an update of {tokens[0]} rows of {tokens[1]} tokens needs {more / GIB:.2f} GiB "
            f"of a device beside the {held / GIB:.2f} GiB in use, it has {limit / GIB:.2f} GiB: "
            "use fewer --config.shape.rows, a shorter --config.shape.length, "
            "--config.model.remat=full, or a mesh of more devices (mimesis plan says beforehand)"
        )
