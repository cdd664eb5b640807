"""`mimesis replay RUN`: computes the batch that a run stopped at again and says what is wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from mimesis_jax import config as configs
from mimesis_jax import types
from mimesis_jax.build import replay_trace, spoilt
from mimesis_jax.forest import pack
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.runs import batches, checkpoint, disk
from mimesis_jax.trainers import optimizer, reinforce, supervised


@dataclasses.dataclass(frozen=True)
class Again:
    """A kept update, ready to be computed again.

    forests: its micro-batches; origin: of each, the number of every learned token (pack.Packed),
    None where the batch was kept packed. called: what each of those tokens is called.
    loss: of a reinforced batch, None for a supervised one.
    """

    facts: dict[str, Any]
    spec: specs.Spec
    state: optimizer.State
    forests: Sequence[types.Forest]
    origin: Sequence[np.ndarray] | None
    called: Sequence[str]
    loss: reinforce.Loss | None


def replay(run: str | Path, step: int | None = None) -> str:
    """What is wrong with the batch that `run` stopped at, in lines to read.

    step: of the batch, None for the last one that was kept. Writes nothing.
    Raises RunError where nothing was kept, or what was kept is damaged.
    """
    where = spoilt.find(Path(run), step)
    again = read(where)
    return "\n".join(_told(where, again))


def read(where: Path) -> Again:
    """What `spoilt.keep` wrote into the folder `where`. Raises RunError where it is damaged."""
    batch = batches.load(where / "batch.npz")
    facts = dict(batch.facts)
    try:
        spec = specs.from_json(facts["spec"])
        chosen = configs.freeze(optimizer.Config, facts["optimizer"], "optimizer")
        loss = shape = None
        if batch.trees:
            loss = configs.freeze(reinforce.Loss, facts["loss"], "loss")
            shape = configs.freeze(pack.Shape, facts["shape"], "shape")
    except (KeyError, TypeError, ValueError) as error:
        raise disk.RunError(f"{where}/batch.npz was kept by another version: {error}") from error
    template = jax.eval_shape(lambda: optimizer.init(decoder.init(spec, jax.random.key(0)), chosen))
    here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    template = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), template
    )
    with checkpoint.Store(where / "state") as store:
        held = store.restore(template)
    if held is None:
        raise disk.RunError(f"{where}/state is empty: restore it from a copy")
    if not batch.trees:
        return Again(facts, spec, held.state, batch.forests, None, (), None)
    assert loss is not None and shape is not None
    packed = pack.pack(batch.trees, shape, names=batch.names or None, shared=True)
    called = list(_called(batch.trees, batch.names))
    return Again(facts, spec, held.state, packed.forests, packed.origin, called, loss)


def _called(trees: Sequence[types.Tree], names: Sequence[str]) -> Iterator[str]:
    """The episode and turn of each scored token, in the order of pack.Packed.origin."""
    for number, tree in enumerate(trees):
        name = names[number] if names else f"tree {number}"
        for segment in tree:
            for place in np.flatnonzero(segment.scored):
                yield f"in {name}, turn {segment.turn}, token {place} of its segment"


# --- computing --------------------------------------------------------------------------------


def gradients(again: Again) -> list[Any]:
    """The gradient of each micro-batch, as the update sums them up."""
    params, forests = again.state.params, again.forests
    if again.loss is None:
        total = np.float32(sum(float(np.sum(f.weight)) for f in forests))
        return [
            supervised.accumulate(again.spec, params, optimizer.zeros(params), forest, total)[0]
            for forest in forests
        ]
    totals = reinforce.totals(forests)
    knobs = reinforce.knobs(again.loss)
    return [
        reinforce.accumulate(again.spec, params, optimizer.zeros(params), forest, knobs, totals)[0]
        for forest in forests
    ]


def _told(where: Path, again: Again) -> Iterator[str]:
    facts, state = again.facts, again.state
    yield (
        f"{facts['phase']}, step {facts['step']}: {facts['streak']} updates in a row were left out "
        f"(norm {facts['grad_norm']}, learning rate {facts['lr']:.3g})"
    )
    recent = np.asarray(state.recent)
    held = recent[np.isfinite(recent)]
    usual = f"; median norm of the last {len(held)}: {np.median(held):.4g}" if len(held) else ""
    yield f"state    {int(state.step)} updates applied, {int(state.skipped)} left out{usual}"
    rows, length = again.forests[0].tokens.shape
    learned = sum(int(np.count_nonzero(np.asarray(f.weight))) for f in again.forests)
    yield (
        f"batch    {where}: {len(again.forests)} micro-batches of {rows} rows of {length}, "
        f"{learned:,} learned tokens"
    )
    parts = [jax.device_get(part) for part in gradients(again)]
    whole = jax.tree.map(lambda *leaves: np.sum(leaves, axis=0), *parts)
    norms = ", ".join(f"{_norm(part):.4g}" for part in parts)
    yield f"norm     {_norm(whole):.6g} now, of the micro-batches: {norms}"
    yield ""
    yield from _faults(again, parts)
    yield ""
    yield from _tensors(state.params, whole)


def _faults(again: Again, parts: Sequence[Any]) -> Iterator[str]:
    """The first value that is not finite, of the first micro-batch that has one."""
    traces = []
    for number, (forest, grads) in enumerate(zip(again.forests, parts, strict=True)):
        where = lambda row, token, n=number: _place(again, n, row, token)
        trace = replay_trace.forward(again.spec, again.state.params, forest, again.loss, where)
        traces.append(trace)
        back = replay_trace.backward(again.spec, grads)
        if trace.fault is None and back is None:
            continue
        yield f"first value that is not finite, micro-batch {number}"
        yield f"  forward   {trace.fault or 'all finite'}"
        yield f"  backward  {back or 'all finite'}"
        return
    yield "every value and every gradient is finite; the largest absolute values:"
    largest = max(range(len(parts)), key=lambda n: _norm(parts[n]))
    told = ", ".join(f"{name} {size:.4g}" for name, size in traces[largest].largest)
    yield f"  micro-batch {largest}: {told}"
    for line in traces[largest].extremes:
        yield f"  {line}"


def _place(again: Again, number: int, row: int, token: int) -> str:
    if again.origin is not None and again.origin[number][row, token] >= 0:
        return again.called[int(again.origin[number][row, token])]
    return f"at learned token {token} of row {row}, micro-batch {number}"


def _tensors(params: Any, grads: Any) -> Iterator[str]:
    """A line a tensor: its gradient's norm, the share of the whole, its own norm."""
    named = lambda tree: {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf, np.float32)
        for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]
    }
    own, found = named(params), named(grads)
    norms = {name: _norm(value) for name, value in found.items()}
    finite = sum(norm**2 for norm in norms.values() if np.isfinite(norm))
    width = max(map(len, norms))
    yield f"{'tensor':<{width}}    gradient   share  not finite     weights"
    for name, norm in norms.items():
        bad = int(np.sum(~np.isfinite(found[name])))
        share = f"{norm**2 / finite:6.1%}" if np.isfinite(norm) and finite else f"{'-':>6}"
        yield f"{name:<{width}}  {norm:10.4g}  {share}  {bad:10d}  {_norm(own[name]):10.4g}"


def _norm(tree: Any) -> float:
    with np.errstate(all="ignore"):
        leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]
        return float(np.sqrt(sum(float(np.sum(leaf**2)) for leaf in leaves)))
