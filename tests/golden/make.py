"""Makes the golden arrays of this folder from transformers' models: python tests/golden/make.py

They hold the facts of the parity tests where torch is absent. Made with torch 2.13 and
transformers 5.24; to be made again when a family or the drawn weights of parity_models change.
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402
import parity_models  # noqa: E402
import parity_torch  # noqa: E402

if __name__ == "__main__":
    for family in parity_models.FAMILIES:
        arrays = parity_torch.golden(family)
        np.savez_compressed(HERE / f"{family}.npz", **arrays)
        print(family, {name: array.shape for name, array in arrays.items()})
