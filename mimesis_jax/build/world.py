"""The small world's data: who plays whom, the tokenizer, and supervised rows of every stage."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from mimesis_jax import types
from mimesis_jax.chat import render, tokenizer
from mimesis_jax.coach import template
from mimesis_jax.desk import agent as scripted
from mimesis_jax.desk import chance, drills, noise, slots, subflows
from mimesis_jax.envs import desk, practice
from mimesis_jax.evaluation import likelihood
from mimesis_jax.rollouts import corpus
from mimesis_jax.users import population

# Seeds of cases: no two uses share one.
BASE, CAREFUL, USER, PRACTICE, MODEL, PERFECT = 0, 50_000, 100_000, 200_000, 300_000, 400_000
AGENT_GOALS, HELD_OUT, VALIDATION, EVALUATION = 500_000, 800_000, 850_000, 900_000


@dataclasses.dataclass(frozen=True)
class Config:
    """How many dialogues of each kind.

    base: of all six training families, both chairs learn; a share `careful` of them with an agent
    that makes no mistakes, the rest with the agent that the start imitates: right with probability
    `start_q` at each turn. user, practice: of the simulator's third,
    plain and with behaviours, controls and recall. model_user: for each model user of the
    evaluation. perfect: of the agent without mistakes. drills: of each chair. held_out: for the
    measures. value_weight: loss weight of slot values beside other tokens. notes: share of the
    start agent's turns with a coach's note. reworded: share of user turns whose filler words vary
    in the agent's rows.
    """

    base: int = 6000
    careful: float = 0.5
    start_q: float = 0.8
    user: int = 2000
    practice: int = 1500
    model_user: int = 1200
    perfect: int = 2000
    drills: int = 3000
    held_out: int = 200
    value_weight: float = 4.0
    notes: float = 0.25
    reworded: float = 0.0


def _played(people: population.Population, first: int, count: int, q: float, seed: int):
    return corpus.episodes(
        desk.DeskGym,
        people.goals(range(first, first + count)),
        agent=scripted.ScriptedAgent(q, seed=seed),
        user=people.user(seed=seed),
        stream=first,
    )


class World:
    """Everything is made from (config, seed) when it is first asked for, the same each time."""

    def __init__(self, config: Config, *, vocab: int, seed: int):
        self.config, self.seed, self._vocab = config, seed, vocab

    # --- dialogues ------------------------------------------------------------------------------

    @functools.cached_property
    def careless(self) -> list[types.Episode]:
        """Base dialogues of the agent with mistakes: what the start imitates."""
        count = self.config.base - round(self.config.base * self.config.careful)
        return _played(population.REFERENCE, BASE, count, self.config.start_q, self.seed)

    @functools.cached_property
    def base(self) -> list[types.Episode]:
        count = self.config.base - len(self.careless)
        careful = _played(population.REFERENCE, CAREFUL, count, 1.0, self.seed)
        return [*self.careless, *careful]

    @functools.cached_property
    def user(self) -> list[types.Episode]:
        return _played(
            population.SIMULATOR, USER, self.config.user, scripted.START_Q, self.seed
        )  # fmt: skip

    @functools.cached_property
    def practised(self) -> list[types.Episode]:
        first = PRACTICE
        return corpus.episodes(
            practice.whole,
            practice.corpus(range(first, first + self.config.practice)),
            agent=practice.opposite(seed=self.seed),
            user=practice.user(seed=self.seed),
            stream=first,
        )

    def model_user(self, name: str) -> list[types.Episode]:
        """Dialogues of one of the evaluation's model users."""
        number = list(population.MODEL_USERS).index(name)
        first = MODEL + 10_000 * number
        people = population.MODEL_USERS[name]
        return _played(
            people, first, self.config.model_user, scripted.START_Q, self.seed + 1 + number
        )  # fmt: skip

    @functools.cached_property
    def perfect(self) -> list[types.Episode]:
        return _played(population.REFERENCE, PERFECT, self.config.perfect, 1.0, self.seed)

    def held_out(self, first: int = HELD_OUT) -> list[types.Episode]:
        """Dialogues of people that no model has seen, of the simulator's families."""
        return _played(
            population.SIMULATOR, first, self.config.held_out, scripted.START_Q, self.seed + 7
        )  # fmt: skip

    # --- rows -----------------------------------------------------------------------------------

    @functools.cached_property
    def renderer(self) -> render.Renderer:
        """Fitted on what the models are trained on; every slot, value and request is one token."""
        texts = corpus.texts([*self.careless[:1500], *self.practised])
        for note in map(self.notes, self.careless[:500]):
            texts += [text for text in note.values() if text]
        whole = sorted({*slots.SLOT_OF, *slots.VALUES, *subflows.SUBFLOWS})
        made = tokenizer.train(texts, self._vocab, whole=whole, multiple=64)
        return render.Renderer(made)

    @functools.cached_property
    def value_ids(self) -> np.ndarray:
        """Ids of the slot values."""
        return np.array([int(self.renderer.tokenizer.encode(v)[0]) for v in slots.SLOT_OF])

    def notes(self, episode: types.Episode) -> dict[int, str | None]:
        rng = chance.stream("notes", self.seed, *episode.key.episode)
        return template.for_training(episode.dialogue, rng, share=self.config.notes)

    def user_trees(self, episodes, *, thinking: str) -> list[types.Tree]:
        trees = (corpus.user_tree(e, self.renderer, thinking=thinking) for e in episodes)
        return [self._weighed(tree) for tree in trees if tree]

    def agent_trees(self, episodes, *, noted: bool = False) -> list[types.Tree]:
        """The agent's rows; the users' wording is varied in them (desk.noise)."""
        notes = self.notes if noted else lambda episode: None
        trees = []
        for episode in episodes:
            rng = chance.stream("noise", self.seed, *episode.key.episode)
            said = noise.dialogue(episode.dialogue, rng, share=self.config.reworded)
            varied = dataclasses.replace(episode, dialogue=said)
            trees.append(corpus.agent_tree(varied, self.renderer, notes(episode)))
        return [self._weighed(tree) for tree in trees if tree]

    def unannotated_trees(self, episodes) -> list[types.Tree]:
        """The user's rows as if no thought had been recorded: words after an empty thought."""
        trees = (
            likelihood.user_tree(likelihood.bare(e.dialogue), self.renderer, "empty")
            for e in episodes
        )
        return [self._weighed(tree) for tree in trees if tree]

    def drill_trees(self) -> dict[str, list[types.Tree]]:
        """Per chair; only slot values are learned."""
        out: dict[str, list[types.Tree]] = {"agent": [], "user": []}
        for chair, dialogue in drills.all_of(self.config.drills):
            tree = self.renderer.tree(dialogue, chair, thinking="none")
            out[chair].append(corpus.weighed(tree, self.value_ids, 1.0, rest=0.0))
        return out

    def _weighed(self, tree: types.Tree) -> types.Tree:
        return corpus.weighed(tree, self.value_ids, self.config.value_weight)
