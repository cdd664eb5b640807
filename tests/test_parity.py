"""Against an independent implementation: transformers' models, run here, in fp32 and in bf16."""

import functools

import parity_facts as facts
import parity_models as models
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install '.[parity]'")
pytest.importorskip("transformers", reason="transformers is not installed")
import parity_torch  # noqa: E402


@functools.cache
def reference(family):
    found = parity_torch.reference(family)
    return facts.Reference(found["logits"], found["narrow"], models.sketch(found["gradient"]))


@pytest.mark.parametrize("family", models.FAMILIES)
def test_logits_and_gradients_padded_and_packed(family):
    facts.layouts(family, reference(family))


@pytest.mark.parametrize("family", models.FAMILIES)
def test_decoding_after_right_padding(family):
    facts.decode(family, reference(family))


@pytest.mark.parametrize("stored", ["bfloat16", "float32"])
@pytest.mark.parametrize("family", models.FAMILIES)
def test_bfloat16_is_as_near_as_theirs(family, stored):
    facts.narrow(family, reference(family), stored)
