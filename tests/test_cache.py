"""The decode cache: fed in pieces, forked, rolled back or reused, it equals the whole forward."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_decoder import FAST, VOCAB, draw, line, small

from mimesis_jax.models import cache, decoder

LENGTH = 48
extend = jax.jit(cache.extend, static_argnums=0, compiler_options=FAST)
step = jax.jit(cache.step, static_argnums=0, compiler_options=FAST)
fork = jax.jit(cache.fork)


@functools.lru_cache
def model(periods=1):
    spec = small(8, periods=periods)
    return spec, draw(spec, periods)


@functools.lru_cache
def _whole(periods):
    spec, params = model(periods)
    return jax.jit(lambda trees: decoder.hidden(spec, params, trees), compiler_options=FAST)


def last(tokens, periods=1):
    """Hidden state of the last token of a sequence, by the whole forward pass."""
    padded = np.zeros(LENGTH, int)
    padded[: len(tokens)] = tokens
    # A causal model does not see what follows, so zeros after the end are no padding to it.
    return np.asarray(_whole(periods)(line(padded, 8)))[0, len(tokens) - 1]


class Book:
    """A cache beside the plain lists of tokens that its slots should hold."""

    def __init__(self, slots, periods=1):
        self.periods = periods
        self.spec, self.params = model(periods)
        self.cache = cache.init(self.spec, slots, LENGTH)
        self.held = [[] for _ in range(slots)]
        self.marked = [[] for _ in range(slots)]
        self.rng = np.random.default_rng(0)

    def check(self, h, fed):
        assert self.cache.length.tolist() == [len(held) for held in self.held]
        h = np.asarray(h)
        for s, held in enumerate(self.held):
            if fed[s]:
                np.testing.assert_allclose(h[s], last(held, self.periods), atol=1e-4)

    def extend(self, *count, width=12):
        tokens = self.rng.integers(0, VOCAB, (len(count), width))
        for s, n in enumerate(count):
            self.held[s] = [*self.held[s], *tokens[s, :n].tolist()]
        args = (jnp.asarray(tokens), jnp.asarray(count))
        self.cache, h = extend(self.spec, self.params, self.cache, *args)
        self.check(h, count)

    def step(self, *active):
        tokens = self.rng.integers(0, VOCAB, len(active))
        for s, go in enumerate(active):
            self.held[s] = [*self.held[s], int(tokens[s])] if go else self.held[s]
        args = (jnp.asarray(tokens), jnp.asarray(active, bool))
        self.cache, h = step(self.spec, self.params, self.cache, *args)
        self.check(h, active)

    def mask(self, *slots):
        return jnp.asarray([s in slots for s in range(len(self.held))])

    def mark(self, *slots):
        self.cache = cache.mark(self.cache, self.mask(*slots))
        self.marked = [self.held[s] if s in slots else m for s, m in enumerate(self.marked)]

    def rollback(self, *slots):
        self.cache = cache.rollback(self.cache, self.mask(*slots))
        self.held = [self.marked[s] if s in slots else h for s, h in enumerate(self.held)]

    def reset(self, *slots):
        self.cache = cache.reset(self.cache, self.mask(*slots))
        for s in slots:
            self.held[s], self.marked[s] = [], []

    def fork(self, *source):
        self.cache = fork(self.cache, jnp.asarray(source))
        self.held = [self.held[s] for s in source]
        self.marked = [self.marked[s] for s in source]


@pytest.mark.parametrize("periods", [1, 2])
def test_mixed_feeding_equals_the_whole_forward(periods):
    book = Book(3, periods)
    book.extend(12, 1, 0)
    book.step(1, 1, 0)
    book.step(0, 1, 1)
    book.extend(2, 9, 3)  # fewer new tokens than the tail is long, after one and after none
    book.extend(1, 0, 8)
    book.step(1, 1, 1)


def test_rollback_drops_the_branch_and_keeps_the_trunk():
    book = Book(3)
    book.extend(9, 5, 2)
    book.mark(0, 1, 2)
    book.extend(10, 4, 3)  # branches, longer and shorter than a chunk
    book.step(1, 1, 0)
    book.rollback(0, 2)  # slot 1 stays on its branch
    book.extend(3, 1, 2)  # the trunk goes on: shorter than what was forgotten
    book.step(1, 1, 1)
    book.rollback(0, 1)  # to the same mark again
    book.step(1, 1, 1)


def test_fork_copies_the_past_and_the_mark():
    book = Book(3)
    book.extend(7, 4, 0)
    book.mark(0, 1)
    book.extend(2, 1, 5)
    book.fork(0, 0, 0)
    book.step(1, 1, 1)
    book.extend(1, 6, 0)
    book.rollback(1, 2)
    book.step(1, 1, 1)
    book.fork(1, 0, 2)  # two slots change places
    book.step(1, 1, 1)


def test_a_reused_slot_never_sees_its_predecessor():
    book = Book(2)
    book.extend(12, 6)
    book.mark(0, 1)
    book.step(1, 1)
    book.reset(0)
    book.extend(2, 3)
    book.step(1, 1)
    book.rollback(0)  # a reset slot's mark is its own emptiness
    book.step(1, 0)
    # Bit for bit what an untouched cache says.
    fresh = Book(2)
    fresh.cache, fresh.held = cache.init(fresh.spec, 2, LENGTH), [[], []]
    spec, params = model()
    tokens, count = jnp.asarray([[3, 1, 4, 1, 5], [0] * 5]), jnp.asarray([5, 0])
    used = cache.reset(book.cache, book.mask(0))
    _, old = extend(spec, params, used, tokens, count)
    _, new = extend(spec, params, fresh.cache, tokens, count)
    assert bool((old[0] == new[0]).all())


def test_untouched_slots_stay_bit_equal():
    book = Book(2)
    book.extend(6, 6)
    before = jax.tree.map(np.asarray, book.cache.now)
    book.extend(5, 0)
    book.step(1, 0)
    after = jax.tree.map(np.asarray, book.cache.now)
    for name in before.state:
        assert (before.state[name][:, 1] == after.state[name][:, 1]).all()
        assert (before.tail[name][:, 1] == after.tail[name][:, 1]).all()
        assert (before.state[name][:, 0] != after.state[name][:, 0]).any()


def test_a_full_slot_can_be_filled_to_the_brim():
    book = Book(2)
    for _ in range(3):
        book.extend(12, 12)
    book.extend(11, 12)
    book.step(1, 0)
    assert book.cache.length.tolist() == [LENGTH, LENGTH] and book.cache.capacity == LENGTH


def test_decoding_runs_inside_a_while_loop():
    spec, params = model()
    start = cache.init(spec, 2, LENGTH)
    tokens = jnp.asarray(np.random.default_rng(1).integers(0, VOCAB, (10, 2)))

    @jax.jit
    def decode(start):
        zero = jnp.zeros((2, spec.width))
        body = lambda c: (c[0] + 1, *cache.step(spec, params, c[1], tokens[c[0]], c[0] < limit))
        limit = jnp.asarray([10, 4])
        return jax.lax.while_loop(lambda c: c[0] < 10, body, (0, start, zero))

    _, end, h = decode(start)
    assert end.length.tolist() == [10, 4]
    np.testing.assert_allclose(h[0], last(tokens[:, 0]), atol=1e-4)


def test_bfloat16_cache_keeps_a_float32_state():
    spec, params = model()
    narrow = dataclasses.replace(spec, dtype="bfloat16")
    held = cache.init(narrow, 2, LENGTH)
    held, h = step(narrow, params, held, jnp.asarray([1, 2]), jnp.asarray([True, True]))
    assert (h.dtype, held.keys["layer1"].dtype) == (jnp.bfloat16, jnp.bfloat16)
    assert held.now.state["layer0"].dtype == jnp.float32
