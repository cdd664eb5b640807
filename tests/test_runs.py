"""Tests of runs: lock, logs, restarts, checkpoints under faults, progress, compiles."""

import functools
import io
import json
import os
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax import types
from mimesis_jax.runs import checkpoint, compiles, disk, folder, progress, versions

CONFIG = {"seed": 3, "agent": {"lr": 0.1, "steps": 4}, "mesh": {"fsdp": 1}}


def lines(run, name):
    return list(disk.lines(run.path / f"{name}.jsonl"))


# --- the folder -------------------------------------------------------------------------------


def test_a_run_keeps_config_versions_and_events(tmp_path):
    with folder.Run(tmp_path / "a" / "run", CONFIG, seed=3, hashes={"simulator": "ab"}) as run:
        with run.timed("rollout", step=1):
            pass
        assert (run.path / "lock").exists() and not run.restarted
    assert folder.config(run.path).agent.lr == 0.1
    kept = json.loads((run.path / "versions.json").read_text())
    assert kept["packages"]["jax"] == jax.__version__ and kept["seed"] == 3
    assert kept["hashes"] == {"simulator": "ab"} and kept["python"] == sys.version.split()[0]
    assert [line["event"] for line in lines(run, "events")] == ["start", "rollout", "stop"]
    assert all(line["seconds"] >= 0 for line in lines(run, "events"))
    assert not (run.path / "lock").exists()


def test_a_finished_run_is_known_without_touching_it(tmp_path):
    out = tmp_path / "run"
    assert not folder.finished(out, CONFIG, "last")
    with folder.Run(out, CONFIG, seed=3) as run:
        run.begin("last")
        assert not folder.finished(out, CONFIG, "last")
        run.finish("last", {"seconds": 1.0})
    before = {file: file.read_bytes() for file in out.iterdir() if file.is_file()}
    assert folder.finished(out, CONFIG, "last") and not folder.finished(out, CONFIG, "other")
    with pytest.raises(disk.RunError, match="another configuration"):
        folder.finished(out, CONFIG | {"seed": 4}, "last")
    assert before == {file: file.read_bytes() for file in out.iterdir() if file.is_file()}


def test_events_have_known_names(tmp_path):
    with folder.Run(tmp_path, CONFIG) as run, pytest.raises(disk.RunError, match="use rollout"):
        run.event("rolout", 1.0)


def test_a_folder_in_use_names_its_holder(tmp_path):
    with folder.Run(tmp_path, CONFIG):
        with pytest.raises(disk.RunError, match=f"in use by process {os.getpid()}"):
            folder.Run(tmp_path, CONFIG)
        # The refused attempt must not have loosened the lock that this process holds.
        code = (
            "import sys; from mimesis_jax.runs import lock\n"
            "try: lock.Lock(__import__('pathlib').Path(sys.argv[1]))\n"
            "except ValueError as error: print(error)"
        )
        got = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path / "lock")], capture_output=True, text=True
        )
        assert f"in use by process {os.getpid()}" in got.stdout, got.stderr
    folder.Run(tmp_path, CONFIG).close()


def test_a_changed_configuration_is_refused_and_nothing_written(tmp_path):
    folder.Run(tmp_path, CONFIG).close()
    before = sorted((p.name, p.stat().st_mtime_ns) for p in tmp_path.iterdir())
    changed = CONFIG | {"agent": {"lr": 0.2, "steps": 4}}
    with pytest.raises(disk.RunError, match="agent.lr: 0.1 -> 0.2"):
        folder.Run(tmp_path, changed)
    assert before == sorted((p.name, p.stat().st_mtime_ns) for p in tmp_path.iterdir())
    with folder.Run(tmp_path, CONFIG | {"mesh": {"fsdp": 8}}, may_change=("mesh",)) as run:
        assert run.restarted


def test_a_file_and_a_read_only_folder_are_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(disk.RunError, match="file is not a folder"):
        folder.Run(tmp_path / "file" / "run", CONFIG)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write into a chmod 555 folder
    with pytest.raises(disk.RunError, match="read-only"):
        folder.Run(tmp_path / "new" / "run", CONFIG)
    assert not (tmp_path / "new").exists()


def test_a_frozen_hash_that_changes_is_an_error(tmp_path):
    with folder.Run(tmp_path, CONFIG) as run:
        run.hash("simulator", "aa" * 32)
        run.hash("simulator", "aa" * 32)
        with pytest.raises(disk.RunError, match="simulator has the hash bbbb"):
            run.hash("simulator", "bb" * 32)


def test_a_restart_cuts_metrics_back_to_the_checkpoint(tmp_path):
    run = folder.Run(tmp_path, CONFIG)
    run.begin("sft")
    run.metrics("sft", 0, {"loss": 1.0})
    run.finish("sft", {"nll": 2.5})
    run.begin("grpo")
    mark = None
    for step in range(5):
        run.metrics("grpo", step, {"reward": np.float32(step), "odd": float("nan")})
        if step == 2:
            mark = run.mark("grpo")
    run.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"phase": "grpo", "st')  # killed in the middle of a line

    with folder.Run(tmp_path, CONFIG) as run:
        assert run.restarted and run.done("sft") == {"nll": 2.5} and run.done("grpo") is None
        run.begin("grpo", mark)
        for step in (3, 4):
            run.metrics("grpo", step, {"reward": 10.0 + step})
        run.finish("grpo")
    got = [(x["phase"], x["step"], x.get("reward")) for x in lines(run, "metrics")]
    assert got == [("sft", 0, None)] + [("grpo", s, float(s)) for s in range(3)] + [
        ("grpo", 3, 13.0),
        ("grpo", 4, 14.0),
    ]
    assert lines(run, "metrics")[1]["odd"] is None
    events = [line["event"] for line in lines(run, "events")]
    assert events == ["start", "stop", "restart", "stop"]


def test_a_phase_without_a_checkpoint_starts_from_its_beginning(tmp_path):
    with folder.Run(tmp_path, CONFIG) as run:
        run.begin("a")
        run.metrics("a", 0, {"x": 1})
        run.finish("a")
        run.begin("b")
        run.metrics("b", 0, {"x": 1})
    with folder.Run(tmp_path, CONFIG) as run:
        with pytest.raises(disk.RunError, match="'a' is finished"):
            run.begin("a")
        with pytest.raises(disk.RunError, match="'b' was begun and is not finished"):
            run.begin("c")
        run.begin("b")
        assert [(x["phase"], x["step"]) for x in lines(run, "metrics")] == [("a", 0)]


def test_seconds_of_a_phase_go_on_after_a_restart(tmp_path):
    with folder.Run(tmp_path, CONFIG) as run:
        run.begin("a")
        mark = run.mark("a") | {"seconds": 100.0}
    with folder.Run(tmp_path, CONFIG) as run:
        run.begin("a", mark)
        assert 100.0 <= run.seconds("a") < 110.0
        run.finish("a")
    with folder.Run(tmp_path, CONFIG) as run:
        assert 100.0 <= run.seconds("a") < 110.0


def test_lost_lines_are_an_error(tmp_path):
    with folder.Run(tmp_path, CONFIG) as run:
        run.begin("a")
        run.metrics("a", 0, {"x": 1})
        mark = run.mark("a")
    (tmp_path / "metrics.jsonl").write_text("")
    with folder.Run(tmp_path, CONFIG) as run, pytest.raises(disk.RunError, match="lines were lost"):
        run.begin("a", mark)


def test_episodes_keep_public_and_private_apart(tmp_path):
    episode = types.Episode(
        key=types.Key(1, 7, 2),
        goal=None,
        dialogue=(
            types.Turn("system", "brief", only="agent"),
            types.Turn("user", "hello", private="I am tired"),
            types.Turn("agent", "yes?"),
        ),
        rewards=(float("nan"),),
        stop=types.Stop.DONE,
        outcome={"success": 1.0},
    )
    with folder.Run(tmp_path, CONFIG) as run:
        coached = {"turn": 2, "note": "ask", "tokens": ["yes", "?"], "gate": [0.25, 0.5]}
        run.episode("grpo", 5, episode, user="simulator", agent="grpo", csd=[coached])
        with pytest.raises(ValueError, match="2 tokens and 1 gates"):
            run.episode("g", 5, episode, user="u", agent="a", csd=[coached | {"gate": [0.1]}])
        with pytest.raises(ValueError, match="coached turn 3"):
            run.episode("g", 5, episode, user="u", agent="a", csd=[coached | {"turn": 3}])
    (line,) = lines(run, "episodes")
    assert line == {
        "phase": "grpo", "step": 5, "goal": 7, "copy": 2, "user": "simulator", "agent": "grpo",
        "turns": [
            {"author": "system", "public": "brief", "only": "agent"},
            {"author": "user", "public": "hello", "only": None},
            {"author": "agent", "public": "yes?", "only": None},
        ],
        "private": [None, "I am tired", None], "rewards": [None], "success": 1.0, "stop": "done",
        "csd": [coached],
    }  # fmt: skip
    assert "tired" not in json.dumps(line["turns"])


def test_metrics_reach_tensorboard(tmp_path):
    with folder.Run(tmp_path, CONFIG) as run:
        run.metrics("sft", 0, {"loss": 1.5})
        with pytest.raises(disk.RunError, match="called step"):
            run.metrics("sft", 1, {"step": 1})
    (file,) = (tmp_path / "tensorboard" / "sft").glob("events*")
    assert b"loss" in file.read_bytes()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 999), max_size=6), st.binary(max_size=40))
def test_a_half_written_last_line_is_removed(tmp_path_factory, whole, rest):
    path = tmp_path_factory.mktemp("log") / "x.jsonl"
    text = b"".join(b'{"n":%d}\n' % n for n in whole)
    path.write_bytes(text + rest.replace(b"\n", b""))
    log = disk.Log(path)
    log.append({"n": -1})
    log.close()
    assert [x["n"] for x in disk.lines(path)] == [*whole, -1]


def test_a_full_disk_is_told_with_the_mend(tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    log = disk.Log(tmp_path / "x.jsonl")
    log._file.close()
    log._file = open("/dev/full", "ab")  # noqa: SIM115
    with pytest.raises(disk.RunError, match="the disk is full.*same command"):
        log.append({"n": 1})


def test_git_revision_of_a_checkout(tmp_path):
    assert versions.revision(tmp_path) is None
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        subprocess.run(git + command, check=True)
    clean = versions.revision(tmp_path)
    assert len(clean["revision"]) == 40 and clean["dirty"] is False
    (tmp_path / "new").write_text("")
    assert versions.revision(tmp_path) == clean | {"dirty": True}


# --- checkpoints ------------------------------------------------------------------------------


def state_of(step, size=64):
    params = {"w": jnp.full((size, 3), float(step)), "b": jnp.full((3,), step, jnp.bfloat16)}
    return {"params": params, "opt": optax.adamw(1e-3).init(params), "step": step}


def same(a, b):
    return jax.tree.all(jax.tree.map(lambda x, y: bool(np.array_equal(x, y)), a, b))


def test_keeps_the_newest_and_every_tenth(tmp_path):
    with checkpoint.Store(tmp_path, keep=2, every=10) as store:
        assert store.restore(state_of(0)) is None
        for step in (1, 2, 10, 11, 12, 13):
            store.save(step, state_of(step), {"mark": {"metrics": step}})
        store.wait()
        assert store.steps() == [10, 12, 13]
        with pytest.raises(disk.RunError, match="checkpoint 13 already"):
            store.save(13, state_of(13))
        abstract = lambda leaf: leaf if isinstance(leaf, int) else jax.eval_shape(lambda: leaf)
        got = store.restore(jax.tree.map(abstract, state_of(0)))
    assert got.step == 13 and got.meta == {"mark": {"metrics": 13}}
    assert same(got.state, state_of(13))
    assert got.state["params"]["b"].dtype == jnp.bfloat16


def test_arrays_may_be_donated_while_they_are_saved(tmp_path):
    grow = jax.jit(lambda x: x * 2.0 + 1.0, donate_argnums=0)
    big = jnp.arange(500_000, dtype=jnp.float32)
    want = np.arange(500_000, dtype=np.float32)
    with checkpoint.Store(tmp_path) as store:
        store.save(1, {"x": big})
        for _ in range(5):
            big = grow(big)
        store.wait()
        assert np.array_equal(store.restore({"x": jnp.zeros(500_000)}).state["x"], want)


@pytest.mark.parametrize("broken", ["state/manifest.ocdbt", "state/_METADATA", "meta/metadata"])
def test_a_truncated_newest_is_skipped_and_set_aside(tmp_path, broken):
    with checkpoint.Store(tmp_path) as store:
        for step in (1, 2):
            store.save(step, state_of(step))
    file = tmp_path / "2" / broken
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with checkpoint.Store(tmp_path) as store:
        with pytest.warns(UserWarning, match="checkpoint 2 in .* is damaged"):
            got = store.restore(state_of(0))
        assert got.step == 1 and same(got.state, state_of(1))
        store.save(2, state_of(5))  # its step can be saved anew
        store.wait()
        assert store.restore(state_of(0)).step == 2
    assert (tmp_path / "damaged-2").is_dir()


def test_a_truncated_data_file_is_noticed(tmp_path):
    with checkpoint.Store(tmp_path) as store:
        for step in (1, 2):
            store.save(step, {"x": jax.random.normal(jax.random.key(step), (300, 300))})
    biggest = max((p for p in (tmp_path / "2").rglob("*") if p.is_file()),
                  key=lambda p: p.stat().st_size)  # fmt: skip
    os.truncate(biggest, biggest.stat().st_size // 2)
    with checkpoint.Store(tmp_path) as store, pytest.warns(UserWarning, match="damaged"):
        assert store.restore({"x": jnp.zeros((300, 300))}).step == 1


def test_when_all_are_damaged_nothing_is_started_anew(tmp_path):
    with checkpoint.Store(tmp_path) as store:
        store.save(1, state_of(1))
    (tmp_path / "1" / "meta" / "metadata").write_text("{")
    with checkpoint.Store(tmp_path) as store, pytest.raises(disk.RunError, match="none of the"):
        store.restore(state_of(0))


def test_a_checkpoint_of_another_model_is_an_error(tmp_path):
    with checkpoint.Store(tmp_path) as store:
        store.save(1, state_of(1))
        with pytest.raises(disk.RunError, match=r"w is float32\[64,3\] there and float32\[65,3\]"):
            store.restore(state_of(0, size=65))


KILLED = """
import sys, jax, jax.numpy as jnp
from mimesis_jax.runs import checkpoint
with checkpoint.Store(sys.argv[1], keep=2) as store:
    got = store.restore({"x": jnp.zeros((400, 1000)), "step": 0})
    step = 0 if got is None else got.state["step"]
    assert got is None or bool((got.state["x"] == step).all())
    print("from", step, flush=True)
    while True:
        step += 1
        store.save(step, {"x": jnp.full((400, 1000), float(step)), "step": step})
        print(step, flush=True)
"""


def test_kill_9_while_saving_leaves_a_whole_checkpoint(tmp_path):
    seen, rng = 0, np.random.default_rng(0)
    for _ in range(3):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        first = child.stdout.readline().split()
        assert first[0] == "from" and int(first[1]) >= seen - 1, first
        for _ in range(4):
            seen = int(child.stdout.readline())
        time.sleep(float(rng.uniform(0, 0.08)))
        child.send_signal(signal.SIGKILL)
        child.wait()
        left = child.stdout.read().split()
        seen = int(left[-1]) if left else seen
    with checkpoint.Store(tmp_path) as store:
        got = store.restore({"x": jnp.zeros((400, 1000)), "step": 0})
        # `save` returned for step `seen`, which waited for the one before to be complete.
        assert got.step == got.state["step"] >= seen - 1
        assert bool((got.state["x"] == got.step).all())
        assert not list(tmp_path.glob("*tmp*"))


# --- frozen parameters ------------------------------------------------------------------------


def test_frozen_parameters_come_back_verified(tmp_path):
    params = state_of(3)["params"] | {"layers": {"a": jnp.arange(4)}}
    path = tmp_path / "simulator"
    digest = checkpoint.save_frozen(path, params, {"phase": "user_behaviours"})
    assert digest == checkpoint.content_hash(params) == checkpoint.save_frozen(path, params)
    for template in (None, params):
        got = checkpoint.load_frozen(path, template, expect=digest)
        assert got.hash == digest and got.meta == {"phase": "user_behaviours"}
        assert same(got.params, params)
    assert not any(f.stat().st_mode & 0o222 for f in path.rglob("*") if f.is_file())
    with pytest.raises(disk.RunError, match="never replaced"):
        checkpoint.save_frozen(path, state_of(4)["params"])
    with pytest.raises(disk.RunError, match="were expected"):
        checkpoint.load_frozen(path, expect="0" * 64)
    with pytest.raises(disk.RunError, match="another model"):
        checkpoint.load_frozen(path, state_of(3)["params"])
    with pytest.raises(disk.RunError, match="no frozen parameters"):
        checkpoint.load_frozen(tmp_path / "nowhere")


def test_changed_frozen_parameters_are_noticed(tmp_path):
    path = tmp_path / "simulator"
    checkpoint.save_frozen(path, {"w": jax.random.normal(jax.random.key(0), (300, 300))})
    biggest = max((p for p in path.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    biggest.chmod(0o644)
    data = bytearray(biggest.read_bytes())
    data[len(data) // 2] ^= 0x10  # one bit; the file format does not notice it
    biggest.write_bytes(data)
    with pytest.raises(disk.RunError, match="were changed|damaged"):
        checkpoint.load_frozen(path)


def test_the_content_hash_sees_names_shapes_types_and_bits():
    base = {"a": np.zeros((2, 3), np.float32)}
    others = [
        {"b": np.zeros((2, 3), np.float32)},
        {"a": np.zeros((3, 2), np.float32)},
        {"a": np.zeros((2, 3), np.int32)},
        {"a": np.full((2, 3), -0.0, np.float32)},
    ]
    hashes = {checkpoint.content_hash(tree) for tree in [base, *others]}
    assert len(hashes) == 5
    assert checkpoint.content_hash({"a": jnp.zeros((2, 3))}) in hashes
    # sha256 over "a float32 (2, 3)\n" and 24 zero bytes, worked with sha256sum
    assert checkpoint.content_hash(base) == HASH_OF_BASE


HASH_OF_BASE = "56ac204ad9bd7009184009e832df542440ec290dd06bde7b9b7bca671c180ffd"


# --- progress and compiles --------------------------------------------------------------------


def test_lines_come_now_and_then_where_there_is_no_terminal():
    now, out = [0.0], io.StringIO()
    with progress.Bar(100, "grpo", stream=out, clock=lambda: now[0]) as bar:
        for _ in range(40):
            now[0] += 1.0
            bar.step(loss=2.3456789, user="plain")
    # first after 5 s, then every 15 s; at one step a second 100 - n seconds are left
    assert out.getvalue().splitlines() == [
        "grpo 5/100, 1:35 left, loss 2.346, user plain",
        "grpo 20/100, 1:20 left, loss 2.346, user plain",
        "grpo 35/100, 1:05 left, loss 2.346, user plain",
    ]


def test_short_work_says_nothing():
    out = io.StringIO()
    with progress.Bar(3, "x", stream=out) as bar:
        bar.step(3)
    assert out.getvalue() == ""
    assert list(progress.over([1, 2], "x")) == [1, 2]
    with pytest.raises(ValueError, match="give total"):
        list(progress.over(iter([1]), "x"))


def test_time_left_after_a_restart_counts_only_new_steps():
    now = [0.0]
    bar = progress.Bar(100, "x", done=90, stream=io.StringIO(), clock=lambda: now[0])
    assert bar.left() != bar.left()  # not known yet
    now[0] = 8.0
    bar.step(2)
    assert bar.left() == 8 * 4.0


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.7, "1:00"), (200, "3:20"), (7500, "2:05:00")]
)
def test_spans_read_like_a_clock(seconds, text):
    assert progress.span(seconds) == text


def test_compiles_are_counted_and_warm_calls_are_none():
    double = jax.jit(lambda x: x * 2 + 1)
    x, y = jnp.zeros(3), jnp.zeros(4)
    with compiles.Compiles() as seen:
        double(x)
        assert seen.count == 1 and seen.seconds > 0
        seen.mark()
        double(x)
        assert seen.since == 0 and seen.names == []
        double(y)  # another shape
        assert seen.since == 1 and len(seen.names) == 1 and seen.seconds_since > 0
    double(jnp.zeros(5))
    assert seen.count == 2  # closed


def test_calls_that_compile_together_all_end_and_the_first_fault_is_told():
    done = []

    def fails():
        raise ValueError("the second one")

    with pytest.raises(ValueError, match="the second one"):
        compiles.together(lambda: done.append(1), fails, lambda: done.append(3))
    assert sorted(done) == [1, 3]
    with compiles.Compiles() as seen:
        add = [jax.jit(lambda x, n=n: x + n) for n in range(3)]
        x = jnp.zeros(7)
        before = seen.count
        compiles.together(*(functools.partial(f, x) for f in add))
        assert seen.count == before + 3
        [f(x) for f in add]
        assert seen.count == before + 3  # what a thread compiled serves all


def test_the_compile_cache_serves_another_process(tmp_path):
    code = (
        "import sys, jax; from mimesis_jax.runs import compiles\n"
        "compiles.compile_cache(sys.argv[1] or None)\n"
        "hits = []; jax.monitoring.register_event_listener("
        "lambda e, **_: hits.append(e) if e.endswith('cache_hits') else None)\n"
        "jax.jit(lambda x: x * 3 + 1)(1.0); print(len(hits))"
    )
    run = lambda path: int(
        subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True).stdout
    )
    assert run(str(tmp_path / "cache")) == 0 and any((tmp_path / "cache").iterdir())
    assert run(str(tmp_path / "cache")) >= 1
    assert run("") == 0
