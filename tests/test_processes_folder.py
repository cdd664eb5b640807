"""The run folder of several processes: who writes what, and who knows what."""

import json

import pytest

from mimesis_jax.runs import disk, folder, processes, processes_folder

CONFIG = {"steps": 3, "checkpoints": {"keep": 4}}


def as_process(monkeypatch, index, meet=lambda value, name: [value]):
    monkeypatch.setattr(processes, "index", lambda: index)
    monkeypatch.setattr(processes, "count", lambda: 2)
    monkeypatch.setattr(processes, "agree", meet)


def files(path):
    return sorted(str(p.relative_to(path)) for p in path.rglob("*") if p.is_file())


def test_alone_it_is_the_run_folder(tmp_path):
    with processes_folder.opened(tmp_path / "run", CONFIG, seed=3) as run:
        assert type(run) is folder.Run
    assert disk.read(tmp_path / "run" / "versions.json")["seed"] == 3


def test_process_0_writes_and_tells_the_others(tmp_path, monkeypatch):
    told = []
    as_process(monkeypatch, 0, lambda value, name: told.append((name, value)) or [value, None])
    with processes_folder.opened(tmp_path / "run", CONFIG) as run:
        run.hash("simulator", "abc")
        run.begin("sft")
        run.finish("sft", {"hash": "def"})
    assert told[0][0] == processes_folder.MEETING and told[0][1]["restarted"] is False
    with processes_folder.opened(tmp_path / "run", CONFIG):
        pass
    name, value = told[1]
    assert value["restarted"] and value["hashes"] == {"simulator": "abc"}
    assert value["phases"]["sft"]["done"] == {"hash": "def"}
    assert json.loads(json.dumps(value)) == value


TOLD = {
    "restarted": True, "hashes": {"simulator": "abc"},
    "phases": {"sft": {"begin": {"metrics": 0, "episodes": 0}, "done": {"hash": "def"}}},
}  # fmt: skip


def test_another_process_writes_its_own_events_and_nothing_else(tmp_path, monkeypatch):
    as_process(monkeypatch, 1, lambda value, name: [TOLD, None])
    out = tmp_path / "run"
    with processes_folder.opened(out, CONFIG) as run:
        assert run.restarted and run.done("sft") == {"hash": "def"} and run.checkpoints.keep == 4
        assert run.hashes() == {"simulator": "abc", "sft": "def"}
        with pytest.raises(disk.RunError, match="simulator has the hash xyz"):
            run.hash("simulator", "xyz")
        run.begin("grpo", {"metrics": 900, "episodes": 700, "seconds": 4.0})
        run.metrics("grpo", 0, {"nll": 1.0})
        with run.timed("update", phase="grpo"):
            pass
        assert run.seconds("grpo") >= 4.0 and run.mark("grpo")["metrics"] == 0
        run.write("summary.json", {"hash": "x"})
        run.push()
        run.finish("grpo", {"hash": "ghi"})
        assert run.done("grpo") == {"hash": "ghi"}
        with pytest.raises(disk.RunError, match="phase 'grpo' is finished"):
            run.begin("grpo")
    assert files(out) == ["process-1/events.jsonl"]
    events = [line["event"] for line in disk.lines(out / "process-1" / "events.jsonl")]
    assert events == ["restart", "update", "stop"]


def test_an_opened_folder_is_given_free_when_the_others_do_not_come(tmp_path, monkeypatch):
    def nobody(value, name):
        raise processes.ProcessError("process 1 is gone", processes.LOST)

    as_process(monkeypatch, 0, nobody)
    with pytest.raises(processes.ProcessError, match="process 1 is gone"):
        processes_folder.opened(tmp_path / "run", CONFIG)
    assert not (tmp_path / "run" / "lock").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path, monkeypatch):
    as_process(monkeypatch, 1, lambda value, name: [TOLD, None])
    (tmp_path / "run").write_text("a file")
    with pytest.raises(disk.RunError, match="process-1"):
        processes_folder.opened(tmp_path / "run", CONFIG)
