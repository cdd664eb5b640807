"""simulator_midtrain_4b as `mimesis plan --search` laid it out on v5p-32.

    mimesis train --config configs/plans/simulator_midtrain_4b_v5p_32.py --out RUN

Said of it: fits, peak 76.97 GiB of 95.00 GiB a device, an update takes 1.89 s at least, bound
by compute.
Made by code 016f39408e4d, quick.
"""

from ml_collections import ConfigDict

from mimesis_jax import config


def get_config() -> ConfigDict:
    """simulator_midtrain_4b with what the search found."""
    return config.read(
        "simulator_midtrain_4b",
        {
            "mesh.preset": "fsdp",
            "mesh.data": "1",
            "mesh.fsdp": "16",
            "mesh.tensor": "1",
            "shape.rows": "16",
            "micro_batches": "2",
            "model.remat": "none",
        },
    )
