"""A seat between text and tokens: what it feeds, records and calls a reply, by a scripted engine;
and, with a real one, that its trees are scored as they were sampled."""

import collections
import dataclasses

import numpy as np
import pytest
import small_desk
from hypothesis import given, settings
from hypothesis import strategies as st
from small_desk import quick_compiles  # noqa: F401 - acts by being here

from mimesis_jax import types
from mimesis_jax.chat import render, tokenizer
from mimesis_jax.chat.tokenizer import AGENT, END, LEAVE, NOTE, THINK, THINK_END, USER
from mimesis_jax.forest import tree as trees
from mimesis_jax.rollouts import engine, play, scoring, seat
from mimesis_jax.types import Kind, Turn

TEXTS = ["hello the colour is red please", "ask size", "look plan", "plan basic", "want a change"]
RENDER = render.Renderer(tokenizer.train(TEXTS * 5, 340))
encode = lambda text: RENDER.tokenizer.encode(text).tolist()
EPISODE = (4, 2, 1)

DIALOGUE = (
    Turn("system", "want red", only="user"),
    Turn("system", "ask size", only="agent"),
    Turn("user", "hello", "want red , tell"),
    Turn("agent", "look plan", "plan first", only="agent"),
    Turn("tool", "plan basic", only="agent"),
    Turn("agent", "size ?", "ask size now"),
    Turn("user", "the size is red", ""),
    Turn("agent", "done", ""),
    Turn("user", "thanks , bye", "want no more"),
)


class ScriptedEngine:
    """Answers with completions given beforehand; keeps each conversation's line as it was fed."""

    def __init__(self, samples=(), full=False):
        self.samples, self.full = list(samples), full
        self.asked, self.open, self.closed = [], [], []
        self.lines = collections.defaultdict(list)  # what the conversation's cache would hold
        self.branches = collections.defaultdict(list)
        self.read = []  # the whole context of each reply

    def submit(self, request):
        line, branch = self.lines[request.conversation], self.branches[request.conversation]
        if not request.onward:
            branch.clear()
        (branch if request.onward else line).extend(request.extend)
        self.read.append([*line, *branch, *request.header])
        self.asked.append(request)
        self.open.append(request)

    def advance(self):
        done = [self._complete(request) for request in self.open]
        self.open = []
        return done

    def _complete(self, request):
        ids = self.samples.pop(0)
        held = self.branches if request.private else self.lines
        held[request.conversation] += [*request.header, *ids]
        logp = -0.01 * np.arange(1, len(ids) + 1, dtype=np.float32)
        free = np.arange(len(ids)) != 1  # the second token was forced
        stopped = bool(ids) and ids[-1] in request.stop
        return engine.Completion(
            request, np.array(ids, np.int32), logp, logp, free, stopped, self.full, 3
        )

    def close(self, conversation):
        self.closed.append(conversation)


def said(turn, thinking, closer=END):
    """The ids a model that says this turn would have sampled."""
    thought = [*encode(turn.private or ""), THINK_END] if thinking == "sample" else []
    return [*thought, *encode(turn.public), closer]


def converse(dialogue, chair, thinking, *, samples=None, history=None, renderer=None):
    """Leads a dialogue past one seat. Returns the engine, the replies and the seat's tree."""
    own = [i for i, turn in enumerate(dialogue) if turn.author == chair]
    leaves = lambda i: chair == "user" and i == len(dialogue) - 1
    held = ScriptedEngine(
        samples or [said(dialogue[i], thinking, LEAVE if leaves(i) else END) for i in own]
    )
    settings = seat.Config(thinking=thinking, history=history)
    taker = seat.ModelSeat(held, renderer or RENDER, chair, settings)
    replies = []
    for i in own:
        seen = types.view(dialogue[:i], chair)
        query = types.Query(types.Key(*EPISODE, i), chair, seen)
        ((answered, reply),) = taker.respond([query])
        assert answered is query
        replies.append(reply)
    return held, replies, taker.finish(EPISODE)


CHAIRS = [(c, t) for c in ("agent", "user") for t in ("none", "empty", "sample")]


@pytest.mark.parametrize("history", ["drop_at_user", "drop", "keep"])
@pytest.mark.parametrize("chair, thinking", CHAIRS)
def test_the_tree_is_the_renderer_s_tree_of_the_same_text(chair, thinking, history):
    """Turn for turn the same context, the same learned ids; calls and results included."""
    held, replies, tree = converse(DIALOGUE, chair, thinking, history=history)
    expected = RENDER.tree(DIALOGUE, chair, thinking=thinking, history=history, left=True)
    paths = lambda one: [(s.turn, trees.path(one, i)) for i, s in enumerate(one) if s.scored.any()]
    found, wanted = paths(tree), paths(expected)
    assert [turn for turn, _ in found] == [turn for turn, _ in wanted]
    assert len(found) == 3
    for (_, a), (_, b) in zip(found, wanted, strict=True):
        assert a.ids.tolist() == b.ids.tolist()
        assert a.scored.tolist() == b.scored.tolist()
    # what the engine read before each reply is the path up to the first sampled token
    for context, (_, path) in zip(held.read, found, strict=True):
        assert context == path.ids[: path.scored[0]].tolist()
    own = [turn for turn in DIALOGUE if turn.author == chair]
    assert [reply.public for reply in replies] == [turn.public for turn in own]
    thought = [turn.private for turn in own] if thinking == "sample" else [None] * len(own)
    assert [reply.private for reply in replies] == thought
    assert replies[-1].kind is (Kind.STOP if chair == "user" else Kind.TEXT)
    assert held.closed == [(chair, *EPISODE)]


@pytest.mark.parametrize("chair, thinking", CHAIRS)
def test_a_reply_is_recorded_as_it_was_sampled(chair, thinking):
    _, replies, tree = converse(DIALOGUE, chair, thinking)
    sampled = [part for part in tree if part.scored.any()]
    for part, reply in zip(sampled, replies, strict=True):
        head, n = len(reply.sample.header), len(reply.sample.ids)
        assert part.kind == ("trunk" if thinking == "none" else "branch")
        assert part.ids.tolist() == [*reply.sample.header, *reply.sample.ids]
        assert part.scored.tolist() == [False] * head + [True] * n
        np.testing.assert_allclose(part.old_logp[head:], -0.01 * np.arange(1, n + 1), rtol=1e-6)
        assert not part.old_logp[:head].any()
        # a forced token is scored, and weighs nothing
        assert part.weight.tolist() == [0] * head + [float(k != 1) for k in range(n)]
        assert reply.sample.version == 3
    # a thinking reply hangs on the trunk, or on its own round: a call, its results, the reply
    if thinking != "none":
        on = [tree[part.parent] for part in sampled]
        assert [part.kind for part in on] == ["trunk", "branch" if chair == "agent" else "trunk",
                                              "trunk"]  # fmt: skip
        assert chair == "user" or tree[on[1].parent] is sampled[0]
        assert THINK not in [i for part in tree if part.kind == "trunk" for i in part.ids]


@pytest.mark.parametrize("chair, thinking", CHAIRS)
def test_own_replies_are_on_the_trunk_once(chair, thinking):
    held, replies, tree = converse(DIALOGUE, chair, thinking)
    mark = {"agent": AGENT, "user": USER}[chair]
    for number, context in enumerate(held.read):
        assert context.count(mark) == number + 1  # earlier own turns, and this one's header
    assert NOTE not in [i for part in tree for i in part.ids]


@pytest.mark.parametrize("thinking", ["none", "sample"])
def test_history_is_the_sampled_ids_even_where_tokenising_again_would_differ(thinking):
    byte = lambda c: next(i for i in range(10, 266) if RENDER.tokenizer.decode([i]) == c)
    odd = [byte(c) for c in "red"]  # a word that a tokeniser would write in one id
    assert RENDER.retokenised(odd, "none")
    opening = [THINK_END] if thinking == "sample" else []
    held, replies, tree = converse(
        DIALOGUE, "agent", thinking,
        samples=[[*opening, *odd, END], [*opening, *odd, END], [*opening, 300, END]],
    )  # fmt: skip
    last = held.read[-1]
    run = [AGENT, *odd, END]
    assert sum(last[i : i + len(run)] == run for i in range(len(last))) == 2
    if thinking == "sample":
        assert [asked.onward for asked in held.asked] == [False, True, False]
        assert held.asked[2].extend[: len(run)] == run
        again = encode(replies[0].public)
        assert again != odd and [AGENT, *again, END] != held.asked[2].extend[: len(again) + 2]


def kind_of(ids, thinking, chair="user", full=False):
    taker = seat.ModelSeat(
        ScriptedEngine([ids], full), RENDER, chair, seat.Config(thinking=thinking)
    )
    query = types.Query(types.Key(*EPISODE), chair, (Turn("system", "want red"),))
    ((_, reply),) = taker.respond([query])
    assert taker.counts == {"replies": 1, f"kind_{reply.kind}": 1, "refed_tokens": 0}
    return reply, taker


@pytest.mark.parametrize(
    "ids, thinking, kind, reason",
    [
        ([*encode("red"), END], "none", Kind.TEXT, None),
        ([*encode("red"), LEAVE], "none", Kind.STOP, "left"),
        ([LEAVE], "none", Kind.STOP, "left"),  # leaving without a word is leaving
        ([END], "none", Kind.EMPTY, None),
        ([*encode("red"), THINK_END, END], "sample", Kind.EMPTY, None),
        ([*encode("red"), END], "sample", Kind.UNPARSED, "unclosed_thought"),
        ([*encode("red"), LEAVE], "sample", Kind.UNPARSED, "unclosed_thought"),
        ([THINK_END, *encode("red"), END], "sample", Kind.TEXT, None),
        ([THINK_END, *encode("red"), AGENT, END], "sample", Kind.UNPARSED, "stray_special"),
        ([THINK_END, THINK_END, *encode("red"), END], "sample", Kind.UNPARSED, "stray_special"),
        ([THINK_END, *encode("red"), END], "empty", Kind.UNPARSED, "stray_special"),
        (encode("red"), "none", Kind.UNPARSED, "cut"),
        ([THINK_END, *encode("red")], "sample", Kind.UNPARSED, "cut"),
    ],
)
def test_kinds_of_replies(ids, thinking, kind, reason):
    reply, _ = kind_of(ids, thinking)
    assert (reply.kind, reply.reason) == (kind, reason)


def test_a_full_slot_is_told_from_a_cut_and_a_refused_reply_records_no_scored_token():
    reply, _ = kind_of(encode("red"), "none", full=True)
    assert (reply.kind, reply.reason) == (Kind.UNPARSED, "length")
    reply, taker = kind_of([], "sample", full=True)
    assert (reply.kind, reply.reason) == (Kind.UNPARSED, "length")
    assert not any(part.scored.any() for part in taker.finish(EPISODE))
    # leaving is the user's alone
    assert kind_of([*encode("red"), LEAVE, END], "none", "agent")[0].reason == "stray_special"


def test_a_broken_thought_leaves_nothing_of_itself_on_the_trunk():
    secret = encode("zvq")[-3:]  # letters that no public text has
    held, _, _ = converse(
        DIALOGUE, "user", "sample",
        samples=[[*secret, END], [*secret, THINK_END, 300, THINK_END, 301, END], [THINK_END, END]],
    )  # fmt: skip
    assert held.asked[1].extend[:2] == [USER, END]
    assert held.asked[2].extend[:3] == [USER, 301, END]
    assert not any(token in held.read[-1] for token in secret)


def test_a_request_says_what_the_configuration_says():
    held = ScriptedEngine([[THINK_END, 300, END]] * 2)
    config = seat.Config("sample", 0.7, 5, 0.9, 0.02, limit=11, min_think=4)
    for chair in ("user", "agent"):
        taker = seat.ModelSeat(held, RENDER, chair, config)
        list(taker.respond([types.Query(types.Key(*EPISODE, 6), chair, (Turn("tool", "red"),))]))
    user, agent = held.asked
    assert (user.temperature, user.top_k, user.top_p, user.min_p) == (0.7, 5, 0.9, 0.02)
    assert (user.limit, user.ban, user.ban_until, user.private) == (11, THINK_END, 4, True)
    assert user.stop == (END, LEAVE) and agent.stop == (END,)
    assert user.stream[:3] == agent.stream[:3] == EPISODE and user.stream[3] != agent.stream[3]
    assert user.conversation != agent.conversation


def test_an_engine_that_is_not_ready_and_an_episode_nobody_played():
    class Slow(ScriptedEngine):
        def advance(self):
            return super().advance() if len(self.asked) > 1 else []

    taker = seat.ModelSeat(Slow([[END], [300, END]]), RENDER, "user", seat.Config())
    assert taker.respond([]) == []  # nothing open: the engine may be in use by another seat
    turns = (Turn("system", "want red"),)
    first, second = (types.Query(types.Key(0, n, 0), "user", turns) for n in range(2))
    assert taker.respond([first]) == []
    answers = taker.respond([second])
    assert [(q.key.goal, r.kind) for q, r in answers] == [(0, Kind.EMPTY), (1, Kind.TEXT)]
    assert taker.finish((9, 9, 9)) == ()


PAGE = Turn("tool", "plan basic", only="agent")
ROUNDS = (  # two rounds of calls, the first with two calls, one of them with two results
    Turn("system", "ask size", only="agent"),
    Turn("user", "want a change"),
    Turn("agent", "look plan", "one", only="agent"),
    PAGE,
    PAGE,
    Turn("agent", "look size", "two", only="agent"),
    PAGE,
    Turn("agent", "size ?", "three"),
    Turn("user", "red please"),
    Turn("agent", "look plan", "four", only="agent"),
    PAGE,
    Turn("agent", "done", "five"),
)


def test_a_round_of_calls_keeps_its_thoughts_until_the_user_speaks():
    held, _, tree = converse(ROUNDS, "agent", "sample")
    thoughts = {n: encode(word) for n, word in enumerate("one two three four five".split())}
    inside = lambda ids, run: any(ids[i : i + len(run)] == run for i in range(len(ids)))
    seen = [[n for n, run in thoughts.items() if inside(ids, run)] for ids in held.read]
    assert seen == [[], [0], [0, 1], [], [3]]
    assert [asked.onward for asked in held.asked] == [False, True, True, False, True]
    # the round's end is fed on the trunk once: both calls, all results and the reply, then the user
    again = held.asked[3].extend
    whole = [i for ids in RENDER.turns(ROUNDS[2:9]) for i in ids]
    assert again == whole
    wanted = RENDER.tree(ROUNDS, "agent", thinking="sample")
    paths = lambda one: [
        trees.path(one, i).ids.tolist() for i, s in enumerate(one) if any(s.scored)
    ]
    assert paths(tree) == paths(wanted)


@pytest.mark.parametrize("history", ["drop_at_user", "drop", "keep"])
def test_a_seat_does_as_its_renderer_s_family_does(history):
    family = dataclasses.replace(RENDER.family, history=history)
    own = dataclasses.replace(RENDER, family=family)
    held, _, _ = converse(ROUNDS, "agent", "sample", renderer=own)
    chosen, _, _ = converse(ROUNDS, "agent", "sample", history=history)
    assert held.read == chosen.read
    assert [asked.private for asked in held.asked] == [history != "keep"] * 5


def test_a_reply_that_found_no_room_leaves_no_line_to_go_on_on():
    held = ScriptedEngine([[], [THINK_END, 300, END]], full=True)
    taker = seat.ModelSeat(held, RENDER, "agent", seat.Config(thinking="sample"))
    for n, turns in enumerate(([ROUNDS[1]], [ROUNDS[1], ROUNDS[2], PAGE])):
        list(taker.respond([types.Query(types.Key(*EPISODE, n), "agent", tuple(turns))]))
    assert [asked.onward for asked in held.asked] == [False, False]


def test_settings_of_a_seat_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="history 'forget': use one of drop_at_user, drop, keep"):
        seat.Config(history="forget")
    with pytest.raises(ValueError, match="thinking 'loud'"):
        seat.Config(thinking="loud")


# --- nobody sees what is not theirs --------------------------------------------------------------

SECRETS = {"user": "zq", "agent": "vk"}  # letters that only one chair's private texts have
own_words = st.text("abcde ", min_size=1, max_size=6).map(lambda t: "a" + t)


@st.composite
def dialogues(draw):
    turns = [Turn("system", "zq", only="user"), Turn("system", "vk", only="agent")]
    for _ in range(draw(st.integers(1, 6))):
        author = draw(st.sampled_from(["user", "agent"]))
        private = draw(st.text(SECRETS[author], max_size=5))
        call = author == "agent" and draw(st.booleans())
        public = "vk" if call else draw(own_words)
        turns.append(Turn(author, public, private, only="agent" if call else None))
        if call:
            turns.append(Turn("tool", "kv", only="agent"))
    return tuple(turns)


@given(dialogues(), st.sampled_from(["user", "agent"]), st.sampled_from(["none", "sample"]))
@settings(max_examples=60, deadline=None)
def test_no_segment_of_a_seat_holds_the_other_chair_s_private_text(dialogue, chair, thinking):
    if not any(turn.author == chair for turn in dialogue):
        return
    _, _, tree = converse(dialogue, chair, thinking)
    read = "".join(RENDER.tokenizer.decode(part.ids) for part in tree)
    other = SECRETS["agent" if chair == "user" else "user"]
    assert not set(other) & set(read)
    assert set(SECRETS[chair]) & set(read)  # its own brief is there: the letters would be seen


# --- with a real engine --------------------------------------------------------------------------


def test_sampled_log_probs_of_both_chairs_are_the_training_forward_s():
    """Whole desk cases with calls, thoughts, broken and cut replies, more cases than slots."""
    params = small_desk.params()
    agent = small_desk.make_seat("agent", params, limit=20, temperature=0.8)
    user = small_desk.make_seat("user", params, seed=1, thinking="sample", limit=24, min_think=2)
    goals = small_desk.PEOPLE.goals(range(100, 105))
    episodes = play.play(
        play.jobs(small_desk.Calls, goals, copies=2, stream=5),
        agent=small_desk.Patient(agent), user=small_desk.Patient(user),
    )  # fmt: skip
    assert agent.engine.counts["evictions"] > 0 and user.counts["refed_tokens"] > 0
    assert user.counts["kind_unparsed"] > 0
    assert sum(len(e.dialogue) >= 8 for e in episodes) > 5
    assert any(turn.author == "tool" for e in episodes for turn in e.dialogue)
    for chair, temperature in (("agent", 0.8), ("user", 1.0)):
        own = [e.trees[chair] for e in episodes]
        found = scoring.score(
            small_desk.spec(), params, own, small_desk.SHAPE, temperature=temperature
        )
        np.testing.assert_allclose(trees.column(own, "old_logp"), found, atol=1e-4)
        for episode, tree in zip(episodes, own, strict=True):
            spoken = {i for i, turn in enumerate(episode.dialogue) if turn.author == chair}
            assert {part.turn for part in tree if part.scored.any()} >= spoken
    forced = trees.column([e.trees["user"] for e in episodes], "weight") == 0
    assert forced.any()  # the ban on closing a thought moved some distributions
