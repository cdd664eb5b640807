"""A whole step, SFT, GRPO and GRPO + CSD: seconds by phase, tokens, compiles, memory, MFU.

The steps are the trainers' own (supervised.update, agent.step): hand the weights over, play P goals
x G copies at the desk, credit, for CSD notes and scoring, update. Agent and user are two models of
the same shape with random weights. What such a model says means nothing, so the episodes are
recorded ones: the engine decodes every reply to the recorded length and the recorded ids are handed
out in place of the sampled ones; nothing else is put on.

step_s     median of all repetitions of the whole step, warm, host included
passes_s   medians of two passes of the same version; noise is how far they are apart
phases_s   medians of steps in which the host waits after every phase: hand_over (weights to the
           agent's engine), prefill (both chairs), agent_decode, user_decode, scoring (credit; for
           CSD notes and teacher), packing (SFT only; else within update), update, text (the rest:
           gyms, tokenizing, rendering)
tokens     of each phase, the real ones and all that were computed, padding and idle rows included;
           tokens_per_s counts real ones
mfu        of each phase and of the whole step, None for a device that is in no table; `formula`
           says what is counted
first_s    the first step of a kind, with what it compiles; kinds share programs, so the first kind
           that needs one pays for it. compiles, compile_s: programs and seconds of the warm-up
memory     bytes on a device: held (live arrays at the end), peak (what the device counted), and
           programs (arguments, results and temporaries), which are compiled once more for that
           where the device does not count, or with --programs

--budget S ends the repetitions early, so that the whole bench takes about that long; a pass has at
least 3. --baseline FILE compares step_s with an earlier run's, measured alike; the verb fails when
a step takes longer by more than --bound. A table goes to standard error. --peer tunix compares
with google-tunix instead, as is said below.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from mimesis_jax.bench import (
    measure,
    step_cost,
    step_kinds,
    step_peer,
    step_table,
    step_workload,
)
from mimesis_jax.models import decoder
from mimesis_jax.sharding import table


def options() -> argparse.ArgumentParser:
    """The bench's own words."""
    made = measure.parser("step", f"{__doc__}\n{step_peer.__doc__}")
    made.add_argument("--model", default="tiny", metavar="M", help="tiny, small-hybrid, 0.8b, 2b, "
                      "4b, 9b or another preset; random weights (%(default)s)")  # fmt: skip
    made.add_argument("--config", metavar="F", help="sizes of a configuration of an agent instead")
    made.add_argument("--kinds", default=",".join(step_kinds.KINDS), help="some of (%(default)s)")
    made.add_argument("--devices", type=int, default=1, metavar="N", help="of this host (1)")
    made.add_argument("--preset", default="fsdp", metavar="P", help="of several devices: "
                      f"{', '.join(table.PRESETS)} (%(default)s)")  # fmt: skip
    made.add_argument("--goals", type=int, metavar="N", help="P of a step (the model's own)")
    made.add_argument("--copies", type=int, metavar="N", help="G of a goal (the model's own)")
    made.add_argument("--repeats", type=int, default=10, metavar="N",
                      help="of each kind, in each of two passes (%(default)s)")  # fmt: skip
    made.add_argument("--budget", type=float, default=float("inf"), metavar="S",
                      help="seconds, compiling included: passes may end early")  # fmt: skip
    made.add_argument("--programs", action="store_true", help="compile again to ask for memory")
    made.add_argument("--baseline", type=Path, metavar="FILE", help="figures to compare with")
    made.add_argument("--bound", type=float, default=0.1, metavar="X",
                      help="slower by this share is too slow (%(default)s)")  # fmt: skip
    made.add_argument("--peer", choices=("tunix",), help="compare with it; takes only --repeats")
    return made


def _settings(args: argparse.Namespace) -> step_workload.Settings:
    """The model's or the configuration's sizes, with the goals and copies that were asked for."""
    table.preset(args.preset)
    made = step_workload.configured(args.config) if args.config else step_workload.named(args.model)
    train = dataclasses.replace(
        made.train, goals=args.goals or made.train.goals, copies=args.copies or made.train.copies
    )
    return dataclasses.replace(made, train=train)


def _kinds(words: str) -> list[str]:
    kinds = words.split(",")
    for kind in kinds:
        if kind not in step_kinds.KINDS:
            raise measure.BenchError(
                f"--kinds {words}: {kind!r} is none of {', '.join(step_kinds.KINDS)}"
            )
    return kinds


def run(argv: Sequence[str]) -> dict[str, Any]:
    """Measures as the module's docstring says; `past_bound` of the result, [] or lines that say
    what got too slow, decides whether the verb fails.

    Raises measure.BenchError for words that make no bench, before anything is measured.
    """
    begun = time.perf_counter()
    args = measure.parse(options(), argv)
    if args.peer:
        return step_peer.compared(args.repeats)
    kinds, settings = _kinds(args.kinds), _settings(args)
    if args.bound <= 0 or args.budget <= 0:
        raise measure.BenchError(f"--bound {args.bound}, --budget {args.budget}: use more than 0")
    compute = step_workload.computing(settings, args.devices, args.preset)
    told = {
        "model": args.model,
        "config": args.config,
        "devices": args.devices,
        "preset": args.preset,
        "kinds": kinds,
        "goals": settings.train.goals,
        "copies": settings.train.copies,
        "updates": settings.train.updates,
        "shape": dataclasses.asdict(settings.shape),
        "engine": dataclasses.asdict(settings.engine),
        "remat": settings.remat,
        "repeats": args.repeats,
        "device": jax.devices()[0].device_kind,
    }
    earlier = None
    if args.baseline:
        earlier = step_table.baseline(args.baseline)
        step_table.same(told, kinds, earlier, args.baseline)
    plan = step_kinds.Plan(kinds, args.repeats, begun + args.budget)
    return _measured(args, settings, compute, told, plan, earlier)


def _measured(
    args: argparse.Namespace, settings: step_workload.Settings, compute: decoder.Compute,
    told: dict[str, Any], plan: step_kinds.Plan, earlier: dict[str, Any] | None,
) -> dict[str, Any]:  # fmt: skip
    """Records, warms up, repeats, and reads the memory at the end."""
    say = lambda text: print(f"  {text}", file=sys.stderr, flush=True)
    made = step_workload.world(settings, compute)
    steps = step_kinds.Steps(made)
    count = decoder.parameter_count(made.spec)
    say(f"{count:,} parameters, {len(made.played.episodes)} episodes a step")
    found = step_kinds.timed(steps, plan, say)
    packed = found.pop("packed")
    figures: dict[str, Any] = {
        "kinds": {kind: found.pop(kind) for kind in told["kinds"]},
        **found,
        "memory": step_cost.memory(made, packed, args.programs or not step_cost.says_peak()),
        "parameters": count,
        "formula": step_cost.FORMULA,
        "settings": told,
        "machine": measure.machine(),
        "past_bound": [],
    }
    if earlier is not None:
        figures |= step_table.compared(figures, earlier, args.bound)
    for line in step_table.lines(figures):
        print(line, file=sys.stderr)
    return figures
