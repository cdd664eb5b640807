"""A folder made from a GGUF file: all that transformers, servers and `chat` want is in it."""

import json
import os
import subprocess
import sys
import textwrap

import jax
import made_checkpoint as checks
import numpy as np
import pytest
import test_gguf as hand
import tokenizers

from mimesis_jax import cli, pretrained
from mimesis_jax.build import checkpoints
from mimesis_jax.chat import families
from mimesis_jax.models import decoder
from mimesis_jax.pretrained import gguf, gguf_container, gguf_folder, speaker

pytest.importorskip("gguf", reason="gguf is not installed: pip install '.[smollm2]'")

SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
ALPHABET = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
TOKENS = [*SPECIALS, *ALPHABET, "he", "ll", "hell", "<mark>"]
TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FIELDS = hand.FIELDS | {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    # Special tokens, ordinary ones, and one that a person added.
    "tokenizer.ggml.token_type": [3] * len(SPECIALS) + [1] * (len(TOKENS) - 4) + [4],
    "tokenizer.ggml.merges": ["h e", "l l", "he ll"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.ggml.padding_token_id": 2,
    "tokenizer.ggml.unknown_token_id": 0,
    "tokenizer.chat_template": TEMPLATE,
}


def made(tmp_path, **changes):
    """A GGUF file of a small Llama; changes are of its fields, with __ for a dot."""
    rows = np.random.default_rng(0).normal(size=(len(TOKENS), hand.WIDTH)).astype(np.float32)
    arrays = hand.tensors() | {"token_embd.weight": rows}
    fields = FIELDS | {key.replace("__", "."): value for key, value in changes.items()}
    return hand.written(tmp_path, hand.made(fields, arrays))


def test_the_files_by_hand(tmp_path):
    files = gguf_folder.files(gguf.opened(made(tmp_path)))
    assert list(files) == [
        "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    value = {name: json.loads(content) for name, content in files.items()}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 2}
    assert value["generation_config.json"] == ids
    assert ids.items() <= value["config.json"].items()
    assert value["config.json"]["max_position_embeddings"] == 64
    assert value["config.json"]["model_type"] == "llama"
    told = value["tokenizer_config.json"]
    assert told["chat_template"] == TEMPLATE and told["model_max_length"] == 64
    names = {name: told[f"{name}_token"] for name in ("bos", "eos", "pad", "unk")}
    assert names == dict(
        bos="<|im_start|>", eos="<|im_end|>", pad="<|im_end|>", unk="<|endoftext|>"
    )
    added = {a["content"]: (a["id"], a["special"]) for a in value["tokenizer.json"]["added_tokens"]}
    assert added == {name: (i, True) for i, name in enumerate(SPECIALS)} | {
        "<mark>": (len(TOKENS) - 1, False)
    }
    whole = tokenizers.Tokenizer.from_str(files["tokenizer.json"].decode())
    # The digits apart, "hell" by its merges, a special token where its name stands.
    assert whole.encode("hell12<|im_end|>").tokens == ["hell", "1", "2", "<|im_end|>"]


@pytest.mark.parametrize("way", ["at once", "by way of ours"])
def test_a_file_becomes_a_folder_that_talks(tmp_path, way, capsys):
    path, out = made(tmp_path), tmp_path / "out"
    if way == "at once":
        assert cli.main(["convert", str(path), str(out), "--to", "hub"]) == 0
    else:
        assert cli.main(["convert", str(path), str(tmp_path / "ours")]) == 0
        assert cli.main(["convert", str(tmp_path / "ours"), str(out)]) == 0
        assert speaker.load(tmp_path / "ours").template == TEMPLATE
    assert "without a tokenizer" not in capsys.readouterr().out
    files = gguf_folder.files(gguf.opened(path))
    assert {p.name for p in out.iterdir()} == {*files, "model.safetensors"}
    for name, content in files.items():
        assert (out / name).read_bytes() == content or name == "config.json"
    config = json.loads(files["config.json"])
    assert json.loads((out / "config.json").read_text()) == config | {"dtype": "float32"}
    assert checks.equal(pretrained.load(out)[1], gguf.load(path)[1])
    one, two = speaker.load(path), speaker.load(out)
    assert one.renderer.tokenizer.hash == two.renderer.tokenizer.hash
    assert (one.template, one.length) == (two.template, two.length) == (TEMPLATE, 64)
    assert one.renderer.family is two.renderer.family is families.SMOLLM2


def test_trained_parameters_take_the_files_of_their_source_along(tmp_path, capsys):
    path = made(tmp_path)
    spec, params = gguf.load(path)
    trained = jax.tree.map(lambda leaf: leaf * 2, params)
    pretrained.save(tmp_path / "out", spec, trained, source=path, dtype="bfloat16")
    assert speaker.load(tmp_path / "out").length == 64
    assert pretrained.spec_of(tmp_path / "out").param_dtype == "bfloat16"
    checks.plain(tmp_path / "other", "llama")
    with pytest.raises(pretrained.Refused, match="it is not their source"):
        checkpoints.convert(tmp_path / "other", tmp_path / "none", to="hub", origin=path)
    assert not (tmp_path / "none").exists()


def test_transformers_reads_the_tokenizer_and_the_template(tmp_path):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    path = made(tmp_path)
    checkpoints.convert(path, tmp_path / "out", to="hub")
    theirs, ours = (
        transformers.AutoTokenizer.from_pretrained(tmp_path / "out"),
        gguf.tokenizer(path),
    )
    for text in ("hell he 12\n", "Grüße, 漢字 🙂", "  a\n\n b", ""):
        assert theirs.encode(text) == ours.encode(text).tolist()
        assert theirs.decode(theirs.encode(text)) == text
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (1, 2, 2)
    assert theirs.model_max_length == 64
    messages = [{"role": "user", "content": "hell"}]
    ids = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert theirs.decode(ids) == "<|im_start|>user\nhell<|im_end|>\n<|im_start|>assistant\n"
    assert theirs.encode("<|im_end|>") == [2] and ours.encode("<|im_end|>").min() > 2


def test_transformers_loads_the_weights_with_nothing_missing(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[parity]'")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    checkpoints.convert(made(tmp_path), tmp_path / "out", to="hub")
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", dtype=torch.float32, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    assert model.generation_config.eos_token_id == 2


def test_an_unknown_tokenizer_is_told_and_the_weights_go_on(tmp_path, capsys):
    path = made(tmp_path, tokenizer__ggml__model="llama")
    assert cli.main(["inspect", str(path)]) == 0
    assert "config.json, generation_config.json\n" in capsys.readouterr().out
    for to in ("hub", "ours"):
        assert cli.main(["convert", str(path), str(tmp_path / to), "--to", to]) == 0
        assert "without a tokenizer: none came along" in capsys.readouterr().out
    assert checks.equal(pretrained.load(tmp_path / "hub")[1], gguf.load(path)[1])
    with pytest.raises(ValueError, match="tokenizer 'llama' with split 'smollm' is unknown"):
        speaker.load(path)


def test_inspect_counts_names_and_refuses(tmp_path, capsys):
    assert cli.main(["inspect", str(made(tmp_path))]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    spec = gguf.spec_of(gguf.opened(made(tmp_path)))
    size = 4 * decoder.parameter_count(spec)  # every tensor is F32
    assert lines["parameters"] == f"{size // 4:,}" and lines["ignored"] == "nothing"
    assert lines["width"] == "8" and not any(name.startswith("linear_") for name in lines)
    assert lines["bytes"] == f"{size:,} in 1 file (F32 {size:,})"
    assert cli.main(["inspect", str(made(tmp_path, llama__feed_forward_length=7))]) == 2
    assert "has shape (6, 8), its spec wants (7, 8)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tokenizer__ggml__eos_token_id": 263}, "eos_token_id is 263, the file has 263 tokens"),
        ({"tokenizer__ggml__bos_token_id": "x"}, "bos_token_id is x, the file has 263 tokens"),
        ({"tokenizer__ggml__merges": ["h e x"]}, "a merge joins 3 tokens, wanted 2"),
        ({"tokenizer__ggml__token_type": [1, 2]}, "token_type is no list of 263 types"),
        ({"llama__context_length": 0}, "llama.context_length is 0, no number of tokens"),
        ({"llama__context_length": "long"}, "llama.context_length is long, no number"),
    ],
)
def test_fields_that_lie_are_named_and_leave_nothing(tmp_path, changes, told):
    path = made(tmp_path, **changes)
    with pytest.raises(gguf_container.Broken, match=told):
        checkpoints.convert(path, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


SHARDED = """
    import sys, jax, numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from mimesis_jax import pretrained

    mesh = Mesh(np.array(jax.devices()), ("all",))
    choose = lambda name, leaf: NamedSharding(mesh, P(*(
        "all" if size == {width} and i == leaf.ndim - 1 else None
        for i, size in enumerate(leaf.shape)
    )))
    _, there = pretrained.load(sys.argv[1], shardings=choose)
    _, here = pretrained.load(sys.argv[1])
    assert there["embed"].addressable_shards[0].data.shape == ({rows}, {width} // 4)
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), there, here))
    print("sharded")
"""


def test_a_file_is_laid_over_devices_as_asked(tmp_path):
    code = textwrap.dedent(SHARDED.format(width=hand.WIDTH, rows=len(TOKENS)))
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code, str(made(tmp_path))],
        env=os.environ | flags, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.stdout.strip() == "sharded", done.stderr[-2000:]


@pytest.mark.slow
def test_smollm2_as_a_folder_is_what_transformers_makes_of_the_file(tmp_path):
    """The real file: tokenizer, template, and `chat`'s words, by way of the folder."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("torch", reason="transformers reads GGUF with torch: '.[parity]'")
    try:
        path = gguf.smollm2_path()
    except gguf.Unavailable as missing:
        pytest.skip(str(missing))
    told = checkpoints.convert("smollm2", tmp_path / "out", to="hub", dtype="bfloat16")
    assert told.endswith("134,515,008 parameters in bfloat16, the hub's layout")
    read = transformers.AutoTokenizer.from_pretrained
    ours, theirs = read(tmp_path / "out"), read(path.parent, gguf_file=path.name)
    # transformers' reading of the file splits off no digits, as the model's own rule ("smollm")
    # does, which shows where white space stands before one; so none does here.
    said = [{"role": "user", "content": "What is the capital of France?\n  In x2026, é漢🙂"}]
    for text in (said[0]["content"], "def f(x):\n\treturn x", "<|im_start|>system\n"):
        assert ours.encode(text) == theirs.encode(text)
    one, two = (t.apply_chat_template(said, add_generation_prompt=True) for t in (ours, theirs))
    assert list(one["input_ids"]) == list(two["input_ids"])
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert model.generation_config.eos_token_id == 2 and model.config.pad_token_id == 2
    opened = speaker.load(tmp_path / "out")
    assert opened.length == 8192 and opened.renderer.family is families.SMOLLM2
