"""Collectives read from compiled text: real programs on 8 CPU devices, others' forms, hints."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mimesis_jax.plan import collectives, faults, hlo

HERE = Path(__file__).parent
MESH = {"data": 1, "fsdp": 4, "tensor": 2}
HEAD = 4 * 512 * 64  # bytes of the head in plan_compiles.py


@pytest.fixture(scope="module")
def compiled():
    """What tests/plan_compiles.py found, in a process with 8 virtual devices."""
    done = subprocess.run(
        [sys.executable, HERE / "plan_compiles.py"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def of(found, operation, **fields):
    """The collectives of an operation with these fields."""
    same = lambda one: all(one[name] == value for name, value in fields.items())
    return [one for one in found["collectives"] if one["operation"] == operation and same(one)]


def line(word, file="plan_compiles.py"):
    """FILE:LINE where the file has this text, which it has once."""
    lines = (HERE / file).read_text().splitlines()
    (number,) = [n for n, text in enumerate(lines, 1) if word in text]
    return f"{file}:{number}"


def test_a_planted_reduction_is_named_by_operation_and_line_and_gone_after_the_mend(compiled):
    faulty, mended = compiled["faulty"], compiled["mended"]
    (one,) = of(faulty, "reduce-scatter")
    # 131,072 bytes over 4 devices: a device sends three quarters, in each of 8 chunks.
    assert (one["axis"], one["size"], one["bytes"]) == ("fsdp", 4, HEAD)
    assert (one["sent"], one["times"], one["moved"]) == (98304, 8, 786432)
    (hint,) = faulty["hints"]
    where = line("part = jax.lax.psum_scatter(part")
    assert hint["kind"] == "gradient reduced in a loop" and hint["operation"] == "reduce-scatter"
    assert hint["source"] == where and where in hint["text"] and "head (512 x 64)" in hint["text"]
    assert hint["bytes"] == 7 * 98304 and "8 turns" in hint["text"]
    assert mended["hints"] == []
    (after,) = of(mended, "reduce-scatter")
    assert after["times"] == 1 and after["moved"] == 98304


def test_a_wrong_constraint_is_found_where_the_compiler_put_the_reduction(compiled):
    (hint,) = compiled["constrained"]["hints"]
    assert hint["operation"] == "all-reduce" and hint["bytes"] == 7 * 2 * 98304
    assert hint["source"] == line("loss = lambda head: -jnp.sum(jax.nn.log_softmax")


def test_the_projects_own_head_has_no_fault_until_one_is_planted(compiled):
    assert compiled["real"]["hints"] == []
    (hint,) = compiled["planted"]["hints"]
    assert hint["source"].startswith("mimesis_jax/models/vocabulary.py:")
    assert hint["kind"] == "gradient reduced in a loop" and "head" in hint["text"]
    assert not of(compiled["real"], "all-reduce", axis="fsdp")


def test_a_gathering_in_a_loop(compiled):
    (one,) = of(compiled["gathered"], "all-gather")
    assert (one["times"], one["bytes"], one["moved"]) == (8, HEAD, 8 * 98304)
    (hint,) = compiled["gathered"]["hints"]
    assert hint["kind"] == "parameter gathered often" and "8 times" in hint["text"]
    assert hint["bytes"] == 6 * 98304  # twice a step is usual


def test_loops_in_loops_and_axes_together(compiled):
    found = compiled["nested"]
    (one,) = of(found, "all-gather")
    assert (one["axis"], one["size"], one["times"]) == ("fsdp+tensor", 8, 15)
    assert one["sent"] == 4 * 64 * 16 * 7 // 8
    assert [loop["turns"] for loop in one["loops"]] == [5, 3]
    assert of(found, "collective-permute")[0]["axis"] == "tensor"
    assert of(found, "collective-permute")[0]["sent"] == 4 * 8 * 16
    assert of(found, "all-to-all")[0]["sent"] == 4 * 8 * 16 * 3 // 4


def test_a_loop_that_may_end_early_counts_its_bound(compiled):
    (one,) = of(compiled["bounded"], "all-reduce")
    assert one["times"] == 7 and one["axis"] == "tensor"


# --- text of other compilers ------------------------------------------------------------------


def test_sizes_of_shapes():
    assert hlo.size("f32[8,64]{1,0}") == 2048
    assert hlo.size("bf16[3]{0:T(256)(128)(2,1)S(1)}") == 6
    assert hlo.size("(pred[5]{0}, s32[])") == 9
    assert hlo.size("f32[<=8,2]") == 64 and hlo.size("token[]") == 0 and hlo.size("u4[3]") == 2
    assert hlo.parts("(f32[2]{0:T(8,128)}, /*index=1*/(s32[], u32[]))") == [
        "f32[2]{0:T(8,128)}", "(s32[], u32[])",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text, axes",
    [
        ("{{0,2,4,6},{1,3,5,7}}", "fsdp"),
        ("{{0,1},{2,3},{4,5},{6,7}}", "tensor"),
        ("[2,4]<=[4,2]T(1,0)", "fsdp"),
        ("[4,2]<=[8]", "tensor"),
        ("[1,8]<=[8]", "fsdp+tensor"),
        ("{}", "fsdp+tensor"),
        ("mesh['a'=4,'b'=1,'c'=2] {'a'}", "fsdp"),
        ("mesh['x'=8] {'x':(4)2}", "tensor"),
        ("mesh['x'=8] {'x':(1)4}", "fsdp"),
        ("{{0,1,2,3},{4,5,6,7}}", "other"),
        ("{{0},{1},{2},{3},{4},{5},{6},{7}}", "none"),
    ],
)
def test_groups_in_every_form(text, axes):
    groups = collectives.groups_of(f", replica_groups={text}, use_global_device_ids=true", 8)
    assert collectives.axes_of(groups, MESH) == axes


ACCELERATOR = """HloModule jit_step, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}

%all-reduce-scatter (p: f32[16,8]) -> f32[4,8] {
  %p = f32[16,8]{1,0:T(8,128)} parameter(0)
  %all-reduce.9 = f32[16,8]{1,0:T(8,128)} all-reduce(%p), replica_groups=[2,4]<=[4,2]T(1,0), to_apply=%sum
  ROOT %cut = f32[4,8]{1,0:T(8,128)} dynamic-slice(%all-reduce.9), dynamic_slice_sizes={4,8}
}

%body (c: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %c = (s32[]{:T(128)}, f32[4,8]{1,0:T(8,128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%c), index=0
  %w = f32[4,8]{1,0:T(8,128)} get-tuple-element(%c), index=1
  %start = (f32[4,8]{1,0:T(8,128)}, f32[16,8]{1,0:T(8,128)S(1)}) all-gather-start(%w), replica_groups=[2,4]<=[4,2]T(1,0), dimensions={0}, metadata={op_name="jit(step)/gather" source_file="/home/x/mimesis_jax/models/parallel.py" source_line=77}
  %done = f32[16,8]{1,0:T(8,128)S(1)} all-gather-done(%start)
  %part = f32[4,8]{1,0:T(8,128)} fusion(%done), kind=kCustom, calls=%all-reduce-scatter, metadata={op_name="jit(step)/scatter"}
  ROOT %t = (s32[]{:T(128)}, f32[4,8]{1,0:T(8,128)}) tuple(%i, %part)
}

%condition (c: (s32[], f32[4,8])) -> pred[] {
  %c = (s32[]{:T(128)}, f32[4,8]{1,0:T(8,128)}) parameter(0)
  %i = s32[]{:T(128)} get-tuple-element(%c), index=0
  %n = s32[]{:T(128)} constant(36)
  ROOT %less = pred[]{:T(512)} compare(%i, %n), direction=LT
}

ENTRY %main (x: f32[4,8]) -> f32[4,8] {
  %x = f32[4,8]{1,0:T(8,128)} parameter(0)
  %zero = s32[]{:T(128)} constant(0)
  %in = (s32[]{:T(128)}, f32[4,8]{1,0:T(8,128)}) tuple(%zero, %x)
  %loop = (s32[]{:T(128)}, f32[4,8]{1,0:T(8,128)}) while(%in), condition=%condition, body=%body
  ROOT %out = f32[4,8]{1,0:T(8,128)} get-tuple-element(%loop), index=1
}
"""  # noqa: E501


def test_the_forms_of_an_accelerators_compiler():
    gather, scatter = collectives.walk(ACCELERATOR, MESH)
    assert (gather.operation, gather.axis, gather.times) == ("all-gather", "fsdp", 36)
    assert (gather.bytes, gather.sent) == (512, 384)  # f32[16,8]; what went in is not counted
    assert gather.source == "mimesis_jax/models/parallel.py:77"
    assert (scatter.operation, scatter.axis, scatter.times) == ("reduce-scatter", "fsdp", 36)
    assert (scatter.bytes, scatter.sent) == (512, 384)


def test_a_collective_spread_over_fusions_counts_once():
    piece = (
        "%piece.{n} (p: bf16[4,8]) -> bf16[16,8] {{\n  %p = bf16[4,8] parameter(0)\n"
        "  ROOT %all-gather.{n} = bf16[16,8] all-gather(%p), channel_id={c}, "
        'replica_groups=[2,4]<=[4,2]T(1,0), frontend_attributes={{chain_id="{c}"}}\n}}\n\n'
    )
    text = "".join(piece.format(n=n, c=c) for n, c in ((1, 34), (2, 34), (3, 34), (4, 35)))
    text += "ENTRY %main (x: bf16[4,8]) -> bf16[16,8] {\n  %x = bf16[4,8] parameter(0)\n"
    for n in range(1, 5):
        text += f"  %f{n} = bf16[16,8] fusion(%x), kind=kCustom, calls=%piece.{n}\n"
    found = collectives.walk(text + "}\n", MESH)
    assert [one.sent for one in found] == [192, 192]


def test_text_that_is_no_program_is_refused():
    with pytest.raises(ValueError, match="no ENTRY computation"):
        hlo.read("hello\n")


# --- hints ------------------------------------------------------------------------------------


def parameter(name, shape, local, stacked=False):
    size = 4
    for dim in shape:
        size *= dim
    return faults.Parameter(name, shape, stacked, "", size, local)


def test_a_replicated_parameter():
    embed = parameter("embed", (1 << 15, 1 << 10), 1 << 27)
    (hint,) = faults.hints([], [embed], MESH)
    assert hint.kind == "replicated tensor" and hint.bytes == (1 << 27) - (1 << 24)
    assert "embed (32768 x 1024)" in hint.text
    assert faults.hints([], [embed], {"data": 8, "fsdp": 1, "tensor": 1}) == []
    split = parameter("embed", (1 << 15, 1 << 10), 1 << 24)
    assert faults.hints([], [split], MESH) == []


def gather(shape, times, axis="fsdp", sent=1 << 20):
    return collectives.Collective(
        "all-gather", axis, 4, sent * 4 // 3, sent, times, (), shape, "", "a.py:1", ""
    )


def test_layers_are_gathered_twice_and_no_oftener():
    weight = parameter("periods/layer0/mlp/up", (36, 256, 1024), 36 << 18, stacked=True)
    twice = [gather("bf16[256,1024]", 36), gather("bf16[1,256,1024]", 36)]
    assert faults.hints(twice, [weight], MESH) == []
    (hint,) = faults.hints([*twice, gather("bf16[256,1024]", 36)], [weight], MESH)
    assert hint.kind == "parameter gathered often" and "3 times" in hint.text
    assert hint.bytes == 36 << 20
    decoding = faults.hints(twice[:1], [weight], MESH, decoding=True)
    assert "decode table" in decoding[0].text


def test_rows_that_every_device_computes():
    weight = parameter("periods/layer0/mlp/up", (36, 256, 1024), 36 << 18, stacked=True)
    (hint,) = faults.hints([gather("f32[8192,999]", 2)], [weight], MESH)
    assert hint.kind == "rows gathered" and "f32[8192,999]" in hint.text
    assert faults.hints([gather("f32[8192,999]", 2, axis="tensor")], [weight], MESH) == []
