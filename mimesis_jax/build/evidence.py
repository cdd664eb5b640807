"""`mimesis evidence`: every arm of an experiment over several seeds, and one page of what came out.

    OUT/seed_0/prepared/           what all arms of the seed begin with (build.evidence_prepare)
    OUT/seed_0/arms/NAME-HASH/     one arm: a run folder; the hash is over all that trains it
    OUT/seed_0/measured/...        measures of the seed's models
    OUT/experiments/NAME.json      what each experiment asked for
    OUT/results.json, evidence.json, evidence.html
    OUT/logs/                      what each of several processes said

Experiments with the same OUT share preparations and every arm that they have in common. Whatever is
finished is never done again; what was killed goes on from its last checkpoint.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax.build import (
    begun,
    evidence_measures,
    evidence_plan,
    evidence_prepare,
    evidence_results,
    evidence_run,
    evidence_workers,
)
from mimesis_jax.build.evidence_arms import STAGE, Arm
from mimesis_jax.config import ConfigDict
from mimesis_jax.report import evidence as page
from mimesis_jax.runs import checkpoint, compiles, disk


def evidence(
    config: ConfigDict, out: Path, *, seeds: int = 5, start: Path | None = None,
    only: Sequence[int] = (), workers: int | None = 1,
) -> dict[str, Any]:  # fmt: skip
    """Runs or resumes an experiment over seeds 0..seeds - 1, and gives evidence.json's content.

    only: work on these of the seeds; other processes, of other machines too, may work on the others
    in the same `out` at the same time.
    start: take the models from there instead of preparing them: the OUT of other evidence (seed by
    seed), or one run of the demo for all seeds, which then differ in goals and sampling only (the
    page says so).
    workers: processes that share the seeds; None for one a core (evidence_workers.count). Raises
    ConfigError and RunError before anything is trained.
    """
    asked, out = evidence_plan.read(config), Path(out)
    if not 1 <= seeds <= evidence_run.SEEDS:
        raise configs.ConfigError(f"--seeds {seeds}: use 1 to {evidence_run.SEEDS}")
    if strange := sorted(set(only) - set(range(seeds))):
        raise configs.ConfigError(
            f"--only {strange[0]}: not one of the seeds 0 to {seeds - 1}; raise --seeds"
        )
    models = {s: m for s, m in _models(out, start, seeds).items() if not only or s in only}
    compiled = compiles.Compiles()
    rooms = {seed: _Seed(asked, out, seed, m, compiled) for seed, m in models.items()}
    for room in rooms.values():
        room.check()
    jobs = {seed: room.jobs() for seed, room in rooms.items()}
    todo = [seed for seed, own in jobs.items() if not all(job.done() for job in own)]
    shares = evidence_workers.count(workers, len(todo))
    try:
        (out / "experiments").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise disk.explain(error, out) from error
    told = {"seeds": seeds, "start": None if start is None else str(start)}
    disk.write(out / "experiments" / f"{asked.name}.json", asked.record() | told)
    every, what = [job for own in jobs.values() for job in own], f"{asked.name}, about seconds"
    if shares > 1:
        run = functools.partial(_again, config, out, seeds, start)
        try:
            evidence_workers.share(run, todo, shares, out, every, what)
        finally:
            found = _written(out)
        return found
    compiles.keep_programs(out / ".compiled")
    with compiled, evidence_workers.Bar(every, what) as bar:
        for seed in todo:
            for job in jobs[seed]:
                if not job.done():
                    job.work()
                    bar.finished(job)
            if seed != todo[-1]:
                _written(out)  # a page after every seed
    return _written(out)


def _again(config: ConfigDict, out: Path, seeds: int, start: Path | None, only: Sequence[int]):
    """`evidence` in one of several processes."""
    evidence(config, out, seeds=seeds, start=start, only=only)


def _written(out: Path) -> dict[str, Any]:
    found = evidence_results.write(out)
    page.write(out)
    return found


def _models(out: Path, start: Path | None, seeds: int) -> dict[int, Path]:
    """Where each seed's models are, or are to be made."""
    if start is None:
        return {seed: out / f"seed_{seed}" / "prepared" for seed in range(seeds)}
    start = Path(start)
    if not (start / "seed_0").is_dir():
        begun.Begun(start).frozen("agent_start")  # told now, not after an hour
        return dict.fromkeys(range(seeds), start)
    found = {seed: start / f"seed_{seed}" / "prepared" for seed in range(seeds)}
    for seed, path in found.items():
        if not evidence_prepare.prepared(path):
            raise disk.RunError(
                f"{start} has not prepared seed {seed}: use fewer --seeds, or let its own command "
                "go on"
            )
    return found


@dataclasses.dataclass(frozen=True)
class Job:
    """What is done once for a seed. weight: about its seconds, for the time left."""

    what: str
    weight: float
    done: Callable[[], bool]
    work: Callable[[], None]


class _Seed:
    """What an experiment needs of one seed."""

    def __init__(self, asked, out: Path, seed: int, models: Path, compiled: compiles.Compiles):
        self.asked: evidence_plan.Experiment = asked
        self.seed, self.models, self.compiled = seed, models, compiled
        self.path = out / f"seed_{seed}"

    @functools.cached_property
    def room(self) -> evidence_run.Room:
        return evidence_run.Room(
            self.seed, self.path, begun.Begun(self.models), self.compiled, self.asked.evaluation,
            self.asked.training.simulator,
        )  # fmt: skip

    def check(self) -> None:
        """Holds that what is finished began with these models. Raises RunError naming what did
        not."""
        if self.models.parent == self.path:
            evidence_prepare.check(self._seeded(), self.models)
        if not evidence_prepare.prepared(self.models):
            return
        phases = disk.read(self.models / "phases.json") or {}
        mine = phases["agent_start"]["done"]["hash"]
        for path in sorted(self.path.glob("arms/*/versions.json")):
            theirs = disk.read(path)["hashes"].get("agent_start", mine)
            if theirs != mine:
                raise disk.RunError(
                    f"{path.parent} began with another start ({theirs[:12]}...) than {self.models} "
                    f"has ({mine[:12]}...): use another --out, or the --start that it was made with"
                )

    def jobs(self) -> list[Job]:
        """The preparation where it is this OUT's own, the arms, the measures; in this order."""
        here = f"of seed {self.seed}"
        found = []
        if self.models.parent == self.path:
            ready = functools.partial(evidence_prepare.prepared, self.models)
            found.append(Job(f"preparation {here}", 600.0, ready, self._prepare))
        judged = evidence_run.evaluation_name(self.asked.evaluation)
        for name, arm in self.asked.arms.items():
            if not arm.seeds or self.seed < arm.seeds:
                ready = functools.partial(_finished, self._arm(arm), judged)
                work = functools.partial(self._train, arm)
                found.append(
                    Job(f"{name} {here}", evidence_plan.weight(self.asked, arm), ready, work)
                )
        for kind, chosen in self.asked.measures.items():
            path = self.path / "measured" / self.asked.measured(kind)
            ready = functools.partial(_finished, path, kind)
            work = functools.partial(self._measure, kind, chosen)
            found.append(Job(f"{kind} {here}", 25.0, ready, work))
        return found

    def _arm(self, arm: Arm) -> Path:
        return self.path / "arms" / self.asked.training.name(arm)

    def _prepare(self) -> None:
        evidence_prepare.prepare(
            self._seeded(), self.models, self.compiled, strict=self.asked.strict
        )

    def _seeded(self) -> ConfigDict:
        return evidence_prepare.seeded(self.asked.demo, self.seed)

    def _train(self, arm: Arm) -> None:
        evidence_run.train(self.room, self.asked.training, arm)

    def _measure(self, kind: str, chosen: Any) -> None:
        evidence_measures.take(self.room, kind, chosen, self._agent)

    def _agent(self, name: str) -> Any:
        """Parameters of the start or of a trained arm."""
        if name == "start":
            return self.room.params("agent_start")
        path = self._arm(self.asked.arms[name]) / "models" / STAGE
        return checkpoint.load_frozen(path).params


def _finished(path: Path, phase: str) -> bool:
    return "done" in (disk.read(path / "phases.json") or {}).get(phase, {})
