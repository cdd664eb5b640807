"""The drawn forest: what is put where, what is said about it, and what is refused."""

import json

import numpy as np
import pytest
import small_desk

from mimesis_jax import cli
from mimesis_jax.build import forest_view
from mimesis_jax.forest import pack
from mimesis_jax.forest import tree as trees
from mimesis_jax.report import forest_page
from mimesis_jax.runs import episodes as records
from mimesis_jax.types import segment


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run folder: two user episodes, then two of the agent with notes and gates."""
    folder = tmp_path_factory.mktemp("runs") / "small"
    folder.mkdir()
    render = small_desk.renderer()
    render.tokenizer.save(folder / "tokenizer.json")
    (folder / "config.json").write_text(json.dumps({"shape": {"length": 320, "chunk": 8}}))
    lines = []
    for k, episode in enumerate(small_desk.episodes()[:4]):
        csd = []
        if k >= 2:
            tree = render.tree(episode.dialogue, "agent", thinking="none",
                               left=episode.stop == "left")  # fmt: skip
            for part in tree:
                if part.scored.any() and not csd:
                    tokens = render.tokenizer.pieces(part.ids[part.scored])
                    csd.append({"turn": part.turn, "note": "ask <b>size</b>", "tokens": tokens,
                                "gate": [0.75] * len(tokens)})  # fmt: skip
        phase = "agent_csd" if k >= 2 else "user_behaviours"
        lines.append(records.record(episode, phase=phase, step=0, user="u", agent="a", csd=csd))
    (folder / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def loaded(run):
    return [json.loads(line) for line in (run / "episodes.jsonl").read_text().splitlines()]


def test_rows_say_what_the_arrays_say():
    """By hand: a fork after five tokens; then against masks that pack writes."""
    render = small_desk.renderer()
    ids = lambda n: list(range(40, 40 + n))
    tree = (
        segment(ids(5)),
        segment(ids(3), 0, scored=[False, True, True], kind="branch", turn=1),
        segment(ids(4), 0, turn=1),
        segment(ids(2), 2, scored=True, turn=2),
    )
    shape = pack.Shape(rows=1, length=32, chunk=4, learned=8, slots=1)
    (row,) = forest_view.laid([tree], ["goal 3 copy 1"], shape, render)
    assert [(s.number, s.parent, s.start, s.size) for s in row.segments] == [
        (1, 0, 0, 5), (2, 1, 8, 3), (3, 1, 12, 4), (4, 3, 16, 2),
    ]  # fmt: skip
    assert [s.sees for s in row.segments] == [(), ((0, 5),), ((0, 5),), ((0, 5), (12, 4))]
    assert [s.marks for s in row.segments] == [[], [(9, 2)], [], [(16, 2)]]
    assert [s.state for s in row.segments] == [
        "starts from nothing, kept in slot 0", "carries on", "starts from slot 0", "carries on",
    ]  # fmt: skip
    assert (row.used, row.real, row.learned) == (20, 14, 4)
    assert row.pairs == 15 + (6 + 15) + (10 + 20) + (3 + 18)
    assert row.segments[0].of == "goal 3 copy 1" and row.segments[1].kind == "branch"
    three = [tree, tree, (segment(ids(9)), segment(ids(2), 0, scored=True))]
    plan = forest_view.laid(three, "abc", shape, render)
    packed = pack.pack(three, shape, shared=True)
    assert len(plan) == len(packed.forests) == 2
    for drawn, forest in zip(plan, packed.forests, strict=True):
        s = np.arange(32)
        mask = (s <= s[:, None]) & (s[:, None] < forest.last[0]) & forest.valid[0]
        shown = np.zeros((32, 32), bool)
        for one in drawn.segments:
            own = slice(one.start, one.start + one.size)
            shown[own, own] = np.tril(np.ones((one.size, one.size), bool))
            for start, size in one.sees:
                shown[own, start : start + size] = True
        np.testing.assert_array_equal(shown, mask & forest.valid[0][:, None])
        marks = sorted(p for one in drawn.segments for a, n in one.marks for p in range(a, a + n))
        learned = [int(forest.source[0, m]) for m in range(8) if forest.weight[0, m] > 0]
        assert len(marks) == len(learned) == sum(one.learned for one in drawn.segments)


def test_a_page_of_the_user_s_chair(run):
    path = forest_view.draw(run, count=2)
    assert path == run / "forest.html"
    html = path.read_text()
    assert "small, the user" in html and "user, private" in html and "k-branch" in html
    assert "<script" not in html and "http" not in html.replace("http://www.w3.org", "")
    assert list(run.glob(".forest*")) == []
    first = loaded(run)[0]
    thought = next(p for p in first["private"] if p)
    assert thought.split()[0] in html


def test_notes_are_teachers_and_their_text_stays_text(run, tmp_path, capsys):
    out = tmp_path / "agent.html"
    words = ["forest", str(run / "episodes.jsonl"), "--phase", "agent_csd", "--out", str(out)]
    assert cli.main(words) == 0
    assert capsys.readouterr().out.strip() == str(out)
    html = out.read_text()
    assert "note, then the same reply" in html and "gate 0.75" in html and "--g:75%" in html
    assert "<b>size</b>" not in html and "&lt;b&gt;" in html
    tree = forest_view.seen(loaded(run)[2], "agent", small_desk.renderer())
    (teacher,) = [part for part in tree if part.kind == "teacher"]
    assert teacher.scored.any() and not teacher.weight.any()
    assert any((part.gate[part.coached > 0] == 0.75).all() and part.coached.any() for part in tree)


def test_a_tree_that_is_cut_shows_its_copies(run):
    """Rows that hold the longest path and not the whole dialogue: parts begin with copies."""
    render = small_desk.renderer()
    tree = forest_view.seen(loaded(run)[0], "user", render)
    longest = max(len(trees.path(tree, i).ids) for i in range(len(tree)))
    length = -(-longest // 8) * 8
    shape = pack.Shape(rows=1, length=length, chunk=8, learned=length, slots=4)
    assert len(pack.blocks(tree, shape)) > 1
    rows = forest_view.laid([tree], ["one"], shape, render)
    copies = [s for row in rows for s in row.segments if s.copy]
    assert copies and not any(s.learned or any(t.scored for t in s.tokens) for s in copies)
    assert "a copy, learns nothing" in forest_page.render(forest_page.Page("cut", (), tuple(rows)))


def test_what_cannot_be_drawn_is_said(run, tmp_path, capsys):
    assert cli.main(["forest", str(tmp_path)]) == 2
    assert "there are no episodes" in capsys.readouterr().err
    lone = tmp_path / "episodes.jsonl"
    lone.write_text("{}\n")
    assert cli.main(["forest", str(lone)]) == 2
    assert "leave them in their run folder" in capsys.readouterr().err
    with pytest.raises(forest_view.ForestError, match="phase 'eval': use one of user_behaviours"):
        forest_view.draw(run, phase="eval")
    with pytest.raises(forest_view.ForestError, match="0 episodes: draw 1 or more"):
        forest_view.draw(run, count=0)
    small_desk.renderer().tokenizer.save(tmp_path / "tokenizer.json")
    with pytest.raises(forest_view.ForestError, match="holds no episode with a turn"):
        forest_view.draw(lone)
    lone.write_text('{"turns": [{"author": "ghost", "public": "hu"}], "goal": 7}\n')
    with pytest.raises(forest_view.ForestError, match="goal 7 has a turn that is none: .*ghost"):
        forest_view.draw(lone)
    lone.write_text("{not json\n")
    with pytest.raises(forest_view.ForestError, match="line 1 is no json"):
        forest_view.draw(lone)
    lone.write_text('{"turns": [{"author": "user", "public": "hu"}]}\n')
    with pytest.raises(forest_view.ForestError, match="the agent says nothing.*--chair user"):
        forest_view.draw(lone)
    assert not (tmp_path / "forest.html").exists()
