"""One micro-batch computed step by step, to find the first value that is not a finite number.

The order in which values depend on each other: the batch's own columns, the parameters, embedding,
layers, final norm, head, the parts of the loss; then backwards, the gradients from the head to the
embedding. The first place where something is wrong is where it began.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax import types
from mimesis_jax.losses import policy
from mimesis_jax.models import context, decoder, heads
from mimesis_jax.models import spec as specs
from mimesis_jax.trainers import reinforce

USED = ("old_logp", "advantage")  # columns of tokens with a weight; gate: of tokens with a note
Where = Callable[[int, int], str]  # row and place of a learned token -> what it is called


@dataclasses.dataclass(frozen=True)
class Fault:
    """place: where a value first is not finite. count: how many there. at: the first of them."""

    place: str
    count: int
    at: str = ""

    def __str__(self) -> str:
        values = "1 value" if self.count == 1 else f"{self.count:,} values"
        return f"{self.place}: {values} not finite" + (f", the first {self.at}" if self.at else "")


@functools.partial(jax.jit, static_argnames="spec")
def _walk(spec: specs.Spec, params: Any, forest: types.Forest, temperature: jax.Array):
    """The forward, layer by layer: for each stage, at which tokens [B, T] a value is not finite;
    log-prob and entropy [B, M]; the largest absolute value of each stage."""
    net = decoder.module(spec, params)
    trees = context.trees(spec, forest)
    x = net.lookup(forest.tokens.reshape(-1))
    broken, largest = [], []

    def look(x: jax.Array) -> None:
        bad = ~jnp.isfinite(x).all(-1).reshape(forest.tokens.shape)
        broken.append(bad & forest.valid)
        largest.append(jnp.max(jnp.where(jnp.isfinite(x), jnp.abs(x), 0)))

    look(x)
    for index in range(spec.periods):
        for layer in net.period(index).layers():
            x = layer.leave(x, layer.mixer(layer.enter(x), trees))
            look(x)
    x = net.normed(x)
    look(x)
    hidden = x.reshape(*forest.tokens.shape, -1)
    logp, entropy = heads.score(
        spec, params, hidden, forest.source, forest.target, temperature=temperature
    )
    return broken, largest, logp, entropy


def stages(spec: specs.Spec) -> list[str]:
    """Names of what `_walk` looks at."""
    return ["embedding", *(f"layer {k}" for k in range(spec.layers)), "final norm"]


@dataclasses.dataclass(frozen=True)
class Trace:
    """fault: the first one of the forward, None where all is finite. largest: (stage, largest
    absolute value) of each. extremes: what stands out among the learned tokens, in words."""

    fault: Fault | None
    largest: list[tuple[str, float]]
    extremes: list[str]


def forward(
    spec: specs.Spec, params: Any, forest: types.Forest, loss: reinforce.Loss | None, where: Where
) -> Trace:
    """Walks through one micro-batch. loss: of a reinforced batch, None for a supervised one."""
    temperature = 1.0 if loss is None else loss.temperature
    walked = jax.device_get(_walk(spec, params, forest, np.float32(temperature)))
    broken, largest, logp, entropy = walked
    sizes = list(zip(stages(spec), map(float, largest), strict=True))
    parts = dict(_parts(forest, logp, entropy, loss))
    extremes = [_extreme(name, value, mask, where) for name, (value, mask) in parts.items()]
    return Trace(_first(spec, params, forest, loss, broken, parts, where), sizes, extremes)


def _first(spec, params, forest, loss, broken, parts, where: Where) -> Fault | None:
    columns = dict(_columns(forest, loss))
    for name, (value, mask) in columns.items():
        if fault := _fault(f"batch, column {name}", value, mask, where):
            return fault
    for name, own in _by_stage(spec, params):
        if count := sum(int(np.sum(~np.isfinite(np.asarray(leaf)))) for leaf in own.values()):
            named = [n for n, leaf in own.items() if not np.isfinite(np.asarray(leaf)).all()]
            return Fault(f"parameters of {name}", count, f"in {named[0]}")
    for name, bad in zip(stages(spec), broken, strict=True):
        if bad.any():
            row, token = np.argwhere(bad)[0]
            return Fault(name, int(bad.sum()), f"at token {token} of row {row}")
    for name, (value, mask) in parts.items():
        place = "head" if name == "log-prob" else f"loss, {name}"
        if fault := _fault(place, value, mask, where):
            return fault
    return None


def _fault(place: str, value: np.ndarray, mask: np.ndarray, where: Where) -> Fault | None:
    bad = mask & ~np.isfinite(value)
    if not bad.any():
        return None
    row, token = np.argwhere(bad)[0]
    return Fault(place, int(bad.sum()), where(int(row), int(token)))


Column = tuple[str, tuple[np.ndarray, np.ndarray]]


def _columns(forest: types.Forest, loss: reinforce.Loss | None) -> Iterator[Column]:
    weight = np.asarray(forest.weight)
    everywhere, weighed = np.ones(weight.shape, bool), weight != 0
    yield "weight", (weight, everywhere)
    if loss is None:
        return
    for name in USED:
        yield name, (np.asarray(getattr(forest, name)), weighed)
    coached = np.asarray(forest.coached)
    yield "coached", (coached, everywhere)
    yield "gate", (np.asarray(forest.gate), coached != 0)


def _parts(forest, logp, entropy, loss: reinforce.Loss | None) -> Iterator[Column]:
    """The loss of each learned token, part by part, as losses.policy and losses.csd have it."""
    weight, coached = np.asarray(forest.weight), np.asarray(forest.coached)
    learned = (weight != 0) | (coached != 0)
    with np.errstate(all="ignore"):
        yield "log-prob", (logp, learned)
        if loss is None:
            yield "likelihood", (-logp * weight, weight != 0)
            return
        # Not clipped as policy.clipped does, so that what it has to bound is seen here.
        ratio = np.exp(logp - np.asarray(forest.old_logp))
        yield "ratio", (ratio, weight != 0)
        bounded = np.exp(np.clip(np.log(ratio), -policy.EXPONENT, policy.EXPONENT))
        yield "ratio x advantage", (bounded * np.asarray(forest.advantage) * weight, weight != 0)
        yield "gate x log-prob", (np.asarray(forest.gate) * logp * coached, coached != 0)
        yield "entropy", (entropy * weight, weight != 0)


def _extreme(name: str, value: np.ndarray, mask: np.ndarray, where: Where) -> str:
    """The largest absolute value among some tokens, and whose it is."""
    if not mask.any():
        return f"{name}: no token has one"
    size = np.where(mask & np.isfinite(value), np.abs(value), -1.0)
    row, token = np.unravel_index(int(size.argmax()), size.shape)
    return f"{name}: at most {size[row, token]:.4g}, {where(int(row), int(token))}"


# --- backwards --------------------------------------------------------------------------------


def backward(spec: specs.Spec, grads: Any) -> Fault | None:
    """Where gradients stop being finite on the way from the loss to the embedding."""
    for name, own in reversed(list(_by_stage(spec, grads))):
        count = sum(int(np.sum(~np.isfinite(np.asarray(leaf)))) for leaf in own.values())
        if count:
            named = [n for n, leaf in own.items() if not np.isfinite(np.asarray(leaf)).all()]
            return Fault(f"gradient of {name}", count, f"in {named[0]}")
    return None


def _by_stage(spec: specs.Spec, tree: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(stage, its leaves by path) of something built as parameters are, in the forward's order."""
    yield "embedding", {"embed": tree["embed"]}
    for index in range(spec.periods):
        for place, name in enumerate(spec.names):
            flat = jax.tree_util.tree_flatten_with_path(tree["periods"][name])[0]
            own = {jax.tree_util.keystr(p, simple=True, separator="/"): x[index] for p, x in flat}
            yield f"layer {index * len(spec.names) + place}", own
    yield "final norm", {"norm": tree["norm"]}
    if "head" in tree:
        yield "head", {"head": tree["head"]}
