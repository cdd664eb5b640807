"""Ends and traces of a stage: SIGTERM over processes, TensorBoard's points, profiler traces."""

import contextlib
import os
import signal
import struct

import jax.numpy as jnp
import pytest
from tensorboardX.proto import event_pb2

from mimesis_jax import cli
from mimesis_jax.build import ending
from mimesis_jax.runs import boards, checkpoint, disk, folder, processes, profiles, signals


def sigterm():
    os.kill(os.getpid(), signal.SIGTERM)


# --- SIGTERM ------------------------------------------------------------------------------------


def test_a_sigterm_is_obeyed_where_the_state_is_whole(capsys):
    done = []
    with pytest.raises(signals.Terminated, match="saved after step 2"), signals.heard():
        with signals.held():
            for step in range(5):
                if step == 1:
                    sigterm()
                done.append(step)
                if signals.asked() and step == 2:
                    signals.obey("saved after step 2")
    assert done == [0, 1, 2] and not signals.asked()
    assert "the state is saved after this step" in capsys.readouterr().err


def test_outside_training_it_ends_at_once_and_no_except_exception_stops_it():
    with pytest.raises(signals.Terminated, match="nothing was saved since"), signals.heard():
        with contextlib.suppress(Exception):
            sigterm()
        raise AssertionError("not reached")
    with pytest.raises(signals.Terminated, match="between two stages"), signals.heard():
        with signals.held():
            sigterm()  # the last step was done: the stage ends, then the process
        raise AssertionError("not reached")


def test_the_command_line_ends_with_its_own_status_and_the_command(monkeypatch, capsys):
    def work(settings, out):
        sigterm()

    monkeypatch.setattr("mimesis_jax.build.verbs.train", work)
    assert cli.main(["train", "--config", "thoughttrace", "--out", "somewhere"]) == 143
    said = capsys.readouterr().err
    assert said == (
        "terminated: nothing was saved since the last checkpoint; to go on from the last "
        "checkpoint: mimesis train --config thoughttrace --out somewhere\n"
    )


def test_a_notice_to_one_process_ends_all_of_them(monkeypatch, tmp_path):
    """The others' answers are planted: what they do with them is the same code."""
    monkeypatch.setattr(processes, "count", lambda: 2)
    answers = iter([[False, False], [False, True]])
    monkeypatch.setattr(processes, "agree", lambda value, name: next(answers))
    with signals.heard():
        assert not ending.asked("sft")
        assert ending.asked("sft") and signals.asked()
        monkeypatch.undo()
        with checkpoint.Store(tmp_path) as store:
            store.save(3, {"x": jnp.ones(2)})
            ending.after(store, "sft", 9, 9)  # the last step: the stage ends anyway
            with pytest.raises(signals.Terminated, match="sft was saved after step 3 of 9"):
                ending.after(store, "sft", 3, 9)
    assert not signals.asked()


# --- points -------------------------------------------------------------------------------------


def points(path):
    """(step, name, value) of each point in an event file, and the steps of restarts in it."""
    data, at, found, began = path.read_bytes(), 0, [], []
    while at < len(data):
        (length,) = struct.unpack("Q", data[at : at + 8])
        event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
        at += 16 + length
        found += [(event.step, value.tag, value.simple_value) for value in event.summary.value]
        if event.HasField("session_log"):
            began.append(event.step)
    return found, began


def test_points_are_on_the_disk_after_close_and_a_restart_voids_those_it_repeats(tmp_path):
    for first in (0, 2):
        board = boards.Board(tmp_path, first)
        for step in range(first, first + 3):
            board.add(step, {"loss": 1.5 * step, "word": "x", "none": None})
        board.close()
    (one, began), (two, again) = sorted(map(points, tmp_path.iterdir()))
    assert one == [(0, "loss", 0.0), (1, "loss", 1.5), (2, "loss", 3.0)] and began == [0]
    assert two == [(2, "loss", 3.0), (3, "loss", 4.5), (4, "loss", 6.0)] and again == [2]


def test_points_that_cannot_be_written_stop_the_run_with_the_mend(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(disk.RunError, match="cannot write"):
        boards.Board(tmp_path / "file" / "board", 0)


# --- traces -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "0", "-1", "many", "sft:", "sft:x", "1.5"])
def test_a_profile_of_no_steps_is_refused(text):
    with pytest.raises(disk.RunError, match="give how many steps to trace"), profiles.asked(text):
        pass


def test_warm_steps_of_the_phase_that_was_asked_for_are_traced(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(profiles.jax.profiler, "start_trace", lambda p: calls.append(("start", p)))
    monkeypatch.setattr(profiles.jax.profiler, "stop_trace", lambda: calls.append(("stop",)))
    where = tmp_path / "profile"

    def phase(name, steps):
        with contextlib.closing(profiles.Trace(where, name)) as trace:
            for step in range(steps):
                calls.append(step)
                trace.step()

    with profiles.asked("grpo:2"):
        phase("sft", 2)
        phase("grpo", 5)
        phase("grpo", 2)  # once a process
    assert calls == [0, 1, 0, ("start", str(where)), 1, 2, ("stop",), 3, 4, 0, 1]
    calls.clear()
    with profiles.asked("7"):
        phase("sft", 3)  # ends before the trace does
    assert calls == [0, ("start", str(where)), 1, 2, ("stop",)]
    calls.clear()
    with profiles.asked(None):
        phase("sft", 2)
    assert calls == [0, 1]


def test_a_trace_is_written_into_the_run(tmp_path):
    with profiles.asked("1"), contextlib.closing(profiles.Trace(tmp_path / "p", "sft")) as trace:
        for step in range(2):
            (jnp.ones(8) * step).block_until_ready()
            trace.step()
    assert list((tmp_path / "p").rglob("*.xplane.pb"))


def test_a_profile_is_no_part_of_the_configuration(tmp_path):
    with profiles.asked("3"), folder.Run(tmp_path, {"a": 1}):
        pass
    folder.Run(tmp_path, {"a": 1}).close()
