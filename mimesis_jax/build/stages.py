"""Running one stage in a run folder: resume, progress, checkpoints, frozen result."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from mimesis_jax import types
from mimesis_jax.build import devices, ending, spoilt
from mimesis_jax.data import pipeline
from mimesis_jax.forest import pack
from mimesis_jax.runs import checkpoint, compiles, folder, profiles, progress, signals
from mimesis_jax.trainers import agent, optimizer, simulator, supervised

EVENTS = {  # what a trainer measures the seconds of -> what the event log calls it
    "data": "data", "rollout": "rollout", "score": "score", "judge": "score", "update": "update",
}  # fmt: skip


@dataclasses.dataclass
class Stages:
    """What the stages of one run share.

    late: programs compiled after a trainer's second step, by stage (there should be none).
    """

    run: folder.Run
    spec: Any
    shape: pack.Shape
    seed: int
    compiled: compiles.Compiles
    devices: devices.Devices = devices.ALONE
    late: dict[str, int] = dataclasses.field(default_factory=dict)

    # --- frozen parameters ----------------------------------------------------------------------

    def load(self, name: str):
        """(params, hash) of a finished stage."""
        template = self.devices.template(self.spec)
        done = self.run.done(name) or {}
        frozen = checkpoint.load_frozen(
            self.run.path / "models" / name, template, expect=done.get("hash")
        )
        return frozen.params, frozen.hash

    def _finish(self, name: str, params) -> None:
        meta = {"stage": name, "spec": dataclasses.asdict(self.spec)}  # `convert` reads it
        digest = checkpoint.save_frozen(self.run.path / "models" / name, params, meta)
        self.run.finish(name, {"hash": digest, "late_compiles": self.late.get(name, 0)})

    def _stage(self, name: str, params, config, body: Callable) -> Any:
        """Runs `body(state, first, report, save, meta)` from the newest checkpoint, if any.

        Returns the parameters, loaded from the frozen copy when the stage was finished before.
        Raises RunError where too many updates in a row went wrong (build.spoilt), and Terminated
        after a save when the process was asked to end.
        """
        if (done := self.run.done(name)) is not None:
            self.late[name] = done.get("late_compiles", 0)
            return self.load(name)[0]
        state = optimizer.init(params, config.optimizer, self.spec, self.devices.compute)
        with self.run.store(name) as store:
            restored = store.restore(state)
            first, meta = 0, {}
            if restored is not None:
                state, first, meta = restored.state, restored.step, restored.meta
                self.run.check_hashes(meta.get("hashes", {}))
            self.run.begin(name, meta.get("mark"))
            with progress.Bar(config.steps, name, done=first) as bar, signals.held():
                watch = _Watch(self, name, bar, first)

                def save(step, state, **more):
                    with self.run.timed("save", phase=name):
                        kept = {"mark": self.run.mark(name), "hashes": self.run.hashes(), **more}
                        self.run.push()
                        store.save(step, jax.block_until_ready(state), kept)
                    ending.after(store, name, step, config.steps)

                with contextlib.closing(watch), spoilt.watched(self.run, name, self.spec):
                    state = body(state, first, watch.report, save, meta)
            store.wait()
        self.late[name] = watch.late()
        params = jax.block_until_ready(state.params)
        self._finish(name, params)
        return params

    # --- supervised -----------------------------------------------------------------------------

    def supervised(
        self, name: str, params, sources: Sequence[pipeline.Source], config: supervised.Config,
        *, micro: int = 1,
    ):  # fmt: skip
        """Supervised training on rendered trees. micro: micro-batches of an update."""

        def body(state, first, report, save, meta):
            batches = pipeline.Batches(sources, self.shape, seed=self.seed)
            if "data" in meta:
                batches.set_state(meta["data"])
            return supervised.train(
                self.spec, state, _grouped(batches, micro), config,
                compute=self.devices.compute, first=first,
                report=report, save=lambda i, s: save(i, s, data=batches.get_state()),
                halt=lambda: ending.asked(name),
            )  # fmt: skip

        return self._stage(name, params, config, body)

    # --- reinforced -----------------------------------------------------------------------------

    def simulator(self, name: str, params, parts: simulator.Parts, config: simulator.Config):
        """Joint GRPO of the user chair."""

        def body(state, first, report, save, meta):
            return simulator.train(
                state, parts, config, first=first, report=report, save=_versioned(save, parts),
                keep=lambda i, episodes: self._keep(name, i, config.steps, episodes),
                halt=lambda: ending.asked(name),
            )  # fmt: skip

        return self._stage(name, params, config, body)

    def agent(self, name: str, params, parts: agent.Parts, config: agent.Config, *, user: str,
              decode: Callable | None = None, kept: Callable | None = None,
              saved: Callable | None = None):  # fmt: skip
        """GRPO (+ CSD) of the agent chair. kept(step, episodes, trees) sees every batch,
        saved(steps done, parameters) what is about to be saved: what they write into the run's
        logs is cut with it when a restart goes back."""

        def body(state, first, report, save, meta):
            def keep(i, episodes, trees):
                notes = parts.coach.notes if parts.coach and config.loss.alpha > 0 else None
                self._keep(name, i, config.steps, episodes, trees, notes, user=user, decode=decode)
                if kept is not None:
                    kept(i, episodes, trees)

            def keep_state(i, state):
                if saved is not None:
                    saved(i, state.params)
                _versioned(save, parts)(i, state)

            return agent.train(
                state, parts, config, first=first, report=report, save=keep_state, keep=keep,
                halt=lambda: ending.asked(name),
            )  # fmt: skip

        return self._stage(name, params, config, body)

    def _keep(self, name, i, steps, episodes, trees=None, notes=None, *, user="", decode=None):
        """Records a few episodes of some steps, with the gates where the turns were coached."""
        if i not in (0, steps // 2, steps - 1):
            return
        for k, episode in enumerate(episodes[:6]):
            coached = []
            if notes is not None and trees is not None and decode is not None:
                coached = list(_coached(trees[k], notes(episode.dialogue), decode))
            self.run.episode(name, i, episode, user=user or name, agent=name, csd=coached)


def _versioned(save: Callable, parts: simulator.Parts | agent.Parts) -> Callable:
    """Saving that keeps the version of the weights which the engine holds, too."""
    return lambda i, state: save(i, state, engine={"version": parts.chair.engine.version})


def _grouped(batches: Iterator[types.Forest], micro: int) -> Iterator[list[types.Forest]]:
    """The micro-batches of each update; they are endless."""
    while True:
        yield [next(batches) for _ in range(micro)]


def _coached(tree: types.Tree, notes, decode):
    """Per coached turn its note, tokens and gates."""
    for segment in tree:
        if segment.coached.any() and notes.get(segment.turn):
            pieces = decode(segment.ids[segment.scored])
            gate = [float(g) for g in segment.gate[segment.scored]]
            yield {
                "turn": segment.turn,
                "note": notes[segment.turn],
                "tokens": pieces,
                "gate": gate,
            }


class _Watch:
    """Reports each step to the run folder and the bar; counts compilations after the second, and
    traces the steps that the command line asked for."""

    def __init__(self, stages: Stages, name: str, bar: progress.Bar, first: int):
        self.stages, self.name, self.bar, self.first = stages, name, bar, first
        self._marked: int | None = None
        self._clock = time.perf_counter()
        self._compiled = stages.compiled.seconds
        self._trace = profiles.Trace(stages.run.path / "profile", name)

    def report(self, step: int, metrics: dict) -> None:
        now = time.perf_counter()
        metrics = {**metrics, "seconds": now - self._clock}
        self._clock = now
        run = self.stages.run
        run.metrics(self.name, step, metrics)
        worked = 0.0
        for name, event in EVENTS.items():
            if f"{name}_seconds" in metrics:
                run.event(event, metrics[f"{name}_seconds"], phase=self.name, step=step)
                worked += metrics[f"{name}_seconds"]
        self._compiles(step, metrics["seconds"] - worked)
        shown = {
            k: metrics[k] for k in ("nll", "success", "reward", "behaviour_rate") if k in metrics
        }
        self.bar.step(**shown)
        self._trace.step()
        if step - self.first == 1:  # the second step of this process is over
            self._marked = self.stages.compiled.count

    def _compiles(self, step: int, idle: float) -> None:
        """Records what was compiled since the step before; `within`: the seconds of it that must
        have been inside the step's work, as there were `idle` seconds beside it only."""
        seconds = self.stages.compiled.seconds - self._compiled
        self._compiled += seconds
        if seconds:
            within = max(0.0, seconds - max(0.0, idle))
            self.stages.run.event("compile", seconds, phase=self.name, step=step, within=within)

    def close(self) -> None:
        self._trace.close()

    def late(self) -> int:
        return 0 if self._marked is None else self.stages.compiled.count - self._marked


def source(name: str, trees: Sequence[types.Tree], weight: float = 1.0) -> pipeline.Source:
    """Rendered trees as a source of the data pipeline."""
    return pipeline.Source(name, trees, lambda tree: tree, weight)


def mean(values) -> float:
    """The mean of some numbers, 0.0 of none."""
    values = np.asarray(list(values), np.float64)
    return float(values.mean()) if values.size else 0.0
