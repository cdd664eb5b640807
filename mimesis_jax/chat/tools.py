"""Tool calls in the notations of the chat families, and what a template says about the tools.

    xml    <tool_call> <function=NAME> <parameter=P> value ... , a line each       Qwen3.5
    json   <tool_call> {"name": NAME, "arguments": {...}} </tool_call>, a line each   Qwen3, Qwen2.5
    llama  {"name": NAME, "parameters": {...}}, one call and nothing else          Llama-3.1

A call is text here; the renderer makes ids of its marks in an agent's turn that is for the agent
alone, and in no other.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

OPEN, CLOSE = "<tool_call>", "</tool_call>"
SLOT = "\ue000system\ue000"  # private-use characters: no template and no tool says this


class Malformed(ValueError):
    """A text that begins a call and is none; the message says where it goes wrong."""


@dataclasses.dataclass(frozen=True)
class Call:
    """A tool's name and its arguments, JSON values by name."""

    name: str
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Message:
    """What an agent said, and what it called after that."""

    content: str
    calls: tuple[Call, ...] = ()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def write(notation: str, message: Message) -> str:
    """The message as text in a notation of families.Calls.

    Raises ValueError where the notation cannot say it: any call in "none"; in "llama" a second call
    or content beside one; in "xml", which quotes nothing, an argument that holds a mark.
    """
    if not message.calls:
        return message.content
    if notation == "llama":
        if len(message.calls) > 1 or message.content:
            raise ValueError("a Llama turn holds one call and nothing else: use one turn for each")
        (call,) = message.calls
        return _json({"name": call.name, "parameters": dict(call.arguments)})
    if notation not in ("xml", "json"):
        raise ValueError(f"calls in notation {notation!r}: use 'xml', 'json' or 'llama'")
    body = _xml if notation == "xml" else _object
    blocks = "\n".join(f"{OPEN}\n{body(call)}\n{CLOSE}" for call in message.calls)
    gap = ("\n\n" if notation == "xml" else "\n") if message.content else ""
    return message.content + gap + blocks


def _object(call: Call) -> str:
    return _json({"name": call.name, "arguments": dict(call.arguments)})


def _xml(call: Call) -> str:
    lines = [f"<function={call.name}>"]
    for name, value in call.arguments.items():
        text = _json(value) if isinstance(value, (dict, list, tuple)) else str(value)
        if "</parameter>" in text or re.search(rf"^({OPEN}|{CLOSE})$", text, re.MULTILINE):
            raise ValueError(
                f"argument {name!r} of {call.name} holds a mark of the notation, which quotes"
                " nothing: say it in other words"
            )
        lines += [f"<parameter={name}>", text, "</parameter>"]
    return "\n".join([*lines, "</function>"])


_BLOCK = re.compile(rf"^{OPEN}\n(.*?)\n{CLOSE}$\n?", re.MULTILINE | re.DOTALL)
_FUNCTION = re.compile(r"\A<function=([^>\n]+)>\n(.*)</function>\Z", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n(.*?)\n</parameter>\n", re.DOTALL)


def read(notation: str, text: str) -> Message:
    """The message that a text says in a notation.

    In "xml" values are text, but for those that are a JSON object or array. Text after a call is
    content too. Raises Malformed for a call that is begun and not well formed.
    """
    if notation == "none":
        return Message(text)
    if notation == "llama":
        if not text.lstrip().startswith('{"name"'):
            return Message(text)
        return Message("", (_of_object(text, "parameters"),))
    found = _BLOCK.findall(text)
    rest = _BLOCK.sub("", text)
    if OPEN in rest or CLOSE in rest:
        raise Malformed(f"{OPEN} and {CLOSE} do not pair, each on a line of its own: {rest!r:.80}")
    turn = _of_xml if notation == "xml" else lambda body: _of_object(body, "arguments")
    return Message(rest.strip(), tuple(turn(body) for body in found))


def _of_object(text: str, key: str) -> Call:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"a call that is no JSON ({error}): {text!r:.80}") from None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise Malformed(f"a call without a name: {text!r:.80}")
    arguments = value.get(key, {})
    if not isinstance(arguments, dict):
        raise Malformed(f"{key} of {value['name']} are no object: {arguments!r:.80}")
    return Call(value["name"], arguments)


def _of_xml(body: str) -> Call:
    found = _FUNCTION.match(body)
    if found is None:
        raise Malformed(f"a call that is no <function=NAME> ... </function>: {body!r:.80}")
    name, inner = found.groups()
    if _PARAMETER.sub("", inner):
        raise Malformed(f"{name} has more than its parameters: {_PARAMETER.sub('', inner)!r:.80}")
    return Call(name, {key: _value(text) for key, text in _PARAMETER.findall(inner)})


def _value(text: str) -> Any:
    if text[:1] in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def result(notation: str, text: str) -> str:
    """A tool's result as its turn says it: Llama's template quotes it as JSON."""
    return _json(text) if notation == "llama" else text


# --- what a template says -----------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Preamble:
    """Trusted text of the first system turn, around the system text that is given (`before`,
    `after`), or where none is given (`alone`)."""

    before: str
    after: str
    alone: str


def preamble(
    template: str,
    definitions: Sequence[Mapping[str, Any]],
    *,
    system: str,
    user: str,
    end: str,
    **variables: Any,
) -> Preamble:
    """What the chat template of a checkpoint (jinja, run in a sandbox) says about tools.

    The wording is the model's own, so it is taken from the model and not kept here. definitions:
    JSON schemas of the tools, which are trusted text. system, user, end: what opens a system and a
    user turn in the family, and what ends a turn. variables: for the template (bos_token, ...).

    Raises Malformed for a template that fails or does not put the tools into the system turn.
    """
    with_text, without = (
        _system_turn(template, definitions, messages, system, user, end, variables)
        for messages in (
            [{"role": "system", "content": SLOT}, {"role": "user", "content": "x"}],
            [{"role": "user", "content": "x"}],
        )
    )
    before, slot, after = with_text.partition(SLOT)
    if not slot:
        raise Malformed("the chat template drops the system text: no family here does")
    return Preamble(before, after, without)


def _system_turn(template, definitions, messages, system, user, end, variables) -> str:
    from transformers.utils import chat_template_utils

    try:
        found: Any = chat_template_utils.render_jinja_template(
            [messages],
            tools=[dict(tool) for tool in definitions],
            chat_template=template,
            tools_in_user_message=False,  # Llama's template puts them there unless it is told
            **variables,
        )
    except Exception as error:  # a template is a program: it may fail in any way
        raise Malformed(f"the chat template fails with tools: {error}") from None
    text = found[0][0]  # of the one conversation; annotated as a string, which it is not
    start, stop = text.find(system), text.find(end)
    if start < 0 or stop < start or user not in text[stop:]:
        raise Malformed(
            f"the chat template writes no system turn {system!r} ... {end!r}: is it of this family?"
        )
    return text[start + len(system) : stop]
