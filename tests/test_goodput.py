"""Goodput from event lines: by hand, across a kill, in older runs, and of files with nonsense."""

import json

import made_run
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mimesis_jax.report import goodput, page


def line(event, up, seconds=0.0, **more):
    return {"event": event, "time": 1000.0 + up, "up": up, "seconds": seconds, **more}


def step(number, up, rollout, update, phase="grpo"):
    return [
        line("rollout", up, rollout, phase=phase, step=number),
        line("update", up, update, phase=phase, step=number),
    ]


def test_work_by_wall_time_in_one_session():
    events = [
        line("start", 0.0),
        line("compile", 20.0, 8.0, phase="grpo", step=0, within=3.0),
        *step(0, 20.0, 6.0, 4.0),
        line("data", 30.0, 1.0, phase="sft", step=0),
        line("save", 34.0, 2.0),
        *step(1, 45.0, 6.0, 3.0),
        line("stop", 50.0),
    ]
    found = goodput.measure(events)
    # 3 of the 8 compiled seconds were inside step 0: its rollout, the first named, counts 6 - 3.
    assert found.work == {"rollout": 9.0, "score": 0.0, "update": 7.0}
    assert found.spent == {"compile": 8.0, "data wait": 1.0, "save": 2.0, "evaluate": 0.0}
    assert (found.wall, found.lost, found.away, found.sessions) == (50.0, 0.0, 0.0, 1)
    assert found.share == pytest.approx(16 / 50)
    assert found.rest == 50 - 16 - 11
    assert goodput.sentence(found) == "32 % of 50 s, in one go."


def test_steps_that_a_kill_undid_are_lost_and_time_off_is_told_apart():
    first = [line("start", 0.0), *step(0, 10.0, 4.0, 1.0), *step(1, 20.0, 4.0, 1.0)]
    later = [line("restart", 0.0), *step(1, 12.0, 4.0, 1.0), *step(2, 20.0, 4.0, 1.0)]
    for at in later:  # it began 100 s after the first one's last line
        at["time"] += 120.0
    found = goodput.measure(first + later)
    assert found.lost == 5.0 and sum(found.work.values()) == 15.0
    assert (found.wall, found.away, found.sessions) == (40.0, 100.0, 2)
    assert goodput.sentence(found) == "38 % of 40 s, in 2 sessions, 100 s apart."
    names = [row.label for row in goodput.tracks(found).rows]
    assert names == ["rollout", "update", "lost to a kill", "all else"]


def test_a_clock_that_is_set_back_changes_nothing_but_the_time_between():
    events = [line("start", 0.0), *step(0, 10.0, 4.0, 1.0), line("restart", 0.0)]
    events += [*step(1, 10.0, 4.0, 1.0), line("stop", 10.0)]
    jumped = [dict(at) for at in events]
    for at in jumped[3:]:
        at["time"] -= 5000.0
    assert goodput.measure(jumped) == goodput.measure(events)


def test_bars_follow_one_another_to_the_end_of_the_wall():
    found = goodput.measure([line("start", 0.0), *step(0, 40.0, 20.0, 10.0), line("stop", 40.0)])
    bars = [row.marks[0] for row in goodput.tracks(found).rows]
    assert [(bar.a, bar.b) for bar in bars] == [(0.0, 50.0), (50.0, 75.0), (75.0, 100.0)]
    told = [row.value for row in goodput.tracks(found).rows]
    assert told == ["50 %, 20 s", "25 %, 10 s", "25 %, 10 s"]
    little = [line("start", 0.0), *step(0, 1000.0, 999.0, 0.0), line("save", 1000.0, 0.1)]
    told = [row.value for row in goodput.tracks(goodput.measure(little)).rows]
    assert told == ["100 %, 16 min 39 s", "under 1 %, 0.1 s", "under 1 %, 0.9 s"]


def test_runs_whose_lines_have_no_clock_of_their_own_are_read_by_the_machines():
    events = [line("start", 0.0), *step(0, 10.0, 4.0, 1.0), line("stop", 25.0)]
    for at in events:
        del at["up"]
    assert goodput.measure(events).wall == 25.0


@pytest.mark.parametrize("events", [[], [line("start", 0.0)], [line("save", 3.0, 1.0)], [{}]])
def test_without_sessions_or_work_there_is_nothing_to_say(events):
    found = goodput.measure(events)
    assert found is None and goodput.tracks(found) is None and goodput.sentence(found) == ""


values = st.none() | st.floats() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
names = st.sampled_from(["start", "restart", "rollout", "update", "compile", "save", "stop", 7])


@given(st.lists(st.fixed_dictionaries({"event": names}, optional=dict.fromkeys(
    ("time", "up", "seconds", "within", "phase", "step"), values)), max_size=12))  # fmt: skip
def test_nonsense_in_the_file_never_stops_the_report(events):
    found = goodput.measure(events)
    if found is not None:
        assert 0.0 <= found.share <= 1.0 and found.rest >= 0.0
        assert goodput.tracks(found).rows and goodput.sentence(found)


def test_the_page_shows_it(tmp_path):
    made_run.make_run(tmp_path)
    events = [line("start", 0.0), *step(0, 40.0, 20.0, 10.0), line("stop", 40.0)]
    (tmp_path / "events.jsonl").write_text("".join(json.dumps(at) + "\n" for at in events))
    shown = page.write(tmp_path).read_text()
    assert "Goodput: 75 % of 40 s, in one go." in shown and "Where the wall time went" in shown
    (tmp_path / "events.jsonl").unlink()
    assert "Goodput" not in page.write(tmp_path).read_text()
