"""A run folder of the small world whose models others use: settings, tokenizer, parameters."""

from __future__ import annotations

from pathlib import Path

from mimesis_jax.build import parts, world
from mimesis_jax.chat import render, tokenizer
from mimesis_jax.config import ConfigDict
from mimesis_jax.runs import checkpoint, disk, folder

KINDS = ("demo", "stage")
OWN = ("stage", "start")  # keys of a stage's configuration that are nobody's part


def settings(config: ConfigDict) -> parts.Desk:
    """The parts of a demo's or a stage's configuration. Raises ConfigError, see parts.desk."""
    whole = config.copy_and_resolve_references()
    whole.unlock()
    for key in OWN:
        if key in whole:
            del whole[key]
    return parts.desk(whole)


class Begun:
    """A demo run, finished or not, or a stage run: models that it lacks are those of its start.

    path, config, settings, renderer: as the run has them. quick: whether it is a hurried one.
    Raises RunError where `path` holds no such run, or one that has made no tokenizer yet.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        if not self.path.is_dir():
            raise disk.RunError(f"{path} is no folder: give the folder of a run (mimesis demo)")
        self.config = folder.config(self.path)
        kind = self.config.get("kind")
        if kind not in KINDS:
            raise disk.RunError(
                f"{path} holds a run of kind {kind!r}, not of the small world: give the folder of "
                "a run of `mimesis demo`, or of a stage that was begun from one"
            )
        self.settings = settings(self.config)
        words = self.path / "tokenizer.json"
        if not words.is_file():
            raise disk.RunError(
                f"{path} has only been begun, {words} is missing: let its run go on"
            )
        self.renderer = render.Renderer(tokenizer.load(words))
        self.start = Begun(self.config.start) if "start" in self.config else None
        hurried = "quick" in self.config and parts.hurried(self.config) == self.config
        self.quick: bool = self.start.quick if self.start else hurried

    def world(self, chosen: parts.Desk | None = None) -> world.World:
        """The run's world; its words are those of the tokenizer that the run was made with."""
        chosen = chosen or self.settings
        made = world.World(chosen.world, vocab=chosen.vocab, seed=chosen.seed)
        made.renderer = self.renderer
        return made

    def names(self) -> list[str]:
        """Stages with frozen parameters, those of the start included."""
        here = {p.parent.name for p in (self.path / "models").glob("*/frozen.json")}
        return sorted(here | set(self.start.names() if self.start else ()))

    def frozen(self, name: str) -> checkpoint.Frozen:
        """The parameters of a finished stage, held to the hash that the run recorded.

        Raises RunError where the stage is not finished, or its parameters were changed.
        """
        there = self.path / "models" / name
        if there.is_dir():
            phases = disk.read(self.path / "phases.json") or {}
            done = phases.get(name, {}).get("done") or {}
            return checkpoint.load_frozen(there, expect=done.get("hash"))
        if self.start is not None:
            return self.start.frozen(name)
        has = ", ".join(self.names()) or "nothing yet"
        raise disk.RunError(
            f"{self.path} has not trained {name} (it has {has}): give its command again, it goes on"
        )
