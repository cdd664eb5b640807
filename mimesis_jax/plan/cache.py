"""Plans that were made: kept by what they depend on, found again without loading anything heavy.

    FOLDER/plans/KEY.json        a whole plan; KEY is of (configuration, topology, mode, code)
    FOLDER/programs/KEY.json     what one compiled program measured; KEY is of what it was made of

FOLDER is $MIMESIS_PLANS, or mimesis/plans in the user's cache. Compiling is what takes time, so a
program is kept as soon as it is measured, and a search that tries another micro-batch compiles no
decoding again.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
from pathlib import Path
from typing import Any

from mimesis_jax.runs import disk

PACKAGE = Path(__file__).resolve().parent.parent
# What a compiled program depends on; of this room, what makes and reads it.
ROOMS = ("types.py", "losses", "sharding", "models", "forest", "rollouts", "trainers")
OWN = ("settings", "programs", "decoding", "measure", "hlo", "collectives", "faults", "topology")
VERSIONS = ("jax", "jaxlib", "flax", "optax", "libtpu", "jax-cuda12-pjrt", "jax-cuda12-plugin")


def folder() -> Path:
    """Where plans are kept."""
    if given := os.environ.get("MIMESIS_PLANS"):
        return Path(given)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "mimesis" / "plans"


def versions() -> dict[str, str]:
    """The packages that decide what is compiled, those that are installed."""
    found = {}
    for name in VERSIONS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def code(*, whole: bool = True) -> str:
    """12 hex digits of the files that programs are made of, and of the packages' versions.

    whole: with all of this room, as a plan depends on it; else as a compiled program does.
    """
    files = [PACKAGE / name for name in ROOMS]
    files += [PACKAGE / "plan"] if whole else [PACKAGE / "plan" / f"{name}.py" for name in OWN]
    digest = hashlib.sha256(json.dumps(versions(), sort_keys=True).encode())
    for path in files:
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            digest.update(str(file.relative_to(PACKAGE)).encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def key(*parts: Any) -> str:
    """24 hex digits of values that json can hold."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def get(kind: str, name: str) -> Any:
    """What is kept under a kind ("plans", "programs") and key; None where nothing is, or where the
    file is damaged (it is then made again)."""
    try:
        return disk.read(folder() / kind / f"{name}.json")
    except disk.RunError:
        return None


def put(kind: str, name: str, value: Any) -> Path:
    """Keeps a value, whole or not at all. Raises RunError that says what would mend the disk."""
    path = folder() / kind / f"{name}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk.explain(error, path.parent) from error
    disk.write(path, value)
    return path
