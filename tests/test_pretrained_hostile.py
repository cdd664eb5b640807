"""Checkpoints that lie: each is refused in words, nothing is executed, nothing is left behind."""

import json
import os
import pickle
import struct

import jax.numpy as jnp
import made_checkpoint as made
import numpy as np
import pytest

from mimesis_jax import pretrained
from mimesis_jax.build import checkpoints
from mimesis_jax.pretrained import folder, tensors

FILE, INDEX, CONFIG = folder.SINGLE, folder.INDEX, "config.json"


@pytest.fixture
def path(tmp_path):
    made.plain(tmp_path / "model", "qwen3")
    return tmp_path / "model"


def refused(path, words):
    """The checkpoint is refused in these words by load and convert, and no output is left."""
    before = sorted(path.parent.iterdir())
    with pytest.raises(pretrained.Refused, match=words):
        pretrained.load(path)
    with pytest.raises(pretrained.Refused, match=words):
        checkpoints.convert(path, path.parent / "converted")
    assert sorted(path.parent.iterdir()) == before


def raw(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(shape=(2,), span=(0, 8), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(span)}


@pytest.mark.parametrize("left", [0, 7, 8, 100, -1])
def test_a_cut_file_is_named(path, left):
    whole = (path / FILE).read_bytes()
    (path / FILE).write_bytes(whole[:left])
    refused(path, f"{FILE}.*it is cut")


def test_a_file_that_is_cut_while_it_is_read_is_named(path):
    entry = tensors.header(path / FILE)["model.norm.weight"]
    os.truncate(path / FILE, entry.offset + 4)
    with pytest.raises(pretrained.Refused, match="was cut while model.norm.weight was read"):
        entry.rows(0, 48)


@pytest.mark.parametrize(
    "content, words",
    [
        (struct.pack("<Q", 2**63) + b"{}", "announces a header of 9223372036854775808 bytes"),
        (struct.pack("<Q", 10**8 + 1) + b" " * 64, "announces a header of 100000001 bytes"),
        (struct.pack("<Q", 0), "header of 0 bytes"),
        (b"PK\x03\x04 a zip archive, as torch writes it", "no safetensors file"),
        (raw(b"not json at all"), "header of .* cannot be read"),
        (raw(b"[" * 200_000), "header of .* cannot be read"),
        (raw(b'{"a": 1, "a": 2}'), "'a' is there twice"),
        (raw([1, 2]), "is no json object"),
        (raw({"a": 3}), "has dtype 'None'"),
        (raw({"a": tensor(dtype="F4")}, b"0" * 8), "has dtype 'F4'"),
        (raw({"a": tensor(shape=[-2])}, b"0" * 8), "has no shape"),
        (raw({"a": tensor(shape=[2.0])}, b"0" * 8), "has no shape"),
        (raw({"a": tensor(span=[8, 0])}, b"0" * 8), "contradicts itself"),
        (raw({"a": tensor(span=[0, 8, 9])}, b"0" * 8), r"lies at \[0, 8, 9\]"),
        (raw({"a": tensor(shape=[10**6] * 8)}, b"0" * 8), "contradicts itself"),
        (raw({"a": tensor(span=[4, 12])}, b"0" * 12), "starts at byte"),
        (raw({"a": tensor(), "b": tensor()}, b"0" * 8), "the header is corrupt"),
        (raw({"a": tensor()}, b"0" * 9), "its header describes"),
    ],
    ids=range(18),
)
def test_a_header_that_lies_is_refused(path, content, words):
    (path / FILE).write_bytes(content)
    refused(path, words)


def rewritten(path, change):
    """The folder's tensors after `change(dict of arrays)`, written back."""
    entries = tensors.header(path / FILE)
    whole = {n: e.rows(0, e.shape[0]) for n, e in entries.items()}
    change(whole)
    tensors.write(path / FILE, [made.content(n, a) for n, a in whole.items()])


def test_a_wrong_shape_names_tensor_found_and_wanted(path):
    name = "model.layers.1.mlp.up_proj.weight"
    rewritten(path, lambda whole: whole.update({name: whole[name].T.copy()}))
    refused(path, rf"{name} .* has shape \[48, 64\], config.json wants \[64, 48\]")


def test_missing_and_unknown_tensors_are_listed_together(path):
    def change(whole):
        del whole["model.layers.0.mlp.up_proj.weight"], whole["model.norm.weight"]
        whole["model.layers.0.mlp.bias"] = np.zeros(3, np.float32)
        whole["adapter.a"] = np.zeros(3, np.float32)

    rewritten(path, change)
    refused(
        path,
        "2 tensors are missing: model.layers.0.mlp.up_proj.weight, model.norm.weight; "
        "2 are unknown: adapter.a, model.layers.0.mlp.bias",
    )


def test_quantised_weights_are_refused(path):
    header = tensors.header(path / FILE)
    contents = [
        tensors.Content(n, e.dtype, e.shape, e.blocks()) for n, e in header.items()
    ]  # fmt: skip
    name = "model.layers.0.mlp.up_proj.weight"
    contents = [
        c if c.name != name else tensors.Content(name, "I8", c.shape, [np.zeros(c.shape, np.int8)])
        for c in contents
    ]
    whole = path / "other"
    tensors.write(whole, contents)
    whole.rename(path / FILE)
    refused(path, f"{name} .* is I8")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_name_their_tensor(path, value):
    name = "model.layers.2.self_attn.k_proj.weight"

    def change(whole):
        whole[name][3, 5] = value

    rewritten(path, change)
    refused(path, f"{name} .* holds NaN or infinity")
    spec, params = pretrained.load(path, allow_nan=True)
    bad = ~jnp.isfinite(params["periods"]["layer0"]["mixer"]["k"])
    assert int(bad.sum()) == 1 and bool(bad[2, 5, 0, 3])


@pytest.fixture
def split(tmp_path):
    made.hub(tmp_path / "model", split=True)
    return tmp_path / "model"


@pytest.mark.parametrize(
    "file, words",
    [
        ("../secret.safetensors", "no plain file name"),
        ("/etc/secret.safetensors", "no plain file name"),
        ("..\\secret.safetensors", "no plain file name"),
        ("a/b.safetensors", "no plain file name"),
        ("\0.safetensors", "no plain file name"),
        ("absent.safetensors", "is missing"),
        ("model-1-of-2.bin", "only .safetensors files are read"),
        ("config.json", "only .safetensors files are read"),
        (["x"], "only .safetensors files are read"),
        ("model-1-of-2.safetensors", "which lacks it"),
    ],
)
def test_an_index_is_held_to_its_folder(split, file, words):
    (split.parent / "secret.safetensors").write_bytes(raw({"a": tensor()}, b"0" * 8))
    index = json.loads((split / INDEX).read_text())
    name = next(n for n, f in index["weight_map"].items() if f == "model-2-of-2.safetensors")
    index["weight_map"][name] = file
    made.write(split / INDEX, index)
    refused(split, words)


@pytest.mark.parametrize("index", [[], {}, {"weight_map": 3}, {"weight_map": {}}])
def test_an_index_without_a_map_is_refused(split, index):
    made.write(split / INDEX, index)
    refused(split, "has no weight_map")


def test_a_tensor_in_two_files_is_refused(split):
    first = split / "model-1-of-2.safetensors"
    entries = tensors.header(split / "model-2-of-2.safetensors")
    name = sorted(entries)[0]
    contents = [
        tensors.Content(e.name, e.dtype, e.shape, [*e.blocks()])
        for e in [*tensors.header(first).values(), entries[name]]
    ]
    tensors.write(first, contents)
    refused(split, f"{name} lies in two files")


class Bomb:
    """Executed when unpickled."""

    def __reduce__(self):
        return os.mkdir, (os.environ["MIMESIS_TEST_BOMB"],)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "consolidated.00.pth", "a.ckpt"])
def test_a_pickle_is_refused_and_never_opened(path, tmp_path, monkeypatch, name):
    monkeypatch.setenv("MIMESIS_TEST_BOMB", str(tmp_path / "bomb"))
    (path / FILE).unlink()
    (path / name).write_bytes(pickle.dumps(Bomb()))
    refused(path, f"{name} is a pickle, which runs code")
    refused(path / name, f"{name} is a pickle, which runs code")
    (path / name).rename(path / FILE)  # disguised
    refused(path, "no safetensors file")
    assert not (tmp_path / "bomb").exists()


@pytest.mark.parametrize("name", [FILE, CONFIG, "tokenizer.json"])
def test_a_link_out_of_the_folder_is_not_followed(path, tmp_path, name):
    outside = tmp_path / "outside"
    if (path / name).exists():
        (path / name).rename(outside)
    else:
        made.write(outside, {"model": {"vocab": {"a": 0}}})
    (path / name).symlink_to(outside)
    refused(path, "is a link to .* out of its folder")
    (path / name).unlink()
    (path / name).symlink_to(path / name)
    refused(path, f"{name} is missing")


def test_links_of_the_hubs_cache_are_followed_into_their_own_blobs_only(path, tmp_path):
    repo = tmp_path / "models--org--name"
    snapshot = repo / "snapshots" / "0123abcd"
    snapshot.mkdir(parents=True)
    (repo / "blobs").mkdir()
    (path / "merges.txt").write_text("a b")
    for number, file in enumerate(sorted(path.iterdir())):
        file.rename(repo / "blobs" / str(number))
        (snapshot / file.name).symlink_to(f"../../blobs/{number}")
    spec, params = pretrained.load(snapshot)
    assert made.equal(params, made.params(spec))
    checkpoints.convert(snapshot, tmp_path / "copy", to="hub")
    assert {p.name for p in (tmp_path / "copy").iterdir()} == {CONFIG, FILE, "merges.txt"}
    assert (tmp_path / "copy" / "merges.txt").read_text() == "a b"  # by its name, not its blob's
    # A second repository's blobs are not this one's.
    other = tmp_path / "models--org--other" / "blobs"
    other.mkdir(parents=True)
    (snapshot / FILE).resolve().rename(other / "1")
    (snapshot / FILE).unlink()
    (snapshot / FILE).symlink_to(other / "1")
    refused(snapshot, "out of its folder")


def test_folders_that_are_none(path, tmp_path):
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "is empty")
    refused(tmp_path / "absent", "is not there")
    refused(path / FILE, "is a file: give the folder")
    (path / FILE).unlink()
    refused(path, f"has neither {FILE} nor {INDEX}")
    (path / CONFIG).unlink()
    (path / "notes.txt").write_text("x")
    refused(path, "has no config.json")
    (path / CONFIG).mkdir()
    refused(path, "is no file")


@pytest.mark.parametrize(
    "text, words",
    [
        (b"\xff\xfe\x00", "is no json"),
        (b"{'model_type': 'llama'}", "is no json"),
        (b"", "is no json"),
        (b"[" * 200_000, "is no json"),
        (b"[1]", "is no json object"),
        (b'{"model_type": ["llama"]}', "not supported"),
        (b'{"model_type": "qwen3_5", "text_config": 3}', "text_config is '3'"),
    ],
)
def test_a_config_that_is_none_is_refused(path, text, words):
    (path / CONFIG).write_bytes(text)
    refused(path, words)


@pytest.mark.parametrize("value", [[], {"model": 3}, {"model": {"vocab": {"a": "x"}}}])
def test_a_tokenizer_that_is_none_is_refused(path, value):
    made.write(path / "tokenizer.json", value)
    refused(path, "tokenizer.json is no tokenizer")


def test_code_is_neither_run_nor_carried(tmp_path):
    made.hub(tmp_path / "model")
    checkpoints.convert(tmp_path / "model", tmp_path / "ours")
    checkpoints.convert(tmp_path / "ours", tmp_path / "back")
    assert not (tmp_path / "back" / "modeling.py").exists()
    assert not list((tmp_path / "ours").rglob("*.py"))
