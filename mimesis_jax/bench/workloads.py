"""What the forest is measured on: thinking dialogues of given lengths, and those of the demo.

A dialogue of K thinking turns is a trunk of K public parts, each with a private branch that is
learned: trunk part k, branch k, trunk part k + 1, ... Columns are those of a batch that was scored
and credited: all of GRPO + CSD has something to do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from mimesis_jax import types
from mimesis_jax.chat import render, tokenizer
from mimesis_jax.desk import agent as scripted
from mimesis_jax.desk import slots, subflows
from mimesis_jax.envs import desk
from mimesis_jax.forest import tree
from mimesis_jax.rollouts import corpus, play
from mimesis_jax.users import population

Lengths = Callable[[np.random.Generator], int]


def constant(tokens: int) -> Lengths:
    """Every part is so long."""
    return lambda rng: tokens


def lognormal(mean: float, sigma: float = 0.8, most: int = 400) -> Lengths:
    """Log-normal lengths with that mean, at least 2 and at most `most` tokens."""
    centre = np.log(mean) - sigma**2 / 2
    return lambda rng: int(np.clip(rng.lognormal(centre, sigma), 2, most))


def thinking(
    count: int, turns: int, public: Lengths, private: Lengths, vocab: int, seed: int
) -> list[types.Tree]:
    """`count` dialogues of `turns` thinking turns of random ids below `vocab`."""
    rng = np.random.default_rng(seed)
    trees = []
    for _ in range(count):
        parts: list[types.Segment] = []
        trunk = -1
        for turn in range(turns):
            parts.append(types.segment(rng.integers(0, vocab, public(rng)), trunk, turn=turn))
            trunk = len(parts) - 1
            branch = rng.integers(0, vocab, private(rng))
            parts.append(types.segment(branch, trunk, scored=True, turn=turn, kind="branch"))
        trees.append(tuple(parts))
    return credited(trees, rng)


def credited(trees: Sequence[types.Tree], rng: np.random.Generator) -> list[types.Tree]:
    """The trees with old log-probs, advantages, gates, and four turns in five coached."""
    count = tree.scored_count(trees)
    coached = (rng.random(count) < 0.8).astype(np.float32)
    return tree.carry(
        trees,
        old_logp=-6 + 0.1 * rng.normal(size=count),
        advantage=rng.normal(size=count),
        coached=coached,
        gate=coached * rng.random(count),
    )


@dataclasses.dataclass(frozen=True)
class Played:
    """Dialogues of the demo's desk, goal by goal, and the renderer fitted on them."""

    episodes: list[types.Episode]
    renderer: render.Renderer

    def user_trees(self) -> list[types.Tree]:
        """The user's chair: a private thought before each public line."""
        return [corpus.user_tree(e, self.renderer, thinking="sample") for e in self.episodes]

    def agent_trees(self) -> list[types.Tree]:
        """The agent's chair: calls and results and no thought, so each dialogue is a line."""
        return [corpus.agent_tree(e, self.renderer) for e in self.episodes]


def played(goals: int, copies: int, *, vocab: int = 1024, q: float = 0.8) -> Played:
    """Rule-played dialogues: `copies` of each goal, an agent that is right with probability q.

    The tokenizer is made as the demo makes it, so that lengths are the demo's own.
    """
    people = population.SIMULATOR
    jobs = play.jobs(desk.DeskGym, people.goals(range(goals)), copies=copies, stream=1)
    episodes = play.play(jobs, agent=scripted.ScriptedAgent(q), user=people.user())
    texts = corpus.texts(episodes)
    whole = sorted({*slots.SLOT_OF, *slots.VALUES, *subflows.SUBFLOWS})
    return Played(
        episodes, render.Renderer(tokenizer.train(texts, vocab, whole=whole, multiple=64))
    )
