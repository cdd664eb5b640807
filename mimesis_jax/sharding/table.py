"""Which mesh axis each logical axis of a parameter is split over: one table a preset and a use.

A train table splits every matrix over fsdp by its width, so that parameters, gradients and
optimizer state take a share each; a decode table never does, since a token's forward would gather
the weights anew. Heads, the inner width of the mlp and the vocabulary go over tensor in both.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Mapping

Rules = Mapping[str, str | None]  # logical axis -> mesh axis (None: every device has all of it)

SPLIT = ("vocab", "mlp", "heads", "kv_heads", "linear_keys", "linear_values")  # over tensor
WHOLE = ("periods", "norm")  # scanned over; vectors too small to split


def _rules(width: str | None, rest: str | None) -> Rules:
    names = {"width": width, **dict.fromkeys(SPLIT, rest), **dict.fromkeys(WHOLE)}
    return types.MappingProxyType(names)


@dataclasses.dataclass(frozen=True)
class Tables:
    """axes: the mesh axes that the preset may have more than one device along."""

    axes: tuple[str, ...]
    train: Rules
    decode: Rules

    def rules(self, use: str) -> Rules:
        """The table of a use, "train" or "decode"."""
        if use not in ("train", "decode"):
            raise ValueError(f"use {use!r} is neither 'train' nor 'decode'")
        return self.train if use == "train" else self.decode


_BOTH = (_rules("fsdp", "tensor"), _rules(None, "tensor"))
PRESETS: Mapping[str, Tables] = types.MappingProxyType(
    {
        # Every device has rows of its own and a share of all weights.
        "fsdp": Tables(("fsdp",), _rules("fsdp", None), _rules(None, None)),
        # The devices of a tensor group share the heads of a row's layers.
        "fsdp_tp": Tables(("fsdp", "tensor"), *_BOTH),
        # Slices hold whole copies and exchange gradients once a micro-batch.
        "multislice": Tables(("data", "fsdp", "tensor"), *_BOTH),
    }
)


def preset(name: str) -> Tables:
    """The tables of a preset. Raises ValueError naming the nearest one."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"preset {name!r} is unknown: use one of {', '.join(PRESETS)} (did you mean {near}?)"
        )
    return PRESETS[name]
