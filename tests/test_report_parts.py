"""The parts of the report, with numbers worked by hand."""

import json
import random

import made_run
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimesis_jax.report import (
    agents,
    checks,
    curves,
    dialogues,
    figures,
    folder,
    numbers,
    provenance,
    simulator,
)


def test_numbers_by_hand():
    assert numbers.show(0.3149) == "0.31" and numbers.show(-0.046) == "−0.05"
    assert numbers.show(2.4e-7, 6) == "2.4e−7" and numbers.show(None) == numbers.NONE
    assert numbers.show(0, 3) == "0.000" and numbers.signed(0.37) == "+0.37"
    assert numbers.seconds(8.44) == "8.4 s" and numbers.seconds(842) == "14 min 02 s"
    assert numbers.seconds(119.6) == "2 min 00 s"
    assert numbers.finite(True) is None and numbers.finite(float("nan")) is None
    assert numbers.interval([0.4, 0.2]) == numbers.Interval(0.2, 0.4)
    assert numbers.interval(0.25, 0.5) == numbers.Interval(0.25, 0.75)
    assert numbers.interval({"lo": 0, "hi": 1}) == numbers.Interval(0, 1)
    assert numbers.interval("x", 0.5) is None
    assert not numbers.Interval(0, 1).meets(numbers.Interval(1.1, 2))


def test_axis_has_round_ticks_around_the_values():
    assert figures.axis([0.13, 0.92]).ticks == pytest.approx((0.0, 0.2, 0.4, 0.6, 0.8, 1.0))
    bars = figures.axis([78.3, 152.6], zero=True)
    assert bars.ticks == (0, 50, 100, 150, 200) and bars.at(50) == 25
    assert [t.text for t in figures.UNIT.marked()] == ["0.00", "0.25", "0.50", "0.75", "1.00"]
    assert figures.axis([3.0, 3.0]).at(3.0) > 0  # a flat line has an axis too


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9))
def test_axis_covers_any_values(values):
    scale = figures.axis(values)
    slack = 1e-6 * max(1.0, *map(abs, values))
    assert scale.lo <= min(values) + slack and scale.hi >= max(values) - slack
    assert 2 <= len(scale.ticks) <= 8


def test_panel_geometry_by_hand():
    points = [figures.Point(0, 0.0), figures.Point(5, 0.5, 0.25, 0.75), figures.Point(10, 1.0)]
    drawn = figures.panel("Success", [("a", "grpo", points)], y=figures.UNIT)
    assert drawn.lines[0].path == "M0 100L50 50L100 0" and drawn.lines[0].band == ""
    assert drawn.window == 1 and drawn.says == "Success, first to last step: a from 0.00 to 1.00."
    banded = [figures.Point(x, 0.5, 0.25, 0.75) for x in (0, 10)]
    assert figures.panel("s", [("a", "t", banded)], y=figures.UNIT).lines[0].band == (
        "M0 25L100 25L100 75L0 75Z"
    )
    assert figures.panel("nothing", [("a", "grpo", [])]) is None


def test_smoothing_is_a_centred_mean():
    points = [figures.Point(x, float(x == 2)) for x in range(5)]
    assert [round(p.y, 3) for p in figures.smooth(points, 3)] == [0, 0.333, 0.333, 0.333, 0]


def test_curve_points_take_the_band_that_is_there():
    rows = [
        {"step": 0, "success": 0.5, "success_std": 0.1, "episodes": 49},
        {"step": 1, "success": 0.5, "success_lo": 0.45, "success_hi": 0.6},
        {"step": 2, "success": None},
        {"step": 3, "success": 0.7, "success_std": 0.46},
    ]
    found = [(p.x, p.lo, p.hi) for p in curves.points(rows, "success")]
    assert found == [(0, 0.472, 0.528), (1, 0.45, 0.6), (3, None, None)]  # 1.96 * 0.1 / 7


def test_curves_without_a_band_show_the_spread_of_their_steps():
    line = [figures.Point(x, y) for x, y in enumerate((0.0, 1.0, 0.0, 1.0, 0.0))]
    middle = curves.spread(line)[2]  # two ones among five: variance 5 * 0.4 * 0.6 / 4 = 0.3
    assert (middle.lo, middle.hi) == pytest.approx((-(0.3**0.5), 0.3**0.5))
    assert curves.spread(line[:4]) == line[:4]


def test_stop_reasons_and_acts_have_panels_and_zeros_none():
    rows = [
        {"step": n, "success": 0.5, "stop_done": 0.4, "stop_left": 0.0, "act_share_ask": 0.2}
        for n in range(3)
    ]
    found = curves.curves({"agent_grpo": rows})
    assert [p.title for p in found.stops] == ["done"]
    assert [p.title for p in found.acts] == ["ask"]


def test_origin_opens_objects_and_leaves_the_host_out(tmp_path):
    versions = {"host": "my-laptop", "packages": {"jax": "0.10.2"}, "git": None, "seed": 3}
    (tmp_path / "versions.json").write_text(json.dumps(versions))
    assert provenance.origin(folder.read(tmp_path)) == [
        ("packages.jax", "0.10.2"),
        ("git", "null"),
        ("seed", "3"),
    ]


def test_steps_between_agents():
    found = agents.agents(
        {
            "agent": {
                "start": {"mean": 0.3, "ci95": [0.25, 0.35]},
                "grpo": {"mean": 0.7, "ci95": [0.65, 0.75]},
                "csd": {"mean": 0.72, "ci95": [0.66, 0.78]},
            }
        }
    )
    moves = [(s.before.key, s.after.key, round(s.gain, 6), s.apart) for s in agents.steps(found)]
    assert moves == [("start", "grpo", 0.4, True), ("grpo", "csd", 0.02, False)]
    # over the same cases, where the run has that
    paired = {"grpo_minus_start": {"mean": 0.41, "ci95": [0.3, 0.5]}, "csd_minus_grpo": {}}
    first, second = agents.steps(found, paired)
    assert (first.gain, str(first.ci95)) == (0.41, "0.30 to 0.50")
    assert second.ci95 is None and second.gain == pytest.approx(0.02)


def test_checks_judge_what_was_measured():
    summary = made_run.make_summary(random.Random(1))
    summary["agent"]["start"]["mean"], summary["agent"]["grpo"]["mean"] = 0.30, 0.50
    assert {c.verdict for c in checks.checks(summary)} == {"holds"}
    summary["agent"]["grpo"]["mean"] = 0.49
    summary["simulator"] |= {"hash_end": "other", "thought_leak_rate": 1e-6, "nll_thoughts": 1.7}
    summary["csd"] |= {"null_probe_abs": 1e-3, "params_differ": False}
    summary["compiles_after_warmup"] = 2
    verdicts = [c.verdict for c in checks.checks(summary)]
    assert verdicts.count("fails") == 7 and verdicts.count("holds") == 1
    assert {c.verdict for c in checks.checks({"seconds": 1})} == {"not measured"}


def test_behaviour_rates_in_their_three_forms():
    rows = simulator.behaviours(
        {
            "behaviour_rates": {"a": 0.5, "b": {"before": 0.1, "after": 0.4}, "c": [0.2, 0.3]},
            "behaviour_rates_before": {"a": 0.25},
        }
    ).rows
    assert [(r.label, r.value) for r in rows] == [
        ("a", "0.25 → 0.50"),
        ("b", "0.10 → 0.40"),
        ("c", "0.20 → 0.30"),
    ]


def test_tokens_are_laid_over_the_text_they_spell():
    pieces = dialogues.align(
        "set size  large", ["set", " size", " large", "<|end|>"], [0.1, 0.2, 0.3, 0.4]
    )
    assert [(p.gap, p.text, p.gate) for p in pieces] == [
        ("", "set", 0.1),
        (" ", "size", 0.2),
        ("  ", "large", 0.3),
        (" ", "<|end|>", None),
    ]
    assert dialogues.align("close", ["think", "close"], [0.1, 0.2]) is None
    assert dialogues.align("close it", ["close"], [0.1]) is None


def test_tokens_of_private_reasoning_stay_in_the_fold(tmp_path):
    row = {
        "phase": "agent_csd",
        "turns": [{"author": "agent", "public": "close", "only": None}],
        "private": ["all is done"],
        "rewards": [1.0],
        "success": 1.0,
        "csd": [
            {"turn": 0, "note": "n", "tokens": ["all", "is", "done", "close"], "gate": [0.5] * 4}
        ],
    }
    turn = dialogues.shot(row).turns[0]
    assert turn.apart and turn.public == "close"
    assert [p.gap + p.text for p in turn.pieces] == ["all", " is", " done", " close"]


def test_choice_takes_both_outcomes_and_the_latest_step():
    rng = random.Random(3)
    rows = [
        made_run.make_episode(rng, phase, step, copy)
        for phase in ("agent_grpo", "agent_csd")
        for step in (1, 30)
        for copy in range(8)
    ]
    for n, row in enumerate(rows):
        row["success"] = float(n % 2)
    chosen, count = dialogues.choose(iter(rows))
    assert count == 32
    kinds = [(row["phase"], dialogues.succeeded(row), row["step"]) for row in chosen]
    assert kinds == [
        ("agent_csd", True, 30),
        ("agent_csd", False, 30),
        ("agent_grpo", True, 30),
        ("agent_grpo", False, 30),
    ]


def test_unknown_keys_are_kept():
    rest = provenance.unknown(
        {
            "seconds": 1,
            "extra": [1],
            "csd": {"alpha": 1, "auc": 0.9},
            "agent": {"start": {"mean": 0.1, "turns": 5}},
        }
    )
    assert rest == [("extra", "[1]"), ("csd.auc", "0.9"), ("agent.start.turns", "5")]
