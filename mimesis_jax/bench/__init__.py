"""Benches: each file with a `run(argv) -> dict` measures one thing on the machine at hand."""

from __future__ import annotations

import ast
from pathlib import Path


def names() -> dict[str, str]:
    """Name -> what it compares (the first line of its file) of every bench of this folder.

    The files are read, not imported, so that help answers at once.
    """
    found = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text())
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            found[path.stem] = (ast.get_docstring(tree) or "").split("\n")[0]
    return found
