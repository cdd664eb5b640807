"""How well a model predicts what people said: nats per token of their public utterances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mimesis_jax import types
from mimesis_jax.chat import render
from mimesis_jax.forest import pack, tree
from mimesis_jax.rollouts import scoring, seat


def bare(dialogue: Sequence[types.Turn]) -> types.Dialogue:
    """The dialogue with every thought empty: what a model without thoughts would be asked."""
    return tuple(
        types.Turn(t.author, t.public, "" if t.author == "user" else None, t.only) for t in dialogue
    )


def utterances(
    spec,
    params,
    dialogues: Sequence[types.Dialogue],
    *,
    renderer: render.Renderer,
    shape: pack.Shape,
    thinking: seat.Thinking,
) -> Iterable[tuple[str, float]]:
    """Yields ("nll", nats per token) and ("tokens", how many) over the users' public utterances.

    thinking: "none" reads the model in the plain format, "empty" behind a closed empty thought.
    The measured tokens (utterance and its end) are the same in both.
    """
    trees = [user_tree(bare(d), renderer, thinking) for d in dialogues]
    logp = scoring.score(spec, params, trees, shape)
    weight = tree.column(trees, "weight")
    yield "nll", float(-(logp * weight).sum() / weight.sum())
    yield "tokens", float(weight.sum())


def user_tree(dialogue: types.Dialogue, renderer: render.Renderer, thinking) -> types.Tree:
    """The user chair's tree of a dialogue, its utterances scored."""
    return renderer.tree(dialogue, "user", thinking=thinking)
