"""A conversation at the terminal between a person and a published model, reply by reply."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from mimesis_jax import types
from mimesis_jax.chat import families, render
from mimesis_jax.pretrained import speaker
from mimesis_jax.rollouts import engine as engines
from mimesis_jax.rollouts import seat as seats
from mimesis_jax.runs import compiles, disk

NAMES = {"user": "you", "agent": "model"}
BRIEF = (
    "You play a person who talks to an assistant because you want something done. Say in your own "
    "words what you want, a sentence or two at a time. Never speak as the assistant."
)
LEAST = 32  # tokens of a conversation under which nothing can be said


@dataclasses.dataclass(frozen=True)
class Settings:
    """chair: the person's. system: text of the system turn, None for the family's own. thoughts:
    show private thoughts. temperature: 0 is greedy. limit: most tokens of a reply; length: of the
    conversation. dtype, family: see speaker.load."""

    chair: types.Chair = "user"
    system: str | None = None
    thoughts: bool = False
    temperature: float = 0.0
    limit: int = 512
    length: int = 2048
    dtype: str | None = None
    family: str | None = None

    def __post_init__(self):
        if self.length < LEAST or self.limit < 1:
            raise disk.RunError(
                f"--length {self.length} --limit {self.limit}: a conversation needs {LEAST} tokens"
                " or more, a reply one"
            )
        if not 0 <= self.temperature <= 10:
            raise disk.RunError(f"--temperature {self.temperature} is not in 0 (greedy) to 10")


def chat(
    model: str, settings: Settings, *, read: TextIO | None = None, write: TextIO | None = None
) -> types.Dialogue:
    """A person talks with a model until the end of the input; what was said is returned.

    model: "smollm2", a .gguf file, or a model's folder. Replies are written as they come. The same
    words get the same replies. Raises ValueErrors that say what is wrong with the model or a word.
    """
    read, write = read or sys.stdin, write or sys.stdout
    compiles.keep_programs(_programs())
    print(f"(one moment, {model} is read)", file=write, flush=True)
    opened = speaker.load(model, dtype=settings.dtype, family=settings.family)
    talk = Talk(opened, settings, read, write)
    print(f"{opened.name}: {talk.renderer.family.name}, Ctrl-D ends it", file=write, flush=True)
    return talk.run()


def _programs() -> Path:
    """Where compiled programs of models without a run folder are kept between calls."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "mimesis_jax" / "compiled"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="mimesis-compiled-"))
    return folder


class Talk:
    """One conversation. The person's turns are read, the model's are decoded by the engine."""

    def __init__(self, opened: speaker.Speaker, settings: Settings, read: TextIO, write: TextIO):
        self.settings, self.read, self.write = settings, read, write
        self.other: types.Chair = "agent" if settings.chair == "user" else "user"
        family = opened.renderer.family
        if self.other == "user":  # a chat model says the user's part as the assistant
            family = families.swapped(family)
        self.renderer = render.Renderer(opened.renderer.tokenizer, family)
        length = min(settings.length, opened.length or settings.length)
        config = engines.Config(slots=1, length=length, block=8, buckets=(16, 64, 256), rows=())
        self.engine = engines.Engine(opened.spec, opened.params, config)
        thinking = family.thinking
        self.seat = seats.ModelSeat(
            self.engine,
            self.renderer,
            self.other,
            seats.Config(thinking=thinking, temperature=settings.temperature, limit=settings.limit),
        )
        self.turns: list[types.Turn] = []
        system = settings.system
        if system is None and self.other == "user":
            system = BRIEF
        if system is not None:
            self.turns.append(types.Turn("system", system, only=self.other))

    def run(self) -> types.Dialogue:
        """Turn by turn, the user first, until somebody ends it."""
        speaks: types.Chair = "user"
        while True:
            going = self._person() if speaks == self.settings.chair else self._model()
            if not going:
                break
            speaks = "agent" if speaks == "user" else "user"
        self.seat.finish(self._key(0).episode)
        return tuple(self.turns)

    def _key(self, turn: int) -> types.Key:
        return types.Key(8, 0, 0, turn)

    def _person(self) -> bool:
        while True:
            print("you> ", end="", file=self.write, flush=True)
            line = self.read.readline()
            if not line:
                print(file=self.write, flush=True)
                return False
            if not self.read.isatty():  # nobody's keys were echoed
                print(line.rstrip("\n"), file=self.write, flush=True)
            if line.strip():
                self.turns.append(types.Turn(self.settings.chair, line.strip()))
                return True

    def _model(self) -> bool:
        """Decodes a reply, writing its public part as it comes; says what went wrong with it."""
        turn = sum(one.author == self.other for one in self.turns)
        query = types.Query(self._key(turn), self.other, types.view(self.turns, self.other))
        print("model> ", end="", file=self.write, flush=True)
        answers = list(self.seat.respond([query]))
        shown = ""
        while not answers:
            shown = self._show(shown)
            answers = list(self.seat.respond([]))
        ((_, reply),) = answers
        if reply.public.startswith(shown):
            shown = self._put(shown, reply.public)
        print(file=self.write, flush=True)
        if reply.private and self.settings.thoughts:
            self._note(reply.private)
        self.turns.append(types.Turn(self.other, reply.public, reply.private))
        if reply.kind is types.Kind.STOP:
            self._note("the user left")
            return False
        if reply.reason == "length":
            self._note("the conversation is longer than --length: it ends here")
            return False
        if reply.reason == "cut":
            self._note(f"cut after {self.settings.limit} tokens, see --limit")
        elif reply.kind is not types.Kind.TEXT:
            self._note(f"{reply.kind}: {reply.reason or 'nothing was said'}")
        return True

    def _show(self, shown: str) -> str:
        """Writes what became readable of the open reply; gives all that was written of it."""
        ids = self.engine.sampled((self.other, *self._key(0).episode))
        parsed = self.renderer.parse(ids, self.seat.config.thinking, self.other)
        # White space at the end may be trimmed yet, and half a character may become a whole one.
        ready = parsed.public.rstrip("\ufffd").rstrip()
        return self._put(shown, ready) if ready.startswith(shown) else shown

    def _put(self, shown: str, text: str) -> str:
        """Writes the rest of `text`; what could move the cursor or change colours is not passed."""
        rest = text[len(shown) :]
        kept = (c if c.isprintable() or c in "\n\t" else "\N{REPLACEMENT CHARACTER}" for c in rest)
        print("".join(kept), end="", file=self.write, flush=True)
        return text

    def _note(self, text: str) -> None:
        self._put("", f"       ({text})\n")
