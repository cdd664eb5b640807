"""Greedy decoding of SmolLM2-135M: our engine's program against transformers, on one core.

Both decode the same number of tokens after the same prompt, in fp32, at several batch sizes, on one
core that the process is pinned to, one after the other within one run:

ours    rollouts.programs.decode, a block of tokens in one loop on the device
theirs  a plain loop around the transformers model with its own cache and argmax, which leaves out
        what `generate` adds; its weights are the same, written and read through a checkpoint folder

tokens_per_s are medians of interleaved repetitions by the wall clock; cpu_tokens_per_s by the
process's own time, which counts where other programs want the core too. ratio is ours / theirs.
gigabytes_per_s is what reading every weight once a step amounts to: at batch 1 that, not
arithmetic, is the bound. Needs the extras smollm2 and parity.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mimesis_jax import pretrained, types
from mimesis_jax.bench import measure
from mimesis_jax.models import cache as caches
from mimesis_jax.pretrained import speaker
from mimesis_jax.rollouts import programs, sampling

QUESTION = "What is the capital of France? Answer in one sentence."


@contextmanager
def one_core() -> Iterator[None]:
    """Pins the process to one of its cores; a thread pool that starts inside has one thread, one
    that had started before shares the core. Raises BenchError where nothing can be pinned."""
    if not hasattr(os, "sched_setaffinity"):
        raise measure.BenchError("this system cannot pin a process to a core: use Linux")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


_read = jax.jit(caches.extend, static_argnums=0)


@dataclasses.dataclass
class Ours:
    """Our decode, from the end of the prompt, again and again."""

    model: speaker.Speaker
    prompt: np.ndarray
    batch: int
    tokens: int

    def __post_init__(self):
        self.params = caches.apart(self.model.params)
        self.knobs = sampling.idle(self.batch)
        self.knobs.temperature[:], self.knobs.limit[:] = 0, 1 << 30
        self.stop = np.full((self.batch, 1), -1, np.int32)
        self.everyone = np.ones(self.batch, bool)
        length = len(self.prompt) + self.tokens + 8
        fed = np.tile(self.prompt, (self.batch, 1)).astype(np.int32)
        count = np.full(self.batch, len(self.prompt), np.int32)
        cache = caches.init(self.model.spec, self.batch, length)
        cache, hidden = _read(self.model.spec, self.params, cache, fed, count)
        self.state = programs.State(cache, hidden, jax.numpy.zeros(self.batch, jax.numpy.int32))
        # Kept aside, because every run of the program eats its state.
        self.begun = jax.tree.map(np.asarray, self.state)
        self.ready()

    def ready(self) -> None:
        self.state = jax.block_until_ready(jax.tree.map(jax.numpy.array, self.begun))

    def __call__(self) -> np.ndarray:
        """[batch, tokens] int32."""
        self.state, out = programs.decode(
            self.model.spec, self.params, self.state, None, self.knobs, self.stop, self.everyone,
            np.uint32(0), np.int32(1 << 30), self.tokens,
        )  # fmt: skip
        return np.asarray(out.token)


@dataclasses.dataclass
class Theirs:
    """Their decode, from the end of the prompt."""

    model: Any
    prompt: np.ndarray
    batch: int
    tokens: int

    def ready(self) -> None:
        import torch

        with torch.inference_mode():
            fed = torch.tensor(np.tile(self.prompt, (self.batch, 1)).astype(np.int64))
            out = self.model(fed, use_cache=True, logits_to_keep=1)
        self.past, self.next = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)

    def __call__(self) -> np.ndarray:
        """[batch, tokens] int32; the first was found when the prompt was read."""
        import torch

        found = [self.next]
        with torch.inference_mode():
            for _ in range(self.tokens):
                out = self.model(found[-1], past_key_values=self.past, use_cache=True)
                found.append(out.logits[:, -1].argmax(-1, keepdim=True))
        return torch.cat(found[:-1], 1).numpy().astype(np.int32)


def transformers_model(model: speaker.Speaker) -> Any:
    """The transformers model with our weights, by way of a checkpoint folder."""
    try:
        import torch
        import transformers
    except ImportError:
        raise measure.BenchError("the rival needs torch: pip install '.[parity]'") from None
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        pretrained.save(path, model.spec, model.params)
        made = transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    return made.eval()


def timed(forms: dict[str, Any], repeats: int) -> tuple[dict[str, list[float]], ...]:
    """Wall and process seconds of each form's repetitions, in turn; states are made ready before
    the clock starts."""
    wall: dict[str, list[float]] = {name: [] for name in forms}
    own: dict[str, list[float]] = {name: [] for name in forms}
    for turn in range(repeats):
        for name in list(forms) if turn % 2 == 0 else list(forms)[::-1]:
            forms[name].ready()
            start, began = time.perf_counter(), time.process_time()
            forms[name]()
            wall[name].append(time.perf_counter() - start)
            own[name].append(time.process_time() - began)
    return wall, own


def compared(make: dict[str, Callable[[int], Any]], batch: int, repeats: int) -> dict[str, Any]:
    """The figures of one batch size. Raises BenchError where the forms decode different tokens."""
    forms = {name: one(batch) for name, one in make.items()}
    said = {}
    for name, form in forms.items():  # compiles, too
        form.ready()
        said[name] = form()
    if not np.array_equal(said["ours"], said["theirs"]):
        at = int(np.argmax((said["ours"] != said["theirs"]).any(0)))
        raise measure.BenchError(f"the forms decode different tokens from number {at} on")
    wall, own = timed(forms, repeats)
    count = said["ours"].size
    rate = lambda seconds: {k: count / statistics.median(v) for k, v in seconds.items()}
    by_wall, by_cpu = rate(wall), rate(own)
    return {
        "tokens_per_s": by_wall,
        "cpu_tokens_per_s": by_cpu,
        "ratio": by_wall["ours"] / by_wall["theirs"],
        "cpu_ratio": by_cpu["ours"] / by_cpu["theirs"],
        "seconds": wall,
    }


def run(argv: Sequence[str]) -> dict[str, Any]:
    """Measures as the module's docstring says. Options: --tokens, --repeats, --batches.

    Raises measure.BenchError without torch, and where the two decode different tokens; the
    packages' own errors where the model is not installed.
    """
    options = measure.parser("decode", __doc__)
    options.add_argument("--tokens", type=int, default=32, help="decoded a row (%(default)s)")
    options.add_argument("--repeats", type=int, default=5, help="of each form (%(default)s)")
    options.add_argument("--batches", default="1,16", help="rows at once (%(default)s)")
    args = measure.parse(options, argv)
    try:
        batches = [int(part) for part in args.batches.split(",")]
    except ValueError:
        raise measure.BenchError(f"--batches {args.batches}: use numbers like 1,16") from None
    if min(batches) < 1:
        raise measure.BenchError(f"--batches {args.batches}: use 1 or more")
    with one_core():
        model = speaker.load(speaker.SMOLLM2)
        rival = transformers_model(model)
        turns = [types.Turn("user", QUESTION)]
        write = model.renderer
        prompt = np.concatenate(
            [write.opening(turns), *write.turns(turns, first=True), write.header("agent", "none")]
        )
        make: dict[str, Callable[[int], Any]] = {
            "ours": functools.partial(_ours, model, prompt, args.tokens),
            "theirs": functools.partial(_theirs, rival, prompt, args.tokens),
        }
        found = {str(batch): compared(make, batch, args.repeats) for batch in batches}
    weights = sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))
    for batch, figures in found.items():
        steps = figures["cpu_tokens_per_s"]["ours"] / int(batch)
        figures["gigabytes_per_s"] = steps * weights / 1e9
    return {
        "batches": found,
        "measured": "greedy decoding after the prompt, prefill not counted, one core, fp32",
        "tokens": args.tokens,
        "prompt_tokens": len(prompt),
        "weight_bytes": weights,
        "rival": _versions(),
        "machine": measure.machine(),
    }


def _ours(model, prompt, tokens, batch) -> Ours:
    return Ours(model, prompt, batch, tokens)


def _theirs(rival, prompt, tokens, batch) -> Theirs:
    return Theirs(rival, prompt, batch, tokens)


def _versions() -> dict[str, str]:
    import torch
    import transformers

    return {"torch": torch.__version__, "transformers": transformers.__version__}
