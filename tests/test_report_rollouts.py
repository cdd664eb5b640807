"""What playing cost, as the report says it: by hand, and on a whole page."""

import json

from made_run import make_run

from mimesis_jax.report import page, rollouts

LINES = [
    {"step": 0, "agent_tokens_per_s": 100.0, "user_tokens_per_s": 300.0, "agent_slots_busy": 0.5,
     "user_refed_tokens": 40, "agent_refed_tokens": 0, "idle_s": 0.25, "wait_agent_s": 0.5,
     "sampler_gap_max": 2e-6, "agent_retokenised": 0.0},
    {"step": 1, "agent_tokens_per_s": 300.0, "user_tokens_per_s": 500.0, "agent_slots_busy": 0.7,
     "user_refed_tokens": 60, "agent_refed_tokens": 0, "idle_s": 0.5, "wait_agent_s": 1.0,
     "sampler_gap_max": 5e-6, "agent_retokenised": float("nan")},
]  # fmt: skip


def test_a_stage_s_figures_by_hand():
    table = rollouts.table({"agent_csd": LINES, "user_behaviours": [], "base": [{"step": 0}]})
    assert table.columns == ("GRPO + CSD",)
    cells = {label: texts for label, texts, _ in table.rows}
    assert cells["Tokens per second"] == ("200 / 400",)  # means
    assert cells["Slots busy"] == ("0.60 / –",)  # the user's was not counted
    assert cells["Tokens fed again"] == ("0 / 100",)  # sums
    assert cells["Seconds with nothing to do"] == ("0.75",)
    assert cells["Seconds a turn took"] == ("0.750 / – / –",)
    assert cells["Sampler off the trainer, nats"] == ("0.000005",)  # the worst
    assert cells["Replies tokenised otherwise"] == ("0.000 / –",)  # what is no number is left out
    assert "Prefill saved, shared prompt" not in cells


def test_a_run_that_played_nothing_has_no_table():
    assert rollouts.table({}) is None
    assert rollouts.table({"agent_grpo": [{"step": 0, "success": 0.5}]}) is None
    assert rollouts.table({"base": LINES}) is None  # a supervised stage plays nothing


def test_the_page_shows_it(tmp_path):
    run = tmp_path / "run"
    make_run(run)
    assert "<h3>Rollouts</h3>" not in page.write(run).read_text()
    with (run / "metrics.jsonl").open("a") as file:
        for line in LINES:
            file.write(json.dumps({"phase": "agent_grpo", **line}) + "\n")
    text = page.write(run).read_text()
    assert "<h3>Rollouts</h3>" in text and "200 / 400" in text
