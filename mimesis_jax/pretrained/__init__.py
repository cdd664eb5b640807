"""Real checkpoints in and out: `load`, `save` and `spec_of` of a folder, a GGUF file or our own."""

from mimesis_jax.pretrained.exporting import save
from mimesis_jax.pretrained.importing import load, spec_of
from mimesis_jax.pretrained.tensors import Refused

__all__ = ["Refused", "load", "save", "spec_of"]
