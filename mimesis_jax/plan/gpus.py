"""What a GPU is to its compiler: the text of a target configuration, from its public properties.

Multiprocessors, units, memories and limits are those of NVIDIA's tables of compute capabilities and
its data sheets (SXM forms); memory and bandwidth are those of sharding.chips.
"""

from __future__ import annotations

import dataclasses

from mimesis_jax.sharding import chips


@dataclasses.dataclass(frozen=True)
class Gpu:
    """capability: of CUDA. cores: multiprocessors. units: fp32 units of one. shared: KiB of shared
    memory of a multiprocessor, a block may ask for one KiB less. cache: MiB of L2. clock: GHz.
    """

    capability: tuple[int, int]
    cores: int
    units: int
    shared: int
    cache: int
    clock: float


AMPERE = Gpu((8, 0), 108, 64, 164, 40, 1.41)
HOPPER = Gpu((9, 0), 132, 128, 228, 50, 1.98)
GPUS = {
    "a100-40": AMPERE,
    "a100-80": AMPERE,
    "h100": HOPPER,
    "h200": HOPPER,
    "b200": Gpu((10, 0), 148, 128, 228, 126, 1.965),
}
# The libraries that the compiler may count on; they only have to be new enough.
TOOLKIT, DNN = "12.8.0", (9, 8, 0)


def target(chip: chips.Chip) -> str:
    """The target configuration of a chip. Raises KeyError for one that is no GPU of the table."""
    gpu = GPUS[chip.name]
    major, minor = gpu.capability
    info = {
        "threads_per_block_limit": 1024, "threads_per_warp": 32, "threads_per_core_limit": 2048,
        "shared_memory_per_block": 48 << 10, "shared_memory_per_core": gpu.shared << 10,
        "shared_memory_per_block_optin": gpu.shared - 1 << 10,
        "registers_per_core_limit": 1 << 16, "registers_per_block_limit": 1 << 16,
        "core_count": gpu.cores, "fpus_per_core": gpu.units, "clock_rate_ghz": gpu.clock,
        "block_dim_limit_x": (1 << 31) - 1, "block_dim_limit_y": 65535, "block_dim_limit_z": 65535,
        "memory_bandwidth": int(chip.bandwidth * 1e9), "l2_cache_size": gpu.cache << 20,
        "device_memory_size": chip.device_bytes,
    }  # fmt: skip
    lines = [f"  {name}: {value}" for name, value in info.items()]
    lines.append(f"  cuda_compute_capability {{ major: {major} minor: {minor} }}")
    lines += [f'  {name}: "{TOOLKIT}"' for name in ("driver_version", "runtime_version")]
    version = " ".join(
        f"{name}: {value}" for name, value in zip(("major", "minor", "patch"), DNN, strict=True)
    )
    return "\n".join([
        "gpu_device_info {", *lines, "}", 'platform_name: "CUDA"',
        f"dnn_version_info {{ {version} }}", f'device_description_str: "{chip.name}"', "",
    ])  # fmt: skip
