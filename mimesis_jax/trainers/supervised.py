"""Supervised training on forests: base, user mid-training, thoughts, the agent's start."""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator

import jax
import numpy as np

from mimesis_jax import config as configs
from mimesis_jax import types
from mimesis_jax.losses import likelihood
from mimesis_jax.models import decoder, heads
from mimesis_jax.runs import batches as kept
from mimesis_jax.trainers import guard, memory, optimizer


@dataclasses.dataclass(frozen=True)
class Config:
    """steps: updates of one batch each. save_every: steps between checkpoints."""

    steps: int = 100
    save_every: int = 100
    optimizer: optimizer.Config = optimizer.Config()

    def __post_init__(self):
        configs.at_least(self, 1, "steps", "save_every")


def _objective(logp, entropy, weight, knobs):
    """(summed nll, its Fraction) of some of the tokens, as `heads.learn` asks for them."""
    nll = likelihood.nll(logp, weight)
    return nll.numerator, nll


@functools.partial(jax.jit, static_argnames=("spec", "compute"), donate_argnums=2)
def accumulate(spec, params, grads, forest: types.Forest, total,
               compute: decoder.Compute = decoder.ALONE):  # fmt: skip
    """Adds one micro-batch's share of the gradient of  sum_t w_t (-log p_t) / total.

    total: [] float32, the loss weight of the whole batch (all micro-batches, all hosts), so that
    neither packing nor accumulation changes the loss. Returns (grads, Fraction of the nll).
    """

    def loss(params):
        hidden = decoder.hidden(spec, params, forest, remat=compute.remat, layout=compute.layout)
        summed, nll, *_ = heads.learn(
            spec, params, hidden, forest.source, forest.target, _objective, forest.weight,
            shard=heads.shard(compute.layout),
        )  # fmt: skip
        return summed / total, nll

    (_, nll), new = jax.value_and_grad(loss, has_aux=True)(params)
    grads = jax.tree.map(lambda a, b: a + b, grads, new)
    return optimizer.placed(grads, params, spec, compute), nll


def update(spec, state: optimizer.State, forests: list[types.Forest], lr: float,
           config: optimizer.Config, compute: decoder.Compute = decoder.ALONE):  # fmt: skip
    """One update on a batch of micro-batches. Returns (state, metrics as device scalars)."""
    total = np.float32(sum(float(np.sum(f.weight)) for f in forests))
    grads = optimizer.zeros(state.params, spec, compute)
    numerators = []
    for forest in forests:
        grads, nll = accumulate(spec, state.params, grads, compute.place(forest), total, compute)
        numerators.append(nll.numerator)
    state, norm = optimizer.apply(
        state, grads, np.float32(lr), config, spec, compute, explode=np.float32(config.explode)
    )
    metrics = {"nll": sum(numerators) / total, "grad_norm": norm}
    # Copies: the state is donated to the next update, these may be read after it.
    return state, metrics | {name: getattr(state, name) + 0 for name in ("skipped", "streak")}


def _check(spec, state: optimizer.State, forest: types.Forest, compute) -> None:
    """Compiles the gradient. Raises RunError where the update does not fit the devices."""
    grads, batch = optimizer.zeros(state.params, spec, compute), compute.place(forest)
    lowered = accumulate.lower(spec, state.params, grads, batch, np.float32(1), compute)
    rows, length = forest.tokens.shape
    what = f"an update of {rows} rows of {length} tokens"
    memory.compiled(lowered, what, memory.ROWS, memory.room())


def train(
    spec,
    state: optimizer.State,
    batches: Iterator[list[types.Forest]],
    config: Config,
    *,
    compute: decoder.Compute = decoder.ALONE,
    first: int = 0,
    report: Callable[[int, dict], None] = lambda step, metrics: None,
    save: Callable[[int, optimizer.State], None] = lambda step, state: None,
    halt: Callable[[], bool] = lambda: False,
) -> optimizer.State:
    """Runs steps first..config.steps - 1.

    batches: yields the micro-batches of one update. report(step, metrics) after each step;
    save(step, state) after every config.save_every-th and the last, and after the one at which
    halt() says that the process must end. Raises guard.Spoilt where updates keep going wrong.
    """
    for step in range(first, config.steps):
        began = time.perf_counter()
        forests = next(batches)
        start = time.perf_counter()
        tokens = sum(int(np.sum(f.valid)) for f in forests)
        lr = optimizer.rate(config.optimizer, step, config.steps)
        if step == first:
            _check(spec, state, forests[0], compute)
        state, metrics = update(spec, state, forests, lr, config.optimizer, compute)
        metrics = {name: float(value) for name, value in jax.device_get(metrics).items()}
        ended = time.perf_counter()
        report(step, {
            **metrics, "lr": lr, "tokens": tokens, "tokens_per_s": tokens / (ended - began),
            "data_seconds": start - began, "update_seconds": ended - start,
        })  # fmt: skip
        make = lambda forests=forests: kept.Batch(forests=forests)
        guard.hold(step, metrics, config.optimizer, state, lr, make)
        if (step + 1) % config.save_every == 0 or step + 1 == config.steps or halt():
            save(step + 1, state)
    return state
