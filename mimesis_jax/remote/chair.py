"""A remote model in the user's or the agent's chair: dialogue to messages, answers to replies."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import hashlib
import queue
from collections.abc import Iterable, Sequence

from mimesis_jax import types
from mimesis_jax.remote import endpoint as endpoints
from mimesis_jax.remote.said import Said


@dataclasses.dataclass(frozen=True)
class Config:
    """How a chair is put to a model.

    prompt: system text before everything else. opening: what the model is told when nobody has
    spoken yet. leave: a marker in a user's message by which the model ends the conversation, ""
    for none. think: the pair of marks around reasoning that comes inside the text.
    """

    prompt: str = ""
    opening: str = "(You speak first.)"
    leave: str = ""
    think: tuple[str, str] = ("<think>", "</think>")


def messages(
    turns: Sequence[types.Turn], chair: types.Chair, config: Config
) -> list[endpoints.Message]:
    """What `chair` may see of a dialogue, as chat messages from its own side.

    Own turns are the assistant's, the other chair's and tool results the user's (the latter marked
    as such). Neighbours of one role are joined, since many templates insist on alternation. No
    private text is sent, its own neither: an endpoint keeps no branch to put it on.
    """
    out: list[endpoints.Message] = [{"role": "system", "content": config.prompt}]
    for turn in types.view(turns, chair):
        role, text = "user", turn.public
        if turn.author == "system":
            role = "system"
        elif turn.author == chair:
            role = "assistant"
        elif turn.author == "tool":
            text = f"[tool result]\n{text}"
        if role == "assistant" and out[-1]["role"] == "system":
            out.append({"role": "user", "content": config.opening})
        if out[-1]["role"] == role:
            text = f"{out[-1]['content']}\n\n{text}" if out[-1]["content"] else text
            out[-1] = {"role": role, "content": text}
        else:
            out.append({"role": role, "content": text})
    if out[-1]["role"] == "system":
        out.append({"role": "user", "content": config.opening})
    return out if out[0]["content"] else out[1:]


def reply(said: Said, chair: types.Chair, config: Config) -> types.Reply:
    """An outcome as a typed reply; a fault is FAILED with its reason, never an empty text.

    The mark for leaving counts in the public text only (a thought about leaving is not leaving),
    and what stands beside it is kept.
    """
    kinds = types.Kind
    if said.fault is not None:
        return types.Reply(kinds.FAILED, reason=f"{said.fault}: {said.reason}")
    if said.refusal is not None or said.finish == "content_filter":
        return types.Reply(kinds.REFUSED, reason=said.refusal or "content_filter")
    opened, closed = config.think
    thought, public = said.thought, said.text
    if closed in public:
        inner, public = public.split(closed, 1)
        inner = inner.replace(opened, "", 1).strip()
        thought = f"{thought}\n{inner}" if thought else inner
    if opened in public or closed in public:
        return types.Reply(kinds.UNPARSED, reason="unclosed_thought")
    if said.finish == "length":
        return types.Reply(kinds.UNPARSED, public.strip(), thought, "cut")
    left = bool(config.leave) and chair == "user" and config.leave in public
    if left:
        public = public.replace(config.leave, " ")
    public = public.strip()
    if left:
        return types.Reply(kinds.STOP, public, thought, "left")
    if not public:
        return types.Reply(kinds.EMPTY, private=thought)
    return types.Reply(kinds.TEXT, public, thought)


def seed(key: types.Key, chair: types.Chair) -> int:
    """The seed of a reply, in [0, 2**31): of its key and chair alone, the same on every machine."""
    name = f"{chair} {key.stream} {key.goal} {key.copy} {key.turn}"
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1


class Chair:
    """types.Respond by an endpoint; answers come as they arrive, so a slow call delays its own
    episode only. counts: replies and kind_KIND."""

    def __init__(self, endpoint: endpoints.Endpoint, chair: types.Chair, config: Config):
        self.endpoint, self.chair, self.config = endpoint, chair, config
        self.counts: collections.Counter[str] = collections.Counter()
        self._done: queue.SimpleQueue[tuple[types.Query, Said]] = queue.SimpleQueue()

    def respond(self, queries: Sequence[types.Query]) -> Iterable[types.Answer]:
        for query in queries:
            asked = self.endpoint.ask(
                messages(query.turns, self.chair, self.config), seed=seed(query.key, self.chair)
            )
            asked.add_done_callback(functools.partial(self._arrived, query))
        answers = []
        while not self._done.empty():
            query, said = self._done.get()
            made = reply(said, self.chair, self.config)
            self.counts["replies"] += 1
            self.counts[f"kind_{made.kind}"] += 1
            answers.append((query, made))
        return answers

    def _arrived(self, query: types.Query, future: concurrent.futures.Future[Said]) -> None:
        self._done.put((query, future.result()))
