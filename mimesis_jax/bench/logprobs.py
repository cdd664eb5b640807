"""The loss at a real vocabulary: all logits at once against log-probs in chunks.

Compared are three forms of the negative log-likelihood of T tokens under V ids at width D, each
with its gradient by the hidden states and by the head's matrix, compiled ahead of time:

naive    hidden @ matrix.T, log_softmax, a gather, and automatic differentiation
chunked  heads.learn: a token's gradient is made while its logits are held
score    heads.score: log-probs for any loss; its gradient makes the logits again

memory_ratio and time_ratio are naive's bytes over chunked's, and chunked's time over naive's. Bytes
are arguments, results and temporaries of the compiled program; times are medians of interleaved
repetitions; cpu_... are ratios of processor time, the steadier ones on a machine that others use.
Where naive does not fit into memory, times are taken with fewer tokens (time_tokens
says how many); bytes always with all of them.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax.bench import measure
from mimesis_jax.models import heads
from mimesis_jax.models import spec as specs

REAL = 248077  # of the default 248320 rows: what a Qwen3.5 tokenizer knows


def naive(spec, matrix, hidden, target, weight):
    """-sum_t w_t log p_t with all logits [T, V] in fp32."""
    logits = jnp.matmul(hidden, matrix.astype(hidden.dtype).T, preferred_element_type=jnp.float32)
    logits = jnp.where(jnp.arange(spec.vocab) < spec.vocab_real, logits, -1e30)
    logp = jax.nn.log_softmax(logits)
    return -jnp.sum(weight * jnp.take_along_axis(logp, target[:, None], axis=-1)[:, 0])


def _source(target):
    return jnp.arange(len(target), dtype=jnp.int32)[None]


def score(spec, matrix, hidden, target, weight):
    """The same by heads.score."""
    params = {"embed": matrix}
    logp, _ = heads.score(spec, params, hidden[None], _source(target), target[None])
    return -jnp.sum(weight * logp[0])


def _objective(logp, entropy, weight, knobs):
    return -jnp.sum(weight * logp), ()


def chunked(spec, matrix, hidden, target, weight):
    """The same by heads.learn."""
    params = {"embed": matrix}
    total, *_ = heads.learn(
        spec, params, hidden[None], _source(target), target[None], _objective, weight[None]
    )
    return total


FORMS: dict[str, Callable] = {"naive": naive, "chunked": chunked, "score": score}


def _compiled(form: Callable, spec: specs.Spec, tokens: int) -> Any:
    loss = lambda *arrays: form(spec, *arrays)
    shapes = (
        jax.ShapeDtypeStruct((spec.vocab, spec.width), spec.param_dtype),
        jax.ShapeDtypeStruct((tokens, spec.width), spec.dtype),
        jax.ShapeDtypeStruct((tokens,), jnp.int32),
        jax.ShapeDtypeStruct((tokens,), jnp.float32),
    )
    return jax.jit(jax.value_and_grad(loss, (0, 1))).lower(*shapes).compile()


def _arrays(spec: specs.Spec, tokens: int) -> tuple:
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape, np.float32)
    return (
        jnp.asarray(spec.width**-0.5 * draw(spec.vocab, spec.width), spec.param_dtype),
        jnp.asarray(draw(tokens, spec.width), spec.dtype),
        jnp.asarray(rng.integers(0, spec.vocab_real, tokens), jnp.int32),
        jnp.full(tokens, 1 / tokens, jnp.float32),
    )


def _fitting(tokens: int, needed: Callable[[int], int]) -> int:
    """The most tokens, halved from `tokens` on, whose bytes fit into 9/10 of what is free."""
    free = measure.free_bytes()
    while free is not None and tokens > 1 and needed(tokens) > 0.9 * free:
        tokens //= 2
    return tokens


def run(argv: Sequence[str]) -> dict[str, Any]:
    """Measures as the module's docstring says. Options: --vocab, --tokens, --time-tokens, --width,
    --dtype, --repeats. Raises measure.BenchError for sizes that make no bench."""
    options = measure.parser("logprobs", __doc__)
    options.add_argument("--vocab", type=int, default=248320, help="V (%(default)s)")
    options.add_argument("--tokens", type=int, default=4096, help="T (%(default)s)")
    options.add_argument("--time-tokens", type=int, help="T of the times (T where it fits)")
    options.add_argument("--width", type=int, default=512, help="D (%(default)s)")
    options.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    options.add_argument("--repeats", type=int, default=3, help="of each form (%(default)s)")
    args = measure.parse(options, argv)
    spec = specs.tiny(args.vocab, min(args.vocab, REAL), width=args.width, dtype=args.dtype)
    spec = dataclasses.replace(spec, param_dtype=args.dtype)

    programs = {name: _compiled(form, spec, args.tokens) for name, form in FORMS.items()}
    peak = {name: measure.peak_bytes(program) for name, program in programs.items()}
    share = lambda tokens: peak["naive"] * tokens // args.tokens
    tokens = args.time_tokens or _fitting(args.tokens, share)
    if tokens != args.tokens:
        programs = {name: _compiled(form, spec, tokens) for name, form in FORMS.items()}
    arrays = _arrays(spec, tokens)
    losses = {name: float(program(*arrays)[0]) for name, program in programs.items()}
    close = 1e-2 if args.dtype == "bfloat16" else 1e-4
    if not np.allclose(list(losses.values()), losses["naive"], rtol=close):
        raise measure.BenchError(f"the forms disagree, no time is worth anything: {losses}")
    spent: dict[str, list[float]] = {name: [] for name in programs}

    def counted(name):
        start = time.process_time()
        jax.block_until_ready(programs[name](*arrays))
        spent[name].append(time.process_time() - start)

    calls: dict[str, Callable[[], Any]] = {
        name: functools.partial(counted, name) for name in programs
    }
    seconds = measure.interleaved(calls, args.repeats)
    middle, cpu = measure.medians(seconds), measure.medians(spent)
    return {
        "memory_ratio": peak["naive"] / peak["chunked"],
        "time_ratio": middle["chunked"] / middle["naive"],
        "peak_bytes_chunked": peak["chunked"],
        "peak_bytes_naive": peak["naive"],
        "score_memory_ratio": peak["naive"] / peak["score"],
        "score_time_ratio": middle["score"] / middle["naive"],
        "cpu_time_ratio": cpu["chunked"] / cpu["naive"],
        "cpu_score_time_ratio": cpu["score"] / cpu["naive"],
        "measured": "loss, gradient by hidden states and by the head's matrix",
        "vocab": args.vocab,
        "tokens": args.tokens,
        "time_tokens": tokens,
        "width": args.width,
        "dtype": args.dtype,
        "median_seconds": middle,
        "seconds": seconds,
        "cpu_seconds": spent,
        "losses": losses,
        "machine": measure.machine(),
    }
