"""A published model that can talk: weights, tokenizer and chat family, from one name or path."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mimesis_jax import pretrained
from mimesis_jax.chat import families, published, render, tools
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import gguf

SMOLLM2 = "smollm2"  # the one model that can be named, because a package carries it


@dataclasses.dataclass(frozen=True)
class Speaker:
    """name: as it was asked for. renderer: holds the tokenizer and the family. template: the chat
    template that came with the model, None where none did. length: tokens it was made for, None
    where nobody says."""

    name: str
    spec: specs.Spec
    params: decoder.Params
    renderer: render.Renderer
    template: str | None
    length: int | None

    def with_tools(self, definitions: Sequence[Mapping[str, Any]]) -> render.Renderer:
        """The renderer whose first system turn tells of these tools (JSON schemas), in the words of
        the model's own template. Raises tools.Malformed where it has none or does not take them."""
        if self.template is None:
            raise tools.Malformed(f"{self.name} came without a chat template: it has no tools")
        family = self.renderer.family
        said = tools.preamble(
            self.template,
            definitions,
            system=family.opens["system"],
            user=family.opens["user"],
            end=family.end,
            bos_token=family.start,
        )
        return dataclasses.replace(self.renderer, tools=said)


def load(
    model: str | os.PathLike[str], *, dtype: str | None = None, family: str | None = None
) -> Speaker:
    """The model called "smollm2", in a GGUF file, or in a folder of the hub's layout.

    dtype: "float32" or "bfloat16", of weights and activations; the model's own when None (float32
    for GGUF). family: name of the chat family where the model's config.json does not tell.

    Ids that the tokenizer has not are masked in sampling and scoring (Spec.vocab_real). Raises
    ValueErrors that name the file, field, tensor or package at fault.
    """
    name = os.fspath(model)
    path = gguf.smollm2_path() if name == SMOLLM2 else Path(name)
    if not path.exists():
        raise pretrained.Refused(
            f"there is no model at {name}: give {SMOLLM2!r}, a .gguf file or a model's folder"
        )
    file = path.is_file()
    if file and path.suffix.lower() != gguf.SUFFIX:
        raise pretrained.Refused(f"{name} is a file and no .gguf file: give the model's folder")
    if file:
        container = gguf.opened(path)
        tok, config = gguf.tokenizer(path), dict[str, Any](model_type="llama")
        template, length = gguf.template(path), container.fields.get("llama.context_length")
    else:
        config = _json(path / "config.json")
        text = config.get("text_config") or config
        tok, template = published.load(path, rows=text.get("vocab_size")), _template(path)
        length = text.get("max_position_embeddings")
    known = families.named(family) if family else families.of(config, tok.specials)
    spec, params = pretrained.load(path, dtype=dtype, compute=dtype)
    spec = dataclasses.replace(spec, vocab_real=min(tok.vocab_real, spec.vocab))
    return Speaker(name, spec, params, render.Renderer(tok, known), template, length)


def _json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise pretrained.Refused(f"{file} cannot be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise pretrained.Refused(f"{file} is no JSON object: give the folder of a whole model")
    return value


def _template(folder: Path) -> str | None:
    """chat_template.jinja, else what tokenizer_config.json holds."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    known = folder / "tokenizer_config.json"
    found = _json(known).get("chat_template") if known.is_file() else None
    return found if isinstance(found, str) else None
