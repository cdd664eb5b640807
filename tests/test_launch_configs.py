"""The eight large configurations: in the fields that the parts have, with the papers' figures."""

import pytest

from mimesis_jax import config
from mimesis_jax.forest import shape
from mimesis_jax.models import decoder
from mimesis_jax.models import spec as specs
from mimesis_jax.rollouts import engine, seat
from mimesis_jax.trainers import agent, simulator, supervised

NAMES = [
    f"{stage}_{size}"
    for stage in ("simulator_midtrain", "simulator_thoughts", "simulator_grpo", "agent_csd")
    for size in ("4b", "9b")
]
PARTS = {
    "simulator_midtrain": supervised.Config,
    "simulator_thoughts": supervised.Config,
    "simulator_grpo": simulator.Config,
    "agent_csd": agent.Config,
    "shape": shape.Shape,
    "engine": engine.Config,
    "user_seat": seat.Config,
    "agent_seat": seat.Config,
}


def frozen(name):
    """A configuration, and its sections as the parts' dataclasses."""
    got = config.read(name)
    return got, {k: config.freeze(cls, got[k], k) for k, cls in PARTS.items() if k in got}


@pytest.mark.parametrize("name", NAMES)
def test_sections_are_the_parts_own(name):
    got, parts = frozen(name)
    assert got.kind == "large" and f"{got.stage}_{name[-2:]}" == name
    assert got.stage in parts and parts["shape"].rows % (got.mesh.data * got.mesh.fsdp) == 0
    for model in ("model", "opposite"):
        if model in got:
            spec = getattr(specs, got[model].preset)()
            wanted = (4.0e9, 4.3e9) if name.endswith("4b") else (8.1e9, 9.0e9)
            assert wanted[0] < decoder.parameter_count(spec) < wanted[1]
    if "opposite" in got:
        assert got.opposite.param_dtype == "bfloat16" and got.model.param_dtype == "float32"
        assert parts["engine"].length <= parts["shape"].length


@pytest.mark.parametrize("size", ["4b", "9b"])
def test_the_published_figures(size):
    mid = frozen(f"simulator_midtrain_{size}")[1]
    assert mid["simulator_midtrain"].steps == 5000 and mid["shape"].length == 16384
    assert mid["simulator_midtrain"].optimizer.lr == 3e-5
    assert mid["simulator_midtrain"].optimizer.decay == "cosine"
    told, thoughts = frozen(f"simulator_thoughts_{size}")
    assert thoughts["simulator_thoughts"].optimizer.lr == 1e-7 and told.data.epochs == 3
    user = frozen(f"simulator_grpo_{size}")[1]
    grpo = user["simulator_grpo"]
    assert (grpo.copies, grpo.loss.eps_low, grpo.loss.eps_high) == (8, 0.2, 0.28)
    assert grpo.optimizer.lr == 8e-6 and user["user_seat"].min_think == 4
    csd = frozen(f"agent_csd_{size}")[1]["agent_csd"]
    assert (csd.loss.alpha, csd.beta, csd.optimizer.lr) == (0.01, 5.0, 1e-6)
    assert (csd.credit.score, csd.credit.credit, csd.credit.gamma) == ("r2g", "r2g", 0.8)


def test_values_can_be_set_and_mistyped_keys_are_answered():
    got = config.read("agent_csd_9b", {"mesh.fsdp": "64", "agent_csd.loss.alpha": "0.02"})
    assert got.mesh.fsdp == 64 and got.agent_csd.loss.alpha == 0.02
    with pytest.raises(config.ConfigError, match="agent_csd.steps"):
        config.read("agent_csd_9b", {"agent_csd.stepz": "1"})
