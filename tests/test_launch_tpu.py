"""The TPU launcher on a fake gcloud: the whole life of four workers, preemption, every refusal."""

import subprocess
import time

import launch_fakes
import pytest

WHERE = ("--project=my-project", "--zone=us-central1-a", "--poll=0", "--dir=m")
POD = ("--name=pod", "--type=v6e-16", *WHERE)
FOUR = ["w-0", "w-1", "w-2", "w-3"]


@pytest.fixture
def pod(tmp_path):
    return launch_fakes.with_gcloud(launch_fakes.world(tmp_path), [FOUR])


def started(pod, *command):
    """A pod that exists, with the code installed, running `command`."""
    got = pod.launch("tpu", "up", *POD, "--", *command)
    assert got.returncode == 0, got.stderr
    return got


def words(pod, what):
    """The calls of gcloud whose words contain `what`, joined."""
    return [text for call in pod.calls("gcloud") if what in (text := " ".join(call))]


def ended(pod, host, code, within=15):
    """Waits until the command on a host has ended with a code."""
    file = pod.home(host) / "m/pod/state/exit"
    for _ in range(within * 10):
        if file.exists() and file.read_text().strip():
            assert file.read_text().strip() == str(code)
            return
        time.sleep(0.1)
    raise AssertionError(f"{host} did not end")


# --- the life ---------------------------------------------------------------------------------


def test_up_creates_waits_copies_installs_checks_and_runs_on_every_worker(pod):
    (pod.path / "created").write_text("WAITING_FOR_RESOURCES PROVISIONING ACTIVE")
    got = started(pod, "sh", "-c", "echo $HOME; mkdir -p runs; echo 1 >runs/x; echo 'a  b'")
    created = words(pod, "queued-resources create")
    assert created == [
        "gcloud compute tpus queued-resources create pod --accelerator-type=v6e-16 "
        "--runtime-version=v2-alpha-tpuv6e --node-id=pod --async --zone=us-central1-a "
        "--project=my-project"
    ]
    for host in FOUR:
        ended(pod, host, 0)
        home = pod.home(host)
        assert "a  b" in (home / "m/pod/log/run.log").read_text()
        assert str(home) in (home / "m/pod/log/run.log").read_text()
        assert "-e" in (home / "pip.log").read_text() and "[tpu]" in (home / "pip.log").read_text()
    assert got.stdout.count("verb=check code=0") == 4
    joined = pod.launch("tpu", "join", *POD)
    assert joined.returncode == 0, joined.stderr
    fetched = pod.launch("tpu", "fetch", *POD, "--worker=3", "--to=here")
    assert fetched.returncode == 0, fetched.stderr
    assert (pod.path / "here/runs/x").read_text() == "1\n"
    assert not (pod.path / "here.half").exists()
    tail = pod.launch("tpu", "tail", *POD, "--worker=2", "--lines=1")
    assert "a  b" in tail.stdout


def test_the_failed_workers_exit_code_comes_through(pod):
    started(pod, "sh", "-c", "case $HOME in *w-2) exit 7;; *) exec sleep 60;; esac")
    ended(pod, "w-2", 7)
    got = pod.launch("tpu", "join", *POD)
    assert got.returncode == 7
    assert "failed on: w-2 (7)" in got.stderr
    assert "goes on costing money" in got.stderr and "delete" in got.stderr
    assert not words(pod, "queued-resources delete"), "clean-up is asked for, never silent"
    status = pod.launch("tpu", "status", *POD)
    assert status.stdout.count("state=running") == 3 and "state=done exit=7" in status.stdout
    stopped = pod.launch("tpu", "stop", *POD)
    assert stopped.returncode == 0, stopped.stderr
    assert (pod.home("w-0") / "m/pod/state/exit").read_text() == "143\n"
    assert pod.launch("tpu", "status", *POD).stdout.count("state=running") == 0


def test_a_failure_deletes_only_when_that_was_asked_for(pod):
    started(pod, "sh", "-c", "exit 9")
    ended(pod, "w-0", 9)
    got = pod.launch("tpu", "join", *POD, "--on-failure=delete")
    assert got.returncode == 9
    assert len(words(pod, "queued-resources delete pod --force --quiet")) == 1


def test_resume_goes_through_a_preemption_and_ends_with_the_commands_code(pod):
    # The first machines are taken away while the command sleeps; on the second ones it succeeds.
    shared = pod.path / "shared"
    shared.mkdir()
    command = f"echo x >>{shared}/starts; [ $(wc -l <{shared}/starts) -gt 4 ] || exec sleep 100"
    # describe: create's look; wait; then gone while the status is asked; delete, create, wait, ...
    (pod.path / "created").write_text("ACTIVE ACTIVE")
    line = ("--", "sh", "-c", command, "--out", "/mnt/run")
    process = pod.begin("tpu", "resume", *POD, "--poll=1", *line)
    for _ in range(300):
        if (shared / "starts").exists() and len((shared / "starts").read_text().split()) == 4:
            break
        time.sleep(0.1)
    time.sleep(1)
    # Taken away: the hosts do not answer any more and the resource is suspended.
    (pod.path / "states").write_text("SUSPENDED")
    for host in FOUR:
        pod_pid = (pod.home(host) / "m/pod/state/pid").read_text().split()[0]
        subprocess.run(["kill", "-KILL", "--", f"-{pod_pid}"], check=False)
        pod.home(host).rename(pod.path / f"taken-{host}")
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert "taken away (time 1); beginning again" in out
    assert len(words(pod, "queued-resources create")) == 2
    assert len(words(pod, "queued-resources delete")) == 1
    assert len((shared / "starts").read_text().split()) == 8


def test_resume_outlives_a_loss_while_waiting_and_an_answer_that_fails(pod):
    (pod.path / "created").write_text("PROVISIONING SUSPENDED\nUNREACHABLE ACTIVE")
    got = pod.launch("tpu", "resume", *POD, "--local-out", "--", "sh", "-c", "exit 3")
    assert got.returncode == 3, got.stderr
    assert "taken away while it was waited for" in got.stderr
    assert "name resolution failed" in got.stderr
    assert len(words(pod, "queued-resources create")) == 2


def test_resume_gives_up_after_the_attempts_that_were_allowed(pod):
    (pod.path / "created").write_text("SUSPENDED")
    got = pod.launch("tpu", "resume", *POD, "--local-out", "--attempts=1", "--", "true")
    assert got.returncode == 75 and "taken away 2 times: raise --attempts" in got.stderr
    assert len(words(pod, "queued-resources create")) == 2


def test_resume_takes_up_what_runs_already(pod):
    go = pod.path / "go"
    command = ("sh", "-c", f"until [ -e {go} ]; do sleep 0.1; done; exit 5")
    started(pod, *command)
    before = len(words(pod, "queued-resources scp"))
    process = pod.begin("tpu", "resume", *POD, "--local-out", "--poll=1", "--", *command)
    for line in process.stdout:
        if "going on with it" in line:
            go.touch()
    assert process.wait(30) == 5
    assert len(words(pod, "queued-resources scp")) == before, "nothing is copied again"


def test_delete_asks_and_says_what_goes_on_costing(pod):
    started(pod, "true")
    kept = pod.launch("tpu", "delete", *POD)
    assert kept.returncode == 2 and "give --yes" in kept.stderr
    assert "16 chips) goes on costing money" in kept.stderr
    assert not words(pod, "queued-resources delete")
    got = pod.launch("tpu", "delete", *POD, "--yes")
    assert got.returncode == 0
    assert "16 chips cost nothing any more" in got.stderr and "buckets" in got.stderr
    assert words(pod, "queued-resources list")
    again = pod.launch("tpu", "delete", *POD, "--yes")
    assert again.returncode == 0 and "nothing to delete" in again.stderr


def test_two_slices_are_one_resource_with_counted_nodes(tmp_path):
    pair = launch_fakes.with_gcloud(launch_fakes.world(tmp_path), [["a0", "a1"], ["b0", "b1"]])
    words_ = ("--name=pair", "--type=v5p-16", "--slices=2", "--spot", *WHERE)
    got = pair.launch("tpu", "up", *words_, "--", "true")
    assert got.returncode == 0, got.stderr
    (created,) = words(pair, "queued-resources create")
    assert "--node-count=2 --node-prefix=pair --spot" in created and "--node-id" not in created
    assert {w.split()[5] for w in words(pair, "tpu-vm describe")} == {"pair-0", "pair-1"}
    pair.launch("tpu", "tail", *words_, "--worker=3")
    assert "--node=1 --worker=1" in words(pair, "tail_log")[-1]


# --- before training: missing, different ------------------------------------------------------


def test_a_worker_with_other_packages_stops_the_start(pod):
    started(pod, "true")
    (pod.home("w-1") / "packages").write_text("def")
    got = pod.launch("tpu", "run", *POD, "--", "touch", "started")
    assert got.returncode == 3
    assert "workers differ in packages: abc on w-0 w-2 w-3; def on w-1" in got.stderr
    assert not list(pod.path.glob("hosts/*/m/pod/started"))


def test_a_worker_with_other_code_stops_the_start(pod):
    started(pod, "true")
    (pod.home("w-3") / "m/pod/code/pyproject.toml").write_text("changed = true\n")
    got = pod.launch("tpu", "run", *POD, "--", "true")
    assert got.returncode == 3
    assert "workers differ in hash" in got.stderr and "-changed on w-3" in got.stderr


def test_a_missing_worker_stops_the_start(pod):
    started(pod, "true")
    pod.home("w-2").rename(pod.path / "away")
    got = pod.launch("tpu", "run", *POD, "--", "true")
    assert got.returncode == 3
    assert "3 of 4 workers answered: w-0 w-1 w-3" in got.stderr


def test_a_failed_installation_is_named(pod):
    assert pod.launch("tpu", "create", *POD).returncode == 0
    assert pod.launch("tpu", "copy", *POD).returncode == 0
    (pod.home("w-1") / "pip-fails").touch()
    got = pod.launch("tpu", "install", *POD)
    assert got.returncode == 1
    assert "worker w-1: install failed with 1" in got.stderr
    assert "w-0: install" not in got.stderr


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("create", "--type=v6e-16", *WHERE), "create needs --name"),
        (("create", "--name=Pod", "--type=v6e-16", *WHERE), "name='Pod' is not possible"),
        (("create", "--name=a;b", "--type=v6e-16", *WHERE), "lower-case letters"),
        (("create", "--name=-x", "--type=v6e-16", *WHERE), "a letter first"),
        (("create", "--name=" + "a" * 41, "--type=v6e-16", *WHERE), "at most 40"),
        (("create", "--name=pod", *WHERE), "create needs --type"),
        (("create", "--name=pod", "--type=v6e-17", *WHERE), "'v6e-17': there are 1, 4, 8, 16"),
        (("create", "--name=pod", "--type=v5p-12", *WHERE), "use a multiple of 8"),
        (("create", "--name=pod", "--type=v5e-16", *WHERE), "calls it v5litepod-16"),
        (("create", "--name=pod", "--type=h100-8", *WHERE), "type 'h100-8' is unknown"),
        (("create", "--name=pod", "--type=tpu7x-16", *WHERE), "use launch/gke.sh"),
        (("create", *POD, "--spot", "--reserved"), "exclude each other"),
        (("create", *POD, "--zone=here"), "zone='here' is not possible"),
        (("create", *POD, "--slices=0"), "slices='0' is not possible"),
        (("create", *POD, "--colour=red"), "no setting 'colour'; there are: name settings"),
        (("create", *POD, "red"), "'red' is not a setting"),
        (("create", *POD, "--spot=yes"), "spot='yes' is not possible"),
        (("create", *POD, "--slices"), "--slices needs a value"),
        (("make", *POD), "there is no verb 'make'"),
        (("run", *POD), "run needs a command"),
        (("up", *POD), "up needs a command"),
        (("resume", *POD), "resume needs the command"),
        (("resume", *POD, "--", "mimesis", "train", "--out", "runs/x"), "outlives the machines"),
        (("tail", *POD, "--worker=4"), "there are workers 0 to 3"),
        (("run", *POD, "--settings=nowhere"), "no such file that can be read"),
        (("run", *POD, "--env-file=nowhere", "--", "true"), "no such file that can be read"),
    ],
)
def test_refusals_come_before_anything_is_done(pod, given, told):
    got = pod.launch("tpu", *given)
    assert got.returncode == 2, got.stderr
    assert told in got.stderr
    assert pod.calls() == []


def test_what_exists_is_not_created_again(pod):
    started(pod, "true")
    got = pod.launch("tpu", "create", *POD)
    assert got.returncode == 2 and "exists already (ACTIVE)" in got.stderr
    assert len(words(pod, "queued-resources create")) == 1


def test_a_refused_request_says_that_and_what_may_cost(pod):
    (pod.path / "quota").touch()
    got = pod.launch("tpu", "create", *POD)
    assert got.returncode == 1
    assert "quota exceeded" in got.stderr and "was not taken" in got.stderr


@pytest.mark.parametrize(
    ("states", "code", "told"),
    [
        ("WAITING_FOR_RESOURCES FAILED", 1, "has failed"),
        ("PROVISIONING SUSPENDED", 75, "taken away while it was waited for"),
        ("WAITING_FOR_RESOURCES", 1, "is WAITING_FOR_RESOURCES after 0 s"),
    ],
)
def test_waiting_ends_with_a_reason(pod, states, code, told):
    (pod.path / "states").write_text(states)
    patience = "0" if states == "WAITING_FOR_RESOURCES" else "60"
    got = pod.launch("tpu", "wait", *POD, f"--patience={patience}")
    assert got.returncode == code and told in got.stderr


def test_waiting_for_health(pod):
    (pod.path / "states").write_text("ACTIVE")
    (pod.path / "health").write_text("READY\tUNHEALTHY_TENSORFLOW")
    got = pod.launch("tpu", "wait", *POD, "--patience=0")
    assert got.returncode == 1 and "is ACTIVE after 0 s" in got.stderr
    (pod.path / "health").write_text("READY\t")
    assert pod.launch("tpu", "wait", *POD, "--patience=0").returncode == 0


def test_fetch_overwrites_nothing_and_leaves_no_half(pod):
    started(pod, "true")
    (pod.path / "there").mkdir()
    got = pod.launch("tpu", "fetch", *POD, "--to=there")
    assert got.returncode == 2 and "there exists already" in got.stderr
    got = pod.launch("tpu", "fetch", *POD, "--to=new", "--from=nothing")
    assert got.returncode == 1 and "there is no nothing here" in got.stderr
    assert not (pod.path / "new").exists() and not (pod.path / "new.half").exists()


def test_a_second_start_is_refused_while_the_first_runs(pod):
    started(pod, "sleep", "60")
    got = pod.launch("tpu", "run", *POD, "--", "true")
    assert got.returncode == 4 and "cannot start another while the command runs" in got.stderr
    got = pod.launch("tpu", "copy", *POD)
    assert got.returncode == 4 and "cannot replace the code" in got.stderr
    assert pod.launch("tpu", "stop", *POD).returncode == 0
