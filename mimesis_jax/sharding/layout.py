"""Where arrays lie on a mesh: parameters by their logical axes, batches by rows, the rest whole."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from mimesis_jax.sharding import table

ROWS = ("data", "fsdp")  # mesh axes that the rows of a batch are split over
WIDTH, HEADS = "fsdp", "tensor"
Tree = Any


@dataclasses.dataclass(frozen=True)
class Layout:
    """A mesh and the table that is used on it. Hashable, so that it can be a static argument.

    mesh: with the axes data, fsdp and tensor (sharding.mesh). preset: of table.PRESETS.
    use: "train" or "decode".
    """

    mesh: jax.sharding.Mesh
    preset: str = "fsdp"
    use: str = "train"

    def __post_init__(self):
        table.preset(self.preset).rules(self.use)
        missing = [name for name in (*ROWS, HEADS) if name not in self.mesh.axis_names]
        if missing:
            raise ValueError(
                f"the mesh has the axes {self.mesh.axis_names} and no {missing[0]!r}: make it by "
                "sharding.mesh.make"
            )

    def size(self, *axes: str) -> int:
        """Devices along the axes together."""
        return int(np.prod([self.mesh.shape[name] for name in axes], dtype=int))

    @property
    def split_rows(self) -> int:
        """Into how many parts the rows of a batch are split."""
        return self.size(*ROWS)

    def rules(self) -> table.Rules:
        return table.preset(self.preset).rules(self.use)

    # --- parameters -----------------------------------------------------------------------------

    def spec(self, path: str, axes: tuple[str | None, ...], shape: tuple[int, ...]) -> P:
        """How one parameter is split, given the logical axis and the size of each of its axes.

        kv_heads fewer than the tensor axis stay whole where they divide it: each device then uses
        the one that its query heads read. Raises ValueError that names the parameter, the axis, its
        size and the nearest size that works.
        """
        rules = self.rules()
        places: list[str | None] = []
        for name, count in zip(axes, shape, strict=True):
            if name is not None and name not in rules:
                raise ValueError(
                    f"{path}: the logical axis {name!r} is in no table: add it to sharding.table"
                )
            place = None if name is None else rules[name]
            devices = 1 if place is None else self.size(place)
            if place is not None and count % devices:
                if name == "kv_heads" and devices % count == 0:
                    place = None
                else:
                    fits = [n for n in range(1, count + 1) if count % n == 0]
                    near = min(fits, key=lambda n: (abs(n - devices), n))
                    raise ValueError(
                        f"{path}: its axis {name!r} of {count} cannot be split over the {devices} "
                        f"devices of the mesh axis {place!r}: use --config.mesh.{place}={near}"
                    )
            places.append(place if devices > 1 else None)
        return P(*places)

    def specs(self, axes: Tree, abstract: Tree) -> Tree:
        """`spec` of every parameter. axes, abstract: nested dicts (decoder.axes, .abstract)."""
        flat, form = jax.tree_util.tree_flatten_with_path(abstract)
        named = jax.tree.leaves(axes, is_leaf=lambda x: isinstance(x, tuple))
        found = []
        for (path, leaf), names in zip(flat, named, strict=True):
            name = jax.tree_util.keystr(path, simple=True, separator="/")
            found.append(self.spec(name, names, leaf.shape))
        return jax.tree.unflatten(form, found)

    def params(self, axes: Tree, abstract: Tree) -> Tree:
        """`specs` as NamedShardings."""
        return jax.tree.map(self.named, self.specs(axes, abstract))

    def like(self, state: Tree, params: Tree) -> Tree:
        """Shardings of a state (moments, accumulators) whose leaves are named as parameters are.

        state: pytree of arrays or shapes. params: shardings of the parameters. A leaf whose path
        ends in a parameter's path, and that has as many axes, lies as the parameter does; all else
        (counters) is whole.
        """
        known = {
            _names(path): place for path, place in jax.tree_util.tree_flatten_with_path(params)[0]
        }

        def of(path, leaf):
            names = _names(path)
            for start in range(len(names)):
                place = known.get(names[start:])
                if place is not None and len(place.spec) == np.ndim(leaf):
                    return place
            return self.whole

        return jax.tree_util.tree_map_with_path(of, state)

    # --- everything else ------------------------------------------------------------------------

    def named(self, spec: P) -> NamedSharding:
        return NamedSharding(self.mesh, spec)

    @property
    def rows(self) -> NamedSharding:
        """Of arrays whose first axis is the rows of a batch."""
        return self.named(P(ROWS))

    @property
    def whole(self) -> NamedSharding:
        """Of arrays that every device has all of."""
        return self.named(P())

    def check_rows(self, rows: int, key: str = "config.shape.rows") -> None:
        """Raises ValueError unless a batch of so many rows can be split. key: what sets them."""
        if rows % self.split_rows:
            up = -(-rows // self.split_rows) * self.split_rows
            raise ValueError(
                f"{rows} rows of a batch cannot be split over the {self.split_rows} devices of "
                f"data x fsdp: use --{key}={up}"
            )

    def place(self, batch: Tree) -> Tree:
        """Host arrays [B, ...], the same on every process, as arrays split by rows.

        Each process hands over only what its own devices hold.
        """

        def one(x):
            x = np.asarray(x)
            self.check_rows(len(x))
            return jax.make_array_from_callback(x.shape, self.rows, lambda index: x[index])

        return jax.tree.map(one, batch)


def _names(path) -> tuple[str, ...]:
    """The keys of a path as text; a field, a dict's key and a number alike."""
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)
