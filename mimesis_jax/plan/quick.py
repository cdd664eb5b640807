"""Child processes that compile: their environment, their waiting, and what is said when one dies.

Quick mode compiles for as many virtual CPU devices as the machines have: honest for arguments, for
what cannot be split and for which collectives there are, not for temporaries or a peak.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mimesis_jax.plan import exact
from mimesis_jax.plan.topology import Topology

LIMIT = 4 * 3600  # seconds; an exact plan of eight programs takes one


class PlanError(ValueError):
    """A plan that cannot be made; the message says what would help."""


def environment(found: Topology, mode: str) -> dict[str, str]:
    """The environment of the process that compiles for a topology in a mode."""
    own = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_PLATFORMS")}
    if mode == "exact":
        return own | exact.environment(found)
    # What is compiled is read, never run: no time goes into making it fast.
    flags = (
        f"--xla_force_host_platform_device_count={found.devices} "
        "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    )
    return own | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}


def compile(
    config: Any,
    found: Topology,
    mode: str,
    *,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
    fresh: bool = False,
    limit: float = LIMIT,
) -> dict[str, Any]:
    """What the programs of a configuration measure, in a child process (see child.py).

    config: as json values. mode: "quick", "exact" or "sizes" (nothing is compiled). only: names of
    programs, all where there is none; without: those that are left out. fresh: nothing is taken
    from the cache. limit: seconds.
    Raises PlanError when the run cannot be laid out on the machines, when the process dies (with
    the end of what it said), and when it takes longer than the limit.
    """
    with tempfile.TemporaryDirectory(prefix="mimesis-plan-") as folder:
        out, request = Path(folder) / "out.json", Path(folder) / "request.json"
        asked = {"config": config, "topology": found.name, "mode": mode, "programs": list(only)}
        asked |= {"without": list(without), "fresh": fresh}
        request.write_text(json.dumps(asked | {"out": str(out)}))
        said = Path(folder) / "said"
        words = [sys.executable, "-m", "mimesis_jax.plan.child", str(request)]
        with open(said, "w") as file, subprocess.Popen(
            words, env=environment(found, mode), stdout=subprocess.DEVNULL, stderr=file
        ) as process:  # fmt: skip
            code = _wait(process, said, limit)
        if code or not out.exists():
            end = "\n".join(said.read_text().strip().splitlines()[-4:])
            raise PlanError(f"compiling for {found.name} ended with {code}:\n{end}")
        told = json.loads(out.read_text())
    if "refused" in told:
        raise PlanError(told["refused"])
    return told


def _wait(process: subprocess.Popen, said: Path, limit: float) -> int:
    """Its exit code; its lines of progress are passed on as they come."""
    shown, waited = 0, 0.0
    try:
        while True:
            try:
                code = process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                code = None
                waited += 0.5
            lines = said.read_text().splitlines()
            for line in lines[shown:]:
                if line.endswith("left") or line.endswith(" s"):
                    print(f"  {line}", file=sys.stderr, flush=True)
            shown = len(lines)
            if code is not None:
                return code
            if waited > limit:
                raise PlanError(
                    f"compiling took longer than {limit:.0f} s: plan with --quick, or fewer layers "
                    "at first"
                )
    finally:
        if process.poll() is None:
            process.kill()
