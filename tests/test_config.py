"""Tests of config: typed overrides, nearest keys, freezing into dataclasses, hashes."""

import dataclasses
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ml_collections import ConfigDict

from mimesis_jax import config

FILE = '''"""A small experiment."""
from ml_collections import ConfigDict

def get_config():
    return ConfigDict({
        "seed": 7, "name": "small", "quick": False, "rate": 1e-3, "layers": (1, 2), "extra": None,
        "agent": {"clip": 0.2, "steps": 30, "users": ("plain",)},
    })
'''


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "small.py"
    path.write_text(FILE)
    return path


def test_reads_a_file_and_applies_overrides_of_each_type(file):
    given_text = {
        "seed": "8",
        "name": "12",
        "quick": "true",
        "rate": "1",
        "layers": "3,4,5",
        "extra": "[1]",
        "agent.clip": "2e-1",
        "agent.users": "('a','b')",
    }
    got = config.read(file, given_text)
    assert (got.seed, got.name, got.quick, got.layers) == (8, "12", True, (3, 4, 5))
    assert got.rate == 1.0 and type(got.rate) is float
    assert got.extra == [1] and got.agent.clip == 0.2 and got.agent.users == ("a", "b")
    assert got.agent.steps == 30


@pytest.mark.parametrize(
    ("key", "text", "words"),
    [
        ("agent.clp", "1", ["unknown key config.agent.clp", "config.agent.clip"]),
        ("stepz", "1", ["config.agent.steps"]),
        ("seed.deeper", "1", ["unknown key config.seed.deeper"]),
        ("seed", "1.5", ["config.seed=1.5", "a float", "an int"]),
        ("rate", "fast", ["config.rate='fast'", "a float"]),
        ("quick", "1", ["config.quick='1'", "true or false"]),
        ("layers", "1,x", ["config.layers[0]='1,x'", "an int"]),
        ("layers", "(1,'x')", ["config.layers[1]='x'", "an int"]),
        ("agent", "1", ["is a section", "config.agent.clip"]),
    ],
)
def test_wrong_overrides_name_the_key_and_the_mend(file, key, text, words):
    with pytest.raises(config.ConfigError) as error:
        config.read(file, {key: text})
    for word in words:
        assert word in str(error.value)


def test_a_missing_file_names_the_nearest(file, monkeypatch, tmp_path):
    (tmp_path / "configs").mkdir()
    file.rename(tmp_path / "configs" / "small.py")
    monkeypatch.chdir(tmp_path)
    assert config.read("small").seed == 7
    with pytest.raises(config.ConfigError, match="did you mean small"):
        config.read("smal")


def test_a_file_without_get_config_is_refused(tmp_path):
    path = tmp_path / "empty.py"
    path.write_text('"""Nothing."""\n')
    with pytest.raises(config.ConfigError, match="get_config"):
        config.read(path)
    path.write_text('"""A list."""\nget_config = lambda: [1]\n')
    with pytest.raises(config.ConfigError, match="a list"):
        config.read(path)


@dataclasses.dataclass(frozen=True)
class Inner:
    width: int
    kind: Literal["linear", "full"] = "full"


@dataclasses.dataclass(frozen=True)
class Outer:
    rate: float
    inner: Inner
    many: tuple[Inner, ...] = ()
    pair: tuple[int, str] = (1, "a")
    limit: int | None = None
    on: bool = False
    table: dict[str, float] = dataclasses.field(default_factory=dict)


def test_freeze_builds_nested_dataclasses():
    section = ConfigDict(
        {
            "rate": 1,
            "inner": {"width": 4},
            "many": ({"width": 5, "kind": "linear"},),
            "pair": [2, "b"],
            "limit": 3,
            "on": True,
            "table": {"x": 1},
        }
    )
    got = config.freeze(Outer, section, "config.outer")
    assert got == Outer(1.0, Inner(4), (Inner(5, "linear"),), (2, "b"), 3, True, {"x": 1.0})
    assert type(got.rate) is float and type(got.table["x"]) is float


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rat": 1.0}, "unknown key config.outer.rat; did you mean config.outer.rate"),
        (
            {"inner": {"widht": 4}},
            "config.outer.inner.widht; did you mean config.outer.inner.width",
        ),
        ({"inner": {}}, "config.outer.inner.width is missing"),
        ({"inner": 3}, "config.outer.inner=3 must be a section"),
        ({"rate": "fast"}, "config.outer.rate='fast' is a str: it must be float"),
        ({"rate": True}, "config.outer.rate=True is a bool: it must be float"),
        ({"limit": True}, "config.outer.limit=True is a bool"),
        ({"on": 1}, "config.outer.on=1 is an int: it must be bool"),
        ({"pair": (1, 2)}, "config.outer.pair[1]=2 is an int: it must be str"),
        ({"pair": (1,)}, "config.outer.pair=(1,)"),
        ({"inner": {"width": 1, "kind": "ful"}}, "did you mean full"),
        ({"many": ({"width": "x"},)}, "config.outer.many[0].width='x'"),
        ({"table": {"x": "y"}}, "config.outer.table.x='y'"),
    ],
)
def test_freeze_names_what_is_wrong(change, words):
    section = {"rate": 1.0, "inner": {"width": 4}} | change
    with pytest.raises(config.ConfigError) as error:
        config.freeze(Outer, section, "config.outer")
    assert words in str(error.value)


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), inner, max_size=3)
    ),
    max_leaves=8,
)
sections = st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), values, max_size=4)


@given(sections)
def test_json_and_hash_survive_the_round_trip(section):
    again = config.load(config.dump(section))
    assert config.plain(again) == config.plain(section)
    shuffled = dict(reversed(list(section.items())))
    assert config.content_hash(again) == config.content_hash(shuffled)
    assert config.changes(section, again) == []


def test_hash_is_stable_and_sees_each_change():
    # printf '%s' '{"a":1,"b":[1,2]}' | sha256sum
    expected = "8baa73198470c7bb4c3ce142a8fd651affc0310d878bb9bd159e37a573fb4874"
    got = config.content_hash({"b": (1, 2), "a": 1})
    assert got == expected
    assert got != config.content_hash({"b": (1, 3), "a": 1})
    assert config.changes({"a": 1, "s": {"x": 2}}, {"s": {"x": 3}, "n": 0}) == [
        "a: 1 -> (absent)",
        "n: (absent) -> 0",
        "s.x: 2 -> 3",
    ]


def test_what_json_cannot_hold_is_named():
    with pytest.raises(config.ConfigError, match=r"config.agent.f\[1\]"):
        config.dump({"agent": {"f": [1, print]}})
    with pytest.raises(config.ConfigError, match="config.x=nan"):
        config.dump({"x": float("nan")})
    with pytest.raises(config.ConfigError, match="no configuration in json"):
        config.load("{")
