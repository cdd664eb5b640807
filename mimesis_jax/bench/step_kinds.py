"""Steps of each kind, SFT, GRPO and GRPO + CSD, by the trainers' own functions, and their times."""

from __future__ import annotations

import collections
import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from mimesis_jax.bench import measure, step_cost, step_workload
from mimesis_jax.forest import pack
from mimesis_jax.rollouts import measures
from mimesis_jax.runs import compiles
from mimesis_jax.trainers import agent, supervised

KINDS = ("sft", "grpo", "csd")
PASSES = 2  # of the same version, to show the noise
LEAST = 3  # repetitions of a pass, whatever the budget
Seconds = dict[str, float]


@dataclasses.dataclass
class Seen:
    """What one step did. seconds: by phase, of the whole under "step". work: by phase."""

    seconds: Seconds
    work: dict[str, step_cost.Work]
    packed: pack.Packed


class Steps:
    """Runs steps of the world's model; its state goes on, the recorded episodes are the same."""

    def __init__(self, made: step_workload.World):
        self.made, self.number = made, 0
        self.rows = made.played.user_trees()

    def warm(self) -> None:
        """Compiles what a trainer compiles before its first step (agent.train)."""
        made = self.made
        made.engines["agent"].load(made.state.params, version=0)
        agent.warm(made.state, made.parts, made.train)

    def run(self, kind: str, *, watch: bool = False, count: bool = False) -> Seen:
        """One step. watch: phases of a rollout are waited for one by one. count: also what it had
        to do; the time that takes is in no phase."""
        for engine in self.made.engines.values():
            engine.watch = watch
        self.number += 1
        return self._sft() if kind == "sft" else self._played(kind == "csd", count)

    def _sft(self) -> Seen:
        """Pack and update on the user's chair, whose turns have a thought each."""
        made, start = self.made, time.perf_counter()
        packed = pack.pack(self.rows, made.settings.shape)
        middle = time.perf_counter()
        made.state, _ = supervised.update(
            made.spec, made.state, packed.forests, 1e-6, made.train.optimizer, made.compute
        )
        jax.block_until_ready(made.state)
        end = time.perf_counter()
        seconds = {"packing": middle - start, "update": end - middle, "step": end - start}
        return Seen(
            seconds, {"update": step_cost.forests(made.spec, packed, backward=True)}, packed
        )

    def _played(self, csd: bool, count: bool) -> Seen:
        made = self.made
        parts = made.parts if csd else dataclasses.replace(made.parts, coach=None)
        loss = dataclasses.replace(made.train.loss, alpha=made.train.loss.alpha if csd else 0.0)
        train = dataclasses.replace(made.train, loss=loss)
        before = {chair: dict(engine.counts) for chair, engine in made.engines.items()}
        clock = {chair: dict(engine.seconds) for chair, engine in made.engines.items()}
        start = time.perf_counter()
        made.state, metrics, episodes, trees = agent.step(made.state, self.number, parts, train)
        jax.block_until_ready(made.state)
        whole = time.perf_counter() - start
        spent = {
            chair: measures.since(engine.seconds, clock[chair])
            for chair, engine in made.engines.items()
        }
        seconds = {
            "hand_over": spent["agent"].get("hand_over", 0.0),
            "prefill": sum(each.get("prefill", 0.0) for each in spent.values()),
            "agent_decode": spent["agent"].get("decode", 0.0),
            "user_decode": spent["user"].get("decode", 0.0),
            "scoring": metrics["score_seconds"],
            "update": metrics["update_seconds"],
        }
        seconds["text"] = max(0.0, whole - sum(seconds.values()))
        seconds["step"] = whole
        alphas = [loss.alpha if k < train.csd_updates else 0.0 for k in range(train.updates)]
        if not count:
            return Seen(seconds, {}, pack.Packed([], []))
        work, packed = step_cost.update(made.spec, trees, made.settings.shape, alphas)
        if csd:
            notes = [parts.coach.notes(e.dialogue) for e in episodes] if parts.coach else []
            taught = step_cost.grown(
                [e.trees["agent"] for e in episodes], notes, parts.renderer, made.settings.shape,
                made.compute,
            )  # fmt: skip
        rollouts = {
            chair: step_cost.rollout(
                made.spec, [e.trees[chair] for e in episodes],
                collections.Counter(measures.since(engine.counts, before[chair])),
            )
            for chair, engine in made.engines.items()
        }  # fmt: skip
        found = {
            "prefill": rollouts["agent"]["prefill"] + rollouts["user"]["prefill"],
            "agent_decode": rollouts["agent"]["decode"],
            "user_decode": rollouts["user"]["decode"],
            "scoring": (
                step_cost.forests(made.spec, taught, backward=False) if csd else step_cost.Work()
            ),
            "update": work,
        }
        return Seen(seconds, found, packed)


# --- repetitions ----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Plan:
    """kinds: in order. repeats: of each, in each of two passes. until: time.perf_counter() at which
    they shall be over; a pass ends early, with LEAST repetitions or more, when its share of what
    is left is used up."""

    kinds: Sequence[str]
    repeats: int
    until: float


def timed(steps: Steps, plan: Plan, say: Callable[[str], None]) -> dict[str, Any]:
    """Warms up, then repeats; returns the figures of each kind under its name, `compiles`,
    `compile_s`, `warm_s` of the warm-up and `compiles_after_warmup`."""
    with compiles.Compiles() as seen:
        start = time.perf_counter()
        if set(plan.kinds) - {"sft"}:
            steps.warm()
        warm = time.perf_counter() - start
        say(f"warm in {warm:.1f} s, {seen.count} programs compiled in {seen.seconds:.1f} s")
        first = {kind: _first(steps, kind, seen) for kind in plan.kinds}
        work = {kind: steps.run(kind, count=True) for kind in plan.kinds}  # the host's part is warm
        compiled, seconds = seen.count, seen.seconds
        seen.mark()
        share = (plan.until - time.perf_counter()) / (PASSES * len(plan.kinds))
        whole: dict[str, list[list[float]]] = {kind: [] for kind in plan.kinds}
        for number in range(PASSES):
            for kind in plan.kinds:
                whole[kind].append(_repeated(steps, kind, plan.repeats, share))
                middle = statistics.median(whole[kind][-1])
                say(f"pass {number + 1}: {kind} {middle:.3f} s, {len(whole[kind][-1])} steps")
        phases = {
            kind: _medians([steps.run(kind, watch=True).seconds for _ in range(LEAST)])
            for kind in plan.kinds
        }
        after, names = seen.since, seen.names
    devices = 1 if steps.made.compute.layout is None else steps.made.compute.layout.mesh.size
    return {
        kind: _figures(whole[kind], phases[kind], work[kind].work, first[kind], devices)
        for kind in plan.kinds
    } | {
        "warm_s": warm,
        "compiles": compiled,
        "compile_s": seconds,
        "compiles_after_warmup": after,
        "compiled_after_warmup": names,
        "packed": work[plan.kinds[-1]].packed,
    }


def _first(steps: Steps, kind: str, seen: compiles.Compiles) -> dict[str, float]:
    """The first step of a kind; what kinds before it have compiled is not counted again."""
    count, spent = seen.count, seen.seconds
    seconds = steps.run(kind).seconds["step"]
    return {
        "first_s": seconds,
        "compiles": seen.count - count,
        "compile_s": seen.seconds - spent,
    }


def _repeated(steps: Steps, kind: str, repeats: int, budget: float) -> list[float]:
    start = time.perf_counter()
    found: list[float] = []
    while len(found) < repeats:
        found.append(steps.run(kind).seconds["step"])
        if len(found) >= LEAST and time.perf_counter() - start > budget:
            break
    return found


def _medians(found: Sequence[Seconds]) -> Seconds:
    return measure.medians({name: [one[name] for one in found] for name in found[0]})


def _figures(
    whole: list[list[float]], phases: Seconds, work: Mapping[str, step_cost.Work],
    first: Mapping[str, float], devices: int,
) -> dict[str, Any]:  # fmt: skip
    """The figures of one kind, as the bench's docstring has them."""
    passes = [statistics.median(one) for one in whole]
    step = statistics.median([second for one in whole for second in one])
    total = sum((one.flops for one in work.values()), 0)
    share = {
        name: step_cost.rate(one.flops, phases[name], devices) for name, one in work.items()
    } | {"step": step_cost.rate(total, step, devices)}
    speed = lambda one, name: one.tokens / phases[name] if phases[name] > 0 and one.tokens else None
    return {
        "step_s": step,
        "passes_s": passes,
        "noise": abs(passes[0] - passes[1]) / min(passes),
        "repeats": [len(one) for one in whole],
        "seconds": whole,
        "phases_s": {name: value for name, value in phases.items() if name != "step"},
        "phases_step_s": phases["step"],
        "tokens": {name: {"real": w.tokens, "computed": w.places} for name, w in work.items()},
        "tokens_per_s": {name: speed(one, name) for name, one in work.items()},
        "model_flops": {name: one.flops for name, one in work.items()} | {"step": total},
        "tflops": {name: one["tflops"] for name, one in share.items()},
        "mfu": {name: one["mfu"] for name, one in share.items()},
        **first,
    }
