"""A published model that can talk: weights, tokenizer and chat family, from one name or path."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mimesis_jax import pretrained
from mimesis_jax.chat import families, published, render, tools
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import folder, gguf, hub_config, importing

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


def path_of(model: str | os.PathLike[str]) -> Path:
    """Where a model lies: what is at that path, else "smollm2" is the installed package's file.
    Raises gguf.Unavailable where the package is not installed."""
    path = Path(model)
    return gguf.smollm2_path() if os.fspath(model) == SMOLLM2 and not path.exists() else path


def load(
    model: str | os.PathLike[str], *, dtype: str | None = None, family: str | None = None
) -> Speaker:
    """The model called "smollm2", in a GGUF file, in a folder of the hub's layout, or in one of our
    frozen checkpoints that has its source beside it.

    dtype: "float32" or "bfloat16", of weights and activations; the model's own when None (float32
    for GGUF). family: name of the chat family where the model's config.json does not tell.

    Ids that the tokenizer has not are masked in sampling and scoring (Spec.vocab_real). Raises
    ValueErrors that name the file, field, tensor or package at fault.
    """
    path, words, renderer = _heard(model, family)  # what it lacks is told before the weights
    spec, params = pretrained.load(path, dtype=dtype, compute=dtype)
    spec = dataclasses.replace(spec, vocab_real=min(words.tokenizer.vocab_real, spec.vocab))
    return Speaker(os.fspath(model), spec, params, renderer, words.template, words.length)


def renderer_of(
    model: str | os.PathLike[str], *, family: str | None = None
) -> tuple[render.Renderer, specs.Spec]:
    """How a model speaks and what it is, without its weights; arguments and errors as of `load`."""
    path, words, renderer = _heard(model, family)
    spec = pretrained.spec_of(path)
    return renderer, dataclasses.replace(
        spec, vocab_real=min(words.tokenizer.vocab_real, spec.vocab)
    )


def _heard(model, family: str | None) -> tuple[Path, Words, render.Renderer]:
    path = path_of(model)
    if not path.exists():
        raise pretrained.Refused(
            f"there is no model at {path}: give {SMOLLM2!r}, a .gguf file or a model's folder"
        )
    if path.is_file() and path.suffix.lower() != gguf.SUFFIX:
        raise pretrained.Refused(f"{path} is a file and no .gguf file: give the model's folder")
    words = _in_file(path) if path.is_file() else _in_folder(path)
    known = (
        families.named(family) if family else families.of(words.config, words.tokenizer.specials)
    )
    return path, words, render.Renderer(words.tokenizer, known)


@dataclasses.dataclass(frozen=True)
class Words:
    """What a model's files say but for weights. config: of the text model, its kind at least."""

    config: Mapping[str, Any]
    tokenizer: published.Tokenizer
    template: str | None
    length: int | None


def _in_file(path: Path) -> Words:
    container = gguf.opened(path)
    gguf.spec_of(container)  # another architecture is told first
    tok = published.parsed(gguf.tokenizer_json(container), f"the tokenizer of {path}")
    length = _length(container.fields.get("llama.context_length"))
    return Words({"model_type": "llama"}, tok, gguf.template_in(container), length)


def _in_folder(path: Path) -> Words:
    """Of a hub's folder, or of the source that one of ours keeps. Nothing is read through a link
    that leads out of it."""
    if importing.kind_of(path) == "frozen":
        importing.recorded(path)  # a run's own model is told so
        if not (path / "source").is_dir():
            raise pretrained.Refused(
                f"{path} was frozen without a tokenizer: mimesis convert {path} DST --source HUB "
                "makes a folder that has the one of HUB"
            )
        path = path / "source"
    opened = folder.read(path)
    opened.carried()
    spec = importing.spec_in(opened)
    tok = published.load(opened.path, rows=spec.vocab)
    length = _length(hub_config.text_of(opened.config).get("max_position_embeddings"))
    return Words(opened.config, tok, _template(opened), length)


def _length(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None


def _template(opened: folder.Folder) -> str | None:
    """chat_template.jinja, else what tokenizer_config.json holds."""
    if opened.has("chat_template.jinja"):
        return opened.text("chat_template.jinja")
    known = opened.json("tokenizer_config.json") if opened.has("tokenizer_config.json") else None
    found = known.get("chat_template") if isinstance(known, dict) else None
    return found if isinstance(found, str) else None
