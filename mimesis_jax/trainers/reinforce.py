"""The policy-gradient update on forests: clipped objective, optional KL, entropy, and CSD."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax import types
from mimesis_jax.forest import pack, tree
from mimesis_jax.losses import csd, policy
from mimesis_jax.models import decoder, heads
from mimesis_jax.runs import batches, compiles
from mimesis_jax.trainers import memory, optimizer


@dataclasses.dataclass(frozen=True)
class Loss:
    """eps_low, eps_high: clip range. alpha: weight of CSD. entropy: bonus per token (0: none).
    temperature: the one the episodes were sampled at. All are traced: changing one recompiles
    nothing."""

    eps_low: float = 0.2
    eps_high: float = 0.28
    alpha: float = 0.0
    entropy: float = 0.0
    temperature: float = 1.0


COLUMNS = ("weight", "old_logp", "advantage", "gate", "coached")  # of types.Forest, [B, M]


def _objective(logp, entropy, columns: dict, knobs: dict):
    """(L, metrics) as sums over some of the tokens, as `heads.learn` asks for them."""
    weight, totals = columns["weight"], knobs["totals"]
    surrogate, metrics = policy.clipped(
        logp, columns["old_logp"], columns["advantage"], weight,
        eps_low=knobs["eps_low"], eps_high=knobs["eps_high"],
    )  # fmt: skip
    pull = csd.loss(logp, columns["gate"], columns["coached"])
    spread = jnp.sum(jnp.where(weight > 0, entropy, 0.0) * weight)
    total = surrogate.numerator / totals["policy"]
    total = total + knobs["alpha"] * pull.numerator / totals["csd"]
    total = total - knobs["entropy"] * spread / totals["policy"]
    return total, {
        "policy_loss": surrogate.numerator,
        "csd_loss": pull.numerator,
        "entropy": spread,
        **{name: value.numerator for name, value in metrics.items()},
    }


@functools.partial(jax.jit, static_argnames=("spec", "compute"), donate_argnums=2)
def accumulate(spec, params, grads, forest: types.Forest, knobs: dict, totals: dict,
               compute: decoder.Compute = decoder.ALONE):  # fmt: skip
    """Adds one micro-batch's share of the gradient of  L = L_GRPO + alpha L_CSD.

    knobs: Loss as a dict of scalars. totals: {"policy", "csd"}, the denominators over the whole
    batch (all micro-batches, all hosts), at least 1e-9. Returns (grads, sums of metrics).
    """

    def loss(params):
        hidden = decoder.hidden(spec, params, forest, remat=compute.remat, layout=compute.layout)
        total, sums, logp, _ = heads.learn(
            spec, params, hidden, forest.source, forest.target, _objective,
            {name: getattr(forest, name) for name in COLUMNS}, {**knobs, "totals": totals},
            temperature=knobs["temperature"], shard=heads.shard(compute.layout),
        )  # fmt: skip
        drift = jnp.where(forest.weight > 0, jnp.abs(logp - forest.old_logp), 0.0)
        sums = {**sums, "drift": jnp.sum(drift * forest.weight)}
        return total, (sums, jnp.max(drift))

    (_, (sums, drift)), new = jax.value_and_grad(loss, has_aux=True)(params)
    grads = jax.tree.map(lambda a, b: a + b, grads, new)
    return optimizer.placed(grads, params, spec, compute), sums, drift


def warm(spec, state: optimizer.State, shape: pack.Shape, config: optimizer.Config,
         compute: decoder.Compute = decoder.ALONE) -> None:  # fmt: skip
    """Compiles the update, so that a first batch without anything to learn delays nothing.

    Nothing is computed but an empty gradient. Raises RunError where the update does not fit the
    devices.
    """
    forest = pack.pack([tree.smallest()], shape, shared=True).forests[0]
    whole, grads = totals([forest]), optimizer.zeros(state.params, spec, compute)
    # As `update` calls them: other words for the same arguments would be another program.
    gradient = accumulate.lower(
        spec, state.params, grads, compute.place(forest), knobs(Loss()), whole, compute
    )
    moved = optimizer.apply.lower(
        state, grads, np.float32(0), config, spec, compute, explode=np.float32(config.explode)
    )
    there = memory.room()
    what = f"an update of {shape.rows} rows of {shape.length} tokens"
    compiles.together(
        lambda: memory.compiled(gradient, what, memory.ROWS, there),
        lambda: memory.compiled(moved, "the optimizer's step", f"use {memory.MESH}", there),
    )


def knobs(loss: Loss) -> dict[str, np.float32]:
    """The loss as `accumulate` takes it: traced scalars by name."""
    return {name: np.float32(value) for name, value in dataclasses.asdict(loss).items()}


def update(spec, state: optimizer.State, trees: Sequence[types.Tree], shape: pack.Shape,
           loss: Loss, lr: float, config: optimizer.Config,
           names: Sequence[str] | None = None,
           compute: decoder.Compute = decoder.ALONE):  # fmt: skip
    """One update on trees whose advantage, gate, coached and old_logp columns are set.

    Trees in which no token has weight or, with alpha > 0, is coached are left out (a group without
    variance costs plain GRPO no forward); prompts that trees have in common are computed once a
    row. names: what errors call the trees, for example their episodes. Returns (state, metrics).
    """
    live = [i for i, t in enumerate(trees) if any(_learned(s, loss.alpha) for s in t)]
    if not live:
        return state, {"trained_trees": 0}
    called = [f"tree {i}" if names is None else names[i] for i in live]
    forests = pack.pack([trees[i] for i in live], shape, names=called, shared=True).forests
    whole, traced = totals(forests), knobs(loss)
    grads = optimizer.zeros(state.params, spec, compute)
    sums: list[dict] = []
    drifts = []
    for forest in forests:
        grads, part, drift = accumulate(
            spec, state.params, grads, compute.place(forest), traced, whole, compute
        )
        sums.append(part)
        drifts.append(drift)
    state, norm = optimizer.apply(
        state, grads, np.float32(lr), config, spec, compute, explode=np.float32(config.explode)
    )
    counters = (state.skipped, state.streak)
    host, drifts, norm, counters = jax.device_get((sums, drifts, norm, counters))
    metrics = {
        name: float(sum(part[name] for part in host))
        / float(whole["csd" if name == "csd_loss" else "policy"])
        for name in host[0]
    }
    tokens = sum(int(np.sum(f.valid)) for f in forests)
    room = sum(f.valid.size for f in forests)
    return state, {
        **metrics,
        "drift_max": float(max(drifts)),
        "grad_norm": float(norm),
        "skipped": int(counters[0]),
        "streak": int(counters[1]),
        "trained_trees": len(live),
        "tokens": tokens,
        "padding_share": 1 - tokens / room,
    }


def totals(forests: Sequence[types.Forest]) -> dict[str, np.float32]:
    """The denominators of the whole batch: summed weight, and summed coached, at least 1e-9."""
    return {
        "policy": np.float32(max(1e-9, sum(float(np.sum(f.weight)) for f in forests))),
        "csd": np.float32(max(1e-9, sum(float(np.sum(f.coached)) for f in forests))),
    }


def batch(trees: Sequence[types.Tree], names: Sequence[str], shape: pack.Shape,
          loss: Loss) -> batches.Batch:  # fmt: skip
    """What `update` was given and trained on, to be kept (see trainers.guard)."""
    live = [i for i, tree in enumerate(trees) if any(_learned(s, loss.alpha) for s in tree)]
    facts = {"loss": dataclasses.asdict(loss), "shape": dataclasses.asdict(shape)}
    return batches.Batch(
        trees=[trees[i] for i in live], names=[names[i] for i in live], facts=facts
    )


def _learned(segment: types.Segment, alpha: float) -> bool:
    return bool(np.any(segment.weight) or (alpha > 0 and np.any(segment.coached)))
