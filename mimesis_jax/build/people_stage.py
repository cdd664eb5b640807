"""One stage of training on people's conversations: steps, validation, checkpoints, result."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from mimesis_jax.build import devices, ending, spoilt
from mimesis_jax.build.people_data import Item, Sets
from mimesis_jax.data import pipeline
from mimesis_jax.forest import pack, tree
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import scoring
from mimesis_jax.runs import checkpoint, folder, processes, profiles, progress, signals
from mimesis_jax.trainers import optimizer, supervised
from mimesis_jax.types import Forest

# The contexts in which a stage's model is measured, as people_data.Sets names them.
CONTEXTS = {
    "base": ("public",),
    "user_midtrain": ("public",),
    "user_thoughts": ("empty", "brief"),
}


@dataclasses.dataclass
class Best:
    """The parameters with the lowest validation loss so far, after how many updates."""

    params: Any
    nll: float = float("inf")
    step: int = -1


@dataclasses.dataclass(frozen=True)
class Learner:
    """What the stages share; all processes of a run call its methods in the same order.

    run: the open run folder. shape: of every batch. devices: of scoring and updates."""

    run: folder.Run
    spec: specs.Spec
    shape: pack.Shape
    seed: int
    sets: Sets
    devices: devices.Devices = devices.ALONE

    def stage(self, name: str, params, config: supervised.Config) -> tuple[Any, dict[str, Any]]:
        """Trains a stage from `params`, or goes on with it, or takes it when it is finished.

        Returns the parameters with the lowest validation loss (nats per token of all that the
        stage learns) and the stage's figures: hash, best_step, nll_validation, skipped, held_out
        (context to nats per token).
        """
        frozen = self.run.path / name
        if (done := self.run.done(name)) is not None:
            return checkpoint.load_frozen(frozen, params, done["hash"]).params, done
        best, skipped = self._steps(name, params, config)
        meta = {"stage": name, "spec": dataclasses.asdict(self.spec)}
        digest = checkpoint.save_frozen(frozen, best.params, meta)
        done = {
            "hash": digest,
            "best_step": best.step,
            "nll_validation": best.nll,
            "skipped": skipped,
            "held_out": self.measure(name, best.params),
        }
        self.run.hash(name, digest)
        self.run.finish(name, done)
        return best.params, done

    def _steps(self, name: str, params, config: supervised.Config) -> tuple[Best, int]:
        compute = self.devices.compute
        state = optimizer.init(params, config.optimizer, self.spec, compute)
        best = Best(params)
        source = pipeline.Source(name, self.sets.train[name], self.sets.tree)
        batches = pipeline.Batches([source], self.shape, seed=self.seed)
        with self.run.store(name) as store:
            found = store.restore({"state": state, "best": best.params})
            self.run.check_hashes(found.meta.get("hashes", {}) if found else {})
            self.run.begin(name, found.meta["mark"] if found else None)
            if found:
                state = found.state["state"]
                best = Best(found.state["best"], found.meta["nll"], found.meta["step"])
                batches.set_state(found.meta["batches"])
            bar = progress.Bar(config.steps, name, done=found.step if found else 0)

            def report(step: int, metrics: dict) -> None:
                self.run.metrics(name, step, metrics)
                for event in ("data", "update"):
                    self.run.event(event, metrics[f"{event}_seconds"], phase=name, step=step)
                trace.step()
                bar.step(nll=metrics["nll"], best=best.nll)

            def save(step: int, state: optimizer.State) -> None:
                # Saved because the process must end, it is measured when its turn comes: what is
                # kept as the best must not depend on when that was.
                if step % config.save_every == 0 or step == config.steps:
                    self._validate(name, step, state.params, best)
                meta = {
                    "mark": self.run.mark(name), "batches": batches.get_state(),
                    "hashes": self.run.hashes(), "nll": best.nll, "step": best.step,
                }  # fmt: skip
                with self.run.timed("save", phase=name):
                    self.run.push()
                    store.save(step, {"state": state, "best": best.params}, meta)
                ending.after(store, name, step, config.steps)

            trace = profiles.Trace(self.run.path / "profile", name)
            watched = spoilt.watched(self.run, name, self.spec)
            with bar, signals.held(), contextlib.closing(trace), watched:
                if not found:
                    self._validate(name, 0, state.params, best)
                state = supervised.train(
                    self.spec, state, _single(batches), config, compute=compute,
                    first=found.step if found else 0, report=report, save=save,
                    halt=lambda: ending.asked(name),
                )  # fmt: skip
        if int(state.skipped):
            print(f"{name}: {int(state.skipped)} updates were left out, see the metric skipped")
        return best, batches.skipped

    def _validate(self, name: str, step: int, params, best: Best) -> None:
        """Measures after `step` updates and keeps the parameters where they are the best so far."""
        with self.run.timed("evaluate", phase=name):
            loss = self.nll(params, self.sets.validation[name])
            held_out = self.measure(name, params)
        # Hosts of different make may add up to another last bit; what is best is one for all.
        loss = processes.agree(loss, f"{name}: validated after {step}")[0]
        if loss < best.nll:
            # The trainer donates its state to the next update, so the best is a copy.
            best.params = _copied(params, self.spec, self.devices.compute)
            best.nll, best.step = loss, step
        told = {f"nll_held_out_{context}": value for context, value in held_out.items()}
        self.run.metrics(f"{name}_validation", step, {"nll_validation": loss, **told})

    def measure(self, name: str, params) -> dict[str, float]:
        """Nats per token of held-out people's words, in each of the stage's contexts."""
        held_out = self.sets.measured["held_out"]
        return {context: self.nll(params, held_out[context]) for context in CONTEXTS[name]}

    def nll(self, params, items: Sequence[Item]) -> float:
        """Nats per learned token of some items."""
        trees = self.sets.trees(items)
        weight = tree.column(trees, "weight")
        logp = scoring.score(
            self.spec, params, trees, self.shape, compute=self.devices.compute
        )  # fmt: skip
        return float(-(logp * weight).sum() / weight.sum())


@functools.partial(jax.jit, static_argnames=("spec", "compute"))
def _copied(params: decoder.Params, spec: specs.Spec, compute: decoder.Compute) -> decoder.Params:
    return optimizer.placed(jax.tree.map(jnp.copy, params), params, spec, compute)


def _single(batches: Iterator[Forest]) -> Iterator[list[Forest]]:
    for forest in batches:
        yield [forest]
