"""What came of one call to an endpoint: a text, or a fault with its reason."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any


class Fault(enum.StrEnum):
    """Why a call gave no text. The first five are tried again, within bounds."""

    TIMEOUT = "timeout"  # an attempt took longer than the time-out
    CONNECTION = "connection"  # refused, reset, unknown host
    RATE = "rate"  # 429: too many requests
    SERVER = "server"  # 5xx, 408, 409
    GARBAGE = "garbage"  # an answer that is no chat completion
    DENIED = "denied"  # 401, 403: the key does not open this door
    REQUEST = "request"  # any other 4xx: the same request would fail again
    UNRECORDED = "unrecorded"  # replaying, and this was never recorded
    CLOSED = "closed"  # the endpoint was closed while the call was open


AGAIN = frozenset((Fault.TIMEOUT, Fault.CONNECTION, Fault.RATE, Fault.SERVER, Fault.GARBAGE))


@dataclasses.dataclass(frozen=True)
class Said:
    """The outcome of a call.

    text: what was said ("" with a fault). thought: reasoning that the endpoint gave apart, if any.
    finish: "stop", "length", "content_filter" or whatever the endpoint says. refusal: its refusal.
    fault, reason: None on success. attempts: requests sent (0 when replayed). seconds: from asking
    to the end, waiting for a turn included. tokens: completion tokens as the endpoint counts them.
    """

    text: str = ""
    thought: str | None = None
    finish: str = "stop"
    refusal: str | None = None
    fault: Fault | None = None
    reason: str | None = None
    attempts: int = 0
    seconds: float = 0.0
    tokens: int = 0


def read(answer: Any) -> Said:
    """A chat completion's JSON as Said. Raises ValueError saying what is wrong with it.

    An endpoint may send anything, so every step is checked; a missing text is garbage, an empty one
    is a text.
    """
    if not isinstance(answer, dict):
        raise ValueError(f"a JSON {type(answer).__name__} where an object was due")
    choices = answer.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise ValueError("no choices in the answer")
    message = choices[0].get("message")
    if not isinstance(message, dict):
        raise ValueError("no message in the first choice")
    text, refusal = message.get("content"), message.get("refusal")
    thought = message.get("reasoning_content", message.get("reasoning"))
    finish = choices[0].get("finish_reason")
    usage = answer.get("usage")
    tokens = usage.get("completion_tokens") if isinstance(usage, dict) else 0
    if text is None and (refusal or finish == "content_filter"):
        text = ""
    if not isinstance(text, str):
        raise ValueError(f"the message's content is a {type(text).__name__}, not a text")
    return Said(
        text=text,
        thought=thought if isinstance(thought, str) and thought else None,
        finish=finish if isinstance(finish, str) else "stop",
        refusal=refusal if isinstance(refusal, str) and refusal else None,
        tokens=tokens if isinstance(tokens, int) and not isinstance(tokens, bool) else 0,
    )
