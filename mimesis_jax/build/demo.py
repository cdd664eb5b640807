"""The main job: train the user in stages, freeze it, train agents against it, judge, report."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any

import jax

from mimesis_jax import types
from mimesis_jax.build import measures, parts, sources, stages, world
from mimesis_jax.coach import template
from mimesis_jax.config import ConfigDict
from mimesis_jax.envs import desk
from mimesis_jax.evaluation import cross, dealt
from mimesis_jax.report import page
from mimesis_jax.runs import (
    checkpoint,
    compiles,
    disk,
    folder,
    processes,
    processes_folder,
    versions,
)
from mimesis_jax.trainers import coaching
from mimesis_jax.users import behaviours, population

LEAST_COPYING = 0.95  # stage check before any reinforcement, see desk-world notes
WHOLE = "whole"  # the phase that is done when the run has ended
HEARD = ("base", "user_midtrain", "user_thoughts")  # stages whose likelihoods are told
CEILING = "ceiling"  # the scripted agent without mistakes; it needs no parameters
ARMS = ("start", "grpo", "csd", "grpo_assistant_user", "sft_perfect")
STAGE_OF = {
    "start": "agent_start", "grpo": "agent_grpo", "csd": "agent_csd",
    "grpo_assistant_user": "agent_grpo_assistant_user", "sft_perfect": "sft_perfect",
}  # fmt: skip


def demo(config: ConfigDict, out: Path, quick: bool = False) -> dict[str, Any]:
    """Runs the whole path in the folder `out`, or goes on with it, and returns the summary.

    Writes summary.json and report.html beside the run's files. quick: the same path in few steps.
    Raises ConfigError or RunError (runs.folder) before anything is written.
    """
    if quick:
        config = parts.hurried(config)
    settings = parts.desk(config)
    ended = disk.read(Path(out) / "summary.json") if folder.finished(out, config, WHOLE) else None
    if ended is not None and (Path(out) / "report.html").exists():
        return ended
    with (
        processes_folder.opened(out, config, seed=settings.seed) as run,
        compiles.Compiles() as compiled,
    ):
        compiles.keep_programs(Path(out).parent / ".compiled")
        story = _Story(run, settings, compiled, quick)
        summary = story.tell()
        run.write("summary.json", summary)
        if processes.is_lead():
            page.write(Path(out))
    return summary


@dataclasses.dataclass
class _Story:
    run: folder.Run
    settings: parts.Desk
    compiled: compiles.Compiles
    quick: bool

    def __post_init__(self):
        self._start = time.monotonic()

    def clock(self) -> float:
        """Seconds since this process took the run up."""
        return time.monotonic() - self._start

    def tell(self) -> dict[str, Any]:
        with self._phase("world"):
            self.world = world.World(
                self.settings.world, vocab=self.settings.vocab, seed=self.settings.seed
            )
            self.cast = parts.Cast(self.settings, self.world)
            if processes.is_lead():
                self.world.renderer.tokenizer.save(self.run.path / "tokenizer.json")
        self.stages = stages.Stages(
            self.run, self.cast.spec, self.settings.shape, self.settings.seed, self.compiled,
            self.cast.devices,
        )  # fmt: skip
        self._simulator()
        self._agents()
        summary = self.run.measured("evaluation", self._evaluate)
        return self._summary(summary)

    # --- phases that are no trainer's -----------------------------------------------------------

    @contextlib.contextmanager
    def _phase(self, name: str):
        """A phase whose work is done anew in each process (its first seconds are kept)."""
        if (done := self.run.done(name)) is None:
            self.run.begin(name)
        yield
        if done is None:
            self.run.finish(name)

    # --- the simulator --------------------------------------------------------------------------

    def _simulator(self) -> None:
        """Base, mid-training, thoughts, joint GRPO; then it is frozen and never written again."""
        made, train = self.world, self.stages.supervised
        settings = self.settings.supervised
        lazily = sources.Sources(made)
        drilled = train("drill", self.cast.fresh(), lazily.drills(1.0), settings["drill"])
        base = train("base", drilled, lazily.base(), settings["base"])
        mid = train("user_midtrain", base, lazily.user("none"), settings["user_midtrain"])
        thoughtful = train("user_thoughts", mid, lazily.thoughts(), settings["user_thoughts"])
        self.rules = measures.rule_judge(
            made, self.cast.spec, dealt.here(mid), self.settings.shape
        )  # fmt: skip
        rows = self.settings.evaluation.behaviour_rows
        self.before = self.run.measured(
            "behaviours_before",
            lambda: measures.behaving(self.cast.user(thoughtful), self.rules, rows)[0],
        )
        trained = self.stages.simulator(
            "user_behaviours",
            thoughtful,
            self.cast.behaving(thoughtful, self.rules),
            self.settings.user_behaviours,
        )
        self.base, self.frozen = base, trained
        self.hash_start = checkpoint.content_hash(trained)
        self.run.hash("simulator", self.hash_start)

        self.model_users = {
            name: train(name, base, lazily.model_user(name), settings["model_user"])
            for name in population.MODEL_USERS
        }

    # --- the agents -----------------------------------------------------------------------------

    def _agents(self) -> None:
        lazily = sources.Sources(self.world)
        train, settings = self.stages.supervised, self.settings.supervised
        start = train("agent_start", self.base, lazily.start(), settings["agent_start"])
        self.copying = self.run.measured("copying", lambda: {"copying": measures.copying(
            self.world, self.cast, dealt.here(start), self.settings.shape)})["copying"]  # fmt: skip
        if self.copying < LEAST_COPYING and not self.quick:
            raise disk.RunError(
                f"the start agent copies a heard value with probability {self.copying:.3f}, "
                f"{LEAST_COPYING} is the least that reinforcement can build on: give it more base "
                f"tokens (--config.base.steps above {settings['base'].steps})"
            )
        self.params = {"start": start}
        self.params["sft_perfect"] = train(
            "sft_perfect", start, lazily.perfect(), settings["sft_perfect"]
        )
        user = self.cast.user(self.frozen, self.hash_start)
        people, assistant = population.SIMULATOR, population.ASSISTANT
        for arm, opposite, crowd in (
            ("grpo", user, people),
            ("csd", user, people),
            ("grpo_assistant_user", assistant.user(seed=5), assistant),
        ):
            name = STAGE_OF[arm]
            tok = self.world.renderer.tokenizer
            self.params[arm] = self.stages.agent(
                name, start, self.cast.serving(start, opposite, crowd), self.settings.agents[name],
                user="simulator" if opposite is user else crowd.name, decode=tok.pieces,
            )  # fmt: skip

    # --- measuring ------------------------------------------------------------------------------

    def _evaluate(self) -> dict[str, Any]:
        """Dealt out over the processes of the run: none of it but `here` waits for another one."""
        chosen, cast = self.settings.evaluation, self.cast
        params = {arm: dealt.here(self.params[arm]) for arm in ARMS}
        models = {n: cast.seat(n, "user", dealt.here(p)) for n, p in self.model_users.items()}
        user = cast.user(dealt.here(self.frozen))
        heard = {stage: dealt.here(self.stages.load(stage)[0]) for stage in HEARD}
        rooms = measures.opponents(models, chosen.goals)
        arms = (*ARMS, CEILING)
        agent = lambda arm: measures.judged(cast, params.get(arm))
        stream = measures.STREAM_EVALUATION
        play = lambda arm: cross.against(agent(arm), rooms, desk.DeskGym, stream=stream)
        results = dealt.results(arms, play, rooms)
        for arm, result in results.items():
            for name, episodes in result.episodes.items():
                self.run.episode("evaluation", 0, episodes[0], user=name, agent=arm)
        works = {
            "difficulty_gap": lambda: measures.difficulty(agent("start"), user, 4 * chosen.goals),
            "behaviours": lambda: self._behaviours(user),
            "nll": lambda: self._likelihoods(heard),
            "probes": lambda: self._probes(params["start"], agent("start"), user),
        }
        found = dealt.values(works, after=len(arms))
        differences = {
            f"{a}_minus_{b}": _interval(cross.paired(results[a], results[b]))
            for a, b in (("grpo", "start"), ("csd", "grpo"), ("grpo", "grpo_assistant_user"))
        }
        return {
            "agent": {arm: dict(result.measure()) for arm, result in results.items()},
            "paired": differences,
            **found.pop("behaviours"),
            **found,
            "hash_end": checkpoint.content_hash(self.frozen),
        }

    def _behaviours(self, user: types.Respond) -> dict[str, Any]:
        rows = self.settings.evaluation.behaviour_rows
        after, episodes = measures.behaving(user, self.rules, rows)
        return {"after": after, "manners": measures.manners(episodes, self.world.held_out())}

    def _likelihoods(self, params: dict[str, Any]) -> dict[str, float]:
        shape = self.settings.shape
        heard = lambda stage, thinking: measures.heard(
            self.world, self.cast.spec, params[stage], shape, thinking
        )
        return {
            "nll_before": heard("base", "none"),
            "nll_midtrain": heard("user_midtrain", "none"),
            "nll_thoughts": heard("user_thoughts", "empty"),
            "nll_trigram": measures.baseline(self.world),
        }

    def _probes(self, params, start, user) -> dict[str, float]:
        """CSD's controls on fresh episodes of the start agent with the frozen simulator."""
        people = population.SIMULATOR
        goals = people.goals(range(world.EVALUATION + 30_000, world.EVALUATION + 30_024))
        played = cross.against(
            start, {"simulator": cross.Opponent(user, goals)}, desk.DeskGym, stream=9005
        ).episodes["simulator"]
        coach = template.TemplateCoach()
        trees = [e.trees["agent"] for e in played]
        notes = [coach.notes(e.dialogue) for e in played]
        loss = self.settings.agents["agent_csd"]
        common: dict[str, Any] = dict(
            renderer=self.world.renderer, shape=self.settings.shape, beta=loss.beta,
            temperature=self.settings.evaluation.temperature,
        )  # fmt: skip
        _, gates = coaching.coached(self.cast.spec, params, trees, notes, **common)
        return gates | coaching.probes(self.cast.spec, params, trees, notes, **common)

    # --- the summary ----------------------------------------------------------------------------

    def _summary(self, found: dict[str, Any]) -> dict[str, Any]:
        """Every figure of the run, from this run alone."""
        before, after, manners, probes = (
            self.before, found["after"], found["manners"], found["probes"]
        )  # fmt: skip
        seconds = {name: self.run.seconds(name) for name in self._phase_names()}
        hashes = {arm: checkpoint.content_hash(p) for arm, p in self.params.items()}
        return {
            "seconds": self._seconds(seconds),
            "setup_seconds": versions.setup_seconds(),
            "quick": self.quick,
            "device": jax.devices()[0].device_kind,
            "simulator": {
                **found["nll"],
                "behaviour_rate_before": before.get("behaviour_rate", 0.0),
                "behaviour_rate_after": after.get("behaviour_rate", 0.0),
                "behaviour_rates": {
                    name: {
                        "before": before.get(f"rate_{name}", 0.0),
                        "after": after.get(f"rate_{name}", 0.0),
                    }
                    for name in behaviours.IDS
                },
                "control_rate_before": before.get("control_rate", 0.0),
                "control_rate_after": after.get("control_rate", 0.0),
                "bad_format_rate": manners["bad_format_rate"],
                "thought_leak_rate": manners["thought_leak_rate"],
                "thought_overlap_rate": manners["thought_overlap_rate"],
                **_beside(manners),
                "manners": manners,
                "hash_start": self.hash_start,
                "hash_end": found["hash_end"],
            },
            "agent": found["agent"],
            "paired": found["paired"],
            "csd": {
                "alpha": self.settings.agents["agent_csd"].loss.alpha,
                **{k: probes[k] for k in ("gate_mean", "none_share", "null_probe_abs")},
                "placebo_gap": probes["placebo_gap"],
                "sampler_gap_max": probes["sampler_gap_max"],
                "params_differ": hashes["csd"] != hashes["grpo"],
            },
            "difficulty_gap": found["difficulty_gap"],
            "copying": self.copying,
            "compiles_after_warmup": sum(self.stages.late.values()),
            "phases": seconds,
        }

    def _seconds(self, phases: dict[str, float]) -> float:
        """Of the whole run, settled when it ends: calling a finished run again changes nothing.
        Work lost to a kill is not counted, so after a restart the phases are added up."""
        if (done := self.run.done(WHOLE)) is None:
            done = {"seconds": sum(phases.values()) if self.run.restarted else self.clock()}
            self.run.begin(WHOLE)
            self.run.finish(WHOLE, done)
        return done["seconds"]

    def _phase_names(self) -> list[str]:
        supervised = ["drill", "base", "user_midtrain", "user_thoughts"]
        agents = ["agent_start", "copying", "sft_perfect", *parts.AGENTS]
        return [
            "world", *supervised, "behaviours_before", "user_behaviours",
            *population.MODEL_USERS, *agents, "evaluation",
        ]  # fmt: skip


def _beside(manners: dict[str, float]) -> dict[str, float]:
    """Measures of the simulator's manners, each with the reference population's beside it."""
    names = ("early_disclosure_rate", "role_flip_rate", "repeat_rate", "natural_rate")
    out = {name: manners[name] for name in names if name in manners}
    for name in (*names, "thought_overlap_rate"):
        if f"reference/{name}" in manners:
            out[f"{name}_reference"] = manners[f"reference/{name}"]
    return out


def _interval(found) -> dict[str, Any]:
    return {"mean": found.mean, "ci95": [found.low, found.high]}
