"""Benches: the verb, how they measure, the memory of the head at full size, depth and programs."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from mimesis_jax import bench, cli
from mimesis_jax.bench import compile as depth
from mimesis_jax.bench import logprobs, measure
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.trainers import optimizer, supervised

SMALL = ["--vocab", "300", "--tokens", "16", "--width", "8", "--repeats", "1"]


def test_every_bench_is_listed_with_what_it_compares(capsys):
    found = bench.names()
    assert {"logprobs", "compile"} <= set(found) and "measure" not in found
    assert all(line.endswith(".") or line.endswith(":") for line in found.values()), found
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert end.value.code == 0
    for name, line in found.items():  # argparse breaks lines, also behind hyphens
        assert name in said and line.replace(" ", "")[:40] in said.replace(" ", "")


def test_a_bench_has_help_of_its_own(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", "logprobs", "--help"])
    said = capsys.readouterr().out
    assert end.value.code == 0 and "heads.learn" in said and "--time-tokens" in said


def test_logprobs_writes_its_figures_whole(tmp_path, capsys):
    file = tmp_path / "f.json"
    assert cli.main(["bench", "logprobs", "--json", str(file), *SMALL]) == 0
    figures = json.loads(file.read_text())
    assert figures == json.loads(capsys.readouterr().out)
    assert figures["memory_ratio"] == figures["peak_bytes_naive"] / figures["peak_bytes_chunked"]
    middle = figures["median_seconds"]
    assert figures["time_ratio"] == middle["chunked"] / middle["naive"] > 0
    assert figures["machine"]["device"] == jax.devices()[0].device_kind
    assert figures["time_tokens"] == figures["tokens"] == 16
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--json", "none/f.json", *SMALL], "there is no folder none, make it first"),
        (["--tokens", "0"], "--tokens 0: use 1 or more"),
    ],
)
def test_words_that_make_no_bench_are_one_line(words, said, capsys):
    assert cli.main(["bench", "logprobs", *words]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_forms_are_measured_in_turn(monkeypatch):
    clock = iter(range(100))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: next(clock))
    order = []
    forms = {name: (lambda n=name: order.append(n)) for name in "ab"}
    seconds = measure.interleaved(forms, 3)
    assert "".join(order) == "abbaab"
    assert seconds == {"a": [1, 1, 1], "b": [1, 1, 1]}
    assert measure.medians({"a": [5.0, 1.0, 2.0]}) == {"a": 2.0}
    with pytest.raises(measure.BenchError, match="0 repetitions"):
        measure.interleaved(forms, 0)


def test_peak_bytes_count_temporaries():
    x = jax.ShapeDtypeStruct((256, 64), jnp.float32)
    program = jax.jit(lambda x: jnp.sort(x @ x.T)[0, 0]).lower(x).compile()
    assert measure.peak_bytes(program) >= 4 * (256 * 64 + 256 * 256)
    assert measure.free_bytes() is None or measure.free_bytes() > 0


def test_times_use_fewer_tokens_where_memory_is_short(monkeypatch):
    monkeypatch.setattr(measure, "free_bytes", lambda: 1000)
    assert logprobs._fitting(64, lambda tokens: 10 * tokens) == 64  # 640 of 900 bytes
    assert logprobs._fitting(64, lambda tokens: 100 * tokens) == 8
    monkeypatch.setattr(measure, "free_bytes", lambda: None)
    assert logprobs._fitting(64, lambda tokens: 10**9 * tokens) == 64


def test_the_head_takes_an_eighth_of_the_memory_at_full_size():
    """Compiled for 248,320 ids and 4,096 tokens, not run."""
    spec = specs.tiny(248320, logprobs.REAL, width=512)
    peak = {
        name: measure.peak_bytes(logprobs._compiled(form, spec, 4096))
        for name, form in logprobs.FORMS.items()
    }
    assert peak["naive"] > 2 * 4 * 4096 * 248320
    assert peak["naive"] >= 8 * peak["chunked"] and peak["naive"] >= 8 * peak["score"]


# --- depth ------------------------------------------------------------------------------------


def _program(layers):
    spec = depth.model(layers, width=32)
    params = decoder.abstract(spec)
    grads = jax.eval_shape(optimizer.zeros, params)
    number = jax.ShapeDtypeStruct((), jnp.float32)
    lowered = supervised.accumulate.lower(spec, params, grads, depth.forest(spec, 1, 32), number)
    return lowered.as_text().count("\n")


def test_the_train_step_is_one_program_whatever_the_depth():
    assert _program(8) == _program(32) > 100


def test_depth_that_is_no_whole_period_is_refused():
    with pytest.raises(measure.BenchError, match="10 layers are no whole periods of 4"):
        depth.model(10)


@pytest.mark.slow
def test_compile_time_does_not_grow_with_depth():
    assert depth.run(["--repeats", "3"])["compile_ratio"] <= 1.3


def test_documented_benches_exist():
    text = (Path(__file__).parent.parent / "docs" / "benchmarks.md").read_text()
    for name in bench.names():
        assert f"mimesis bench {name}" in text, f"docs/benchmarks.md says nothing about {name}"
