"""Optimizer state and the one place where parameters change; the learning rate is traced."""

from __future__ import annotations

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import optax
from optax import contrib

from mimesis_jax.models import decoder

METHODS = ("adamw", "muon")
RECENT = 32  # gradient norms that the running median is of
LEAST = 8  # of them before a gradient can count as exploding
UPDATE_RMS = 0.2  # of a Muon update, about that of an Adam update (Liu et al. 2025, 2.2)


@dataclasses.dataclass(frozen=True)
class Config:
    """AdamW, or Muon for the layers' matrices with Nadam for everything else, scaled so that one
    learning rate serves both. lr is the peak; warmup steps rise linearly, then `decay` takes it
    down over the run ("constant" or "cosine" to lr * floor). clip: global gradient norm.

    explode: an update whose gradient norm is more than so many times the median of the last RECENT
    is left out (0: none is). patience: updates in a row that may be left out before training stops
    (trainers.guard; 0: any number). Neither is part of what is compiled: changing one recompiles
    nothing. In forty runs of the demo no norm was more than 43 times the median.
    """

    method: str = "adamw"
    lr: float = 1e-3
    warmup: int = 10
    decay: str = "cosine"
    floor: float = 0.1
    b1: float = 0.9
    b2: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.01
    clip: float = 1.0
    explode: float = dataclasses.field(default=100.0, compare=False)
    patience: int = dataclasses.field(default=5, compare=False)

    def __post_init__(self):
        if self.method not in METHODS:
            raise ValueError(f"method {self.method!r} is unknown: use one of {', '.join(METHODS)}")
        if self.decay not in ("constant", "cosine"):
            raise ValueError(f"decay {self.decay!r} is unknown: use 'constant' or 'cosine'")
        if self.lr <= 0 or self.clip <= 0:
            raise ValueError(f"lr {self.lr} and clip {self.clip} must be positive")
        if self.explode < 0 or 0 < self.explode < 1 or self.patience < 0:
            raise ValueError(
                f"explode {self.explode} must be 1 or more, patience {self.patience} 0 or more "
                "(0: no limit)"
            )


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    """params and moments: pytrees. step: [] int32, updates applied. skipped: [] int32, updates left
    out, and streak: [] int32, of them in a row up to now. recent: [RECENT] float32, the gradient
    norms of the last updates that were applied, NaN where there was none yet."""

    params: dict
    moments: tuple
    step: jax.Array
    skipped: jax.Array
    streak: jax.Array
    recent: jax.Array


def rate(config: Config, step: int, steps: int) -> float:
    """Learning rate of update `step` (0-based) of `steps`."""
    if step < config.warmup:
        return config.lr * (step + 1) / config.warmup
    if config.decay == "constant":
        return config.lr
    along = (step - config.warmup) / max(1, steps - config.warmup)
    cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, along)))
    return config.lr * (config.floor + (1 - config.floor) * cosine)


def _transform(config: Config) -> optax.GradientTransformation:
    # Layers are stacked, so their matrices have three axes and are decayed; their vectors (norms,
    # biases, decay rates) have two and are not, nor are the embedding and the head.
    decayed = optax.add_decayed_weights(
        config.weight_decay, mask=lambda p: jax.tree.map(lambda x: x.ndim > 2, p)
    )
    clip = optax.clip_by_global_norm(config.clip)
    if config.method == "adamw":
        return optax.chain(
            clip, optax.scale_by_adam(b1=config.b1, b2=config.b2, eps=config.eps), decayed
        )
    muon = contrib.muon(
        1.0, adam_b1=config.b1, adam_b2=config.b2, eps=config.eps,
        muon_weight_dimension_numbers=_matrices, consistent_rms=UPDATE_RMS,
    )  # fmt: skip
    return optax.chain(clip, muon, optax.scale(-1.0), decayed)


def _matrices(params):
    """Which leaves Muon orthogonalises, and how each is a matrix: layers' projections, stacked
    along their first axis. Convolutions, vectors and thin gates are left to Nadam."""

    def of(path, x):
        name = path[-1].key if path else ""
        if x.ndim < 3 or name.startswith("conv") or min(x.shape[1], x.shape[-1]) < 2:
            return None
        if name in ("a", "b"):
            return None
        split = x.ndim - 1 if name == "out" else 2
        axes = tuple(range(1, x.ndim))
        return contrib.MuonDimensionNumbers(axes[: split - 1], axes[split - 1 :])

    return jax.tree_util.tree_map_with_path(of, params)


def placed(tree, params, spec, compute: decoder.Compute):
    """Traced: a tree whose leaves are named as parameters are, each laid as its parameter.

    Raises ValueError when a parameter cannot be split as the layout says (Layout.spec).
    """
    if compute.layout is None:
        return tree
    lies = compute.layout.params(decoder.axes(spec), params)
    return jax.lax.with_sharding_constraint(tree, compute.layout.like(tree, lies))


@functools.partial(jax.jit, static_argnames=("config", "spec", "compute"))
def init(params, config: Config, spec=None, compute: decoder.Compute = decoder.ALONE) -> State:
    """A fresh State; params are copied, so donation never eats the caller's.

    spec, compute: of a model over several devices: moments lie as their parameters do.
    """
    params = jax.tree.map(jnp.copy, params)
    # A counter, an array: a buffer cannot be donated twice.
    step, skipped, streak = (jnp.zeros((), jnp.int32) for _ in range(3))
    recent = jnp.full(RECENT, jnp.nan, jnp.float32)
    state = State(params, _transform(config).init(params), step, skipped, streak, recent)
    return placed(state, params, spec, compute)


@functools.partial(jax.jit, static_argnames=("spec", "compute"))
def zeros(params, spec=None, compute: decoder.Compute = decoder.ALONE):
    """Gradient accumulators, fp32, each lying as its parameter does."""
    grads = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), params)
    return placed(grads, params, spec, compute)


def limit(recent: jax.Array, explode: jax.Array | float) -> jax.Array:
    """[] the gradient norm above which an update is left out; infinity while there is none.

    recent: [RECENT] norms, NaN where there was none. explode: [] times their (lower) median; 0: no
    limit. With less than LEAST norms there is none either.
    """
    held = jnp.sum(jnp.isfinite(recent))
    median = jnp.sort(recent)[jnp.maximum(held - 1, 0) // 2]  # NaN is sorted to the end
    return jnp.where((held >= LEAST) & (explode > 0), explode * median, jnp.inf)


@functools.partial(jax.jit, static_argnames=("config", "spec", "compute"), donate_argnums=0)
def apply(
    state: State, grads, lr, config: Config, spec=None, compute: decoder.Compute = decoder.ALONE,
    *, explode: jax.Array | float = 0.0,
) -> tuple[State, jax.Array]:  # fmt: skip
    """One update. Returns the new state and the gradient's global norm [].

    A gradient that is not finite, or whose norm is more than `explode` times (traced; 0: any) the
    median of the recent ones, changes nothing but the counters `skipped` and `streak`.
    """
    norm = optax.tree.norm(grads)
    good = jnp.isfinite(norm) & (norm <= limit(state.recent, explode))
    safe = jax.tree.map(lambda g: jnp.where(good, g, 0.0), grads)
    updates, moments = _transform(config).update(safe, state.moments, state.params)
    moved = jax.tree.map(lambda p, u: p - jnp.where(good, lr, 0.0) * u, state.params, updates)
    kept = jax.tree.map(lambda new, old: jnp.where(good, new, old), moments, state.moments)
    # A norm of 0 (nothing to learn from) says nothing about what is usual.
    place = state.step % RECENT
    norms = state.recent.at[place].set(jnp.where(good & (norm > 0), norm, state.recent[place]))
    streak = jnp.where(good, 0, state.streak + 1)
    new = State(moved, kept, state.step + good, state.skipped + ~good, streak, norms)
    return placed(new, state.params, spec, compute), norm
