"""Fake machines for the launchers' tests: ssh, scp, gcloud and workers that are folders here.

A host is a folder that serves as its home; what "runs there" runs here with HOME set to it. The
fakes write every call as a line of JSON to `calls`, so that a test can read what was asked for.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

OTHERS = ("CLOUDSDK", "MIMESIS", "GIT_", "SLURM", "JAX_")  # variables that would disturb
LAUNCH = Path(__file__).resolve().parent.parent / "launch"

HEAD = f"#!{sys.executable}\n" + textwrap.dedent(
    """
    import json, os, shutil, subprocess, sys
    from pathlib import Path
    HOME, NAME, WORDS = Path(os.environ["FAKE"]), Path(sys.argv[0]).name, sys.argv[1:]
    with (HOME / "calls").open("a") as file:
        file.write(json.dumps([NAME, *WORDS]) + "\\n")

    def bare(words):
        valued = ("-o", "-i", "-P", "-F") + ("-p", "-l") * (NAME == "ssh")
        rest, skip = [], False
        for word in words:
            if skip or word.startswith("-") and not rest:
                skip = not skip and word in valued
            else:
                rest.append(word)
        return rest

    def on(host, command):
        home = HOME / "hosts" / host
        if not home.is_dir():
            print(f"ssh: connect to host {host}: timed out", file=sys.stderr)
            return 255
        path = f"{HOME}/worker-bin:" + os.environ["PATH"]
        env = {**os.environ, "HOME": str(home), "FAKE_HOST": host, "PATH": path}
        return subprocess.run(["bash", "-c", command], cwd=home, env=env).returncode
    """
)

SSH = """
host, *command = bare(WORDS)
command = command[1:] if command[:1] == ["--"] else command
sys.exit(on(host.split("@")[-1], " ".join(command)))
"""

SCP = """
def there(path):
    host, colon, rest = path.partition(":")
    return HOME / "hosts" / host.split("@")[-1] / rest if colon else Path(path)

*sources, target = bare(WORDS)
for source in map(there, sources):
    goal = there(target)
    if not source.is_file() or not goal.parent.is_dir():
        sys.exit(f"scp: {source} to {target}: no such file")
    if goal.is_dir():
        goal = goal / source.name
    shutil.copy2(source, goal) if "-p" in WORDS else shutil.copy(source, goal)
"""

# States come from the file `states`: each look takes the first, the last one stays. A create takes
# the first line of `created` for that file, and the last line stays there too.
GCLOUD = """
import re
said = " ".join(WORDS)
flag = dict(w[2:].partition("=")[::2] for w in WORDS if w.startswith("--"))
states = HOME / "states"
nodes = json.loads((HOME / "nodes").read_text())

def state():
    if not states.exists():
        return "NONE"
    first, *rest = states.read_text().split()
    if rest:
        states.write_text("\\n".join(rest))
    return first

if "queued-resources describe" in said:
    now = state()
    if now == "NONE":
        sys.exit("ERROR: (gcloud...describe) NOT_FOUND: it was not found")
    if now == "UNREACHABLE":
        sys.exit("ERROR: There was a problem refreshing: name resolution failed")
    print(now)
elif "tpu-vm describe" in said:
    print((HOME / "health").read_text() if (HOME / "health").exists() else "READY\\tHEALTHY")
elif "queued-resources create" in said:
    if (HOME / "quota").exists():
        sys.exit("ERROR: RESOURCE_EXHAUSTED: quota exceeded")
    first, *rest = (HOME / "created").read_text().splitlines()
    states.write_text(first)
    if rest:
        (HOME / "created").write_text("\\n".join(rest))
    for hosts in nodes:
        for host in hosts:
            (HOME / "hosts" / host).mkdir(parents=True, exist_ok=True)
elif "queued-resources delete" in said:
    states.unlink()
    shutil.rmtree(HOME / "hosts")
    (HOME / "hosts").mkdir()
elif "queued-resources list" in said:
    print("NAME  STATE")
elif "queued-resources ssh" in said or "queued-resources scp" in said:
    chosen = [h for n, hosts in enumerate(nodes) if flag["node"] in ("all", str(n))
              for i, h in enumerate(hosts) if flag["worker"] in ("all", str(i))]
    codes = []
    for host in chosen:
        if "ssh" in WORDS:
            codes.append(on(host, flag["command"]))
        else:
            at = WORDS.index("scp")
            paths = [re.sub("^[^:/]+:", f"{host}:", w) for w in WORDS[at + 1:] if w[:2] != "--"]
            codes.append(subprocess.run(["scp", "-p", *paths]).returncode)
    sys.exit(next((c for c in codes if c), 0))
else:
    sys.exit(f"fake gcloud: nothing for {said}")
"""

# A python for the workers: makes environments and installs in no time.
PYTHON = """#!/usr/bin/env bash
case "$*" in
    *"sys, venv, ensurepip"*) exit 0 ;;
    "-m venv"*) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
    "-m pip"*) echo "$@" >>"$HOME/pip.log"; [ ! -e "$HOME/pip-fails" ] ;;
    *python_version*) echo 3.12.1 ;;
    -)
        cat >/dev/null
        packages=$(cat "$HOME/packages" 2>/dev/null || echo abc)
        echo "python=3.12.1 jax=0.10.2 libtpu=0.0.9 packages=$packages"
        ;;
    *) echo "fake python: nothing for $*" >&2; exit 9 ;;
esac
"""


@dataclasses.dataclass
class World:
    """A folder of fakes, a small git repository with the launchers in it, and how to call them."""

    path: Path
    repo: Path
    env: dict[str, str]

    def launch(self, script, *words, stdin=subprocess.DEVNULL, timeout=60):
        """Runs launch/SCRIPT.sh with words; the finished process with text output."""
        return subprocess.run(
            ["bash", str(self.repo / "launch" / f"{script}.sh"), *words],
            cwd=self.path, env=self.env, stdin=stdin, capture_output=True, text=True,
            timeout=timeout,
        )  # fmt: skip

    def begin(self, script, *words):
        """The same in the background; its output and errors are one stream of text."""
        return subprocess.Popen(
            ["bash", str(self.repo / "launch" / f"{script}.sh"), *words],
            cwd=self.path, env=self.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def calls(self, tool=None):
        """What the fakes were asked, as lists of words."""
        file = self.path / "calls"
        lines = map(json.loads, file.read_text().splitlines()) if file.exists() else []
        return [call for call in lines if tool in (None, call[0])]

    def fake(self, name, text, *, folder="bin", head=HEAD):
        """A program NAME on the path; `head` is what stands before its text."""
        file = self.path / folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(head + text)
        file.chmod(0o755)

    def hosts(self, *names):
        for name in names:
            (self.path / "hosts" / name).mkdir(parents=True, exist_ok=True)

    def home(self, host):
        return self.path / "hosts" / host


def world(path: Path) -> World:
    """Fakes of ssh, scp and the workers' own tools under `path`; no gcloud yet."""
    repo = path / "repo"
    (repo / "launch").mkdir(parents=True)
    for file in LAUNCH.iterdir():
        if file.is_file():
            shutil.copy2(file, repo / "launch")
    (repo / "pyproject.toml").write_text("[project]\nname = 'small'\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(repo)]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "start"]):
        subprocess.run([*git, *words], check=True)
    env = {
        **{k: v for k, v in os.environ.items() if not k.startswith(OTHERS)},
        "FAKE": str(path),
        "HOME": str(path),
        "PATH": f"{path / 'bin'}:{os.environ['PATH']}",
    }  # fmt: skip
    made = World(path, repo, env)
    made.fake("ssh", SSH)
    made.fake("scp", SCP)
    made.fake("hostname", 'echo "$FAKE_HOST"\n', folder="worker-bin", head="#!/bin/sh\n")
    for name in ("python3.12", "python3.11", "python3"):
        made.fake(name, PYTHON, folder="worker-bin", head="")
    return made


def with_gcloud(made: World, nodes, *, created="ACTIVE") -> World:
    """Adds a fake gcloud. nodes: per slice the names of its hosts; created: states after create."""
    made.fake("gcloud", GCLOUD)
    (made.path / "nodes").write_text(json.dumps(nodes))
    (made.path / "created").write_text(created)
    (made.path / "hosts").mkdir()
    return made
