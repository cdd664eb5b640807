"""What the demo measures: likelihoods, behaviours, manners, difficulty, the cross-user matrix."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mimesis_jax import types
from mimesis_jax.build import parts, world
from mimesis_jax.chat import grammar
from mimesis_jax.desk import acts
from mimesis_jax.desk import agent as scripted
from mimesis_jax.desk import slots as desk_slots
from mimesis_jax.envs import desk, practice
from mimesis_jax.evaluation import cross, leaks, likelihood, realism, trigram
from mimesis_jax.forest import tree
from mimesis_jax.models import decoder
from mimesis_jax.rollouts import corpus, play, scoring
from mimesis_jax.users import behaviours, behaviours_acting, judge, population

STREAM_EVALUATION, STREAM_BEHAVIOURS, STREAM_GAP, STREAM_COPY = 9001, 9002, 9003, 9004
FULLY_ACTING = 1.0


def asked(text: str) -> set[str]:
    """Slots that an agent's text asks for."""
    act = acts.parse(text)
    return {act.target} if act is not None and act.name == "ask" else set()


def serves(text: str) -> bool:
    """Whether a user's text is an agent's act: the role is flipped."""
    return acts.parse(text) is not None


# --- likelihood ---------------------------------------------------------------------------------


def heard(made: world.World, spec, params, shape, thinking: grammar.Thinking) -> float:
    """Nats per token of held-out people's public utterances, thoughts empty."""
    dialogues = [e.dialogue for e in made.held_out()]
    found = dict(
        likelihood.utterances(
            spec, params, dialogues, renderer=made.renderer, shape=shape, thinking=thinking
        )
    )
    return found["nll"]


def baseline(made: world.World) -> float:
    """Interpolated trigram on the same tokens, fitted on the simulator's own training dialogues."""
    trees = lambda episodes: [
        likelihood.user_tree(likelihood.bare(e.dialogue), made.renderer, "none") for e in episodes
    ]
    train = trigram.rows(trees([*made.user, *made.practised]))
    tune = trigram.rows(trees(made.held_out(world.VALIDATION)))
    model = trigram.fit(train, tune, made.renderer.tokenizer.vocab_real)
    return model.nll(trigram.rows(trees(made.held_out())))


def copying(made: world.World, cast: parts.Cast, params, shape) -> float:
    """Stage check: mean probability of the right value where the agent without mistakes sets a
    value that it heard."""
    episodes = corpus.episodes(
        desk.DeskGym, population.REFERENCE.goals(range(world.HELD_OUT, world.HELD_OUT + 100)),
        agent=scripted.ScriptedAgent(1.0), user=population.REFERENCE.user(), stream=STREAM_COPY,
    )  # fmt: skip
    trees = []
    for episode in episodes:
        one = corpus.agent_tree(episode, made.renderer)
        setting = [t.public.startswith("set ") for t in episode.dialogue]
        one = corpus.weighed(one, made.value_ids, 1.0, rest=0.0)
        trees.append(
            tuple(
                dataclasses.replace(s, scored=s.scored & _turns(s, one, episode, setting))
                for s in one
            )
        )
    trees = [t for t in trees if tree.scored_count([t])]
    return float(np.exp(scoring.score(cast.spec, params, trees, shape)).mean())


def _turns(segment, one, episode, setting) -> np.ndarray:
    return np.full(len(segment.ids), setting[segment.turn])


# --- behaviours ---------------------------------------------------------------------------------


def word_likelihood(
    made: world.World, spec, params, shape, compute: decoder.Compute = decoder.ALONE
) -> judge.Likelihood:
    """Mean log-prob per token of the user's words under a fixed model, per episode."""

    def rate(episodes: Sequence[types.Episode]) -> np.ndarray:
        trees = [corpus.user_tree(e, made.renderer, thinking="none") for e in episodes]
        logp = scoring.score(spec, params, trees, shape, compute=compute)
        ends = np.cumsum([tree.scored_count([t]) for t in trees])[:-1]
        return np.array([part.mean() if len(part) else -np.inf for part in np.split(logp, ends)])

    return rate


def rule_judge(
    made: world.World, spec, params, shape, compute: decoder.Compute = decoder.ALONE
) -> judge.RuleJudge:
    """The judge of user training; params: the mid-trained model, compute: where it lies."""
    acting = behaviours_acting.Acting(rate=FULLY_ACTING)
    first = world.PRACTICE + 50_000
    reference = corpus.episodes(
        practice.make, practice.corpus(range(first, first + 600), acting, recalls=0.0),
        agent=practice.opposite(), user=practice.user(acting), stream=first,
    )  # fmt: skip
    rated = word_likelihood(made, spec, params, shape, compute)
    return judge.RuleJudge(judge.fit(reference, rated), rated)


def judged(cast: parts.Cast, params: Any) -> types.Respond:
    """An agent as the evaluation hears it; None: the scripted agent without mistakes."""
    if params is None:
        return scripted.ScriptedAgent(1.0)
    heat = cast.settings.evaluation.temperature
    return cast.seat("agent", "agent", params, temperature=heat)


def behaving(
    user: types.Respond, rules: judge.RuleJudge, rows: int
) -> tuple[dict[str, float], list[types.Episode]]:
    """The judge's means over `rows` dialogues of each behaviour and thrice as many controls."""
    first = world.EVALUATION + 50_000
    goals = [behaviours.case(first + i, name) for name in behaviours.IDS for i in range(rows)]
    controls = [
        behaviours.control(behaviours.case(first + 9000 + i, behaviours.IDS[i % 13]))
        for i in range(3 * rows)
    ]
    episodes = play.play(
        play.jobs(practice.make, [*goals, *controls], copies=1, stream=STREAM_BEHAVIOURS),
        agent=practice.opposite(), user=user,
    )  # fmt: skip
    _, means = rules(None, episodes)
    return means, episodes


def manners(
    episodes: Sequence[types.Episode], reference: Sequence[types.Episode]
) -> dict[str, float]:
    """Judge-free measures of a simulator's episodes beside the reference population's."""
    found = dict(
        realism.measure(
            episodes, [e.dialogue for e in reference], slots=desk_slots.mentioned, asked=asked,
            serves=serves,
        )
    )  # fmt: skip
    trees = [e.trees["user"] for e in episodes if e.trees.get("user")]
    found["thought_leak_rate"] = leaks.thought_leak(trees).value()
    return found


# --- agents -------------------------------------------------------------------------------------


def opponents(models: Mapping[str, types.Respond], goals: int) -> dict[str, cross.Opponent]:
    """The nine evaluation users; models: the two that are trained models."""
    seeds = range(world.EVALUATION, world.EVALUATION + goals)
    rooms = {
        name: cross.Opponent(people.user(seed=90 + i), people.goals(seeds))
        for i, (name, people) in enumerate(population.EVALUATION.items())
    }
    for name, respond in models.items():
        rooms[name] = cross.Opponent(respond, population.MODEL_USERS[name].goals(seeds))
    return rooms


def difficulty(agent: types.Respond, simulator: types.Respond, goals: int) -> dict[str, Any]:
    """One agent with reference users, the simulator and the assistant, on the same cases."""
    first = world.EVALUATION + 20_000
    seeds = range(first, first + goals)
    people = population.SIMULATOR
    rooms = {
        "reference": cross.Opponent(people.user(seed=70), people.goals(seeds)),
        "simulator": cross.Opponent(simulator, people.goals(seeds)),
        "assistant": cross.Opponent(
            population.ASSISTANT.user(seed=70), population.ASSISTANT.goals(seeds)
        ),
    }
    result = cross.against(agent, rooms, desk.DeskGym, stream=STREAM_GAP)
    rows = dict(zip(result.users, result.success, strict=True))
    out: dict[str, Any] = {name: cross.mean(row) for name, row in rows.items()}
    ci: dict[str, Any] = {}
    for name in ("simulator", "assistant"):
        there = np.isfinite(rows["reference"]) & np.isfinite(rows[name])
        if not there.any():
            out[f"gap_{name}"], ci[f"gap_{name}"] = float("nan"), None
            continue
        gap = realism.difficulty_gap(
            rows["reference"][there], rows[name][there], np.flatnonzero(there).tolist()
        )
        out[f"gap_{name}"] = gap.mean
        ci[f"gap_{name}"] = [gap.low, gap.high]
    return out | {"ci95": ci}
