"""The decoder: embedding, periods of gated DeltaNet and attention layers, final norm.

flax.nnx modules live inside; outside, a model is a frozen Spec, a nested dict of arrays and the
pure functions of this file (and of heads and cache).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import nnx

from mimesis_jax import types
from mimesis_jax.models import attention, context, deltanet, norms, parallel, weights
from mimesis_jax.models import spec as specs
from mimesis_jax.sharding.layout import Layout

Params = dict[str, Any]
Remat = Literal["none", "full", "dots"]
POLICIES = {  # what a period keeps for the backward pass; None: its input only
    "full": None,
    # Products with weights. Those of attention and the delta rule have batch axes: made again.
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
}


@dataclasses.dataclass(frozen=True)
class Compute:
    """How a forward and its gradient are computed; what they give does not depend on it.

    remat: what the backward pass makes again, see `hidden`. layout: over which devices, and where
    everything lies; None: on one.
    """

    remat: Remat = "none"
    layout: Layout | None = None

    def __post_init__(self):
        _check_remat(self.remat)

    def place(self, batch: Any) -> Any:
        """Host arrays [B, ...] where the computation takes them."""
        return batch if self.layout is None else self.layout.place(batch)

    def whole(self, value: Any) -> Any:
        """Traced arrays that every device, and every process, shall have all of."""
        if self.layout is None:
            return value
        return jax.lax.with_sharding_constraint(value, self.layout.whole)


def _check_remat(remat: str) -> None:
    if remat not in ("none", *POLICIES):
        raise ValueError(f"remat {remat!r} is unknown: use 'none', 'full' or 'dots'")


ALONE = Compute()
MIXERS = {"linear": deltanet.DeltaNet, "full": attention.Attention}


def _norm(spec: specs.Spec) -> weights.Weight:
    return weights.Weight((spec.width,), ("norm",), "zeros" if spec.norm == "one_plus" else "ones")


class Mlp(weights.Holder):
    """SwiGLU: down(silu(gate x) * up x)."""

    gate: nnx.Param
    up: nnx.Param
    down: nnx.Param

    def __init__(self, spec: specs.Spec, make: weights.Make, path: str):
        into = weights.Weight((spec.width, spec.mlp), ("width", "mlp"))
        back = weights.Weight((spec.mlp, spec.width), ("mlp", "width"))
        super().__init__({"gate": into, "up": into, "down": back}, make, path)

    def __call__(self, x: jax.Array) -> jax.Array:
        inner = jax.nn.silu(weights.product(x, self.gate[...])) * weights.product(x, self.up[...])
        return weights.product(inner, self.down[...])


class Layer(weights.Holder):
    """x += mixer(norm(x)); x += mlp(norm(x)). x [N, D]."""

    norm_in: nnx.Param
    norm_post: nnx.Param
    mixer: Any

    def __init__(self, kind: specs.LayerKind, spec: specs.Spec, make: weights.Make, path: str):
        super().__init__({"norm_in": _norm(spec), "norm_post": _norm(spec)}, make, path)
        self.mixer = MIXERS[kind](spec, make, f"{path}.mixer")
        self.mlp = Mlp(spec, make, f"{path}.mlp")
        self.spec = spec

    def enter(self, x: jax.Array) -> jax.Array:
        return norms.rms(x, self.norm_in[...], kind=self.spec.norm, eps=self.spec.eps)

    def leave(
        self, x: jax.Array, mixed: jax.Array, device: parallel.Device = parallel.ALONE
    ) -> jax.Array:
        x = x + device.total(mixed)
        post = norms.rms(x, self.norm_post[...], kind=self.spec.norm, eps=self.spec.eps)
        return x + device.total(self.mlp(post))


class Period(nnx.Module):
    """The layers of one period, layer0, layer1, ..."""

    def __init__(self, spec: specs.Spec, make: weights.Make, path: str):
        for name, kind in zip(spec.names, spec.period, strict=True):
            setattr(self, name, Layer(kind, spec, make, f"{path}.{name}"))
        self.names = spec.names

    def layers(self) -> list[Layer]:
        return [getattr(self, name) for name in self.names]

    def __call__(
        self, x: jax.Array, trees: context.Trees, device: parallel.Device = parallel.ALONE
    ) -> jax.Array:
        for layer in self.layers():
            x = layer.leave(x, layer.mixer(layer.enter(x), trees), device)
        return x


class Decoder(nnx.Module):
    """Embedding, stacked periods, final norm, and the head's matrix unless it is the embedding."""

    def __init__(self, spec: specs.Spec, make: weights.Make):
        rows = weights.Weight((spec.vocab, spec.width), ("vocab", "width"))
        self.embed = nnx.Param(make("embed", rows))
        stack = lambda path, weight: make(path, weight.stacked(spec.periods))
        self.periods = Period(spec, stack, "periods")
        self.norm = nnx.Param(make("norm", _norm(spec)))
        if not spec.tied:
            self.head = nnx.Param(make("head", rows))
        self.spec = spec

    def lookup(self, tokens: jax.Array) -> jax.Array:
        """Embeddings [N, D] of tokens [N], in the compute dtype."""
        return self.embed[...][tokens].astype(self.spec.dtype)

    def normed(self, x: jax.Array) -> jax.Array:
        return norms.rms(x, self.norm[...], kind=self.spec.norm, eps=self.spec.eps)

    def period(self, index: int) -> Period:
        """One period with its own weights, cut out of the stack."""
        graph, stack = nnx.split(self.periods)
        return nnx.merge(graph, jax.tree.map(lambda leaf: leaf[index], stack))

    def __call__(
        self, forest: types.Forest, remat: Remat, device: parallel.Device | None = None
    ) -> jax.Array:
        device = device or dataclasses.replace(parallel.ALONE, dtype=self.spec.dtype)
        trees = context.trees(self.spec, forest)
        graph, stack = nnx.split(self.periods)

        def body(x, part):
            own = nnx.State(device.open(part))
            return nnx.merge(graph, own)(x, trees, device), None

        if remat != "none":
            # prevent_cse is only needed outside scans; inside it would block useful fusion.
            body = jax.checkpoint(body, prevent_cse=False, policy=POLICIES[remat])
        x = device.lookup(self.embed[...], forest.tokens.reshape(-1))
        x, _ = jax.lax.scan(body, x, nnx.to_pure_dict(stack))
        return self.normed(x).reshape(*forest.tokens.shape, -1)


# --- the door: specs, dicts of arrays, functions ----------------------------------------------


def _collect(spec: specs.Spec, make) -> Params:
    _, state = nnx.split(Decoder(spec, make))
    return nnx.to_pure_dict(state)


def init(spec: specs.Spec, key: jax.Array) -> Params:
    """Fresh parameters as a nested dict; weights of the periods are stacked on a leading axis."""
    make = lambda path, weight: weights.draw(
        key, path, weight, std=spec.init_std, dtype=spec.param_dtype
    )
    return _collect(spec, make)


def abstract(spec: specs.Spec) -> Params:
    """Shapes and dtypes (jax.ShapeDtypeStruct) of the parameters; nothing is computed."""
    return jax.eval_shape(functools.partial(init, spec), jax.random.key(0))


def axes(spec: specs.Spec) -> Params:
    """Logical axis names of every parameter: a tuple of names (or None) at each leaf."""
    found: Params = {}

    def make(path, weight):
        *inner, name = path.split(".")
        place = found
        for part in inner:
            place = place.setdefault(part, {})
        place[name] = weight.axes
        return jax.ShapeDtypeStruct(weight.shape, weight.dtype or spec.param_dtype)

    Decoder(spec, make)
    return found


def parameter_count(spec: specs.Spec) -> int:
    """Number of parameters, a tied embedding counted once."""
    return sum(leaf.size for leaf in jax.tree.leaves(abstract(spec)))


@functools.lru_cache(maxsize=64)
def _graph(spec: specs.Spec):
    make = lambda path, weight: jnp.zeros(weight.shape, weight.dtype or spec.param_dtype)
    return nnx.split(nnx.eval_shape(lambda: Decoder(spec, make)))[0]


def module(spec: specs.Spec, params: Params) -> Decoder:
    """The nnx module with these parameters (used by the rooms of this package)."""
    return nnx.merge(_graph(spec), nnx.State(params))


def hidden(
    spec: specs.Spec,
    params: Params,
    forest: types.Forest,
    *,
    remat: Remat | bool = "none",
    layout: Layout | None = None,
) -> jax.Array:
    """Hidden states [B, T, D] after the final norm, in spec.dtype; padding holds finite noise.

    forest: see types.Forest (tokens, valid, position, last, halo, load, store are read).
    remat: what the backward pass makes again, period by period. "none": nothing, all activations
    are kept; "full": everything, only each period's input is kept; "dots": all but the products
    with weights, which are kept (between the two in memory and in time). False and True are "none"
    and "full".
    layout: params and forest lie on its mesh as it says, and so does the result (by rows).

    Raises ValueError when the forest's chunk is not a power of two that divides T, for a remat
    that is none of these, and when sizes cannot be split as the layout says.
    """
    policy: Remat = remat if isinstance(remat, str) else "full" if remat else "none"
    _check_remat(policy)
    length, chunks = forest.tokens.shape[1], forest.load.shape[1]
    size = length // chunks
    if size * chunks != length or size & (size - 1):
        raise ValueError(
            f"rows of {length} tokens in {chunks} chunks: the chunk must be a power of two "
            "that divides the row (8, 16, 32 or 64)"
        )
    if layout is None:
        return module(spec, params)(forest, policy)
    layout.check_rows(forest.tokens.shape[0])
    lies = layout.specs(axes(spec), abstract(spec))
    own, device = parallel.local(spec, layout), parallel.device(spec, layout, lies)
    body = lambda params, forest: module(own, params)(forest, policy, device)
    return parallel.run(layout, lies, body, params, forest)
