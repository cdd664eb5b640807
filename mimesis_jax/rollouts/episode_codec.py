"""Episodes as bytes and back, exactly: what processes hand each other, without pickle.

The goal stays at home: every process has the goals of a step, so an episode carries its number.
Trees go as the arrays of runs.batches; dialogue, rewards, outcome and records as json, in which
whatever json would change (tuples, numpy numbers, arrays, keys that are no text) is marked.
"""

from __future__ import annotations

import base64
import io
import json
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mimesis_jax import types
from mimesis_jax.runs import batches

ENUMS: dict[str, Any] = {"stop": types.Stop, "kind": types.Kind}
MARK = "!"  # a dict of one key that begins so is a marked value


class CodecError(ValueError):
    """An episode that cannot be handed over, or bytes that hold none; the message says where."""


def encode(episodes: Sequence[types.Episode]) -> bytes:
    """Bytes that `decode` makes the same episodes of, but for their goals.

    Raises CodecError that names the episode, the field and the type of a value that is no plain
    one: None, bool, int, float, str, list, tuple, dict, Stop, Kind, numpy numbers and arrays are.
    """
    told: list[dict[str, Any]] = []
    trees: list[types.Tree] = []
    for episode in episodes:
        name = f"episode {episode.key.episode}"
        chairs = list(episode.trees)
        trees.extend(episode.trees[chair] for chair in chairs)
        key = episode.key
        told.append({
            "key": [key.stream, key.goal, key.copy, key.turn],
            "dialogue": [[t.author, t.public, t.private, t.only] for t in episode.dialogue],
            "rewards": [_plain(r, f"{name}, rewards") for r in episode.rewards],
            "stop": str(episode.stop),
            "outcome": _plain(episode.outcome, f"{name}, outcome"),
            "records": _plain(episode.records, f"{name}, records"),
            "chairs": chairs,
            "sizes": [len(episode.trees[chair]) for chair in chairs],
        })  # fmt: skip
    arrays = batches.flat([tree for tree in trees if tree])
    arrays["told"] = np.frombuffer(json.dumps(told).encode("ascii"), np.uint8)
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)  # type: ignore[arg-type]
    return out.getvalue()


def decode(data: bytes, goal: Callable[[types.Key], Any]) -> list[types.Episode]:
    """The episodes that were encoded; goal(key) gives the goal object of each.

    Raises CodecError for bytes that `encode` did not make.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        told = json.loads(arrays["told"].tobytes())
        trees = iter(batches.cut(arrays))
        return [_episode(one, trees, goal) for one in told]
    except (OSError, ValueError, KeyError, TypeError, EOFError, StopIteration,
            zipfile.BadZipFile) as error:  # fmt: skip
        raise CodecError(
            f"{len(data)} bytes hold no episodes, or damaged ones ({type(error).__name__}: "
            f"{error}): the other process runs other code"
        ) from error


def _episode(told: dict[str, Any], trees, goal: Callable[[types.Key], Any]) -> types.Episode:
    key = types.Key(*told["key"])
    named = zip(told["chairs"], told["sizes"], strict=True)
    return types.Episode(
        key=key,
        goal=goal(key),
        dialogue=tuple(types.Turn(*turn) for turn in told["dialogue"]),
        rewards=tuple(_value(reward) for reward in told["rewards"]),
        stop=types.Stop(told["stop"]),
        outcome=_value(told["outcome"]),
        trees={chair: next(trees) if size else () for chair, size in named},
        records=_value(told["records"]),
    )


def _plain(value: Any, where: str) -> Any:
    """`value` as json, marked where json has no such thing."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind in (list, tuple):
        items = [_plain(one, f"{where}[{i}]") for i, one in enumerate(value)]
        return items if kind is list else {f"{MARK}tuple": items}
    if kind is dict:
        if all(type(name) is str and not name.startswith(MARK) for name in value):
            return {name: _plain(one, f"{where}.{name}") for name, one in value.items()}
        pairs = [
            [_plain(k, f"{where}: a key"), _plain(v, f"{where}[{k!r}]")] for k, v in value.items()
        ]
        return {f"{MARK}dict": pairs}
    for name, enum in ENUMS.items():
        if kind is enum:
            return {f"{MARK}{name}": value.value}
    if isinstance(value, (np.generic, np.ndarray)) and value.dtype.kind in "biuf":
        shape = None if isinstance(value, np.generic) else list(value.shape)
        held = base64.b64encode(value.tobytes()).decode()  # bytes: a NaN has a sign and more
        return {f"{MARK}array": [value.dtype.str, shape, held]}
    raise CodecError(
        f"{where} is a {kind.__name__}, which cannot be handed to another process: use numbers, "
        "text, lists, tuples, dicts and arrays of numbers"
    )


def _value(told: Any) -> Any:
    """What `_plain` was given."""
    if isinstance(told, list):
        return [_value(one) for one in told]
    if not isinstance(told, dict):
        return told
    mark = next(iter(told), "")
    if not mark.startswith(MARK):
        return {name: _value(one) for name, one in told.items()}
    held, mark = told[mark], mark.removeprefix(MARK)
    if mark == "tuple":
        return tuple(_value(one) for one in held)
    if mark == "dict":
        return {_value(name): _value(one) for name, one in held}
    if mark == "array":
        dtype, shape, text = held
        flat = np.frombuffer(base64.b64decode(text), np.dtype(dtype)).copy()
        return flat[0] if shape is None else flat.reshape(shape)
    return ENUMS[mark](held)
