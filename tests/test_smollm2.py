"""SmolLM2-135M with its real weights: what it says, against transformers, and a little training."""

import dataclasses
import io
from pathlib import Path

import jax
import numpy as np
import pytest

from mimesis_jax import cli, types
from mimesis_jax.chat import families, render
from mimesis_jax.data import swap, thoughttrace
from mimesis_jax.evaluation import likelihood
from mimesis_jax.forest import pack
from mimesis_jax.models import decoder, heads
from mimesis_jax.pretrained import gguf, speaker
from mimesis_jax.rollouts import engine as engines
from mimesis_jax.rollouts import scoring
from mimesis_jax.trainers import optimizer, supervised
from mimesis_jax.types import Turn

SAMPLE = Path(__file__).resolve().parents[2] / "shared" / "data" / "thoughttrace" / "sample.jsonl"
QUESTION = "What is the capital of France? Answer in one sentence."
PROMPTS = [QUESTION, "Write a haiku about rain.", "def add(a, b):\n    return"]


@pytest.fixture(scope="module")
def smol():
    try:
        return speaker.load(speaker.SMOLLM2)
    except gguf.Unavailable as missing:
        pytest.skip(str(missing))


def prompt(smol, text):
    turns = [Turn("user", text)]
    made = smol.renderer
    return np.concatenate(
        [made.opening(turns), *made.turns(turns, first=True), made.header("agent", "none")]
    )


def test_what_was_loaded(smol):
    assert decoder.parameter_count(smol.spec) == 134_515_008
    assert sum(leaf.size for leaf in jax.tree.leaves(smol.params)) == 134_515_008
    assert smol.renderer.family is families.SMOLLM2 and smol.length == 8192
    assert smol.spec.vocab_real == smol.spec.vocab == 49152
    assert len(prompt(smol, QUESTION)) == 42


@pytest.mark.slow
def test_the_capital_of_france(capsys, monkeypatch):
    """The command itself, a person's line at its input."""
    try:
        gguf.smollm2_path()
    except gguf.Unavailable as missing:
        pytest.skip(str(missing))
    monkeypatch.setattr("sys.stdin", io.StringIO(QUESTION + "\n"))
    assert cli.main(["chat", "--model", "smollm2"]) == 0
    assert "model> The capital of France is Paris.\n" in capsys.readouterr().out


@pytest.fixture(scope="module")
def theirs():
    """transformers' model with the weights that transformers itself reads from the file."""
    torch = pytest.importorskip("torch", reason="torch is not installed: pip install '.[parity]'")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers import modeling_gguf_pytorch_utils as reading

    torch.set_num_threads(1)
    try:
        path = str(gguf.smollm2_path())
    except gguf.Unavailable as missing:
        pytest.skip(str(missing))
    config = reading.load_gguf_checkpoint(path)["config"]
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
    read = reading.load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)
    missing, unexpected = model.load_state_dict(read["tensors"], strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected  # the head is the embedding
    model.tie_weights()
    return model.float().eval()


@pytest.mark.slow
@pytest.mark.parametrize("text", PROMPTS)
def test_logits_are_those_of_transformers(smol, theirs, text):
    import torch

    ids = prompt(smol, text)
    with torch.inference_mode():
        want = theirs(torch.tensor(ids[None].astype(np.int64))).logits[0].numpy()
    tree = (types.segment(ids, scored=np.arange(len(ids)) > 0),)
    packed = pack.pack([tree], pack.Shape(rows=1, length=64, chunk=64, learned=64))
    hidden = decoder.hidden(smol.spec, smol.params, packed.forests[0])[0, : len(ids)]
    ours = np.asarray(heads.logits(smol.spec, smol.params, hidden))
    assert np.abs(want).max() > 10
    np.testing.assert_allclose(ours, want, atol=1e-3)


def greedy(model, ids, count):
    """The next tokens by argmax. Not `generate`, which takes a prompt's <|im_end|> for padding."""
    import torch

    fed, past, found = torch.tensor(ids[None].astype(np.int64)), None, []
    with torch.inference_mode():
        for _ in range(count):
            out = model(fed, past_key_values=past, use_cache=True)
            past, fed = out.past_key_values, out.logits[:, -1].argmax(-1, keepdim=True)
            found.append(int(fed))
    return found


@pytest.mark.slow
def test_the_same_40_greedy_tokens(smol, theirs):
    config = engines.Config(slots=2, length=128, block=8, buckets=(64,), rows=())
    engine = engines.Engine(smol.spec, smol.params, config)
    for number, text in enumerate(PROMPTS[1:]):
        engine.submit(
            engines.Request(number, prompt(smol, text), (), False, (0, 0, 0, 0), (), 40, 0.0)
        )
    done = []
    while len(done) < 2:
        done += engine.advance()
    for reply in done:
        ids = prompt(smol, PROMPTS[1 + reply.request.conversation])
        assert len(reply.ids) == 40
        assert reply.ids.tolist() == greedy(theirs, ids, 40)
        # What was sampled is what the training forward scores.
        path = np.concatenate([ids, reply.ids])
        tree = (types.segment(path, scored=np.arange(len(path)) >= len(ids)),)
        shape = pack.Shape(rows=1, length=128, chunk=64, learned=64)
        scored = scoring.score(smol.spec, smol.params, [tree], shape)
        np.testing.assert_allclose(reply.logp, scored, atol=1e-4)


# --- a few steps of thought SFT -------------------------------------------------------------------

SHAPE = pack.Shape(rows=2, length=512, chunk=64, learned=384)


def short(dialogue, renderer):
    """The beginning of a user's row that fits into a row of SHAPE; long replies are cut."""
    turns = []
    for turn in dialogue:
        cut = turn.public if turn.author == "user" else turn.public[:200]
        more = [*turns, dataclasses.replace(turn, public=cut)]
        built = renderer.tree(more, "user", thinking="sample", history="drop")
        if sum(-(-len(part) // SHAPE.chunk) * SHAPE.chunk for part in built) > SHAPE.length:
            break
        turns = more
    return tuple(turns)


@pytest.mark.slow
def test_thought_sft_lowers_the_nll_of_held_out_people(smol, capsys):
    if not SAMPLE.exists():
        pytest.skip("the ThoughtTrace sample is not here: ../shared/data/thoughttrace")
    renderer = render.Renderer(smol.renderer.tokenizer, families.SMOLLM2_THOUGHTS)
    rows = [swap.thoughts(record) for record in thoughttrace.read(SAMPLE)]
    talks = [short(row.dialogue, renderer) for row in rows]
    talks = [talk for talk in talks if any(turn.author == "user" for turn in talk)]
    held, fitted = talks[::4], [talk for n, talk in enumerate(talks) if n % 4]
    assert len(held) >= 3 and len(fitted) >= 8
    trees = [renderer.tree(t, "user", thinking="sample", history="drop") for t in fitted]
    forests = pack.pack(trees, SHAPE).forests

    def nll(params):
        measured = likelihood.utterances(
            smol.spec, params, held, renderer=renderer, shape=SHAPE, thinking="empty"
        )
        return dict(measured)["nll"]

    steps, config = 5, optimizer.Config(lr=2e-4, warmup=1, decay="constant", weight_decay=0.0)
    state = optimizer.init(jax.tree.map(jax.numpy.array, smol.params), config)
    before = nll(smol.params)
    batches = iter([[forests[n % len(forests)]] for n in range(steps)])
    state = supervised.train(
        smol.spec, state, batches, supervised.Config(steps=steps, optimizer=config)
    )
    after = nll(state.params)
    with capsys.disabled():
        print(f"\nheld-out human turns: {before:.3f} nats a token, {after:.3f} after {steps} steps")
    assert after < before - 0.05
