"""A dialogue as data in a prompt: JSON that what is said in it cannot break out of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mimesis_jax import types
from mimesis_jax.remote import endpoint as endpoints


def lines(turns: Sequence[types.Turn], *, private: bool) -> list[dict[str, str]]:
    """Turns as {"author", "text"} and, where private and there is one, {"thought"}."""
    return [
        {"author": turn.author, "text": turn.public}
        | ({"thought": turn.private} if private and turn.private else {})
        for turn in turns
    ]


def ask(prompt: str, data: Mapping[str, Any]) -> list[endpoints.Message]:
    """The instructions as system text and the data as one JSON message of the user."""
    return [
        {"role": "system", "content": prompt},
        {"role": "user", "content": json.dumps(data, ensure_ascii=False)},
    ]
