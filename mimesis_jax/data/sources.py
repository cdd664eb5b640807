"""The table of sources: how each is read, what it is, who made it, under which licence."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from mimesis_jax.data import abcd, lmsys, plain, played, prism, rows, thoughttrace, wildchat
from mimesis_jax.data.records import Record

Reader = Callable[..., Iterator[Record]]  # (paths, ledger, **options)


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of source.

    read: (paths, ledger, **options) to records. files: glob of its files in a folder.
    splits: (paths) to the split names that files themselves hold; None where a file is one split.
    """

    read: Reader
    files: str
    description: str
    citation: str
    licence: str
    splits: Callable[[rows.Paths], tuple[str, ...]] | None = None


KINDS: dict[str, Kind] = {
    thoughttrace.SOURCE: Kind(
        thoughttrace.read,
        "*.jsonl*",
        "Conversations whose users reported, turn by turn, why they wrote what they wrote.",
        "ThoughtTrace, arXiv 2605.20087",
        "CC-BY-4.0",
    ),
    abcd.SOURCE: Kind(
        abcd.read,
        "*.json*",
        "Customers and support agents acting by company guidelines (ABCD v1.1).",
        "Action-Based Conversations Dataset, arXiv 2104.00783",
        "MIT",
        abcd.splits,
    ),
    wildchat.SOURCE: Kind(
        wildchat.read,
        "*.jsonl*",
        "Real conversations of the public with an assistant (WildChat-1M).",
        "WildChat, arXiv 2405.01470",
        "ODC-BY",
    ),
    lmsys.SOURCE: Kind(
        lmsys.read,
        "*.jsonl*",
        "Conversations with many models (LMSYS-Chat-1M; gated).",
        "LMSYS-Chat-1M, arXiv 2309.11998",
        "LMSYS-Chat-1M Dataset License Agreement",
    ),
    prism.SOURCE: Kind(
        prism.read,
        "conversations*.jsonl*",
        "People of many countries, each talking to several models and choosing among replies.",
        "The PRISM Alignment Dataset, arXiv 2404.16019",
        "CC-BY-4.0 (human text), CC-BY-NC-4.0 (model text)",
    ),
    plain.SOURCE: Kind(
        plain.read,
        "*.jsonl*",
        "Plain chat rows: a list of messages with role and content.",
        "",
        "as given by whoever made the files",
    ),
    played.SOURCE: Kind(
        played.read,
        "*.jsonl*",
        "Dialogues played by this project's users and agents in its own gyms.",
        "",
        "as chosen by whoever played them",
    ),
}


def kind(name: str) -> Kind:
    """The kind of that name. Raises ValueError listing the names."""
    if name not in KINDS:
        raise ValueError(f"kind {name!r} is not a source: use one of {', '.join(KINDS)}")
    return KINDS[name]
