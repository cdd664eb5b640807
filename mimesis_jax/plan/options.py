"""The words of `mimesis plan`; nothing heavy loads here, so that --help answers at once."""

from __future__ import annotations

import argparse
from pathlib import Path


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options to its parser."""
    parser.add_argument("--config", metavar="F", help="file of kind large, or name in configs/")
    parser.add_argument("--topology", metavar="T", help="v5p-32, v6e:8x8, 2xv5e-16, h100x8, ...")
    parser.add_argument("--quick", action="store_true",
                        help="an estimate in a minute, compiled for virtual devices")  # fmt: skip
    parser.add_argument("--exactly", metavar="PROGRAMS",
                        help="only these by the machines' compiler (update,score)")  # fmt: skip
    parser.add_argument("--json", type=Path, metavar="F", help="file for the whole plan")
    parser.add_argument("--html", type=Path, metavar="F", help="file for a page with pictures")
    parser.add_argument("--fresh", action="store_true", help="compile again what is kept")
    parser.add_argument("--search", type=Path, metavar="F",
                        help="find a better mesh, micro-batch, remat; F.py gets them")  # fmt: skip
    parser.add_argument("--missing", action="store_true",
                        help="make the plans of configs/plans/ that are not there")  # fmt: skip
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A", "B"),
                        help="two plans written with --json, side by side")  # fmt: skip
