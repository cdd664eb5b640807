"""A conversation at the terminal: a person in one chair of a desk case, a model in the other."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

from mimesis_jax import types
from mimesis_jax.build import parts, world
from mimesis_jax.chat import render, tokenizer
from mimesis_jax.envs import desk
from mimesis_jax.rollouts import engine, play, seat
from mimesis_jax.runs import checkpoint, disk, folder
from mimesis_jax.users import population

MODEL_OF = {"user": "user_behaviours", "agent": "agent_csd"}  # who sits opposite


def chat(
    run: Path,
    *,
    chair: types.Chair = "agent",
    goal: int = 0,
    thoughts: bool = False,
    read: TextIO = sys.stdin,
    write: TextIO = sys.stdout,
) -> None:
    """Plays one case between a person and a model of the finished run in the folder `run`.

    chair: the person's. goal: which case. thoughts: show the model's private thoughts.
    Raises RunError where the folder holds no finished run.
    """
    settings = parts.desk(folder.config(run))
    other: types.Chair = "user" if chair == "agent" else "agent"
    weights = run / "models" / MODEL_OF[other]
    if not weights.exists():
        raise disk.RunError(
            f"{run} has no trained {other} yet ({weights} is missing): let its run finish first"
        )
    renderer = render.Renderer(tokenizer.load(run / "tokenizer.json"))
    spec = parts.spec_of(settings, renderer.tokenizer)
    frozen = checkpoint.load_frozen(weights)
    held = engine.Engine(spec, frozen.params, settings.engine, seed=settings.seed)
    chosen = settings.user_seat if other == "user" else settings.agent_seat
    model = seat.ModelSeat(held, renderer, other, chosen)
    person = Person(chair, read, write, thoughts)
    case = population.SIMULATOR.goal(world.EVALUATION + 70_000 + goal)
    print(person.welcome(case), file=write)
    chairs: dict[str, types.Respond] = {chair: person, other: model}
    watched = _Shown(chairs[other], person) if thoughts else chairs[other]
    agent, user = (person, watched) if chair == "agent" else (watched, person)
    job = play.Job(types.Key(7, goal, 0), desk.DeskGym(case))
    (episode,) = play.play([job], agent=agent, user=user)
    print(person.farewell(episode), file=write)


class Person:
    """types.Respond: shows what was said since, reads a line. An empty line or the end leaves."""

    def __init__(self, chair: types.Chair, read: TextIO, write: TextIO, thoughts: bool = False):
        self.chair, self.read, self.write, self.thoughts = chair, read, write, thoughts
        self._seen = 0

    def welcome(self, case) -> str:
        acts = (
            "ask SLOT | look SLOT | set SLOT VALUE ... | offer X | deny X | why | confirm | close"
        )
        what = f"you are the desk agent; say one of: {acts}" if self.chair == "agent" else (
            "you are the user; say what you like, the agent reads plain lower-case words"
        )  # fmt: skip
        return f"{what}\nan empty line ends the conversation\n"

    def respond(self, queries: Sequence[types.Query]) -> Iterable[types.Answer]:
        return [(query, self._answer(query)) for query in queries]

    def _answer(self, query: types.Query) -> types.Reply:
        for turn in query.turns[self._seen :]:
            if turn.author != self.chair:
                print(f"{turn.author:>6}  {turn.public}", file=self.write)
        self._seen = len(query.turns)
        print(f"{self.chair:>6}> ", end="", file=self.write, flush=True)
        line = self.read.readline().strip()
        if not line:
            print(file=self.write)
            kind = types.Kind.STOP if self.chair == "user" else types.Kind.FAILED
            return types.Reply(kind, reason="left")
        return types.Reply(types.Kind.TEXT, line)

    def farewell(self, episode: types.Episode) -> str:
        done = "the case is solved" if episode.outcome.get("success") else "the case is not solved"
        unmet = episode.outcome.get("unmet") or {}
        missing = "; open: " + ", ".join(f"{s} {v}" for s, v in unmet.items()) if unmet else ""
        return f"\n{done} (ended: {episode.stop}{missing})"


class _Shown:
    """A chair whose private thoughts are shown to the person as they come."""

    def __init__(self, chair: types.Respond, person: Person):
        self.chair, self.person = chair, person

    def respond(self, queries: Sequence[types.Query]) -> Iterable[types.Answer]:
        for query, reply in self.chair.respond(queries):
            if reply.private:
                print(f"        ({reply.private})", file=self.person.write)
            yield query, reply
