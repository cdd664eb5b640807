"""What each accelerator can do at most: peak arithmetic, memory and links, by its vendor."""

from __future__ import annotations

import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Chip:
    """One chip, as it is sold; a jax device may be a part of one.

    tflops: peak of dense bf16 products, 1e12 FLOP/s (no structured sparsity). hbm: GiB of memory.
    bandwidth: GB/s of that memory (1e9). links: GB/s to other chips, both directions together.
    devices: jax devices that a chip shows. kinds: what `jax.Device.device_kind` calls one, as
    regular expressions of the whole text. source: where the figures are from.
    """

    name: str
    tflops: float
    hbm: float
    bandwidth: float
    links: float
    kinds: tuple[str, ...]
    source: str
    devices: int = 1

    @property
    def device_flops(self) -> float:
        """Peak FLOP/s of one jax device."""
        return 1e12 * self.tflops / self.devices

    @property
    def device_bytes(self) -> int:
        """Bytes of memory of one jax device."""
        return int(self.hbm * 2**30) // self.devices


GOOGLE = "docs.cloud.google.com/tpu/docs/"
NVIDIA = "NVIDIA data sheet, SXM form; the sheet's sparse figure halved where it is sparse"
CHIPS = (
    # The page gives v4's links as 2400 Gbit/s one way; those of later chips are both ways.
    Chip("v4", 275, 32, 1228, 600, ("TPU v4",), GOOGLE + "v4"),
    Chip("v5e", 197, 16, 819, 400, ("TPU v5 ?lite", "TPU v5e"), GOOGLE + "v5e"),
    Chip("v5p", 459, 95, 2765, 1200, ("TPU v5", "TPU v5p"), GOOGLE + "v5p"),
    Chip("v6e", 918, 32, 1638, 800, ("TPU v6 ?lite", "TPU v6e"), GOOGLE + "v6e"),
    Chip("tpu7x", 2307, 192, 7380, 1200, ("TPU ?v?7x",), GOOGLE + "tpu7x", devices=2),
    # PCIe and NVL forms of H100 and H200 are slower, so their names match nothing here; those of
    # A100 differ in bandwidth and links only. Memory: what the driver reports.
    Chip("a100-40", 312, 40, 1555, 600, ("NVIDIA A100-(SXM4|PCIE)-40GB",), NVIDIA),
    Chip("a100-80", 312, 80, 2039, 600, ("NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe"), NVIDIA),
    Chip("h100", 989, 79.6, 3350, 900, ("NVIDIA H100 80GB HBM3", "NVIDIA H100"), NVIDIA),
    Chip("h200", 989, 140.4, 4800, 900, ("NVIDIA H200",), NVIDIA),
    Chip("b200", 2250, 179, 8000, 1800, ("NVIDIA B200",), NVIDIA),
)
NAMES = tuple(chip.name for chip in CHIPS)


def of(device_kind: str) -> Chip | None:
    """The chip of a `device_kind`, None where it is not in the table (a CPU, an unknown chip).

    Whoever gets None reports FLOP/s and no share of a peak.
    """
    for chip in CHIPS:
        if any(re.fullmatch(kind, device_kind, re.IGNORECASE) for kind in chip.kinds):
            return chip
    return None


def named(name: str) -> Chip:
    """The chip of that name. Raises ValueError that lists the names."""
    found = next((chip for chip in CHIPS if chip.name == name.lower()), None)
    if found is None:
        raise ValueError(f"chip {name!r} is not in the table: use one of {', '.join(NAMES)}")
    return found
