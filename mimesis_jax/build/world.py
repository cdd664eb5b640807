"""The small world's data: who plays whom, the tokenizer, and supervised rows of every stage."""

from __future__ import annotations

import dataclasses
import functools
import itertools

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
BASE, START, USER, PRACTICE, MODEL, PERFECT = 0, 50_000, 100_000, 200_000, 300_000, 400_000
TWISTED = 150_000  # of the simulator's cases, those with a twist alone
AGENT_GOALS, HELD_OUT, VALIDATION, EVALUATION = 500_000, 800_000, 850_000, 900_000
OFTEN_DENIED = 0.5  # share of denied cases where they are made common in the base
# Share of them among the cases that agents are trained on. With as few as the users of the
# evaluation bring, looking the rule up pays too seldom to be found before it is forgotten.
AGENT_DENIED = 0.3
USER_Q, USER_HAVING = 0.8, 0.5  # of the erring agent whom users are heard with


@dataclasses.dataclass(frozen=True)
class Config:
    """How many dialogues of each kind.

    base: of all six training families, both chairs learn. A share `denied` of them with twice to
    thrice as many cases that the rule denies, which would else be too rare to learn from; a share
    `open` with people who say all at once; in all of these the agent makes no mistake. The share
    `naive` is played by the agent that the start imitates: it is right with probability `start_q`
    at each turn and has each of the desk's skills in a share `start_having` of its dialogues.
    start: dialogues of that agent. user, practice: of the simulator's third, plain and with
    behaviours, controls and recall. twisted: more of the plain ones, of cases alone in which the
    user says something wrong first or changes its mind, with the agent without mistakes, who
    confirms: a model of this size hears too few corrections otherwise. model_user: for each model
    user of the evaluation. perfect: of the agent without mistakes. drills: of each chair. held_out:
    for the measures. value_weight: loss weight of slot values beside other tokens. notes: share of
    the start agent's turns with a coach's note. reworded: share of user turns whose filler words
    vary in the agent's rows.
    """

    base: int = 8000
    denied: float = 0.25
    open: float = 0.15
    naive: float = 0.1
    start: int = 2500
    start_q: float = scripted.START_Q
    start_having: float = scripted.START_HAVING
    user: int = 2000
    twisted: int = 0
    practice: int = 1500
    model_user: int = 1200
    perfect: int = 2000
    drills: int = 3000
    held_out: int = 200
    value_weight: float = 4.0
    notes: float = 0.25
    reworded: float = 0.0


def _played(people: population.Population, first: int, count: int, agent, seed: int, **goals):
    return _cases(people, first, people.goals(range(first, first + count), **goals), agent, seed)


def _cases(people: population.Population, stream: int, cases, agent, seed: int):
    return corpus.episodes(
        desk.DeskGym, cases, agent=agent, user=people.user(seed=seed), stream=stream
    )


class World:
    """Everything is made from (config, seed) when it is first asked for, the same each time."""

    def __init__(self, config: Config, *, vocab: int, seed: int):
        self.config, self.seed, self._vocab = config, seed, vocab

    # --- dialogues ------------------------------------------------------------------------------

    def _naive(self, seed: int) -> scripted.ScriptedAgent:
        """The agent that the start imitates: it knows the desk and leaves most of its steps out."""
        chosen = self.config
        return scripted.ScriptedAgent(chosen.start_q, having=chosen.start_having, seed=seed)

    @functools.cached_property
    def start(self) -> list[types.Episode]:
        """What the start imitates."""
        return _played(
            population.REFERENCE, START, self.config.start, self._naive(self.seed), self.seed,
            denied=AGENT_DENIED,
        )  # fmt: skip

    @functools.cached_property
    def base(self) -> list[types.Episode]:
        chosen, perfect = self.config, scripted.ScriptedAgent(1.0, seed=self.seed)
        counts = [
            round(chosen.base * share) for share in (chosen.denied, chosen.open, chosen.naive)
        ]
        plain = chosen.base - sum(counts)
        firsts = iter(BASE + 12_000 * i for i in range(4))
        play = lambda people, count, agent, **goals: _played(
            people, next(firsts), count, agent, self.seed, **goals
        )
        return [
            *play(population.REFERENCE, plain, perfect),
            *play(population.REFERENCE, counts[0], perfect, denied=OFTEN_DENIED),
            *play(population.ASSISTANT, counts[1], perfect),
            *play(population.REFERENCE, counts[2], self._naive(self.seed + 1)),
        ]

    def _met(self, people: population.Population, first: int, count: int, seed: int):
        """Dialogues to learn the user's chair from: half with an agent without mistakes, who goes
        through all of the procedure, half with one that lacks steps and errs."""
        half = count // 2
        erring = scripted.ScriptedAgent(USER_Q, having=USER_HAVING, seed=seed)
        return [
            *_played(people, first, half, scripted.ScriptedAgent(1.0, seed=seed), seed),
            *_played(people, first + half, count - half, erring, seed),
        ]

    @functools.cached_property
    def user(self) -> list[types.Episode]:
        people, perfect = population.SIMULATOR, scripted.ScriptedAgent(1.0, seed=self.seed)
        cases = (people.goal(seed) for seed in itertools.count(TWISTED))
        twisted = itertools.islice((c for c in cases if c.wrong or c.change), self.config.twisted)
        return [
            *self._met(people, USER, self.config.user, self.seed),
            *_cases(people, TWISTED, list(twisted), perfect, self.seed),
        ]

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
        first, people = MODEL + 10_000 * number, population.MODEL_USERS[name]
        return self._met(people, first, self.config.model_user, self.seed + 1 + number)

    @functools.cached_property
    def perfect(self) -> list[types.Episode]:
        agent = scripted.ScriptedAgent(1.0, seed=self.seed)
        return _played(population.REFERENCE, PERFECT, self.config.perfect, agent, self.seed)

    def held_out(self, first: int = HELD_OUT) -> list[types.Episode]:
        """Dialogues of people that no model has seen, of the simulator's families."""
        return self._met(population.SIMULATOR, first, self.config.held_out, self.seed + 7)

    # --- rows -----------------------------------------------------------------------------------

    @functools.cached_property
    def renderer(self) -> render.Renderer:
        """Fitted on what the models are trained on; every slot, value and request is one token."""
        texts = corpus.texts([*self.base[:1500], *self.start[:500], *self.practised])
        for note in map(self.notes, self.start[:500]):
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

    @functools.cached_property
    def drill_trees(self) -> dict[str, list[types.Tree]]:
        """Per chair; only slot values are learned."""
        out: dict[str, list[types.Tree]] = {"agent": [], "user": []}
        for chair, dialogue in drills.all_of(self.config.drills):
            tree = self.renderer.tree(dialogue, chair, thinking="none")
            out[chair].append(corpus.weighed(tree, self.value_ids, 1.0, rest=0.0))
        return out

    def _weighed(self, tree: types.Tree) -> types.Tree:
        return corpus.weighed(tree, self.value_ids, self.config.value_weight)
