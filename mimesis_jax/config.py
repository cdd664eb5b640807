"""Configurations: read a `get_config()` file, override keys from a command line, freeze sections.

A configuration is an ml_collections ConfigDict. This file knows no part of the project: `build`
names a part's frozen dataclass and `freeze` fills it from a section. A key that does not exist or a
value of the wrong type is a ConfigError that says which key, what was given and what would do.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import hashlib
import importlib.util
import json
import math
import numbers
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from ml_collections import ConfigDict

Part = TypeVar("Part")

HOME = Path(__file__).resolve().parent.parent / "configs"


class ConfigError(ValueError):
    """A configuration file, key or value that cannot be used; the message says what would."""


# --- reading ----------------------------------------------------------------------------------


def find(name: str | Path) -> Path:
    """The configuration file meant by a path or by the name of a file in `configs/`.

    A name (`demo`, `experiments/csd`) is looked for in `./configs` and then beside the package.
    Raises ConfigError that names the nearest file there is.
    """
    path = Path(name)
    if path.is_file():
        return path
    bare = not path.is_absolute() and path.suffix in ("", ".py")
    folders = [] if path.parent == Path(".") else [path.parent]
    if bare:
        folders += [Path("configs") / path.parent, HOME / path.parent]
    for folder in folders:
        candidate = folder / f"{path.stem}.py"
        if bare and candidate.is_file():
            return candidate
    there = sorted({p.stem for f in folders if f.is_dir() for p in f.glob("*.py")} - {"__init__"})
    mend = f"; did you mean {nearest(path.stem, there)}?" if there else ""
    raise ConfigError(f"no configuration file {str(name)!r} in {_listed(folders)}{mend}")


def read(name: str | Path, overrides: Mapping[str, str] | None = None) -> ConfigDict:
    """Runs `get_config()` of a configuration file and applies overrides (dotted key -> text).

    The result is locked: keys can change their value but none can be added.
    """
    path = find(name)
    module_spec = importlib.util.spec_from_file_location(f"config_file_{path.stem}", path)
    if module_spec is None or module_spec.loader is None:
        raise ConfigError(
            f"{path} is not a Python file: a configuration is a .py with get_config()"
        )
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    if not callable(getattr(module, "get_config", None)):
        raise ConfigError(f"{path} has no function get_config(): add one that returns a ConfigDict")
    config = module.get_config()
    if not isinstance(config, ConfigDict):
        raise ConfigError(f"get_config() of {path} gave {_kind(config)}: it must give a ConfigDict")
    config.lock()
    override(config, overrides or {})
    return config


def override(config: ConfigDict, overrides: Mapping[str, str]) -> None:
    """Sets dotted keys of `config` in place from text, checked against each default's type.

    bool takes true or false, int no fraction, float any number, a tuple `1,2` or `(1,2)` with
    members like the default's; a default of None takes any Python literal or else the text.
    """
    for key, text in overrides.items():
        section: Any = config
        *path, name = key.split(".")
        for part in path:
            found = isinstance(section, ConfigDict) and part in section
            section = section[part] if found else None
        if not isinstance(section, ConfigDict) or name not in section:
            close = nearest(key, keys(config))
            raise ConfigError(f"unknown key config.{key}; did you mean config.{close}?")
        default = section[name]
        if isinstance(default, ConfigDict):
            inside = _listed(f"config.{key}.{k}" for k in default)
            raise ConfigError(f"config.{key} is a section, set one of its keys: {inside}")
        with section.ignore_type():  # the default's own type was checked, None included
            section[name] = _parse(f"config.{key}", text, default)


def keys(config: Mapping[str, Any] | ConfigDict, prefix: str = "") -> list[str]:
    """All dotted keys of the values in a configuration, in order."""
    found = []
    for name, value in config.items():
        inside = isinstance(value, (ConfigDict, Mapping))
        found += keys(value, f"{prefix}{name}.") if inside else [f"{prefix}{name}"]
    return found


def nearest(word: str, words: Iterable[str]) -> str:
    """The word most like `word`; of dotted words the last part counts as well as the whole."""

    def alike(candidate: str) -> float:
        whole = difflib.SequenceMatcher(None, word, candidate).ratio()
        last = difflib.SequenceMatcher(None, word.split(".")[-1], candidate.split(".")[-1]).ratio()
        return whole + last

    return max(words, key=alike, default="nothing: there are no keys")


def _parse(key: str, text: str, default: Any) -> Any:
    """The value that `text` means where a value like `default` is wanted."""
    if isinstance(default, str):
        return text
    if isinstance(default, bool):
        if text.lower() not in ("true", "false"):
            raise ConfigError(f"{key}={text!r} is not a bool: use true or false")
        return text.lower() == "true"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        value = text
    if default is None:
        return value
    if isinstance(default, (tuple, list)):
        members = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        return tuple(
            _like(f"{key}[{i}]", m, default[0]) if default else m for i, m in enumerate(members)
        )
    return _like(key, value, default)


def _like(key: str, value: Any, default: Any) -> Any:
    """`value` when it has the type of `default` (a whole number serves as a float)."""
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, float) and isinstance(value, str) and value in ("inf", "-inf"):
        return float(value)
    if type(value) is not type(default):
        raise ConfigError(
            f"{key}={value!r} is {_kind(value)}: it must be {_kind(default)}, "
            f"like its default {default!r}"
        )
    return value


# --- freezing a section into a part's dataclass -----------------------------------------------


def at_least(part: Any, least: int, *names: str) -> None:
    """Raises ValueError naming the first of a part's fields that is below `least`."""
    for name in names:
        if (value := getattr(part, name)) < least:
            raise ValueError(f"{name} {value} is below {least}: use {least} or more")


def freeze(cls: type[Part], section: Mapping[str, Any] | ConfigDict, path: str = "config") -> Part:
    """Builds the frozen dataclass `cls` from a section, nested dataclasses and tuples too.

    cls: a dataclass type. section: ConfigDict or mapping with its fields' names.
    path: where the section is in the configuration, for messages.
    Raises ConfigError for a key that is no field (naming the nearest), a missing field without a
    default, or a value of another type than the field's.
    """
    if not isinstance(section, (ConfigDict, Mapping)):
        raise ConfigError(f"{path}={section!r} must be a section with the keys of {cls.__name__}")
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for name in section:
        if name not in fields:
            close = nearest(name, fields)
            raise ConfigError(f"unknown key {path}.{name}; did you mean {path}.{close}?")
    given = {n: _fit(hints[n], section[n], f"{path}.{n}") for n in fields if n in section}
    for name, field in fields.items():
        bare = field.default is field.default_factory is dataclasses.MISSING
        if bare and name not in given:
            raise ConfigError(f"{path}.{name} is missing: {cls.__name__} needs {hints[name]}")
    return cls(**given)


def _fit(hint: Any, value: Any, path: str) -> Any:
    """`value` as the type `hint`, or a ConfigError that names both."""
    origin, members = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        for member in members:
            try:
                return _fit(member, value, path)
            except ConfigError:
                continue
    elif origin is typing.Literal:
        if value in members:
            return value
        if isinstance(value, str):
            texts = [str(m) for m in members]
            raise ConfigError(
                f"{path}={value!r} is not one of {_listed(texts)}; "
                f"did you mean {nearest(value, texts)}?"
            )
    elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else freeze(hint, value, path)
    elif (origin or hint) is tuple and isinstance(value, (tuple, list)):
        if not members:
            return tuple(value)
        if members[-1] is Ellipsis:
            members = members[:1] * len(value)
        if len(members) == len(value):
            pairs = enumerate(zip(members, value, strict=True))
            return tuple(_fit(m, v, f"{path}[{i}]") for i, (m, v) in pairs)
    elif hint is float and type(value) in (int, float):
        return float(value)
    elif origin in (dict, Mapping) or hint is dict:
        if isinstance(value, (ConfigDict, Mapping)):
            inner = members[1] if members else Any
            return {k: _fit(inner, v, f"{path}.{k}") for k, v in value.items()}
    elif isinstance(hint, type) and isinstance(value, hint) and type(value) is not bool:
        return value
    elif hint is bool and type(value) is bool:
        return value
    elif hint is None or hint is type(None):
        if value is None:
            return value
    wanted = getattr(hint, "__name__", None) if origin is None else None
    raise ConfigError(f"{path}={value!r} is {_kind(value)}: it must be {wanted or hint}")


# --- json and hash ----------------------------------------------------------------------------


def plain(config: Any, path: str = "config") -> Any:
    """A configuration as json values: sections are dicts, tuples are lists, numbers Python's own.

    Raises ConfigError for a value that json cannot hold (a function, an array, nan).
    """
    if isinstance(config, (ConfigDict, Mapping)):
        return {str(k): plain(v, f"{path}.{k}") for k, v in config.items()}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        fields = dataclasses.fields(config)
        return {f.name: plain(getattr(config, f.name), f"{path}.{f.name}") for f in fields}
    if isinstance(config, (tuple, list)):
        return [plain(v, f"{path}[{i}]") for i, v in enumerate(config)]
    if isinstance(config, Path):
        return str(config)
    if config is None or isinstance(config, (bool, str)):
        return config
    if isinstance(config, numbers.Integral):
        return int(config)
    if isinstance(config, numbers.Real) and math.isfinite(config):
        return float(config)
    raise ConfigError(
        f"{path}={config!r} cannot be written as json: "
        "use finite numbers, text, bools, None, tuples and sections"
    )


def dump(config: Any) -> str:
    """The configuration as json text with sorted keys; equal configurations give equal text."""
    return json.dumps(plain(config), indent=2, sort_keys=True) + "\n"


def load(text: str) -> ConfigDict:
    """The configuration that `dump` wrote (lists come back as tuples), locked."""
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"this is no configuration in json: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"a configuration in json is an object with keys, not {_kind(values)}")
    config = ConfigDict(_tuples(values))
    config.lock()
    return config


def content_hash(config: Any) -> str:
    """sha256 (hex) of a configuration: the same for equal keys and values in any order."""
    text = json.dumps(plain(config), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def changes(old: Any, new: Any) -> list[str]:
    """What differs between two configurations, a line a key: `agent.lr: 0.1 -> 0.2`."""
    before, after = (_flat(plain(c)) for c in (old, new))
    missing = "(absent)"
    return [
        f"{key}: {before.get(key, missing)} -> {after.get(key, missing)}"
        for key in sorted(before.keys() | after.keys())
        if before.get(key, missing) != after.get(key, missing)
    ]


def _flat(values: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= {f"{name}.{k}": v for k, v in _flat(value).items()}
        else:
            found[name] = json.dumps(value, sort_keys=True)
    return found


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _tuples(v) for k, v in value.items()}
    return tuple(_tuples(v) for v in value) if isinstance(value, list) else value


def _kind(value: Any) -> str:
    name = type(value).__name__
    return "None" if value is None else f"{'an' if name[0] in 'aeio' else 'a'} {name}"


def _listed(words: Iterable[Any]) -> str:
    return ", ".join(str(word) for word in words)
