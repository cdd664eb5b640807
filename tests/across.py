"""One small job for one device and for many: gradients and updates of the three losses.

Used by test_sharding.py (virtual devices) and by the tests of several processes. The model has both
kinds of layers, decays that are slow enough for a state to matter, and gradients of ordinary size.
"""

import dataclasses
import json
import sys

import jax
import numpy as np

from mimesis_jax import types
from mimesis_jax.forest import pack
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import scoring
from mimesis_jax.sharding import layout, mesh
from mimesis_jax.trainers import optimizer, reinforce, supervised

SPEC = dataclasses.replace(
    specs.tiny(96, 90, periods=2, chunk=8, width=64, mlp=96),
    kv_heads=2, init_std=0.15, tied=False,
)  # fmt: skip
# A larger eps than in training: Adam divides by |g| + eps, so with 1e-8 single elements whose
# gradient is rounding noise would decide the distance of a tensor. Gradients are compared as they
# are, in the first moment.
# lr: so large that a parameter moves by many of its last bits.
ADAM = optimizer.Config(lr=0.1, eps=1e-3)
LOSSES = {
    "grpo": reinforce.Loss(),
    "grpo_csd": reinforce.Loss(alpha=0.3, entropy=0.01),
}


def trees(count: int = 12) -> list[types.Tree]:
    """Trunks with branches; tokens differ in weight, so no micro-batch weighs as another."""
    rng = np.random.default_rng(7)

    def segment(parent: int, kind: float) -> types.Segment:
        n = int(rng.integers(3, 12))
        scored = rng.random(n) < kind
        draw = lambda x: np.where(scored, x, 0.0).astype(np.float32)
        return types.segment(
            rng.integers(0, 90, n), parent=parent, scored=scored,
            weight=draw(rng.uniform(0.1, 2.0, n)), old_logp=draw(rng.normal(-4.5, 0.3, n)),
            advantage=draw(rng.normal(0.0, 1.0, n)), gate=draw(rng.random(n)),
            coached=draw(rng.random(n) < 0.7),
        )  # fmt: skip

    def tree() -> types.Tree:
        trunk = -1
        made = []
        for _ in range(int(rng.integers(1, 4))):
            made.append(segment(trunk, 0.0))
            trunk = len(made) - 1
            made.append(segment(trunk, 0.9))
        return tuple(made)

    return [tree() for _ in range(count)]


def params() -> decoder.Params:
    """Host parameters."""
    made = jax.device_get(decoder.init(SPEC, jax.random.key(3)))
    for layer in made["periods"].values():
        if "a_log" in layer["mixer"]:
            layer["mixer"]["a_log"] = np.linspace(-4, -2, layer["mixer"]["a_log"].size).reshape(
                layer["mixer"]["a_log"].shape
            ).astype(np.float32)  # fmt: skip
    return made


def run(compute: decoder.Compute, rows: int) -> dict[str, dict[str, np.ndarray]]:
    """Name of a loss -> {"grad/PATH", "update/PATH"}, and "logp" of the scored tokens.

    rows: of a micro-batch; fewer make more micro-batches of the same trees.
    """
    start, some = params(), trees()
    shape = pack.Shape(rows, 64, 8, 48, 2)
    lies = None
    if compute.layout is not None:
        lies = compute.layout.params(decoder.axes(SPEC), decoder.abstract(SPEC))
    here = jax.device_put(start, lies)
    found = {"logp": {"all": scoring.score(SPEC, here, some, shape, compute=compute)}}
    for name in ("sft", *LOSSES):
        state = optimizer.init(here, ADAM, SPEC, compute)
        if name == "sft":
            forests = pack.pack(some, shape).forests
            after, _ = supervised.update(SPEC, state, forests, ADAM.lr, ADAM, compute)
        else:
            reinforce.warm(SPEC, state, shape, ADAM, compute)
            assert int(state.skipped) == int(state.step) == 0
            after, _ = reinforce.update(
                SPEC, state, some, shape, LOSSES[name], ADAM.lr, ADAM, compute=compute
            )
        # After one step the first moment is (1 - b1) times the clipped gradient.
        moment = after.moments[1].mu
        found[name] = _flat(moment, "grad") | _flat(after.params, "param")
    return found


def _flat(tree, lead: str) -> dict[str, np.ndarray]:
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    name = lambda path: jax.tree_util.keystr(path, simple=True, separator="/")
    return {f"{lead}/{name(path)}": fetch(leaf) for path, leaf in flat}


def fetch(array: jax.Array | np.ndarray) -> np.ndarray:
    """A global array as a host array, also where other processes hold parts of it."""
    if isinstance(array, np.ndarray) or array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array, tiled=True))


def compute(preset: str, data: int, fsdp: int, tensor: int, remat: str = "none", devices=None):
    made = mesh.make(mesh.Config(preset, data, fsdp, tensor), devices)
    return decoder.Compute(remat, layout.Layout(made, preset))


def distances(got: dict, want: dict) -> dict[str, float]:
    """Relative L2 distance of every tensor: gradients against their norm, parameters' movement
    against max(norm, lr sqrt(n)). Tensors whose true gradient is zero are left out."""
    start = _flat(params(), "param")
    found = {}
    for name in want:
        for key, value in want[name].items():
            other = got[name][key]
            kind, _, path = key.partition("/")
            if kind == "param":
                moved = np.linalg.norm(value - start[key])
                scale = max(moved, ADAM.lr * np.sqrt(value.size))
                if np.linalg.norm(want[name][f"grad/{path}"]) < 1e-9:
                    continue
            else:
                scale = np.linalg.norm(value)
                if kind == "grad" and scale < 1e-9:
                    continue
            found[f"{name}/{key}"] = float(np.linalg.norm(other - value) / scale)
    return found


def replicated(state, least: int = 4096) -> list[str]:
    """Names of large leaves that every device holds whole."""
    flat, _ = jax.tree_util.tree_flatten_with_path(state)
    return [
        jax.tree_util.keystr(path)
        for path, leaf in flat
        if leaf.size >= least and leaf.sharding.is_fully_replicated
    ]


MESHES = {
    "fsdp 8": ("fsdp", 1, 8, 1, "none"),
    "fsdp 4 x tensor 2": ("fsdp_tp", 1, 4, 2, "full"),
    "data 2 x fsdp 2 x tensor 2": ("multislice", 2, 2, 2, "dots"),
    "fsdp 2 x tensor 4": ("fsdp_tp", 1, 2, 4, "none"),  # more shards than kv heads
}


def main() -> None:
    """Prints, as json, the largest distances by mesh and by rows of a micro-batch."""
    want = run(decoder.Compute(), 32)
    told: dict = {"losses": sorted(want), "worst": {}, "replicated": {}}
    told["tensors"] = len(distances(want, want))
    for rows in (16, 8):
        told["worst"][f"rows {rows}"] = max(distances(run(decoder.Compute(), rows), want).values())
    for name, made in MESHES.items():
        there = compute(*made)
        got = distances(run(there, 8 if name == "fsdp 8" else 16), want)
        told["worst"][name] = max(got.values())
        told[f"at {name}"] = max(got, key=got.__getitem__)
        start = jax.device_put(
            params(), there.layout.params(decoder.axes(SPEC), decoder.abstract(SPEC))
        )
        state = optimizer.init(start, ADAM, SPEC, there)
        grads = optimizer.zeros(start, SPEC, there)
        told["replicated"][name] = replicated((state, grads))
    print(json.dumps(told))


if __name__ == "__main__":
    sys.exit(main())
