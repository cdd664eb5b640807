"""Makes a run folder up, with random but plausible numbers, for tests of what reads one."""

import json
import math
import random

USERS = (
    "cooperative",
    "reference_a",
    "reference_b",
    "terse",
    "evasive",
    "mind_changer",
    "pushy",
    "model_a",
    "model_b",
)
BEHAVIOURS = (
    "hidden_bar creeping_goal wont_clarify keeps_pushing thin_then_blames jumps_topic "
    "stacks_limits wrong_premise low_signal_pressure walks_away contradicts_self pours_requests "
    "talks_down"
).split()
ACTS = "ask look set offer deny ask_why confirm hand_over close".split()
ARMS = {"agent_grpo": 0.74, "agent_csd": 0.79, "agent_grpo_assistant_user": 0.91}


def make_summary(rng: random.Random, quick: bool = False) -> dict:
    means = {
        "start": 0.31,
        "grpo": 0.68,
        "csd": 0.71,
        "grpo_assistant_user": 0.47,
        "sft_perfect": 0.62,
        "ceiling": 0.97,
    }
    agent = {}
    for name, mean in means.items():
        tilt = [0.14, 0.05, 0.03, -0.02, -0.06, -0.08, -0.07, 0.0, 0.01]
        by_user = {
            u: min(1.0, max(0.0, mean + t * (1.5 - mean) + rng.gauss(0, 0.03)))
            for u, t in zip(USERS, tilt, strict=True)
        }
        middle = sum(by_user.values()) / len(by_user)
        agent[name] = {"mean": middle, "ci95": [middle - 0.045, middle + 0.043], "by_user": by_user}
    rates = {}
    for name in BEHAVIOURS:
        before = rng.uniform(0.05, 0.4)
        rates[name] = {"before": before, "after": min(0.97, before + rng.uniform(-0.04, 0.5))}
    names = [
        "world",
        "tokenizer",
        "base",
        "user_midtrain",
        "user_thoughts",
        "user_behaviours",
        "agent_start",
        "agent_grpo",
        "agent_csd",
        "agent_grpo_assistant_user",
        "sft_perfect",
        "evaluation",
        "measures",
        "report",
    ]
    times = [14.2, 2.1, 78.3, 21.7, 15.9, 118.4, 24.8, 131.0, 152.6, 77.5, 24.1, 28.3, 19.9, 1.4]
    return {
        "seconds": sum(times) + 31.4,
        "setup_seconds": 96.3,
        "quick": quick,
        "simulator": {
            "nll_before": 2.41,
            "nll_midtrain": 1.532,
            "nll_thoughts": 1.207,
            "nll_trigram": 1.618,
            "behaviour_rate_before": 0.231,
            "behaviour_rate_after": 0.462,
            "behaviour_rates": rates,
            "control_rate_after": 0.061,
            "bad_format_rate": 0.008,
            "thought_leak_rate": 0.0,
            "thought_overlap_rate": 0.034,
            "thought_overlap_rate_reference": 0.029,
            "hash_start": "b1946ac92492d2347c6235b4d2611184",
            "hash_end": "b1946ac92492d2347c6235b4d2611184",
        },
        "agent": agent,
        "csd": {
            "alpha": 0.05,
            "gate_mean": 0.587,
            "none_share": 0.213,
            "null_probe_abs": 2.4e-7,
            "placebo_gap": 0.141,
            "params_differ": True,
        },
        "difficulty_gap": {
            "reference": 0.312,
            "simulator": 0.358,
            "assistant": 0.553,
            "gap_simulator": -0.046,
            "gap_assistant": -0.241,
            "ci95": {"gap_simulator": [-0.101, 0.012], "gap_assistant": [-0.302, -0.178]},
        },
        "compiles_after_warmup": 0,
        "phases": dict(zip(names, times, strict=True)),
        "coach_ceiling": 0.83,
    }


def make_metrics(rng: random.Random) -> list[dict]:
    lines = []
    for phase, first, last in (
        ("base", 5.4, 1.6),
        ("user_midtrain", 2.4, 1.5),
        ("user_thoughts", 1.9, 1.2),
        ("agent_start", 2.2, 0.7),
        ("sft_perfect", 2.2, 0.4),
    ):
        for step in range(0, 200, 5):
            loss = last + (first - last) * math.exp(-step / 35) + rng.gauss(0, 0.03)
            lines.append(
                {
                    "phase": phase,
                    "step": step,
                    "time": step * 0.4,
                    "loss": loss,
                    "tokens_per_s": 11000 + rng.gauss(0, 300),
                }
            )
    for phase, top in ARMS.items():
        low = 0.6 if "assistant" in phase else 0.32
        for step in range(40):
            reach = 1 - math.exp(-step / 14)
            success = min(1.0, max(0.0, low + (top - low) * reach + rng.gauss(0, 0.05)))
            half = 1.96 * math.sqrt(max(success * (1 - success), 0.01) / 64)
            line = {
                "phase": phase,
                "step": step,
                "time": step * 3.2,
                "success": success,
                "success_lo": success - half,
                "success_hi": success + half,
                "turns": 5.2 - 1.1 * reach * (low == 0.6) + rng.gauss(0, 0.1),
                "reward": success,
                "stop_done": 0.5 + 0.3 * reach,
                "stop_left": 0.3 - 0.2 * reach,
                "stop_turns": 0.2 - 0.1 * reach,
                "loss": rng.gauss(0, 0.02),
                "entropy": 0.9 - 0.45 * reach + rng.gauss(0, 0.02),
                "kl": 0.05 * reach,
                "grad_norm": 1.2 + rng.gauss(0, 0.2),
                "groups_without_variance": 0.2 + 0.3 * reach + rng.gauss(0, 0.04),
                "tokens_per_s": 6400 + rng.gauss(0, 200),
                "bad_format": 0.0,
            }
            shares = [rng.uniform(0.8, 1.2) * w for w in (4, 3, 4, 2, 1, 1, 2, 0.4, 2)]
            if low == 0.6:
                shares[5] *= 0.2
            line |= {f"act_share_{a}": s / sum(shares) for a, s in zip(ACTS, shares, strict=True)}
            if phase == "agent_csd":
                line |= {
                    "gate_mean": 0.53 + 0.06 * reach + rng.gauss(0, 0.01),
                    "gate_share_above_half": 0.55 + 0.1 * reach + rng.gauss(0, 0.02),
                    "none_share": 0.21 + rng.gauss(0, 0.02),
                }
            lines.append(line)
    for step in range(25):
        lines.append(
            {
                "phase": "user_behaviours",
                "step": step,
                "time": step * 4.5,
                "reward": 0.42 + 0.012 * step + rng.gauss(0, 0.02),
                "behaviour_rate": 0.23 + 0.009 * step + rng.gauss(0, 0.02),
                "entropy": 1.4 - 0.02 * step,
                "bad_format": 0.01,
            }
        )
    return lines


def make_episode(rng: random.Random, phase: str, step: int, copy: int) -> dict:
    good = rng.random() < ARMS.get(phase, 0.35)
    turns = [
        ("system", "goal: return, wrong size; wants large, paid by card", "user"),
        (
            "system",
            "guide: return. need size, reason. look order, confirm, then set. deny if "
            "tier is basic",
            "agent",
        ),
        ("user", "hello i want to send something back", None),
        ("agent", "ask size", None),
        ("user", "it does not fit me at all", None),
        ("agent", "ask size", None),
        ("user", "large please", None),
        ("agent", "look order", None),
        ("tool", "order: size medium, tier gold, carrier north", "agent"),
        ("agent", "confirm", None),
        ("user", "yes but make it blue", None),
        ("agent", "set colour blue", None),
        ("user", "thanks" if good else "no, too late", None),
        ("agent", "close" if good else "hand_over", None),
    ]
    private = [None] * len(turns)
    if phase != "agent_grpo_assistant_user":
        private[2], private[4], private[6] = (
            "open with little",
            "dodge the first ask",
            "say the size now",
        )
        private[10], private[12] = "i changed my mind, say so now", "" if good else "fed up"
    episode = {
        "phase": phase,
        "step": step,
        "goal": rng.randrange(400),
        "copy": copy,
        "user": "assistant" if "assistant" in phase else "simulator",
        "agent": phase,
        "turns": [{"author": a, "public": p, "only": o} for a, p, o in turns],
        "private": private,
        "rewards": [0.0, 0.0, 0.0, 0.0, 0.0, float(good)],
        "success": float(good),
        "stop": "done" if good else "handed_over",
        "behaviour": None,
        "csd": [],
    }
    if phase == "user_behaviours":
        episode |= {"behaviour": rng.choice(BEHAVIOURS), "agent": "scripted"}
    if phase == "agent_csd":
        for turn, note in (
            (3, "Ask for the size: nothing is known yet."),
            (5, "The customer did not answer; ask for the size again."),
            (9, "Confirm before closing, the size was set and not confirmed."),
            (11, "They want it blue: set the colour."),
        ):
            tokens = turns[turn][1].replace(" ", " |").split("|") + ["<|end|>"]
            gate = [rng.choice([0.14, 0.3, 0.5, 0.62, 0.81, 0.93]) for _ in tokens]
            episode["csd"].append({"turn": turn, "note": note, "tokens": tokens, "gate": gate})
    return episode


def make_run(path, *, seed: int = 7, quick: bool = False):
    """A run folder as a demo leaves it, with random but plausible numbers."""
    rng = random.Random(seed)
    path.mkdir(parents=True, exist_ok=True)
    dump = lambda name, value: (path / name).write_text(json.dumps(value))
    lines = lambda name, rows: (path / name).write_text("".join(json.dumps(r) + "\n" for r in rows))
    summary = make_summary(rng, quick)
    dump("summary.json", summary)
    lines("metrics.jsonl", make_metrics(rng))
    phases = [*ARMS, "agent_start", "user_behaviours"]
    lines(
        "episodes.jsonl",
        [
            make_episode(rng, phase, step, copy)
            for phase in phases
            for step in (0, 20, 39)
            for copy in range(4)
        ],
    )
    dump(
        "versions.json",
        {
            "python": "3.11.9",
            "jax": "0.10.2",
            "mimesis_jax": "0.1.0",
            "git": "d0c165b2f1",
            "platform": "Linux, 2 cores",
        },
    )
    dump("config.json", {"seed": 0, "name": "demo", "agent": {"steps": 40, "alpha": 0.05}})
    lines("events.jsonl", [{"time": 0.0, "event": "start"}, {"time": 412.0, "event": "resumed"}])
    return summary
