"""A GRPO + CSD step, teacher included, against a GRPO step on the same recorded episodes.

Every step begins when the episodes are over: credit, then the updates, as the trainer makes them.
Rollouts cost all steps the same and are left out, which makes the ratios larger than a whole
step's. What is compared:

scored  scores the old log-probs by the training forward, then updates: the plan's GRPO step, on
        whose forward the teacher rides. A trainer whose sampler is not exact (another program,
        another precision, older weights) must do so.
csd     also asks the coach for its notes, and scores in that one forward each reply with and
        without its note: old log-probs, teacher's log-probs, gate. The first update takes CSD.
plain   takes the sampler's log-probs as the old ones, as our trainer may without a coach: it has no
        scoring forward at all.

step_ratio is csd over scored with one update, step_ratio_two_updates with the demo's two, and held
to the goal. step_ratio_plain and step_ratio_plain_two_updates are csd over plain: a teacher then
pays for a forward of its own, over twice the tokens of an update; they are reported, and held to no
goal. Steps run in turn; medians count. The ratios of processor time (cpu_...) are beside them,
steadier on a machine that others use.

The episodes are rule-played at the demo's desk (copies of a goal in a group), the model is the
demo's, its old log-probs are the model's own, as after a rollout.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax

from mimesis_jax import types
from mimesis_jax.bench import forms, measure, workloads
from mimesis_jax.coach import template
from mimesis_jax.forest import pack, tree
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import scoring
from mimesis_jax.trainers import coaching, credit, optimizer, reinforce

SHAPE = pack.Shape(rows=8, length=256, chunk=8, learned=160, slots=2)  # the demo's
LIMIT = 1.35
KINDS = ("plain", "scored", "csd")
OPTIMIZER = optimizer.Config(lr=1.5e-4, warmup=2, decay="constant", weight_decay=0.0)


@dataclasses.dataclass
class Steps:
    """The kinds of steps on one recording. state: never updated, so that every step is alike."""

    spec: specs.Spec
    state: optimizer.State
    shape: pack.Shape
    held: workloads.Played
    trees: list[types.Tree]
    seconds: dict[str, list[float]] = dataclasses.field(default_factory=dict)

    def plain(self, updates: int) -> Any:
        """Credit and the updates."""
        return self._updated(self.trees, updates, 0.0)

    def scored(self, updates: int) -> Any:
        """Old log-probs by the training forward, credit and the updates."""
        with self._timed("old log-probs"):
            logp = scoring.score(self.spec, self.state.params, self.trees, self.shape)
            trees = tree.carry(self.trees, old_logp=logp)
        return self._updated(trees, updates, 0.0)

    def csd(self, updates: int) -> Any:
        """Notes, the scoring forest, credit, and the updates, the first with CSD."""
        with self._timed("notes"):
            coach = template.TemplateCoach()
            notes = [coach.notes(episode.dialogue) for episode in self.held.episodes]
        with self._timed("scoring"):
            trees, self.gates = coaching.coached(
                self.spec, self.state.params, self.trees, notes, renderer=self.held.renderer,
                shape=self.shape, beta=5.0,
            )  # fmt: skip
        return self._updated(trees, updates, 0.05)

    def _updated(self, trees: Sequence[types.Tree], updates: int, alpha: float) -> Any:
        episodes = self.held.episodes
        with self._timed("credit"):
            trees, _, _ = credit.assign(
                trees, [e.rewards for e in episodes], [e.key.goal for e in episodes],
                credit.Config(),
            )  # fmt: skip
        state = jax.tree.map(lambda leaf: leaf + 0, self.state)  # an update eats its state
        for k in range(updates):
            loss = reinforce.Loss(alpha=alpha if k == 0 else 0.0)
            with self._timed("csd update" if k == 0 and alpha else "update"):
                state, self.metrics = reinforce.update(
                    self.spec, state, trees, self.shape, loss, 1e-4, OPTIMIZER
                )
                jax.block_until_ready(state.params)
        return state.params

    def _timed(self, name: str) -> _Clock:
        return _Clock(self.seconds.setdefault(name, []))


@dataclasses.dataclass
class _Clock:
    """Appends the seconds of a with block to a list."""

    seconds: list[float]

    def __enter__(self):
        self.start = time.perf_counter()

    def __exit__(self, *error):
        self.seconds.append(time.perf_counter() - self.start)


def steps(goals: int, copies: int, *, quick: bool = False) -> Steps:
    """A recording of `copies` episodes of each goal, and the demo's model."""
    held = workloads.played(goals, copies, vocab=512 if quick else 1024)
    tok = held.renderer.tokenizer
    sizes = dict(width=32, mlp=32) if quick else dict(width=128, mlp=384)
    spec = specs.tiny(tok.vocab, tok.vocab_real, width=sizes["width"], mlp=sizes["mlp"])
    params = jax.jit(decoder.init, static_argnums=0)(spec, jax.random.key(0))
    shape = dataclasses.replace(SHAPE, rows=2) if quick else SHAPE
    trees = held.agent_trees()
    trees = tree.carry(trees, old_logp=scoring.score(spec, params, trees, shape))
    return Steps(spec, optimizer.init(params, OPTIMIZER), shape, held, trees)


def run(argv: Sequence[str]) -> dict[str, Any]:
    """argv: --quick (tiny sizes: the path, no figure), --goals, --copies, --repeats.

    Raises measure.BenchError for a number below 1.
    """
    options = measure.parser("csd", __doc__)
    options.add_argument("--quick", action="store_true", help="tiny sizes: claims nothing")
    options.add_argument("--goals", type=int, default=16, help="goals of a step (%(default)s)")
    options.add_argument("--copies", type=int, default=8, help="of each goal (%(default)s)")
    options.add_argument("--repeats", type=int, default=5, help="of each step (%(default)s)")
    args = measure.parse(options, argv)
    if args.quick:
        args.goals, args.copies, args.repeats = 3, 3, 1
    made = steps(args.goals, args.copies, quick=args.quick)
    calls: dict[str, Callable[[], Any]] = {
        f"{kind} {updates}": functools.partial(getattr(made, kind), updates)
        for updates in (1, 2)
        for kind in KINDS
    }
    for call in calls.values():
        call()
    made.seconds.clear()
    spent: dict[str, list[float]] = {name: [] for name in calls}
    counted = {name: forms.counted(call, spent[name]) for name, call in calls.items()}
    middle = measure.medians(measure.interleaved(counted, args.repeats))
    cpu = measure.medians(spent)
    trees = made.trees
    return ratios(middle, "") | ratios(cpu, "cpu_") | {
        "meets": {
            f"{name} at most {LIMIT}": value <= LIMIT
            for name, value in ratios(middle, "").items()
            if "plain" not in name
        },
        "seconds": middle,
        "cpu_seconds": cpu,
        "parts": measure.medians(made.seconds),
        "episodes": len(trees),
        "tokens": sum(len(part) for one in trees for part in one),
        "scored_tokens": tree.scored_count(trees),
        **{name: made.gates[name] for name in ("none_share", "coached_tokens")},
        "measured": "credit and updates, for CSD also notes and scoring; no rollouts",
        "quick": args.quick,
        "machine": measure.machine(),
    }  # fmt: skip


def ratios(seconds: dict[str, float], prefix: str) -> dict[str, float]:
    """csd over the other steps. seconds: of "KIND UPDATES"; prefix: of the figures' names."""
    return {
        f"{prefix}{name}": seconds[f"csd {updates}"] / seconds[f"{other} {updates}"]
        for name, other, updates in (
            ("step_ratio", "scored", 1),
            ("step_ratio_two_updates", "scored", 2),
            ("step_ratio_plain", "plain", 1),
            ("step_ratio_plain_two_updates", "plain", 2),
        )
    }
