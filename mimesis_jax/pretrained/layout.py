"""Where each tensor of a checkpoint lies in our parameters: the one table that both ways read.

A tensor of the hub is [out, in]; ours are [in, out] with heads as axes of their own and the periods
stacked in front. So each of our weights is a run of a tensor's rows, viewed in more axes and
transposed: nothing else, and invertible.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import math
from collections.abc import Iterable

import jax

from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import tensors

PREFIXES = ("model.language_model.", "model.")
HEAD, EMBED = "lm_head.weight", "embed_tokens.weight"
IGNORED = ("model.visual.*", "mtp.*", "*.rotary_emb.inv_freq")
SHOWN = 12  # names that an error lists


@dataclasses.dataclass(frozen=True)
class Piece:
    """Rows of one tensor that are one of our weights (in one period).

    name: the tensor's, without prefix. shape: the whole tensor's.
    start: first row. view: the rows as seen, its first `lead` axes are the rows' own.
    turn: our axes are the view's axes in this order.
    """

    name: str
    shape: tuple[int, ...]
    start: int
    view: tuple[int, ...]
    lead: int
    turn: tuple[int, ...]

    @property
    def unit(self) -> int:
        """Rows in one step of the view's leading axis."""
        return math.prod(self.view[1 : self.lead])

    @property
    def rows(self) -> int:
        return math.prod(self.view[: self.lead])


@dataclasses.dataclass(frozen=True)
class Leaf:
    """One of our parameters. path: its keys. pieces: one, or one a period (then `stacked`)."""

    path: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: str
    pieces: tuple[Piece, ...]
    stacked: bool

    @property
    def name(self) -> str:
        return ".".join(self.path)


def leaves(spec: specs.Spec) -> tuple[Leaf, ...]:
    """The table of a Spec, in the order of our parameters."""
    found = []
    for keys, leaf in jax.tree_util.tree_leaves_with_path(decoder.abstract(spec)):
        path = tuple(str(key.key) for key in keys)
        stacked = path[0] == "periods"
        if stacked:
            place = spec.names.index(path[1])
            layers = range(place, spec.layers, len(spec.period))
            kind = spec.period[place]
            pieces = tuple(
                _in_layer(kind, path[2:], leaf.shape[1:], f"layers.{i}.", spec) for i in layers
            )
        else:
            name = {"embed": EMBED, "norm": "norm.weight", "head": HEAD}[path[0]]
            pieces = (_same(name, leaf.shape),)
        found.append(Leaf(path, leaf.shape, str(leaf.dtype), pieces, stacked))
    return tuple(found)


def _same(name: str, shape: tuple[int, ...], lead: int | None = None) -> Piece:
    """A tensor that is ours but for its rows, which may be heads and dims (the first `lead`)."""
    lead = lead or 1
    whole = (math.prod(shape[:lead]), *shape[lead:])
    return Piece(name, whole, 0, shape, lead, tuple(range(len(shape))))


def _matrix(name: str, shape: tuple[int, ...], inputs: int = 1) -> Piece:
    """A matrix [out, in] whose transpose is ours, the first `inputs` axes of it are read."""
    ins, outs = shape[:inputs], shape[inputs:]
    lead = len(outs)
    turn = (*range(lead, len(shape)), *range(lead))
    return Piece(name, (math.prod(outs), math.prod(ins)), 0, outs + ins, lead, turn)


def _in_layer(kind, path: tuple[str, ...], shape, before: str, spec: specs.Spec) -> Piece:
    """The piece of one layer's weight at `path` below layerN."""
    if path[0] in ("norm_in", "norm_post"):
        theirs = {"norm_in": "input_layernorm", "norm_post": "post_attention_layernorm"}[path[0]]
        return _same(f"{before}{theirs}.weight", shape)
    if path[0] == "mlp":
        return _matrix(f"{before}mlp.{path[1]}_proj.weight", shape)
    name = path[1]
    if kind == "linear":
        return _linear(name, shape, f"{before}linear_attn.", spec)
    before = f"{before}self_attn."
    if name == "out":
        return _matrix(f"{before}o_proj.weight", shape, inputs=2)
    if name.endswith("_bias"):
        return _same(f"{before}{name[0]}_proj.bias", shape, lead=len(shape))
    if name.endswith("_norm"):
        return _same(f"{before}{name}.weight", shape)
    return _matrix(f"{before}{name}_proj.weight", shape)


def _linear(name: str, shape: tuple[int, ...], before: str, spec: specs.Spec) -> Piece:
    """A weight of a gated DeltaNet layer; q, k and v share one projection and one convolution."""
    key = spec.linear_key_heads * spec.linear_key_dim
    start = {"q": 0, "k": key, "v": 2 * key}[name[-1]] if name[-1] in "qkv" else 0
    if name in ("q", "k", "v"):
        piece = _matrix(f"{before}in_proj_qkv.weight", shape)
        return dataclasses.replace(piece, shape=(spec.conv_channels, spec.width), start=start)
    if name.startswith("conv_"):
        taps, heads, dim = shape
        whole = (spec.conv_channels, 1, taps)
        return Piece(f"{before}conv1d.weight", whole, start, (heads, dim, taps), 2, (2, 0, 1))
    if name in ("z", "a", "b"):
        return _matrix(f"{before}in_proj_{name}.weight", shape)
    if name == "out":
        return _matrix(f"{before}out_proj.weight", shape, inputs=2)
    theirs = {"a_log": "A_log", "dt_bias": "dt_bias", "norm": "norm.weight"}[name]
    return _same(before + theirs, shape)


# --- accounting -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Account:
    """Every name of a checkpoint, accounted for.

    prefix: of the text tensors. ignored: names that are known and no part of the text model.
    twin: the head of a tied checkpoint that is stored all the same, None when it is not.
    """

    prefix: str
    ignored: tuple[str, ...]
    twin: str | None

    def full(self, name: str) -> str:
        """A tensor's name in the checkpoint."""
        return full(self.prefix, name)


def full(prefix: str, name: str) -> str:
    """A tensor's whole name; the head's lies at the top whatever the prefix."""
    return name if name == HEAD else prefix + name


def account(spec: specs.Spec, names: Iterable[str], where: object) -> Account:
    """Sorts the names of a checkpoint. `where` is named in errors.

    Raises Refused listing all tensors that are missing and all that nobody knows.
    """
    names = set(names)
    prefix = next((p for p in PREFIXES if p + EMBED in names), PREFIXES[-1])
    wanted = {full(prefix, piece.name) for leaf in leaves(spec) for piece in leaf.pieces}
    ignored = {n for n in names - wanted if any(fnmatch.fnmatchcase(n, p) for p in IGNORED)}
    twin = HEAD if spec.tied and HEAD in names else None
    strangers = names - wanted - ignored - {twin}
    missing = wanted - names
    if strangers or missing:
        told = [f"{len(missing)} tensors are missing: {_listed(missing)}"] if missing else []
        told += [f"{len(strangers)} are unknown: {_listed(strangers)}"] if strangers else []
        raise tensors.Refused(
            f"{where} does not hold the model of its config.json; {'; '.join(told)}"
        )
    return Account(prefix, tuple(sorted(ignored)), twin)


def shapes(spec: specs.Spec, account: Account, entries: dict[str, tensors.Entry]) -> None:
    """Raises Refused naming a tensor, its shape and the one wanted, or a dtype that is no float."""
    for leaf in leaves(spec):
        for piece in leaf.pieces:
            entry = entries[account.full(piece.name)]
            if entry.shape != piece.shape:
                raise tensors.Refused(
                    f"{entry.name} in {entry.file} has shape {list(entry.shape)}, config.json "
                    f"wants {list(piece.shape)}: config and weights are of two models"
                )
            if entry.dtype not in tensors.FLOATS:
                raise tensors.Refused(
                    f"{entry.name} in {entry.file} is {entry.dtype}: weights must be one of "
                    f"{', '.join(tensors.FLOATS)}; give a checkpoint that is not quantised"
                )


def _listed(names: set[str]) -> str:
    shown = sorted(names)[:SHOWN]
    rest = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(n[:120] for n in shown) + rest
