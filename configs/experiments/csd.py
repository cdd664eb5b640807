"""Claim 2: what does coached self-distillation add, in which form, with which coach?

    mimesis evidence --config experiments/csd --seeds 5 --out runs/evidence

arms    with the simulator as user: alpha 0 (claim 1's arm), 0.02, 0.05, 0.1, 0.3 with the honest
        coach; at 0.05 and on three seeds also its simpler self, a coach that leaks the hidden wish,
        one that is silent on right replies, a placebo (at 0.3 too), CSD in both updates, another
        beta, half the learning rate (with CSD and without), CSD that ends half way, and an entropy
        bonus
claim   alpha 0.05 minus alpha 0: chosen before any run, the dose the trial bore
time    about 2.3 minutes an arm and seed on one core, 53 arms: about 62 minutes on two cores; the
        preparation not counted
came    five seeds: alpha 0 0.710, 0.02 0.702, 0.05 0.721, 0.1 0.727, 0.3 0.738; 0.05 minus 0 +0.011
        [-0.018, 0.037], by Student's t over seeds [-0.023, 0.044]: it takes nothing away, and that
        it adds something is not shown. A placebo does as well (+0.018, at 0.3 +0.027). No form and
        no coach stands out. AUC 0.95, placebo 0.56, among replies of one act 0.95 and 0.54
"""

from pathlib import Path

from mimesis_jax import config

CLAIMED = 0.05


def get_config():
    """See base.py; any value can be set with --config.KEY=VALUE."""
    made = config.read(Path(__file__).with_name("base.py"))
    rate, steps = made.agent.optimizer.lr, made.agent.steps
    doses = {f"alpha_{round(100 * alpha):02d}": alpha for alpha in (0.0, 0.02, 0.05, 0.1, 0.3)}
    forms = {
        "simple_coach": {"skill": 1},
        "leaking_coach": {"coach": "leaking"},
        "silent_on_right": {"coach": "silent_on_right"},
        "placebo": {"coach": "placebo"},
        "placebo_30": {"coach": "placebo", "alpha": 0.3},
        "both_updates": {"csd_updates": 2},
        "beta_1": {"beta": 1.0},
        "half_rate": {"lr": rate / 2},
        "half_rate_without": {"lr": rate / 2, "alpha": 0.0},
        "first_half": {"csd_until": steps // 2},
        "entropy_bonus": {"entropy": 0.01},
    }
    with made.unlocked():
        made.name = "csd"
        made.arms = {name: {"alpha": alpha} for name, alpha in doses.items()}
        for name, form in forms.items():
            made.arms[name] = {"alpha": CLAIMED, "seeds": 3} | form
        made.against = "alpha_00"
        made.claims.claim_csd = ("alpha_05", "alpha_00")
        made.dose.alpha = tuple(doses)
        made.measures.mechanism = {"goals": 256}
    return made
