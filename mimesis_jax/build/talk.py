"""A conversation at the terminal: a person in one chair of a desk case, a model in the other."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

from mimesis_jax import types
from mimesis_jax.build import begun, parts
from mimesis_jax.build import world as worlds
from mimesis_jax.desk import acts, goals, record, slots, subflows
from mimesis_jax.envs import desk
from mimesis_jax.rollouts import play
from mimesis_jax.runs import checkpoint, compiles, disk
from mimesis_jax.users import population

MODELS = {  # who sits opposite: the first of these that the run has trained
    "user": ("user_behaviours",),
    "agent": ("agent_csd", "agent_grpo", "agent_grpo_assistant_user", "sft_perfect"),
}
FIRST, CASES = worlds.EVALUATION + 70_000, 10_000  # seeds of the cases, which nothing else plays
LONGEST = 30  # words of a line: the models read no longer ones in training
LEAVE = "/leave"

SAY = {
    "agent": f"""\
you are the desk agent. the user comes with a request; what you write is one act a turn:
  ask SLOT          ask the user for it           look SLOT          read it in the record
  set SLOT VALUE    fill the form, in the guide's order (several pairs may follow one another)
  offer REQUEST     promise it                    deny REQUEST       refuse it, if the guide says so
  why               ask what is behind it         confirm            ask whether all is well
  hand over         give the case away            close              end it, when the form is right
you have {record.TURNS} turns. ? shows the words; Ctrl-D goes without an end.""",
    "user": f"""\
you are the user. the first lines say what you want and what you know; write what you like, in plain
words. {LEAVE} (words of farewell may follow) ends the conversation; ? shows the words that the
agent knows; Ctrl-D goes too.""",
}  # fmt: skip
ENDS = {
    types.Stop.DONE: "the agent closed the case",
    types.Stop.HANDED_OVER: "the agent handed the case over",
    types.Stop.LEFT: "the user left",
    types.Stop.TURNS: f"the agent's {record.TURNS} turns are used up",
    types.Stop.LENGTH: "the conversation is longer than the model can read",
    types.Stop.AGENT_FORMAT: "the agent model wrote something malformed",
    types.Stop.USER_FORMAT: "the user model wrote something malformed",
    types.Stop.FAILED: "it was broken off",
}


def chat(
    run: Path,
    *,
    chair: types.Chair = "agent",
    goal: int = 0,
    thoughts: bool = False,
    read: TextIO | None = None,
    write: TextIO | None = None,
) -> None:
    """Plays one case between a person and a model of the finished run in the folder `run`.

    chair: the person's. goal: which case, 0 to 9999. thoughts: show the model's private thoughts.
    read, write: standard input and output, other ones for tests. The same words get the same
    replies. Raises RunError where the folder holds no run that has trained the model, or `goal` is
    none.
    """
    read, write = read or sys.stdin, write or sys.stdout
    if not 0 <= goal < CASES:
        raise disk.RunError(f"--goal {goal} is no case: use 0 to {CASES - 1}")
    other: types.Chair = "user" if chair == "agent" else "agent"
    start = begun.Begun(run)
    name, frozen = _opposite(start, other)
    compiles.keep_programs(start.path.parent / ".compiled")
    person = Person(chair, read, write)
    cast = parts.Cast(start.settings, start.world())
    seat = cast.user(frozen.params) if other == "user" else cast.seat(name, other, frozen.params)
    print(f"{SAY[chair]}\n\nopposite sits {name} of {run}", file=write)
    if thoughts and seat.config.thinking != "sample":
        print(f"(this {other} was trained to think nothing: there are no thoughts)", file=write)
    print(file=write, flush=True)
    case = population.SIMULATOR.goal(FIRST + goal)
    opposite = Shown(seat, person, thoughts)
    chairs: tuple[Any, Any] = (person, opposite) if chair == "agent" else (opposite, person)
    job = play.Job(types.Key(7, goal, 0), desk.DeskGym(case))
    (episode,) = play.play([job], agent=chairs[0], user=chairs[1])
    person.farewell(episode)


def _opposite(run: begun.Begun, chair: types.Chair) -> tuple[str, checkpoint.Frozen]:
    """Name and parameters of the model in a chair; a stage run's own comes first."""
    own = run.config.get("stage")
    names = sorted(MODELS[chair], key=lambda name: name != own)
    trained = run.names()
    for name in names:
        if name in trained:
            return name, run.frozen(name)
    raise disk.RunError(
        f"{run.path} has no trained {chair} yet ({' or '.join(names)}): give the command of the "
        "run again, it goes on; or choose another folder"
    )


class Person:
    """types.Respond: shows what was said since, reads a line. The end of the input leaves."""

    def __init__(self, chair: types.Chair, read: TextIO, write: TextIO):
        self.chair, self.read, self.write = chair, read, write
        self._seen = self._taken = 0
        self._gone = False

    def respond(self, queries: Sequence[types.Query]) -> Iterable[types.Answer]:
        return [(query, self._answer(query)) for query in queries]

    def say(self, text: str) -> None:
        """A line; what could move the cursor or change colours is not passed on."""
        kept = (c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)
        print("".join(kept), file=self.write, flush=True)

    def show(self, turns: Sequence[types.Turn]) -> None:
        """The turns of the person's view that were not shown yet, its own left out."""
        names = {"system": "guide" if self.chair == "agent" else "brief", "tool": "record"}
        for turn in turns[self._seen :]:
            if turn.author != self.chair:
                self.say(f"{names.get(turn.author, turn.author):>9}  {turn.public}")
        self._seen = len(turns)

    def farewell(self, episode: types.Episode) -> None:
        """What was said last, how it ended, and what was wanted."""
        self.show(types.view(episode.dialogue, self.chair))
        why = "you broke it off" if self._gone else ENDS[episode.stop]
        self.say(f"\n{why}; {verdict(episode.outcome)}")
        if self.chair == "agent":
            self.say(f"the user's brief was: {goals.brief(episode.goal)}")

    def _answer(self, query: types.Query) -> types.Reply:
        self.show(query.turns)
        self._taken += 1
        while True:
            line = self._line()
            if line is None:
                self._gone = True
                stopped = types.Kind.STOP if self.chair == "user" else types.Kind.FAILED
                return types.Reply(stopped, reason="left")
            if line == "?":
                self.say(words())
            elif line.split()[:1] == [LEAVE] and self.chair == "user":
                return types.Reply(types.Kind.STOP, plain(line.removeprefix(LEAVE)), reason="left")
            elif fault := self._fault(plain(line)):
                self.say(f"{'':>9}  ({fault})")
            else:
                return types.Reply(types.Kind.TEXT, plain(line))

    def _line(self) -> str | None:
        """What the person typed, None at the end of the input."""
        count = f" {self._taken}/{record.TURNS}" if self.chair == "agent" else ""
        print(f"{self.chair + count:>9}> ", end="", file=self.write, flush=True)
        line = self.read.readline()
        if not line or not self.read.isatty():
            self.say(line.rstrip("\n"))  # nobody's keys were echoed
        return line.strip() if line else None

    def _fault(self, text: str) -> str:
        """Why a line cannot be sent, "" where it can."""
        if not text:
            return "say something; Ctrl-D ends the conversation, ? shows the words"
        if (count := len(text.split())) > LONGEST:
            return f"{count} words are more than the model reads: use {LONGEST} at most"
        return misread(text) if self.chair == "agent" else ""


class Shown:
    """A chair whose private thoughts are shown to the person as they come; says when it is slow."""

    def __init__(self, chair: types.Respond, person: Person, thoughts: bool):
        self.chair, self.person, self.thoughts = chair, person, thoughts
        self._waited = False

    def respond(self, queries: Sequence[types.Query]) -> Iterable[types.Answer]:
        if queries and not self._waited:
            self._waited = True
            self.person.say("(one moment, the model gets ready)")
        for query, reply in self.chair.respond(queries):
            if reply.private and self.thoughts:
                self.person.say(f"{'':>9}  ({reply.private})")
            if reply.kind not in (types.Kind.TEXT, types.Kind.STOP):
                self.person.say(f"{'':>9}  ({reply.kind}: {reply.public!r})")
            yield query, reply


# --- words --------------------------------------------------------------------------------------


def plain(line: str) -> str:
    """A typed line as the small world writes: lower case, marks apart from words."""
    return " ".join(re.sub(r"([.,;:?!])", r" \1 ", line.lower()).split())


def misread(text: str) -> str:
    """Why a text is no act of the agent, and what would be; "" where it is one."""
    if acts.parse(text) is not None:
        return ""
    first, *rest = text.split()
    if first in ("ask", "look"):
        return f"{first} takes one slot: {', '.join(slots.VALUES)}"
    if first in ("offer", "deny"):
        return f"{first} takes one request: {', '.join(subflows.SUBFLOWS)}"
    if first == "set":
        pairs = list(zip(rest[::2], rest[1::2], strict=False))
        for slot, value in pairs:
            if slot not in slots.VALUES:
                return (
                    f"set fills a slot with a value; {slot} is no slot: {', '.join(slots.VALUES)}"
                )
            if value not in slots.VALUES[slot]:
                return f"{slot} {value} is none: {slot} is one of {', '.join(slots.VALUES[slot])}"
        return f"set takes SLOT VALUE, at most {acts.MOST_PAIRS} pairs"
    return f"{first} is no act; use ask, look, set, offer, deny, why, confirm, hand over, close"


def words() -> str:
    """The vocabulary of the desk, a slot a line, and the requests."""
    lines = [f"  {slot:>8}  {', '.join(values)}" for slot, values in slots.VALUES.items()]
    return "\n".join([*lines, f"  requests  {', '.join(subflows.SUBFLOWS)}"])


def verdict(outcome: dict[str, Any]) -> str:
    """Whether the case was solved, else what was wrong with how it was left."""
    if outcome.get("success"):
        return "the case is solved"
    wrong = [
        f"{slot} was set and not wanted" if value == "unwanted" else f"{slot} {value} is open"
        for slot, value in (outcome.get("unmet") or {}).items()
    ]
    allowed, denied = outcome.get("allowed", True), outcome.get("denied", False)
    if denied and allowed:
        wrong.append("it was denied, and the rule allows it")
    if not denied and not allowed:
        wrong.append("the rule denies it, and nobody did")
    return "the case is not solved" + (f": {'; '.join(wrong)}" if wrong else "")
