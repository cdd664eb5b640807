"""What the command line calls: demo, train, evaluate, evidence, chat; and by which kind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mimesis_jax import config as configs
from mimesis_jax.build import evaluate as evaluation
from mimesis_jax.build import large, people, single
from mimesis_jax.build.demo import demo
from mimesis_jax.build.evidence import evidence
from mimesis_jax.build.talk import chat
from mimesis_jax.config import ConfigDict

__all__ = ["chat", "demo", "evaluate", "evidence", "train"]

TRAIN = {"demo": demo, "large": large.train, "people": people.train, "stage": single.train}
EVALUATE = {"evaluate": evaluation.evaluate}


def train(config: ConfigDict, out: Path) -> dict[str, Any]:
    """Runs what the configuration describes; see configs/. Raises ConfigError for another kind."""
    return _chosen(TRAIN, config, "train")(config, out)


def evaluate(config: ConfigDict, out: Path) -> dict[str, Any]:
    """Measures what the configuration names. Raises ConfigError for another kind."""
    return _chosen(EVALUATE, config, "evaluate")(config, out)


def _chosen(table, config: ConfigDict, verb: str):
    kind = config.get("kind")
    if kind not in table:
        raise configs.ConfigError(
            f"config.kind={kind!r} is nothing to {verb}: use one of {', '.join(table)}"
        )
    return table[kind]
