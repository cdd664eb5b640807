"""An experiment of the evidence as its configuration file describes it, frozen and checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax.build import evidence_measures, evidence_prepare, evidence_run, parts
from mimesis_jax.build.evidence_arms import Arm, Training
from mimesis_jax.config import ConfigDict
from mimesis_jax.trainers import agent

CLAIMS = ("claim_training_user", "claim_csd")
KNOBS = ("cooperative", "alpha")
ALWAYS = {"start": Arm(learns="nothing"), "ceiling": Arm(learns="scripted")}


@dataclasses.dataclass(frozen=True)
class Experiment:
    """An experiment's configuration, frozen; see configs/experiments/.

    training, evaluation: the same for all arms. arms: by name. against: the arm that the others are
    compared with. claims: claim -> (arm, arm), the first minus the second. dose: knob -> arms on
    its curve. measures: kind -> evidence_measures.KINDS. strict: the start must pass the copy test.
    """

    name: str
    demo: ConfigDict
    training: Training
    evaluation: parts.Evaluation
    arms: dict[str, Arm]
    against: str
    claims: dict[str, tuple[str, str]]
    dose: dict[str, tuple[str, ...]]
    measures: dict[str, Any]
    strict: bool

    def record(self) -> dict[str, Any]:
        """What the results need of it, as json values."""
        return {
            "arms": {
                name: {"folder": self.training.name(arm), **dataclasses.asdict(arm)}
                for name, arm in self.arms.items()
            },
            "ceilings": {
                name: self.training.name(_ceiling(arm)) for name, arm in self.arms.items()
            },
            "against": self.against,
            "claims": {claim: list(pair) for claim, pair in self.claims.items()},
            "dose": {knob: list(names) for knob, names in self.dose.items()},
            "measures": {kind: self.measured(kind) for kind in self.measures},
            "evaluation": evidence_run.evaluation_name(self.evaluation),
            "goals": self.evaluation.goals,
            "steps": self.training.agent.steps,
            "tokens": self.training.tokens,
            "curve_goals": self.training.curve_goals,
            "made": self.made(),
        }

    def measured(self, kind: str) -> str:
        """Folder of one of the measures."""
        return evidence_measures.name(kind, self.measures[kind], self.training.simulator)

    def made(self) -> str:
        """Hash of what experiments of one folder must have in common to be read together."""
        told = {
            "prepared": evidence_prepare.told(self.demo),
            "simulator": dataclasses.asdict(self.training.simulator),
            "evaluation": dataclasses.asdict(self.evaluation),
        }
        return configs.content_hash(told)


def read(config: ConfigDict) -> Experiment:
    """Freezes an experiment's configuration. Raises ConfigError naming what does not fit."""
    if config.get("kind") != "evidence":
        raise configs.ConfigError(
            f"config.kind={config.get('kind')!r} is no experiment: use a file of "
            "configs/experiments/, whose kind is 'evidence'"
        )
    demo = parts.desk(config.demo)  # its keys are checked before anything is trained
    arms = ALWAYS | {
        name: configs.freeze(Arm, section, f"config.arms.{name}")
        for name, section in config.arms.items()
    }
    ceilings = [_ceiling(arm).plain() for arm in arms.values()]
    known = {arm.plain() for arm in arms.values()}
    arms |= {f"ceiling_{c.coach}_{c.skill}": c for c in ceilings if c not in known}
    measures: dict[str, Any] = {
        kind: configs.freeze(evidence_measures.KINDS[kind], section, f"config.measures.{kind}")
        for kind, section in config.measures.items()
        if _one_of(kind, evidence_measures.KINDS, "config.measures")
    }
    found = Experiment(
        name=config.name,
        demo=config.demo,
        training=Training(
            configs.freeze(agent.Config, config.agent, "config.agent"),
            config.tokens,
            config.curve_goals,
            demo.simulator,
        ),
        evaluation=configs.freeze(parts.Evaluation, config.evaluation, "config.evaluation"),
        arms=arms,
        against=config.against,
        claims={k: tuple(config.claims[k]) for k in config.claims if _one_of(k, CLAIMS, "claims")},
        dose={k: tuple(config.dose[k]) for k in config.dose if _one_of(k, KNOBS, "dose")},
        measures=measures,
        strict=config.strict,
    )
    named = [found.against, *(n for pair in found.claims.values() for n in pair)]
    named += [n for names in found.dose.values() for n in names]
    named += list(measures["difficulty"].agents) if "difficulty" in measures else []
    for name in named:
        _one_of(name, arms, "config.arms, which others name")
    return found


def _one_of(name: str, known: Iterable[str], where: str) -> bool:
    if name not in known:
        close = configs.nearest(name, known)
        raise configs.ConfigError(f"{name!r} is not in {where}; did you mean {close}?")
    return True


def _ceiling(arm: Arm) -> Arm:
    """The agent that follows an arm's coach to the letter; without one, or with a coach that knows
    nothing of its own (a placebo) or says part of what it knows, the agent without mistakes."""
    if arm.alpha > 0 and arm.coach in ("honest", "leaking"):
        return Arm(learns="scripted", coach=arm.coach, skill=arm.skill)
    return ALWAYS["ceiling"]


def weight(asked: Experiment, arm: Arm) -> float:
    """About the seconds that an arm takes in a process with one core."""
    judging = 0.2 * asked.evaluation.goals
    if arm.learns in ("nothing", "scripted"):
        return judging
    if arm.learns == "perfect":
        return judging + 40.0
    one = asked.training.of(arm)
    step = (5.8 if arm.user == "simulator" else 4.5) + (0.3 if arm.alpha > 0 else 0.0)
    return judging + one.steps * step * one.goals * one.copies / 128
