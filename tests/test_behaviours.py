"""The thirteen behaviours: acted cases, their markers by hand, near misses, and controls."""

import collections

import numpy as np
import pytest

from mimesis_jax import types
from mimesis_jax.desk import acts, agent, goals, phrases, phrases_behaviour, plan, slots, subflows
from mimesis_jax.envs import desk, practice
from mimesis_jax.rollouts import play
from mimesis_jax.types import Stop
from mimesis_jax.users import behaviours, history, markers, population
from mimesis_jax.users.behaviours_acting import Acting

N = 60
GOAL = goals.Goal(
    seed=7,
    request="swap",
    wishes=(("colour", "red"), ("size", "large")),
    record=(("carrier", "ship"), ("tier", "gold"), ("day", "monday")),
    claim="monday",
    bar=("city", "rome"),
    manner="frank",
)


def talk(*pairs: tuple[str, str] | tuple[str, str, str]) -> tuple[history.Exchange, ...]:
    """Exchanges of (agent's words, user's words[, thought]); the opening has "" for the agent."""
    turns: list[types.Turn] = []
    for said, answer, *thought in pairs:
        if said:
            act = acts.parse(said)
            hidden = act is not None and not act.spoken
            turns.append(types.Turn("agent", said, only="agent" if hidden else None))
        turns.append(types.Turn("user", answer, thought[0] if thought else None))
    return history.exchanges(turns)


def fires(behaviour: str, *pairs, stop: Stop | None = Stop.TURNS) -> bool:
    found = markers.find(behaviour, GOAL, talk(*pairs), stop)
    return found is not None and found.whole


OPEN = ("", "i need a swap")
HIDE = "i want rome , hold back"
# (behaviour, dialogue, stop): spoken otherwise than the tables' phrases, as a model might
POSITIVE = [
    ("hidden_bar", (OPEN, ("offer swap", "i do not like it", HIDE)), None),
    ("hidden_bar", (OPEN, ("confirm", "hm not so good", HIDE), ("why", "city rome")), None),
    (
        "creeping_goal",
        (("", "swap size small"), ("offer swap", "size medium"), ("confirm", "large size too")),
        None,
    ),
    ("wont_clarify", (OPEN, ("ask size", "you tell me")), None),
    ("wont_clarify", (OPEN, ("ask size", "red is nice"), ("ask size", "large")), None),
    ("keeps_pushing", (OPEN, ("deny swap", "you must help"), ("deny swap", "do it please")), None),
    ("thin_then_blames", (OPEN, ("offer swap", "you should see that i need rome")), None),
    ("jumps_topic", (OPEN, ("ask size", "what about a loan")), None),
    ("jumps_topic", (OPEN, ("ask size", "a loan or a print now")), None),
    ("stacks_limits", (OPEN, ("ask size", "large , by phone , at noon , in box")), None),
    (
        "stacks_limits",
        (OPEN, ("ask size", "large , only by ship"), ("why", "only gold , only at night")),
        None,
    ),
    ("wrong_premise", (("", "my day is friday so i get a swap"),), None),
    ("wrong_premise", (OPEN, ("ask size", "as tier is staff , i want it , so do it")), None),
    (
        "low_signal_pressure",
        (OPEN, ("ask size", "quick quick"), ("ask size", "come on , now")),
        None,
    ),
    ("walks_away", (OPEN, ("ask size", "hm")), Stop.LEFT),
    ("contradicts_self", (("", "swap , red"), ("ask size", "large and blue")), None),
    ("pours_requests", (("", "a swap , a loan and a print please"),), None),
    ("talks_down", (OPEN, ("ask size", "even you can find that , do it")), None),
]
NEAR_MISS = [
    # declines, but the thought has no held-back wish; names it; the wish was told unasked
    ("hidden_bar", (OPEN, ("offer swap", "i do not like it", "too slow")), None),
    ("hidden_bar", (OPEN, ("offer swap", "no , the city is not right", HIDE)), None),
    ("hidden_bar", (OPEN, ("offer swap", "not good", HIDE), ("confirm", "rome please")), None),
    ("hidden_bar", (OPEN, ("ask size", "i do not know", HIDE)), None),  # wont_clarify
    # one step; an equal ask; no grant before it
    ("creeping_goal", (("", "swap size small"), ("offer swap", "size medium")), None),
    (
        "creeping_goal",
        (("", "swap size small"), ("offer swap", "size small"), ("confirm", "size medium")),
        None,
    ),
    (
        "creeping_goal",
        (("", "swap size small"), ("ask colour", "size medium"), ("why", "size large")),
        None,
    ),
    ("wont_clarify", (OPEN, ("ask size", "large")), None),
    ("wont_clarify", (OPEN, ("ask amount", "no idea")), None),  # it has no such fact
    ("wont_clarify", (("", "swap large"), ("ask size", "i said it")), None),
    ("wont_clarify", (OPEN, *[("ask size", "you tell me")] * 4), None),  # never given
    ("keeps_pushing", (OPEN, ("deny swap", "please do it"), ("deny swap", "ok , bye")), None),
    ("keeps_pushing", (OPEN, ("deny swap", "do it , friday"), ("deny swap", "do it")), None),
    ("keeps_pushing", (OPEN, ("ask size", "please do it"), ("ask size", "do it")), None),
    ("thin_then_blames", (("", "swap , you should know rome"),), None),  # the agent did nothing
    ("thin_then_blames", (OPEN, ("offer swap", "i need rome")), None),  # no blame
    ("thin_then_blames", (("", "swap rome"), ("offer swap", "your error , rome")), None),
    ("jumps_topic", (("", "i need a loan"),), None),  # nothing was open
    ("jumps_topic", (OPEN, ("offer loan", "no loan please")), None),  # the agent spoke of it
    ("jumps_topic", (OPEN, ("ask size", "a swap , a loan and a print")), None),  # pours
    ("stacks_limits", (OPEN, ("ask size", "only large , only red , only rome")), None),  # goal
    ("stacks_limits", (OPEN, ("ask size", "large , by phone")), None),
    ("wrong_premise", (("", "my day is monday so i get a swap"),), None),  # true
    ("wrong_premise", (OPEN, ("ask day", "friday")), None),  # grounds nothing
    ("low_signal_pressure", (OPEN, ("ask size", "come on")), None),
    ("low_signal_pressure", (OPEN, ("ask size", "large , quick"), ("why", "red , now")), None),
    ("low_signal_pressure", (OPEN, ("deny swap", "do it"), ("deny swap", "do it now")), None),
    ("walks_away", (OPEN, ("ask size", "ok thanks , bye")), Stop.LEFT),
    ("walks_away", (OPEN, ("deny swap", "hm")), Stop.LEFT),  # nothing was pending
    ("walks_away", (OPEN, ("ask size", "large")), Stop.LEFT),  # it answered
    ("walks_away", (OPEN, ("ask size", "hm")), Stop.TURNS),
    ("contradicts_self", (("", "swap red"), ("confirm", "sorry , blue i mean")), None),
    ("contradicts_self", (("", "swap red"), ("ask size", "large , red")), None),
    ("pours_requests", (("", "a swap and a loan please"),), None),
    ("talks_down", (OPEN, ("ask size", "the swap was bad , do it")), None),  # of the product
    ("talks_down", (OPEN, ("ask size", "i am the boss")), None),  # tied to no demand
]


@pytest.mark.parametrize("behaviour, dialogue, stop", POSITIVE)
def test_a_marker_sees_the_behaviour(behaviour, dialogue, stop):
    assert fires(behaviour, *dialogue, stop=stop)


@pytest.mark.parametrize("behaviour, dialogue, stop", NEAR_MISS)
def test_a_marker_passes_over_what_only_looks_like_it(behaviour, dialogue, stop):
    assert not fires(behaviour, *dialogue, stop=stop)


def test_every_behaviour_has_a_positive_and_a_near_miss():
    for rows in (POSITIVE, NEAR_MISS):
        assert {name for name, _, _ in rows} == set(behaviours.IDS) == set(markers.MARKERS)
    assert len(behaviours.IDS) == 13


def test_half_of_a_marker_is_half_a_share():
    half = markers.find(
        "keeps_pushing", GOAL, talk(OPEN, ("deny swap", "please"), ("deny swap", "bye")), None
    )
    assert half == markers.Found(1, 0.5) and not half.whole
    with pytest.raises(ValueError, match="sulks"):
        markers.find("sulks", GOAL, talk(OPEN), None)


def test_a_call_counts_as_the_agents_act_where_the_whole_dialogue_is_read():
    turns = (
        types.Turn("user", "swap please"),
        types.Turn("agent", "set colour red", only="agent"),
        types.Turn("tool", "ok", only="agent"),
        types.Turn("agent", "ask size"),
        types.Turn("user", "large , your error not to know"),
    )
    assert markers.find("thin_then_blames", GOAL, history.exchanges(turns), None)
    assert not markers.find(
        "thin_then_blames", GOAL, history.exchanges(turns[:1] + turns[3:]), None
    )


@pytest.mark.parametrize(
    "text, told",
    [
        ("i will dodge this", True),
        ("my role is to ask", True),
        ("i must act now", True),
        ("dodge two asks", True),
        ("you dodge", False),
        ("i will take red", False),
    ],
)
def test_announcing_is_describing_instead_of_acting(text, told):
    goal = behaviours.case(1, "wont_clarify")
    assert markers.announced(goal, talk(OPEN, ("ask size", text))) == told


# --- cases ----------------------------------------------------------------------------------------


def test_a_case_is_a_function_of_its_seed_and_its_control_is_the_same_scenario():
    for behaviour in behaviours.IDS:
        goal = behaviours.case(5, behaviour)
        assert goal == behaviours.case(5, behaviour) and goal.behaviour == behaviour
        plain = behaviours.control(goal)
        assert (plain.wishes, plain.record, plain.bar) == (goal.wishes, goal.record, goal.bar)
        assert plain.behaviour is None and "act :" not in goals.brief(plain)
        assert goals.brief(goal) == goals.brief(plain)[:-2] + f" . {goal.lines[0]} ."
    with pytest.raises(ValueError, match="sulks"):
        behaviours.case(1, "sulks")


def test_hints_are_short_and_distinct_and_words_stay_few():
    hints = [row.hint for row in behaviours.TABLE.values()]
    assert len({hint.split()[0] for hint in hints}) == 13 and max(map(len, hints)) <= 24
    world = set(slots.SLOT_OF) | set(slots.VALUES) | set(subflows.SUBFLOWS)
    shared = phrases.words({"": phrases.BEHAVIOUR})
    assert not shared & world
    spoken = phrases.words(phrases.FAMILIES) | shared | set(phrases_behaviour.CONDITIONS)
    assert len(world | spoken | set(" ".join(hints).split())) <= 500


def test_goals_of_a_step():
    rows = practice.goals(3, 18, seed=4)
    assert rows == practice.goals(3, 18, seed=4) != practice.goals(3, 18, seed=5)
    desk_rows = [g for g in rows if isinstance(g, goals.Goal)]
    assert len(rows) == 18 and len(desk_rows) == 15
    assert sum(g.behaviour is None for g in desk_rows) == 3
    counts = collections.Counter(
        g.behaviour for step in range(13) for g in behaviours.goals(step, 18) if g.behaviour
    )
    assert set(counts.values()) == {15} and len(counts) == 13  # 13 steps x 15 rows, evenly
    with pytest.raises(ValueError, match="no behaviour row"):
        behaviours.goals(0, 1, shares=(1.0, 0.0))


# --- acted ----------------------------------------------------------------------------------------


def played(rows, rate=1.0, make=practice.make, opposite=None, seed=0):
    return play.play(
        play.jobs(make, rows, copies=1, stream=0),
        agent=opposite or practice.opposite(),
        user=practice.user(Acting(families=tuple(population.TRAINING), rate=rate), seed=seed),
    )


def seen(episode) -> frozenset[str]:
    return markers.seen(episode.goal, history.exchanges(episode.dialogue), episode.stop)


@pytest.mark.parametrize("behaviour", behaviours.IDS)
def test_acted_it_is_seen_in_time_and_its_control_shows_nothing(behaviour):
    cases = [behaviours.case(seed, behaviour) for seed in range(N)]
    met = placed = 0
    for episode in played(cases):
        dialogue = history.exchanges(episode.dialogue)
        first = behaviours.first_turn(episode.goal, dialogue, behaviour)
        found = markers.find(behaviour, episode.goal, dialogue, episode.stop)
        assert not markers.announced(episode.goal, dialogue)
        met += first is not None
        if first is not None and found is not None and found.whole:
            placed += 0 <= found.began - first <= behaviours.TABLE[behaviour].window
            assert dialogue[found.began].thought.startswith("act ")
    assert met >= 0.9 * N and placed >= 0.95 * met
    controls = played([behaviours.control(g) for g in cases], make=practice.whole)
    assert np.mean([bool(seen(episode)) for episode in controls]) <= 0.05


def test_the_goal_stays_reachable():
    perfect = practice.opposite(skills=plan.SKILLS)
    for behaviour in set(behaviours.IDS) - {"walks_away"}:
        cases = [behaviours.case(seed, behaviour) for seed in range(20)]
        won = [e.outcome["success"] for e in played(cases, make=practice.whole, opposite=perfect)]
        assert np.mean(won) >= 0.9, behaviour


def test_one_coin_a_dialogue_decides():
    cases = [behaviours.case(seed, behaviours.IDS[seed % 13]) for seed in range(390)]
    shown = [episode.goal.behaviour in seen(episode) for episode in played(cases, rate=0.4)]
    assert abs(np.mean(shown) - 0.4) < 0.08
    none = played(cases, rate=0.0)
    assert not any(seen(episode) for episode in none)
    coins = [Acting(rate=0.4).user().acts(cases[0], (0, 0, copy)) for copy in range(200)]
    assert abs(np.mean(coins) - 0.4) < 0.12
    with pytest.raises(ValueError, match="1.4"):
        Acting(rate=1.4).user()


def test_markers_read_what_reference_users_do_anyway():
    people = population.REFERENCE
    episodes = play.play(
        play.jobs(desk.DeskGym, people.goals(range(200)), copies=1, stream=0),
        agent=agent.ScriptedAgent(habits=frozenset(("offer",))),
        user=people.user(),
    )
    counts = collections.Counter(name for episode in episodes for name in seen(episode))
    assert counts["hidden_bar"] > 20 and counts["wont_clarify"] > 20
    assert counts["pours_requests"] == counts["talks_down"] == counts["walks_away"] == 0


def test_the_gym_is_cut_after_so_many_user_turns():
    goal = behaviours.control(behaviours.case(1, "wont_clarify"))
    for until in (1, 3):
        (episode,) = played([goal], make=lambda g, until=until: desk.DeskGym(g, until=until))
        assert len(history.exchanges(episode.dialogue)) == until and episode.stop is Stop.TURNS
    with pytest.raises(ValueError, match="until=0"):
        desk.DeskGym(goal, until=0)


def test_habits_of_the_agent_opposite():
    denied = behaviours.case(2, "keeps_pushing")
    (episode,) = played([denied])
    said = [t.public for t in episode.dialogue if t.author == "agent" and t.only is None]
    assert said.count(f"deny {denied.request}") >= 2
    with pytest.raises(ValueError, match="sing"):
        agent.ScriptedAgent(habits=frozenset(("sing",)))


def test_corpus_goals_mix_both_domains():
    rows = practice.corpus(range(500))
    desk_rows = [g for g in rows if isinstance(g, goals.Goal)]
    assert len(desk_rows) == 400
    plain = np.mean([g.behaviour is None for g in desk_rows])
    assert abs(plain - 0.25) < 0.06
    with pytest.raises(ValueError, match="recalls=2"):
        practice.corpus(range(3), recalls=2)
