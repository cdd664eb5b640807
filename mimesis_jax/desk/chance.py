"""Chance from names: a random stream that depends on what is asked for and nothing else."""

from __future__ import annotations

import hashlib

import numpy as np


def stream(*name: object) -> np.random.Generator:
    """A Philox stream keyed by a hash of `name` (ints, strings and tuples of them).

    The same name gives the same numbers in every process and Python version.
    """
    digest = hashlib.blake2b(repr(name).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))
