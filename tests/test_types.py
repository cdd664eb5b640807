"""Views: nobody sees what isn't theirs."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax import types
from mimesis_jax.types import Turn

words = st.text("abc ", max_size=6)


@st.composite
def turns(draw, number):
    author = draw(st.sampled_from(types.AUTHORS))
    only = draw(
        st.sampled_from(
            {"system": (None, "user", "agent"), "tool": (None, "agent")}.get(author, (None, author))
        )
    )
    private = None
    if author in types.CHAIRS:
        private = draw(st.none() | words.map(lambda w: f"private-{author}-{number} {w}"))
    return Turn(author, f"public-{only}-{number} " + draw(words), private, only)


@st.composite
def dialogues(draw):
    return tuple(draw(turns(n)) for n in range(draw(st.integers(0, 8))))


@given(dialogues(), st.sampled_from(types.CHAIRS))
@settings(max_examples=200, deadline=None)
def test_a_view_holds_nothing_of_the_other_chair(dialogue, chair):
    (other,) = set(types.CHAIRS) - {chair}
    seen = types.view(dialogue, chair)
    everything = repr(seen)
    assert f"private-{other}" not in everything and f"public-{other}" not in everything
    # and all that is its own, in order, unchanged
    mine = [t for t in dialogue if t.only in (None, chair)]
    assert [t.public for t in seen] == [t.public for t in mine]
    assert [t for t in seen if t.author == chair] == [t for t in mine if t.author == chair]
    assert types.view(seen, chair) == seen


@given(dialogues())
@settings(max_examples=100, deadline=None)
def test_public_is_what_both_views_share(dialogue):
    shared = types.public(dialogue)
    assert all(t.private is None and t.only is None for t in shared)
    for chair in types.CHAIRS:
        assert types.public(types.view(dialogue, chair)) == shared


@pytest.mark.parametrize(
    "wrong, words_",
    [
        (
            dict(author="coach", public="x"),
            "author 'coach' is not one of system, user, agent, tool",
        ),
        (dict(author="user", public="x", only="both"), "only='both' is not a chair"),
        (dict(author="tool", public="x", private="y"), "a tool turn has no private text"),
        (dict(author="user", public="x", only="agent"), "cannot be for the agent chair only"),
        (dict(author="tool", public="x", only="user"), "cannot be for the user chair only"),
    ],
)
def test_turns_that_cannot_be(wrong, words_):
    with pytest.raises(ValueError, match=words_):
        Turn(**wrong)
    with pytest.raises(ValueError, match="chair 'tool' is not one of"):
        types.view((), "tool")


def test_values_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Turn("user", "x").public = "y"


def test_segment_fills_its_columns():
    part = types.segment([1, 2, 3], scored=[False, True, True], weight=[5.0, 5.0, 0.0], gate=0.5)
    assert part.ids.dtype == np.int32 and len(part) == 3 and part.parent == -1
    assert part.weight.tolist() == [0.0, 5.0, 0.0]  # nothing weighs where nothing is scored
    assert part.gate.tolist() == [0.5] * 3 and part.old_logp.tolist() == [0.0] * 3
    assert types.segment([1, 2], scored=True).weight.tolist() == [1.0, 1.0]
