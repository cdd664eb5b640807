"""Rollouts: our engine against a batch sampler (google-tunix), same weights, same machine.

Three workloads over one dense Qwen3-shaped model (4 layers, width 128, heads 4/2 of 32, ffn 512,
vocabulary 2048, fp32), one process, sampled at temperature 1. Ratios are sampled tokens a second,
ours over theirs: medians of repetitions that take turns, every shape compiled before.

fixed      a batch of 8, 128 ids of prompt and 128 sampled each: what a token costs.
ragged     64 requests with long-tailed lengths (log-normal, mean 48, at most 256), 16 slots against
           batches of 16. The peer is told each batch's longest length and stops there, as if its
           stop ids came then, and pays for no compilation of that length.
multiturn  8 conversations of 6 turns: theirs is sent the whole history at every turn (padded to its
           length to the token), ours keeps it in its slots and is sent what is new.

The peer runs at its best settings of a sweep over its cache's length and greedy or sampled decode
(`peer_sweep` in the result); its sampled setting is the one compared, because ours samples too.
slots_busy is taken between the first and the last admission of the ragged workload; compiles counts
programs compiled after `warm()` over new lengths, temperatures, batch sizes, a tail and a load.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from mimesis_jax.bench import measure, peer
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import engine, measures
from mimesis_jax.runs import compiles as compiling

SPEC = specs.Spec(
    vocab=2048, vocab_real=2048, width=128, mlp=512, period=("full",), periods=4, heads=4,
    kv_heads=2, head_dim=32, rotary_dim=32, rope_theta=1e6, norm="plain", qk_norm="plain",
    attn_output_gate=False, tied=True, chunk=8,
)  # fmt: skip
FIRST = 8  # lowest id that prompts have


@dataclasses.dataclass(frozen=True)
class Sizes:
    """batch, prompt, steps: of fixed. requests, slots, mean, longest, opening (ids of prompt): of
    ragged. talks, turns, told, said (ids told and sampled a turn): of multiturn."""

    batch: int = 8
    prompt: int = 128
    steps: int = 128
    requests: int = 64
    slots: int = 16
    mean: float = 48.0
    longest: int = 256
    opening: int = 32
    talks: int = 8
    turns: int = 6
    told: int = 48
    said: int = 16


QUICK = Sizes(2, 8, 8, 6, 2, 6.0, 16, 8, 2, 3, 8, 4)


def lengths(count: int, mean: float, longest: int, seed: int = 0) -> list[int]:
    """Log-normal lengths (sigma 1), scaled until their mean, cut at 1 and `longest`, is `mean`."""
    drawn = np.exp(np.random.default_rng(seed).normal(size=count))
    low, high = 0.0, float(longest)
    for _ in range(60):
        scale = (low + high) / 2
        cut = np.clip(np.round(drawn * scale), 1, longest)
        low, high = (scale, high) if cut.mean() < mean else (low, scale)
    return [int(n) for n in cut]


def prompts(count: int, length: int, seed: int) -> list[list[int]]:
    return np.random.default_rng(seed).integers(FIRST, SPEC.vocab, (count, length)).tolist()


class Ours:
    """Our engine for one workload; conversations get new names at every run."""

    def __init__(self, params, config: engine.Config):
        self.engine = engine.Engine(SPEC, params, config)
        self.engine.warm()
        self.run = 0
        self.steady: dict[str, float] = {}

    def submit(self, number: int, ids: Sequence[int], limit: int, turn: int = 0, **knobs) -> None:
        """A reply without stop ids: it has exactly `limit` tokens."""
        name, stream = (self.run, number), (self.run, number, 0, turn)
        given: dict[str, Any] = {"header": (), "private": False, "stop": ()} | knobs
        self.engine.submit(engine.Request(name, ids, stream=stream, limit=limit, **given))

    def drain(self) -> int:
        """Answers all; `steady` has the counts of the part in which somebody waited for a slot."""
        tokens, before = 0, dict(self.engine.counts)
        self.steady = {}
        while self.engine.open_requests:
            tokens += sum(len(done.ids) for done in self.engine.advance())
            if self.engine.waiting:
                self.steady = measures.since(self.engine.counts, before)
        return tokens

    def close(self, count: int) -> None:
        for number in range(count):
            self.engine.close((self.run, number))
        self.run += 1


# --- the three workloads ------------------------------------------------------------------------


def fixed(params, sizes: Sizes, sweep: list[dict[str, Any]]) -> dict[str, Callable[[], int]]:
    asked = prompts(sizes.batch, sizes.prompt, 1)
    length = sizes.prompt + sizes.steps
    ours = Ours(params, engine.Config(
        slots=sizes.batch, length=length, block=sizes.steps, buckets=(sizes.prompt,), rows=(),
        spans=_spans(sizes.prompt, length),
    ))  # fmt: skip

    def our_run() -> int:
        for number, ids in enumerate(asked):
            ours.submit(number, ids, sizes.steps)
        tokens = ours.drain()
        ours.close(sizes.batch)
        return tokens

    call = lambda held, t: peer.sample(held, asked, sizes.steps, temperature=t, width=sizes.prompt)
    held = _best(params, length, call, sweep)
    return {"ours": our_run, "theirs": lambda: _count(call(held, 1.0))}


def ragged(params, sizes: Sizes) -> tuple[dict[str, Callable[[], int]], Ours, list[int]]:
    wanted = lengths(sizes.requests, sizes.mean, sizes.longest)
    asked = prompts(sizes.requests, sizes.opening, 2)
    length = sizes.opening + sizes.longest
    rows = (4,) if sizes.slots > 4 else ()
    ours = Ours(params, engine.Config(
        slots=sizes.slots, length=length, block=16, buckets=(sizes.opening,), rows=rows,
        spans=_spans(sizes.opening, length), enough=1,
    ))  # fmt: skip

    def our_run() -> int:
        for number, (ids, limit) in enumerate(zip(asked, wanted, strict=True)):
            ours.submit(number, ids, limit)
        tokens = ours.drain()
        ours.close(sizes.requests)
        return tokens

    held = peer.sampler(SPEC, params, length)

    def their_run() -> int:
        tokens = 0
        for at in range(0, sizes.requests, sizes.slots):
            part = slice(at, at + sizes.slots)
            longest = max(wanted[part])
            out = peer.sample(held, asked[part], longest, temperature=1.0, width=sizes.opening)
            tokens += sum(min(len(a), b) for a, b in zip(out, wanted[part], strict=True))
        return tokens

    return {"ours": our_run, "theirs": their_run}, ours, wanted


def multiturn(params, sizes: Sizes) -> dict[str, Callable[[], int]]:
    told = [prompts(sizes.talks, sizes.told, 10 + turn) for turn in range(sizes.turns)]
    length = sizes.turns * (sizes.told + sizes.said)
    ours = Ours(params, engine.Config(
        slots=sizes.talks, length=length, block=sizes.said, rows=(),
        buckets=(sizes.told, sizes.told + 1), spans=_spans(sizes.told, length),
    ))  # fmt: skip

    def our_run() -> int:
        tokens = 0
        for turn, new in enumerate(told):
            for number, ids in enumerate(new):
                ours.submit(number, ids, sizes.said, turn)
            tokens += ours.drain()
        ours.close(sizes.talks)
        return tokens

    held = peer.sampler(SPEC, params, length)

    def their_run() -> int:
        history: list[list[int]] = [[] for _ in range(sizes.talks)]
        tokens = 0
        for new in told:
            history = [before + ids for before, ids in zip(history, new, strict=True)]
            out = peer.sample(held, history, sizes.said, temperature=1.0, width=len(history[0]))
            history = [before + [*map(int, ids)] for before, ids in zip(history, out, strict=True)]
            tokens += _count(out)
        return tokens

    return {"ours": our_run, "theirs": their_run}


def _spans(first: int, length: int) -> tuple[int, ...]:
    """Three widths of attention below the whole length."""
    return tuple(sorted({first + (length - first) * k // 4 for k in (1, 2, 3)} - {length}))


def _count(out: Sequence[np.ndarray]) -> int:
    return sum(len(ids) for ids in out)


def _best(params, length: int, call, sweep: list[dict[str, Any]]) -> Any:
    """The peer at the cache length at which it samples fastest; every trial goes into `sweep`."""
    found = []
    for size in (length, length + length // 2, 2 * length):
        held = peer.sampler(SPEC, params, size)
        for temperature in (0.0, 1.0):
            call(held, temperature)
            seconds = []
            for _ in range(3):
                start = time.perf_counter()
                tokens = _count(call(held, temperature))
                seconds.append(time.perf_counter() - start)
            speed = tokens / statistics.median(seconds)
            mode = "sampled" if temperature else "greedy"
            sweep.append({"cache": size, "decode": mode, "tokens_per_s": speed})
            if temperature:
                found.append((speed, held))
    return max(found, key=lambda pair: pair[0])[1]


# --- what costs nothing, and what is counted ----------------------------------------------------


def compiles(params, ours: Ours, sizes: Sizes) -> int:
    """Programs compiled by requests of many kinds, after `warm()`."""
    rng = np.random.default_rng(5)
    other = jax.tree.map(lambda leaf: leaf * 1.01, params)
    jax.block_until_ready(other)
    with compiling.Compiles() as seen:
        for count in (1, sizes.slots, sizes.slots + 3):  # one, all, all and a tail
            for number in range(count):
                knobs: dict[str, Any] = {
                         "temperature": float(rng.uniform(0, 2)), "top_k": int(rng.integers(0, 9)),
                         "top_p": float(rng.uniform(0.5, 1)), "private": bool(number % 2),
                         "header": (FIRST,), "stop": (FIRST + 1,)}  # fmt: skip
                ids = prompts(1, int(rng.integers(1, sizes.opening + 1)), number)[0]
                ours.submit(number, ids, int(rng.integers(1, sizes.longest)), **knobs)
            ours.drain()
            ours.close(count)
        ours.engine.load(other, 1)
        ours.submit(0, prompts(1, 3, 0)[0], 5)
        ours.engine.advance()
        ours.engine.load(params, 2, midway=True)
        ours.drain()
        ours.close(1)
    return seen.count


def private_turns(params, sizes: Sizes) -> dict[str, float]:
    """Multiturn with private replies whose second half is public: tokens that were fed again."""
    length = sizes.turns * (sizes.told + 2 * sizes.said)
    config = engine.Config(slots=sizes.talks, length=length, block=8, rows=(),
                           buckets=(sizes.told + sizes.said,))  # fmt: skip
    held = engine.Engine(SPEC, params, config)
    public: dict[Any, list[int]] = {}
    refed = 0
    for turn in range(sizes.turns):
        for number, ids in enumerate(prompts(sizes.talks, sizes.told, turn)):
            again = public.get(number, [])
            refed += len(again)
            held.submit(engine.Request(number, again + ids, (FIRST,), True, (0, number, 0, turn),
                                       (), sizes.said))  # fmt: skip
        while held.open_requests:
            for done in held.advance():
                public[done.request.conversation] = done.ids[len(done.ids) // 2 :].tolist()
    found = measures.engine(held.counts)
    return {"refed_tokens": refed, "reprefilled_tokens": found["reprefilled_tokens"],
            "prefill_tokens": found["prefill_tokens"],
            "saved_by_residency": found["saved_by_residency"]}  # fmt: skip


def _compared(forms: dict[str, Callable[[], int]], repeats: int) -> dict[str, Any]:
    """Both forms warm, then in turn: tokens a second of each, their ratio, seconds."""
    tokens = {name: form() for name, form in forms.items()}
    seconds = measure.interleaved(forms, repeats)
    middle = measure.medians(seconds)
    speed = {name: tokens[name] / middle[name] for name in forms}
    return {"ratio": speed["ours"] / speed["theirs"], "tokens_per_s": speed, "tokens": tokens,
            "seconds": seconds}  # fmt: skip


def run(argv: Sequence[str]) -> dict[str, Any]:
    """Options: --repeats, --quick. Raises measure.BenchError where the peer is not installed."""
    options = measure.parser("rollout", __doc__)
    options.add_argument("--repeats", type=int, default=7, help="of each form (%(default)s)")
    options.add_argument("--quick", action="store_true", help="tiny sizes: the path, no figure")
    args = measure.parse(options, argv)
    sizes = QUICK if args.quick else Sizes()
    params = decoder.init(SPEC, jax.random.key(0))
    sweep: list[dict[str, Any]] = []

    one = _compared(fixed(params, sizes, sweep), args.repeats)
    forms, ours, wanted = ragged(params, sizes)
    many = _compared(forms, args.repeats)
    steady = measures.engine(ours.steady)
    turns = _compared(multiturn(params, sizes), args.repeats)
    private = private_turns(params, sizes)
    return {
        "fixed_ratio": one["ratio"],
        "ragged_ratio": many["ratio"],
        "multiturn_ratio": turns["ratio"],
        "slots_busy": steady["slots_busy"],
        "reprefilled_tokens": private["reprefilled_tokens"],
        "refed_tokens": private["refed_tokens"],
        "compiles_after_warmup": compiles(params, ours, sizes),
        "goals": {"fixed_ratio": 1.5, "ragged_ratio": 3.0, "multiturn_ratio": 4.0,
                  "slots_busy": 0.9, "reprefilled_tokens": 0, "compiles_after_warmup": 0},
        "peer": f"google-tunix {peer.VERSION}, generate.sampler",
        "peer_sweep": sweep,
        "fixed": one,
        "ragged": many | {"lengths": wanted, "host_share": steady["host_share"]},
        "multiturn": turns,
        "private": private,
        "sizes": dataclasses.asdict(sizes),
        "machine": measure.machine(),
    }  # fmt: skip
