"""Reading drills: short made-up talks in which every slot value is a copy of one heard before.

A decoder of half a million parameters learns the desk's manners long before it learns to look a
value up (measured: after 0.85M tokens of dialogues still at chance), and in 0.2M tokens of drills
whose loss is on the values alone. The drills hold no procedure, only slots and values.
"""

from __future__ import annotations

from mimesis_jax.desk import chance, slots
from mimesis_jax.types import Chair, Dialogue, Turn


def agent(seed: int) -> Dialogue:
    """Three rounds of: the user says two to four values, with or without their slot, in any order;
    the agent sets them. Later rounds may say a slot anew: the latest value counts."""
    rng = chance.stream("agent drill", seed)
    turns: list[Turn] = []
    for _ in range(3):
        said = _pairs(rng, int(rng.integers(2, 5)))
        heard = [f"{slot} {value}" if rng.random() < 0.5 else value for slot, value in said]
        form = [said[i] for i in rng.permutation(len(said))]
        text = "set " + " ".join(f"{slot} {value}" for slot, value in form)
        turns += [Turn("user", " , ".join(heard)), Turn("agent", text, only="agent")]
        turns.append(Turn("tool", "ok", only="agent"))
    return tuple(turns)


def user(seed: int) -> Dialogue:
    """A brief of four to six facts; the agent asks for each in another order, the user says it."""
    rng = chance.stream("user drill", seed)
    facts = _pairs(rng, int(rng.integers(4, 7)))
    brief = " . ".join(f"{slot} {value}" for slot, value in facts) + " ."
    turns = [Turn("system", brief, only="user")]
    for i in rng.permutation(len(facts)):
        slot, value = facts[i]
        turns += [
            Turn("agent", f"ask {slot}"),
            Turn("user", value, f"asked {slot} , it is {value}"),
        ]
    return tuple(turns)


def all_of(count: int) -> list[tuple[Chair, Dialogue]]:
    """`count` drills of each chair, with the chair that learns."""
    both: list[tuple[Chair, Dialogue]] = []
    for seed in range(count):
        both += [("agent", agent(seed)), ("user", user(seed))]
    return both


def _pairs(rng, count: int) -> list[tuple[str, str]]:
    names = list(slots.VALUES)
    chosen = [names[i] for i in rng.permutation(len(names))[:count]]
    return [(s, slots.VALUES[s][int(rng.integers(len(slots.VALUES[s])))]) for s in chosen]
