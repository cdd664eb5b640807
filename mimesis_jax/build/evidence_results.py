"""What a folder of evidence holds so far, pooled over seeds: results.json and evidence.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mimesis_jax.build import evidence_seeds
from mimesis_jax.build.evidence_arms import COOPERATIVE, STAGE
from mimesis_jax.evaluation import pooled
from mimesis_jax.runs import disk

HALF_WIDTH = 0.03  # of the interval that the number of goals is chosen for
WATCHED = (
    "success", "entropy", "turns", "gate_mean", "gate_share_above_half", "groups_without_variance",
    "masked_episodes", "grad_norm", "goals", "learnable_tokens",
)  # fmt: skip


def write(out: Path) -> dict[str, Any]:
    """Reads every experiment of the folder, writes OUT/results.json (all of it) and
    OUT/evidence.json (the claims), and gives the latter."""
    paths = sorted((out / "experiments").glob("*.json"))
    asked = {path: disk.read(path) for path in paths}
    newest = max(paths, key=lambda path: path.stat().st_mtime_ns, default=None)
    made = asked[newest].get("made") if newest else None
    found = {
        path.stem: Experiment(out, one).told() | {"stale": one.get("made") != made}
        for path, one in asked.items()
    }
    claims = evidence(found)
    whole = {"experiments": found, "evidence": claims} | _made(out)
    disk.write(out / "results.json", whole)
    disk.write(out / "evidence.json", claims)
    return disk.plain(claims)


def evidence(found: Mapping[str, Any]) -> dict[str, Any]:
    """The claims with their intervals, from the experiments that have them; null where none has.

    claim_csd's alpha is the one that the configuration named before it was run, not the best.
    seeds: in how many all arms of the claims are finished. Experiments whose command has to be run
    again, because another one was run with other models or measures since, are left out.
    """
    told: dict[str, Any] = dict.fromkeys(
        ("claim_training_user", "claim_csd", "dose", "mechanism", "difficulty", "seeds")
    )
    counts = []
    dose: list[dict[str, Any]] = []
    for experiment in found.values():
        if experiment["stale"]:
            continue
        for claim, one in experiment["claims"].items():
            kept = ("difference", "ci95", "ci95_t", "seeds", "by_seed")
            told[claim] = {name: one.get(name) for name in kept}
            if claim == "claim_csd":
                told[claim]["alpha"] = one["alpha"]
            counts.append(len(one["seeds"]))
        dose += [point for curve in experiment["dose"].values() for point in curve]
        seen = experiment["measures"]
        if "mechanism" in seen:
            aucs = ("auc_true", "auc_placebo", "auc_true_within", "auc_placebo_within")
            names = ("seeds", *aucs, *(f"{name}_ci95_t" for name in aucs))
            told["mechanism"] = {name: seen["mechanism"].get(name) for name in names}
        if "difficulty" in seen:
            told["difficulty"] = seen["difficulty"]["gaps"]
            told["difficulty_seeds"] = seen["difficulty"]["seeds"]
        if "behaviours" in seen:
            told["behaviours"] = {
                k: v for k, v in seen["behaviours"].items() if k != "behaviour_rates"
            }
    return told | {"dose": dose, "seeds": min(counts, default=0)}


def _made(out: Path) -> dict[str, Any]:
    """Seconds spent on the whole folder, and with which code its run folders were begun."""
    seconds: dict[str, float] = {}
    revisions: dict[str, int] = {}
    kind = {"prepared": "preparation", "arms": "arms", "measured": "measures"}
    for path in sorted(out.glob("seed_*/**/phases.json")):
        name = kind[path.relative_to(out).parts[1]]
        spent = sum(one.get("seconds", 0.0) for one in (disk.read(path) or {}).values())
        seconds[name] = seconds.get(name, 0.0) + spent
        git = (disk.read(path.parent / "versions.json") or {}).get("git") or {}
        revision = f"{str(git.get('revision'))[:12]}{', changed' if git.get('dirty') else ''}"
        revisions[revision] = revisions.get(revision, 0) + 1
    seconds["all"] = sum(seconds.values())
    return {"seconds": seconds, "revisions": revisions}


class Experiment:
    """One experiment of a folder: what it asked for, and what is finished of it."""

    def __init__(self, out: Path, asked: dict[str, Any]):
        self.asked = asked
        self.seeds = list(range(asked["seeds"]))
        self._phases: dict[Path, dict[str, Any]] = {}
        self._at = lambda seed, *rest: out.joinpath(f"seed_{seed}", *rest)

    def told(self) -> dict[str, Any]:
        arms = {n: arm for n, arm in self.asked["arms"].items() if self.judged(arm["folder"])}
        kept = ("seeds", "start", "goals", "steps", "tokens", "against", "evaluation")
        return {
            **{name: self.asked[name] for name in kept},
            "arms": {name: self._arm(name, arm) for name, arm in arms.items()},
            "claims": {
                claim: self._claim(*pair)
                for claim, pair in self.asked["claims"].items()
                if set(pair) <= set(arms)
            },
            "dose": {
                knob: [self._point(knob, name, arms[name]) for name in names if name in arms]
                for knob, names in self.asked["dose"].items()
            },
            "measures": self._measures(),
            "goals_needed": self._needed(arms),
            "curve_start": self.curve_start() if "start" in arms else None,
            "curve_goals": self.asked["curve_goals"],
            "seconds": self._seconds(),
        }

    # --- reading --------------------------------------------------------------------------------

    def phases(self, path: Path) -> dict[str, Any]:
        if path not in self._phases:
            self._phases[path] = disk.read(path / "phases.json") or {}
        return self._phases[path]

    def judged(self, folder: str) -> dict[int, dict[str, Any]]:
        """Seed -> what the evaluation of an arm found, of the seeds that are finished."""
        done = {
            seed: self.phases(self._at(seed, "arms", folder)).get(self.asked["evaluation"], {})
            for seed in self.seeds
        }
        return {seed: phase["done"] for seed, phase in done.items() if "done" in phase}

    def success(self, folder: str, seeds: Sequence[int]) -> np.ndarray:
        """[S, U, G]."""
        found = self.judged(folder)
        return np.array([found[seed]["success"] for seed in seeds], np.float64)

    def pair(self, one: str, other: str) -> tuple[list[int], pooled.Pooled | None]:
        """The difference of two arms over the seeds that both have finished."""
        a, b = (self.asked["arms"][name]["folder"] for name in (one, other))
        seeds = sorted(set(self.judged(a)) & set(self.judged(b)))
        if not seeds:
            return [], None
        return seeds, pooled.difference(self.success(a, seeds), self.success(b, seeds))

    # --- telling --------------------------------------------------------------------------------

    def _arm(self, name: str, arm: Mapping[str, Any]) -> dict[str, Any]:
        found = self.judged(arm["folder"])
        seeds, users = sorted(found), found[min(found)]["users"]
        values = self.success(arm["folder"], seeds)
        whole = pooled.over(values)
        own = [found[s]["own"] for s in seeds if found[s]["own"] is not None]
        alone = pooled.over(np.array(own, np.float64)[:, None, :]) if own else None
        ceiling = self.judged(self.asked["ceilings"][name])
        above = [s for s in seeds if s in ceiling]
        shares = [found[s]["acts"] for s in seeds]
        others, gap = self.pair(name, self.asked["against"])
        return {
            "arm": {k: v for k, v in arm.items() if k != "folder"},
            "seeds": seeds,
            "missing": float(np.mean(~np.isfinite(values))),
            **evidence_seeds.told(whole),
            "by_user": {
                user: pooled.mean(values[:, [i]]) for i, user in enumerate(users)
            },
            "own": None if alone is None else evidence_seeds.told(alone),
            "ceiling": pooled.mean(self.success(self.asked["ceilings"][name], above))
            if above else None,
            "difference": None if gap is None else evidence_seeds.told(gap) | {"seeds": others},
            "turns": float(np.mean([found[s]["turns"] for s in seeds])),
            "acts": {
                act: float(np.mean([one.get(act, 0.0) for one in shares]))
                for act in sorted({act for one in shares for act in one})
            },
            **self._training(arm, seeds),
        }  # fmt: skip

    def curve_start(self) -> float | None:
        """Success of the start with the few goals that learning curves are measured on."""
        start = self.asked["arms"].get("start")
        few = self.asked["curve_goals"]
        found = self.judged(start["folder"]) if start and few else {}
        if not found:
            return None
        return pooled.mean(self.success(start["folder"], sorted(found))[:, :, :few])

    def _training(self, arm: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
        """Means over seeds: the learning curve by tokens, and what is watched at each step."""
        steps: dict[str, dict[int, list[float]]] = {}
        tokens: dict[int, list[float]] = {}
        total, folder = [], arm["folder"]
        taught: list[float] = []
        # A supervised arm's steps were counted out so that it is given as many.
        supervised = arm["learns"] == "perfect" and self.asked["tokens"]
        planned = self.asked["tokens"] * self.asked["steps"] if supervised else None
        for seed in seeds:
            so_far, flat = {0: 0}, 0.0
            for line in disk.lines(self._at(seed, "arms", folder) / "metrics.jsonl"):
                step, phase = line["step"], line["phase"]
                if phase == STAGE and "learnable_tokens" in line:
                    so_far[step + 1] = so_far.get(step, 0) + line["learnable_tokens"]
                    flat += line["learnable_tokens"] * line.get("groups_without_variance", 0.0)
                    named = {name: line[name] for name in WATCHED if name in line}
                elif phase == "curve":
                    named = {"curve": line["success"]}
                    tokens.setdefault(step, []).append(so_far.get(step, 0))
                elif phase == "gates":
                    named = {"gate_auc": line["auc"], "followed": line["followed"]}
                else:
                    continue
                for name, value in named.items():
                    if value is not None:
                        steps.setdefault(name, {}).setdefault(step, []).append(value)
            total.append(so_far[max(so_far)])
            taught.append(total[-1] - flat)
        # A step that not all seeds have was saved where one of them was stopped.
        steps = {
            name: {step: values for step, values in line.items() if len(values) == len(seeds)}
            for name, line in steps.items()
        }
        mean = lambda found: {step: float(np.mean(values)) for step, values in found.items()}
        curve = steps.pop("curve", {})
        at = mean(tokens)
        return {
            "learnable_tokens": float(np.mean(total)) if any(total) else planned,
            "taught_tokens": float(np.mean(taught)) if any(total) else None,
            "curve": [[at[step], value] for step, value in sorted(mean(curve).items())],
            "steps": {name: sorted(mean(found).items()) for name, found in steps.items()},
        }

    def _claim(self, one: str, other: str) -> dict[str, Any]:
        seeds, gap = self.pair(one, other)
        alpha = self.asked["arms"][one]["alpha"]
        held: dict[str, Any] = {"arms": [one, other], "seeds": seeds, "alpha": alpha}
        if gap is None:
            return held | {"difference": None, "ci95": None}
        told = evidence_seeds.told(gap)
        return held | told | {"difference": told["mean"]}

    def _point(self, knob: str, name: str, arm: Mapping[str, Any]) -> dict[str, Any]:
        value = COOPERATIVE[arm["user"]] if knob == "cooperative" else arm["alpha"]
        found = self.judged(arm["folder"])
        whole = pooled.over(self.success(arm["folder"], sorted(found)))
        _, gap = self.pair(name, self.asked["against"])
        return {
            "knob": knob, "value": value, "arm": name, "success": whole.mean,
            "ci95": [whole.interval.low, whole.interval.high],
            "difference": None if gap is None else gap.mean,
            "difference_ci95": None if gap is None else [gap.interval.low, gap.interval.high],
        }  # fmt: skip

    def _needed(self, arms: Mapping[str, Any]) -> dict[str, int]:
        """Goals for an interval of +- HALF_WIDTH of each arm's difference, by the goals' spread."""
        found = {}
        base = self.asked["arms"][self.asked["against"]]["folder"]
        for name, arm in arms.items():
            seeds = sorted(set(self.judged(arm["folder"])) & set(self.judged(base)))
            if not seeds or arm["folder"] == base:
                continue
            gap = self.success(arm["folder"], seeds) - self.success(base, seeds)
            if np.isfinite(gap).any(axis=(0, 1)).sum() > 1:
                found[name] = pooled.goals_for(gap, HALF_WIDTH)
        return found

    def _seconds(self) -> dict[str, float]:
        """Seconds spent on each arm's training and on all preparations, over the seeds."""
        spent = lambda path: sum(p.get("seconds", 0.0) for p in self.phases(path).values())
        told = {
            name: sum(spent(self._at(seed, "arms", arm["folder"])) for seed in self.seeds)
            for name, arm in self.asked["arms"].items()
        }
        told["preparation"] = sum(spent(self._at(seed, "prepared")) for seed in self.seeds)
        for kind, folder in self.asked["measures"].items():
            told[kind] = sum(spent(self._at(seed, "measured", folder)) for seed in self.seeds)
        return told

    # --- measures -------------------------------------------------------------------------------

    def _measures(self) -> dict[str, Any]:
        told: dict[str, Any] = {}
        for kind, folder in self.asked["measures"].items():
            seen = [self.phases(self._at(seed, "measured", folder)) for seed in self.seeds]
            found = [one[kind]["done"] for one in seen if "done" in one.get(kind, {})]
            if found:
                told[kind] = evidence_seeds.MEASURES[kind](found) | {"seeds": len(found)}
        return told
