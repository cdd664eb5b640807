"""The devices of a run: its configuration's mesh, and where training and decoding lie on it."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax

from mimesis_jax import config as configs
from mimesis_jax.forest import pack
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.sharding import layout, mesh


@dataclasses.dataclass(frozen=True)
class Devices:
    """compute: of scoring and updates, over the devices of all processes. decode: layout of this
    process's engines, over its own devices (None: one device)."""

    compute: decoder.Compute = decoder.ALONE
    decode: layout.Layout | None = None

    def fresh(self, spec: specs.Spec, seed: int) -> decoder.Params:
        """Initial parameters, made where they belong; the same numbers on any mesh."""
        return _init(self.compute.layout, spec)(jax.random.key(seed))

    def template(self, spec: specs.Spec) -> Any:
        """Shapes of the parameters with their places, to restore into."""
        abstract = decoder.abstract(spec)
        if self.compute.layout is None:
            here = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            places = jax.tree.map(lambda _: here, abstract)
        else:
            places = self.compute.layout.params(decoder.axes(spec), abstract)
        return jax.tree.map(
            lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
            abstract, places,
        )  # fmt: skip


ALONE = Devices()


@functools.lru_cache(maxsize=8)
def _init(where: layout.Layout | None, spec: specs.Spec):
    lies = None if where is None else where.params(decoder.axes(spec), decoder.abstract(spec))
    return jax.jit(functools.partial(decoder.init, spec), out_shardings=lies)


def of(config: mesh.Config, spec: specs.Spec, shape: pack.Shape, *,
       remat: decoder.Remat = "none", rows: str = "config.shape.rows") -> Devices:  # fmt: skip
    """The devices that a configuration asks for. rows: its key that sets those of `shape`.

    One process with more devices than the mesh has uses the first ones. Raises ConfigError, before
    anything is allocated, where the mesh, the model or the rows of a batch cannot be split.
    """
    try:
        made = mesh.make(config)
        if made.size == 1 and jax.process_count() == 1:
            return Devices(decoder.Compute(remat))
        where = layout.Layout(made, config.preset)
        where.check_rows(shape.rows, rows)
        where.params(decoder.axes(spec), decoder.abstract(spec))
        own = where
        if jax.process_count() > 1:
            # Decoding never spans processes: heads over tensor, the rest of the devices by slots.
            sizes = mesh.Config(config.preset, 1, -1, where.size(layout.HEADS))
            own = layout.Layout(mesh.make(sizes, jax.local_devices()), config.preset)
    except ValueError as error:
        raise configs.ConfigError(str(error)) from error
    alone = own.mesh.size == 1 and jax.process_count() == 1
    return Devices(decoder.Compute(remat, where), None if alone else own)
