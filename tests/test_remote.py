"""Remote chairs against a server on this machine: outcomes, bounds, secrets, recordings."""

import dataclasses
import json
import logging
import socket
import threading
import time

import loopback
import pytest
from loopback import fine, serving

from mimesis_jax import types
from mimesis_jax.remote import chair, coach, endpoint, judge, recordings
from mimesis_jax.remote.said import Fault, Said, read
from mimesis_jax.types import Key, Kind, Query, Reply, Turn

pytest.importorskip("openai", reason="remote chairs need the extra `remote`")
SECRET = "sk-very-secret-0123456789"
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("TEST_KEY", SECRET)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def config(url, **changes):
    quick = {"timeout": 2.0, "retries": 2, "backoff": 0.01, "longest": 0.5, "key": "TEST_KEY"}
    return endpoint.Config(url, "m", **(quick | changes))


def once(script, **changes):
    """One call; the outcome, the endpoint's counts, the server."""
    with serving(script) as server, endpoint.Endpoint(config(server.url, **changes)) as door:
        said = door.ask(MESSAGES, seed=3).result(timeout=20)
        return said, dict(door.counts), server


def test_a_success_carries_the_text_and_the_request_what_was_configured():
    said, counts, server = once(lambda *_: fine("hello"), tokens=7, extra={"min_p": 0.1})
    assert (said.text, said.fault, said.finish, said.attempts, said.tokens) == (
        "hello", None, "stop", 1, 2,
    )  # fmt: skip
    assert server.got == [
        {"model": "m", "messages": MESSAGES, "temperature": 1.0, "max_tokens": 7, "seed": 3,
         "min_p": 0.1}
    ]  # fmt: skip
    assert server.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert counts == {"calls": 1, "attempts": 1, "tokens": 2}


def test_refused_for_rate_then_a_success():
    script = lambda number, _: (429, {"retry-after": "0.01"}, "{}") if number < 2 else fine("ok")
    said, counts, _ = once(script)
    assert said.text == "ok" and said.attempts == 3
    assert counts == {"calls": 1, "attempts": 3, "retried_rate": 2, "tokens": 2}


def test_an_endpoint_that_asks_for_too_long_a_pause_is_not_asked_again():
    said, counts, _ = once(lambda *_: (429, {"retry-after": "3600"}, "{}"))
    assert said.fault is Fault.RATE and "3600 s" in said.reason and said.attempts == 1
    assert said.seconds < 2 and counts["fault_rate"] == 1


HTML = (200, {"content-type": "text/html"}, "<html>busy</html>")


@pytest.mark.parametrize(
    "answer, fault, attempts, says",
    [
        ((500, {}, "{}"), Fault.SERVER, 3, "status 500"),
        ((503, {}, "<html>"), Fault.SERVER, 3, "status 503"),
        ((200, {}, '{"choices": ['), Fault.GARBAGE, 3, "no JSON"),
        ((200, {}, "[]"), Fault.GARBAGE, 3, "a JSON list"),
        ((200, {}, "{}"), Fault.GARBAGE, 3, "no choices"),
        ((200, {}, '{"choices": [{"message": {"content": 5}}]}'), Fault.GARBAGE, 3, "int"),
        ((200, {}, '{"choices": [{"message": {"content": null}}]}'), Fault.GARBAGE, 3, "NoneType"),
        ((200, {}, "[" * 100_000), Fault.GARBAGE, 3, "no chat completion"),
        (HTML, Fault.GARBAGE, 3, "text/html"),
        ((400, {}, '{"error": {"message": "bad field"}}'), Fault.REQUEST, 1, "bad field"),
        ((404, {}, "{}"), Fault.REQUEST, 1, "status 404"),
        ((401, {}, json.dumps({"error": {"message": f"bad key {SECRET}"}})), Fault.DENIED, 1,
         "TEST_KEY"),
        ("hang", Fault.TIMEOUT, 3, "no answer in 0.2 s"),
        ("trickle", Fault.TIMEOUT, 3, "no answer in 0.2 s"),
    ],
)  # fmt: skip
def test_each_fault_is_typed_counted_and_bounded(answer, fault, attempts, says):
    said, counts, server = once(
        lambda *_: answer, timeout=0.2 if answer in ("hang", "trickle") else 2.0
    )
    assert (said.fault, said.attempts, said.text) == (fault, attempts, "")
    assert says in said.reason and SECRET not in said.reason
    assert counts[f"fault_{fault}"] == 1 and counts["attempts"] == attempts == len(server.got)
    assert said.seconds < 5


def test_nobody_at_the_door():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        with endpoint.Endpoint(config(url, retries=1)) as door:
            said = door.ask(MESSAGES).result(timeout=20)
    assert said.fault is Fault.CONNECTION and said.attempts == 2


def test_no_more_calls_at_once_than_allowed_and_closing_ends_open_ones():
    gate = threading.Event()

    def script(number, _):
        gate.wait(10)
        return fine(str(number))

    with serving(script) as server:
        door = endpoint.Endpoint(config(server.url, at_once=3, timeout=20))
        open_ = [door.ask(MESSAGES) for _ in range(9)]
        while server.busy < 3:
            time.sleep(0.01)
        time.sleep(0.1)
        assert server.most == 3
        gate.set()
        assert sorted(f.result(10).text for f in open_) == [str(n) for n in range(9)]
        gate.clear()
        late = door.ask(MESSAGES)
        while server.busy < 1:
            time.sleep(0.01)
        door.close()
        door.close()
        gate.set()
        assert late.result(5).fault is Fault.CLOSED and door.counts["fault_closed"] == 1
        with pytest.raises(ValueError, match="closed"):
            door.ask(MESSAGES)


def test_the_key_is_read_from_the_environment_and_told_nowhere(monkeypatch, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    body = json.dumps({"error": {"message": f"the key {SECRET} may not"}})
    tape = recordings.Recordings(tmp_path, "record")
    script = lambda number, _: fine("x") if number == 0 else (400, {}, body)
    with serving(script) as server:
        with endpoint.Endpoint(config(server.url), tape) as door:
            good = door.ask(MESSAGES, seed=1).result(10)
            bad = door.ask(MESSAGES, seed=2).result(10)
            told = [repr(door), repr(door.config), repr(good), repr(bad)]
            assert SECRET not in repr(dataclasses.asdict(door.config))
    assert "[key]" in bad.reason
    told += [path.read_text() for path in tmp_path.iterdir()] + [caplog.text]
    assert len(told) == 6 and not any(SECRET in text for text in told)
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(ValueError, match="variable TEST_KEY is not set: export"):
        endpoint.Endpoint(config("http://127.0.0.1:1/v1"))


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"url": "ftp://x/v1"}, "http://HOST"),
        ({"url": f"http://me:{SECRET}@x/v1"}, "environment only"),
        ({"url": f"http://x/v1?key={SECRET}"}, "environment only"),
        ({"timeout": 0}, "must be positive"),
        ({"model": ""}, "model is empty"),
    ],
)
def test_a_wrong_configuration_says_what_mends_it_and_no_secret(changes, says):
    with pytest.raises(ValueError, match=says) as error:
        endpoint.Config(**({"url": "http://x/v1", "model": "m"} | changes))
    assert SECRET not in str(error.value)


# --- recordings ---------------------------------------------------------------------------------


def test_what_was_recorded_is_replayed_without_a_server_or_a_key(monkeypatch, tmp_path):
    answers = [fine("one"), (500, {}, "{}"), (500, {}, "{}"), (500, {}, "{}"), fine("two")]
    with serving(lambda number, _: answers[number]) as server:
        tape = recordings.Recordings(tmp_path, "record")
        with endpoint.Endpoint(config(server.url), tape) as door:
            assert door.ask(MESSAGES, seed=1).result(10).text == "one"
            assert door.ask(MESSAGES, seed=2).result(10).fault is Fault.SERVER
            assert door.ask(MESSAGES, seed=1).result(10).attempts == 0  # from the folder
            assert door.ask(MESSAGES, seed=3).result(10).text == "two"
        url = server.url
    assert len(list(tmp_path.iterdir())) == 2
    monkeypatch.delenv("TEST_KEY")
    tape = recordings.Recordings(tmp_path, "replay")
    with endpoint.Endpoint(config(url), tape) as door:
        said = [door.ask(MESSAGES, seed=n).result(10) for n in (1, 2, 3)]
    assert [s.text for s in said] == ["one", "", "two"]
    assert said[1].fault is Fault.UNRECORDED  # a fault is never replayed as an answer
    assert dict(door.counts) == {"calls": 3, "replayed": 2, "fault_unrecorded": 1, "tokens": 4}


def test_a_spoilt_recording_is_a_fault_that_names_its_file(tmp_path):
    tape = recordings.Recordings(tmp_path, "record")
    body = {"model": "m", "messages": MESSAGES, "temperature": 1.0, "max_tokens": 512}
    other = {**body, "seed": 9}
    tape.keep(other, loopback.completion("x"))
    tape.path(body).write_bytes(tape.path(other).read_bytes())
    tape.path({**body, "seed": 1}).write_text("{")
    replay = recordings.Recordings(tmp_path, "replay")
    with endpoint.Endpoint(config("http://127.0.0.1:1/v1"), replay) as door:
        swapped, broken = door.ask(MESSAGES).result(10), door.ask(MESSAGES, seed=1).result(10)
    assert swapped.fault is broken.fault is Fault.GARBAGE
    assert "another request" in swapped.reason and "cannot be read" in broken.reason
    assert tape.path(body).name in swapped.reason
    with pytest.raises(recordings.RecordingError, match="record the calls first"):
        recordings.Recordings(tmp_path / "nowhere", "replay")


# --- chairs -------------------------------------------------------------------------------------

DIALOGUE = (
    Turn("system", "want red", only="user"),
    Turn("system", "guide", only="agent"),
    Turn("user", "hello", "a secret"),
    Turn("agent", "look plan", "hidden", only="agent"),
    Turn("tool", "plan basic", only="agent"),
    Turn("agent", "size ?", "hidden"),
)


def test_messages_are_the_chair_s_own_side_and_hold_nothing_private():
    settings = chair.Config(prompt="play", opening="begin")
    message = lambda role, content: {"role": role, "content": content}
    assert chair.messages(DIALOGUE, "user", settings) == [
        message("system", "play\n\nwant red"), message("user", "begin"),
        message("assistant", "hello"), message("user", "size ?"),
    ]  # fmt: skip
    assert chair.messages(DIALOGUE, "agent", settings) == [
        message("system", "play\n\nguide"), message("user", "hello"),
        message("assistant", "look plan"), message("user", "[tool result]\nplan basic"),
        message("assistant", "size ?"),
    ]  # fmt: skip
    assert chair.messages((), "user", chair.Config()) == [message("user", "(You speak first.)")]


@pytest.mark.parametrize(
    "said, kind, public, private",
    [
        (Said("hi"), Kind.TEXT, "hi", None),
        (Said("hi", thought="hm"), Kind.TEXT, "hi", "hm"),
        (Said("<think> hm </think> hi "), Kind.TEXT, "hi", "hm"),
        (Said("hm</think>hi"), Kind.TEXT, "hi", "hm"),
        (Said("<think>hm"), Kind.UNPARSED, "", None),
        (Said("<think>hm</think>a</think>"), Kind.UNPARSED, "", None),
        (Said("hi", finish="length"), Kind.UNPARSED, "hi", None),
        (Said(""), Kind.EMPTY, "", None),
        (Said(" "), Kind.EMPTY, "", None),
        (Said("thanks[bye]"), Kind.STOP, "thanks", None),
        (Said("[bye]and thanks"), Kind.STOP, "and thanks", None),
        (Said("<think>shall I [bye]?</think>no"), Kind.TEXT, "no", "shall I [bye]?"),
        (Said("", refusal="no"), Kind.REFUSED, "", None),
        (Said("", finish="content_filter"), Kind.REFUSED, "", None),
        (Said(fault=Fault.TIMEOUT, reason="late"), Kind.FAILED, "", None),
    ],
)
def test_kinds_of_replies(said, kind, public, private):
    made = chair.reply(said, "user", chair.Config(leave="[bye]"))
    assert (made.kind, made.public, made.private) == (kind, public, private)
    if said.fault:
        assert made.reason == "timeout: late"


def test_leaving_is_the_user_s_alone():
    settings = chair.Config(leave="[bye]")
    assert chair.reply(Said("so [bye]"), "agent", settings) == Reply(Kind.TEXT, "so [bye]")


def test_a_slow_call_delays_its_own_episode_only():
    gate = threading.Event()

    def script(_, body):
        if "slow" in body["messages"][-1]["content"]:
            gate.wait(10)
        return fine(body["messages"][-1]["content"])

    with serving(script) as server, endpoint.Endpoint(config(server.url, timeout=20)) as door:
        user = chair.Chair(door, "user", chair.Config())
        queries = [
            Query(Key(0, n, 0), "user", (Turn("agent", word),))
            for n, word in enumerate(["slow", "a"])
        ]
        first = collect(user, queries, 1)
        assert [(q.key.goal, r.public) for q, r in first] == [(1, "a")]
        assert list(user.respond([])) == []
        gate.set()
        assert [(q.key.goal, r.public) for q, r in collect(user, [], 1)] == [(0, "slow")]
    assert user.counts == {"replies": 2, "kind_text": 2}
    seeds = {body["seed"] for body in server.got}
    assert len(seeds) == 2 and all(0 <= s < 2**31 for s in seeds)


def collect(respond, queries, wanted):
    answers = list(respond.respond(queries))
    until = time.monotonic() + 10
    while len(answers) < wanted and time.monotonic() < until:
        time.sleep(0.005)
        answers += respond.respond([])
    return answers


def test_a_seed_is_the_reply_s_own():
    made = {chair.seed(Key(a, b, c, d), who) for a in range(3) for b in range(3) for c in range(3)
            for d in range(3) for who in ("user", "agent")}  # fmt: skip
    assert len(made) == 162
    assert chair.seed(Key(1, 2, 3, 4), "user") == chair.seed(Key(1, 2, 3, 4), "user")


# --- coach and judge ----------------------------------------------------------------------------


def test_a_coach_has_a_note_for_each_agent_turn_and_faults_are_no_notes():
    turns = (*DIALOGUE, Turn("user", "red", "my plan is basic"), Turn("agent", "bye"))
    answers = {"look plan": fine(" Ask first. "), "size ?": fine("None."), "bye": (400, {}, "{}")}
    script = lambda _, body: answers[json.loads(body["messages"][1]["content"])["reply"]]
    with serving(script) as server, endpoint.Endpoint(config(server.url)) as door:
        held = coach.Coach(door)
        assert held.notes(turns) == {3: "Ask first.", 5: None, 7: None}
    assert held.counts == {"notes": 1, "none": 1, "fault_request": 1}
    data = {json.loads(b["messages"][1]["content"])["reply"]: b for b in server.got}
    asked = json.loads(data["size ?"]["messages"][1]["content"])
    assert (asked["thought"], asked["next"]) == ("my plan is basic", "red")
    # earlier thoughts and the user's brief are no public history
    assert "secret" not in str(asked) and "want red" not in str(asked)


@pytest.mark.parametrize(
    "text, score, why",
    [
        ('{"why": "fine", "score": 0.5}', 0.5, "fine"),
        ('Well: {"why": "fine", "score": 1}!', 1.0, "fine"),
        ('<think>{"score": 0}</think>{"score": 1, "why": "so"}', 1.0, "so"),
        ('{"score": 7}', None, "out of bounds"),
        ('{"score": NaN}', None, "out of bounds"),
        ('{"score": true}', None, "garbage"),
        ('{"score": "1"}', None, "garbage"),
        ("nine of ten", None, "garbage"),
        ("[1]", None, "garbage"),
    ],
)
def test_a_verdict_is_a_number_within_bounds_or_none(text, score, why):
    with serving(lambda *_: fine(text)) as server, endpoint.Endpoint(config(server.url)) as door:
        (verdict,) = judge.Judge(door, "Is it polite?")([DIALOGUE])
    assert verdict.score == score and verdict.why.startswith(why)
    assert "Is it polite?" in server.got[0]["messages"][0]["content"]


def test_a_judge_s_faults_are_no_zero():
    with serving(lambda *_: (500, {}, "")) as server:
        with endpoint.Endpoint(config(server.url, retries=0)) as door:
            held = judge.Judge(door, "Is it polite?")
            assert [v.score for v in held([DIALOGUE, DIALOGUE])] == [None, None]
            assert held.counts == {"fault_server": 2}
            with pytest.raises(ValueError, match="low must be below high"):
                judge.Judge(door, "?", low=1, high=1)


def test_reading_checks_every_step():
    assert read(loopback.completion("a", reasoning_content="b")).thought == "b"
    assert read(loopback.completion(None, refusal="no")).refusal == "no"
    with pytest.raises(ValueError, match="no message"):
        read({"choices": [{}]})
    assert issubclass(chair.Chair, types.Respond)
