"""The two learners of `bench step --peer`: a GRPO step over ids, ours and google-tunix's own."""

from __future__ import annotations

import dataclasses
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from mimesis_jax import types
from mimesis_jax.bench import peer, rollout
from mimesis_jax.forest import pack, tree
from mimesis_jax.models import decoder
from mimesis_jax.rollouts import engine, scoring
from mimesis_jax.trainers import credit, optimizer, reinforce, warmup

SPEC = rollout.SPEC
RATE = 1e-5
ADAM = optimizer.Config(lr=RATE, warmup=1, decay="constant", b2=0.999, weight_decay=0.0)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """prompts P, copies G, ids of a prompt, tokens of a reply."""

    prompts: int = 2
    copies: int = 4
    told: int = 128
    said: int = 128

    @property
    def rewards(self) -> list[float]:
        return [float(i % 2) for i in range(self.prompts * self.copies)]


@dataclasses.dataclass(frozen=True)
class Ours:
    """How our step runs. block: tokens of one decode program. shared: rows that hold a prompt once
    for all of its copies. score: with the scoring forward."""

    block: int
    shared: bool
    score: bool = True


@dataclasses.dataclass(frozen=True)
class Theirs:
    """cache: tokens. micro: prompts of a micro-batch of the update. beta: weight of the KL to the
    reference model; 0 is without its forward."""

    cache: int
    micro: int
    beta: float = 0.04


# --- ours -----------------------------------------------------------------------------------------


class OurLearner:
    """Engine, state and one GRPO step over token ids, of the project's own functions."""

    def __init__(self, params: Any, sizes: Sizes, setting: Ours):
        self.params, self.sizes, self.setting, self.number = params, sizes, setting, 0

    def make(self) -> None:
        """The engine, the optimizer's state, and all programs at once, as agent.warm does it."""
        sizes, setting = self.sizes, self.setting
        whole = sizes.told + sizes.said
        spans = tuple(range(sizes.told + setting.block, whole, setting.block))
        self.engine = engine.Engine(SPEC, None, engine.Config(
            slots=sizes.prompts * sizes.copies, length=whole, block=setting.block,
            buckets=(sizes.told,), rows=(), spans=spans,
        ))  # fmt: skip
        self.state = optimizer.init(self.params, ADAM)
        one = pack.Shape(sizes.prompts * sizes.copies, whole, SPEC.chunk, sizes.said)
        self.apart = self.rows = one
        if setting.shared:
            long = sizes.told + sizes.copies * sizes.said
            self.rows = pack.Shape(sizes.prompts, long, SPEC.chunk, sizes.copies * sizes.said)
        self.engine.load(self.state.params, 0)
        warmup.warm(
            self.state, SPEC, [self.engine], self.rows, ADAM, decoder.ALONE,
            scored=self.apart if setting.score else None,
        )  # fmt: skip

    def step(self, prompts: Sequence[Sequence[int]]) -> None:
        """Generate, score, credit, update."""
        if not self.number:
            self.make()
        sizes = self.sizes
        self.number += 1
        self.engine.load(self.state.params, self.number)
        for goal, ids in enumerate(prompts):
            for copy in range(sizes.copies):
                self.engine.submit(engine.Request(
                    goal * sizes.copies + copy, ids, (), False, (self.number, goal, copy, 0), (),
                    sizes.said,
                ))  # fmt: skip
        done: list[engine.Completion] = []
        while self.engine.open_requests:
            done += self.engine.advance()
        done.sort(key=lambda reply: reply.request.stream)
        trees = [_line(reply) for reply in done]
        for reply in done:
            self.engine.close(reply.request.conversation)
        if self.setting.score:
            logp = scoring.score(SPEC, self.state.params, trees, self.apart)
            trees = tree.carry(trees, old_logp=logp)
        groups = [reply.request.stream[1] for reply in done]
        rewards = [(reward,) for reward in sizes.rewards]
        trees, _, _ = credit.assign(trees, rewards, groups, credit.Config())
        self.state, self.metrics = reinforce.update(
            SPEC, self.state, trees, self.rows, reinforce.Loss(), RATE, ADAM
        )
        jax.block_until_ready(self.state)

    def close(self) -> None:
        """There is nothing to end; the peer's learner has a thread."""


def _line(reply: engine.Completion) -> types.Tree:
    """A prompt and its sampled reply as the tree that an agent's seat would make."""
    told = types.segment(np.asarray(reply.request.extend))
    said = types.segment(reply.ids, 0, scored=True, weight=reply.free, old_logp=reply.logp, turn=1)
    return (told, said)


# --- theirs ---------------------------------------------------------------------------------------


class TheirLearner:
    """The peer's learner on a thread of its own: its data set is a hand that gives one batch, and
    notices that the step is over when the next one is asked for."""

    def __init__(self, params: Any, sizes: Sizes, setting: Theirs):
        self.models = (peer.model(SPEC, params), peer.model(SPEC, params) if setting.beta else None)
        self.sizes, self.setting = sizes, setting
        self._given: queue.Queue = queue.Queue()
        self._over: queue.Queue = queue.Queue()
        self.made = False

    def make(self) -> None:
        """The cluster, the learner and its thread; apart, for it is a part of the first step."""
        from tunix.rl.grpo import grpo_learner

        config = grpo_learner.GRPOConfig(
            num_generations=self.sizes.copies, num_iterations=1, beta=self.setting.beta, epsilon=0.2
        )
        learner = grpo_learner.GRPOLearner(self._cluster(), config, self._reward)

        def train() -> None:
            try:
                learner.train(self._batches())
                self._over.put(None)
            except BaseException as error:  # handed to whoever waits for the step
                self._over.put(error)

        self.made = True
        threading.Thread(target=train, daemon=True).start()
        self._wait()

    def _cluster(self) -> Any:
        import optax
        from tunix.rl import rl_cluster as clusters
        from tunix.rl.rollout import base_rollout

        mesh = jax.sharding.Mesh(np.asarray(jax.devices()[:1]).reshape(1, 1), ("fsdp", "tp"))
        roles = (clusters.Role.ACTOR, clusters.Role.REFERENCE, clusters.Role.ROLLOUT)
        prompts, micro = self.sizes.prompts, self.setting.micro
        train = clusters.RLTrainingConfig(
            actor_optimizer=optax.adam(RATE, b1=ADAM.b1, b2=ADAM.b2, eps=ADAM.eps),
            eval_every_n_steps=1 << 30, max_steps=1 << 30, mini_batch_size=prompts,
            train_micro_batch_size=micro, rollout_micro_batch_size=prompts,
            compute_logps_micro_batch_size=prompts,
        )  # fmt: skip
        decode = base_rollout.RolloutConfig(
            max_tokens_to_generate=self.sizes.said, max_prompt_length=self.sizes.told,
            kv_cache_size=self.setting.cache, temperature=1.0, top_p=1.0, eos_tokens=[peer.NEVER],
        )  # fmt: skip
        return clusters.RLCluster(
            actor=self.models[0], reference=self.models[1], tokenizer=peer.Ids(),
            cluster_config=clusters.ClusterConfig(
                role_to_mesh=dict.fromkeys(roles, mesh), training_config=train,
                rollout_config=decode,
            ),
        )  # fmt: skip

    def _reward(self, prompts: Sequence[str], completions: Sequence[str], **_: Any) -> list[float]:
        return self.sizes.rewards[: len(prompts)]

    def _batches(self) -> Iterator[dict[str, Any]]:
        while True:
            self._over.put(None)
            batch = self._given.get()
            if batch is None:
                return
            yield batch

    def _wait(self) -> None:
        if (error := self._over.get()) is not None:
            raise error

    def step(self, prompts: Sequence[Sequence[int]]) -> None:
        """One step of the learner, waited for."""
        if not self.made:
            self.make()
        self._given.put({"prompts": np.array([" ".join(map(str, ids)) for ids in prompts])})
        self._wait()
        from tunix.models.qwen3 import model as qwen3

        jax.block_until_ready(jax.tree.leaves(qwen3.nnx.state(self.models[0])))

    def close(self) -> None:
        """Ends the learner's loop and its thread."""
        if self.made:
            self._given.put(None)
