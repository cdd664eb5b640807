"""Tests of the evidence: statistics by hand, honesty and ceilings of coaches, budgets, the page."""

import dataclasses
import json

import numpy as np
import pytest
import small_desk
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mimesis_jax import cli, config, types
from mimesis_jax.build import (
    evidence,
    evidence_arms,
    evidence_coach,
    evidence_plan,
    evidence_prepare,
    evidence_results,
    parts,
)
from mimesis_jax.build.evidence_arms import Arm
from mimesis_jax.coach import template
from mimesis_jax.desk import acts, plan
from mimesis_jax.envs import desk
from mimesis_jax.evaluation import cross, gates, honesty, pooled
from mimesis_jax.report import evidence as page
from mimesis_jax.report import evidence_figures
from mimesis_jax.runs import disk
from mimesis_jax.users import population

NAN = float("nan")
FILES = ("training_user", "csd", "csd_long", "behaviours", "difficulty")

# --- statistics ---------------------------------------------------------------------------------


def test_seeds_weigh_alike_and_in_each_the_users_that_were_heard():
    success = [[[1, 0], [1, NAN]], [[0, 0], [NAN, NAN]]]
    found = pooled.over(np.array(success))
    # Seed 0: users 1/2 and 1, mean 3/4. Seed 1: the one user that was heard, 0.
    assert found.by_seed == (0.75, 0.0)
    assert found.mean == pytest.approx(0.375)
    assert found.goals.low <= found.mean <= found.goals.high


def test_one_goal_has_no_spread_but_its_seeds_have():
    found = pooled.over(np.array([[[0.0]], [[1.0]]]))
    assert (found.goals.low, found.goals.high) == (0.5, 0.5)
    assert (found.interval.low, found.interval.high) == (0.0, 1.0)
    assert found.by_seed == (0.0, 1.0)


def test_differences_are_taken_pair_by_pair():
    a = np.array([[[1, 0, 1]], [[1, 1, 1]]], float)
    b = np.array([[[1, 0, 0]], [[1, 1, NAN]]])
    found = pooled.difference(a, b)
    assert found.by_seed == pytest.approx((1 / 3, 0.0)) and found.mean == pytest.approx(1 / 6)
    with pytest.raises(ValueError, match=r"\(2, 1, 3\) and \(1, 1, 3\)"):
        pooled.difference(a, b[:1])
    with pytest.raises(ValueError, match="seeds x users x goals"):
        pooled.over(np.zeros((2, 3)))
    nothing = pooled.over(np.full((1, 2, 2), NAN))
    assert np.isnan(nothing.mean) and np.isnan(nothing.interval.low)


def test_goals_that_an_interval_needs():
    # Goals' means 0, 1, 0, 1: s = 0.57735; (1.95996 x 0.57735 / 0.3)^2 = 14.23, so 15.
    assert pooled.goals_for(np.array([[[0, 1, 0, 1]]], float), 0.3) == 15


@settings(max_examples=25, deadline=None)
@given(arrays.arrays(float, (2, 3, 4), elements=st.sampled_from((0.0, 1.0, NAN))))
def test_the_pooled_mean_is_the_mean_of_the_seeds(values):
    found = pooled.over(values)
    there = [v for v in found.by_seed if np.isfinite(v)]
    assert np.isnan(found.mean) if not there else found.mean == pytest.approx(np.mean(there))
    if there:
        assert -1e-9 <= found.interval.low <= found.interval.high <= 1 + 1e-9


# --- gate ---------------------------------------------------------------------------------------


def test_gates_by_turn_and_what_they_tell_apart():
    part = lambda turn, gate, coached: types.segment(
        [1, 2], scored=True, gate=gate, coached=coached, turn=turn
    )
    tree = (part(2, [0.9, 0.5], [1, 1]), part(4, [0.2, 0.8], [1, 0]), part(6, 0.9, 0))
    assert gates.by_turn([tree]) == [{2: pytest.approx(0.7), 4: pytest.approx(0.2)}]
    found = [{0: 0.9, 2: 0.4, 4: 0.6, 6: 0.99}, {0: 0.5}]
    kinds = [{0: True, 2: False, 4: False}, {0: True}]
    # Followers 0.9 and 0.5 against 0.4 and 0.6: three of four pairs in order. Turn 6 has no kind.
    assert gates.separation(found, kinds) == 0.75
    assert np.isnan(gates.separation(found, [{0: True}, {0: True}]))
    # Among replies of one act: in "ask" 0.2 and 0.9 are told apart, in "set" there is one kind.
    told = [{0: 0.9, 1: 0.2, 2: 0.8}, {0: 0.1}]
    marks = [{0: True, 1: False, 2: True}, {0: True}]
    named = [{0: "ask", 1: "ask", 2: "set"}, {0: "set"}]
    assert gates.separation_within(told, marks, named) == 1.0
    assert gates.separation(told, marks) == pytest.approx(2 / 3)
    named[0][1] = "look"
    assert np.isnan(gates.separation_within(told, marks, named))


# --- honesty of coaches -------------------------------------------------------------------------


def by_hand(bar, said="not asked yet"):
    return (
        types.Turn("system", f"you want a refund . must size {bar} .", only="user"),
        types.Turn("system", "guide", only="agent"),
        types.Turn("user", "hello", private=said),
        types.Turn("agent", "close"),
    )


def test_a_twin_has_the_others_secrets_and_its_own_words():
    twin = honesty.twin(by_hand("large"), by_hand("tiny", "keep it back"))
    assert twin[0].public.endswith("size tiny .") and twin[2].private == "keep it back"
    assert types.public(twin) == types.public(by_hand("large"))
    assert types.view(twin, "agent") == types.view(by_hand("large"), "agent")


class Tells:
    """A coach that leaks: its note is the user's brief where the agent closes."""

    def notes(self, dialogue):
        brief = next(t.public for t in dialogue if t.only == "user")
        return {i: brief for i, t in enumerate(dialogue) if t.author == "agent"}


def test_honesty_by_hand():
    first, second = by_hand("large"), by_hand("tiny")
    assert honesty.same(Tells(), [first, first], [second, first]).value() == 0.5
    assert honesty.same(Tells(), [], []).whole == 0
    with pytest.raises(ValueError, match="1 dialogues for 2 others"):
        honesty.same(Tells(), [first], [first, second])


@pytest.mark.parametrize("skill", [1, 2])
@pytest.mark.parametrize("form", ["honest", "silent_on_right"])
def test_the_template_coach_is_honest_exactly(skill, form):
    dialogues = [e.dialogue for e in small_desk.episodes()]
    found = honesty.same(
        template.TemplateCoach(skill, form=form), dialogues, [*dialogues[1:], dialogues[0]]
    )
    assert found.part == found.whole > 30


def test_the_leaking_coach_is_found_out():
    dialogues = [e.dialogue for e in small_desk.episodes()]
    found = honesty.same(
        template.TemplateCoach(form="leaking"), dialogues, [*dialogues[1:], dialogues[0]]
    )
    assert found.value() < 0.95


# --- coaches of the evidence --------------------------------------------------------------------


def test_what_follows_a_note():
    follows = evidence_coach.follows
    assert follows("ask colour", "ask for the colour") and not follows(
        "ask size", "ask for the colour"
    )
    assert follows("set colour red size tiny", "now set colour")
    assert not follows("set colour red", "now set colour size")
    assert follows("ask city", "ask for more first", 1) and not follows(
        "hm", "ask for more first", 1
    )
    assert follows("why", "ask why before closing") and follows("close", "all done , close")


def test_the_placebo_speaks_where_the_coach_does_and_says_something_else():
    coach, placebo = evidence_coach.make("honest"), evidence_coach.make("placebo")
    same = said = 0
    for episode in small_desk.episodes()[:20]:
        true, false = coach.notes(episode.dialogue), placebo.notes(episode.dialogue)
        assert [n is None for n in true.values()] == [n is None for n in false.values()]
        assert false == evidence_coach.make("placebo").notes(episode.dialogue)
        pairs = [(true[t], false[t]) for t in true if true[t] is not None]
        same, said = same + sum(a == b for a, b in pairs), said + len(pairs)
    assert same < 0.35 * said  # by chance only: notes at one place would agree far more often


def test_ceilings_of_coaches():
    people = population.REFERENCE
    room = {"reference": cross.Opponent(people.user(seed=1), people.goals(range(7000, 7060)))}
    reached = {
        (name, skill): dict(
            cross.against(
                evidence_coach.Follower(name, skill), room, desk.DeskGym, stream=3
            ).measure()
        )["mean"]
        for name, skill in (("honest", 2), ("honest", 1), ("leaking", 2))
    }
    assert reached["honest", 2] > reached["honest", 1] + 0.1
    # It asks why and confirms only where it must, so it has turns to spare.
    assert reached["leaking", 2] >= reached["honest", 2] - 0.05
    with pytest.raises(ValueError, match="placebo"):
        evidence_coach.Follower("placebo")
    # A coach that is silent on right replies leads where the honest one does.
    assert evidence_plan._ceiling(Arm(alpha=0.1, coach="silent_on_right")) == Arm(learns="scripted")


def test_a_follower_that_leaks_asks_why_only_of_users_who_hold_something_back():
    hidden = [g for g in population.REFERENCE.goals(range(40)) if g.bar is not None]
    plain = [dataclasses.replace(g, bar=None, wrong=None, change=None) for g in hidden]
    leaking = evidence_coach.Follower("leaking")
    assert all("ask_why" in leaking._skills(g) for g in hidden)
    assert all(leaking._skills(g) == template.SIMPLE for g in plain)
    assert evidence_coach.Follower("honest")._skills(plain[0]) == plan.SKILLS
    assert acts.parse("why") is not None


# --- arms ---------------------------------------------------------------------------------------


class Told:
    """Stands for a run: its metrics so far."""

    def __init__(self, path, lines):
        self.path = path
        (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def step(number, goals, tokens, phase=evidence_arms.STAGE):
    return {"phase": phase, "step": number, "goals": goals, "learnable_tokens": tokens}


def test_a_budget_reads_the_list_of_goals_as_far_as_its_tokens_last(tmp_path):
    lines = [step(0, 10, 500), step(0, 9, 9999, "curve"), step(1, 20, 700), step(2, 99, 99)]
    budget = evidence_arms.Budget(Told(tmp_path, lines), population.REFERENCE, 1000, 1000)
    seeds = lambda goals: [goal.seed for goal in goals]
    # Nothing is known before the first step: as many as configured.
    assert seeds(budget(0, 10)) == list(range(1000, 1010))
    # 1500 more for two steps, at 50 a goal: 30, but at most twice as many as configured.
    assert seeds(budget(1, 10)) == list(range(1010, 1030))
    # Two steps used 1200 of 3000 with 30 goals, 40 each: 45, again at most 20; with 100 as the
    # configured number at least half of it.
    assert len(budget(2, 40)) == 45 and len(budget(2, 100)) == 50
    assert seeds(budget(2, 40))[0] == 1030
    fixed = dataclasses.replace(budget, tokens=0)
    assert len(fixed(2, 7)) == 7


def test_an_arm_is_known_under_any_name_and_by_all_that_trains_it():
    made = config.read("experiments/csd")
    training = evidence_plan.read(made).training
    plain = Arm()
    for same in (Arm(coach="leaking", beta=1.0), Arm(seeds=3), Arm(csd_updates=2, skill=1)):
        assert training.name(same) == training.name(plain)
    others = [Arm(alpha=0.05), Arm(alpha=0.05, coach="leaking"), Arm(alpha=0.05, beta=1.0),
              Arm(user="reference"), Arm(entropy=0.01), Arm(lr=1e-4), Arm(steps=7),
              Arm(learns="perfect"), Arm(learns="nothing"), Arm(learns="scripted")]  # fmt: skip
    assert len({training.name(arm) for arm in (plain, *others)}) == 1 + len(others)
    longer = dataclasses.replace(training, tokens=1)
    assert longer.name(plain) != training.name(plain)
    # What trains nothing does not depend on the training.
    assert longer.name(Arm(learns="nothing")) == training.name(Arm(learns="nothing"))
    chosen = training.of(Arm(alpha=0.3, beta=2.0, lr=1e-3, entropy=0.02, csd_updates=2, steps=9))
    assert (chosen.loss.alpha, chosen.loss.entropy, chosen.beta) == (0.3, 0.02, 2.0)
    assert (chosen.optimizer.lr, chosen.csd_updates, chosen.steps) == (1e-3, 2, 9)


def test_how_the_simulator_speaks_trains_its_arms_and_changes_its_measures():
    made = config.read("experiments/difficulty")
    louder = config.read("experiments/difficulty")
    with louder.demo.unlocked():
        louder.demo.simulator.temperature = 1.0
    one, other = evidence_plan.read(made), evidence_plan.read(louder)
    assert one.training.simulator == parts.Simulator(0.8)
    name = lambda asked, **words: asked.training.name(Arm(**words))
    for words in ({}, {"alpha": 0.05}):
        assert name(one, **words) != name(other, **words)
    for words in ({"user": "reference"}, {"learns": "perfect"}, {"learns": "nothing"}):
        assert name(one, **words) == name(other, **words)
    assert one.record()["measures"] != other.record()["measures"]


def test_what_began_with_other_models_is_named_before_anything_is_done(tmp_path, monkeypatch):
    made = config.read("experiments/behaviours")
    ready = tmp_path / "seed_0" / "prepared"
    ready.mkdir(parents=True)
    own = evidence_prepare.seeded(made.demo, 0)
    done = {name: {"done": {"hash": "a" * 64}} for name in (*evidence_prepare.STAGES, "copying")}
    disk.write(ready / "phases.json", done)
    disk.write(ready / "config.json", config.plain(own))
    monkeypatch.setattr(evidence._Seed, "jobs", lambda self: [])
    begin = lambda: evidence.evidence(made, tmp_path, seeds=1)
    begin()
    # What makes no model may differ; what makes one may not.
    disk.write(ready / "config.json", config.plain(own) | {"evaluation": {"goals": 1}})
    begin()
    other = config.plain(own)
    disk.write(ready / "config.json", other | {"base": other["base"] | {"steps": 7}})
    with pytest.raises(disk.RunError, match="prepared was made with other settings: base.steps: 7"):
        begin()
    disk.write(ready / "config.json", other | {"seed": 3})
    with pytest.raises(disk.RunError, match="seed: 3 -> 0"):
        begin()
    disk.write(ready / "config.json", other)
    arm = tmp_path / "seed_0" / "arms" / "reference-0"
    arm.mkdir(parents=True)
    disk.write(arm / "versions.json", {"hashes": {"agent_start": "a" * 64}})
    begin()
    disk.write(arm / "versions.json", {"hashes": {"agent_start": "b" * 64}})
    with pytest.raises(disk.RunError, match=r"reference-0 began with another start \(bbbbbb"):
        begin()


@pytest.mark.parametrize("name", FILES)
def test_every_experiment_reads_and_shares_the_preparation(name):
    asked = evidence_plan.read(config.read(f"experiments/{name}"))
    assert asked.name == name and {"start", "ceiling"} <= set(asked.arms)
    base = config.read("experiments/base")
    assert config.plain(asked.demo) == config.plain(base.demo)
    one = asked.training.agent
    assert one.credit.gamma == 1.0 and one.credit.credit == "equalized"  # no discount
    seeded = evidence_prepare.seeded(asked.demo, 3)
    assert seeded.seed == 3 and asked.demo.seed == 0


def test_experiments_share_the_arm_that_they_have_in_common():
    asked = {n: evidence_plan.read(config.read(f"experiments/{n}")) for n in FILES}
    folder = lambda name, arm: asked[name].record()["arms"][arm]["folder"]
    assert folder("training_user", "simulator") == folder("csd", "alpha_00")
    assert folder("csd", "alpha_00") == folder("difficulty", "simulator")
    assert asked["csd"].record()["ceilings"]["leaking_coach"].startswith("scripted_leaking_2")


def test_processes_share_the_seeds_of_an_experiment(tmp_path, monkeypatch):
    made = config.read("experiments/behaviours")
    worked = []
    jobs = lambda self: [
        evidence.Job("a", 1.0, lambda: False, lambda: worked.append(self.seed))
    ]  # fmt: skip
    monkeypatch.setattr(evidence._Seed, "jobs", jobs)
    with pytest.raises(config.ConfigError, match="--only 5: not one of the seeds 0 to 4"):
        evidence.evidence(made, tmp_path / "none", seeds=5, only=(1, 5))
    assert not (tmp_path / "none").exists()
    for only in ((1, 3), ()):
        evidence.evidence(made, tmp_path, seeds=5, only=only)
    assert worked == [1, 3, 0, 1, 2, 3, 4]
    assert disk.read(tmp_path / "experiments" / "behaviours.json")["seeds"] == 5


def test_seeds_that_are_no_numbers_are_named(capsys):
    with pytest.raises(SystemExit):
        cli.main(["evidence", "--config", "experiments/csd", "--only", "0,x"])
    assert "'0,x' is no list of whole numbers: write 0,2,4" in capsys.readouterr().err


def test_an_experiment_that_names_no_arm_of_its_is_refused():
    made = config.read("experiments/csd")
    with made.unlocked():
        made.against = "alpha_01"
    with pytest.raises(config.ConfigError, match="alpha_01.*did you mean alpha_0"):
        evidence_plan.read(made)
    with pytest.raises(config.ConfigError, match="no experiment"):
        evidence_plan.read(config.read("demo"))
    with made.unlocked():
        made.against = "alpha_00"
        made.arms.alpha_00.user = "assistant_50"
    with pytest.raises(config.ConfigError, match="arms.alpha_00.user"):
        evidence_plan.read(made)


# --- results and page ---------------------------------------------------------------------------


def judged(success, own=None):
    return {
        "evaluation_2_0.5": {
            "seconds": 1.0,
            "done": {"users": ["a", "b"], "success": success, "own": own, "turns": 4.0,
                     "acts": {"ask": 0.5, "close": 0.5}},
        }
    }  # fmt: skip


def folder(out, seed, name, phases, lines=()):
    path = out / f"seed_{seed}" / "arms" / name
    path.mkdir(parents=True)
    disk.write(path / "phases.json", phases)
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def out(tmp_path):
    """Two arms, the start and the ceiling of two seeds; the second arm lacks the second seed."""
    arm = lambda **fields: dataclasses.asdict(Arm(**fields))
    asked = {
        "arms": {
            "start": arm(learns="nothing") | {"folder": "start"},
            "ceiling": arm(learns="scripted") | {"folder": "ceiling"},
            "simulator": arm() | {"folder": "sim"},
            "assistant_100": arm(user="assistant_100") | {"folder": "asst"},
        },
        "ceilings": dict.fromkeys(("start", "ceiling", "simulator", "assistant_100"), "ceiling"),
        "against": "assistant_100",
        "claims": {"claim_training_user": ["simulator", "assistant_100"]},
        "dose": {"cooperative": ["assistant_100"]}, "measures": {},
        "evaluation": "evaluation_2_0.5", "goals": 2, "steps": 2, "tokens": 100,
        "curve_goals": 1, "seeds": 2, "start": None,
    }  # fmt: skip
    (tmp_path / "experiments").mkdir()
    disk.write(tmp_path / "experiments" / "training_user.json", asked)
    for seed in (0, 1):
        folder(tmp_path, seed, "start", judged([[0, 0], [0, 1]]))
        folder(tmp_path, seed, "ceiling", judged([[1, 1], [1, 1]]))
        lines = [
            step(0, 2, 90) | {"entropy": 0.5 + seed, "groups_without_variance": 5 / 9},
            step(1, 2, 100) | {"entropy": 0.25},
            *([{"phase": "curve", "step": 1, "success": 0.1}] if seed else []),
            {"phase": "curve", "step": 2, "success": 0.5 + 0.25 * seed},
            {"phase": "gates", "step": 0, "auc": None, "followed": 0.5},
        ]  # fmt: skip
        folder(tmp_path, seed, "sim", judged([[1, 0], [1, None]], own=[1, 0]), lines)
    folder(tmp_path, 0, "asst", judged([[0, 0], [1, 0]], own=[1, 1]))
    return tmp_path


def test_results_by_hand(out):
    claims = evidence_results.write(out)
    assert set(claims) == {
        "claim_training_user", "claim_csd", "dose", "mechanism", "difficulty", "seeds",
    }  # fmt: skip
    assert claims == json.loads((out / "evidence.json").read_text())
    # Users a: 1/2; b: 0 (its second goal is missing). Only seed 0 has both arms.
    assert claims["claim_training_user"]["difference"] == pytest.approx(0.25)
    assert claims["claim_training_user"]["seeds"] == [0]
    assert claims["claim_training_user"]["ci95_t"] is None  # of one seed
    assert claims["claim_csd"] is None and claims["seeds"] == 1
    held = json.loads((out / "results.json").read_text())["experiments"]["training_user"]
    arm = held["arms"]["simulator"]
    assert arm["mean"] == pytest.approx(0.75) and arm["seeds"] == [0, 1]
    assert arm["by_user"] == {"a": 0.5, "b": 1.0} and arm["ceiling"] == 1.0
    assert arm["own"]["mean"] == 0.5 and arm["learnable_tokens"] == 190
    assert arm["taught_tokens"] == 140  # of the first step's 90, half of whose groups are flat
    assert arm["missing"] == 0.25 and held["curve_start"] == 0.0
    # Saved at step 1 by one seed alone, which was stopped there: no point of the mean.
    assert arm["curve"] == [[190.0, 0.625]]
    assert arm["steps"]["entropy"] == [[0, 1.0], [1, 0.25]]
    assert arm["steps"]["followed"] == [[0, 0.5]] and "gate_auc" not in arm["steps"]
    (point,) = held["dose"]["cooperative"]
    assert (point["value"], point["success"]) == (1.0, 0.25)


def test_the_page_tells_what_there_is(out):
    evidence_results.write(out)
    html = page.write(out).read_text()
    assert "+0.25" in html and "not judged" in html and "not measured" in html
    assert "Scripted perfect agent" in html and html.count("<svg") > 5
    results = json.loads((out / "results.json").read_text())
    held = results["experiments"]["training_user"]
    (found, csd) = page.claims(results["experiments"])
    assert found.difference == "+0.25" and csd.verdict == "not measured"
    held["claims"]["claim_training_user"] |= {
        "seeds": [0, 1, 2, 3, 4], "by_seed": [0.2] * 5, "ci95": [0.01, 0.4]
    }  # fmt: skip
    assert page.claims(results["experiments"])[0].verdict == "holds"
    held["claims"]["claim_training_user"]["ci95"] = [-0.01, 0.4]
    assert page.claims(results["experiments"])[0].verdict == "fails"
    assert list(evidence_figures.ordered(held))[0] == "start"


def test_claims_are_told_in_parts_and_by_seed(out):
    evidence_results.write(out)
    held = json.loads((out / "results.json").read_text())["experiments"]["training_user"]
    five = {"seeds": [0, 1, 2, 3, 4], "by_seed": [0.04, 0.0036, -0.03, 0.01, 0.03], "alpha": 0.05,
            "difference": 0.01, "ci95_goals": [0.0, 0.02], "ci95_t": [-0.02, 0.04]}  # fmt: skip
    told = lambda ci95: page.claims(
        {"csd": held | {"claims": {"claim_csd": five | {"ci95": ci95}}}}
    )[1]
    verdicts = lambda ci95: [verdict for _, verdict in told(ci95).parts]
    assert verdicts([-0.02, 0.04]) == ["holds", "not shown"]
    assert verdicts([0.01, 0.04]) == ["holds", "shown"]
    assert verdicts([-0.04, 0.04]) == ["fails", "not shown"]
    assert told([-0.02, 0.04]).by_seed.startswith("+0.040 (seed 0), +0.004 (seed 1), −0.030")
    assert told([-0.02, 0.04]).by_t == "−0.02 to 0.04"


def test_an_experiment_of_other_models_is_named_and_left_out(out):
    evidence_results.write(out)
    old = disk.read(out / "experiments" / "training_user.json")
    disk.write(out / "experiments" / "csd.json", old | {"made": "other", "claims": {}})
    claims = evidence_results.write(out)
    assert claims["claim_training_user"] is None and claims["seeds"] == 0
    html = page.write(out).read_text()
    assert "Who trains the agent: made with other models or measures" in html
    assert "Coached self-distillation: made with other" not in html


def test_a_mean_without_its_draws_is_the_mean():
    values = np.random.default_rng(0).random((3, 4, 5))
    values[0, 1], values[2, :, 3] = np.nan, np.nan
    assert pooled.mean(values) == pytest.approx(pooled.over(values).mean, abs=1e-12)
    assert np.isnan(pooled.mean(np.full((2, 1, 3), np.nan)))


def test_what_was_wanted_is_told(out):
    evidence_results.write(out)
    held = json.loads((out / "results.json").read_text())["experiments"]["training_user"]
    (own,) = page._wanted(held)
    assert own[1:] == ("at least 0.9", "1.00", "yes")
    gaps = {"gap_simulator": -0.06, "gap_assistant": 0.2}
    rates = {"behaviour_rate_before": 0.5, "behaviour_rate_after": 0.65, "rising": 11,
             "control_rate_after": 0.1, "bad_format_rate": 0.03}  # fmt: skip
    measures = {"difficulty": {"gaps": {"start": gaps}}, "behaviours": rates}
    told = page._wanted(held | {"arms": {}, "measures": measures})
    assert [met for *_, met in told] == ["yes", "no", "yes", "yes", "no", "no", "yes"]


def test_a_folder_where_nothing_has_finished_has_a_page(out):
    for path in out.glob("seed_*/arms/*/phases.json"):
        path.unlink()
    evidence_results.write(out)
    assert "Nothing of it has finished yet" in page.write(out).read_text()


def test_labels_of_arms():
    assert evidence_figures.label("alpha_05") == "CSD, alpha 0.05"
    assert evidence_figures.label("alpha_00") == evidence_figures.label("long_00") == "No CSD"
    assert evidence_figures.label("long_30_entropy") == "CSD, alpha 0.3, entropy"
    assert evidence_figures.label("leaking_coach") == "Leaking coach"
