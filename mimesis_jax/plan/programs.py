"""The programs that a large run's step is made of, lowered from shapes alone, and what they hold.

Nothing is allocated: parameters, state and batches are ShapeDtypeStructs with the shardings that
the run would have, and the jitted functions are the trainers' and the engine's own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mimesis_jax import types
from mimesis_jax.forest import blocks, shape
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.plan import decoding, faults, roofline, sizes
from mimesis_jax.plan.settings import Model, Settings
from mimesis_jax.plan.topology import Topology
from mimesis_jax.rollouts import scoring
from mimesis_jax.sharding import mesh
from mimesis_jax.sharding.layout import Layout
from mimesis_jax.trainers import optimizer, reinforce, supervised

struct: Any = jax.ShapeDtypeStruct  # stands for an array wherever one is typed


@dataclasses.dataclass(frozen=True)
class Program:
    """One compiled program of a step.

    lower(periods): the lowered program; of a decoder with so many periods where they are unrolled
    (`unrolled` says how many there are, 0 for a scan). arguments: pytrees of shapes by kind (see
    assemble.KINDS). held: bytes of a device by kind, estimated, while it runs. work: of one device.
    tokens: that all devices of the mesh take in one run. runs: how often in a step; None where it
    depends on what is said. parameters: of its model. depends: what it was made of, for the cache.
    sent: bytes that a device sends by the mesh's axes, counted from sizes (until it is compiled).
    """

    name: str
    lower: Callable[[int | None], Any]
    layout: Layout
    arguments: dict[str, Any]
    held: dict[str, int]
    work: roofline.Work
    tokens: int
    runs: int | None
    parameters: tuple[faults.Parameter, ...]
    depends: tuple
    sent: dict[str, int]
    unrolled: int = 0
    decoding: bool = False

    @property
    def mesh(self) -> dict[str, int]:
        return dict(self.layout.mesh.shape)

    def bytes(self) -> dict[str, int]:
        """Bytes of a device that the arguments take, by kind: the analytic sum."""
        return {kind: sizes.local(tree) for kind, tree in self.arguments.items()}


def build(settings: Settings, topology: Topology, devices: Sequence) -> list[Program]:
    """The programs of a step on a topology's devices (or stand-ins for them, in their order).

    Raises ValueError, with the mend, for a mesh that does not use the devices, a parameter that
    cannot be split, or rows that cannot.
    """
    layout = train_layout(settings, topology, devices)
    return [*training(settings, layout, topology), *engines(settings, topology, devices)]


def train_layout(settings: Settings, topology: Topology, devices: Sequence) -> Layout:
    """Where training lies. Raises ValueError as `build` does."""
    found = mesh.make(settings.mesh, devices)
    layout = Layout(found, settings.mesh.preset, "train")
    layout.check_rows(settings.shape.rows)
    if layout.size("data") % topology.slices:
        raise ValueError(
            f"mesh.data is {layout.size('data')} over {topology.slices} slices: weights are "
            f"gathered along fsdp, which must stay within a slice; use a multiple of "
            f"{topology.slices} (--config.mesh.preset=multislice has this axis)"
        )
    return layout


def engines(settings: Settings, topology: Topology, devices: Sequence) -> list[Program]:
    """Prefill and decode of both chairs, none where nothing is played; on one host's devices."""
    local = list(devices)[: topology.local]
    programs: list[Program] = []
    for chair, model in settings.chairs().items():
        lies = decoding.layout(model.spec, local)
        programs += _engine(settings, chair, model, lies, topology)
    return programs


# --- training ---------------------------------------------------------------------------------


def forest(rows: shape.Shape, layout: Layout) -> types.Forest:
    """Shapes of a micro-batch, split by rows."""
    b, t, m, n = rows.rows, rows.length, rows.learned, rows.length // rows.chunk
    own = lambda dims, dtype=jnp.int32: struct((b, *dims), dtype, sharding=layout.rows)
    lists = None
    if rows.long:
        if rows.kernel == "splash":
            raise ValueError("shape.kernel 'splash' is not planned yet: set kernel to 'loop'")
        pairs = blocks.pair_count(t, rows.block)
        lists = types.Blocks(own((pairs,)), own((pairs,)), own(()), None, size=rows.block)
    token, chunk, learned = own((t,)), own((n,)), own((m,))
    number = own((m,), jnp.float32)
    return types.Forest(
        tokens=token, valid=own((t,), bool), position=token, last=token, halo=own((n, 3)),
        load=chunk, store=chunk, source=learned, target=learned, weight=number, old_logp=number,
        advantage=number, gate=number, coached=number, slots=rows.slots, blocks=lists,
        kept=chunk if rows.inside else None,
    )  # fmt: skip


def placed(tree: Any, places: Any) -> Any:
    """Shapes with their shardings."""
    return jax.tree.map(lambda x, place: struct(x.shape, x.dtype, sharding=place), tree, places)


def parameters(spec: specs.Spec, layout: Layout) -> tuple[faults.Parameter, ...]:
    """Every parameter and how it is split."""
    shapes = sizes.shapes(spec)
    places = layout.params(sizes.axes(spec), shapes)
    flat, _ = jax.tree_util.tree_flatten_with_path(shapes)
    found = []
    for (path, leaf), place in zip(flat, jax.tree.leaves(places), strict=True):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        local = int(np.prod(place.shard_shape(leaf.shape), dtype=np.int64)) * leaf.dtype.itemsize
        spread = ", ".join(str(axis) for axis in place.spec) or "whole"
        found.append(
            faults.Parameter(
                name, leaf.shape, name.startswith("periods/"), spread,
                leaf.size * leaf.dtype.itemsize, local,
            )
        )  # fmt: skip
    return tuple(found)


@functools.lru_cache(maxsize=16)
def _state(spec: specs.Spec, config: optimizer.Config) -> optimizer.State:
    """Shapes of the training state."""
    return jax.eval_shape(lambda p: optimizer.init(p, config), sizes.shapes(spec))


def _made(spec: specs.Spec, layout: Layout, topology: Topology) -> tuple:
    """What every program of a model depends on."""
    sizes = tuple(layout.mesh.shape.items())
    return topology.compiler, topology.slices, layout.preset, layout.use, sizes, spec


def training(settings: Settings, layout: Layout, topology: Topology) -> list[Program]:
    """Update (one micro-batch), apply, and the scoring forward of what is played."""
    spec, config = settings.model.spec, settings.optimizer
    compute = decoder.Compute(settings.model.remat, layout)
    shapes = sizes.shapes(spec)
    lies = layout.params(sizes.axes(spec), shapes)
    params = placed(shapes, lies)
    grads = jax.tree.map(lambda x: struct(x.shape, jnp.float32, sharding=x.sharding), params)
    state = _state(spec, config)
    state = placed(state, layout.like(state, lies))
    batch = forest(settings.shape, layout)
    scalar = struct((), jnp.float32, sharding=layout.whole)
    if settings.plays:
        knobs = {field.name: scalar for field in dataclasses.fields(reinforce.Loss)}
        totals = {"policy": scalar, "csd": scalar}
        update = lambda _: reinforce.accumulate.lower(
            spec, params, grads, batch, knobs, totals, compute
        )
    else:
        update = lambda _: supervised.accumulate.lower(spec, params, grads, batch, scalar, compute)
    apply = lambda _: optimizer.apply.lower(state, grads, scalar, config, spec, compute)
    held, made = parameters(spec, layout), _made(spec, layout, topology)
    tokens = settings.shape.rows * settings.shape.length
    rest = [getattr(state, f.name) for f in dataclasses.fields(state) if f.name != "params"]
    found = [
        Program(
            "update", update, layout,
            {"parameters": params, "gradients": grads, "batch": batch},
            sizes.training(settings, layout), sizes.update(settings, layout), tokens,
            settings.micro_batches, held,
            (*made, settings.shape, settings.model.remat, settings.plays),
            sizes.sent(settings, layout, gradient=True),
        ),
        Program(
            "apply", apply, layout,
            {"parameters": state.params, "optimizer": rest, "gradients": grads},
            {}, sizes.apply(settings, layout), 0, 1, held, (*made, config), {},
        ),
    ]  # fmt: skip
    if settings.plays:
        score = lambda _: scoring.forward.lower(spec, params, batch, scalar, compute)
        found.append(Program(
            "score", score, layout, {"parameters": params, "batch": batch},
            sizes.scoring(settings, layout), sizes.score(settings, layout), tokens, None, held,
            (*made, settings.shape), sizes.sent(settings, layout, gradient=False),
        ))  # fmt: skip
    return found


# --- decoding ---------------------------------------------------------------------------------


def decoded(model: Model) -> specs.Spec:
    """The spec of the copy that decodes: weights in the dtype of the products."""
    return dataclasses.replace(model.spec, param_dtype=model.spec.dtype)


def _engine(
    settings: Settings, chair: str, model: Model, lies: Layout, topology: Topology
) -> list[Program]:
    """Prefill and decode of one chair's engine on one host."""
    spec, config = decoded(model), settings.engine
    assert config is not None
    few = lambda periods: dataclasses.replace(spec, periods=periods or spec.periods)
    arguments = {
        "decoding weights": decoding.weights(spec, lies),
        **decoding.split_cache(decoding.state(spec, lies, config)),
    }
    held, made = parameters(spec, lies), (*_made(spec, lies, topology), config)
    rows, tokens = sizes.fed(config, lies)
    return [
        Program(
            f"{chair} prefill", lambda n: decoding.prefill(few(n), lies, config), lies, arguments,
            sizes.prefilling(spec, lies, config), sizes.prefill(spec, lies, config),
            rows * lies.split_rows * tokens, None, held, made,
            sizes.sent_decoding(spec, lies, rows * tokens, 1), spec.periods, True,
        ),
        Program(
            f"{chair} decode", lambda n: decoding.decode(few(n), lies, config), lies, arguments,
            sizes.decoding(spec, lies, config), sizes.decode(spec, lies, config),
            config.slots * config.block, None, held, made,
            sizes.sent_decoding(spec, lies, config.slots // lies.split_rows, config.block),
            spec.periods, True,
        ),
    ]  # fmt: skip
