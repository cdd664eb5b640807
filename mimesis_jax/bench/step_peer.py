"""With --peer tunix: a GRPO step of ours against one of google-tunix, same weights, same machine.

A dense Qwen3 form (4 layers, width 128, heads 4/2 of 32, ffn 512, vocabulary 2048, fp32), Adam, one
process. A step is 2 prompts of 128 ids x 4 copies: 8 replies of 128 tokens sampled at temperature
1, a forward that scores them, group-relative advantages, one update. Rewards are fixed (0 and 1 in
turn). The peer's step is its own learner's (GRPOLearner on an RLCluster with the vanilla sampler),
handed one batch at a time; its scoring forward is that of the reference model (beta > 0), ours that
of the policy. Sizes are equal, so every reply has its 128 tokens and nothing is padding.

step_ratio        their seconds over ours, medians of repetitions that take turns; goal >= 1.5
first_step_ratio  the same of the first step from nothing compiled, learner or engine made within
                  it, at the settings whose first step was the shortest in the sweeps; goal >= 1.5
compiles_after_warmup   programs that our steps compile after the first two

The peer runs at the best of a sweep (cache 256 or 512 long, micro-batches of both prompts or of
one), ours at the best of another (decode in one block or in four that read no further than they
must; rows that share a prompt or not): both are in the result (`peer_sweep`, `our_sweep`). Their
ratio without any scoring forward is `unscored_ratio`; `cpu_step_ratio` and `cpu_first_step_ratio`
are of processor time, the steadier ones where others use the machine.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

from mimesis_jax.bench import forms, measure, peer, rollout
from mimesis_jax.bench import step_learners as learners
from mimesis_jax.models import decoder
from mimesis_jax.runs import compiles

SPEC = learners.SPEC
Learner = learners.OurLearner | learners.TheirLearner
GOAL = 1.5
TRIES = 3  # steps of a setting of a sweep, after its first
FIRSTS = 2  # first steps of each side, in turn


def compared(repeats: int, sizes: learners.Sizes | None = None) -> dict[str, Any]:
    """Sweeps both, then lets the best of each take turns.

    Raises BenchError where the peer is not installed.
    """
    sizes = sizes or learners.Sizes()
    params = decoder.init(SPEC, jax.random.key(0))
    prompts = rollout.prompts(sizes.prompts, sizes.told, 1)
    whole = sizes.told + sizes.said
    quarter = max(1, sizes.said // 4)
    theirs = [
        _tried(learners.TheirLearner(params, sizes, learners.Theirs(cache, micro)), prompts)
        for cache in (whole, 2 * whole)
        for micro in _micro(sizes)
    ]
    ours = [
        _tried(learners.OurLearner(params, sizes, learners.Ours(block, shared)), prompts)
        for block in (sizes.said, quarter)
        for shared in (True, False)
    ]
    best = lambda sweep: min(sweep, key=lambda one: one["first_s"])["setting"]
    sides: dict[str, Callable[[], Learner]] = {
        "ours": lambda: learners.OurLearner(params, sizes, learners.Ours(**best(ours))),
        "theirs": lambda: learners.TheirLearner(params, sizes, learners.Theirs(**best(theirs))),
    }
    first = _firsts(sides, prompts)
    return _turns(params, sizes, prompts, repeats, ours, theirs) | first


def _micro(sizes: learners.Sizes) -> tuple[int, ...]:
    return (sizes.prompts, 1) if sizes.prompts > 1 else (1,)


def _tried(learner: Learner, prompts: Sequence[Sequence[int]]) -> dict[str, Any]:
    """The first step from nothing compiled, and the median of some after it."""
    jax.clear_caches()
    seconds = []
    for _ in range(2 + TRIES):
        start = time.perf_counter()
        learner.step(prompts)
        seconds.append(time.perf_counter() - start)
    learner.close()
    first, _, *rest = seconds
    step = statistics.median(rest)
    print(f"  {learner.setting}: first {first:.2f} s, then {step:.3f} s", file=sys.stderr)
    return {"setting": dataclasses.asdict(learner.setting), "first_s": first, "step_s": step}


def _firsts(sides: dict[str, Callable[[], Learner]], prompts: Any) -> dict[str, Any]:
    """First steps from nothing compiled, the sides in turn: by the clock and of all cores."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    spent: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(FIRSTS):
        for name, make in sides.items():
            learner = make()
            jax.clear_caches()
            start, cpu = time.perf_counter(), time.process_time()
            learner.step(prompts)
            seconds[name].append(time.perf_counter() - start)
            spent[name].append(time.process_time() - cpu)
            learner.close()
    clock, cores = measure.medians(seconds), measure.medians(spent)
    return {
        "first_step_ratio": clock["theirs"] / clock["ours"],
        "cpu_first_step_ratio": cores["theirs"] / cores["ours"],
        "first_step_s": clock,
        "first_step_seconds": seconds,
        "first_step_cpu_s": cores,
    }


def _turns(params, sizes: learners.Sizes, prompts, repeats: int, ours, theirs) -> dict[str, Any]:
    best = lambda sweep: min(sweep, key=lambda one: one["step_s"])["setting"]
    mine, other = best(ours), best(theirs)
    jax.clear_caches()
    plain = learners.Theirs(**other | {"beta": 0.0})
    made: dict[str, Learner] = {
        "ours": learners.OurLearner(params, sizes, learners.Ours(**mine)),
        "theirs": learners.TheirLearner(params, sizes, learners.Theirs(**other)),
        "ours_unscored": learners.OurLearner(
            params, sizes, learners.Ours(**mine | {"score": False})
        ),
        "theirs_unscored": learners.TheirLearner(params, sizes, plain),
    }
    for learner in made.values():
        learner.step(prompts)
        learner.step(prompts)
    spent: dict[str, list[float]] = {name: [] for name in made}
    with compiles.Compiles() as seen:
        counts: list[int] = []

        def call(name: str) -> Callable[[], None]:
            def run() -> None:
                before = seen.count
                made[name].step(prompts)
                if name.startswith("ours"):
                    counts.append(seen.count - before)

            return forms.counted(run, spent[name])

        seconds = measure.interleaved({name: call(name) for name in made}, repeats)
    for learner in made.values():
        learner.close()
    middle, cpu = measure.medians(seconds), measure.medians(spent)
    ratio = middle["theirs"] / middle["ours"]
    after = sum(counts)
    return {
        "step_ratio": ratio,
        "compiles_after_warmup": after,
        "goals": {"step_ratio": GOAL, "first_step_ratio": GOAL, "compiles_after_warmup": 0},
        "unscored_ratio": middle["theirs_unscored"] / middle["ours_unscored"],
        "cpu_step_ratio": cpu["theirs"] / cpu["ours"],
        "step_s": middle,
        "seconds": seconds,
        "our_setting": mine,
        "peer_setting": other,
        "our_sweep": ours,
        "peer_sweep": theirs,
        "peer": f"google-tunix {peer.VERSION}, rl.grpo.GRPOLearner with its vanilla rollout",
        "sizes": dataclasses.asdict(sizes),
        "machine": measure.machine(),
    }
