"""Chat families as data: how each writes turns, thoughts, calls and results; where replies end.

One renderer (render.py) is driven by these rows. In the trusted texts of a row the names of special
tokens stand for their ids; in what people and models say they never do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from mimesis_jax.chat import branches, grammar

Role = Literal["system", "user", "agent", "tool", "note"]
Calls = Literal["none", "xml", "json", "llama"]


@dataclasses.dataclass(frozen=True)
class Family:
    """How a family of models writes a dialogue.

    opens: what stands before a turn's text, by its author ("note": a coach's note, which is a turn
      of its own). end, after: the token that ends a turn, and what follows it before the next.
    leave: the token with which a user ends the conversation in place of `end`.
    stops: further tokens that end a sampled reply.
    think: what opens and what closes a thought before the text; () where the family has none.
      think_end: the token in the latter by which a thought's end is found. nothing: a whole empty
      thought.
    thinking, history: what the published template does; see grammar.Thinking, branches.History.
    trim: "all": outer white space is no part of any text; "lead": newlines before a sampled text
      are no part of it; "none".
    start: what stands before the first turn. system: text of the system turn that a dialogue
      without one gets, None for none. preface: stands before the text of the first system turn.
    result: what stands around a tool's result inside its turn; grouped: neighbouring results share
      one turn.
    calls: the notation of tool calls (tools.py); marks: the tokens around a call, which may stand
      in an agent's reply.
    """

    name: str
    opens: Mapping[str, str]
    end: str
    leave: str
    after: str = ""
    stops: tuple[str, ...] = ()
    think: tuple[str, str] | tuple[()] = ()
    think_end: str = ""
    nothing: str = ""
    thinking: grammar.Thinking = "none"
    history: branches.History = "drop_at_user"
    trim: Literal["none", "lead", "all"] = "none"
    start: str = ""
    system: str | None = None
    preface: str = ""
    result: tuple[str, str] = ("", "")
    grouped: bool = False
    calls: Calls = "none"
    marks: tuple[str, ...] = ()


SMALL = Family(
    name="small",
    opens={name: f"<|{name}|>" for name in ("system", "user", "agent", "tool", "note")},
    end="<|end|>",
    leave="<|leave|>",
    think=("<think>", "</think>"),
    think_end="</think>",
    nothing="<think></think>",
)


def _chatml(note: str = "system") -> dict[str, str]:
    """Turns between <|im_start|> and <|im_end|>, as Qwen and SmolLM2 write them. The note's role is
    the family's choice: it is no part of any published template."""
    roles = {"system": "system", "user": "user", "agent": "assistant", "note": note}
    return {author: f"<|im_start|>{role}\n" for author, role in roles.items()}


# Qwen3.5: a system turn may only come first, so a note is a message of the user's kind. A reply
# ends at <|im_end|>, and at <|endoftext|> too, which is the base model's end.
QWEN35 = Family(
    name="qwen3.5",
    opens=_chatml("user") | {"tool": "<|im_start|>user"},
    end="<|im_end|>",
    after="\n",
    leave="<|endoftext|>",
    stops=("<|endoftext|>",),
    think=("<think>\n", "\n</think>\n\n"),
    think_end="</think>",
    nothing="<think>\n\n</think>\n\n",
    thinking="sample",
    trim="all",
    result=("\n<tool_response>\n", "\n</tool_response>"),
    grouped=True,
    calls="xml",
    marks=("<tool_call>", "</tool_call>"),
)
# 0.8B and 2B think only when they are asked to.
QWEN35_SMALL = dataclasses.replace(QWEN35, name="qwen3.5-small", thinking="empty")

# Qwen3's special-looking <tool_response> and <think> are added tokens too.
QWEN3 = dataclasses.replace(
    QWEN35,
    name="qwen3",
    opens=_chatml() | {"tool": "<|im_start|>user"},
    trim="lead",
    calls="json",
)
QWEN25 = dataclasses.replace(
    QWEN3,
    name="qwen2.5",
    think=(),
    think_end="",
    nothing="",
    thinking="none",
    trim="none",
    system="You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
)
SMOLLM2 = Family(
    name="smollm2",
    opens=_chatml() | {"tool": "<|im_start|>tool\n"},
    end="<|im_end|>",
    after="\n",
    leave="<|endoftext|>",
    stops=("<|endoftext|>",),
    system="You are a helpful AI assistant named SmolLM, trained by Hugging Face",
)
# SmolLM2 has no thoughts. A simulator trained from it needs two marks that no text produces: two of
# the ids that its base kept for issue trackers, and that the chat model never met, serve as these.
SMOLLM2_THOUGHTS = dataclasses.replace(
    SMOLLM2,
    name="smollm2-thoughts",
    think=("<issue_start>", "<issue_closed>"),
    think_end="<issue_closed>",
    nothing="<issue_start><issue_closed>",
    thinking="sample",
)
_LLAMA_ROLES = {
    "system": "system", "user": "user", "agent": "assistant", "tool": "ipython", "note": "system"
}  # fmt: skip
LLAMA31 = Family(
    name="llama-3.1",
    opens={
        author: f"<|start_header_id|>{role}<|end_header_id|>\n\n"
        for author, role in _LLAMA_ROLES.items()
    },
    end="<|eot_id|>",
    leave="<|end_of_text|>",
    stops=("<|eom_id|>", "<|end_of_text|>"),
    trim="all",
    start="<|begin_of_text|>",
    system="",
    preface="Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n",
    calls="llama",
)
ALL = {
    family.name: family
    for family in (
        SMALL, QWEN35, QWEN35_SMALL, QWEN3, QWEN25, SMOLLM2, SMOLLM2_THOUGHTS, LLAMA31
    )
}  # fmt: skip
SMALL_WIDTH = 2048  # hidden_size of Qwen3.5-2B, the widest that does not think unasked


class Unknown(ValueError):
    """No family is known for a model; the message says which are."""


def named(name: str) -> Family:
    """The family of that name. Raises Unknown."""
    if name not in ALL:
        raise Unknown(f"chat family {name!r} is unknown: use one of {', '.join(ALL)}")
    return ALL[name]


def of(config: Mapping[str, Any], specials: Mapping[str, int]) -> Family:
    """The family of a model by its config.json and the special tokens of its tokenizer.

    The kind of model decides, and among those of one kind the tokens: a Llama with <|im_start|> is
    SmolLM2, a Qwen3 without <think> does not think. Raises Unknown for every other model.
    """
    text = config.get("text_config") or config
    kind = str(text.get("model_type") or config.get("model_type"))
    if kind.startswith("qwen3_5"):
        return QWEN35_SMALL if int(text.get("hidden_size", 0)) <= SMALL_WIDTH else QWEN35
    if kind == "qwen3":
        return QWEN3
    if kind == "qwen2":
        return QWEN25
    if kind == "llama" and "<|start_header_id|>" in specials:
        return LLAMA31
    if kind == "llama" and "<|im_start|>" in specials:
        return SMOLLM2
    raise Unknown(
        f"no chat family is known for a {kind!r} model with this tokenizer: name one of"
        f" {', '.join(ALL)}"
    )


def swapped(family: Family) -> Family:
    """The family with the two chairs' words exchanged: a chat model that plays the user says its
    turns as the assistant, and hears the agent's as the user's."""
    opens = dict(family.opens)
    opens["user"], opens["agent"] = opens["agent"], opens["user"]
    return dataclasses.replace(family, name=f"{family.name}, swapped", opens=opens)
