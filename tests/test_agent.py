"""A step of agent training on a tiny model: learns, reports, masks, and never recompiles."""

import dataclasses

import jax
import numpy as np
import pytest
import small_desk
from small_desk import quick_compiles  # noqa: F401 - acts by being here

from mimesis_jax import types
from mimesis_jax.forest import pack
from mimesis_jax.forest import tree as trees
from mimesis_jax.losses import advantage
from mimesis_jax.rollouts import scoring
from mimesis_jax.runs import compiles as compiling
from mimesis_jax.trainers import agent, credit, optimizer, reinforce
from mimesis_jax.users import population

SHAPE = pack.Shape(rows=4, length=240, chunk=8, learned=96, slots=2)


def fresh():
    return optimizer.init(small_desk.params(), CONFIG.optimizer)


def change(state):
    """Largest change of a parameter."""
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), state.params, small_desk.params())
    return max(jax.tree.leaves(jax.device_get(moved)))


class Told:
    """A coach that has something to say on every other turn; it counts its dialogues."""

    def __init__(self):
        self.read = 0

    def notes(self, turns):
        self.read += 1
        own = [i for i, turn in enumerate(turns) if turn.author == "agent"]
        return {i: None if k % 2 else "ask for the size" for k, i in enumerate(own)}


def parts(goals, coach):
    return agent.Parts(
        spec=small_desk.spec(),
        chair=small_desk.make_seat("agent", None, limit=32, temperature=0.9),
        user=population.REFERENCE.user(),
        make=lambda goal: small_desk.Calls(goal, turns=4),
        goals=lambda step, count: goals(range(100 * step, 100 * step + count)),
        renderer=small_desk.renderer(),
        shape=SHAPE,
        coach=coach,
    )


CONFIG = agent.Config(
    steps=4, goals=2, copies=3, updates=2, csd_updates=1, save_every=2,
    loss=reinforce.Loss(alpha=0.1, temperature=0.9),
    credit=credit.Config(score="sum", credit="equalized"),
    optimizer=optimizer.Config(lr=1e-3, warmup=1, decay="constant"),
)  # fmt: skip


def test_agent_steps_learn_report_and_never_recompile():
    coach = Told()
    have = parts(small_desk.PEOPLE.goals, coach)
    seen, saved, kept = [], [], []
    compiles = compiling.Compiles()

    def report(i, metrics):
        seen.append((i, metrics, compiles.since))
        compiles.mark()

    with compiles:
        state = agent.train(
            fresh(), have, CONFIG, report=report,
            save=lambda i, s: saved.append(i), keep=lambda i, e, t: kept.append((i, e, t)),
        )  # fmt: skip
    assert [i for i, _, _ in seen] == [0, 1, 2, 3] and saved == [2, 4]
    assert [n for _, _, n in seen[2:]] == [0, 0], compiles.names
    # the second update of a step has no CSD: nothing to learn where no group had variance
    assert int(state.step) == 4 + sum(bool(trees.column(t, "weight").any()) for _, _, t in kept)
    assert int(state.skipped) == 0 and change(state) > 0
    for i, metrics, _ in seen:
        assert np.isfinite([v for v in metrics.values()]).all()
        assert metrics["gate_mean"] != 0.5 and 0 < metrics["none_share"] < 1
        assert metrics["sampler_gap_max"] < 1e-4
        assert metrics["lr"] == 1e-3 and metrics["turns"] > 1
        assert metrics["agent_tokens"] > 0 and metrics["agent_tokens_per_s"] > 0
        assert 0 < metrics["agent_slots_busy"] <= 1 and metrics["agent_saved_by_residency"] > 0
        assert metrics["agent_reprefilled_tokens"] == 0 and metrics["wait_agent_s"] > 0
        assert "user_tokens" not in metrics  # a rule has no engine
        assert {"success", "rollout_seconds", "score_seconds", "update_seconds"} <= set(metrics)
        assert {f"stop_{stop}" for stop in types.Stop} <= set(metrics)
        _, episodes, own = kept[i]
        assert len(episodes) == len(own) == 6
        assert {e.key.stream for e in episodes} == {CONFIG.stream + i}
    assert coach.read == sum(advantage.usable(e.rewards) for _, eps, _ in kept for e in eps) > 16


def test_warming_leaves_nothing_for_the_first_rollout_to_compile():
    """Engine, scoring forward and update, in a first step with CSD."""
    have = parts(small_desk.PEOPLE.goals, Told())
    state = fresh()
    have.chair.engine.load(state.params, version=0)
    jax.clear_caches()
    with compiling.Compiles() as compiles:
        agent.warm(state, have, CONFIG)
        assert compiles.count >= 5
        compiles.mark()
        agent.step(state, 0, have, CONFIG)
    assert set(compiles.names) <= {"jit(_periods)"}, "that of the handed over weights"


def test_groups_without_variance_take_csd_and_missing_rewards_take_nothing():
    class Flat(small_desk.Calls):
        def step(self, text):
            paid = dataclasses.replace(super().step(text), reward=0.0)
            if self.goal.seed % 2 and self.taken == 1:
                raise RuntimeError("the gym broke")
            return paid

    coach = Told()
    have = dataclasses.replace(parts(small_desk.PEOPLE.goals, coach),
                               make=lambda goal: Flat(goal, turns=3))  # fmt: skip
    state, metrics, episodes, own = agent.step(fresh(), 0, have, CONFIG)
    broken = [e.stop is types.Stop.FAILED for e in episodes]
    assert 0 < sum(broken) < 6 and coach.read == 6 - sum(broken)
    assert not trees.column(own, "weight").any()
    # a reply that was cut is no turn, and has no note
    spoke = [any(turn.author == "agent" for turn in e.dialogue) for e in episodes]
    coached = [bool(trees.column([tree], "coached").any()) for tree in own]
    assert coached == [a and not b for a, b in zip(spoke, broken, strict=True)] and any(coached)
    assert metrics["groups_without_variance"] >= 0.5
    assert metrics["trained_trees"] == sum(coached) and metrics["policy_loss"] == 0.0
    assert metrics["csd_loss"] > 0 and change(state) > 0
    assert int(state.step) == 1  # the second update has no CSD, so nothing to learn from
    bare = dataclasses.replace(have, coach=None)
    state, metrics, _, _ = agent.step(fresh(), 0, bare, CONFIG)
    assert metrics["trained_trees"] == 0 and change(state) == 0


def test_csd_may_end_after_some_steps():
    config = dataclasses.replace(CONFIG, csd_until=1)
    assert [config.alpha(i) for i in range(3)] == [0.1, 0.0, 0.0]
    assert CONFIG.alpha(99) == 0.1  # 0: it stays
    coach, state = Told(), fresh()
    have = parts(small_desk.PEOPLE.goals, coach)
    state, with_it, _, _ = agent.step(state, 0, have, config)
    assert with_it["csd_loss"] > 0 and coach.read > 0
    read = coach.read
    _, without, _, trees_ = agent.step(state, 1, have, config)
    assert coach.read == read and "gate_mean" not in without and without["csd_loss"] == 0
    assert not trees.column(trees_, "coached").any()


def test_a_plain_step_says_how_far_its_sampler_is_off_without_a_forward_of_its_own():
    """Held against a scoring forward of the same trees; other temperatures, so that it shows."""
    config = dataclasses.replace(CONFIG, loss=reinforce.Loss(temperature=0.7))
    have = parts(small_desk.PEOPLE.goals, None)
    _, metrics, _, own = agent.step(fresh(), 0, have, config)
    live = [tree for tree in own if trees.column([tree], "weight").any()]
    assert live
    scored = scoring.score(small_desk.spec(), small_desk.params(), live, SHAPE, temperature=0.7)
    wanted = scoring.disagreement(live, scored)
    assert wanted["sampler_gap_max"] > 0.1
    for name, value in wanted.items():
        assert metrics[name] == pytest.approx(value, rel=1e-4)


def test_agent_configurations_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match="steps -2 is below 1: use 1 or more"):
        agent.Config(steps=-2)
    with pytest.raises(ValueError, match="copies 1: group-relative advantages need at least 2"):
        agent.Config(copies=1)
    with pytest.raises(ValueError, match="csd_updates 3 exceeds updates 2"):
        agent.Config(updates=2, csd_updates=3)


def test_outcomes_by_hand():
    def episode(success, rewards, stop, **acts):
        return types.Episode(
            types.Key(0, 0, 0), None, (), rewards, stop, {"success": success, "acts": acts}
        )

    nan = float("nan")
    found = agent.outcomes(
        [
            episode(1.0, (0.0, 1.0), types.Stop.DONE, ask=3, close=1),
            episode(0.0, (0.0,), types.Stop.TURNS, ask=1),
            episode(1.0, (nan, nan, nan), types.Stop.USER_FORMAT, ask=3),  # masked: no success
            episode(0.0, (), types.Stop.FAILED),
        ]
    )
    assert found["success"] == 0.5 and found["success_std"] == 0.5
    assert found["turns"] == 1.5 and found["masked_episodes"] == 0.5
    assert found["stop_done"] == found["stop_failed"] == 0.25 and found["stop_left"] == 0.0
    assert found["act_share_ask"] == 7 / 8 and found["act_share_close"] == 1 / 8
    assert agent.outcomes([])["success"] == 0.0
