"""What a run was made with: Python, packages, the git revision, the host."""

from __future__ import annotations

import importlib.metadata
import platform
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGES = (
    "mimesis_jax", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "transformers",
    "tokenizers", "tensorflow-datasets", "array_record", "grain", "ml-collections", "numpy",
)  # fmt: skip
CHECKOUT = Path(__file__).resolve().parents[2]


def gather() -> dict[str, Any]:
    """{"python", "platform", "host", "packages": {name: version}, "git": {...} or None}."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "packages": found,
        "git": revision(CHECKOUT),
    }


def revision(folder: Path) -> dict[str, Any] | None:
    """{"revision": 40 hex digits, "dirty": bool} of a checkout whose top is `folder`, else None.

    Only `folder` itself counts: a package installed below somebody else's checkout is not in it.
    """
    if not (folder / ".git").exists():
        return None
    told = [_git(folder, *command) for command in (("rev-parse", "HEAD"), ("status", "--short"))]
    if told[0] is None or told[1] is None:
        return None
    return {"revision": told[0], "dirty": bool(told[1])}


def _git(folder: Path, *command: str) -> str | None:
    try:
        got = subprocess.run(
            ["git", "-C", str(folder), *command], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return got.stdout.strip() if got.returncode == 0 else None


def setup_seconds() -> float | None:
    """Seconds that `make .venv` took to prepare this environment (None: it was made otherwise)."""
    try:
        return float((Path(sys.prefix) / ".setup_seconds").read_text())
    except (OSError, ValueError):
        return None
