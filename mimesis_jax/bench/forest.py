"""The forest against one sequence a turn, forward and backward of the whole loss (GRPO + CSD).

Compared are three forms of the same batch of dialogues, which give the same log-probs and the same
gradient (max_logprob_diff, grad_rel_diff: largest over all workloads):

forest  trees packed into rows, no token computed twice in the same context
padded  one sequence a thinking turn with its whole history, padded to the longest
packed  the same sequences, several a row, so that hardly a place is padding

Each form runs at its own best chunk, micro-batch, attention (dense, or in blocks) and row length,
swept and printed: chunks, then micro-batches, then blocks, then (the forest) whether forks lie
inside chunks, on the dialogues of 8 turns (for those of log-normal lengths, the worst case and the
demo's on their own), row lengths on every workload: of all those laid out, the three that compute
least are timed. The best of each form then run in turn, and medians
count. `padded` and `packed` are their times over the forest's; the token ratios beside them are
tokens computed, padding included, over the forest's, which the times could reach if a token cost
the same in each form. It does not: the same learned tokens are a larger share of fewer tokens, so
the head weighs more (`learned_share`), and longer rows allow more pairs. `work_ratio` is the ratio
of the FLOPs of all that is computed (models.flops), which the times can reach. `real` is the
forest's real tokens a second over those of the better plain rows. `cpu_padded` and `cpu_packed` are
the ratios of processor time: on a machine that others use they are the steadier ones.

Workloads: 4, 8 and 16 thinking turns of 60 public and 60 private tokens; log-normal lengths of mean
60, in a batch four times as large, since few dialogues of such lengths leave rows half empty; the
worst case, every part one token longer than the chunk that the dialogues of 8 turns are best at;
the demo's own dialogues, the user's chair (it thinks) and the agent's (a line each, copies of a
goal share their prompt).
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax import types
from mimesis_jax.bench import forms, measure, workloads
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs

VOCAB = 2048
GOAL, CLOSE = 0.95, 1e-4
Calls = dict[str, Callable[[], Any]]


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What is tried. chunks; micro: micro-batches in tokens, the last one while chunks are tried;
    blocks: of the attention in all rows, beside what Shape does; stretches: row lengths as
    multiples of the longest item (the padded form has one).
    size: of a batch, in forest tokens. repeats: of the final comparison."""

    chunks: tuple[int, ...] = (8, 16, 32, 64)
    micro: tuple[int, ...] = (1024, 4096)
    blocks: tuple[int, ...] = (64,)
    stretches: tuple[float, ...] = (1.0, 1.25, 1.5, 2.0, 3.0)
    size: int = 3840
    repeats: int = 5


QUICK = Sweep(chunks=(4, 8), micro=(4096,), blocks=(), stretches=(1.0,), size=128, repeats=1)
TIMED = 3  # row lengths of a form and workload


def model(quick: bool) -> specs.Spec:
    """The small hybrid of the project's measurements: 3 linear layers and 1 full, 1.1M weights."""
    if quick:
        return dataclasses.replace(specs.tiny(128, width=32, mlp=32), init_std=0.05)
    period: tuple[specs.LayerKind, ...] = ("linear", "linear", "linear", "full")
    return dataclasses.replace(specs.tiny(VOCAB), period=period, init_std=0.05)


def parameters(spec: specs.Spec) -> Any:
    """Fresh ones with slow decay (A in 0.01 .. 0.3): fast decay would hide a state that leaks."""
    params = jax.jit(decoder.init, static_argnums=0)(spec, jax.random.key(0))
    rng = np.random.default_rng(0)
    for layer in params["periods"].values():
        if "a_log" in layer["mixer"]:
            shape = layer["mixer"]["a_log"].shape
            layer["mixer"]["a_log"] = jnp.asarray(np.log(rng.uniform(0.01, 0.3, shape)), "float32")
    return params


@dataclasses.dataclass(frozen=True)
class Bench:
    """Spec, parameters and sweep shared by all workloads."""

    spec: specs.Spec
    params: Any
    sweep: Sweep

    def _seconds(self, trainer: forms.Trainer, batches: Sequence[forms.Batch]) -> list[float]:
        """The better of two runs of each batch, warm, in turn."""
        calls: Calls = {
            str(i): functools.partial(trainer.gradient, b) for i, b in enumerate(batches)
        }
        for call in calls.values():
            jax.block_until_ready(call())
        found = measure.interleaved(calls, min(2, self.sweep.repeats))
        for i, batch in enumerate(batches):
            seconds = min(found[str(i)])
            rate = batch.tokens / seconds
            _say(f"  {batch.name:7} {batch.setting}: {batch.shape} {seconds:.3f} s, {rate:.0f} a s")
        return [min(found[str(i)]) for i in range(len(batches))]

    def tune(
        self, title: str, trees: Sequence[types.Tree]
    ) -> tuple[dict[str, forms.Setting], dict[str, dict[str, float]]]:
        """Each form's best setting, and real tokens a second by chunk and form."""
        _say(f"chunk sizes and micro-batches, {title}")
        _let_go()
        trainer, sweep = forms.trainer(self.params, trees), self.sweep
        best: dict[str, forms.Setting] = {}
        rates: dict[str, dict[str, float]] = {}
        order: tuple[forms.Name, ...] = ("forest", "packed", "padded")
        for name in order:
            # Padded rows are the packed ones' kind: their chunk is taken over.
            chunks = (best["packed"].chunk,) if name == "padded" else sweep.chunks
            tried = [forms.lay(name, trees, forms.Setting(c, 1.0, sweep.micro[-1]), self.spec)
                     for c in chunks]  # fmt: skip
            seconds = self._seconds(trainer, tried)
            rates[name] = {
                str(b.setting.chunk): b.tokens / s for b, s in zip(tried, seconds, strict=True)
            }
            chosen, least = tried[int(np.argmin(seconds))].setting, min(seconds)
            forks = (True,) if name == "forest" else ()
            knobs: Any = (("tokens", sweep.micro[:-1]), ("block", sweep.blocks), ("inside", forks))
            for knob, values in knobs:
                other = [dataclasses.replace(chosen, **{knob: value}) for value in values]
                laid = [forms.lay(name, trees, setting, self.spec) for setting in other]
                for setting, time in zip(other, self._seconds(trainer, laid), strict=True):
                    chosen, least = min((chosen, least), (setting, time), key=lambda one: one[1])
            best[name] = chosen
        return best, rates

    def _best(self, trainer, name: forms.Name, trees, tuned: forms.Setting) -> forms.Batch:
        """The form at its best row length. Items of one length gain nothing from longer rows."""
        even = name == "forest" and len({sum(map(len, one)) for one in trees}) == 1
        stretches = (1.0,) if name == "padded" or even else self.sweep.stretches
        if len(stretches) > 1:
            # ... and rows of which one, two or three hold the batch with hardly a place to spare.
            first = forms.lay(name, trees, tuned, self.spec)
            longest = first.shape[2]
            whole = [first.tokens * 1.02 / (rows * longest) for rows in (1, 2, 3)]
            stretches = (*stretches, *(s for s in whole if s > 1))
        laid = [
            forms.lay(name, trees, dataclasses.replace(tuned, stretch=stretch), self.spec)
            for stretch in stretches
        ]
        different = list({batch.shape: batch for batch in laid}.values())
        different = sorted(different, key=lambda batch: batch.places)[:TIMED]
        return different[int(np.argmin(self._seconds(trainer, different)))]

    def compare(
        self,
        title: str,
        trees: Sequence[types.Tree],
        tuned: dict[str, forms.Setting],
        *,
        exact: bool = True,
    ) -> dict[str, Any]:
        """One workload's figures; exact: log-probs are compared as well as gradients."""
        _say(title)
        _let_go()
        trainer = forms.trainer(self.params, trees)
        chosen = {name: self._best(trainer, name, trees, tuned[name]) for name in forms.FORMS}
        calls: Calls = {str(n): functools.partial(trainer.gradient, b) for n, b in chosen.items()}
        spent: dict[str, list[float]] = {name: [] for name in calls}
        timed = {name: forms.counted(call, spent[name]) for name, call in calls.items()}
        middle = measure.medians(measure.interleaved(timed, self.sweep.repeats))
        cpu = measure.medians(spent)
        rate = {str(name): batch.tokens / middle[name] for name, batch in chosen.items()}
        logp = [trainer.logp(chosen[name]) for name in ("forest", "packed")] if exact else []
        grads = {name: jax.device_get(call()) for name, call in calls.items()}
        forest = chosen["forest"]
        out: dict[str, Any] = {}
        for name in ("padded", "packed"):
            out[name] = middle[name] / middle["forest"]
            out[f"token_ratio_{name}"] = chosen[name].places / forest.places
            out[f"work_ratio_{name}"] = chosen[name].work / forest.work
            out[f"cpu_{name}"] = cpu[name] / cpu["forest"]
            # Told at once: a run that is stopped has said what it found.
            _say(
                f"  {name} over forest: time {out[name]:.2f}, cores {out[f'cpu_{name}']:.2f}, work "
                f"{out[f'work_ratio_{name}']:.2f}, tokens {out[f'token_ratio_{name}']:.2f}"
            )
        return out | {
            "real_token_ratio": chosen["packed"].tokens / forest.tokens,
            "real": rate["forest"] / max(rate["padded"], rate["packed"]),
            "padding_share": 1 - forest.tokens / forest.places,
            "learned_share": {n: len(b.numbers) / b.places for n, b in chosen.items()},
            "tokens_per_s": rate,
            "seconds": middle,
            "cpu_seconds": cpu,
            "packing_seconds": {name: batch.packing_seconds for name, batch in chosen.items()},
            "settings": {name: f"{b.setting}: {b.shape}" for name, b in chosen.items()},
            "logprob_diff": float(np.abs(np.subtract(*logp)).max()) if exact else None,
            "grad_diff": max(forms.apart(grads["forest"], grads[n]) for n in ("padded", "packed")),
        }


def run(argv: Sequence[str]) -> dict[str, Any]:
    """argv: --quick (tiny sizes: the path, no figure), --repeats, --tokens (forest tokens a batch).

    Raises measure.BenchError for a number below 1.
    """
    options = measure.parser("forest", __doc__)
    options.add_argument("--quick", action="store_true", help="tiny sizes: claims nothing")
    options.add_argument("--repeats", type=int, help="of the final comparison (5)")
    options.add_argument("--tokens", type=int, help="forest tokens of a batch (3840)")
    args = measure.parse(options, argv)
    sweep = QUICK if args.quick else Sweep()
    sweep = dataclasses.replace(
        sweep, repeats=args.repeats or sweep.repeats, size=args.tokens or sweep.size
    )
    spec = model(args.quick)
    bench = Bench(spec, parameters(spec), sweep)
    part = 6 if args.quick else 60

    def dialogues(turns: int, parts: workloads.Lengths, mean: float, seed: int = 0, times=1):
        count = max(2, round(times * sweep.size / (2 * mean * turns)))
        return workloads.thinking(count, turns, parts, parts, spec.vocab, seed)

    same = {k: dialogues(k, workloads.constant(part), part) for k in (4, 8, 16)}
    tuned, chunks = bench.tune("8 turns", same[8])
    turns = {str(k): bench.compare(f"{k} turns", same[k], tuned, exact=k == 16) for k in same}
    spread = workloads.lognormal(part, most=7 * part)
    uneven = dialogues(8, spread, part, 1, times=4)  # few of such lengths fill no rows
    loose, _ = bench.tune("log-normal", uneven)
    lognormal = bench.compare("log-normal", uneven, loose)
    worst = tuned["forest"].chunk + 1
    ragged, title = dialogues(8, workloads.constant(worst), worst), f"every part {worst} tokens"
    hard, _ = bench.tune(title, ragged)
    worst_case = bench.compare(title, ragged, hard)
    recorded = _demo(spec, args.quick)
    short, short_chunks = bench.tune(*recorded[0])
    demo, lines = (bench.compare(*one, short) for one in recorded)
    figures = {
        "turns": turns, "lognormal": lognormal, "worst_case": worst_case, "demo_lengths": demo,
        "demo_agent_lengths": lines,
    }  # fmt: skip
    return figures | _summary([*turns.values(), lognormal, worst_case, demo, lines], figures) | {
        "chunks": chunks, "demo_chunks": short_chunks,
        "tuned": {name: str(setting) for name, setting in tuned.items()},
        "lognormal_tuned": {name: str(setting) for name, setting in loose.items()},
        "worst_tuned": {name: str(setting) for name, setting in hard.items()},
        "demo_tuned": {name: str(setting) for name, setting in short.items()},
        "sweep": dataclasses.asdict(sweep),
        "parameters": decoder.parameter_count(spec), "measured": "forward and backward, GRPO + CSD",
        "quick": args.quick, "machine": measure.machine(),
    }  # fmt: skip


def _demo(spec: specs.Spec, quick: bool) -> list[tuple[str, list[types.Tree]]]:
    """The demo's dialogues from the user's chair and from the agent's."""
    held = workloads.played(2, 2, vocab=512) if quick else workloads.played(6, 8)
    found = []
    for title, trees in (("demo, user", held.user_trees()), ("demo, agent", held.agent_trees())):
        # Only lengths matter; ids of a larger vocabulary than the model's are folded into it.
        folded = [
            tuple(dataclasses.replace(part, ids=part.ids % spec.vocab) for part in one)
            for one in trees
        ]
        found.append((title, workloads.credited(folded, np.random.default_rng(2))))
    return found


def _summary(every: Sequence[dict[str, Any]], figures: dict[str, Any]) -> dict[str, Any]:
    """The figures over all workloads, and which goals they meet."""
    over = lambda one, ratio: min(one[n] / one[f"{ratio}_{n}"] for n in ("padded", "packed"))
    kept = [over(one, "token_ratio") for one in every]
    demo, lines = figures["demo_lengths"], figures["demo_agent_lengths"]
    logprob = max(one["logprob_diff"] for one in every if one["logprob_diff"] is not None)
    grad = max(one["grad_diff"] for one in every)
    return {
        "max_logprob_diff": logprob,
        "grad_rel_diff": grad,
        "padding_share": figures["turns"]["8"]["padding_share"],
        "tokens_per_s": figures["turns"]["8"]["tokens_per_s"],
        "time_over_token_ratio": min(kept),
        "time_over_work_ratio": min(over(one, "work_ratio") for one in every),
        "meets": {
            "time ratio at least 0.95 of the token ratio": all(ratio >= GOAL for ratio in kept),
            "0.95 of plain rows' real tokens/s": all(o["real"] >= GOAL for o in every),
            "demo never slower than plain rows": min(
                one[n] for one in (demo, lines) for n in ("padded", "packed")
            ) >= 1,
            "log-probs": logprob <= CLOSE,
            "gradients": grad <= CLOSE,
        },
    }  # fmt: skip


def _let_go() -> None:
    """Lets the programs go that nobody needs any more: each takes several memory maps, of which
    Linux gives a process 65,530, and a whole run compiles for more than a hundred shapes."""
    jax.clear_caches()
    gc.collect()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
