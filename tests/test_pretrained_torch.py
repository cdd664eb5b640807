"""Against transformers: what we write it loads with nothing missing, what it writes we load."""

import json

import jax
import made_checkpoint as made
import numpy as np
import pytest
from test_decoder import line

from mimesis_jax import pretrained
from mimesis_jax.models import decoder, heads

torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[parity]'")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

TOKENS = np.random.default_rng(3).integers(0, 90, 40)


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)  # more of them wait for each other on a shared machine


def logits(spec, params):
    with jax.default_matmul_precision("highest"):
        return np.asarray(heads.logits(spec, params, decoder.hidden(spec, params, line(TOKENS, 8))))


def theirs(path):
    """Logits of transformers' model; every name must have been found, and no other one."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=torch.float32, output_loading_info=True, attn_implementation="eager"
    )
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    assert not info["mismatched_keys"]
    with torch.no_grad():
        return model.eval(), model(torch.tensor(TOKENS)[None]).logits.numpy()


@pytest.mark.parametrize("name", made.FAMILIES)
def test_transformers_loads_a_fresh_export_and_gives_equal_logits(tmp_path, name):
    spec, params = made.plain(tmp_path / "ours", name, shard=60_000)
    _, want = theirs(tmp_path / "ours")
    assert np.abs(want).max() > 1  # no comparison of zeros
    np.testing.assert_allclose(logits(spec, params), want, atol=1e-4)


@pytest.mark.parametrize("name", made.FAMILIES)
def test_what_transformers_saves_is_loaded_and_comes_back(tmp_path, name):
    spec, params = made.plain(tmp_path / "ours", name)
    model, want = theirs(tmp_path / "ours")
    model.save_pretrained(tmp_path / "theirs", max_shard_size="60KB")
    back, again = pretrained.load(tmp_path / "theirs")
    assert made.equal(params, again)
    assert back == pretrained.spec_of(tmp_path / "ours")
    pretrained.save(tmp_path / "back", back, again, source=tmp_path / "theirs")
    assert made.read(tmp_path / "back") == made.read(tmp_path / "theirs")
    np.testing.assert_array_equal(theirs(tmp_path / "back")[1], want)


def vision_model(path):
    """A whole Qwen3.5, vision tower and all, saved by transformers in the hub's layout."""
    plain = made.QWEN35
    made.plain(path / "text")
    text = json.loads((path / "text" / "config.json").read_text())
    vision = dict(
        depth=1, hidden_size=32, intermediate_size=48, num_heads=2, out_hidden_size=plain.width,
        num_position_embeddings=16, patch_size=4,
    )  # fmt: skip
    config = transformers.Qwen3_5Config(
        text_config=text, vision_config=vision, tie_word_embeddings=True,
        image_token_id=90, video_token_id=91, vision_start_token_id=92, vision_end_token_id=93,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.Qwen3_5ForConditionalGeneration(config).float()
    model.save_pretrained(path / "whole")
    return path / "whole"


def test_a_vision_model_goes_through_training_and_back(tmp_path):
    whole = vision_model(tmp_path)
    names = made.read(whole)
    assert any(name.startswith("model.visual.") for name in names)
    assert any(name.startswith("model.language_model.layers.") for name in names)
    spec, params = pretrained.load(whole)
    _, want = theirs(whole)
    np.testing.assert_allclose(logits(spec, params), want, atol=1e-4)
    changed = jax.tree.map(lambda leaf: leaf * 1.25, params)  # as if trained
    pretrained.save(tmp_path / "out", spec, changed, source=whole)
    _, got = theirs(tmp_path / "out")
    np.testing.assert_allclose(logits(spec, changed), got, atol=1e-4)
    assert np.abs(got - want).max() > 1e-2
    kept = lambda found: {n: v for n, v in found.items() if n.startswith("model.visual.")}
    assert kept(made.read(tmp_path / "out")) == kept(names)
    model, info = transformers.Qwen3_5ForConditionalGeneration.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"]
