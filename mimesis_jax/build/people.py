"""From real people's conversations to a small user model: `mimesis train` of kind "people".

    read -> split by conversation -> tokenizer -> base -> user_midtrain -> user_thoughts -> frozen

base            both chairs' public words (a pretrained checkpoint's place, for a model that starts
                from nothing)
user_midtrain   human turns only, public text (MIMESIS stage 1.1)
user_thoughts   the private thought, then the words (MIMESIS stage 1.2)

Each stage keeps the parameters with the lowest loss on the validation conversations; the held-out
ones are measured and decide nothing.

Over several processes each reads and renders everything, its devices take their rows of the same
batches, and process 0 alone writes what is shared.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mimesis_jax import config as configs
from mimesis_jax import pretrained
from mimesis_jax.build import devices, people_data, people_stage
from mimesis_jax.build.people_data import Data, Rows, Split
from mimesis_jax.chat import render, tokenizer
from mimesis_jax.evaluation import trigram
from mimesis_jax.forest import pack, tree
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.runs import checkpoint, disk, folder, processes, processes_folder
from mimesis_jax.sharding import mesh
from mimesis_jax.trainers import supervised

STAGES = ("base", "user_midtrain", "user_thoughts")
NAMED = 20  # how many human turns that were left out are listed in the summary


@dataclasses.dataclass(frozen=True)
class Model:
    """Sizes of a decoder that starts from nothing (specs.tiny). vocab: most tokens of the BPE."""

    vocab: int = 2048
    width: int = 192
    mlp: int = 576
    periods: int = 2
    chunk: int = 16


@dataclasses.dataclass(frozen=True)
class Config:
    """kind: "people". seed: of the split, the parameters and the order of the rows.

    stages: which of STAGES are run, in that order. start: folder of an earlier run of this kind,
    whose last stage's parameters, tokenizer and sizes are gone on with ("" to start from nothing).
    mesh: devices that the rows and the parameters are split over.
    """

    kind: str = "people"
    seed: int = 0
    start: str = ""
    stages: tuple[str, ...] = STAGES
    data: Data = Data()
    model: Model = Model()
    rows: Rows = Rows()
    mesh: mesh.Config = mesh.Config(fsdp=1)
    checkpoints: checkpoint.Config = checkpoint.Config()
    base: supervised.Config = supervised.Config()
    user_midtrain: supervised.Config = supervised.Config()
    user_thoughts: supervised.Config = supervised.Config()

    def __post_init__(self):
        if self.stages != tuple(s for s in STAGES if s in self.stages) or not self.stages:
            raise configs.ConfigError(
                f"stages {self.stages} must be some of {STAGES}, in that order, each once"
            )


@dataclasses.dataclass(frozen=True)
class Beginning:
    """What training begins with: sizes, tokenizer, and the frozen parameters of an earlier run
    (None: fresh ones)."""

    spec: specs.Spec
    tok: tokenizer.Tokenizer
    frozen: Path | None = None

    def params(self, there: devices.Devices, seed: int) -> Any:
        if self.frozen is None:
            return there.fresh(self.spec, seed)
        return checkpoint.load_frozen(self.frozen, there.template(self.spec)).params


def train(config: Any, out: str | Path) -> dict[str, Any]:
    """Runs the stages of `config` in the run folder `out` and gives the summary.

    Writes, beside what every run folder has: tokenizer.json, conversations.json (which
    conversation is in which part), checkpoints/STAGE, the frozen parameters of each stage under
    its name, and summary.json. nll_*: nats per token of the held-out people's public utterances,
    the same tokens for all. A run that was stopped goes on from its last checkpoint.
    Raises, before anything is written: ConfigError, FileNotFoundError, rows.TooManyMalformed,
    ProcessError where another process has read other conversations, and ValueError for sources with
    too few conversations or with turns that no row holds, or a `start` that was trained on our
    held-out ones.
    """
    settings = configs.freeze(Config, config)
    since = time.monotonic()
    split = people_data.read(settings.data, settings.seed)
    begin = _begin(settings, split)
    shape = pack.Shape(
        settings.rows.rows, settings.rows.length, begin.spec.chunk, settings.rows.length, slots=1
    )
    renderer = render.Renderer(begin.tok)
    there = devices.of(settings.mesh, begin.spec, shape, rows="config.rows.rows")
    sets = people_data.prepare(split, renderer, settings.rows, begin.spec.chunk)
    read_seconds = time.monotonic() - since
    hashes = {"tokenizer": begin.tok.hash, "conversations": split.hash}
    processes.alike(hashes, "what was read", "Give every worker the same files")
    params = begin.params(there, settings.seed)
    with processes_folder.opened(out, config, seed=settings.seed, hashes=hashes) as run:
        if processes.is_lead():
            begin.tok.save(run.path / "tokenizer.json")
        run.write("conversations.json", split.names())
        run.event("data", read_seconds)
        print(_told(split, sets, begin), flush=True)
        learner = people_stage.Learner(run, begin.spec, shape, settings.seed, sets, there)
        done = {}
        for stage in settings.stages:
            params, done[stage] = learner.stage(stage, params, getattr(settings, stage))
        summary = _summary(run, split, sets, begin, done)
        run.write("summary.json", summary)
    return summary


def _begin(settings: Config, split: Split) -> Beginning:
    if settings.start:
        return _gone_on(Path(settings.start), split)
    sizes = settings.model
    tok = tokenizer.train(people_data.texts(split.fitted), sizes.vocab)
    spec = specs.tiny(
        tok.vocab, tok.vocab_real, periods=sizes.periods, chunk=sizes.chunk, width=sizes.width,
        mlp=sizes.mlp,
    )  # fmt: skip
    return Beginning(spec, tok)


def _gone_on(start: Path, split: Split) -> Beginning:
    """The last stage of another run. Raises RunError, and ValueError where its training
    conversations are among ours held out."""
    then = configs.freeze(Config, folder.config(start))
    stage = then.stages[-1]
    if not (start / stage).is_dir():
        raise disk.RunError(f"{start} has not finished its stage {stage}: give its command again")
    known = disk.read(start / "conversations.json")
    both = sorted(set(split.names()["held_out"]) & set(known["train"] + known["validation"]))
    if both:
        raise ValueError(
            f"{len(both)} held-out conversations were trained on in {start} (the first: {both[0]}):"
            " use the same data, seed, held_out and validation as that run"
        )
    tok = tokenizer.load(start / "tokenizer.json")
    return Beginning(pretrained.spec_of(start / stage), tok, start / stage)


# --- what is told -----------------------------------------------------------------------------


def _told(split: Split, sets: people_data.Sets, begin: Beginning) -> str:
    counts = {name: len(ids) for name, ids in split.names().items()}
    return (
        f"conversations {json.dumps(counts)}; human turns {json.dumps(sets.turns)};"
        f" {decoder.parameter_count(begin.spec) / 1e6:.2f}M parameters"
    )


def _summary(
    run: folder.Run,
    split: Split,
    sets: people_data.Sets,
    begin: Beginning,
    done: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    names = {"base": "nll_before", "user_midtrain": "nll_midtrain", "user_thoughts": "nll_thoughts"}
    told: dict[str, Any] = {}
    for stage, payload in done.items():
        for context, value in payload["held_out"].items():
            told[names[stage] + ("_brief" if context == "brief" else "")] = value
    counted = {part: sets.trees(found["public"]) for part, found in sets.measured.items()}
    return {
        **told,
        **baselines(sets, begin.tok.vocab_real),
        "tokens": {part: int(tree.column(t, "weight").sum()) for part, t in counted.items()},
        "conversations": {part: len(ids) for part, ids in split.names().items()},
        "turns": sets.turns,
        "left_out": list(sets.left_out[:NAMED]),
        "malformed": split.malformed,
        "vocab": begin.tok.vocab_real,
        "parameters": decoder.parameter_count(begin.spec),
        "hashes": {stage: payload["hash"] for stage, payload in done.items()},
        "best_step": {stage: payload["best_step"] for stage, payload in done.items()},
        "phases": {stage: run.seconds(stage) for stage in done},
        "seconds": sum(run.seconds(stage) for stage in done),
    }


def baselines(sets: people_data.Sets, vocab: int) -> dict[str, float]:
    """Held-out nats per token of n-gram models, on the tokens that the user model is measured on.

    nll_unigram, nll_trigram: counted on the training people's utterances. nll_trigram_both: on
    both chairs' words, which the base stage reads too. All are interpolated, with weights tuned on
    the validation people's utterances.
    """
    measured = {part: found["public"] for part, found in sets.measured.items()}
    rows = {part: trigram.rows(sets.trees(items)) for part, items in measured.items()}
    rows["train"] = trigram.rows(sets.trees(sets.train["user_midtrain"]))
    # A word in a row of its own has no context: of the trigram the unigram is left.
    lone = {part: _alone(found) for part, found in rows.items()}
    both = trigram.rows(sets.trees(sets.train["base"]))
    fit = lambda counted, tuned: trigram.fit(counted, tuned, vocab)
    return {
        "nll_unigram": fit(lone["train"], lone["validation"]).nll(lone["held_out"]),
        "nll_trigram": fit(rows["train"], rows["validation"]).nll(rows["held_out"]),
        "nll_trigram_both": fit(both, rows["validation"]).nll(rows["held_out"]),
    }


def _alone(rows: Sequence[trigram.Row]) -> list[trigram.Row]:
    one = np.ones(1, bool)
    places = [(row.ids, i) for row in rows for i in np.flatnonzero(row.scored)]
    return [trigram.Row(ids[i : i + 1], one) for ids, i in places]
