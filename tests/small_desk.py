"""A small desk for tests: a tokenizer, a decoder that ends its turns, seats, wayward gyms."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimesis_jax import types
from mimesis_jax.chat import render, tokenizer
from mimesis_jax.desk import agent as scripted
from mimesis_jax.envs import desk
from mimesis_jax.forest import pack
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import corpus, engine, seat
from mimesis_jax.users import population

SHAPE = pack.Shape(rows=2, length=320, chunk=8, learned=160, slots=2)
PEOPLE = population.REFERENCE


@pytest.fixture(scope="module", autouse=True)
def quick_compiles():
    """These programs run for milliseconds, and compile in half the time without optimisations.
    Acts in the modules that import it."""
    name = "jax_disable_most_optimizations"
    try:
        before = jax.config.read(name)
    except (AttributeError, LookupError):  # a jax without the flag: slower, the same tests
        yield
        return
    jax.config.update(name, True)
    yield
    jax.config.update(name, before)


@functools.cache
def episodes():
    """Forty rule-played dialogues."""
    return corpus.episodes(
        desk.DeskGym, PEOPLE.goals(range(40)), agent=scripted.ScriptedAgent(0.8),
        user=PEOPLE.user(), stream=0,
    )  # fmt: skip


@functools.cache
def renderer():
    return render.Renderer(tokenizer.train(corpus.texts(episodes()), 380, multiple=64))


@functools.cache
def spec():
    tok = renderer().tokenizer
    tiny = specs.tiny(tok.vocab, tok.vocab_real, width=32, mlp=48)
    return dataclasses.replace(tiny, tied=False)


@functools.cache
def params():
    """Random weights, drawn by numpy, with slow heads; the head prefers to end thoughts and turns.

    Dimension 0 of the residual is large and the same for all tokens, so the head's column 0 is a
    bias: ends are likely, other special tokens all but impossible.
    """
    rng = np.random.default_rng(3)
    fill = lambda leaf: jnp.asarray(0.2 * rng.normal(size=leaf.shape), leaf.dtype)
    drawn = jax.tree.map(fill, decoder.abstract(spec()))
    mixer = drawn["periods"]["layer0"]["mixer"]
    mixer["a_log"] = jnp.asarray(np.log(rng.uniform(0.01, 0.3, mixer["a_log"].shape)), jnp.float32)
    head = np.array(drawn["head"])
    head[:, 0] = 0.0
    head[: len(tokenizer.SPECIALS), 0] = -8.0
    head[[tokenizer.END, tokenizer.THINK_END], 0] = 0.9
    embed = np.array(drawn["embed"])
    embed[:, 0] = 4.0
    return {**drawn, "head": jnp.asarray(head), "embed": jnp.asarray(embed)}


def make_seat(chair, weights, *, seed=0, slots=6, **config):
    """A seat with an engine of its own."""
    settings = engine.Config(slots=slots, length=320, block=8, buckets=(16, 64))
    held = engine.Engine(spec(), weights, settings, seed=seed)
    return seat.ModelSeat(held, renderer(), chair, seat.Config(**config))


class Calls(desk.DeskGym):
    """A desk where agent texts whose length is a multiple of 3 are calls, and odd lengths are paid:
    what a model that knows nothing says then differs in turns and in reward."""

    def spoken(self, text):
        return len(text) % 3 != 0

    def step(self, text):
        feedback = super().step(text)
        if feedback.stop is None and not self.spoken(text):
            told = types.Turn("tool", "size is large", only="agent")
            feedback = dataclasses.replace(feedback, turns=(told,), next="agent")
        return dataclasses.replace(feedback, reward=float(len(text) % 2))


class Patient:
    """A seat whose broken replies are taken for text, so that a dialogue goes on after them."""

    def __init__(self, held):
        self.held = held

    def respond(self, queries):
        for query, reply in self.held.respond(queries):
            yield query, dataclasses.replace(reply, kind=types.Kind.TEXT)

    def finish(self, episode):
        return self.held.finish(episode)
