"""Tests of cli: help, overrides, one-line errors with their exit status, interrupts, dispatch."""

import subprocess
import sys
import time
import types

import pytest

import mimesis_jax.build
import mimesis_jax.types
from mimesis_jax import cli, config
from mimesis_jax.report import page

FILE = '''"""A tiny experiment."""
from ml_collections import ConfigDict

def get_config():
    return ConfigDict({"seed": 7, "agent": {"steps": 30}})
'''
VERBS = [
    "demo",
    "train",
    "evaluate",
    "chat",
    "data build",
    "data show",
    "report",
    "forest",
    "bench",
]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.py"
    path.write_text(FILE)
    return str(path)


@pytest.fixture
def build(monkeypatch):
    """A stand-in for the composition root that keeps what it was called with."""
    calls = []
    kept = lambda name: lambda *args, **more: calls.append((name, args, more)) or {"nll": 2.5}
    fake = types.ModuleType("mimesis_jax.build.verbs")
    for name in ("demo", "train", "evaluate", "chat"):
        setattr(fake, name, kept(name))
    monkeypatch.setitem(sys.modules, "mimesis_jax.build.verbs", fake)
    monkeypatch.setattr(mimesis_jax.build, "verbs", fake, raising=False)
    fake.calls = calls
    return fake


@pytest.mark.parametrize("verb", VERBS)
def test_help_says_what_is_read_and_written_with_an_example(verb, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([*verb.split(), "--help"])
    said = capsys.readouterr().out
    assert end.value.code == 0
    assert "\nreads " in said and "\nwrites " in said and f"example: mimesis {verb}" in said


def test_help_loads_nothing_heavy():
    code = (
        "import sys\nfrom mimesis_jax import cli\n"
        "try: cli.main(['demo', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('jax', 'flax', 'orbax', 'tensorflow', 'numpy') if m in sys.modules])"
    )
    start = time.monotonic()
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert got.stdout.splitlines()[-1] == "[]", got.stdout
    assert time.monotonic() - start < 5


def test_demo_train_and_evaluate_get_the_configuration_and_the_folder(
    file, build, tmp_path, capsys
):
    out = tmp_path / "out"
    said = ["--config", file, "--out", str(out), "--config.agent.steps=40"]
    assert cli.main(["demo", "--quick", *said]) == 0
    assert cli.main(["train", *said]) == 0
    assert cli.main(["evaluate", *said[:2]]) == 0
    (demo, train, evaluate) = build.calls
    assert demo[0] == "demo" and demo[1][1] == out and demo[2] == {"quick": True}
    assert demo[1][0].agent.steps == 40
    assert train[0] == "train" and train[1][0].agent.steps == 40 and train[1][1] == out
    assert evaluate[1][0].agent.steps == 30 and str(evaluate[1][1]) == "runs/tiny"
    assert '"nll": 2.5' in capsys.readouterr().out


def test_chat_and_report_get_their_run(build, tmp_path, monkeypatch):
    assert cli.main(["chat", str(tmp_path), "--as", "user", "--goal", "3", "--thoughts"]) == 0
    assert build.calls == [("chat", (tmp_path,), {"chair": "user", "goal": 3, "thoughts": True})]
    seen = []
    monkeypatch.setattr(page, "write", seen.append)
    assert cli.main(["report", str(tmp_path)]) == 0
    assert seen == [tmp_path]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--config.agent.stepz=4"],
            "unknown key config.agent.stepz; did you mean config.agent.st",
        ),
        (["--config.agent.steps=many"], "config.agent.steps='many' is a str: it must be an int"),
        (["--config.agent.steps"], "write --config.agent.steps=VALUE"),
        (["--fast"], "'--fast' means nothing"),
    ],
)
def test_wrong_words_are_one_line_and_exit_2(file, build, words, said, capsys):
    assert cli.main(["train", "--config", file, *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and error.startswith("mimesis: ")
    assert build.calls == []


def test_a_missing_file_is_one_line(build, capsys, tmp_path):
    assert cli.main(["train", "--config", str(tmp_path / "none.py")]) == 2
    assert "no configuration file" in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path / "none"), "--config.x=1"]) == 2
    assert "means nothing to report" in capsys.readouterr().err
    assert cli.main(["report", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def fails(error):
    def work(*args, **more):
        raise error

    return work


def test_faults_of_ours_show_a_traceback(file, build, monkeypatch, capsys):
    build.train = fails(ValueError("shapes do not broadcast"))  # raised outside the package
    assert cli.main(["train", "--config", file]) == 1
    assert "Traceback" in capsys.readouterr().err
    build.train = fails(KeyError("x"))
    assert cli.main(["train", "--config", file]) == 1
    build.train = fails(config.ConfigError("agent.lr is missing"))
    assert cli.main(["train", "--config", file]) == 2
    assert capsys.readouterr().err.endswith("mimesis: agent.lr is missing\n")
    monkeypatch.setenv("MIMESIS_TRACE", "1")
    assert cli.main(["train", "--config", file]) == 2
    assert "Traceback" in capsys.readouterr().err


def test_what_the_package_raises_on_purpose_is_told_in_a_line(file, build, capsys):
    build.train = lambda *_: mimesis_jax.types.Turn("robot", "hello")
    assert cli.main(["train", "--config", file]) == 2
    assert capsys.readouterr().err.startswith("mimesis: author 'robot' is not one of")


def test_ctrl_c_says_how_to_go_on(file, build, capsys):
    build.train = fails(KeyboardInterrupt())
    assert cli.main(["train", "--config", file, "--config.seed=8"]) == 130
    said = capsys.readouterr().err
    assert f"go on from the last checkpoint: mimesis train --config {file} --config.seed=8" in said
    build.evaluate = fails(KeyboardInterrupt())
    assert cli.main(["evaluate", "--config", file]) == 130
    assert "checkpoint" not in capsys.readouterr().err
