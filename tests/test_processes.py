"""Processes of one run: who they are, who is missing, who differs, who is gone; without JAX.

The desk and the others' ends run here in threads of one process, so that each case takes no time.
Whole processes with JAX between them are in test_processes_jax.py.
"""

import contextlib
import json
import re
import socket
import threading
import time

import pytest

from mimesis_jax.runs import processes, processes_hub, processes_place, processes_spoke
from mimesis_jax.runs import processes_told as told
from mimesis_jax.runs import processes_wire as wire

QUICK = told.Settings(arrive=10, beat=0.05, silent=5, grace=1)
SAME = {"jax": "0.10.2", "config": {"steps": 40, "mesh": {"fsdp": 8}}}


def place(index, count, port):
    return processes_place.Place(index, count, "127.0.0.1", port)


class Run:
    """Hub and spokes in threads; `ends` are made, `errors` what muster raised, `verdicts` heard."""

    def __init__(self, count, *, facts=None, settings=QUICK, absent=()):
        self.port, self.verdicts, self.errors, self.ends = wire.free_port(), {}, {}, {}
        self.members = {}
        self.heard = threading.Event()

        def begin(i):
            kind = processes_spoke.Spoke if i else processes_hub.Hub
            mine = (facts or {}).get(i, SAME)
            end = kind(place(i, count, self.port), mine, settings, lambda text: self.hear(i, text))
            self.ends[i] = end
            try:
                self.members[i] = end.muster()
            except told.ProcessError as error:
                self.errors[i] = error

        self.threads = [wire.thread(begin, i) for i in range(count) if i not in absent]
        for one in self.threads:
            one.join(30)

    def hear(self, i, text):
        self.verdicts[i] = text
        self.heard.set()

    def all(self, work, but=()):
        """work(end, index) on every end at once; what each gave or raised."""
        found = {}

        def one(i, end):
            try:
                found[i] = work(end, i)
            except told.ProcessError as error:
                found[i] = error

        threads = [wire.thread(one, i, end) for i, end in self.ends.items() if i not in but]
        for thread in threads:
            thread.join(30)
        return [found.get(i) for i in sorted(self.ends)]

    def close(self):
        for end in self.ends.values():
            end.close()


@pytest.fixture
def run():
    made = []

    def make(*args, **more):
        made.append(Run(*args, **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


# --- which process this is ------------------------------------------------------------------------


def test_flags_count_before_the_environment():
    env = {
        "JAX_COORDINATOR_ADDRESS": "hosta:8476", "JAX_NUM_PROCESSES": "4", "JAX_PROCESS_ID": "3"
    }  # fmt: skip
    found = processes.find(environ=env)
    assert (found.index, found.count, found.host, found.port) == (3, 4, "hosta", 8476)
    assert processes.find(2, 1, environ=env) == processes.Place(1, 2, "hosta", 8476)
    assert processes.find(1, environ=env) is None
    assert processes.find(environ={"JAX_PLATFORMS": "cpu"}) is None
    assert processes.find(2, 0, "[::1]:90", {}).address == "[::1]:90"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((4, 1, None), "--coordinator is missing .or JAX_COORDINATOR_ADDRESS"),
        ((None, 1, "a:1"), "--processes is missing"),
        ((4, None, "a:1"), "--process is missing .or JAX_PROCESS_ID"),
        ((4, 4, "a:1"), "--process 4 is not among 4 processes: they are numbered 0 to 3"),
        ((4, -1, "a:1"), "--process -1"),
        ((4, 1, "a"), "'a' is no address: write HOST:PORT"),
        ((4, 1, "a:99999"), "'a:99999' is no address"),
        ((4, 1, ":80"), "':80' is no address"),
        ((0, 0, "a:80"), "--processes 0: the least is 1"),
    ],
)
def test_what_does_not_fit_is_named(given, words):
    with pytest.raises(processes.ProcessError, match=words):
        processes.find(*given, environ={})


def test_a_number_that_is_none_is_named():
    with pytest.raises(processes.ProcessError, match="--processes .JAX_NUM_PROCESSES. is 'many'"):
        processes.find(environ={"JAX_NUM_PROCESSES": "many", "JAX_PROCESS_ID": "0",
                                "JAX_COORDINATOR_ADDRESS": "a:1"})  # fmt: skip


def test_a_pod_is_found_as_jax_finds_it(monkeypatch):
    """Slurm is one of the places that JAX knows by itself."""
    env = {
        "SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "n[1-2]", "SLURM_NTASKS": "2",
        "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_STEP_NUM_NODES": "2",
    }  # fmt: skip
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    found = processes.find()
    assert (found.index, found.count, found.host) == (1, 2, "n1")
    assert processes.find(environ=env | {"SLURM_NTASKS": "1", "JAX_PLATFORMS": "cpu"}) is None
    monkeypatch.setattr(processes_place.importlib, "import_module", lambda name: object())
    with pytest.raises(processes.ProcessError, match="give --processes N, --process I"):
        processes.find(environ=env)


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(processes.ProcessError, match="three beats of 3.0 s.*use 9.0"):
        told.Settings(silent=5)
    with pytest.raises(processes.ProcessError, match="arrive is 0 seconds"):
        told.Settings(arrive=0)


# --- arriving -------------------------------------------------------------------------------------


def test_all_arrive_in_any_order_and_know_each_other(run):
    began = run(3)
    assert not began.errors
    assert [m.index for m in began.members[2]] == [0, 1, 2]
    assert began.members[0] == began.members[1] == began.members[2]


def test_who_is_missing_is_named_on_every_process_that_came(run):
    began = run(4, absent=(2,), settings=told.Settings(arrive=0.8, beat=0.05, silent=5))
    assert sorted(began.errors) == [0, 1, 3]
    host = socket.gethostname()
    for error in began.errors.values():
        assert str(error).startswith("3 of 4 processes arrived within 0.8 s")
        assert f"(0 on {host}, 1 on {host}, 3 on {host})" in str(error)
        assert "process 2 is missing: start the same command on every worker" in str(error)
        assert error.status == processes.LOST


def test_alone_where_several_were_to_come(run):
    began = run(4, absent=(1, 2, 3), settings=told.Settings(arrive=0.3, beat=0.05, silent=5))
    assert "1 of 4 processes arrived" in str(began.errors[0])
    assert "processes 1, 2 and 3 are missing" in str(began.errors[0])


def test_a_wrong_coordinator_is_named_with_the_reason(run):
    began = run(2, absent=(0,), settings=told.Settings(arrive=0.7, beat=0.05, silent=5))
    text = str(began.errors[1])
    assert f"process 1 (host {socket.gethostname()}" in text
    assert f"did not reach process 0 at 127.0.0.1:{began.port} within 0.7 s" in text
    assert "Connection refused" in text and "--coordinator" in text


def test_something_else_that_answers_is_told_apart():
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer():
            with contextlib.suppress(OSError):
                while True:
                    sock, _ = other.accept()
                    sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    sock.close()

        wire.thread(answer)
        end = processes_spoke.Spoke(
            place(1, 2, other.getsockname()[1]), SAME,
            told.Settings(arrive=0.8, beat=0.05, silent=5), lambda text: None,
        )  # fmt: skip
        with pytest.raises(told.ProcessError, match="something else than this program answers"):
            end.muster()


def test_strangers_do_not_disturb_who_is_waiting():
    port = wire.free_port()
    hub = processes_hub.Hub(place(0, 2, port), SAME, QUICK, lambda text: None)
    try:
        for noise in (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"", b"\x00" * 50,
                      wire.LENGTHS.pack(wire.MAGIC, 2, 0) + b"[]",
                      wire.LENGTHS.pack(wire.MAGIC, 15, 0) + b'{"index": "no"}',
                      wire.LENGTHS.pack(wire.MAGIC, 1 << 31, 1 << 60)):  # fmt: skip
            with socket.create_connection(("127.0.0.1", port)) as sock:
                sock.sendall(noise)
        spoke = processes_spoke.Spoke(place(1, 2, port), SAME, QUICK, lambda text: None)
        wire.thread(spoke.muster)
        assert [m.index for m in hub.muster()] == [0, 1]
        spoke.close()
    finally:
        hub.close()


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = told.Settings(arrive=0.5, beat=0.05, silent=5)
        with pytest.raises(told.ProcessError, match=f"cannot listen on port {port}.*another port"):
            processes_hub.Hub(place(0, 2, port), SAME, settings, lambda text: None)


def test_two_processes_of_one_number_are_refused():
    port = wire.free_port()
    short = told.Settings(arrive=1.2, beat=0.05, silent=5)
    hub = processes_hub.Hub(place(0, 3, port), SAME, short, lambda text: None)
    wire.thread(lambda: pytest.raises(told.ProcessError, hub.muster))
    ends = [processes_spoke.Spoke(place(1, 3, port), SAME, short, lambda text: None)
            for _ in range(2)]  # fmt: skip
    errors = []

    def arrive(end):
        try:
            end.muster()
        except told.ProcessError as error:
            errors.append(str(error))

    threads = [wire.thread(arrive, end) for end in ends]
    for one in threads:
        one.join(20)
    hub.close()
    assert any("is there already: give each worker its own --process" in e for e in errors)
    assert any("2 of 3 processes arrived" in e for e in errors)


def test_another_count_is_refused_at_once():
    port = wire.free_port()
    hub = processes_hub.Hub(place(0, 3, port), SAME, QUICK, lambda text: None)
    spoke = processes_spoke.Spoke(place(1, 2, port), SAME, QUICK, lambda text: None)
    with pytest.raises(told.ProcessError, match="one of 2 processes.*one of 3: give the same"):
        spoke.muster()
    hub.close()


# --- what has to be the same ----------------------------------------------------------------------


def test_skew_names_process_field_and_both_values(run):
    other = {"jax": "0.11.0", "config": {"steps": 40, "mesh": {"fsdp": 4}}}
    began = run(3, facts={2: other})
    assert sorted(began.errors) == [0, 1, 2]
    text = str(began.errors[1])
    assert 'jax is "0.10.2" on process 0 (host' in text
    assert '"0.11.0" on process 2 (host' in text
    assert "config.mesh.fsdp is 8 on process 0" in text and "and 4 on process 2" in text
    assert "config.steps" not in text
    assert began.errors[0].status == processes.REFUSED


def test_many_differences_are_counted(run):
    began = run(2, facts={1: {f"package{i}": "1" for i in range(9)}})
    assert "and 7 more" in str(began.errors[0])  # 9 new ones, and the 3 of SAME absent


def test_facts_change_with_code_and_configuration(tmp_path):
    made = told.facts({"steps": 3}, verb="train")
    assert made["config"] == {"steps": 3} and made["verb"] == "train" and "jax" in made
    assert json.loads(json.dumps(made)) == made
    (tmp_path / "a.py").write_text("x = 1\n")
    before = told.code(tmp_path)
    assert told.code(tmp_path) == before
    (tmp_path / "a.py").write_text("x = 2\n")
    assert told.code(tmp_path) != before


def test_numbers_as_words():
    assert told.listed([2]) == "process 2"
    assert told.listed([1, 3, 4]) == "processes 1, 3 and 4"
    assert told.listed(range(1, 40)) == "processes 1, 2, 3, 4, 5, 6, 7, ..., 39"


# --- meeting --------------------------------------------------------------------------------------


def test_everybody_gets_what_everybody_brought_in_order(run):
    began = run(3)

    def work(end, i):
        first = end.gather("sizes", {"of": i}, b"x" * i, None)
        second = end.gather("bytes", None, bytes([i]) * 300_000, None)
        return first, second

    found = began.all(work)
    assert found[0] == found[1] == found[2]
    first, second = found[0]
    assert first == [({"of": 0}, b""), ({"of": 1}, b"x"), ({"of": 2}, b"xx")]
    assert second == [(None, bytes([i]) * 300_000) for i in range(3)]


def test_processes_out_of_step_are_told_where_each_is(run):
    began = run(2)
    found = began.all(lambda end, i: end.gather(("save", "score")[i], None, b"", None))
    for error in found:
        assert "not in step: process 0" in str(error)
        assert "is at 'save', process 1" in str(error) and "at 'score'" in str(error)


def test_who_does_not_come_in_time_is_named(run):
    began = run(3)
    found = began.all(lambda end, i: end.gather("save", None, b"", 0.4), but=(2,))
    assert str(found[0]).startswith("2 of 3 processes came to 'save' within 0.4 s; process 2 (host")
    assert str(found[1]) == str(found[0])
    assert found[0].status == processes.LOST


# --- the end --------------------------------------------------------------------------------------


def wait(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.mark.parametrize("dies", [0, 1])
def test_who_is_gone_is_named_to_all_others_at_once(run, dies):
    began = run(3)
    line = began.ends[dies]._line if dies else None
    if dies:
        line.close()  # as the system does for a process that is killed
    else:
        began.ends[0]._closing = True  # a process that is killed says nothing of the others
        for one in began.ends[0]._lines.values():
            one.close()
    others = [i for i in range(3) if i != dies]
    assert wait(lambda: all(i in began.verdicts for i in others))
    for i in others:
        assert f"process {dies} (host" in began.verdicts[i]
        assert "is gone: its connection ended without a word" in began.verdicts[i]
    with pytest.raises(told.ProcessError, match=f"process {dies}.* is gone"):
        began.ends[others[-1]].gather("next", None, b"", None)


@pytest.mark.parametrize("silent", [0, 1])
def test_who_is_silent_is_named(run, silent):
    """A process that hangs keeps its connection and sends nothing."""
    began = run(3, settings=told.Settings(arrive=10, beat=0.05, silent=0.5, grace=1))
    began.ends[silent]._closing = True  # ends its thread of beats, and nothing else
    others = [i for i in range(3) if i != silent]
    assert wait(lambda: all(i in began.verdicts for i in others))
    for i in others:
        assert f"process {silent} (host" in began.verdicts[i]
        assert "gave no sign of life for" in began.verdicts[i]


def test_a_failure_is_told_with_its_reason(run):
    began = run(3)
    began.ends[1].fail("ValueError: batch 48 is not a multiple of 32")
    assert wait(lambda: {0, 2} <= set(began.verdicts))
    for i in (0, 2):
        assert "process 1 (host" in began.verdicts[i]
        assert "failed: ValueError: batch 48 is not a multiple of 32" in began.verdicts[i]
    assert 1 not in began.verdicts


def test_a_failure_of_process_0_is_told_too(run):
    began = run(2)
    began.ends[0].fail("OSError: disk full")
    assert wait(lambda: 1 in began.verdicts)
    assert "process 0 (host" in began.verdicts[1] and "disk full" in began.verdicts[1]
    assert 0 not in began.verdicts


def test_processes_that_read_other_files_are_all_told_so(monkeypatch):
    """Each of them ends by its own word, with the status of a refusal, and not as a victim."""
    monkeypatch.setattr(processes.Group, "_ended", lambda self, text: None)  # it ends a process
    port, said = wire.free_port(), {}

    def work(i):
        group = processes.Group(place(i, 2, port), SAME, QUICK)
        group.alike({"tokenizer": "a"}, "words", "Give the same")
        try:
            group.alike({"tokenizer": "a", "talk": f"file {i}"}, "files", "Give the same files")
        except processes.ProcessError as error:
            said[i] = (group.ended(error) is error, error.status, str(error))
        group._end.close()

    for one in [wire.thread(work, i) for i in range(2)]:
        one.join(30)
    assert said[0] == said[1] and said[0][:2] == (True, processes.REFUSED)
    assert re.fullmatch(
        r"the processes are not alike: talk is .file 0. on process 0 \(host .*\) and .file 1. on "
        r"process 1 \(host .*\)\. Give the same files", said[0][2],
    )  # fmt: skip


def test_an_ordinary_end_is_nobodys_death(run):
    began = run(3)
    began.all(lambda end, i: end.gather("the end", None, b"", None))
    began.all(lambda end, i: (end.done(5.0), end.close()))
    time.sleep(0.3)
    assert not began.verdicts


# --- alone ----------------------------------------------------------------------------------------


def test_a_run_of_one_process_answers_for_itself():
    assert (processes.index(), processes.count(), processes.is_lead()) == (0, 1, True)
    assert processes.exchange(b"abc", "x") == [b"abc"]
    assert processes.agree({"a": (1, 2)}, "x") == [{"a": [1, 2]}]
    processes.barrier("x")
    with processes.joined(None, {}) as group:
        assert group is None
    assert not processes.broken()
    processes.quit_if_broken(3)  # and we are still here


# --- the wire -------------------------------------------------------------------------------------


def test_frames_come_back_as_they_were_sent():
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = wire.Line(socket.create_connection(server.getsockname()))
        far = wire.Line(server.accept()[0])
    big = bytes(range(256)) * 4096
    wire.thread(near.send, {"a": [1, "ü"]}, big)
    assert far.receive() == ({"a": [1, "ü"]}, big)
    near.close()
    assert far.receive() is None
    with pytest.raises(ValueError, match="the limit is"):
        near.send({"a": "x" * wire.HEAD})
