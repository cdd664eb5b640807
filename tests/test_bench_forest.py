"""The benches of the forest and of CSD: their workloads, their forms, and their figures' shape."""

import dataclasses

import numpy as np
import pytest
from small_desk import quick_compiles  # noqa: F401 - acts by being here

from mimesis_jax.bench import csd, expansion, forest, forms, measure, workloads
from mimesis_jax.forest import tree
from mimesis_jax.types import segment

SPEC = forest.model(True)
BENCH = forest.Bench(SPEC, forest.parameters(SPEC), forest.QUICK)
RATIOS = ("padded", "packed", "token_ratio_padded", "token_ratio_packed")


def test_thinking_dialogues_by_hand():
    """Three turns of 5 public and 7 private tokens: paths of 12, 17 and 22, 51 tokens for 36."""
    trees = workloads.thinking(2, 3, workloads.constant(5), workloads.constant(7), 50, seed=0)
    assert [[p.parent for p in one] for one in trees] == [[-1, 0, 0, 2, 2, 4]] * 2
    assert tree.scored_count(trees) == 2 * 3 * 7
    rows = expansion.expand(trees).rows
    assert [len(row[0]) for row in rows] == 2 * [12, 17, 22]
    coached, gate = tree.column(trees, "coached"), tree.column(trees, "gate")
    assert 0 < coached.sum() < len(coached) and not gate[coached == 0].any()


def test_lognormal_lengths_have_the_mean_that_is_asked_for():
    lengths, rng = workloads.lognormal(60), np.random.default_rng(0)
    drawn = [lengths(rng) for _ in range(4000)]
    assert np.mean(drawn) == pytest.approx(60, rel=0.05)
    assert min(drawn) >= 2 and max(drawn) <= 400


def test_forms_are_laid_without_waste():
    """Twelve tokens and more a path, rows of the longest: 24 places a dialogue's forest of 36."""
    trees = workloads.thinking(4, 3, workloads.constant(5), workloads.constant(7), 50, seed=0)
    setting = forms.Setting(chunk=8, stretch=1.0, tokens=4096)
    made = {name: forms.lay(name, trees, setting, SPEC) for name in forms.FORMS}
    assert made["forest"].shape == (1, 4, 48, 21)  # six parts of 8 places
    assert made["padded"].shape == (1, 12, 24, 7)
    assert made["packed"].shape == (1, 12, 24, 7)  # 12 and 17 do not share a row of 24
    assert made["forest"].tokens == 4 * 36 and made["padded"].tokens == 4 * 51
    wide = forms.lay("packed", trees, dataclasses.replace(setting, stretch=3.0), SPEC)
    assert wide.shape[:3] == (1, 4, 72)  # four of 16 places and eight of 24
    small = forms.lay("packed", trees, dataclasses.replace(setting, tokens=100), SPEC)
    assert small.shape == (3, 4, 24, 7)
    long = [(segment(np.ones(2100), scored=np.arange(2100) > 2090),)]
    assert forms.lay("forest", long, setting, SPEC).shape[2] == 2304  # whole blocks of 256
    assert dataclasses.replace(setting, block=64).rows(6404, 2).length == 6464  # of 64
    assert setting.rows(1000, 2).length == 1000 and setting.rows(1020, 2).length == 1024
    lists = dataclasses.replace(setting, block=32)
    for name in forms.FORMS:
        (listed,) = forms.lay(name, trees, lists, SPEC).forests
        assert listed.blocks.size == 32 and listed.tokens.shape[1] == (
            64 if name == "forest" else 32
        )
    deep = workloads.thinking(1, 3, workloads.constant(5), workloads.constant(7), 50, seed=0)
    with pytest.raises(ValueError, match="tree 0 nests its forks so that 2 state slots"):
        forms.lay("forest", [fork(deep[0])], setting, SPEC, slots=1)


def fork(one):
    """The dialogue with a second branch below its first branch, and one beside that."""
    tip = segment([1, 2], 1, scored=True)
    return (*one, tip, dataclasses.replace(tip))


def test_a_workload_is_compared():
    """The forms agree on log-probs and gradients; ratios of tokens are those of the shapes."""
    trees = workloads.thinking(3, 3, workloads.constant(5), workloads.lognormal(7), 50, seed=0)
    tuned = {name: forms.Setting(8, 1.0, 4096) for name in forms.FORMS}
    found = BENCH.compare("three turns", trees, tuned)
    assert found["logprob_diff"] < 1e-4 and found["grad_diff"] < 1e-4
    made = {name: forms.lay(name, trees, forms.Setting(8, 1.0, 4096), SPEC) for name in forms.FORMS}
    for name in ("padded", "packed"):
        ratio = made[name].places / made["forest"].places
        assert found[f"token_ratio_{name}"] == pytest.approx(ratio)
        assert found[name] == pytest.approx(found["seconds"][name] / found["seconds"]["forest"])
    assert found["padding_share"] == 1 - made["forest"].tokens / made["forest"].places
    assert set(RATIOS) < set(found) and set(found["tokens_per_s"]) == set(forms.FORMS)


def test_the_summary_says_what_is_met():
    """One workload is at 0.9 of its token ratio; the demo's lines are slower than plain rows."""
    good = dict(padded=4.0, token_ratio_padded=4.0, packed=2.0, token_ratio_packed=2.0, real=1.0,
                work_ratio_padded=5.0, work_ratio_packed=2.0,
                logprob_diff=1e-6, grad_diff=2e-5, padding_share=0.1, tokens_per_s={})  # fmt: skip
    bad = good | {"packed": 0.9, "token_ratio_packed": 1.0, "real": 0.9, "grad_diff": 2e-4}
    bad |= {"work_ratio_packed": 1.2}
    figures = {"turns": {"8": good}, "demo_lengths": good, "demo_agent_lengths": bad}
    found = forest._summary([good, bad], figures)
    assert found["time_over_token_ratio"] == pytest.approx(0.9)
    assert found["time_over_work_ratio"] == pytest.approx(0.75)
    assert found["max_logprob_diff"] == 1e-6 and found["grad_rel_diff"] == 2e-4
    assert list(found["meets"].values()) == [False, False, False, True, False]
    found = forest._summary([good], figures | {"demo_agent_lengths": good})
    assert list(found["meets"].values()) == [True] * 5


@pytest.mark.slow
def test_the_bench_has_the_figures_of_the_issue():
    found = forest.run(["--quick"])
    assert list(found["turns"]) == ["4", "8", "16"]
    for one in (*found["turns"].values(), found["lognormal"], found["demo_lengths"]):
        assert all(one[name] > 0 for name in RATIOS)
    assert found["max_logprob_diff"] <= 1e-4 and found["grad_rel_diff"] <= 1e-4
    assert 0 < found["padding_share"] < 1 and found["tokens_per_s"]["forest"] > 0


def test_csd_ratios_by_hand():
    """Notes and scoring cost 0.5, an update 1, scoring the old log-probs 0.25."""
    seconds = {"plain 1": 1.0, "plain 2": 2.0, "scored 1": 1.25, "scored 2": 2.25, "csd 1": 1.5,
               "csd 2": 2.5}  # fmt: skip
    assert csd.ratios(seconds, "cpu_") == {
        "cpu_step_ratio": 1.2,
        "cpu_step_ratio_two_updates": pytest.approx(2.5 / 2.25),
        "cpu_step_ratio_plain": 1.5,
        "cpu_step_ratio_plain_two_updates": 1.25,
    }


def test_a_csd_step_is_compared_with_a_plain_one(capsys):
    found = csd.run(["--quick"])
    assert found["step_ratio"] == pytest.approx(
        found["seconds"]["csd 1"] / found["seconds"]["scored 1"]
    )
    assert found["episodes"] == 9 and 0 < found["coached_tokens"] <= found["scored_tokens"]
    assert list(found["meets"]) == [
        "step_ratio at most 1.35",
        "step_ratio_two_updates at most 1.35",
    ]
    parts = {"notes", "scoring", "old log-probs", "credit", "update", "csd update"}
    assert parts == set(found["parts"])
    with pytest.raises(measure.BenchError, match="--copies 0: use 1 or more"):
        csd.run(["--copies", "0"])
