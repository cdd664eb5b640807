"""A stage whose process is asked to end: all processes of the run end with it, after one save."""

from __future__ import annotations

from mimesis_jax.runs import checkpoint, processes, signals


def asked(phase: str) -> bool:
    """Whether any process of the run was asked to end; from then on, all of them are.

    A notice reaches one machine first, and a save is a matter of all: asked after each step, on
    every process alike. On one process it costs nothing.
    """
    if processes.count() > 1 and any(processes.agree(signals.asked(), f"{phase}: go on?")):
        signals.ask()
    return signals.asked()


def after(store: checkpoint.Store, phase: str, step: int, steps: int) -> None:
    """After a save: ends the process when it was asked to, once the checkpoint is complete.

    Raises signals.Terminated. The last step's save is followed by the stage's own end.
    """
    if signals.asked() and step < steps:
        store.wait()
        signals.obey(f"{phase} was saved after step {step} of {steps}")
