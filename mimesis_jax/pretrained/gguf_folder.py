"""What a folder of the hub's layout holds beside weights, made from a GGUF file's own fields."""

from __future__ import annotations

import json
from typing import Any

from mimesis_jax.pretrained import fresh_config, gguf
from mimesis_jax.pretrained import gguf_container as containers

TOKENIZER = "tokenizer.json"
# Field of the file -> (name of the id in config files, name of the token in the tokenizer's).
IDS = {
    "tokenizer.ggml.bos_token_id": ("bos_token_id", "bos_token"),
    "tokenizer.ggml.eos_token_id": ("eos_token_id", "eos_token"),
    "tokenizer.ggml.padding_token_id": ("pad_token_id", "pad_token"),
}
UNKNOWN = "tokenizer.ggml.unknown_token_id"
LONGEST = 1 << 31  # tokens; a longer context is no length but damage


def files(container: containers.Container) -> dict[str, bytes]:
    """Name -> content of the files that transformers and servers want beside the weights.

    config.json and generation_config.json always; tokenizer.json and tokenizer_config.json, which
    holds the chat template, where the file has a tokenizer that is known here (gguf.SPLITS).
    Raises Broken where a field is no such thing as its name says.
    """
    tokens = container.fields.get("tokenizer.ggml.tokens")
    ids = {name: _id(container, field, tokens) for field, (name, _) in IDS.items()}
    known: dict[str, Any] = {name: value for name, value in ids.items() if value is not None}
    length = _length(container)
    config = fresh_config.config_of(gguf.spec_of(container), max_length=length) | known
    found = {"config.json": _text(config), "generation_config.json": _text(known)}
    if gguf.has_tokenizer(container):
        found[TOKENIZER] = gguf.tokenizer_json(container).encode()
        found["tokenizer_config.json"] = _text(_tokenizer_config(container, tokens, length))
    return found


def _tokenizer_config(container: containers.Container, tokens: Any, length: int) -> dict[str, Any]:
    named = {token: field for field, (_, token) in IDS.items()} | {"unk_token": UNKNOWN}
    found: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",  # reads tokenizer.json as it stands
        "model_max_length": length,
        "clean_up_tokenization_spaces": False,
        "add_prefix_space": False,
    }
    if isinstance(begins := container.fields.get("tokenizer.ggml.add_bos_token"), bool):
        found["add_bos_token"] = begins
    for token, field in named.items():
        if (number := _id(container, field, tokens)) is not None:
            found[token] = tokens[number]
    if (template := gguf.template_in(container)) is not None:
        found["chat_template"] = template
    return found


def _id(container: containers.Container, field: str, tokens: Any) -> int | None:
    """The id that a field names, None where there is no such field."""
    value = container.fields.get(field)
    if value is None:
        return None
    if type(value) is not int or not isinstance(tokens, list) or not 0 <= value < len(tokens):
        count = len(tokens) if isinstance(tokens, list) else 0
        raise containers.Broken(
            f"{container.path}: {field} is {str(value)[:40]}, the file has {count} tokens: "
            "fetch it again"
        )
    return value


def _length(container: containers.Container) -> int:
    value = container.fields.get("llama.context_length", 2048)  # what ggml takes without one
    if type(value) is not int or not 0 < value < LONGEST:
        raise containers.Broken(
            f"{container.path}: llama.context_length is {str(value)[:40]}, no number of tokens: "
            "fetch it again"
        )
    return value


def _text(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
