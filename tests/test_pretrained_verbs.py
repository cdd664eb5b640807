"""`mimesis convert` and `mimesis inspect`, as they are typed."""

import json

import jax
import made_checkpoint as made
import numpy as np
import pytest

from mimesis_jax import cli, pretrained
from mimesis_jax.build import checkpoints
from mimesis_jax.models import decoder
from mimesis_jax.pretrained import keeping
from mimesis_jax.runs import checkpoint


@pytest.mark.parametrize("verb", ["convert", "inspect"])
def test_help_says_what_is_read_and_written(verb, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([verb, "--help"])
    said = capsys.readouterr().out
    assert end.value.code == 0
    assert "\nreads " in said and "\nwrites " in said and f"example: mimesis {verb}" in said


def test_convert_there_and_back_is_the_same_checkpoint(tmp_path, capsys):
    made.hub(tmp_path / "hub", split=True)
    ours, back = tmp_path / "ours", tmp_path / "back"
    assert cli.main(["convert", str(tmp_path / "hub"), str(ours)]) == 0
    digest = json.loads((ours / "frozen.json").read_text())["hash"]
    spec = pretrained.spec_of(ours)
    count = f"{decoder.parameter_count(spec):,}"
    assert capsys.readouterr().out == f"{ours}: {count} parameters in bfloat16, hash {digest}\n"
    assert cli.main(["convert", str(ours), str(back)]) == 0
    assert "the hub's layout\n" in capsys.readouterr().out
    assert made.read(back) == made.read(tmp_path / "hub")
    assert (back / "chat_template.jinja").read_text() == "{{ messages }}"


def test_convert_changes_the_dtype_and_not_the_form_when_asked(tmp_path):
    made.hub(tmp_path / "hub")
    told = checkpoints.convert(tmp_path / "hub", tmp_path / "wide", to="hub", dtype="float32")
    assert "float32, the hub's layout" in told
    found = made.read(tmp_path / "wide")
    assert {v[0] for n, v in found.items() if not n.startswith(("model.visual", "mtp"))} == {"F32"}
    assert found["mtp.norm.weight"][0] == "BF16"  # copied through, never converted
    one, two = pretrained.load(tmp_path / "wide"), pretrained.load(tmp_path / "hub")
    same = jax.tree.map(lambda a, b: np.array_equal(a, b.astype(a.dtype)), one[1], two[1])
    assert jax.tree.all(same)


def test_convert_of_what_was_trained_takes_a_source(tmp_path, capsys):
    made.hub(tmp_path / "hub")
    spec, params = pretrained.load(tmp_path / "hub")
    trained = jax.tree.map(lambda leaf: leaf * 2, params)
    keeping.keep(tmp_path / "trained", spec, trained)
    words = ["convert", str(tmp_path / "trained"), str(tmp_path / "out")]
    assert cli.main([*words, "--source", str(tmp_path / "hub")]) == 0
    assert (tmp_path / "out" / "tokenizer.json").exists()
    assert made.equal(pretrained.load(tmp_path / "out")[1], trained)
    words[2] = str(tmp_path / "bare")
    assert cli.main(words) == 0
    assert "without a tokenizer" in capsys.readouterr().out
    assert made.equal(pretrained.load(tmp_path / "bare")[1], trained)
    made.plain(tmp_path / "other", "qwen3")
    words[2] = str(tmp_path / "none")
    assert cli.main([*words, "--source", str(tmp_path / "other")]) == 2
    assert "it is not their source" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_convert_overwrites_nothing_and_says_what_is_wrong(tmp_path, capsys):
    made.plain(tmp_path / "hub")
    assert cli.main(["convert", str(tmp_path / "hub"), str(tmp_path)]) == 2
    assert "exists already: choose a new folder" in capsys.readouterr().err
    checkpoint.save_frozen(tmp_path / "ours", {"w": np.zeros(3)}, {"stage": "base"})
    assert cli.main(["convert", str(tmp_path / "ours"), str(tmp_path / "out")]) == 2
    assert "records no spec" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_inspect_tells_spec_count_bytes_ignored_and_hash(tmp_path, capsys):
    found = made.hub(tmp_path / "hub", split=True)
    assert cli.main(["inspect", str(tmp_path / "hub")]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    spec = pretrained.spec_of(tmp_path / "hub")
    size = sum(array.nbytes for array in found.values())
    wide = sum(array.nbytes for array in found.values() if array.dtype == np.float32)
    assert lines["parameters"] == f"{decoder.parameter_count(spec):,}"
    assert lines["family"] == "qwen3_5_text" and lines["width"] == "48"
    assert lines["bytes"] == f"{size:,} in 2 files (BF16 {size - wide:,}, F32 {wide:,})"
    # 6 x 4 bfloat16 of vision, 3 x 5 and 5 of mtp.
    assert lines["ignored"] == "1 of model.visual, 2 of mtp (88 bytes)"
    digest = keeping.keep(
        tmp_path / "ours", *pretrained.load(tmp_path / "hub"), source=tmp_path / "hub"
    )
    assert cli.main(["inspect", str(tmp_path / "ours")]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["hash"] == digest and lines["kind"] == "frozen checkpoint of ours"
    assert lines["ignored"] == "1 of model.visual, 2 of mtp (88 bytes)"
    assert lines["parameters"] == f"{decoder.parameter_count(spec):,}"


@pytest.mark.slow
def test_smollm2_goes_from_gguf_to_the_hubs_layout(tmp_path, capsys):
    gguf = pytest.importorskip("mimesis_jax.pretrained.gguf")
    try:
        path = gguf.smollm2_path()
    except gguf.Unavailable as error:
        pytest.skip(str(error))
    assert cli.main(["inspect", str(path)]) == 0
    assert "134,515,008" in capsys.readouterr().out
    told = checkpoints.convert(path, tmp_path / "smollm2", to="hub", dtype="bfloat16")
    assert "134,515,008 parameters in bfloat16" in told
    back, params = pretrained.load(tmp_path / "smollm2")
    assert made.equal(params, pretrained.load(path, dtype="bfloat16")[1])
    assert back.rope_theta == 1e5 and back.tied


def test_inspect_of_a_broken_checkpoint_is_one_line(tmp_path, capsys):
    assert cli.main(["inspect", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("mimesis: ") and said.count("\n") == 1 and "is empty" in said
