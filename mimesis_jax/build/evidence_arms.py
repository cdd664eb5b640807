"""The arms of an experiment: what sets them apart, what they share, and the goals of each step."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

from mimesis_jax import config as configs
from mimesis_jax.build import evidence_coach, parts, world
from mimesis_jax.runs import disk, folder
from mimesis_jax.trainers import agent as trainer
from mimesis_jax.users import population

# Who trains an agent: rule-based ones by name; "simulator" is the seed's frozen model.
PEOPLE: dict[str, population.Population] = {
    "reference": population.REFERENCE,
    "assistant_100": population.assistant(1.0),
    "assistant_80": population.assistant(0.8),
    "assistant_60": population.assistant(0.6),
}
User = Literal["simulator", "reference", "assistant_100", "assistant_80", "assistant_60"]
COOPERATIVE = {"reference": 0.0, "assistant_60": 0.6, "assistant_80": 0.8, "assistant_100": 1.0}
STAGE = "agent"  # of an arm's run


@dataclasses.dataclass(frozen=True)
class Arm:
    """What sets an arm apart; everything else is the experiment's and the same for all.

    learns: by "grpo", or supervised on "perfect" dialogues with as many learnable tokens; "nothing"
    is the start itself, "scripted" the agent that follows the arm's coach to the letter.
    user: who trains it. alpha, coach, skill, csd_updates, csd_until, beta: CSD, see
    trainers.agent.Config and build.evidence_coach. lr, entropy, steps: other ones than the
    experiment's (0: the same).
    seeds: only the first so many (0: all).
    """

    learns: Literal["grpo", "perfect", "nothing", "scripted"] = "grpo"
    user: User = "simulator"
    alpha: float = 0.0
    coach: evidence_coach.Name = "honest"
    skill: Literal[1, 2] = 2
    csd_updates: int = 1
    csd_until: int = 0
    beta: float = 5.0
    lr: float = 0.0
    entropy: float = 0.0
    steps: int = 0
    seeds: int = 0

    def plain(self) -> Arm:
        """Without what makes no difference, so that the same arm is known under any name."""
        blank = Arm()
        kept: dict[str, Any] = {"learns": self.learns, "seeds": 0}
        if self.learns == "grpo":
            kept |= {"user": self.user, "lr": self.lr, "entropy": self.entropy}
            kept |= {"steps": self.steps}
        elif self.learns == "perfect":
            kept |= {"steps": self.steps}
        if self.learns == "scripted" or (self.learns == "grpo" and self.alpha > 0):
            kept |= {"coach": self.coach, "skill": self.skill}
        if self.learns == "grpo" and self.alpha > 0:
            kept |= {
                "alpha": self.alpha, "csd_updates": self.csd_updates, "csd_until": self.csd_until,
                "beta": self.beta,
            }  # fmt: skip
        return dataclasses.replace(blank, **kept)

    def told(self) -> dict[str, Any]:
        """As json values; csd_until, which older folders do not know, where it changes anything."""
        told = dataclasses.asdict(self)
        if not self.csd_until:
            del told["csd_until"]
        return told


@dataclasses.dataclass(frozen=True)
class Training:
    """What all GRPO arms share. agent: the trainer's configuration; its goals are those of the
    first step, later steps play so many that the learnable tokens keep to `tokens` a step (0: as
    many in each). curve_goals: of each user, for the learning curve, at every checkpoint (0: none).
    simulator: how it speaks, for the arms whose user it is.
    """

    agent: trainer.Config
    tokens: int = 0
    curve_goals: int = 8
    simulator: parts.Simulator = parts.Simulator()

    def of(self, arm: Arm) -> trainer.Config:
        """The trainer's configuration of an arm."""
        one = self.agent
        loss = dataclasses.replace(
            one.loss, alpha=arm.alpha, entropy=arm.entropy or one.loss.entropy
        )
        rate = dataclasses.replace(one.optimizer, lr=arm.lr or one.optimizer.lr)
        return dataclasses.replace(
            one, loss=loss, optimizer=rate, beta=arm.beta, csd_updates=arm.csd_updates,
            csd_until=arm.csd_until, steps=arm.steps or one.steps,
        )  # fmt: skip

    def told(self, arm: Arm) -> dict[str, Any]:
        """What of this trains an arm, as json values."""
        if arm.learns not in ("grpo", "perfect"):
            return {}
        told = dataclasses.asdict(self)
        del told["agent"]["csd_until"]  # the arm's
        if arm.learns != "grpo" or arm.user != "simulator":
            del told["simulator"]
        return told

    def name(self, arm: Arm) -> str:
        """Folder of an arm: its own words, and a hash over everything that trains it."""
        plain = arm.plain()
        trained: dict[str, Any] = {"arm": plain.told()}
        words: str = plain.learns
        if told := self.told(plain):
            trained |= {"training": told}
        if plain.learns == "grpo":
            words = plain.user + (f"_csd_{plain.alpha:g}_{plain.coach}" if plain.alpha else "")
        if plain.learns == "scripted":
            words = f"scripted_{plain.coach}_{plain.skill}"
        return f"{words}-{configs.content_hash(trained)[:8]}"


@dataclasses.dataclass(frozen=True)
class Budget:
    """The goals of each step, from one list for all arms of a seed, read as far as tokens last.

    Dialogues with an easy user are short: with as many of them an arm would have less to learn
    from. So a step plays as many goals as bring the learnable tokens played so far nearest to
    `tokens` a step, by what a goal cost so far, within half and twice the first step's. It reads
    the run's own metrics, which a restart cuts back with the checkpoint. Called as
    trainers.agent.Parts.goals.
    """

    run: folder.Run
    people: population.Population
    first: int
    tokens: int

    def __call__(self, step: int, count: int) -> list[Any]:
        played, used = self._so_far(step)
        wanted = count
        if self.tokens and used:
            wanted = round((self.tokens * (step + 1) - used) / (used / played))
            wanted = min(2 * count, max(count // 2, wanted, 2))
        first = self.first + played
        return self.people.goals(range(first, first + wanted), denied=world.AGENT_DENIED)

    def _so_far(self, step: int) -> tuple[int, int]:
        lines = [
            line
            for line in disk.lines(self.run.path / "metrics.jsonl")
            if line["phase"] == STAGE and line["step"] < step
        ]
        total = lambda name: sum(int(line[name]) for line in lines)
        return total("goals"), total("learnable_tokens")
