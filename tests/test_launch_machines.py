"""The launchers for ssh, Slurm and GKE on fakes: whole lives, exit codes, what is taken away."""

import json
import time

import launch_fakes
import pytest

yaml = pytest.importorskip("yaml", reason="PyYAML reads the manifests here")

SSH = ("--name=a", "--hosts=me@h0,h1", "--dir=m", "--poll=0")


@pytest.fixture
def pair(tmp_path):
    made = launch_fakes.world(tmp_path)
    made.hosts("h0", "h1")
    return made


def ended(home, within=15):
    for _ in range(within * 10):
        if (home / "state/exit").exists():
            return
        time.sleep(0.1)
    raise AssertionError(f"the command in {home} did not end")


# --- ssh ----------------------------------------------------------------------------------------


def test_ssh_gives_each_host_its_place_and_brings_the_exit_code(pair):
    command = (
        'echo "$JAX_COORDINATOR_ADDRESS $JAX_NUM_PROCESSES $JAX_PROCESS_ID"; exit $JAX_PROCESS_ID'
    )
    got = pair.launch("ssh", "up", *SSH, "--", "sh", "-c", command)
    assert got.returncode == 0, got.stderr
    for i, host in enumerate(("h0", "h1")):
        ended(pair.home(host) / "m/a")
        assert f"h0:8476 2 {i}\n" in (pair.home(host) / "m/a/log/run.log").read_text()
        assert "[cuda]" in (pair.home(host) / "pip.log").read_text()
    got = pair.launch("ssh", "join", *SSH)
    assert got.returncode == 1 and "failed on: h1 (1)" in got.stderr
    got = pair.launch("ssh", "fetch", *SSH, "--from=state", "--to=f", "--worker=1")
    assert got.returncode == 0 and (pair.path / "f/state/exit").read_text() == "1\n"


def test_ssh_resumes_after_a_host_was_restarted(pair):
    done = pair.path / "done"
    command = ("sh", "-c", f"[ -e {done} ] || exec sleep 60")
    assert pair.launch("ssh", "up", *SSH, "--", *command).returncode == 0
    done.touch()
    file = pair.home("h1") / "m/a/state/pid"
    file.write_text(file.read_text().split()[0] + " another-boot\n")
    assert pair.launch("ssh", "join", *SSH).returncode == 75
    got = pair.launch("ssh", "resume", *SSH, "--local-out", "--", *command)
    assert got.returncode == 0, got.stderr
    assert "ended well on every worker" in got.stderr


def test_ssh_delete_removes_the_folder_after_asking(pair):
    assert pair.launch("ssh", "up", *SSH, "--", "true").returncode == 0
    ended(pair.home("h0") / "m/a")
    ended(pair.home("h1") / "m/a")
    assert pair.launch("ssh", "delete", *SSH).returncode == 2
    got = pair.launch("ssh", "delete", *SSH, "--yes")
    assert got.returncode == 0 and "hosts themselves run on" in got.stderr
    assert not (pair.home("h0") / "m/a").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("wait", "--name=a"), "needs --hosts"),
        (("wait", "--name=a", "--hosts=h0,h0"), "names a host twice"),
        (("wait", "--name=a", "--hosts=h0;rm"), "is not possible"),
        (("create", "--name=a", "--hosts=h0"), "nothing to create"),
        (("tail", "--name=a", "--hosts=h0", "--worker=1"), "there are workers 0 to 0"),
    ],
)
def test_ssh_refusals(pair, words, told):
    got = pair.launch("ssh", *words)
    assert got.returncode == 2 and told in got.stderr and pair.calls() == []


def test_ssh_waits_and_says_who_does_not_answer(pair):
    got = pair.launch("ssh", "wait", "--name=a", "--hosts=h0,gone", "--poll=0", "--patience=0")
    assert got.returncode == 1 and "connect to host gone" in got.stderr


# --- Slurm --------------------------------------------------------------------------------------

SRUN = """
command = [w for i, w in enumerate(WORDS) if not w.startswith("--") or "bash" in WORDS[:i]]
codes = []
for i in range(int((HOME / "srun-nodes").read_text())):
    env = {**os.environ, "FAKE_HOST": f"n{i}", "SLURM_PROCID": str(i)}
    codes.append(subprocess.run(command, env=env).returncode)
sys.exit(max(codes))
"""
SBATCH = """
number = len(list(HOME.glob("job-*"))) + 1
state = "PREEMPTED|0:0"
if (HOME / "preempt").exists():
    (HOME / "preempt").unlink()
else:
    with (HOME / "m/a/log" / f"slurm-{number}.out").open("w") as log:
        code = subprocess.run(["bash", WORDS[-1]], env={**os.environ, "SLURM_JOB_ID": str(number)},
                              stdout=log, stderr=log).returncode
    state = f"COMPLETED|0:0" if code == 0 else f"FAILED|{code}:0"
(HOME / f"job-{number}").write_text(state)
print(f"{number};cluster")
"""
SACCT = "print((HOME / f\"job-{WORDS[WORDS.index('-j') + 1]}\").read_text())\n"
SLURM = ("--name=a", "--nodes=2", "--dir=m", "--poll=0")


@pytest.fixture
def slurm(tmp_path):
    made = launch_fakes.world(tmp_path)
    made.env |= {"PATH": f"{tmp_path / 'worker-bin'}:{made.env['PATH']}", "FAKE_HOST": "login"}
    for name, text in (("srun", SRUN), ("sbatch", SBATCH), ("sacct", SACCT)):
        made.fake(name, text)
    made.fake("squeue", "")
    made.fake("scancel", "")
    (tmp_path / "srun-nodes").write_text("2")
    return made


def test_slurm_checks_inside_the_job_and_brings_the_exit_code(slurm):
    command = ("sh", "-c", "echo node $SLURM_PROCID; exit $((SLURM_PROCID * 7))")
    got = slurm.launch("slurm", "up", *SLURM, "--partition=gpu", "--time=1:00:00", "--", *command)
    assert got.returncode == 0, got.stderr
    job = (slurm.path / "m/a/job").read_text()
    assert "--nodes=2 --ntasks-per-node=1 --gpus-per-node=8 --partition=gpu --time=1:00:00" in job
    assert "--requeue" in job
    assert "node 0\nnode 1\n" in slurm.launch("slurm", "tail", *SLURM).stdout
    got = slurm.launch("slurm", "join", *SLURM)
    assert got.returncode == 7 and "FAILED|7:0" in got.stderr
    assert "FAILED|7:0" in slurm.launch("slurm", "status", *SLURM).stdout
    got = slurm.launch("slurm", "fetch", *SLURM, "--from=state", "--to=f")
    assert got.returncode == 0 and (slurm.path / "f/state/job").read_text() == "1\n"


def test_slurm_starts_nothing_where_a_node_is_missing(slurm):
    (slurm.path / "srun-nodes").write_text("1")
    got = slurm.launch("slurm", "resume", *SLURM, "--", "touch", "started")
    assert got.returncode == 3
    log = (slurm.path / "m/a/log/slurm-1.out").read_text()
    assert "1 of 2 workers answered: n0" in log
    assert not (slurm.path / "m/a/started").exists()
    assert slurm.launch("slurm", "check", *SLURM).returncode == 3


def test_slurm_hands_a_preempted_job_in_again(slurm):
    (slurm.path / "preempt").touch()
    got = slurm.launch("slurm", "resume", *SLURM, "--", "true")
    assert got.returncode == 0, got.stderr
    assert "PREEMPTED" in got.stderr and (slurm.path / "m/a/state/job").read_text() == "2\n"
    (slurm.path / "preempt").touch()
    got = slurm.launch("slurm", "resume", *SLURM, "--attempts=0", "--", "true")
    assert got.returncode == 75 and "raise --attempts" in got.stderr


def test_slurm_refusals(slurm):
    assert "nothing to create" in slurm.launch("slurm", "create", *SLURM).stderr
    assert "needs a command" in slurm.launch("slurm", "run", *SLURM).stderr
    assert "is not possible" in slurm.launch("slurm", "run", *SLURM, "--partition=a b").stderr
    assert "there is no job" in slurm.launch("slurm", "join", *SLURM).stderr
    assert slurm.launch("slurm", "delete", *SLURM).returncode == 2
    (slurm.path / "bin/sbatch").unlink()
    got = slurm.launch("slurm", "up", *SLURM, "--", "true")
    assert got.returncode == 2 and "name one with --login" in got.stderr


# --- GKE ----------------------------------------------------------------------------------------

# Pods and ends are told by files: pods-NAME (lines), end-NAME (Completed or Failed, one a look).
KUBECTL = """
context, *said = WORDS
assert context == "--context=gke_p-123456_us-east5_c", context
text = " ".join(said)
of = next((w.split("=")[1] for w in said if w.startswith("jobset.sigs")), (said + [""] * 3)[2])
def read(name, default=""):
    file = HOME / name
    return file.read_text() if file.exists() else default
if text.startswith("apply"):
    (HOME / f"applied-{len(list(HOME.glob('applied-*')))}").write_text(sys.stdin.read())
elif text.startswith("create secret"):
    print("kind: Secret")
elif text.startswith("get nodes"):
    print("True\\n" * int(read("nodes-ready", "4")))
elif text.startswith("get pods"):
    print(read(f"pods-{of}"))
elif text.startswith("get jobset") and "terminalState" in text:
    first, *rest = read(f"end-{of}", "Completed").split()
    if rest:
        (HOME / f"end-{of}").write_text(" ".join(rest))
    print(first)
elif text.startswith("logs"):
    print(read(f"logs-{of}"))
"""
GKE = (
    "--name=a", "--project=p-123456", "--zone=us-east5-a", "--cluster=c", "--type=v5p-32",
    "--image=reg/p/mimesis", "--poll=0",
)  # fmt: skip


def checked(count, **other):
    lines = [
        f"@worker host=n{i} verb=check code=0 hash=h packages={other.get(f'n{i}', 'p')} devices=4"
        for i in range(count)
    ]
    return "\n".join(lines)


@pytest.fixture
def gke(tmp_path):
    made = launch_fakes.world(tmp_path)
    made.fake("kubectl", KUBECTL)
    made.fake("gcloud", "")
    made.fake("xpk", "")
    made.fake(
        "docker", 'if "build" in WORDS: (HOME / "context").write_bytes(sys.stdin.buffer.read())\n'
    )
    (tmp_path / "pods-a-check").write_text("".join(f"p{i}|Succeeded|0||\n" for i in range(4)))
    (tmp_path / "logs-a-check").write_text(checked(4))
    return made


def jobsets(made):
    found = [yaml.safe_load(f.read_text()) for f in sorted(made.path.glob("applied-*"))]
    return [f for f in found if f["kind"] == "JobSet"]


def test_gke_creates_builds_checks_and_runs_a_jobset(gke):
    assert gke.launch("gke", "create", *GKE, "--spot").returncode == 0
    assert gke.calls("xpk") == [
        ["xpk", "cluster", "create", "--cluster=c", "--tpu-type=v5p-32", "--num-slices=1",
         "--zone=us-east5-a", "--project=p-123456", "--spot"]
    ]  # fmt: skip
    got = gke.launch("gke", "up", *GKE, "--", "mimesis", "train", '--config.x="a\\b"', "c d")
    assert got.returncode == 0, got.stderr
    look, work = jobsets(gke)
    assert (look["metadata"]["name"], look["spec"]["failurePolicy"]["maxRestarts"]) == (
        "a-check",
        0,
    )
    job = work["spec"]["replicatedJobs"][0]
    pod = job["template"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert work["spec"]["failurePolicy"]["maxRestarts"] == 5
    assert (job["replicas"], job["template"]["spec"]["parallelism"]) == (1, 4)
    assert container["command"] == [
        "bash", "code/launch/worker.sh", "within", "mimesis", "train", '--config.x="a\\b"', "c d",
    ]  # fmt: skip
    assert container["resources"] == {"limits": {"google.com/tpu": 4}}
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice",
        "cloud.google.com/gke-tpu-topology": "2x2x4",
    }
    (build, push) = gke.calls("docker")
    assert container["image"] == push[-1] == build[build.index("-t") + 1]
    assert (gke.path / "context").read_bytes()[:2] == b"\x1f\x8b"
    assert gke.launch("gke", "join", *GKE).returncode == 0


def test_gke_starts_nothing_where_pods_differ_or_find_no_machine(gke):
    (gke.path / "logs-a-check").write_text(checked(4, n2="other"))
    got = gke.launch("gke", "run", *GKE, "--", "true")
    assert got.returncode == 3 and "differ in packages: p on n0 n1 n3; other on n2" in got.stderr
    (gke.path / "pods-a-check").write_text("p0|Succeeded|0||\np1|Pending|||\n")
    got = gke.launch("gke", "run", *GKE, "--patience=0", "--", "true")
    assert got.returncode == 3 and "1 of 4 pods have looked" in got.stderr
    (gke.path / "pods-a-check").write_text("p0|Pending|||ImagePullBackOff\n")
    got = gke.launch("gke", "run", *GKE, "--", "true")
    assert got.returncode == 3 and "waits with ImagePullBackOff" in got.stderr
    assert all(j["metadata"]["name"] == "a-check" for j in jobsets(gke))
    (gke.path / "nodes-ready").write_text("3")
    got = gke.launch("gke", "wait", *GKE, "--patience=0")
    assert got.returncode == 3 and "3 of 4 machines" in got.stderr


def test_gke_brings_the_exit_code_and_begins_again_only_when_taken_away(gke):
    (gke.path / "end-a").write_text("Failed")
    (gke.path / "pods-a").write_text("p0|Running|||\np1|Failed|7||\n")
    assert gke.launch("gke", "join", *GKE).returncode == 7
    (gke.path / "pods-a").write_text("p0|Failed|143|True|\np1|Failed|1||\n")
    assert gke.launch("gke", "join", *GKE).returncode == 75
    (gke.path / "end-a").write_text("Failed Completed")
    got = gke.launch("gke", "resume", *GKE, "--", "true")
    assert got.returncode == 0, got.stderr
    assert [j["metadata"]["name"] for j in jobsets(gke)].count("a") == 2
    assert len([c for c in gke.calls("kubectl") if "delete" in c and "a" in c]) >= 1


def test_gke_keeps_secrets_out_of_words_and_manifests(gke):
    file = gke.path / "secrets"
    file.write_text("HF_TOKEN=very-secret-value\n")
    file.chmod(0o600)
    got = gke.launch("gke", "run", *GKE, f"--env-file={file}", "--", "true")
    assert got.returncode == 0, got.stderr
    everything = json.dumps(gke.calls()) + got.stdout + got.stderr
    everything += "".join(f.read_text() for f in gke.path.glob("applied-*"))
    assert "very-secret-value" not in everything and "a-env" in everything


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", *GKE), "needs a command"),
        (("create", *GKE, "--spot", "--reservation=r"), "exclude each other"),
        (("create", *GKE[:4]), "needs --type"),
        (("create", *GKE, "--type=v5p-24"), "--topology"),
        (("create", *GKE, "--type=v6e-3"), "there are 1, 4, 8"),
        (("fetch", *GKE, "--from=runs"), "from='runs' is not possible"),
        (("fetch", *GKE), "fetch needs --from"),
        (("delete", *GKE), "goes on costing money"),
        (("copy", *GKE[:5]), "copy needs --image"),
    ],
)
def test_gke_refusals(gke, words, told):
    got = gke.launch("gke", *words)
    assert got.returncode == 2 and told in got.stderr, got.stderr
    assert gke.calls() == []
