"""Plans: arguments as compiled, phases and times by hand, the verb, pages, cache and search."""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

from mimesis_jax import config
from mimesis_jax.plan import (
    assemble,
    cache,
    exact,
    gpus,
    measure,
    options,
    page,
    quick,
    search,
    settings,
    stored,
    table,
    topology,
    verb,
)  # fmt: skip

HERE = Path(__file__).parent
GIB = 1 << 30
FIVE = (
    "agent_csd_4b:v5p-32", "agent_csd_9b:v5p-32", "simulator_grpo_4b:v5p-32",
    "simulator_midtrain_9b:v5p-32", "simulator_thoughts_4b:v6e-64",
)  # fmt: skip


@pytest.fixture(autouse=True)
def apart(tmp_path, monkeypatch):
    """No test sees the user's plans, nor leaves any."""
    monkeypatch.setenv("MIMESIS_PLANS", str(tmp_path / "plans"))


# --- arguments --------------------------------------------------------------------------------


def test_arguments_are_the_analytic_sum_to_three_decimals():
    done = subprocess.run(
        [sys.executable, HERE / "plan_arguments.py", *FIVE], capture_output=True, text=True,
        timeout=550,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout)
    assert {one["name"] for one in told} == set(FIVE)
    for one in told:
        counted = sum(one["counted"].values())
        assert round(one["compiled"] / GIB, 3) == round(counted / GIB, 3), one
        assert one["compiled"] > GIB / 2  # nothing small is compared


def test_what_a_device_holds_of_the_state_by_hand():
    """Qwen3-4B over 16 devices: 4,022,468,096 parameters, all but the norms split sixteenfold."""
    norms = 36 * (2 * 2560 + 2 * 128) + 2560
    local = (4_022_468_096 - norms) // 16 + norms
    state = _state("agent_csd_4b")
    assert state["parameters"] == state["gradients"] == 4 * local
    # Two moments and counters; what else the optimizer keeps is small.
    assert 0 <= state["optimizer"] - 8 * local < 4096


def _state(name):
    """Bytes by kind of the optimizer's step, on an abstract mesh of this process's one device."""
    code = (
        "import sys, json, jax\n"
        "from mimesis_jax import config\n"
        "from mimesis_jax.plan import programs, settings, topology\n"
        "found = topology.parse('v5p-32')\n"
        f"plan = settings.of(config.read({name!r}))\n"
        "layout = programs.train_layout(plan, found, jax.devices())\n"
        "made = programs.training(plan, layout, found)\n"
        "print(json.dumps(next(p.bytes() for p in made if p.name == 'apply')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120,
        env=quick.environment(topology.parse("v5p-32"), "quick"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


# --- configurations ---------------------------------------------------------------------------


def test_settings_of_a_run():
    plan = settings.of(config.read("agent_csd_9b"))
    assert plan.model.spec.param_dtype == "float32" and plan.model.remat == "full"
    assert plan.chairs()["user"].spec.periods == 8 and list(plan.chairs()) == ["agent", "user"]
    assert settings.of(config.read("simulator_grpo_4b")).chairs()["user"].name == "qwen35_4b"
    alone = settings.of(config.read("simulator_midtrain_4b"))
    assert not alone.plays and alone.chairs() == {}


@pytest.mark.parametrize(
    "name, key, value, said",
    [
        ("demo", None, None, "use a configuration of kind 'large'"),
        ("agent_csd_4b", "model.preset", "qwen3_5b", "did you mean qwen3_4b"),
        ("agent_csd_4b", "model.remat", "some", "use none, full or dots"),
        ("agent_csd_4b", "stage", "agent_cds", "did you mean agent_csd"),
        ("agent_csd_4b", "micro_batches", "0", "1 is the least"),
    ],
)
def test_configurations_that_cannot_be_planned(name, key, value, said):
    with pytest.raises(config.ConfigError, match=said):
        settings.of(config.read(name, {key: value} if key else {}))


# --- from measured programs to a plan ---------------------------------------------------------


def program(name, **fields):
    """A measured program; sizes in GiB by kind, seconds of compute, hbm and links."""
    of = lambda kinds: {kind: int(size * GIB) for kind, size in kinds.items()}
    seconds = dict(zip(("compute", "hbm", "links"), fields.get("seconds", (1, 0, 0)), strict=True))
    peak = fields.get("peak")
    arguments = of(fields.get("arguments", {}))
    return {
        "name": name, "mode": "quick" if peak is None else "exact",
        "argument_bytes": sum(arguments.values()), "temp_bytes": None,
        "peak_bytes": None if peak is None else int(peak * GIB),
        "collectives": fields.get("collectives", []), "sent_by_axis": {}, "compile_seconds": 1.0,
        "hints": fields.get("hints", []), "refused": fields.get("refused"), "mesh": {},
        "bytes_by_kind": arguments, "held_by_kind": of(fields.get("held", {})),
        "tokens": fields.get("tokens", 0), "runs": fields.get("runs"),
        "flops": fields.get("flops", 0), "done_flops": 0, "traffic_bytes": 0,
        "roofline_seconds": seconds, "bound": max(seconds, key=seconds.get), "mfu_upper": 0.5,
    }  # fmt: skip


def run_of_rl(**update):
    decode = {"decoding weights": 4, "kv cache": 8, "recurrent cache": 1}
    held = {"gradients": 2, "activations": 5, "temporaries": 1}
    update = {"runs": 2, "seconds": (3, 1, 2), "tokens": 1000, "flops": 1e15, "held": held} | update
    return {
        "programs": [
            program("update", arguments={"parameters": 2, "gradients": 2, "batch": 0.5},
                    **update),
            program("apply", arguments={"parameters": 2, "optimizer": 4, "gradients": 2}, runs=1,
                    seconds=(0, 1, 0)),
            program("agent decode", arguments=decode, held={"logits": 0.25}, tokens=512,
                    seconds=(0, 2, 0)),
            program("user decode", arguments=decode, tokens=256, seconds=(0, 1, 0)),
        ],
        "parameters": [], "trained": "agent",
    }  # fmt: skip


V5P = topology.parse("v5p-32")


def test_everything_resident_counts_in_every_phase():
    plan = assemble.plan(run_of_rl(), V5P, "quick", "agent")
    peaks = {phase["name"]: phase["peak_bytes"] / GIB for phase in plan["phases"]}
    engines = 2 * (4 + 8 + 1)
    assert peaks["update"] == 2 + 4 + engines + (2 + 0.5) + (2 + 5 + 1)
    assert peaks["apply"] == 2 + 4 + engines + 2
    assert peaks["agent decode"] == 2 + 4 + engines + 0.25
    # Both layouts are alive and the parameters cut apart beside them; the old copy is gone.
    assert peaks["hand-over"] == 2 + 4 + engines + 2
    assert plan["peak_phase"] == "update" and plan["fits"] and plan["mode"] == "quick"
    assert plan["hbm_by_kind"]["gradients"] == 4 * GIB and "estimate" in plan["label"]
    assert sum(plan["hbm_by_kind"].values()) == plan["peak_bytes"]
    assert plan["argument_bytes"] == 4.5 * GIB


def test_a_compilers_peak_replaces_the_estimate():
    plan = assemble.plan(run_of_rl(peak=10), V5P, "exact", "agent")
    update = next(phase for phase in plan["phases"] if phase["name"] == "update")
    # 10 GiB with 4.5 of arguments; the moments and the engines lie beside it.
    assert update["peak_bytes"] == (10 + 4 + 26) * GIB and update["from"] == "exact"
    assert plan["exact_programs"] == ["update"] and "Only update; the rest" in plan["label"]
    # The estimate of 8 is more than the 5.5 there are: all shrink alike.
    assert update["hbm_by_kind"]["activations"] == pytest.approx(5 * 5.5 / 8 * GIB, abs=2)
    more = assemble.divided(9 * GIB, {"activations": 5 * GIB, "temporaries": GIB})
    assert more == {"activations": 5 * GIB, "temporaries": 4 * GIB}


def test_times_of_a_step_by_hand():
    plan = assemble.plan(run_of_rl(), V5P, "quick", "agent")
    assert plan["roofline_seconds"] == {"compute": 6, "hbm": 3, "links": 4}
    assert plan["least_seconds"] == 2 * 3 + 1 and plan["bound"] == "compute"
    assert plan["flops"] == 2e15 and plan["tokens_per_s_upper"] == pytest.approx(2000 / 7)
    assert plan["mfu_upper"] == pytest.approx(2e15 / (7 * 16 * 459e12))
    # Every host decodes on its own: 512 tokens of a block in 2 s, on four hosts.
    assert plan["decode_tokens_per_s_upper"] == {"agent": 1024.0, "user": 1024.0}


def test_what_does_not_fit_is_said_with_both_figures():
    plan = assemble.plan(run_of_rl(held={"activations": 80}), V5P, "quick", "agent")
    assert not plan["fits"] and plan["peak_bytes"] > plan["limit_bytes"] == 95 * GIB
    plan["config"] = {"name": "agent_csd_9b", "overrides": {}}
    assert "114.50 GiB of 95.00 GiB" in verb.misfit(plan)
    refusal = measure.too_large(
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space "
        "hbm. Used 122.10G of 95.74G hbm. Exceeded hbm capacity by 26.36G."
    )
    assert refusal["used_bytes"] == round(122.10 * GIB)
    assert refusal["limit_bytes"] == round(95.74 * GIB)
    plan = assemble.plan(run_of_rl(refused=refusal), V5P, "exact", "agent")
    plan["config"] = {"name": "agent_csd_9b", "overrides": {}}
    assert not plan["fits"] and "122.10 GiB of 95.74 GiB" in verb.misfit(plan)
    assert measure.too_large("INVALID_ARGUMENT: no") is None
    assert measure.too_large("RESOURCE_EXHAUSTED: hm")["used_bytes"] is None


def test_a_decoder_of_two_periods_tells_of_thirty_six():
    one = lambda times, source="a.py:1", loops=(): measure.collectives.Collective(
        "all-reduce", "tensor", 4, 100, 150, times, loops, "f32[25]", "x", source, "y"
    )
    loop = (measure.collectives.Loop(16, "p.py:3"),)
    first = [one(1, "embed.py:9"), one(1), one(16, "head.py:2", loop)]
    second = [one(1, "embed.py:9"), one(1), one(1), one(16, "head.py:2", loop)]
    told = {c.source: c.times for c in measure.carried([first, second], 36)}
    assert told == {"embed.py:9": 1, "a.py:1": 36, "head.py:2": 16}
    alone = {c.source: c.times for c in measure.carried([first], 1)}
    assert alone == {"embed.py:9": 1, "a.py:1": 1, "head.py:2": 16}


# --- words, tables, pages ---------------------------------------------------------------------


@pytest.fixture
def plan():
    made = assemble.plan(run_of_rl(), V5P, "quick", "agent")
    row = {
        "program": "update", "runs": 2, "operation": "all-gather", "axis": "fsdp", "devices": 16,
        "shape": "bf16[4096,12288]", "bytes": 100 << 20, "sent_bytes": 94 << 20, "times": 72,
        "loops": [36], "bytes_per_step": 72 * 94 << 20, "source": "mimesis_jax/x.py:7", "name": "g",
    }  # fmt: skip
    made["collectives"] = [row]
    made["hints"] = [{"program": "update", "kind": "k", "operation": "all-gather",
                      "source": "x.py:7", "bytes": 1, "text": "head <b> is gathered"}]  # fmt: skip
    made["parameters"] = [{"program": "update", "name": "embed", "shape": [8, 4], "spec": "fsdp",
                           "bytes": 128, "local_bytes": 8}]  # fmt: skip
    name = {"name": "agent_csd_9b", "overrides": {"mesh.fsdp": "16"}, "hash": "abc"}
    return {"config": name, **made, "code": "0123", "versions": {"jax": "0.10.2"}}


def asked(*words):
    parser = argparse.ArgumentParser()
    options.add(parser)
    return parser.parse_args(words)


def test_the_table_says_what_matters(plan):
    text = table.text(plan)
    for wanted in (
        "fits: peak 42.50 GiB of 95.00 GiB", "in update", "estimate", "kv cache", "hand-over",
        "bound by compute", "mimesis_jax/x.py:7", "x 72", "head <b> is gathered",
        "--config.mesh.fsdp=16",
    ):  # fmt: skip
        assert wanted in text, wanted


def test_the_page_stands_alone_and_draws_the_limit(plan, tmp_path):
    html = page.write(tmp_path / "plan.html", plan).read_text()
    assert "http" not in html and "<script" not in html and "head &lt;b&gt; is gathered" in html
    assert html.count('class="limit"') == len(plan["phases"])
    bars, limit = page.memory(plan)
    update = next(bar for bar in bars if bar.name == "update")
    drawn = sum(piece.width for piece in update.pieces)
    assert drawn / limit == pytest.approx(42.5 / 95, rel=1e-3)
    assert [piece.at for piece in update.pieces] == sorted(piece.at for piece in update.pieces)


def test_two_plans_side_by_side(plan, tmp_path, capsys):
    other = json.loads(json.dumps(plan))
    other["peak_bytes"] *= 2
    other["collectives"][0]["bytes_per_step"] //= 3
    other["config"]["overrides"] = {"mesh.fsdp": "8", "model.remat": "dots"}
    for name, one in (("a", plan), ("b", other)):
        (tmp_path / f"{name}.json").write_text(json.dumps(one))
    verb.run(asked("--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")), {})
    told = capsys.readouterr().out
    assert "mesh.fsdp: 16 -> 8" in told and "model.remat: as in the file -> dots" in told
    peak = next(line for line in told.splitlines() if line.startswith("peak_bytes"))
    assert "42.50 GiB" in peak and peak.endswith("2.00")
    assert "update all-gather fsdp mimesis_jax/x.py:7" in told
    (tmp_path / "c.json").write_text("[]")
    with pytest.raises(quick.PlanError, match="is no plan"):
        verb.read(tmp_path / "c.json")


@pytest.mark.parametrize(
    "words, said",
    [
        ([], "plan needs --config and --topology"),
        (["--config", "agent_csd_9b"], "plan needs --config and --topology"),
        (["--missing", "--quick"], "--quick means nothing beside --missing"),
        (["--config", "agent_csd_9b", "--topology", "v5p-32", "--json", "no/such/p.json"],
         "there is no folder"),
    ],
)  # fmt: skip
def test_words_that_do_not_fit_together(words, said):
    with pytest.raises(quick.PlanError, match=said):
        verb.run(asked(*words), {})


def test_a_plan_is_made_once_written_whole_and_refused_where_it_does_not_fit(
    monkeypatch, tmp_path, capsys
):
    calls = []

    def compile(config, found, mode, *, only=(), fresh=False):
        calls.append(mode)
        return run_of_rl(held={"activations": 20 if found.chip.name == "v5p" else 90})

    monkeypatch.setattr(quick, "compile", compile)
    target = tmp_path / "p.json"
    words = ["--config", "agent_csd_9b", "--topology", "v5p-32", "--quick", "--json", str(target)]
    verb.run(asked(*words), {})
    verb.run(asked(*words), {})
    assert calls == ["quick"]  # the second was known
    verb.run(asked(*words), {"agent_csd.loss.alpha": "0.02"})
    assert len(calls) == 2  # another configuration
    plan = json.loads(target.read_text())
    for key in ("config", "topology", "mode", "fits", "peak_bytes", "limit_bytes",
                "argument_bytes", "hbm_by_kind", "collectives", "flops", "roofline_seconds",
                "bound", "mfu_upper"):  # fmt: skip
        assert key in plan
    capsys.readouterr()
    small = tmp_path / "small.json"
    with pytest.raises(quick.PlanError, match=r"does not fit v6e-16: .* of 32.00 GiB a device"):
        verb.run(asked(*words[:3], "v6e-16", "--quick", "--json", str(small)), {})
    assert "DOES NOT FIT" in capsys.readouterr().out
    assert json.loads(small.read_text())["fits"] is False


def test_damaged_plans_are_made_again(monkeypatch):
    cache.put("plans", "k", {"a": 1})
    assert cache.get("plans", "k") == {"a": 1}
    (cache.folder() / "plans" / "k.json").write_text('{"a":')
    assert cache.get("plans", "k") is None and cache.get("plans", "other") is None
    assert cache.key({"a": 1, "b": 2}) == cache.key({"b": 2, "a": 1}) != cache.key({"a": 2})
    assert cache.code() != cache.code(whole=False)


def test_the_exact_mode_names_what_is_missing(monkeypatch):
    monkeypatch.setattr(exact.importlib.util, "find_spec", lambda name: None)
    assert "mimesis_jax[tpu]" in exact.missing(V5P)
    assert "jax-cuda12-plugin" in exact.missing(topology.parse("h100x8"))
    with pytest.raises(quick.PlanError, match="plan with --quick"):
        verb.run(asked("--config", "agent_csd_9b", "--topology", "v5p-32"), {})


def test_gpus_are_described_by_their_figures():
    for name, gpu in gpus.GPUS.items():
        text = gpus.target(topology.parse(f"{name}x8").chip)
        assert f"core_count: {gpu.cores}\n" in text and text.count("{") == text.count("}")
    h100 = gpus.target(topology.parse("h100x8").chip)
    assert "shared_memory_per_block_optin: 232448" in h100  # 227 KiB
    assert "memory_bandwidth: 3350000000000" in h100 and "major: 9 minor: 0" in h100


def test_a_process_that_dies_or_takes_too_long_is_told(monkeypatch):
    monkeypatch.setattr(quick, "environment", lambda found, mode: {"PYTHONPATH": "/nowhere"})
    monkeypatch.setattr(quick.sys, "executable", "/bin/false")
    with pytest.raises(quick.PlanError, match="compiling for v5p-32 ended with 1"):
        quick.compile({}, V5P, "quick")
    monkeypatch.setattr(quick.sys, "executable", str(HERE / "fixtures" / "nothing"))
    with pytest.raises(OSError):
        quick.compile({}, V5P, "quick")


# --- searching, the stored set ----------------------------------------------------------------


def test_every_way_to_lay_devices_out():
    found = list(search.meshes(4, ("data", "fsdp", "tensor")))
    assert all(math.prod(sizes.values()) == 4 for sizes in found)
    assert {tuple(sizes.values()) for sizes in found} == {
        (1, 4, 1), (1, 2, 2), (1, 1, 4), (2, 2, 1), (2, 1, 2), (4, 1, 1),
    }  # fmt: skip
    assert list(search.meshes(4, ("fsdp",))) == [{"data": 1, "fsdp": 4, "tensor": 1}]
    tried = list(search.candidates(32, V5P))
    assert len(tried) == len(set(tried))
    for one in tried:
        assert one.rows * one.micro_batches == 32 and one.rows % (one.data * one.fsdp) == 0
    over = list(search.candidates(64, topology.parse("2xv5e-16")))
    assert over and all(one.data % 2 == 0 for one in over)


def test_the_search_compiles_the_few_best_and_writes_a_configuration(monkeypatch, tmp_path):
    def counted(base, rows, found):
        return [
            {"overrides": one.overrides(), "peak_bytes": GIB * (20 + 10 * one.tensor),
             "peak_phase": "update", "least_seconds": 1.0 / one.tensor + (one.remat == "full"),
             "bound": "compute", "roofline_seconds": {"compute": 1.0, "links": 0.1}}
            for one in search.candidates(rows, found)
        ]  # fmt: skip

    tried = []

    def make(name, overrides, found, mode):
        tried.append(dict(overrides))
        plan = assemble.plan(run_of_rl(), found, mode, "agent")
        plan["least_seconds"] = 0.5 if len(tried) == 2 else 0.9
        plan["roofline_seconds"] = {"compute": 0.5, "links": 0.1}
        return {"config": {"name": name, "overrides": dict(overrides)}, **plan, "code": "c",
                "versions": {}}  # fmt: skip

    monkeypatch.setattr(search, "_counted", counted)
    monkeypatch.chdir(tmp_path)
    target = Path("better.py")
    won = search.run("agent_csd_9b", {}, V5P, "quick", target, make)
    assert len(tried) == search.FEW
    assert all(one["mesh.tensor"] == "4" and one["model.remat"] != "full" for one in tried)
    assert won["config"]["overrides"] == tried[1]
    assert won["searched"]["gain"] == pytest.approx(2.0 / 0.5 - 1)
    assert "mesh.tensor 1 -> 4" in won["searched"]["reason"]
    assert "compute 1 s -> 500 ms" in won["searched"]["reason"]
    assert max(map(len, target.read_text().splitlines())) <= 100
    found = config.read(target)
    assert found.mesh.tensor == 4 and found.kind == "large" and found.agent_csd.beta == 5.0
    with pytest.raises(quick.PlanError, match="none of .* fits v6e-16: the smallest holds 30.00"):
        search.run("agent_csd_9b", {}, topology.parse("v6e-16"), "quick", target, make)


def test_missing_makes_what_is_not_there(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(stored, "HOME", tmp_path)
    monkeypatch.setattr(exact, "missing", lambda found: "no compiler")
    wanted = (
        stored.Wanted("agent_csd_4b", "v5p-32"),
        stored.Wanted("agent_csd_9b", "v5p:2x2x4"),
        stored.Wanted("agent_csd_9b", "h100x8", "exact"),
    )
    monkeypatch.setattr(stored, "SET", wanted)
    wanted[0].path.write_text(json.dumps({"code": "old"}))
    made = []
    stored.complete(lambda *words, exactly: made.append(words) or {"code": cache.code()})
    assert [words[0] for words in made] == ["agent_csd_9b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "agent_csd_4b@v5p-32.json", "agent_csd_9b@v5p_2x2x4.json",
    ]  # fmt: skip
    said = capsys.readouterr().err
    assert "is of code old" in said and "agent_csd_9b@h100x8.json: left out, no compiler" in said


def test_the_stored_plans_are_plans_of_the_set():
    assert len({one.path for one in stored.SET}) == len(stored.SET)
    for path in sorted(stored.HOME.glob("*.json")):
        plan = verb.read(path)
        if path.name.endswith(".searched.json"):
            assert plan["fits"] and plan["searched"]["gain"] >= 0.2 and plan["searched"]["reason"]
            continue
        one = next(one for one in stored.SET if one.path == path)
        assert (
            plan["mode"] == one.mode and plan["fits"] and plan["topology"]["name"] == one.topology
        )
        assert plan["config"]["name"] == one.config
        assert sum(plan["hbm_by_kind"].values()) == plan["peak_bytes"] <= plan["limit_bytes"]
