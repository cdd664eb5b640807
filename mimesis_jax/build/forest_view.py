"""`mimesis forest`: recorded episodes, laid out as the trainer lays them out, drawn on a page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mimesis_jax import types
from mimesis_jax.chat import render, tokenizer
from mimesis_jax.forest import order, pack, tree
from mimesis_jax.report import forest_page, sheet
from mimesis_jax.runs import disk

MOST_ROWS = 8
USUAL = pack.Shape(rows=1, length=256, chunk=8, learned=256, slots=4)  # where no run says


class ForestError(ValueError):
    """Episodes that cannot be drawn; the message says what is missing."""


@dataclasses.dataclass(frozen=True)
class Source:
    """Where episodes lie. file: the lines. folder: the run's, with its tokenizer and, if there is
    one, its configuration."""

    file: Path
    folder: Path

    @property
    def shape(self) -> pack.Shape:
        """The run's rows, one at a time, with room for teachers' forks."""
        config = disk.read(self.folder / "config.json")
        found = config.get("shape") if isinstance(config, dict) else None
        if not isinstance(found, dict):
            return USUAL
        length, chunk = found.get("length", USUAL.length), found.get("chunk", USUAL.chunk)
        return dataclasses.replace(USUAL, length=length, chunk=chunk, learned=length)


def draw(
    source: Path,
    *,
    chair: types.Chair | None = None,
    count: int = 4,
    phase: str | None = None,
    out: Path | None = None,
) -> Path:
    """Draws `count` episodes as one chair trains on them, and returns the page's path.

    source: a run folder, or an episodes.jsonl in one. chair: whose tokens are learned (None: the
    first episode's that has thoughts or notes). phase: only episodes of that phase of the run.
    out: the page (forest.html in the run folder when None).
    Raises ForestError or FileNotFoundError before anything is written.
    """
    if count < 1:
        raise ForestError(f"{count} episodes: draw 1 or more")
    where = find(source)
    renderer = render.Renderer(tokenizer.load(where.folder / "tokenizer.json"))
    episodes = _chosen(where, count, phase)
    chair = chair or _telling(episodes[0])
    trees = [seen(episode, chair, renderer) for episode in episodes]
    kept = [(one, episode) for one, episode in zip(trees, episodes, strict=True) if one]
    if not kept:
        raise ForestError(
            f"the {chair} says nothing in these episodes: choose --chair "
            f"{'user' if chair == 'agent' else 'agent'}"
        )
    rows = laid([one for one, _ in kept], [_called(e) for _, e in kept], where.shape, renderer)
    title = f"{where.folder.resolve().name}, the {chair}'s chair"
    target = out or where.folder / "forest.html"
    html = forest_page.render(forest_page.Page(
        title, _facts(kept, rows), tuple(rows[:MOST_ROWS]), max(0, len(rows) - MOST_ROWS)
    ))  # fmt: skip
    try:
        return sheet.put(target, html)
    except OSError as error:
        raise disk.explain(error, target) from error


def find(source: Path) -> Source:
    """The file of episodes and its run folder. Raises FileNotFoundError for what is not there."""
    file = source / "episodes.jsonl" if source.is_dir() else source
    folder = file.parent
    if not file.is_file():
        raise FileNotFoundError(2, "there are no episodes: give a run folder", str(file))
    if not (folder / "tokenizer.json").is_file():
        raise FileNotFoundError(
            2, "episodes are drawn in tokens: leave them in their run folder, which has this file",
            str(folder / "tokenizer.json"),
        )  # fmt: skip
    return Source(file, folder)


def _chosen(where: Source, count: int, phase: str | None) -> list[dict[str, Any]]:
    """The first episodes that have turns."""
    found: list[dict[str, Any]] = []
    phases: dict[str, None] = {}
    for episode in _lines(where.file):
        phases[str(episode.get("phase"))] = None
        if episode.get("turns") and phase in (None, episode.get("phase")):
            found.append(episode)
        if len(found) == count:
            break
    if not found and phase is not None and phases:
        raise ForestError(f"no episode is of phase {phase!r}: use one of {', '.join(phases)}")
    if not found:
        raise ForestError(f"{where.file} holds no episode with a turn")
    return found


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with open(file, encoding="utf-8", errors="replace") as held:
        for number, line in enumerate(held, start=1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                raise ForestError(f"{file}, line {number} is no json ({error})") from error
            if not isinstance(value, dict):
                raise ForestError(f"{file}, line {number} is no episode but {line[:40]!r}")
            yield value


def _telling(episode: dict[str, Any]) -> types.Chair:
    """The chair with something to see: notes are the agent's, else who thought."""
    if episode.get("csd"):
        return "agent"
    said = zip(episode["turns"], episode.get("private") or [], strict=False)
    thought = {turn.get("author") for turn, private in said if private}
    return "user" if "user" in thought and "agent" not in thought else "agent"


def seen(
    episode: dict[str, Any], chair: types.Chair, renderer: render.Renderer
) -> types.Tree:  # fmt: skip
    """The episode's tree from one chair, with the gates and teachers of its noted turns.

    Raises ForestError for a turn that is none.
    """
    private = list(episode.get("private") or [])
    private += [None] * (len(episode["turns"]) - len(private))
    try:
        dialogue = tuple(
            types.Turn(t["author"], t["public"], p if t["author"] in types.CHAIRS else None,
                       t.get("only"))
            for t, p in zip(episode["turns"], private, strict=True)
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        raise ForestError(f"{_called(episode)} has a turn that is none: {error}") from error
    coached = {c["turn"]: c for c in episode.get("csd") or [] if chair == "agent"}
    thinks = any(t.author == chair and t.private is not None for t in dialogue)
    one = renderer.tree(
        dialogue, chair, thinking="sample" if thinks else "none", history="drop",
        left=episode.get("stop") == "left",
    )  # fmt: skip
    notes = {turn: renderer.note(c["note"]) for turn, c in coached.items()}
    return renderer.teacher(_gated(one, coached), notes).tree


def _gated(one: types.Tree, coached: dict[int, dict[str, Any]]) -> types.Tree:
    """The tree with the recorded gates, on turns whose tokens are as many as their gates."""
    parts = []
    for part in one:
        gates = coached.get(part.turn, {}).get("gate", ())
        scored = np.flatnonzero(part.scored)
        if len(gates) and len(gates) == len(scored):
            gate, mask = part.gate.copy(), part.coached.copy()
            gate[scored], mask[scored] = gates, 1
            part = dataclasses.replace(part, gate=gate, coached=mask)
        parts.append(part)
    return tuple(parts)


def laid(
    trees: Sequence[types.Tree],
    names: Sequence[str],
    shape: pack.Shape,
    renderer: render.Renderer,
) -> list[forest_page.Row]:
    """The rows that `pack` makes of the trees, in words and places."""
    plan = pack.plan(trees, shape, names=names, shared=True)
    first = np.cumsum([0, *(len(one) for one in plan.trees)])
    rows = []
    for row in plan.rows:
        drawn: list[forest_page.Drawn] = []
        cursor = 0
        for i in row:
            start, block = plan.placed[i]
            number = int(np.searchsorted(first, start, side="right")) - 1
            drawn += _block(
                plan.trees[number], plan.names[number], block, cursor, len(drawn), shape, renderer
            )
            cursor += block.length
        if drawn:
            rows.append(forest_page.Row(shape.length, shape.chunk, tuple(drawn)))
    return rows


def _block(one, name, block: order.Block, cursor, count, shape, renderer):
    """The drawn segments of a block that begins at `cursor`, numbered from `count` + 1."""
    place = {int(s[0]): (int(s[1]) + cursor, k) for k, s in enumerate(block.segments)}
    states = _states(block)
    drawn = []
    for k, (i, start, depth, end, _, own) in enumerate(block.segments.tolist()):
        part = one[i]
        sees = tuple((place[a][0], len(one[a])) for a in tree.ancestry(one, i)[:-1])
        drawn.append(forest_page.Drawn(
            number=count + k + 1,
            parent=count + place[part.parent][1] + 1 if part.parent >= 0 else 0,
            kind=part.kind,
            what=_who(part, renderer),
            of=name,
            turn=part.turn,
            start=start + cursor,
            end=end + cursor,
            depth=depth,
            tokens=_tokens(part, bool(own), renderer),
            sees=sees,
            copy=not own,
            state=states[k],
        ))  # fmt: skip
    return drawn


def _states(block: order.Block) -> list[str]:
    """For each segment where its state comes from, and the slot that keeps it at a run's end."""
    came = {order.ZERO: "starts from nothing", -1: "carries on"}
    starts = {int(start): int(load) for start, _, load, *_ in block.runs}
    kept = {int(start): int(store) for start, *_, store, _ in block.runs}
    found: list[str] = []
    slot = -1
    for start in block.segments[:, 1].tolist():
        if start in starts:  # a run begins, so the one before has ended
            found[-1:] = [f"{said}, kept in slot {slot}" if slot >= 0 else said
                          for said in found[-1:]]  # fmt: skip
            slot = kept[start]
            found.append(came.get(starts[start], f"starts from slot {starts[start]}"))
        else:
            found.append("carries on")
    return found


def _who(part: types.Segment, renderer: render.Renderer) -> str:
    if part.kind == "teacher":
        return "note, then the same reply"
    opens = {int(renderer.header(author, "none")[0]): author for author in types.AUTHORS}
    voices = [opens[int(i)] for i in part.ids if int(i) in opens]
    who = ", ".join(dict.fromkeys(voices)) or "going on"
    return f"{who}, private" if part.kind == "branch" else who


def _tokens(part: types.Segment, own: bool, renderer: render.Renderer):
    texts = renderer.tokenizer.pieces(part.ids, specials=True)
    return tuple(
        forest_page.Token(
            text,
            learned=own and bool(part.weight[k] > 0),
            scored=own and bool(part.scored[k]),
            gate=float(part.gate[k]) if own and part.coached[k] > 0 else None,
        )
        for k, text in enumerate(texts)
    )


def _called(episode: dict[str, Any]) -> str:
    names = (("goal", episode.get("goal")), ("copy", episode.get("copy")))
    return " ".join(f"{name} {value}" for name, value in names if value is not None) or "episode"


def _facts(kept, rows: Sequence[forest_page.Row]) -> tuple[tuple[str, str], ...]:
    phases = dict.fromkeys(str(episode.get("phase")) for _, episode in kept)
    alone = sum(len(part) for one, _ in kept for part in one)
    return (
        ("phase", ", ".join(phases).replace("_", " ")),
        ("episodes", str(len(kept))),
        ("tokens", f"{alone:,}"),
        ("computed in rows", f"{sum(row.real for row in rows):,}"),
        ("places used", f"{sum(row.used for row in rows):,}"),
    )
