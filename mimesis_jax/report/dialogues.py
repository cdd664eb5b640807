"""A chosen handful of dialogues: private lanes apart, reply tokens shaded by the CSD gate."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from mimesis_jax.report import numbers

WANTED = (  # (phase, succeeded), in reading order; None: whichever
    ("agent_csd", True),
    ("agent_csd", False),
    ("agent_grpo", True),
    ("agent_grpo", False),
    ("agent_grpo_assistant_user", True),
    ("agent_start", False),
    ("user_behaviours", None),
)
MOST = 8  # dialogues on the page
LONGEST = 4000  # characters of one text on the page
SPECIAL = re.compile(r"<[^<>\s]+>")  # an end-of-turn or think marker among the tokens


@dataclasses.dataclass(frozen=True)
class Piece:
    """A token as shown: gap is the plain text before it; gate None: a marker, not shaded."""

    gap: str
    text: str
    gate: float | None


@dataclasses.dataclass(frozen=True)
class Shown:
    """One turn. only: the chair that alone may read it. pieces replace `public` where given."""

    author: str
    only: str | None
    public: str
    private: str | None
    reward: str
    note: str | None = None
    pieces: tuple[Piece, ...] = ()
    apart: bool = False  # the pieces cover more than the public reply, so they stand apart, folded


@dataclasses.dataclass(frozen=True)
class Shot:
    """A dialogue on the page; facts are (name, value) pairs for its heading."""

    title: str
    outcome: str
    good: bool | None
    facts: tuple[tuple[str, str], ...]
    turns: tuple[Shown, ...]
    coached: bool


def choose(episodes: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """The episodes worth reading, at most MOST, and how many there were.

    Of every (phase, succeeded or not) the best by: has notes, has at least four turns, latest step.
    The kinds in WANTED come first, then evaluations and other phases in the order of the file.
    """
    best: dict[tuple[str, bool], tuple[tuple, dict[str, Any]]] = {}
    count = 0
    for episode in episodes:
        turns = episode.get("turns")
        if not isinstance(turns, list) or not turns:
            continue
        count += 1
        kind = (str(episode.get("phase")), bool(succeeded(episode)))
        rank = (bool(_notes(episode)), len(turns) >= 4, numbers.finite(episode.get("step")) or 0.0)
        if kind not in best or rank > best[kind][0]:
            best[kind] = (rank, episode)
    kinds: list[tuple[str, bool]] = []
    for phase, good in WANTED:
        kinds += [k for k in best if k[0] == phase and good in (None, k[1]) and k not in kinds]
    kinds += [kind for kind in best if kind not in kinds]
    return [best[kind][1] for kind in kinds[:MOST]], count


def succeeded(episode: dict[str, Any]) -> bool | None:
    """Success above one half; None where none was written."""
    value = episode.get("success")
    if isinstance(value, bool):
        return value
    number = numbers.finite(value)
    return None if number is None else number > 0.5


def shot(episode: dict[str, Any]) -> Shot:
    """An episode line as the page shows it. All its text is untrusted and stays text."""
    good = succeeded(episode)
    facts = [
        (name, plain(episode[key]))
        for name, key in (
            ("step", "step"),
            ("agent", "agent"),
            ("user", "user"),
            ("behaviour", "behaviour"),
            ("goal", "goal"),
            ("copy", "copy"),
            ("ended", "stop"),
        )
        if episode.get(key) is not None
    ]
    outcome = {True: "success", False: "failure", None: "no outcome"}[good]
    notes = _notes(episode)
    turns = _turns(episode, notes)
    title = plain(episode.get("phase", "episode")).replace("_", " ")
    return Shot(title, outcome, good, tuple(facts), turns, any(turn.pieces for turn in turns))


def _turns(episode: dict[str, Any], notes: dict[int, dict[str, Any]]) -> tuple[Shown, ...]:
    private = _list(episode.get("private"))
    paid = iter(_list(episode.get("rewards")))
    out = []
    for n, turn in enumerate(_list(episode.get("turns"))):
        turn = numbers.group(turn)
        author = plain(turn.get("author", "?"))
        thought = private[n] if n < len(private) else turn.get("private")
        only = turn.get("only")
        shown = Shown(
            author=author,
            only=None if only is None else plain(only),
            public=plain(turn.get("public", "")),
            private=None if thought is None else plain(thought),
            reward=_reward(next(paid, 0.0)) if author == "agent" else "",
        )
        out.append(_coached(shown, notes[n]) if n in notes else shown)
    return tuple(out)


def _reward(value: Any) -> str:
    """Most turns earn 0, which is left unsaid; null or NaN is a missing reward."""
    number = numbers.finite(value)
    if number == 0:
        return ""
    return "no reward" if number is None else f"reward {numbers.show(number)}"


def _coached(turn: Shown, entry: dict[str, Any]) -> Shown:
    tokens = [str(token) for token in _list(entry.get("tokens"))]
    gates = [numbers.finite(gate) for gate in _list(entry.get("gate"))]
    gates += [None] * (len(tokens) - len(gates))
    note = entry.get("note")
    note = None if note is None else plain(note)
    pieces = align(turn.public, tokens, gates)
    if pieces is not None:
        return dataclasses.replace(turn, note=note, pieces=pieces)
    # Tokens of the private reasoning as well: shown in the fold, not in the public lane.
    spaced = any(token[:1].isspace() or token[-1:].isspace() for token in tokens)
    loose = tuple(
        Piece("" if spaced or n == 0 else " ", token, None if SPECIAL.fullmatch(token) else gate)
        for n, (token, gate) in enumerate(zip(tokens, gates, strict=False))
    )
    return dataclasses.replace(turn, note=note, pieces=loose, apart=True)


def align(
    text: str, tokens: Sequence[str], gates: Sequence[float | None]
) -> tuple[Piece, ...] | None:
    """Lays tokens over the text they spell, white space aside; None when they spell another text.

    tokens, gates: of one length. Markers such as <end> spell nothing and are kept unshaded.
    """
    pieces: list[Piece] = []
    at = 0
    for token, gate in zip(tokens, gates, strict=False):
        if SPECIAL.fullmatch(token.strip()) and not text.startswith(token.strip(), at):
            pieces.append(Piece(" ", token.strip(), None))
            continue
        begin = end = at
        while begin < len(text) and text[begin].isspace():
            begin += 1
        end = begin
        for letter in token:
            if letter.isspace():
                continue
            while end < len(text) and text[end].isspace():
                end += 1
            if end >= len(text) or text[end] != letter:
                return None
            end += 1
        if end > begin:
            pieces.append(Piece(text[at:begin], text[begin:end], gate))
            at = end
    return tuple(pieces) if pieces and not text[at:].strip() else None


def plain(value: Any) -> str:
    """Any JSON value as text of bounded length."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]} ... ({len(text) - LONGEST:,} more characters)"


def _notes(episode: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Index of the dialogue turn -> its CSD entry."""
    entries = (entry for entry in _list(episode.get("csd")) if isinstance(entry, dict))
    return {e["turn"]: e for e in entries if isinstance(e.get("turn"), int)}


def _list(value: Any) -> list:
    return value if isinstance(value, list) else []
