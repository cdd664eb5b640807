"""Which process this is and where process 0 waits: by flags, by the environment, by the machine.

Flags count before the environment, the environment before what JAX finds out by itself (metadata of
a TPU pod, Slurm, GKE). A process that nobody says anything about runs alone.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Mapping

from mimesis_jax.runs import processes_told as told

NAMES = {  # flag -> variable; launch/ sets the variables
    "processes": "JAX_NUM_PROCESSES",
    "process": "JAX_PROCESS_ID",
    "coordinator": "JAX_COORDINATOR_ADDRESS",
}


@dataclasses.dataclass(frozen=True)
class Place:
    """index: of this process, 0..count - 1. count: of all. host, port: where process 0 listens."""

    index: int
    count: int
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def find(
    processes: int | None = None,
    process: int | None = None,
    coordinator: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Place | None:
    """The place of this process, None when it runs alone.

    processes, process, coordinator: the flags, None where one was not given; processes=1 runs
    alone whatever the environment says.
    Raises ProcessError that names what is missing, is no number, or does not fit.
    """
    environ = os.environ if environ is None else environ
    given: dict[str, str | int | None] = {
        "processes": processes, "process": process, "coordinator": coordinator
    }  # fmt: skip
    if processes == 1:
        return None
    for flag, variable in NAMES.items():
        if given[flag] is None and environ.get(variable):
            given[flag] = environ[variable]
    if all(value is None for value in given.values()):
        found = detected(environ)
        if found is None:
            return None
        given = dict(zip(("coordinator", "processes", "process"), found, strict=True))
    missing = [flag for flag, value in given.items() if value is None]
    if missing:
        flag = missing[0]
        raise told.ProcessError(
            f"--{flag} is missing (or {NAMES[flag]} in the environment): processes that work "
            "together need --processes N, --process I and --coordinator HOST:PORT"
        )
    count = _number(given["processes"], "processes")
    if count == 1:
        return None
    index = _number(given["process"], "process")
    if count < 1:
        raise told.ProcessError(f"--processes {count}: the least is 1")
    if not 0 <= index < count:
        raise told.ProcessError(
            f"--process {index} is not among {count} processes: they are numbered 0 to {count - 1}"
        )
    return Place(index, count, *_address(str(given["coordinator"])))


def _number(value: str | int | None, flag: str) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise told.ProcessError(
            f"--{flag} ({NAMES[flag]}) is {value!r}: give a whole number"
        ) from None


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise told.ProcessError(
            f"--coordinator {text!r} is no address: write HOST:PORT, the host of process 0 and a "
            "free port there"
        )
    return host, int(port)


def detected(environ: Mapping[str, str]) -> tuple[str, int, int] | None:
    """(coordinator, processes, process) as JAX finds them on a pod or under Slurm; else None.

    JAX has no public name for the look-up, only for starting with what it finds; this is the one
    place that reads it. Where a version of JAX has it no more, the flags are asked for.
    Raises ProcessError when the machine is part of a pod and the look-up is not there or fails.
    """
    if not _part_of_many(environ):
        return None
    try:
        clusters = importlib.import_module("jax._src.clusters")
        look_up = clusters.ClusterEnv.auto_detect_unset_distributed_params
        coordinator, processes, process, _ = look_up(None, None, None, None, None, 60)
    except Exception as error:  # whatever a metadata server or another version of JAX does
        raise told.ProcessError(
            f"this machine is one of several, but which one was not found out ({error}): give "
            "--processes N, --process I and --coordinator HOST:PORT; or --processes 1 to run alone"
        ) from error
    if coordinator is None or processes is None or process is None or processes == 1:
        return None
    return coordinator, processes, process


def _part_of_many(environ: Mapping[str, str]) -> bool:
    """Whether to ask JAX at all: the look-up may wait for a metadata server that is not there."""
    if environ.get("SLURM_STEP_NODELIST") and environ.get("SLURM_NTASKS", "1") != "1":
        return True
    if environ.get("TPU_SKIP_MDS_QUERY") or environ.get("JAX_PLATFORMS", "tpu") == "cpu":
        return False
    if names := environ.get("TPU_WORKER_HOSTNAMES"):
        return "," in names or environ.get("MEGASCALE_NUM_SLICES", "1") != "1"
    return bool(importlib.import_module("jax._src.cloud_tpu_init").running_in_cloud_tpu_vm)
