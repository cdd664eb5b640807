"""How benches measure: interleaved repetitions, compiled memory, and what the machine is."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax


class BenchError(ValueError):
    """A bench that cannot be run as asked; the message says what would work."""


def machine() -> dict[str, Any]:
    """Device, its number and memory, cores and versions: what a figure is worth nothing without."""
    device = jax.devices()[0]
    version = lambda name: importlib.metadata.version(name)
    return {
        "device": device.device_kind,
        "platform": device.platform,
        "devices": jax.device_count(),
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
        "mimesis_jax": version("mimesis_jax"),
    }


def interleaved(forms: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of every repetition of each form, in turn, so that noise of the machine hits all.

    A form returns arrays; its time ends when they are there. Forms are warm before (compiled ahead
    of time); every second round runs them in the opposite order, so that none always comes after
    the one that empties the caches.
    """
    if repeats < 1:
        raise BenchError(f"{repeats} repetitions measure nothing: use 1 or more")
    seconds: dict[str, list[float]] = {name: [] for name in forms}
    for turn in range(repeats):
        order = list(forms) if turn % 2 == 0 else list(forms)[::-1]
        for name in order:
            start = time.perf_counter()
            jax.block_until_ready(forms[name]())
            seconds[name].append(time.perf_counter() - start)
    return seconds


def medians(seconds: dict[str, list[float]]) -> dict[str, float]:
    """The median of each form's repetitions."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def peak_bytes(compiled: Any) -> int:
    """Bytes that a compiled program holds at most: arguments, results and temporaries together.

    Summed here because the compiler's own peak leaves temporaries out on some platforms.
    """
    memory = compiled.memory_analysis()
    if memory is None:
        raise BenchError("this platform's compiler does not say what memory a program takes")
    return (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        + memory.temp_size_in_bytes
        - memory.alias_size_in_bytes
    )


def free_bytes() -> int | None:
    """Memory that the first device can still give, None where nobody says."""
    device = jax.devices()[0]
    if device.platform != "cpu":
        stats = device.memory_stats() or {}
        if "bytes_limit" not in stats:
            return None
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    try:
        with open("/proc/meminfo") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return None


def parser(name: str, about: str | None) -> argparse.ArgumentParser:
    """A bench's own options; its help is the file's docstring."""
    return argparse.ArgumentParser(
        prog=f"mimesis bench {name}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def parse(options: argparse.ArgumentParser, argv: Sequence[str]) -> argparse.Namespace:
    """The options in argv; every number must be at least 1."""
    args = options.parse_args(list(argv))
    for name, value in vars(args).items():
        if isinstance(value, int) and not isinstance(value, bool) and value < 1:
            raise BenchError(f"--{name.replace('_', '-')} {value}: use 1 or more")
    return args
