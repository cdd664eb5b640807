"""The TPU launcher with the real gcloud: its parser offline, and a life against a loopback API."""

import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import threading
import time

import launch_fakes
import pytest

pytestmark = pytest.mark.skipif(
    shutil.which("gcloud") is None, reason="the Google Cloud CLI is not installed here"
)
POD = ("--name=pod", "--type=v6e-16", "--project=my-project", "--zone=us-central1-a", "--poll=1")


# --- the parser ---------------------------------------------------------------------------------


def lines(made, script, verbs, *settings):
    """The gcloud lines that verbs of a script would run."""
    found = []
    for verb in verbs.split():
        tail = ("--", "mimesis", "train", "--out", "/mnt/x") if verb in ("run", "resume") else ()
        got = made.launch(script, verb, *settings, "--dry-run", *tail)
        assert got.returncode == 0, got.stderr
        found += [shlex.split(x) for x in got.stdout.splitlines() if x.startswith("gcloud ")]
    return found


def test_every_line_passes_gclouds_own_parser(tmp_path):
    """Exit 1 for want of an account, after the words were understood; 2 would be a wrong flag."""
    made = launch_fakes.world(tmp_path)
    every = (
        "--network=n --subnetwork=s --service-account=a@b.c --valid-for=6h --internal-ips --spot"
    )
    found = lines(made, "tpu", "resume tail fetch delete", *POD)
    found += lines(made, "tpu", "create copy tail fetch", *POD, "--slices=2", *every.split())
    found += lines(made, "tpu", "create tail", *POD, "--reserved", "--iap")
    shape = lambda words: tuple(w.split("=")[0] for w in words if w.startswith("--") or w.isalpha())
    distinct = {shape(words): words for words in found}
    assert len(distinct) >= 10
    env = {**made.env, "CLOUDSDK_CONFIG": str(tmp_path / "empty")}
    run = lambda words: subprocess.run(
        words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    for words in distinct.values():
        got = run(words)
        assert got.returncode == 1, (words, got.stderr)
        assert "active account" in got.stderr, (words, got.stderr)
    assert run([*found[0], "--no-such-flag"]).returncode == 2, "the parser does refuse"


# --- a life -------------------------------------------------------------------------------------


class Api(http.server.BaseHTTPRequestHandler):
    """The little of the TPU and Compute APIs that the launcher's gcloud lines need."""

    resource = None  # the queued resource, or nothing
    looks = 0  # how often it was described since it was made
    keys: dict = {}  # the node's metadata: gcloud puts its ssh key there
    made: launch_fakes.World
    seen: list[str] = []
    hosts: tuple[str, ...] = ("10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4")

    def log_message(self, *words):
        pass

    def answer(self, body, code=200):
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def missing(self):
        self.answer({"error": {"code": 404, "status": "NOT_FOUND", "message": "not found"}}, 404)

    def serve(self):
        cls, path = type(self), self.path.split("?")[0]
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        cls.seen.append(f"{self.command} {path}")
        node = {"name": "projects/my-project/locations/us-central1-a/nodes/pod"}
        done = {"name": "projects/p/locations/z/operations/op", "done": True, "response": node}
        if path.startswith("/compute/"):
            self.answer({"name": "my-project", "commonInstanceMetadata": {"items": []}})
        elif "/operations/" in path or self.command == "PATCH":
            cls.keys = body.get("metadata", cls.keys)
            self.answer(done)
        elif "/nodes/" in path:
            if cls.resource is None or path.endswith(":getGuestAttributes"):
                return self.missing()
            ends = [{"ipAddress": h, "accessConfig": {"externalIp": h}} for h in self.hosts]
            self.answer({
                "name": path.removeprefix("/v2/"), "id": "1", "state": "READY", "health": "HEALTHY",
                "apiVersion": "V2", "networkEndpoints": ends, "metadata": cls.keys,
            })  # fmt: skip
        elif self.command == "POST":
            if cls.resource is not None:
                status = {"code": 409, "status": "ALREADY_EXISTS", "message": "exists"}
                return self.answer({"error": status}, 409)
            cls.resource, cls.looks = body, 0
            body["name"] = "projects/my-project/locations/us-central1-a/queuedResources/pod"
            body["state"] = {"state": "WAITING_FOR_RESOURCES"}
            cls.made.hosts(*self.hosts)
            self.answer(done)
        elif self.command == "DELETE":
            cls.resource = None
            shutil.rmtree(cls.made.path / "hosts")
            self.answer(done)
        elif path.endswith("/queuedResources"):
            self.answer({"queuedResources": [cls.resource] if cls.resource else []})
        elif cls.resource is None:
            self.missing()
        else:
            cls.looks += 1
            if cls.looks == 2 and cls.resource["state"]["state"] == "WAITING_FOR_RESOURCES":
                cls.resource["state"] = {"state": "ACTIVE"}
            self.answer(cls.resource)

    do_GET = do_POST = do_DELETE = do_PATCH = serve


@pytest.fixture
def cloud(tmp_path):
    made = launch_fakes.world(tmp_path)
    # A key without a passphrase, so that gcloud asks nobody for one.
    (tmp_path / ".ssh").mkdir(mode=0o700)
    key = tmp_path / ".ssh/google_compute_engine"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(key)], check=True)
    handler = type("Handler", (Api,), {"made": made, "seen": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    at = f"http://127.0.0.1:{server.server_port}/"
    made.env |= {
        "CLOUDSDK_CONFIG": str(tmp_path / "gcloud"),
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": at,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE": f"{at}compute/v1/",
    }
    yield made, handler
    server.shutdown()


def go(made, verb, *words):
    return made.launch("tpu", verb, *POD, *words, timeout=300)


def wait_for(condition, seconds=60):
    for _ in range(seconds * 10):
        if condition():
            return
        time.sleep(0.1)
    raise AssertionError("it did not come to be")


@pytest.mark.slow
@pytest.mark.timeout(1800)  # half a minute of gcloud alone, many times that beside other work
def test_a_whole_life_with_the_real_gcloud(cloud):
    made, api = cloud
    shared = made.path / "starts"
    fails = "case $HOME in *10.0.0.3) exit 7;; *) exec sleep 600;; esac"
    got = go(made, "up", "--", "sh", "-c", fails)
    assert got.returncode == 0, got.stderr
    assert "WAITING_FOR_RESOURCES" in got.stderr and got.stdout.count("verb=check code=0") == 4

    again = go(made, "create")
    assert again.returncode == 2 and "exists already (ACTIVE)" in again.stderr
    joined = go(made, "join")
    assert joined.returncode == 7 and "failed on: 10.0.0.3 (7)" in joined.stderr, joined.stderr

    # The same machines, another command; it is taken away, and comes to its end on the next ones.
    command = f"echo x >>{shared}; mkdir -p runs; echo 1 >runs/x; "
    command += f"[ $(wc -l <{shared}) -gt 4 ] || exec sleep 600"
    process = made.begin("tpu", "resume", *POD, "--local-out", "--", "sh", "-c", command)
    wait_for(lambda: shared.exists() and len(shared.read_text().split()) == 4, 120)
    api.resource["state"] = {"state": "SUSPENDED"}
    for host in Api.hosts:
        pid = (made.home(host) / "mimesis/pod/state/pid").read_text().split()[0]
        os.killpg(int(pid), 9)
        (made.home(host) / "mimesis/pod/state/pid").write_text(f"{pid} another-boot\n")
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    assert "taken away (time 1)" in out and len(shared.read_text().split()) == 8

    fetched = go(made, "fetch", "--to=f", "--worker=3")
    assert fetched.returncode == 0 and (made.path / "f/runs/x").read_text() == "1\n"
    deleted = go(made, "delete", "--yes")
    assert deleted.returncode == 0 and "16 chips cost nothing any more" in deleted.stderr
    assert "nothing to delete" in go(made, "delete", "--yes").stderr
    posts = [x for x in api.seen if re.match("POST .*queuedResources$", x)]
    deletes = [x for x in api.seen if x.startswith("DELETE")]
    assert (len(posts), len(deletes)) == (2, 2)
