"""Checkpoints in and out: bit for bit, sharded, with everything carried along, within memory."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import textwrap

import jax
import made_checkpoint as made
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax import pretrained
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import (
    folder,
    fresh_config,
    importing,
    keeping,
    layout,
    placing,
    tensors,
)
from mimesis_jax.runs import checkpoint


@pytest.mark.parametrize("name", made.FAMILIES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_was_exported_is_imported_bit_for_bit(tmp_path, name, dtype):
    spec = dataclasses.replace(made.FAMILIES[name], param_dtype=dtype)
    params = made.params(spec)
    pretrained.save(tmp_path / "out", spec, params)
    back, again = pretrained.load(tmp_path / "out")
    assert made.equal(params, again)
    assert (back.param_dtype, back.period, back.width) == (dtype, spec.period, spec.width)
    assert pretrained.spec_of(tmp_path / "out") == back
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


def test_a_matrix_is_turned_as_the_hub_lays_it_out(tmp_path):
    found = made.hub(tmp_path / "hub")
    spec, params = pretrained.load(tmp_path / "hub", dtype="float32")
    layers = "model.language_model.layers"
    number = lambda name: np.asarray(found[f"{layers}.{name}"], np.float32)
    full, linear = params["periods"]["layer3"], params["periods"]["layer1"]
    # q_proj's rows are per head [query | gate]: layer 7 is the second period's full layer.
    q = number("7.self_attn.q_proj.weight")
    for head in range(4):
        for half in range(2):
            rows = slice(head * 32 + half * 16, head * 32 + half * 16 + 16)
            np.testing.assert_array_equal(full["mixer"]["q"][1][:, head, half], q[rows].T)
    o = number("3.self_attn.o_proj.weight")
    np.testing.assert_array_equal(full["mixer"]["out"][0][2], o[:, 32:48].T)
    qkv, conv = number("5.linear_attn.in_proj_qkv.weight"), number("5.linear_attn.conv1d.weight")
    np.testing.assert_array_equal(linear["mixer"]["k"][1][:, 1], qkv[24:32].T)
    np.testing.assert_array_equal(linear["mixer"]["v"][1][:, 3], qkv[32 + 36 :].T)
    np.testing.assert_array_equal(linear["mixer"]["conv_v"][1][2, 1], conv[32 + 12 : 32 + 24, 0, 2])
    np.testing.assert_array_equal(linear["mixer"]["a_log"][0], number("1.linear_attn.A_log"))
    np.testing.assert_array_equal(
        params["embed"], np.float32(found["model.language_model.embed_tokens.weight"])
    )
    assert (spec.vocab, spec.vocab_real) == (96, 91)  # the tokenizer's ids, added ones included


@pytest.mark.parametrize("split", [False, True])
def test_a_hub_checkpoint_comes_back_whole(tmp_path, split):
    made.hub(tmp_path / "hub", split=split)
    spec, params = pretrained.load(tmp_path / "hub")
    pretrained.save(tmp_path / "out", spec, params, source=tmp_path / "hub")
    assert made.read(tmp_path / "out") == made.read(tmp_path / "hub")
    files = {p.name for p in (tmp_path / "out").iterdir()}
    assert files == {
        "LICENSE", "chat_template.jinja", "config.json", "generation_config.json",
        "model.safetensors", "tokenizer.json",
    }  # fmt: skip
    config = json.loads((tmp_path / "hub" / "config.json").read_text())
    assert json.loads((tmp_path / "out" / "config.json").read_text()) == config


def test_masters_are_float32_and_decay_and_gated_norm_stay_so(tmp_path):
    found = made.hub(tmp_path / "hub")
    spec, params = pretrained.load(tmp_path / "hub", dtype="bfloat16", compute="float32")
    mixer = params["periods"]["layer0"]["mixer"]
    assert (mixer["a_log"].dtype, mixer["norm"].dtype) == ("float32", "float32")
    assert (mixer["q"].dtype, spec.dtype, spec.param_dtype) == ("bfloat16", "float32", "bfloat16")
    spec, params = pretrained.load(tmp_path / "hub", dtype="float32")
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(params)} == {"float32"}
    assert (spec.dtype, spec.param_dtype) == ("bfloat16", "float32")
    pretrained.save(tmp_path / "wide", spec, params, source=tmp_path / "hub")
    config = json.loads((tmp_path / "wide" / "config.json").read_text())
    assert config["text_config"]["dtype"] == "float32"
    pretrained.save(tmp_path / "out", spec, params, source=tmp_path / "hub", dtype="bfloat16")
    assert made.read(tmp_path / "out") == made.read(tmp_path / "hub")
    assert len(found) == len(made.read(tmp_path / "out"))


def test_export_is_sharded_above_a_size(tmp_path):
    spec, params = made.plain(tmp_path / "out", shard=30_000)
    index = json.loads((tmp_path / "out" / folder.INDEX).read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 3 and files[0] == f"model-00001-of-{len(files):05d}.safetensors"
    assert index["metadata"]["total_size"] == 4 * decoder.parameter_count(spec)
    biggest = max(leaf.size * 4 for leaf in jax.tree.leaves(params))
    sizes = [(tmp_path / "out" / file).stat().st_size for file in files]
    assert max(sizes) < max(30_000, biggest) + 10_000
    # Layers lie in the order of their numbers, so a shard holds neighbours.
    order = [index["weight_map"][f"model.layers.{i}.input_layernorm.weight"] for i in range(8)]
    assert order == sorted(order)
    assert made.equal(pretrained.load(tmp_path / "out")[1], params)


def test_a_tied_head_may_be_stored_when_it_is_the_embedding(tmp_path):
    spec, params = made.plain(tmp_path / "out")
    file = tmp_path / "out" / folder.SINGLE
    entries = tensors.header(file)
    whole = {n: e.rows(0, e.shape[0]) for n, e in entries.items()}
    whole["lm_head.weight"] = whole["model.embed_tokens.weight"]
    tensors.write(file, [made.content(n, a) for n, a in whole.items()])
    assert made.equal(pretrained.load(tmp_path / "out")[1], params)
    pretrained.save(tmp_path / "again", spec, params, source=tmp_path / "out")
    assert "lm_head.weight" not in made.read(tmp_path / "again")
    whole["lm_head.weight"] = whole["lm_head.weight"] + 1
    tensors.write(file, [made.content(n, a) for n, a in whole.items()])
    with pytest.raises(pretrained.Refused, match="is not the embedding"):
        pretrained.load(tmp_path / "out")


def test_a_frozen_checkpoint_gives_its_source_back(tmp_path):
    made.hub(tmp_path / "hub")
    spec, params = pretrained.load(tmp_path / "hub")
    digest = keeping.keep(tmp_path / "ours", spec, params, source=tmp_path / "hub")
    assert digest == checkpoint.content_hash(params)
    assert pretrained.spec_of(tmp_path / "ours") == spec
    back, again = pretrained.load(tmp_path / "ours")
    assert back == spec and made.equal(params, again)
    wide, masters = pretrained.load(tmp_path / "ours", dtype="float32")
    assert wide.param_dtype == "float32" and masters["embed"].dtype == "float32"
    pretrained.save(tmp_path / "out", back, again, source=tmp_path / "ours")
    assert made.read(tmp_path / "out") == made.read(tmp_path / "hub")
    meta = json.loads((tmp_path / "ours" / "frozen.json").read_text())["meta"]
    assert sorted(meta["source"]["files"]) == [
        "LICENSE", "chat_template.jinja", "config.json", "generation_config.json", "tokenizer.json",
    ]  # fmt: skip
    assert meta["source"]["ignored"][0] == "model.visual.blocks.0.attn.qkv.weight"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hub", "ours", "out"]


def test_frozen_parameters_without_a_spec_are_refused(tmp_path):
    checkpoint.save_frozen(tmp_path / "ours", {"w": np.zeros(3)}, {"stage": "base"})
    with pytest.raises(pretrained.Refused, match="records no spec"):
        pretrained.load(tmp_path / "ours")


def test_export_refuses_before_it_writes(tmp_path):
    spec, params = made.FAMILIES["qwen3"], made.params(made.FAMILIES["qwen3"])
    made.hub(tmp_path / "hub")
    cases = [
        (dict(source=tmp_path / "hub"), "it is not their source"),
        (dict(dtype="float16"), "'float16' is none"),
        (dict(shard=0), "shard is 0 bytes"),
    ]
    for more, words in cases:
        with pytest.raises(pretrained.Refused, match=words):
            pretrained.save(tmp_path / "out", spec, params, **more)
    with pytest.raises(pretrained.Refused, match="differ in head"):
        pretrained.save(tmp_path / "out", spec, params | {"head": params["embed"]})
    with pytest.raises(pretrained.Refused, match=r"embed is float32\[48, 96\], the spec wants"):
        pretrained.save(tmp_path / "out", spec, params | {"embed": params["embed"].T})
    with pytest.raises(pretrained.Refused, match="exists already"):
        pretrained.save(tmp_path / "hub", spec, params)
    assert [p.name for p in tmp_path.iterdir()] == ["hub"]


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    def full(path, value):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mimesis_jax.runs.disk.write", full)
    with pytest.raises(ValueError, match="the disk is full"):
        made.plain(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("when", ["mimesis_jax.runs.disk.write", "shutil.copyfile"])
def test_a_broken_off_freeze_leaves_nothing(tmp_path, monkeypatch, when):
    made.hub(tmp_path / "hub")
    spec, params = pretrained.load(tmp_path / "hub")

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(when, interrupted)
    with pytest.raises(KeyboardInterrupt):
        keeping.keep(tmp_path / "ours", spec, params, source=tmp_path / "hub")
    assert [p.name for p in tmp_path.iterdir()] == ["hub"]


def test_a_small_disk_is_told_before_writing(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(pretrained.Refused, match="the disk has 1000: free some"):
        made.plain(tmp_path / "out")


@pytest.mark.parametrize("block", [1, 3000])
def test_blocks_in_place_are_the_weights_as_a_whole(tmp_path, monkeypatch, block):
    spec, params = made.plain(tmp_path / "out", "qwen2")
    monkeypatch.setattr(placing, "BLOCK", block)
    assert made.equal(pretrained.load(tmp_path / "out")[1], params)
    pretrained.save(tmp_path / "again", spec, params)
    assert made.read(tmp_path / "again") == made.read(tmp_path / "out")


def test_shardings_that_do_not_fit_are_named(tmp_path):
    made.plain(tmp_path / "out")
    with pytest.raises(pretrained.Refused, match="differ in norm, periods.layer0"):
        one = jax.sharding.SingleDeviceSharding(jax.devices()[0])
        pretrained.load(tmp_path / "out", shardings={"embed": one})


SHARDED = """
    import sys, pathlib, jax, numpy as np
    sys.path[:0] = [{tests!r}]
    import made_checkpoint as made
    from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
    from mimesis_jax import pretrained
    from mimesis_jax.pretrained import placing

    path = pathlib.Path({path!r})
    spec, params = made.plain(path)
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2), ("data", "model"))
    read = []
    for block in (1 << 25, 4000):
        placing.BLOCK = block
        # One axis of a weight over "model", another over "data": each cut happens somewhere.
        def choose(name, leaf):
            axes = [None] * leaf.ndim
            for i, size in enumerate(leaf.shape):
                if size % 2 == 0 and "model" not in axes and (i + len(name)) % 2:
                    axes[i] = "model"
                elif size % 2 == 0 and "data" not in axes:
                    axes[i] = "data"
            read.append(tuple(axes))
            return NamedSharding(mesh, P(*axes))
        back, again = pretrained.load(path, shardings=choose)
        assert made.equal(params, jax.device_get(again)), block
        assert len(again["embed"].sharding.device_set) == 4
    assert {{a for axes in read for a in axes}} == {{None, "data", "model"}}
    pretrained.save(path.with_name("again"), back, again)
    assert made.read(path.with_name("again")) == made.read(path)
    print("sharded")
"""


def test_parameters_are_laid_over_devices_as_asked(tmp_path):
    tests = os.path.dirname(__file__)
    code = textwrap.dedent(SHARDED.format(tests=tests, path=str(tmp_path / "out")))
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | flags, capture_output=True, text=True
    )
    assert done.stdout.strip() == "sharded", done.stderr[-2000:]


@settings(max_examples=25, deadline=None)
@given(
    shapes=st.lists(st.lists(st.integers(0, 4), max_size=3), min_size=1, max_size=6),
    seed=st.integers(0, 2**16),
)
def test_a_file_gives_back_what_was_written(tmp_path_factory, shapes, seed):
    path = tmp_path_factory.mktemp("file") / "a.safetensors"
    rng = np.random.default_rng(seed)
    kinds = list(tensors.FLOATS.values())
    whole = {
        f"t{i}": np.asarray(rng.normal(size=shape)).astype(kinds[(seed + i) % 4])
        for i, shape in enumerate(shapes)
    }
    tensors.write(path, [made.content(name, array) for name, array in whole.items()])
    entries = tensors.header(path)
    assert entries.keys() == whole.keys()
    for name, array in whole.items():
        assert entries[name].shape == array.shape
        assert b"".join(b.tobytes() for b in entries[name].blocks(7)) == array.tobytes()


def test_the_layout_covers_every_tensor_once():
    spec = made.QWEN35
    rows = {}
    for leaf in layout.leaves(spec):
        for piece in leaf.pieces:
            rows.setdefault((piece.name, piece.shape), []).append((piece.start, piece.rows))
    # 6 linear layers of 14 tensors and 2 full ones of 11, embedding and norm.
    assert len(rows) == 6 * 14 + 2 * 11 + 2
    for (_, shape), spans in rows.items():
        place = 0
        for start, count in sorted(spans):
            assert start == place
            place += count
        assert place == shape[0]
    names = lambda spec: {piece.name for leaf in layout.leaves(spec) for piece in leaf.pieces}
    assert len(names(specs.qwen35_4b())) == 426 and len(names(specs.qwen35_9b())) == 427


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float64"])
def test_finite_reads_every_bit_pattern(dtype):
    kind = next(d for d in tensors.FLOATS.values() if d.name == dtype)
    values = np.array([0.0, -1.5, float(jax.numpy.finfo(kind).max)]).astype(kind)
    assert importing.finite(values) and importing.finite(values[:0])
    for bad in (np.nan, np.inf, -np.inf):
        assert not importing.finite(np.concatenate([values, np.array([bad]).astype(kind)]))


# --- memory -------------------------------------------------------------------------------------

MEMORY = """
    import pathlib, resource, sys, jax, jax.numpy as jnp
    from mimesis_jax import pretrained
    from mimesis_jax.models import decoder
    from mimesis_jax.sharding import layout, mesh

    path, dtype, devices = sys.argv[1], sys.argv[2], int(sys.argv[3])
    assert len(jax.devices()) == devices
    where = None
    if devices > 1:
        spec = pretrained.spec_of(path)
        laid = layout.Layout(mesh.make(mesh.Config("fsdp")), "fsdp")
        where = laid.params(decoder.axes(spec), decoder.abstract(spec))
    for device in jax.devices():
        jax.block_until_ready(jnp.zeros(8, device=device) + 1)
    # What it holds now, not its peak, which the imports may have made.
    before = int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    spec, params = pretrained.load(path, dtype=dtype, shardings=where)
    jax.block_until_ready(params)
    leaves = jax.tree.leaves(params)
    first = sum(x.addressable_shards[0].data.nbytes for x in leaves)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(peak - before, sum(x.nbytes for x in leaves), first)
"""


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """A checkpoint of 2 GiB in bfloat16, and the bytes of its largest tensor."""
    spec = dataclasses.replace(
        specs.qwen35_0_8b(), periods=4, width=1536, mlp=6144, vocab=264_000, vocab_real=264_000
    )
    assert 2 * decoder.parameter_count(spec) >= 2 << 30
    rng = np.random.default_rng(0)
    noise = rng.normal(size=1 << 22).astype(np.float32)

    def parts(shape, dtype):
        left = int(np.prod(shape))
        while left:
            yield noise[: min(left, noise.size)].astype(dtype)
            left -= min(left, noise.size)

    path = tmp_path_factory.mktemp("big") / "model"
    path.mkdir()
    contents = {}
    for leaf in layout.leaves(spec):
        code = tensors.CODES[leaf.dtype]
        for piece in leaf.pieces:
            name = layout.full("model.", piece.name)
            made_of = parts(piece.shape, tensors.FLOATS[code])
            contents[name] = tensors.Content(name, code, piece.shape, made_of)
    tensors.write(path / folder.SINGLE, list(contents.values()))
    made.write(path / "config.json", fresh_config.config_of(spec))
    yield path, max(content.size for content in contents.values())
    shutil.rmtree(path)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_host_holds_the_destination_and_less_than_one_tensor(big, devices, dtype, capsys):
    """Peak of a process over what it was before; with 8 devices the weights lie split over them."""
    path, biggest = big
    flags = f"--xla_force_host_platform_device_count={devices}"
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEMORY), str(path), dtype, str(devices)],
        env=os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags},
        capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    peak, size, first = map(int, done.stdout.split())
    with capsys.disabled():
        print(
            f"\n{dtype} on {devices}: peak {peak / 2**20:.0f} MiB over {size / 2**20:.0f} MiB of "
            f"parameters, {first / 2**20:.0f} MiB on the first device"
        )
    assert peak <= size + biggest
    assert first <= 1.01 * size / devices  # norms and the like are on every device
