"""A mean that is not divided yet: numerator and denominator, apart until everything is summed.

Gradient accumulation, packing and hosts only ever add fractions, so none of them can change a loss.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

Scalar = jax.Array | float


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Fraction:
    """A weighted sum over its weight.

    numerator, denominator: [] each (or any one shape, for several fractions at once).
    """

    numerator: Scalar
    denominator: Scalar

    def __add__(self, other: Fraction) -> Fraction:
        if not isinstance(other, Fraction):
            return NotImplemented
        return Fraction(self.numerator + other.numerator, self.denominator + other.denominator)

    def __radd__(self, other: int) -> Fraction:
        """Lets `sum(fractions)` start from its 0."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def value(self) -> jax.Array:
        """[] numerator / denominator; 0 where the denominator is 0, never NaN."""
        return self.over(self.denominator)

    def over(self, denominator: Scalar) -> jax.Array:
        """[] the numerator over a denominator known beforehand: a micro-batch's share of the whole.

        Weights do not depend on parameters, so a trainer sums denominators first and then adds
        the gradients of `over(total)`; the sum is the gradient of the whole batch's value.
        """
        some = jnp.asarray(denominator) != 0
        return jnp.where(some, self.numerator / jnp.where(some, denominator, 1), 0.0)


def zero() -> Fraction:
    """The fraction that adds nothing."""
    return Fraction(jnp.zeros(()), jnp.zeros(()))


def clean(value: jax.Array, weight: jax.Array) -> jax.Array:
    """[...] `value` with 0 on tokens of weight 0.

    A product with weight 0 would keep a NaN or an infinity; a select does not, in the gradient
    neither, as long as it comes before the arithmetic. So losses call this on what they are given.
    """
    return jnp.where(weight != 0, value, 0.0)


def mean(value: jax.Array, weight: jax.Array) -> Fraction:
    """sum(weight * value) over sum(weight); tokens of weight 0 never touch the sum.

    value, weight: [...] of one shape, weight >= 0.
    """
    return Fraction(jnp.sum(weight * clean(value, weight)), jnp.sum(weight))
