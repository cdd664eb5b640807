"""Compile time of the train step against depth: periods are one loop, so it must not grow.

Compared are the steps of two models of one shape, of few and of many layers: decoder, loss over
the learned tokens, gradient by every parameter and the AdamW update, as trainers.supervised runs
them. A repetition traces, lowers and compiles from nothing (no cache); the depths take turns.
Ratios are of medians: compile_ratio by the clock, cpu_compile_ratio by processor time, which is the
steadier one on a machine that others use.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mimesis_jax import types
from mimesis_jax.bench import measure
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.trainers import optimizer, supervised


def model(layers: int, *, width: int = 64) -> specs.Spec:
    """A small model of the Qwen3.5 kind: periods of three linear layers and a full one.

    Raises measure.BenchError when layers is no multiple of the period.
    """
    if layers % 4:
        raise measure.BenchError(f"{layers} layers are no whole periods of 4: use a multiple of 4")
    spec = specs.tiny(512, width=width, mlp=2 * width, periods=layers // 4)
    return dataclasses.replace(spec, period=("linear", "linear", "linear", "full"))


def forest(spec: specs.Spec, rows: int, length: int) -> types.Forest:
    """The shapes of a forest of [rows, length] tokens, half of them learned."""
    chunks, learned = length // spec.chunk, length // 2
    # Shapes stand for arrays here, so the type of what is made is left open.
    of: Any = lambda dtype, *shape: jax.ShapeDtypeStruct((rows, *shape), dtype)
    whole, real = jnp.int32, jnp.float32
    return types.Forest(
        tokens=of(whole, length),
        valid=of(bool, length),
        position=of(whole, length),
        last=of(whole, length),
        halo=of(whole, chunks, 3),
        load=of(whole, chunks),
        store=of(whole, chunks),
        source=of(whole, learned),
        target=of(whole, learned),
        **{
            name: of(real, learned)
            for name in ("weight", "old_logp", "advantage", "gate", "coached")
        },
    )


def seconds(spec: specs.Spec, shapes: types.Forest) -> tuple[float, float]:
    """Seconds by the clock and by the processor to trace, lower and compile one train step, nothing
    taken from a cache."""
    config = optimizer.Config()
    params = decoder.abstract(spec)
    state = jax.eval_shape(lambda p: optimizer.init(p, config), params)
    grads = jax.eval_shape(optimizer.zeros, params)
    number = jax.ShapeDtypeStruct((), jnp.float32)
    jax.clear_caches()
    start, began = time.perf_counter(), time.process_time()
    supervised.accumulate.lower(spec, params, grads, shapes, number).compile()
    optimizer.apply.lower(state, grads, number, config).compile()
    return time.perf_counter() - start, time.process_time() - began


def run(argv: Sequence[str]) -> dict[str, Any]:
    """Measures as the module's docstring says. Options: --layers, --width, --rows, --length,
    --repeats. Raises measure.BenchError for sizes that make no model."""
    options = measure.parser("compile", __doc__)
    options.add_argument("--layers", type=int, nargs=2, default=[8, 32], metavar=("FEW", "MANY"))
    options.add_argument("--width", type=int, default=64, help="D (%(default)s)")
    options.add_argument("--rows", type=int, default=2, help="B (%(default)s)")
    options.add_argument("--length", type=int, default=128, help="T (%(default)s)")
    options.add_argument("--repeats", type=int, default=3, help="of each depth (%(default)s)")
    args = measure.parse(options, argv)
    few, many = args.layers
    models = {layers: model(layers, width=args.width) for layers in (few, many)}
    taken: dict[int, list[float]] = {layers: [] for layers in models}
    spent: dict[int, list[float]] = {layers: [] for layers in models}
    cached = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        # What the first compilation of a process loads belongs to neither depth.
        seconds(models[few], forest(models[few], args.rows, args.length))
        for turn in range(args.repeats):
            for layers in (few, many) if turn % 2 == 0 else (many, few):
                spec = models[layers]
                wall, own = seconds(spec, forest(spec, args.rows, args.length))
                taken[layers].append(wall)
                spent[layers].append(own)
    finally:
        jax.config.update("jax_enable_compilation_cache", cached)
    middle = {layers: statistics.median(values) for layers, values in taken.items()}
    own_middle = {layers: statistics.median(values) for layers, values in spent.items()}
    return {
        "compile_ratio": middle[many] / middle[few],
        "cpu_compile_ratio": own_middle[many] / own_middle[few],
        "layers": [few, many],
        "parameters": [decoder.parameter_count(models[layers]) for layers in (few, many)],
        "measured": "trace, lower and compile: supervised.accumulate and optimizer.apply",
        "median_seconds": middle,
        "seconds": taken,
        "cpu_seconds": spent,
        "shape": {"rows": args.rows, "length": args.length, "width": args.width},
        "machine": measure.machine(),
    }
