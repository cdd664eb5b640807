"""Datasets on disk: a record comes back as it went in, folders are whole or absent."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from test_data_records import any_record

from mimesis_jax.data import build, builders, played, records, rows, sources, thoughttrace
from mimesis_jax.types import Turn

SAMPLES = Path(__file__).parents[2] / "shared" / "data"
needs_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="the real samples are not here")
GOOD = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yo"}]}


def lines(path, *values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def test_records_come_back_exactly_and_in_order(tmp_path):
    kept = []

    @settings(max_examples=60, suppress_health_check=list(HealthCheck), database=None)
    @given(any_record)
    def collect(record):
        kept.append(record)

    collect()
    tricky = (Turn("user", "é\x00\n 😀", ""), Turn("agent", "", None), Turn("user", " ", None))
    kept.append(records.Record("tricky", "desk", tricky, persona="", labels={"a": [None, "b"]}))
    played.write(tmp_path / "in.jsonl", kept)
    build.build("desk", tmp_path / "in.jsonl", tmp_path / "out", say=lambda _: None)
    stored = builders.Stored(tmp_path / "out")
    assert [stored[i] for i in range(len(stored))] == kept
    assert stored[-1] == kept[-1]
    with pytest.raises(IndexError):
        stored[len(kept)]


@needs_samples
def test_the_real_samples_round_trip(tmp_path):
    path = SAMPLES / "thoughttrace" / "sample.jsonl"
    told = []
    built = build.build("thoughttrace", path, tmp_path / "t", say=told.append)
    assert built.counts == {"train": 20} and built.bad == 0
    stored = builders.Stored(built.path)
    assert [stored[i] for i in range(20)] == list(thoughttrace.read(path))
    assert "train 20 records" in told[0]
    shown = build.describe(tmp_path / "t")
    assert (shown.name, shown.version, shown.counts) == ("thoughttrace", "1.0.0", {"train": 20})
    assert shown.licence == "CC-BY-4.0" and "2605.20087" in shown.citation
    assert "user thinks: I asked this because" in str(shown)


def test_splits_are_given_or_are_the_files_own(tmp_path):
    a, b = (
        lines(tmp_path / f"{n}.jsonl", *[GOOD | {"id": n}] * k) for n, k in (("a", 2), ("b", 3))
    )
    built = build.build("plain", {"train": [a, b], "test": b}, tmp_path / "p", say=lambda _: None)
    assert built.counts == {"train": 5, "test": 3}
    assert [builders.Stored(built.path, "test")[i].id for i in range(3)] == ["b"] * 3
    with pytest.raises(ValueError, match="no split 'dev': use one of test, train"):
        builders.Stored(built.path, "dev")
    whole = {s: [{"convo_id": n, "original": [["customer", s]]}] * n for n, s in
             enumerate(("train", "dev", "test"), 1)}  # fmt: skip
    built = build.build("abcd", lines(tmp_path / "a.json", whole), tmp_path / "b", say=str)
    assert built.counts == {"train": 1, "dev": 2, "test": 3}
    assert builders.Stored(built.path, "dev")[1].dialogue == (Turn("user", "dev"),)


def test_a_split_without_a_record_is_refused(tmp_path):
    full, none = lines(tmp_path / "a.jsonl", GOOD), lines(tmp_path / "b.jsonl")
    with pytest.raises(ValueError, match="split 'test' holds no record"):
        build.build("plain", {"train": full, "test": none}, tmp_path / "p", say=str)
    assert not (tmp_path / "p").exists()


def test_what_is_left_out_is_told(tmp_path):
    told = []
    path = lines(tmp_path / "a.jsonl", GOOD, {"messages": 3}, GOOD)
    built = build.build("plain", path, tmp_path / "p", max_bad_share=0.5, say=told.append)
    assert (built.counts, built.bad) == ({"train": 2}, 1)
    assert "1 malformed rows were left out" in told[0]
    assert f"{path}:2: messages: is a number, not a list" in told[0]


def test_a_failed_build_leaves_nothing_behind(tmp_path):
    bad = lines(tmp_path / "bad.jsonl", GOOD, {}, {})
    for source, error in ((bad, rows.TooManyMalformed), (tmp_path / "no", FileNotFoundError)):
        with pytest.raises(error):
            build.build("plain", source, tmp_path / "deep" / "out", say=str)
    with pytest.raises(ValueError, match="holds no record"):
        build.build("plain", lines(tmp_path / "none.jsonl"), tmp_path / "deep" / "out", say=str)
    assert list((tmp_path / "deep").iterdir()) == []
    with pytest.raises(ValueError, match="kind 'chat' is not a source: use one of thoughttrace"):
        build.build("chat", bad, tmp_path / "out", say=str)


def test_a_folder_that_holds_something_is_never_touched(tmp_path):
    path = lines(tmp_path / "a.jsonl", GOOD)
    (tmp_path / "out").mkdir()
    build.build("plain", path, tmp_path / "out", say=str)  # an empty folder is fine
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(FileExistsError, match="not empty: name a new folder"):
        build.build("plain", path, tmp_path / "out", say=str)
    with pytest.raises(FileExistsError):
        build.build("plain", path, path, say=str)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_is_found_or_asked_for(tmp_path):
    with pytest.raises(FileNotFoundError, match="build one there first"):
        builders.folder(tmp_path)
    path = lines(tmp_path / "a.jsonl", GOOD)
    for kind in ("plain", "desk"):
        source = path if kind == "plain" else tmp_path / "d.jsonl"
        played.write(tmp_path / "d.jsonl", [records.Record("r", "desk", (Turn("user", "a"),))])
        build.build(kind, source, tmp_path / "all" / kind, say=str)
        (tmp_path / "all" / kind / kind).rename(tmp_path / "all" / f"{kind}-set")
        (tmp_path / "all" / kind).rmdir()
    with pytest.raises(ValueError, match="several datasets"):
        builders.folder(tmp_path / "all")


def test_a_builder_is_an_ordinary_tfds_one(tmp_path):
    """As any tfds user would: files in the manual folder, `tfds.data_source` by name."""
    import tensorflow_datasets as tfds

    (tmp_path / "manual").mkdir()
    lines(tmp_path / "manual" / "chat.jsonl", GOOD, GOOD)
    builder = builders.Plain(data_dir=tmp_path / "sets")
    manual = tfds.download.DownloadConfig(manual_dir=tmp_path / "manual")
    builder.download_and_prepare(download_config=manual)
    source = tfds.data_source("plain", split="train", data_dir=tmp_path / "sets")
    assert [builders.decode(source[i]).id for i in (0, 1)] == ["chat.jsonl:1", "chat.jsonl:2"]


def test_every_kind_has_its_builder_with_licence_and_description():
    assert builders.BUILDERS.keys() == sources.KINDS.keys()
    for name, builder in builders.BUILDERS.items():
        assert builder.name == name
        assert sources.KINDS[name].description and sources.KINDS[name].licence


IMPORT_LIGHT = """
import sys
from mimesis_jax.data import build, builders, pipeline
from mimesis_jax.forest import pack
from mimesis_jax.types import segment
import jax.numpy as jnp
build.build("plain", sys.argv[1], sys.argv[2])
stored = builders.Stored(sys.argv[2])
tree = lambda record: (segment([1, 2, 3], scored=[False, True, True]),)
shape = pack.Shape(rows=2, length=16, chunk=4, learned=8, slots=1)
forest = next(pipeline.Batches([pipeline.Source("a", stored, tree)], shape, seed=0))
assert jnp.sum(forest.weight) == 16, forest.weight
assert "tensorflow" not in sys.modules
"""


def test_neither_building_nor_a_batch_imports_tensorflow(tmp_path):
    """With a tensorflow in the path that ends the process when it is imported."""
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemExit('tensorflow!')")
    lines(tmp_path / "a.jsonl", GOOD)
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_LIGHT, tmp_path / "a.jsonl", tmp_path / "out"],
        env={"PYTHONPATH": str(tmp_path), "PATH": "", "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
