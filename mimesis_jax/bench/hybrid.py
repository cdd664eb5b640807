"""The tiny hybrid's forward and backward pass against the floor of its matrix products alone.

The model has 1.1M parameters: three gated DeltaNet layers and one of full attention, width 128,
V ids, fp32. Every row is one segment of T tokens, all but the first learned (mean negative
log-likelihood). Compared in one run, their repetitions interleaved:

plain    decoder, head and every gradient, nothing made again
remat    the same with each period made again in the backward pass
floor    the products with weights alone: y = x W, dx = dy W', dW = x' dy at the same sizes
floor_remat   the same with y twice, but for the head

`chunks` has the plain form at other chunk sizes, `parts` the gradient of each part alone, times how
often it occurs, in milliseconds (they add up to more or less than the whole: each has its own
program). Tokens per second are by the clock, medians of the repetitions, and `best` of them, which
is how the plan's table was measured, so the goals are held against that; `core_s` are the seconds
of all cores, which say more where others use the machine. Commands see to their heap
(runs/heap.py): without that a quarter more.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax import types
from mimesis_jax.bench import measure
from mimesis_jax.forest import pack
from mimesis_jax.models import attention, context, convolution, decoder, delta, heads
from mimesis_jax.models import spec as specs

Form = Callable[[], Any]
CHUNKS = (8, 16, 32, 64)
GOAL, STRETCH = 8500, 10000  # tokens/s, forward and backward, in the conditions of the plan's table
NAMED = ("plain", "remat", "floor", "floor_remat")


def model(vocab: int, chunk: int) -> specs.Spec:
    """The hybrid: one period of three linear layers and a full one."""
    spec = specs.tiny(vocab, chunk=chunk)
    return dataclasses.replace(spec, period=("linear", "linear", "linear", "full"))


def forest(spec: specs.Spec, rows: int, length: int) -> types.Forest:
    """Rows of one segment each, random ids, everything scored but the first token."""
    rng = np.random.default_rng(0)
    scored = np.arange(length) > 0
    lines = [
        (types.segment(rng.integers(0, spec.vocab, length), scored=scored),) for _ in range(rows)
    ]
    shape = pack.Shape(rows, length, spec.chunk, length - 1, slots=1)
    return jax.tree.map(jnp.asarray, pack.pack(lines, shape).forests[0])


def _nll(logp, entropy, weight, knobs):
    return -jnp.sum(logp * weight), ()


def gradient(spec: specs.Spec, remat: decoder.Remat) -> Callable:
    """Gradient of the summed loss by all parameters, of (params, forest)."""

    def loss(params, forest):
        hidden = decoder.hidden(spec, params, forest, remat=remat)
        return heads.learn(spec, params, hidden, forest.source, forest.target, _nll, forest.weight)[
            0
        ]

    return jax.grad(loss)


def products(spec: specs.Spec) -> list[tuple[int, int]]:
    """(inputs, outputs) of every product with weights in a forward pass, the head's last."""
    keys = spec.linear_key_heads * spec.linear_key_dim
    values = spec.linear_value_heads * spec.linear_value_dim
    rates = [(spec.width, spec.linear_value_heads)] * 2
    linear = [(spec.width, n) for n in (keys, keys, values, values)] + rates
    linear += [(values, spec.width)]
    own, pairs = spec.heads * spec.head_dim, spec.kv_heads * spec.head_dim
    gate = 2 if spec.attn_output_gate else 1
    full = [(spec.width, gate * own), (spec.width, pairs), (spec.width, pairs), (own, spec.width)]
    mlp = [(spec.width, spec.mlp)] * 2 + [(spec.mlp, spec.width)]
    found = []
    for kind in spec.period * spec.periods:
        found += (linear if kind == "linear" else full) + mlp
    return [*found, (spec.width, spec.vocab)]


def floor(spec: specs.Spec, tokens: int, remat: bool) -> Form:
    """The three products of every weight, without anything between them."""
    sizes = products(spec)
    rng = np.random.default_rng(1)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)
    weights = [draw(*size) for size in sizes]
    inputs = {n: (draw(tokens, n), draw(tokens, n)) for n in {a for a, _ in sizes}}
    # An own cotangent for each product, or the compiler would make equal ones once.
    cotangents = [draw(tokens, out) for _, out in sizes]

    def run(weights, inputs, cotangents):
        out = []
        for i, (w, dy) in enumerate(zip(weights, cotangents, strict=True)):
            x, again = inputs[len(w)]
            out += [x @ w, dy @ w.T, x.T @ dy]
            if remat and i < len(weights) - 1:
                out.append(again @ w)
        return out

    return compiled(run, weights, inputs, cotangents)


def compiled(f: Callable, *args) -> Form:
    """f(*args) as a program that is compiled and has run once."""
    program = jax.jit(f).lower(*args).compile()
    jax.block_until_ready(program(*args))
    return lambda: program(*args)


def parts(spec: specs.Spec, params: decoder.Params, trees: types.Forest) -> dict[str, Any]:
    """Name -> (how often it occurs, the gradient of it alone as a form)."""
    rows, length = trees.tokens.shape
    rng = np.random.default_rng(2)
    draw = lambda *shape: jnp.asarray(rng.normal(size=shape), jnp.float32)

    def form(f, *args):
        """Gradient of a random weighting of f's result by args (the first one's a pytree)."""
        weight = draw(*jax.eval_shape(f, *args).shape)
        total = lambda args: jnp.sum(f(*args) * weight)
        return compiled(jax.grad(total), args)

    def head(hidden, params):
        at = (trees.source, trees.target)
        return heads.learn(spec, params, hidden, *at, _nll, trees.weight)[0]

    def rule(q, k, v, beta, g):
        parts = delta.chunks(q, k, v, beta, g, spec.chunk)
        sizes = (spec.linear_value_heads, spec.linear_key_dim, spec.linear_value_dim)
        blank = delta.blank(rows, trees.slots, *sizes)
        return delta.rows(delta.walk(parts, trees.load.T, trees.store.T, *blank)[0])

    def mlp(x, own):
        made = decoder.Mlp(spec, lambda path, _: own[path.removeprefix("mlp.")], "mlp")
        return made(x)

    shared = context.trees(spec, trees)
    conv = lambda u, taps: convolution.apply(convolution.halo(u, trees.halo), taps, spec.chunk)
    linear, full = (spec.period.count(kind) * spec.periods for kind in ("linear", "full"))
    heads_, dim = spec.linear_value_heads, spec.linear_key_dim
    unit = draw(rows, length, heads_, dim) / dim**0.5
    rate = jnp.full(unit.shape[:-1], 0.5)
    keys = draw(rows, spec.kv_heads, length, spec.head_dim)
    mixed = spec.conv_channels
    own = jax.tree.map(lambda leaf: leaf[0], params["periods"]["layer0"]["mlp"])
    attend = lambda q, k, v: attention.attend(q, k, v, shared)
    queries = draw(rows, length, spec.heads, spec.head_dim)
    return {
        "head": (1, form(head, draw(rows, length, spec.width), {"embed": params["embed"]})),
        "mlp": (linear + full, form(mlp, draw(rows * length, spec.width), own)),
        "delta_rule": (linear, form(rule, unit, unit, unit, rate, -0.1 * rate)),
        "convolution": (linear, form(conv, draw(rows, length, mixed), draw(4, mixed))),
        "attention": (full, form(attend, queries, keys, keys)),
    }


@dataclasses.dataclass(frozen=True)
class Times:
    """Seconds of each form: the median and the best by the clock, the median of all cores'."""

    clock: dict[str, float]
    best: dict[str, float]
    cores: dict[str, float]


def _timed(forms: dict[str, Form], repeats: int) -> Times:
    """Each form's times over interleaved repetitions."""
    spent: dict[str, list[float]] = {name: [] for name in forms}

    def counted(name: str) -> Any:
        start = time.process_time()
        out = jax.block_until_ready(forms[name]())
        spent[name].append(time.process_time() - start)
        return out

    clock = measure.interleaved({n: functools.partial(counted, n) for n in forms}, repeats)
    best = {name: min(seconds) for name, seconds in clock.items()}
    return Times(measure.medians(clock), best, {n: statistics.median(s) for n, s in spent.items()})


def run(argv: Sequence[str]) -> dict[str, Any]:
    """Measures, and gives tokens/s of plain and remat, their share of the floor, and the parts."""
    options = measure.parser("hybrid", __doc__)
    options.add_argument("--rows", type=int, default=16, help="rows a step (16)")
    options.add_argument("--length", type=int, default=256, help="tokens a row (256)")
    options.add_argument("--vocab", type=int, default=2048, help="ids (2048)")
    options.add_argument("--chunk", type=int, default=16, help="tokens a chunk (16)")
    options.add_argument("--repeats", type=int, default=7, help="repetitions of each form (7)")
    args = measure.parse(options, argv)
    if args.length % max(args.chunk, *CHUNKS):
        raise measure.BenchError(
            f"--length {args.length} is not a multiple of {max(args.chunk, *CHUNKS)}, the largest"
            " chunk compared: use one"
        )
    spec = model(args.vocab, args.chunk)
    params, trees = decoder.init(spec, jax.random.key(0)), forest(spec, args.rows, args.length)
    tokens = args.rows * args.length
    forms = {
        "plain": compiled(gradient(spec, "none"), params, trees),
        "remat": compiled(gradient(spec, "full"), params, trees),
        "floor": floor(spec, tokens, False),
        "floor_remat": floor(spec, tokens, True),
    }
    sizes = [chunk for chunk in CHUNKS if chunk != args.chunk]
    for chunk in sizes:
        other = model(args.vocab, chunk)
        forest_ = forest(other, args.rows, args.length)
        forms[f"chunk{chunk}"] = compiled(gradient(other, "none"), params, forest_)
    pieces = parts(spec, params, trees)
    forms |= {name: piece for name, (_, piece) in pieces.items()}
    return figures(_timed(forms, args.repeats), tokens, args.chunk, pieces) | {
        "parameters": decoder.parameter_count(spec),
        "settings": vars(args),
        "machine": measure.machine(),
    }


def figures(times: Times, tokens: int, chunk: int, pieces: dict[str, Any]) -> dict[str, Any]:
    """What the seconds of the forms say. tokens: of a step. chunk: the plain form's. pieces: name
    -> (how often it occurs, _), see `parts`."""
    clock, cores = times.clock, times.cores
    rate = {name: tokens / seconds for name, seconds in clock.items()}
    best = {name: tokens / times.best[name] for name in NAMED}
    found = {name.removeprefix("chunk"): rate[name] for name in rate if name.startswith("chunk")}
    chunks = found | {str(chunk): rate["plain"]}
    return {
        "tokens_per_s": {name: rate[name] for name in NAMED},
        "best_tokens_per_s": best,
        "share_of_floor": rate["plain"] / rate["floor"],
        "share_of_floor_remat": rate["remat"] / rate["floor_remat"],
        "core_s": {name: cores[name] for name in NAMED},
        "share_of_floor_core_s": cores["floor"] / cores["plain"],
        "chunks": {size: chunks[size] for size in sorted(chunks, key=int)},
        "meets": {
            f"{GOAL} tokens/s": best["plain"] >= GOAL,
            f"{STRETCH} tokens/s (stretch)": best["plain"] >= STRETCH,
        },
        "parts_ms": {name: 1e3 * n * clock[name] for name, (n, _) in pieces.items()},
        "parts_core_ms": {name: 1e3 * n * cores[name] for name, (n, _) in pieces.items()},
    }
