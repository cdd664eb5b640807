"""What a user gives away: thoughts that reach the agent, and facts told before they are asked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from mimesis_jax import types
from mimesis_jax.evaluation import rate

# Reads the slot values that a user's text states, and the slots that an agent's text asks for.
Slots = Callable[[str], Mapping[str, str]]
Asked = Callable[[str], Collection[str]]
TAGS = ("<think>", "</think>")


def measure(
    dialogues: Sequence[types.Dialogue],
    trees: Sequence[types.Tree] = (),
    *,
    slots: Slots | None = None,
    asked: Asked | None = None,
) -> Iterator[tuple[str, float]]:
    """(name, value) of every leak that can be measured with what is given.

    dialogues: with private text. trees: of the user's chair, see `thought_leak`. slots and asked:
    see `early_disclosure`; it is left out without them.
    """
    yield from thought_overlap(dialogues).named("thought_overlap_rate")
    yield from thought_tags(dialogues).named("thought_tag_rate")
    if trees:
        yield from thought_leak(trees).named("thought_leak_rate")
    if slots is not None and asked is not None:
        early = early_disclosure(dialogues, slots=slots, asked=asked)
        yield from early.named("early_disclosure_rate")


def grams(text: str, n: int) -> set[tuple[str, ...]]:
    """The runs of n words (lower case, split at spaces) of a text."""
    words = text.lower().split()
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def thought_overlap(dialogues: Sequence[types.Dialogue], *, n: int = 6) -> rate.Rate:
    """User's thoughts that share a run of n words with what the agent sees from then on. [ours]

    Counted are the non-empty thoughts. Runs that the agent had seen before do not count: a thought
    may quote. Compare with the reference population's rate: people, too, say what they think.
    """
    shared = thoughts = 0
    for dialogue in dialogues:
        seen = [grams(turn.public, n) if turn.only != "user" else set() for turn in dialogue]
        before: set[tuple[str, ...]] = set()
        for i, turn in enumerate(dialogue):
            if turn.author == "user" and (turn.private or "").strip():
                thoughts += 1
                own = grams(turn.private or "", n) - before
                shared += any(own & later for later in seen[i:])
            before |= seen[i]
    return rate.Rate(shared, thoughts)


def thought_tags(dialogues: Sequence[types.Dialogue]) -> rate.Rate:
    """User's public utterances that hold a thought's tag."""
    said = [turn.public for d in dialogues for turn in d if turn.author == "user"]
    return rate.Rate(sum(any(tag in text for tag in TAGS) for text in said), len(said))


def path(tree: types.Tree, index: int) -> list[int]:
    """Indices of a segment's row: its ancestors from the root, then itself."""
    row = []
    while index >= 0:
        row.append(index)
        index = tree[index].parent
    return row[::-1]


def thought_leak(trees: Sequence[types.Tree]) -> rate.Rate:
    """Agent-visible rows that hold the index of a private token; exactly 0 by construction.

    Tokens of a tree are numbered in its order. A row is what one trunk segment is computed from:
    the numbers of its own tokens and of all its ancestors'. Private are the tokens of segments that
    are a branch or a teacher.

    trees: of the user's chair, where the trunk is what the agent sees and a branch is the thought.
    (In an agent's tree the measure tells whether history keeps the agent's own reasoning.)
    """
    leaked = rows = 0
    for tree in trees:
        ends = np.cumsum([len(part) for part in tree], dtype=np.int64)
        number = [np.arange(end - len(part), end) for end, part in zip(ends, tree, strict=True)]
        private = np.zeros(int(ends[-1]) if len(tree) else 0, bool)
        for part, tokens in zip(tree, number, strict=True):
            private[tokens] = part.kind != "trunk"
        for i, part in enumerate(tree):
            if part.kind == "trunk":
                rows += 1
                leaked += bool(private[np.concatenate([number[j] for j in path(tree, i)])].any())
    return rate.Rate(leaked, rows)


def early_disclosure(
    dialogues: Sequence[types.Dialogue], *, slots: Slots, asked: Asked
) -> rate.Rate:
    """Slots whose first statement by the user comes before the agent asked for them.

    Counted are all slots that the user states, each once a dialogue; the opening counts too, so
    compare with the reference population, which volunteers some facts.

    slots: user's text -> {slot: value} that it states. asked: agent's text -> slots it asks for.
    """
    early = stated = 0
    for dialogue in dialogues:
        known: set[str] = set()
        wanted: set[str] = set()
        for turn in dialogue:
            if turn.author == "agent" and turn.only is None:
                wanted |= set(asked(turn.public))
            elif turn.author == "user":
                new = set(slots(turn.public)) - known
                stated, early = stated + len(new), early + len(new - wanted)
                known |= new
    return rate.Rate(early, stated)
