"""The report page: a made-up run is rendered, and the page held against its numbers."""

import html.parser
import json
import pathlib
import re

import made_run
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax.report import folder, page

SECTIONS = "result users curves simulator csd dialogues time provenance".split()
URL = re.compile(r"""\b(?:src|href|action|data)\s*=\s*(?!"#)|url\(|@import|https?://""")


class Page(html.parser.HTMLParser):
    """Checks that elements close in order, and gathers ids and text by section."""

    VOID = {"meta", "br", "img", "link", "input", "hr", "col"}

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.open, self.ids, self.tags, self.text = [], [], [], {}
        self.feed(text)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if "id" in dict(attrs):
            self.ids.append(dict(attrs)["id"])
        if tag not in self.VOID:
            self.open.append((tag, dict(attrs).get("id")))

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open and self.open[-1][0] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data):
        section = next((i for t, i in reversed(self.open) if t == "section"), None)
        self.text[section] = self.text.get(section, "") + data


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "demo"
    summary = made_run.make_run(path)
    return path, summary, page.write(path).read_text(encoding="utf-8")


# --- the page ---------------------------------------------------------------------------------


def test_every_section_is_there_and_well_formed(run):
    path, _, text = run
    parsed = Page(text)
    assert [i for i in parsed.ids if i in SECTIONS] == SECTIONS
    assert "absent" not in [a.get("class") for _, a in parsed.tags]
    assert sorted(p.name for p in path.glob("*report*")) == ["report.html"]  # no partial file left


def test_numbers_are_those_of_the_summary(run):
    _, summary, text = run
    parsed = Page(text)
    for section, names in (("result", ["mean"]), ("users", ["by_user", "mean"])):
        for agent in summary["agent"].values():
            for name in names:
                values = agent[name].values() if name == "by_user" else [agent[name]]
                for value in values:
                    assert f"{value:.2f}" in parsed.text[section]
    sim = parsed.text["simulator"]
    for key in ("nll_before", "nll_midtrain", "nll_thoughts", "nll_trigram"):
        assert f"{summary['simulator'][key]:.3f}" in sim
    for rate in summary["simulator"]["behaviour_rates"].values():
        assert f"{rate['before']:.2f} → {rate['after']:.2f}" in sim
    assert "gap −0.05 [−0.10 to 0.01]" in sim and "gap −0.24 [−0.30 to −0.18]" in sim
    for shown in ("0.050", "0.587", "0.213", "2.4e−7", "0.141"):
        assert shown in parsed.text["csd"]
    assert "131 s" not in parsed.text["time"] and "2 min 11 s" in parsed.text["time"]
    assert "coach_ceiling" in parsed.text["provenance"] and "0.83" in parsed.text["provenance"]


def test_nothing_is_fetched(run):
    _, _, text = run
    assert not URL.findall(re.sub(r"<meta http-equiv[^>]*>", "", text))
    tags = {tag for tag, _ in Page(text).tags}
    assert not tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form"}


def test_the_style_is_the_file_unescaped(run):
    # Escaped, "a > b" selectors and quoted font names would silently drop out.
    style = (pathlib.Path(page.__file__).parent / "style.css").read_text(encoding="utf-8")
    assert " > " in style and style.strip() in run[2] and "</" not in style


def test_figures_are_named_and_tables_have_headers(run):
    _, _, text = run
    parsed = Page(text)
    for tag, attrs in parsed.tags:
        if tag == "svg":
            assert attrs.get("aria-hidden") == "true" or attrs.get("aria-label")
        if tag == "th":
            assert attrs.get("scope") in ("col", "row")
    assert text.count("<table") == text.count("<caption")


def test_quick_is_stamped(tmp_path):
    made_run.make_run(tmp_path / "quick", quick=True)
    text = page.write(tmp_path / "quick").read_text(encoding="utf-8")
    assert "proves the path, claims nothing" in text and text.count("not judged") >= 3
    made_run.make_run(tmp_path / "full")
    assert "claims nothing" not in page.write(tmp_path / "full").read_text(encoding="utf-8")


HOSTILE = (
    "</p></script><script>alert(1)</script><img src=x onerror=y>{{ 7*7 }}\u202e\x00\ud800&amp;"
)


def test_hostile_text_stays_text(tmp_path):
    made_run.make_run(tmp_path)
    turns = [
        {"author": "user", "public": HOSTILE, "only": None},
        {"author": HOSTILE, "public": HOSTILE, "only": HOSTILE},
        {"author": "agent", "public": HOSTILE, "only": None},
    ]
    csd = [{"turn": 2, "note": HOSTILE, "tokens": [HOSTILE, "a"], "gate": [0.9, "x"]}]
    row = {
        "phase": HOSTILE,
        "step": 1,
        "goal": {"x": HOSTILE},
        "copy": 0,
        "user": HOSTILE,
        "agent": HOSTILE,
        "turns": turns,
        "private": [HOSTILE, None, HOSTILE],
        "rewards": [1.0],
        "success": 1,
        "stop": HOSTILE,
        "behaviour": HOSTILE,
        "csd": csd,
    }
    (tmp_path / "episodes.jsonl").write_text(json.dumps(row) + "\n")
    summary = json.loads((tmp_path / "summary.json").read_text())
    summary[HOSTILE] = HOSTILE
    summary["agent"][HOSTILE] = {"mean": 0.5, "ci95": 0.1, "by_user": {HOSTILE: 0.5}}
    summary["phases"][HOSTILE] = 3.0
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "config.json").write_text(json.dumps({"seed": HOSTILE, HOSTILE: 1}))
    text = page.write(tmp_path).read_text(encoding="utf-8")
    tags = {tag for tag, _ in Page(text).tags}
    assert not tags & {"script", "img"}
    assert text.count("&lt;script&gt;") > 10
    assert "{{ 7*7 }}" in text and "&amp;amp;" in text  # neither evaluated nor unescaped
    assert not re.search("[\x00\u202e\ud800]", text)


# --- what is missing or broken ----------------------------------------------------------------


def test_a_run_that_has_just_begun_says_what_is_missing(tmp_path):
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    parsed = Page(page.write(tmp_path).read_text(encoding="utf-8"))
    for section, file in (
        ("result", "summary.json"),
        ("users", "summary.json"),
        ("curves", "metrics.jsonl"),
        ("simulator", "summary.json"),
        ("csd", "summary.json"),
        ("dialogues", "episodes.jsonl"),
        ("time", "summary.json"),
        ("provenance", "versions.json"),
    ):
        assert f"{file} is not in the run folder." in parsed.text[section]


def test_no_folder_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="no run folder"):
        page.write(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="no run folder"):
        page.write(tmp_path)  # it is empty: not a run's
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "name",
    [
        "summary.json",
        "metrics.jsonl",
        "episodes.jsonl",
        "versions.json",
        "config.json",
        "events.jsonl",
    ],
)
def test_a_cut_file_is_named_and_the_rest_stays(tmp_path, name):
    made_run.make_run(tmp_path)
    whole = (tmp_path / name).read_text()
    (tmp_path / name).write_text(whole[: int(len(whole) * 0.9)])
    parsed = Page(page.write(tmp_path).read_text(encoding="utf-8"))
    assert name in parsed.text["provenance"] and "Read with gaps" in parsed.text["provenance"]
    assert ("Learning" in parsed.text["curves"]) and parsed.text["dialogues"].count("success") >= 1


def test_a_killed_and_continued_run_counts_a_step_once(tmp_path):
    rows = [
        {"phase": "a", "step": 0, "x": 1.0},
        {"phase": "a", "step": 1, "x": 2.0},
        {"phase": "a", "step": 1, "x": 5.0},
    ]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + '\n{"phase": ')
    held = folder.read(tmp_path)
    assert [line["x"] for line in held.metrics["a"]] == [1.0, 5.0]
    assert held.faults["metrics.jsonl"] == "metrics.jsonl: 1 of 4 lines left out (line 4)."


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
KEYS = "simulator agent csd difficulty_gap phases seconds quick compiles_after_warmup".split()
INNER = (
    "mean ci95 by_user start grpo nll_before behaviour_rates alpha reference gap_simulator".split()
)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(st.sampled_from(KEYS), JSON | st.dictionaries(st.sampled_from(INNER), JSON)),
    st.lists(
        st.fixed_dictionaries(
            {"phase": st.sampled_from(["agent_grpo", "base"]), "step": st.integers(0, 9)},
            optional={"success": JSON, "loss": JSON, "success_std": JSON},
        ),
        max_size=4,
    ),
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                k: JSON
                for k in ("phase", "step", "goal", "turns", "private", "rewards", "success", "csd")
            },
        ),
        max_size=3,
    ),
)
def test_any_json_makes_a_page(tmp_path_factory, summary, metrics, episodes):
    path = tmp_path_factory.mktemp("any")
    (path / "summary.json").write_text(json.dumps(summary))
    (path / "metrics.jsonl").write_text("\n".join(map(json.dumps, metrics)))
    (path / "episodes.jsonl").write_text("\n".join(map(json.dumps, episodes)))
    Page(page.write(path).read_text(encoding="utf-8"))
