"""A parameter said once: shape, logical axes, initialiser and dtype.

Initial values, abstract shapes and sharding all derive from the tables of `Weight`s that the layers
declare.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from flax import nnx

Init = Literal["normal", "zeros", "ones", "log_decay", "taps"]


@dataclasses.dataclass(frozen=True)
class Weight:
    """One parameter.

    shape: sizes. axes: a logical axis name (or None) for each.
    init: normal (0, std), zeros, ones, log_decay (log of U(0.01, 16)), taps (U(-1/2, 1/2), what a
      depthwise convolution of four taps starts from).
    dtype: None takes the spec's param_dtype; "float32" is kept whatever the spec says.
    """

    shape: tuple[int, ...]
    axes: tuple[str | None, ...]
    init: Init = "normal"
    dtype: str | None = None

    def __post_init__(self):
        if len(self.shape) != len(self.axes):
            raise ValueError(f"shape {self.shape} and axes {self.axes} differ in length: name each")

    def stacked(self, count: int) -> Weight:
        """The same weight for `count` periods, as one array with a leading axis."""
        return dataclasses.replace(self, shape=(count, *self.shape), axes=("periods", *self.axes))

    def size(self) -> int:
        return math.prod(self.shape)


Table = dict[str, Weight]
Make = Callable[[str, Weight], jax.Array]


def draw(key: jax.Array, path: str, weight: Weight, *, std: float, dtype: str) -> jax.Array:
    """Initial value of the weight at `path`.

    The stream depends on the key and the path alone, so a new parameter moves no other one's value.
    """
    key = jax.random.fold_in(key, zlib.crc32(path.encode()))
    kind, shape = weight.init, weight.shape
    if kind == "normal":
        value = std * jax.random.normal(key, shape)
    elif kind == "zeros":
        value = jnp.zeros(shape)
    elif kind == "ones":
        value = jnp.ones(shape)
    elif kind == "log_decay":
        value = jnp.log(jax.random.uniform(key, shape, minval=0.01, maxval=16.0))
    elif kind == "taps":
        value = jax.random.uniform(key, shape, minval=-0.5, maxval=0.5)
    else:
        raise ValueError(f"initialiser {kind!r} is unknown: use one of {Init}")
    return value.astype(weight.dtype or dtype)


class Holder(nnx.Module):
    """A module whose parameters are the rows of a table, made by `make(path, weight)`."""

    def __init__(self, table: Table, make: Make, path: str):
        for name, weight in table.items():
            setattr(self, name, nnx.Param(make(f"{path}.{name}", weight)))


def product(x: jax.Array, weight: jax.Array, inputs: int = 1) -> jax.Array:
    """x [N, d] times a weight [..in.., ..out..] whose first `inputs` axes are read: [N, prod(out)].

    Two-dimensional on purpose: the gradient of a three-dimensional product is slow on a CPU. The
    weight is cast to the activations' dtype.
    """
    flat = weight.reshape(math.prod(weight.shape[:inputs]), -1)
    return x @ flat.astype(x.dtype)
