"""Checkpoints over Orbax: saved in the background, restored from the newest whole one; and frozen.

    DIR/120/state   the state pytree (parameters, optimizer, step, data position, ...)
    DIR/120/meta    json: what the caller gave (a run's mark, hashes) and the leaves' shapes

A checkpoint appears under its number only when it is complete; a killed save leaves a folder with
another name that the next start removes. Files that are missing, short or broken in their structure
are noticed on restoring; a flipped bit inside array data is not (frozen parameters are held to a
content hash instead).

Over several processes each saves and restores what its devices hold, so all of them call the same
functions in the same order; what is neither array nor index is written by process 0 alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import json
import logging
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.experimental import multihost_utils
from orbax.checkpoint.checkpoint_managers import preservation_policy

from mimesis_jax import config as configs
from mimesis_jax.runs import disk, mirror, processes

Tree = Any  # a pytree of arrays and numbers
# Seconds that a save may take. Orbax reads them off the machine's clock, so that one that is set
# forward would fail a save that is well; over several processes it is how a lost one is noticed.
PATIENCE = 10 * 365 * 86400


def _told_once(record: logging.LogRecord) -> bool:
    """False for the traceback that Orbax's threads print of an error which they also raise, and
    which is told in a line here."""
    return "_SignalingThread.run() raised" not in record.getMessage()


logging.getLogger("absl").addFilter(_told_once)


@dataclasses.dataclass(frozen=True)
class Config:
    """keep: how many of the newest checkpoints stay. every: steps whose multiples stay for good (0:
    no such). folder: where they are kept, a path or gs://BUCKET/FOLDER ("": in the run folder)."""

    keep: int = 2
    every: int = 0
    folder: str = ""

    def __post_init__(self):
        configs.at_least(self, 1, "keep")
        configs.at_least(self, 0, "every")


@dataclasses.dataclass(frozen=True)
class Restored:
    """step: of the checkpoint. state: like the template. meta: json given to `save`."""

    step: int
    state: Tree
    meta: dict[str, Any]


def leaves(tree: Tree) -> dict[str, str]:
    """Path -> "float32[3,4]" of each leaf; the same for containers that only differ in kind."""
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    found = {}
    for path, leaf in flat:
        shape = ",".join(str(n) for n in np.shape(leaf))
        dtype = getattr(leaf, "dtype", None) or type(leaf).__name__  # a Python int stays one
        found[jax.tree_util.keystr(path, simple=True, separator="/")] = f"{dtype}[{shape}]"
    return found


class Store:
    """The checkpoints of one phase, in one folder.

    path: the folder, made when missing.
    keep: how many of the newest stay. every: steps whose multiples stay for good (None: no such).
    Raises RunError when the folder cannot be written.
    """

    def __init__(self, path: str | Path, *, keep: int = 2, every: int | None = None):
        if keep < 1:
            raise disk.RunError(f"keep={keep}: at least 1 checkpoint must stay")
        self.path = epath.Path(path)
        kept: list[Any] = [preservation_policy.LatestN(keep)]
        if every is not None:
            kept.append(preservation_policy.EveryNSteps(every))
        self._options = ocp.CheckpointManagerOptions(
            preservation_policy=preservation_policy.AnyPreservationPolicy(kept),
            cleanup_tmp_directories=True,
            create=True,
            async_options=ocp.AsyncOptions(
                timeout_secs=PATIENCE if processes.count() == 1 else 1200
            ),
        )
        try:
            self._manager = self._open()
        except OSError as error:
            raise disk.explain(error, str(path)) from error
        except ImportError as error:
            raise mirror.unreachable(str(path), error) from error

    def _open(self) -> ocp.CheckpointManager:
        absolute = self.path if "://" in str(self.path) else epath.Path(self.path).resolve()
        return ocp.CheckpointManager(absolute, options=self._options)

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, oldest first."""
        return sorted(self._manager.all_steps())

    def save(self, step: int, state: Tree, meta: Mapping[str, Any] | None = None) -> None:
        """Starts saving `state` as checkpoint `step`; returns when the arrays have been copied.

        The caller may donate or change them at once. A save that is still running is waited for.
        Raises RunError when this or the save before could not be written.
        """
        described = {"meta": disk.plain(meta or {}), "leaves": leaves(state)}
        described["sum"] = _sum(described)
        items = ocp.args.Composite(
            state=ocp.args.StandardSave(state), meta=ocp.args.JsonSave(described)
        )
        try:
            self._manager.save(step, args=items, force=True)
        except ocp.checkpoint_manager.StepAlreadyExistsError as error:
            raise disk.RunError(f"{self.path} has checkpoint {step} already: restore it") from error
        except Exception as error:
            raise self._failed(error) from error

    def wait(self) -> None:
        """Returns when every save is complete. Raises RunError when one could not be written."""
        try:
            self._manager.wait_until_finished()
        except Exception as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> disk.RunError:
        if isinstance(error, OSError):
            return disk.explain(error, str(self.path))
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return disk.RunError(
            f"a checkpoint in {self.path} could not be written ({reason}): see that there is space "
            "and give the same command again, it goes on from the last complete one"
        )

    def restore(self, template: Tree) -> Restored | None:
        """The newest checkpoint that is whole, as `template` is built; None when there is none yet.

        template: pytree of arrays, or of jax.ShapeDtypeStruct with shardings (any mesh).
        A damaged one is skipped with a warning and set aside as `damaged-STEP`.
        Raises RunError when a checkpoint is of another model, or when all are damaged.
        """
        damaged: dict[int, Exception] = {}
        for step in reversed(self.steps()):
            with _hushed():
                try:
                    described = self._described(step)
                    self._check(step, described["leaves"], leaves(template))
                    state = self._restore(step, template)
                    error = None
                except disk.RunError:
                    raise
                except Exception as broken:  # whatever the file formats raise on broken bytes
                    error = broken
                # One process may read what another could not.
                seen = processes.agree(None if error is None else _short(error), f"restore {step}")
                if any(seen):
                    damaged[step] = error or OSError(next(text for text in seen if text))
                    continue
            self._set_aside(damaged)
            return Restored(step, state, described["meta"])
        if damaged:
            names = ", ".join(str(step) for step in sorted(damaged))
            raise disk.RunError(
                f"none of the checkpoints in {self.path} can be read (steps {names}): restore the "
                f"folder from a copy, or remove it to start anew ({_short(damaged[max(damaged)])})"
            )
        return None

    def _described(self, step: int) -> dict[str, Any]:
        items = ocp.args.Composite(meta=ocp.args.JsonRestore())
        described = dict(self._manager.restore(step, args=items).meta)
        if described.pop("sum") != _sum(described):
            raise OSError(f"the check sum of {step}/meta does not fit its text")
        return described

    def _restore(self, step: int, template: Tree) -> Tree:
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, template)
        items = ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
        return self._manager.restore(step, args=items).state

    def _check(self, step: int, known: dict[str, str], wanted: dict[str, str]) -> None:
        """Raises RunError naming the first leaf in which the checkpoint and the template differ."""
        for name in sorted(known.keys() | wanted.keys()):
            there, here = known.get(name, "absent"), wanted.get(name, "absent")
            if there != here:
                raise disk.RunError(
                    f"checkpoint {step} in {self.path} is of another model: {name} is {there} "
                    f"there and {here} here; give the configuration it was made with, or start in "
                    "a new folder"
                )

    def _set_aside(self, damaged: Mapping[int, Exception]) -> None:
        """Renames damaged checkpoints, so that their steps can be saved anew; says so."""
        for step, error in damaged.items() if processes.is_lead() else ():
            aside, number = self.path / f"damaged-{step}", 1
            while aside.exists():
                aside, number = self.path / f"damaged-{step}-{number}", number + 1
            (self.path / str(step)).rename(aside)
            warnings.warn(
                f"checkpoint {step} in {self.path} is damaged ({_short(error)}): set aside as "
                f"{aside.name}, an older one is used",
                stacklevel=3,
            )
        if damaged:
            processes.barrier("damaged checkpoints are set aside")
            self._manager.close()
            self._manager = self._open()

    def close(self) -> None:
        """Waits for the last save and stops the background threads.

        Raises RunError when it could not be written.
        """
        try:
            self._manager.close()  # which waits
        except Exception as error:
            raise self._failed(error) from error

    def __enter__(self) -> Store:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_) -> None:
        if kind is None:
            self.close()
            return
        with contextlib.suppress(disk.RunError):  # what is under way says more
            self.close()


# --- frozen parameters ------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Frozen:
    """params: pytree of arrays. hash: their content hash, verified. meta: json given on saving."""

    params: Tree
    hash: str
    meta: dict[str, Any]


def content_hash(params: Tree) -> str:
    """sha256 (hex) over the sorted paths, dtypes, shapes and bytes of a pytree of arrays.

    Containers that only differ in kind (a dict, an nnx State) hash alike; one changed bit does not.
    A collective where arrays span processes: every process must call it.
    """
    flat, _ = jax.tree_util.tree_flatten_with_path(params)
    named = {jax.tree_util.keystr(p, simple=True, separator="/"): leaf for p, leaf in flat}
    digest = hashlib.sha256()
    for name in sorted(named):
        array = np.ascontiguousarray(whole(named[name]))
        digest.update(f"{name} {array.dtype} {np.shape(named[name])}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def whole(leaf: Any) -> np.ndarray:
    """All of an array on this host; a collective where other processes hold parts of it."""
    if isinstance(leaf, jax.Array) and not (leaf.is_fully_addressable or leaf.is_fully_replicated):
        return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))
    return np.asarray(leaf)


def save_frozen(path: str | Path, params: Tree, meta: Mapping[str, Any] | None = None) -> str:
    """Keeps parameters that never change again in the folder `path`; gives their content hash.

    The folder appears complete or not at all, its files are read-only. The same parameters may be
    saved twice. Raises RunError when other ones are there already.
    """
    path, digest = Path(path), content_hash(params)
    known = disk.read(path / "frozen.json") if path.exists() else None
    # Process 0 has looked; nothing was written before all had.
    known, pid = processes.agree([known, os.getpid()], f"freeze {path.name}")[0]
    if known is not None:
        if known["hash"] != digest:
            raise disk.RunError(
                f"{path} holds frozen parameters {known['hash'][:12]}..., these are "
                f"{digest[:12]}...: frozen ones are never replaced, choose another folder"
            )
        return digest
    partial = path.with_name(f".{path.name}.{pid}")
    lead = processes.is_lead()
    try:
        if lead:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        processes.barrier(f"freeze {path.name}: begin")
        with ocp.StandardCheckpointer() as writer:
            writer.save(epath.Path(partial).resolve() / "params", params)
        if lead:
            described = {"hash": digest, "leaves": leaves(params), "meta": disk.plain(meta or {})}
            disk.write(partial / "frozen.json", described)
            for file in partial.rglob("*"):
                if file.is_file():
                    file.chmod(0o444)
            partial.rename(path)
        processes.barrier(f"freeze {path.name}: done")
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise disk.explain(error, path) from error
    return digest


def load_frozen(path: str | Path, template: Tree = None, expect: str | None = None) -> Frozen:
    """Reads what `save_frozen` kept and verifies its content hash.

    template: pytree of arrays or ShapeDtypeStructs with shardings; without one, nested dicts of
      arrays on the first device.
    expect: the hash that a run recorded.
    Raises RunError when there are none, when they were changed, or are not the expected ones.
    """
    path = Path(path)
    known = disk.read(path / "frozen.json")
    if known is None:
        raise disk.RunError(f"{path} has no frozen parameters: train and freeze a simulator first")
    if expect is not None and known["hash"] != expect:
        raise disk.RunError(
            f"{path} holds parameters {known['hash'][:12]}..., {expect[:12]}... were expected: "
            "give the folder of the simulator that the run was made with"
        )
    if template is not None and leaves(template) != known["leaves"]:
        raise disk.RunError(f"{path} holds parameters of another model than the one configured")
    with _hushed():
        try:
            params = _read_params(epath.Path(path).resolve() / "params", template)
            digest = content_hash(params)
        except Exception as error:
            raise disk.RunError(f"{path} is damaged ({_short(error)}): restore a copy") from error
    if digest != known["hash"]:
        raise disk.RunError(
            f"the parameters in {path} were changed: they hash to {digest[:12]}..., "
            f"{known['hash'][:12]}... were saved; restore them from a copy"
        )
    return Frozen(params, digest, known["meta"])


def _read_params(path: epath.Path, template: Tree) -> Tree:
    with ocp.StandardCheckpointer() as reader:
        if template is None:
            here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
            place = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=here)
            abstract = jax.tree.map(place, reader.metadata(path).item_metadata.tree)
        else:
            abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, template)
        return reader.restore(path, abstract)


def _sum(described: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Keeps the readers' abandoned tasks from printing pages about a file that we report in a line.

    They complain when they are collected, so they are collected here.
    """
    logger = logging.getLogger("asyncio")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            gc.collect()
        logger.setLevel(level)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:160]}"
