"""The output heads: logits, log-probs with entropy and top-k of chosen tokens in chunks, values."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec as P

from mimesis_jax.models import decoder, vocabulary
from mimesis_jax.models import spec as specs
from mimesis_jax.sharding.layout import ROWS as BATCH
from mimesis_jax.sharding.layout import Layout

CELLS = 1 << 24  # logits that a reading may keep for its gradient, 64 MiB in fp32
BLOCK = 1 << 23  # logits that are worked on at once where there are more: they fit a large cache
HELD = 1 << 26  # logits that `learn` keeps until their gradient is known, 256 MiB in fp32


@dataclasses.dataclass(frozen=True)
class Shard:
    """Where the head is computed: mesh axes of the vocabulary and of the rows of a batch.

    vocab: axis that the head's rows are split over (None: every device has all of them).
    rows: axes that B is split over. Each device then walks its own tokens and its own rows of the
    matrix; a few numbers a token are exchanged, logits never.
    width: one of `rows` that the matrix's width is stored split over: it is gathered once before
    the walk, and its gradient is summed up and scattered once after it.
    """

    mesh: jax.sharding.Mesh
    vocab: str | None = None
    rows: tuple[str, ...] = ()
    width: str | None = None

    def __post_init__(self):
        for name in (*self.rows, *([self.vocab] if self.vocab else [])):
            if name not in self.mesh.axis_names:
                raise ValueError(
                    f"the mesh has no axis {name!r}: use one of {self.mesh.axis_names}"
                )
        if jax.sharding.AxisType.Explicit in self.mesh.axis_types:
            raise ValueError(
                f"the mesh's axes are {self.mesh.axis_types}: the head lays its arrays out itself, "
                "make the mesh with axis_types of AxisType.Auto"
            )
        if self.vocab in self.rows:
            raise ValueError(f"axis {self.vocab!r} cannot hold both the vocabulary and the rows")
        if self.width is not None and self.width not in self.rows:
            raise ValueError(f"width {self.width!r} must be one of the rows' axes {self.rows}")


def shard(layout: Layout | None) -> Shard | None:
    """Where the head is computed under a layout; None on one device."""
    if layout is None:
        return None
    rules, more = layout.rules(), lambda axis: axis is not None and layout.size(axis) > 1
    vocab, width = rules["vocab"], rules["width"]
    return Shard(layout.mesh, vocab if more(vocab) else None, BATCH, width if more(width) else None)


def _matrix(params: decoder.Params) -> jax.Array:
    return params["head"] if "head" in params else params["embed"]


def logits(spec: specs.Spec, params: decoder.Params, h: jax.Array) -> jax.Array:
    """Logits [..., V] fp32 of h [..., D]; ids that do not exist are at -inf."""
    flat = h.reshape(-1, h.shape[-1])
    out = jnp.matmul(flat, _matrix(params).astype(h.dtype).T, preferred_element_type=jnp.float32)
    if spec.vocab_real < spec.vocab:
        out = jnp.where(jnp.arange(spec.vocab) < spec.vocab_real, out, -jnp.inf)
    return out.reshape(*h.shape[:-1], spec.vocab)


# --- reading chosen tokens --------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a reading needs to know at trace time."""

    walk: vocabulary.Walk
    shard: Shard | None

    def over(self, body: Callable, into: tuple, out: Any) -> Callable:
        """`body` on each device's part; into and out are specs made of TOKENS, ROWS and P()."""
        if self.shard is None:
            return body
        lies = P(self.shard.vocab, self.shard.width)
        place = {TOKENS: P(self.shard.rows or None), ROWS: lies, ALL: P()}
        at = lambda tree: jax.tree.map(lambda name: place[name], tree)
        return jax.shard_map(
            body, mesh=self.shard.mesh, in_specs=at(into), out_specs=at(out), check_vma=False
        )

    def summed(self, value: Any) -> Any:
        """The sum over the devices that have other tokens."""
        rows = () if self.shard is None else self.shard.rows
        return jax.lax.psum(value, rows) if rows else value

    def gathered(self, matrix: jax.Array, dtype) -> jax.Array:
        """The matrix with its whole width, in the dtype of the products."""
        if self.shard is None or self.shard.width is None:
            return matrix
        return jax.lax.all_gather(matrix.astype(dtype), self.shard.width, axis=1, tiled=True)

    def scattered(self, gradient: jax.Array) -> jax.Array:
        """This device's part [V / vocab, D / width] of the sum of all devices' gradients."""
        if self.shard is None or self.shard.width is None:
            return self.summed(gradient)
        others = tuple(name for name in self.shard.rows if name != self.shard.width)
        part = jax.lax.psum_scatter(gradient, self.shard.width, scatter_dimension=1, tiled=True)
        return jax.lax.psum(part, others) if others else part


FIXED = ("norm", "top_logp", "top_ids")  # no gradient runs through these
TOKENS, ROWS, ALL = "tokens", "rows", "all"  # how an array lies: by tokens, by vocabulary, whole


def _plan(spec: specs.Spec, batch: int, shard: Shard | None, top: int = 0) -> Plan:
    axis = None
    if shard is not None:
        axis, size = shard.vocab, 1
        parts = 1 if axis is None else shard.mesh.shape[axis]
        wide = 1 if shard.width is None else shard.mesh.shape[shard.width]
        for name in shard.rows:
            size *= shard.mesh.shape[name]
        for what, number, over in (
            ("vocabulary", spec.vocab, parts),
            ("batch", batch, size),
            ("width", spec.width, wide),
        ):
            if number % over:
                raise ValueError(
                    f"a {what} of {number} cannot be split over {over} devices: "
                    f"use a multiple of {over} or a smaller axis"
                )
    return Plan(vocabulary.Walk(spec.vocab_real, min(CELLS, BLOCK), top, axis), shard)


def _whole_read(plan: Plan, matrix, h, target, temperature) -> vocabulary.Reading:
    """`vocabulary.read` in one piece for plain autodiff: few logits are kept, not made twice."""
    out = jnp.matmul(h, matrix.astype(h.dtype).T, preferred_element_type=jnp.float32)
    ids = jnp.arange(len(matrix))
    out = out / temperature
    if plan.walk.real < len(matrix):
        out = jnp.where(ids < plan.walk.real, out, vocabulary.NOTHING)
    norm = jax.nn.logsumexp(out, axis=-1)
    own = jnp.sum(jnp.where(ids == target[:, None], out, 0.0), axis=-1)
    centred = out - norm[:, None]
    entropy = -jnp.sum(jnp.exp(centred) * centred, axis=-1)
    values, places = jax.lax.top_k(jax.lax.stop_gradient(centred), plan.walk.top)
    return vocabulary.Reading(own - norm, entropy, norm, values, places.astype(jnp.int32))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _read(plan: Plan, matrix, h, target, temperature) -> vocabulary.Reading:
    body = lambda matrix, h, *args: vocabulary.read(
        plan.walk, plan.gathered(matrix, h.dtype), h, *args
    )
    specs_of: Any = [TOKENS] * 5
    out = vocabulary.Reading(*specs_of)
    return plan.over(body, (ROWS, TOKENS, TOKENS, ALL), out)(matrix, h, target, temperature)


def _read_fwd(plan, matrix, h, target, temperature):
    reading = _read(plan, matrix, h, target, temperature)
    return reading, (matrix, h, target, temperature, reading)


def _read_bwd(plan, saved, cotangent):
    matrix, h, target, temperature, reading = saved

    def body(matrix, h, *args):
        dmatrix, dh = vocabulary.pull(plan.walk, plan.gathered(matrix, h.dtype), h, *args)
        return plan.scattered(dmatrix), dh

    few = dataclasses.replace(reading, top_logp=None, top_ids=None)
    lies = (ROWS, TOKENS, TOKENS, ALL, jax.tree.map(lambda _: TOKENS, few), TOKENS, TOKENS)
    dmatrix, dh = plan.over(body, lies, (ROWS, TOKENS))(
        matrix, h, target, temperature, few, cotangent.logp, cotangent.entropy
    )
    return _cast(matrix, h, temperature, dmatrix, dh)


def _cast(matrix, h, temperature, dmatrix, dh):
    """Cotangents (matrix, h, target's None, temperature) in the dtypes of what they belong to."""
    # Logits are h W / temperature, so temperature's gradient is that of h along h itself.
    dtemperature = -jnp.sum(h.astype(jnp.float32) * dh) / temperature
    return dmatrix.astype(matrix.dtype), dh.astype(h.dtype), None, dtemperature


_read.defvjp(_read_fwd, _read_bwd)


def _flat(plan: Plan, hidden, source, target):
    pick = lambda hidden, source: jnp.take_along_axis(hidden, source[..., None], axis=1)
    rows = plan.over(pick, (TOKENS, TOKENS), TOKENS)(hidden, source)
    return rows.reshape(-1, rows.shape[-1]), target.reshape(-1)


def read(
    spec: specs.Spec,
    params: decoder.Params,
    hidden: jax.Array,
    source: jax.Array,
    target: jax.Array,
    *,
    temperature: float | jax.Array = 1.0,
    top: int = 0,
    shard: Shard | None = None,
) -> vocabulary.Reading:
    """Log-prob of each target, entropy, and the `top` likeliest ids of its distribution.

    hidden: [B, T, D]; source: [B, M] int32, the row's index of the hidden state that predicts;
    target: [B, M] int32, ids that exist. Logits are divided by temperature (> 0); ids that do not
    exist have no mass. Gives logp, entropy, norm [B, M] and top_logp, top_ids [B, M, top], fp32 in
    nats. Gradients run through logp and entropy only. When [B*M, V] logits are more than CELLS they
    are made, and in the gradient made again, some tokens and some rows of the vocabulary at a time;
    the matrix's gradient is summed up in fp32 in one [V, D] array.

    Raises ValueError when top exceeds spec.vocab_real or a sharded size does not divide.
    """
    if not 0 <= top <= spec.vocab_real:
        raise ValueError(f"top {top} of {spec.vocab_real} ids: ask for 0 to {spec.vocab_real}")
    plan = _plan(spec, len(hidden), shard, top)
    flat, goal = _flat(plan, hidden, source, target)
    small = shard is None and source.size * spec.vocab <= CELLS
    make = _whole_read if small else _read
    temperature = jnp.asarray(temperature, jnp.float32)
    reading = make(plan, _matrix(params), flat, goal, temperature)
    fixed = {name: jax.lax.stop_gradient(getattr(reading, name)) for name in FIXED}
    reading = dataclasses.replace(reading, **fixed)
    return jax.tree.map(lambda x: x.reshape(*source.shape, *x.shape[1:]), reading)


def score(
    spec: specs.Spec,
    params: decoder.Params,
    hidden: jax.Array,
    source: jax.Array,
    target: jax.Array,
    *,
    temperature: float | jax.Array = 1.0,
    shard: Shard | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Log-prob of each target and the entropy of its distribution, in nats: two [B, M] fp32.

    The first two fields of `read`, which has the arguments.
    """
    reading = read(spec, params, hidden, source, target, temperature=temperature, shard=shard)
    return reading.logp, reading.entropy


# --- reading and learning in one pass ---------------------------------------------------------

Objective = Callable[[jax.Array, jax.Array, Any, Any], tuple[jax.Array, Any]]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _learn(plan: Plan, objective: Objective, matrix, h, target, temperature, columns, knobs):
    reading = _read(plan, matrix, h, target, temperature)
    total, sums = objective(reading.logp, reading.entropy, columns, knobs)
    return total, sums, reading.logp, reading.entropy


def _learn_fwd(plan, objective, matrix, h, target, temperature, columns, knobs):
    def body(matrix, h, *args):
        whole = plan.gathered(matrix, h.dtype)
        total, sums, logp, entropy, dmatrix, dh = vocabulary.learn(
            plan.walk, HELD, objective, whole, h, *args
        )
        total, sums = plan.summed((total, sums))
        return total, sums, logp, entropy, plan.scattered(dmatrix), dh

    lies = (ROWS, TOKENS, TOKENS, ALL, jax.tree.map(lambda _: TOKENS, columns))
    shapes = jax.eval_shape(objective, h[:, 0], h[:, 0], columns, knobs)
    total, sums = jax.tree.map(lambda _: ALL, shapes)
    out = (total, sums, TOKENS, TOKENS, ROWS, TOKENS)
    run = plan.over(body, (*lies, jax.tree.map(lambda _: ALL, knobs)), out)
    *told, dmatrix, dh = run(matrix, h, target, temperature, columns, knobs)
    return tuple(told), _cast(matrix, h, temperature, dmatrix, dh)


def _learn_bwd(plan, objective, saved, cotangent):
    scale = cotangent[0]
    dmatrix, dh, _, dtemperature = saved
    scaled = [(scale * x.astype(jnp.float32)).astype(x.dtype) for x in (dmatrix, dh, dtemperature)]
    return scaled[0], scaled[1], None, scaled[2], None, None


_learn.defvjp(_learn_fwd, _learn_bwd)


def learn(
    spec: specs.Spec,
    params: decoder.Params,
    hidden: jax.Array,
    source: jax.Array,
    target: jax.Array,
    objective: Objective,
    columns: Any,
    knobs: Any = None,
    *,
    temperature: float | jax.Array = 1.0,
    shard: Shard | None = None,
) -> tuple[jax.Array, Any, jax.Array, jax.Array]:
    """(total [], sums, logp [B, M], entropy [B, M]) of an objective, gradient in the same pass.

    objective(logp [n], entropy [n], columns, knobs) -> (scalar, pytree of sums) is called on some
    tokens at a time and everything that it gives is summed up over them, so it must be a sum over
    tokens in which a token whose columns are all 0 (padding) counts nothing. columns: pytree of
    [B, M, ...] arrays, knobs: pytree of scalars; both are constants to the gradient, as are sums,
    logp and entropy of the result. The other arguments are those of `read`.

    `score` has to make the logits again once the loss is known, a fourth product with the matrix
    beside the three of a plain head. Here a token's loss is known while its logits are still held
    (HELD of them), so its gradient is made at once and only scaled later: three products, as plain,
    and no [B, M, V]. Without a gradient it costs what `read` costs.
    """
    temperature = jnp.asarray(temperature, jnp.float32)
    plan = _plan(spec, len(hidden), shard)
    flat, goal = _flat(plan, hidden, source, target)
    columns = jax.tree.map(lambda x: x.reshape(source.size, *x.shape[2:]), columns)
    fixed = jax.lax.stop_gradient
    if shard is None and source.size * spec.vocab <= CELLS:
        reading = _whole_read(plan, _matrix(params), flat, goal, temperature)
        logp, entropy = reading.logp, reading.entropy
        total, sums = objective(logp, entropy, fixed(columns), fixed(knobs))
    else:
        total, sums, logp, entropy = _learn(
            plan, objective, _matrix(params), flat, goal, temperature, columns, knobs
        )
    shaped = lambda x: fixed(x.reshape(source.shape))
    return total, fixed(sums), shaped(logp), shaped(entropy)


# --- the value head ---------------------------------------------------------------------------


def value_init(spec: specs.Spec) -> decoder.Params:
    """Parameters of the value head, fp32: "weight" [D] and "bias" [], all 0: it starts at V = 0."""
    return {"weight": jnp.zeros(spec.width, jnp.float32), "bias": jnp.zeros((), jnp.float32)}


def value(head: decoder.Params, hidden: jax.Array, source: jax.Array) -> jax.Array:
    """Values [B, M] fp32, in units of reward, read from hidden [B, T, D] at source [B, M] int32.

    head: see `value_init`. An action's value is read where its first token is predicted (PPO with
    action-level GAE, learning.md).
    """
    rows = jnp.take_along_axis(hidden, source[..., None], axis=1).astype(jnp.float32)
    return rows @ head["weight"].astype(jnp.float32) + head["bias"].astype(jnp.float32)
