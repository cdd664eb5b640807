"""A run in miniature by the command line, for tests that end it: supervised, then GRPO with CSD.

    python tests/killed_run.py train --config tests/killed_run.py --out OUT [--config.KEY=VALUE]

It is the `mimesis` command with one more kind of run, whose models run for milliseconds.
"""

import sys
from pathlib import Path

import small_desk
from ml_collections import ConfigDict

from mimesis_jax import cli, config
from mimesis_jax.build import stages, verbs
from mimesis_jax.forest import pack
from mimesis_jax.rollouts import corpus
from mimesis_jax.runs import checkpoint, compiles, folder
from mimesis_jax.trainers import agent, supervised
from mimesis_jax.users import population

SHAPE = pack.Shape(rows=4, length=240, chunk=8, learned=96, slots=2)


def get_config():
    """Saves often, so that a kill is often during a save."""
    guard = {"explode": 100.0, "patience": 2}
    return ConfigDict(
        {
            "kind": "miniature",
            "seed": 3,
            "sft": {
                "steps": 14, "save_every": 2,
                "optimizer": {"lr": 1e-2, "warmup": 2, **guard},
            },
            "grpo": {
                "steps": 6, "goals": 2, "copies": 3, "updates": 2, "save_every": 2,
                "loss": {"alpha": 0.1, "temperature": 0.9},
                "credit": {"score": "sum", "credit": "equalized"},
                "optimizer": {"lr": 1e-3, "warmup": 1, "decay": "constant", **guard},
            },
            "checkpoints": {"keep": 2, "every": 0, "folder": ""},
        }
    )  # fmt: skip


class Told:
    """A coach that has something to say on every other turn."""

    def notes(self, turns):
        own = [i for i, turn in enumerate(turns) if turn.author == "agent"]
        return {i: None if k % 2 else "ask for the size" for k, i in enumerate(own)}


def parts(start):
    return agent.Parts(
        spec=small_desk.spec(),
        chair=small_desk.make_seat("agent", start, limit=32, temperature=0.9),
        user=population.REFERENCE.user(),
        make=lambda goal: small_desk.Calls(goal, turns=3),
        goals=lambda step, count: small_desk.PEOPLE.goals(range(100 * step, 100 * step + count)),
        renderer=small_desk.renderer(),
        shape=SHAPE,
        coach=Told(),
    )


def train(settings, out):
    """The two stages in the run folder `out`; what is finished is not done again."""
    taught = config.freeze(supervised.Config, settings.sft, "config.sft")
    rewarded = config.freeze(agent.Config, settings.grpo, "config.grpo")
    trees = [corpus.agent_tree(e, small_desk.renderer()) for e in small_desk.episodes()]
    with folder.Run(out, settings, seed=settings.seed) as run, compiles.Compiles() as compiled:
        compiles.compile_cache(Path(out).parent / ".compiled")
        held = stages.Stages(run, small_desk.spec(), SHAPE, settings.seed, compiled)
        source = stages.source("dialogues", trees)
        start = held.supervised("sft", small_desk.params(), [source], taught)
        run.hash("start", checkpoint.content_hash(start))
        tok = small_desk.renderer().tokenizer
        ended = held.agent("grpo", start, parts(start), rewarded, user="rule", decode=tok.pieces)
    return {"hash": checkpoint.content_hash(ended)}


if __name__ == "__main__":
    verbs.TRAIN["miniature"] = train
    sys.exit(cli.main(sys.argv[1:]))
