"""CSD's scoring: the same sampled reply with and without the coach's note, and the gate between.

Teacher branches exist in the scoring forest only. What comes back, the gate and the student's
log-probs, is written onto the plain trees that the update packs again.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

from mimesis_jax import types
from mimesis_jax.chat import render
from mimesis_jax.coach import notes as coach_notes
from mimesis_jax.coach.notes import Notes
from mimesis_jax.forest import pack, tree
from mimesis_jax.models import decoder
from mimesis_jax.rollouts import scoring

LISTED, BLOCK = 256, 64  # rows longer than that have block lists, of blocks of that


def rows(shape: pack.Shape, compute: decoder.Compute = decoder.ALONE) -> pack.Shape:
    """The scoring forest's rows for updates of `shape`: a quarter as many, four times as long (or
    half and twice, where a quarter cannot be split over the devices of `compute`), in chunks of
    half the size, with block lists.

    A tree with its teachers is about twice as long, and two of them rarely fit a row of the
    update's; it forks at every note, so its segments are about half as long. Measured on the demo:
    22,528 places in place of 32,768 (28,672 with twice the length and whole chunks), and a forward
    in a quarter less of the processor time than with the latter. Rows that have block lists
    themselves stay as they are.
    """
    if shape.long:
        return shape
    chunk = max(shape.chunk // 2, min(shape.chunk, 4))
    for times in (4, 2):
        few, length = -(-shape.rows // times), times * shape.length
        if compute.layout is not None and few % compute.layout.split_rows:
            continue
        listed = length > LISTED and length % BLOCK == 0
        return dataclasses.replace(
            shape, rows=few, length=length, chunk=chunk, learned=times // 2 * shape.learned,
            dense=LISTED if listed else length, block=BLOCK if listed else shape.block,
        )  # fmt: skip
    return dataclasses.replace(shape, chunk=chunk)


def _differences(spec, params, trees, notes: Sequence[Notes], renderer: render.Renderer, shape,
                 temperature, names=None, compute: decoder.Compute = decoder.ALONE):  # fmt: skip
    """One forward over all students and teachers.

    Returns l_S [n] for all scored tokens of `trees`, and l_T [n], NaN where there is no note.
    """
    written = functools.cache(renderer.note)  # a coach says many notes more than once
    grown, students, teachers = [], [], []
    start = 0
    for one, said in zip(trees, notes, strict=True):
        tokens = {turn: written(text) for turn, text in said.items() if text is not None}
        taught = renderer.teacher(one, tokens)
        grown.append(taught.tree)
        students.append(taught.student + start)
        teachers.append(taught.teacher + start)
        start += tree.scored_count([taught.tree])
    logp = scoring.score(
        spec, params, grown, rows(shape, compute), temperature=temperature, names=names,
        compute=compute,
    )  # fmt: skip
    # Scored tokens of the grown trees that are no teacher's are the plain trees' own, in order.
    is_teacher = np.zeros(len(logp), bool)
    if teachers:
        is_teacher[np.concatenate(teachers)] = True
    own = np.flatnonzero(~is_teacher)
    taught_logp = np.full(len(logp), np.nan, np.float32)
    if students:
        taught_logp[np.concatenate(students)] = logp[np.concatenate(teachers)]
    return logp[own], taught_logp[own]


def coached(
    spec,
    params,
    trees: Sequence[types.Tree],
    notes: Sequence[Notes],
    *,
    renderer: render.Renderer,
    shape: pack.Shape,
    beta: float,
    temperature: float = 1.0,
    names: Sequence[str] | None = None,
    compute: decoder.Compute = decoder.ALONE,
) -> tuple[list[types.Tree], dict[str, float]]:
    """Writes old_logp, gate and coached onto each tree's scored tokens.

    notes: per episode, by turn; only turns with a note are coached (m_t = 1), and there only
    tokens that were sampled freely. shape: the update's, see `rows`. names: what errors call the
    trees. Returns the trees and metrics.
    """
    student, teacher = _differences(
        spec, params, trees, notes, renderer, shape, temperature, names, compute
    )  # fmt: skip
    free = tree.column(trees, "weight") > 0
    has = np.isfinite(teacher) & free
    gap = np.where(has, teacher - student, 0.0)
    gate = _gate(gap, beta)
    sampler = tree.column(trees, "old_logp")
    out = tree.carry(trees, old_logp=student, gate=np.where(has, gate, 0.0), coached=has)
    turns = sum(len(said) for said in notes)
    noted = sum(text is not None for said in notes for text in said.values())
    difference = np.abs(student - sampler)[free]
    return out, {
        "gate_mean": float(gate[has].mean()) if has.any() else 0.5,
        "gate_share_above_half": float((gate[has] > 0.5).mean()) if has.any() else 0.0,
        "none_share": 1 - noted / max(1, turns),
        "coached_tokens": int(has.sum()),
        "sampler_gap_mean": float(difference.mean()) if len(difference) else 0.0,
        "sampler_gap_max": float(difference.max()) if len(difference) else 0.0,
    }


def probes(
    spec,
    params,
    trees: Sequence[types.Tree],
    notes: Sequence[Notes],
    *,
    renderer: render.Renderer,
    shape: pack.Shape,
    beta: float,
    temperature: float = 1.0,
) -> dict[str, float]:
    """The two controls. Null: the same reply on a branch of its own without a note; its log-probs
    must not move. Placebo: another episode's notes; how much lower its gate is than the true one's.
    """
    true_gate = _gates(spec, params, trees, notes, renderer, shape, beta, temperature)
    false_gate = _gates(
        spec, params, trees, coach_notes.placebo(notes), renderer, shape, beta, temperature
    )
    empty: list[Notes] = [
        {turn: "" for turn, text in said.items() if text is not None} for said in notes
    ]
    student, teacher = _differences(spec, params, trees, empty, renderer, shape, temperature)
    has = np.isfinite(teacher)
    null = float(np.max(np.abs(teacher - student)[has])) if has.any() else 0.0
    return {
        "null_probe_abs": null,
        "placebo_gap": float(true_gate.mean() - false_gate.mean()) if len(false_gate) else 0.0,
    }


def _gates(spec, params, trees, notes, renderer, shape, beta, temperature) -> np.ndarray:
    student, teacher = _differences(spec, params, trees, notes, renderer, shape, temperature)
    has = np.isfinite(teacher)
    return _gate((teacher - student)[has], beta)


def _gate(gap: np.ndarray, beta: float) -> np.ndarray:
    """losses.csd.gate of l_T - l_S on the host, where each length would be a program of its own."""
    return 1.0 / (1.0 + np.exp(-np.clip(beta * gap, -60, 60)))
