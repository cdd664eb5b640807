"""People's conversations for a large stage: rows of its model's tokenizer, steps, held-out loss."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from mimesis_jax.build import people_data
from mimesis_jax.chat import render
from mimesis_jax.forest import pack, tree
from mimesis_jax.rollouts import scoring

TURN = 2048  # tokens to which a turn that is not learned is cut in its middle


@dataclasses.dataclass(frozen=True)
class Data(people_data.Data):
    """people_data.Data, and epochs: how often the training rows are gone through at most."""

    epochs: int = 1


def read(data: Data, renderer: render.Renderer, shape: pack.Shape, seed: int) -> people_data.Sets:
    """The conversations, split and cut to rows. Raises as people_data.read and prepare do."""
    split = people_data.read(data, seed)
    half = shape.length // 2
    rows = people_data.Rows(shape.rows, shape.length, context=half, turn=min(TURN, half // 2))
    return people_data.prepare(split, renderer, rows, shape.chunk)


def steps(found: people_data.Sets, kind: str, data: Data, shape: pack.Shape, micro: int) -> int:
    """Updates that `data.epochs` take, at least 1: by the places that trees fill, chunks whole."""
    places = sum(
        -(-len(segment.ids) // shape.chunk) * shape.chunk
        for item in found.train[kind]
        for segment in found.tree(item)
    )
    return max(1, math.ceil(data.epochs * places / (micro * shape.rows * shape.length)))


def nll(found: people_data.Sets, own: Any, shape: pack.Shape, params: Any) -> float:
    """Nats per token of held-out people's public words behind an empty thought.

    own: a large.Voice. params: of its spec, where its devices have them.
    """
    trees = found.trees(found.measured["held_out"]["empty"])
    weight = tree.column(trees, "weight")
    logp = scoring.score(own.spec, params, trees, shape, compute=own.devices.compute)
    return float(-(logp * weight).sum() / weight.sum())
