"""Populations: who the users are. Training references, the assistant stand-in, evaluation users.

A population draws each person's knobs from ranges by the goal's seed, so the same seed always
names the same person with the same case.
"""

from __future__ import annotations

import dataclasses

from mimesis_jax.desk import chance, goals
from mimesis_jax.users import symbolic
from mimesis_jax.users.knobs import Knobs


@dataclasses.dataclass(frozen=True)
class Range:
    """Persons between two knobs: each field uniform between `low` and `high`, whole numbers
    included at both ends; the phrase family is one of `families`. share: weight in a mixture."""

    low: Knobs
    high: Knobs
    families: tuple[str, ...]
    share: float = 1.0

    def person(self, *name: object) -> Knobs:
        """The knobs of the person that `name` stands for."""
        rng = chance.stream("person", *name)
        between = lambda a, b: float(a + (b - a) * rng.random())
        fields: dict[str, object] = {}
        for field in dataclasses.fields(Knobs):
            a, b = getattr(self.low, field.name), getattr(self.high, field.name)
            if isinstance(a, int):
                fields[field.name] = int(rng.integers(a, b + 1))
            elif isinstance(a, float):
                fields[field.name] = between(a, b)
        ends = (dataclasses.astuple(self.low.twists), dataclasses.astuple(self.high.twists))
        twists = goals.Twists(*(between(a, b) for a, b in zip(*ends, strict=True)))
        family = self.families[int(rng.integers(len(self.families)))]
        return Knobs(**fields, twists=twists, family=family)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Population:
    """A mixture of ranges with a name. `goal(seed)` is a case, `user()` plays all its persons."""

    name: str
    ranges: tuple[Range, ...]

    def knobs(self, seed: int) -> Knobs:
        """The person that a goal's seed names."""
        shares = [r.share for r in self.ranges]
        at = chance.stream("range", seed).random() * sum(shares)
        for chosen in self.ranges:
            at -= chosen.share
            if at < 0:
                break
        return chosen.person(seed)

    def goal(self, seed: int, *, denied: float = goals.DENY) -> goals.Goal:
        """The case of a seed, with the twists and the manner of its person.
        denied: probability that the rule denies it."""
        knobs = self.knobs(seed)
        return goals.draw(seed, knobs.twists, manner=knobs.manner, denied=denied)

    def goals(self, seeds: range, *, denied: float = goals.DENY) -> list[goals.Goal]:
        return [self.goal(seed, denied=denied) for seed in seeds]

    def user(self, *, seed: int = 0) -> symbolic.SymbolicUser:
        return symbolic.SymbolicUser(self.knobs, seed=seed)


def mixed(name: str, *populations: Population) -> Population:
    """All persons of some populations under one name."""
    return Population(name, tuple(r for population in populations for r in population.ranges))


def _one(name: str, knobs: Knobs) -> Population:
    return Population(name, (Range(knobs, knobs, (knobs.family,)),))


# --- training: the reference users ("humans") ---------------------------------------------------

LOW = Knobs(0.24, 0.1, 1, 0.2, 0.2, 1, 0, 1, 11, goals.Twists(0.1, 0.14, 0.35, 0.5))
HIGH = Knobs(0.44, 0.3, 2, 0.4, 0.8, 3, 2, 1, 12, goals.Twists(0.2, 0.26, 0.55, 0.9))


def _reference(family: str, **lean: float) -> Population:
    """Reference users of one family; `lean` pins a knob inside the reference range."""
    low, high = dataclasses.replace(LOW, **lean), dataclasses.replace(HIGH, **lean)  # type: ignore
    return Population(f"reference_{family}", (Range(low, high, (family,)),))


TRAINING: dict[str, Population] = {
    "calm": _reference("calm", most=2),
    "brisk": _reference("brisk", push=2),
    "warm": _reference("warm", disclosure=0.4),
    "formal": _reference("formal", dodge=0.2),
    "chatty": _reference("chatty", dodge=0.36),
    "shy": _reference("shy", push=0),
}
REFERENCE = mixed("reference", *TRAINING.values())
SIMULATOR_FAMILIES = ("calm", "brisk")  # the third whose dialogues the simulator is trained on
SIMULATOR = mixed("simulator_data", *(TRAINING[name] for name in SIMULATOR_FAMILIES))

# --- the assistant as user: a rule-based stand-in for a chat model prompted to play the user ----

_AGREEABLE = Knobs(1.0, 1.0, 4, 0.0, 0.0, 0, 0, 4, 12, goals.Twists(0.0, 0.0, 0.0, 0.0))


def assistant(cooperative: float = 1.0, families: tuple[str, ...] = tuple(TRAINING)) -> Population:
    """A share `cooperative` of persons that volunteer everything, answer at once and truly, hide
    nothing and agree; the rest are reference users. Same cases, same code, other knobs.

    Raises ValueError when `cooperative` is not in [0, 1].
    """
    if not 0.0 <= cooperative <= 1.0:
        raise ValueError(f"cooperative={cooperative} is not a share: use 0 to 1")
    agreeable = Range(_AGREEABLE, _AGREEABLE, families, share=cooperative)
    rest = Range(LOW, HIGH, families, share=1.0 - cooperative)
    name = f"assistant_{round(100 * cooperative)}"
    return Population(name, (agreeable, rest) if cooperative < 1.0 else (agreeable,))


ASSISTANT = assistant()

# --- evaluation: seven rule-based users, and the data of two model users ------------------------

_T = goals.Twists
_EASY = Knobs(0.95, 0.97, 3, 0.02, 0.5, 1, 0, 2, 11, _T(0.01, 0.02, 0.0, 0.0), "polite")
_POLITE = Knobs(0.33, 0.13, 2, 0.23, 0.3, 1, 1, 1, 11, _T(0.16, 0.17, 0.42, 0.65), "polite")
_BLUNT = Knobs(0.27, 0.17, 1, 0.33, 0.4, 2, 2, 1, 12, _T(0.13, 0.23, 0.38, 0.8), "blunt")
_DRY = Knobs(0.31, 0.23, 2, 0.27, 0.7, 1, 1, 1, 12, _T(0.19, 0.21, 0.46, 0.6), "dry")
_LIVELY = Knobs(0.41, 0.27, 2, 0.37, 0.6, 1, 2, 1, 11, _T(0.17, 0.25, 0.5, 0.7), "lively")
# the next two are out of the reference range
_CLOSED = Knobs(0.05, 0.02, 1, 0.6, 0.5, 1, 1, 1, 12, _T(0.05, 0.1, 0.75, 0.5), "dry")
_FICKLE = Knobs(0.6, 0.5, 3, 0.05, 0.5, 1, 5, 0, 10, _T(0.45, 0.55, 0.2, 1.0), "blunt")
EVALUATION: dict[str, Population] = {
    "easy": _one("easy", _EASY),
    "polite": _one("polite", _POLITE),
    "blunt": _one("blunt", _BLUNT),
    "dry": _one("dry", _DRY),
    "lively": _one("lively", _LIVELY),
    "closed": _one("closed", _CLOSED),
    "fickle": _one("fickle", _FICKLE),
}
OUT_OF_RANGE = ("closed", "fickle")
# what the two model users of the evaluation are trained on (other dialogues, other seeds)
MODEL_USERS: dict[str, Population] = {
    "model_quiet": Population("model_quiet", (Range(LOW, HIGH, ("quiet", "polite")),)),
    "model_busy": Population("model_busy", (Range(LOW, HIGH, ("busy", "lively")),)),
}
