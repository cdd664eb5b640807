"""The miniature of killed_run.py over the devices of all processes, by the command line.

    python tests/processes_run.py train --config tests/processes_run.py --out OUT \\
        --processes 2 --process I --coordinator 127.0.0.1:PORT
"""

import sys

import jax
import killed_run
import small_desk

from mimesis_jax import cli, config
from mimesis_jax.build import devices, stages, verbs
from mimesis_jax.models import decoder
from mimesis_jax.rollouts import corpus, engine, seat
from mimesis_jax.runs import checkpoint, compiles, processes_folder
from mimesis_jax.sharding import mesh
from mimesis_jax.trainers import agent, supervised


def get_config():
    """As in killed_run.py, with fewer steps."""
    made = killed_run.get_config()
    made.sft.steps, made.grpo.steps, made.grpo.save_every = 6, 2, 1
    made.grpo.goals = 3
    made.mesh = {"preset": "fsdp", "data": 1, "fsdp": -1, "tensor": 1}
    return made


def train(settings, out):
    spec, shape = small_desk.spec(), killed_run.SHAPE
    there = devices.of(config.freeze(mesh.Config, settings.mesh, "config.mesh"), spec, shape)
    lies = there.compute.layout.params(decoder.axes(spec), decoder.abstract(spec))
    made = jax.device_put(jax.device_get(small_desk.params()), lies)
    taught = config.freeze(supervised.Config, settings.sft, "config.sft")
    rewarded = config.freeze(agent.Config, settings.grpo, "config.grpo")
    trees = [corpus.agent_tree(e, small_desk.renderer()) for e in small_desk.episodes()]
    with (
        processes_folder.opened(out, settings, seed=settings.seed) as run,
        compiles.Compiles() as compiled,
    ):
        held = stages.Stages(run, spec, shape, settings.seed, compiled, there)
        source = stages.source("dialogues", trees)
        start = held.supervised("sft", made, [source], taught)
        run.hash("start", checkpoint.content_hash(start))
        sizes = engine.Config(slots=8, length=320, block=8, buckets=(16, 64))
        chair = seat.ModelSeat(
            engine.Engine(spec, start, sizes, layout=there.decode), small_desk.renderer(), "agent",
            seat.Config(limit=32, temperature=0.9),
        )  # fmt: skip
        parts = killed_run.parts(jax.device_get(small_desk.params()))
        parts.chair, parts.compute = chair, there.compute
        tok = small_desk.renderer().tokenizer
        ended = held.agent("grpo", start, parts, rewarded, user="rule", decode=tok.pieces)
        found = {"hash": checkpoint.content_hash(ended)}
        run.write("summary.json", found)
    return found


if __name__ == "__main__":
    verbs.TRAIN["miniature"] = train
    sys.exit(cli.main())
