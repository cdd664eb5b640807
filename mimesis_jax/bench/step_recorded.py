"""Chairs that decode for real and say what was recorded, so that a model without skill can play.

A model with random weights says nothing that parses, and its episodes would end at once. Here the
engine decodes each reply to the recorded length and hands out the recorded ids in place of those it
sampled; the seat, the gym, the trees and the trainer's step are the real ones and notice nothing.
"""

from __future__ import annotations

import collections
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from mimesis_jax import types
from mimesis_jax.bench import measure
from mimesis_jax.chat import render
from mimesis_jax.rollouts import engine, sampling, seat

Said = Mapping[tuple[int, int, int], np.ndarray]  # (goal, copy, turn of the dialogue) -> ids


def said(
    episodes: Sequence[types.Episode],
    renderer: render.Renderer,
    chair: types.Chair,
    thinking: seat.Thinking,
) -> Said:
    """The ids [n] of every reply of a chair: thought where it thinks, words, the id that ends."""
    after = len(renderer.missing_end(renderer.stops(chair)[:1]))  # what stands between turns
    found = {}
    for episode in episodes:
        goal, copy = episode.key.goal, episode.key.copy
        spoken = [i for i, turn in enumerate(episode.dialogue) if turn.author == chair]
        for i in spoken:
            left = episode.stop is types.Stop.LEFT and chair == "user" and i == spoken[-1]
            line, head = renderer.line(episode.dialogue[i], thinking, left=left)
            found[(goal, copy, i)] = np.asarray(line[head : len(line) - after], np.int32)
    return found


class Recorded(engine.Engine):
    """An engine whose replies have the recorded lengths and are handed out as the recorded ids.

    said: see `said`. watch: wait for the device after a hand-over and a prefill, so that `seconds`
    (of hand_over, prefill and decode) tell these apart; without it the wait falls to the decode.
    """

    def __init__(self, *args: Any, said: Said, **fields: Any):
        self.said, self.watch = said, False
        self.seconds: collections.defaultdict[str, float] = collections.defaultdict(float)
        super().__init__(*args, **fields)

    def load(self, params: Any, version: int, *, midway: bool = False) -> None:
        start = time.perf_counter()
        super().load(params, version, midway=midway)
        if self.watch:
            jax.block_until_ready(self._params)
        self.seconds["hand_over"] += time.perf_counter() - start

    def submit(self, asked: engine.Request) -> None:
        """Asks for exactly as many tokens as were recorded.

        Raises BenchError for a reply that was not recorded.
        """
        wanted = dataclasses.replace(
            asked, stop=(), limit=len(self._of(asked)), ban=sampling.NO_BAN, ban_until=0
        )
        super().submit(wanted)

    def advance(self) -> list[engine.Completion]:
        return [self._told(done) for done in super().advance()]

    def _of(self, asked: engine.Request) -> np.ndarray:
        _, goal, copy, number = asked.stream
        turn = number // 2  # the chair is in the last bit, see ModelSeat
        if (goal, copy, turn) not in self.said:
            raise measure.BenchError(
                f"goal {goal}, copy {copy} has no recorded reply at turn {turn}: the dialogue left "
                "its record, play it from the same goals with the same gym"
            )
        return self.said[(goal, copy, turn)]

    def _told(self, done: engine.Completion) -> engine.Completion:
        ids = self._of(done.request)
        if len(done.ids) != len(ids):
            raise measure.BenchError(
                f"a recorded reply of {len(ids)} tokens did not fit a slot of {self.config.length}:"
                " use a larger length of the engine"
            )
        return dataclasses.replace(done, ids=ids, stopped=True, full=False)

    def _admit(self) -> list[engine.Completion]:
        start = time.perf_counter()
        refused = super()._admit()
        if self.watch:
            jax.block_until_ready(self._state)
        self.seconds["prefill"] += time.perf_counter() - start
        return refused

    def _decode(self) -> list[engine.Completion]:
        start = time.perf_counter()
        done = super()._decode()
        self.seconds["decode"] += time.perf_counter() - start
        return done
