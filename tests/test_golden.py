"""Against stored outputs of transformers' models: the parity facts where torch is absent.

tests/golden/make.py makes the arrays. With torch the same facts are tested on models run here
(test_parity.py), and this file holds the stored arrays to these.
"""

import importlib.util
from pathlib import Path

import jax
import numpy as np
import parity_facts as facts
import parity_models as models
import pytest

from mimesis_jax.models import decoder

# First tokens of both sequences, and decay rates, as make.py drew them.
TOKENS = [[25, 44, 50, 52], [36, 79, 3, 24]]
A_LOG = [-1.4650995, -1.3662623, -1.8773562, -1.3590127]
GOLDEN = Path(__file__).parent / "golden"
TORCH = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
absent = pytest.mark.skipif(TORCH, reason="torch is here: test_parity.py tests it on live models")


def stored(family):
    with np.load(GOLDEN / f"{family}.npz", allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def reference(family):
    arrays = stored(family)
    cut = lambda x: np.split(x, np.cumsum(models.LENGTHS)[:-1])
    leaves = jax.tree_util.tree_leaves_with_path(decoder.abstract(models.FAMILIES[family][1]))
    names = [jax.tree_util.keystr(path) for path, _ in leaves]
    wide = (arrays["narrow"].astype(np.uint32) << 16).view(np.float32)  # bf16 is fp32's upper half
    gradient = dict(zip(names, arrays["gradient"], strict=True))
    return facts.Reference(cut(arrays["logits"]), cut(wide), gradient)


def test_the_stored_arrays_are_small_and_all_there():
    files = sorted(path.stem for path in GOLDEN.glob("*.npz"))
    assert files == sorted(models.FAMILIES)
    assert sum(path.stat().st_size for path in GOLDEN.glob("*.npz")) < 300_000


def test_a_sketch_tells_how_far_gradients_are_apart():
    rng = np.random.default_rng(0)
    want = {"a": rng.normal(size=(40, 30)), "b": rng.normal(size=7)}
    got = {"a": want["a"] + 1e-3 * rng.normal(size=(40, 30)), "b": want["b"]}
    found = facts.errors(got, models.sketch(want))
    true = np.linalg.norm(got["a"] - want["a"]) / np.linalg.norm(want["a"])
    assert 0.5 < found["['a']"] / true < 1.5 and found["['b']"] == 0


def test_weights_and_tokens_are_drawn_as_when_the_arrays_were_made():
    assert [ids[:4].tolist() for ids in models.tokens()] == TOKENS
    leaf = models.params(models.QWEN35)["periods"]["layer0"]["mixer"]["a_log"]
    np.testing.assert_allclose(leaf[0], A_LOG, rtol=1e-5)


@pytest.mark.parametrize("family", models.FAMILIES)
def test_stored_arrays_are_what_the_models_give(family):
    pytest.importorskip("torch", reason="torch is not installed: pip install '.[parity]'")
    pytest.importorskip("transformers", reason="transformers is not installed")
    import parity_torch

    fresh, old = parity_torch.golden(family), stored(family)
    np.testing.assert_allclose(old["logits"], fresh["logits"], atol=2e-5)
    np.testing.assert_allclose(
        old["gradient"], fresh["gradient"], rtol=1e-4, atol=1e-4 * old["gradient"][:, -1].max()
    )
    same = np.mean(old["narrow"] == fresh["narrow"])
    assert same > 0.9  # a rounding to bf16 may fall otherwise in another version


@absent
@pytest.mark.parametrize("family", models.FAMILIES)
def test_logits_and_gradients_padded_and_packed(family):
    facts.layouts(family, reference(family))


@absent
@pytest.mark.parametrize("family", models.FAMILIES)
def test_decoding_after_right_padding(family):
    facts.decode(family, reference(family))


@absent
@pytest.mark.parametrize("stored", ["bfloat16", "float32"])
@pytest.mark.parametrize("family", models.FAMILIES)
def test_bfloat16_is_as_near_as_theirs(family, stored):
    facts.narrow(family, reference(family), stored)
