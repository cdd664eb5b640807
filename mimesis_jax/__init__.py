"""mimesis_jax: train realistic user simulators, freeze them, train agents against them."""

__version__ = "0.1.0"
