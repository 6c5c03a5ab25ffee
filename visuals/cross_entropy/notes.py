"""Sentences about the figures of the cross-entropy ladders, with their numbers."""

from __future__ import annotations

from functools import partial

from kernels.cross_entropy.ladder import BACKWARD, FLOAT, FORWARD, STEP
from kernels.cross_entropy.presets import BACKWARD_PRESETS, FORWARD_PRESETS, STEP_PRESETS
from kernels.cross_entropy.shape import CrossEntropyBackwardShape, CrossEntropyShape, CrossEntropyStepShape
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.records.gpus import cached
from visuals import units
from visuals.charts import layer_notes
from visuals.charts.ladder_notes import LadderNotes

PLAIN = {FORWARD: f"{FORWARD}/unfused", BACKWARD: f"{BACKWARD}/elements", STEP: f"{STEP}/two-kernels"}
PRESETS = {FORWARD: FORWARD_PRESETS, BACKWARD: BACKWARD_PRESETS, STEP: STEP_PRESETS}


def forward_cost(s: CrossEntropyShape) -> str:
    """Returns what the rungs move and store for the loss."""
    return tr(
        "The logits have {x}. Three launches write two such matrices and read one of them: they move {unfused}. One read "
        "moves {online}, the minimum. The loss needs two numbers per row: {rows} in all.",
        x=units.bytes_(FLOAT * s.elements),
        unfused=_moved(f"{FORWARD}/unfused", s),
        online=units.bytes_(s.bytes),
        rows=units.bytes_(2 * FLOAT * s.M),
    )


def backward_cost(s: CrossEntropyBackwardShape) -> str:
    """Returns what the gradient moves, and what the forward pass kept for it."""
    return tr(
        "The gradient reads {x} and writes as much: {moved} in all, the minimum. The forward pass kept one number per row, "
        "{lse}. Kept probabilities would take {x}.",
        x=units.bytes_(FLOAT * s.elements),
        moved=units.bytes_(s.bytes),
        lse=units.bytes_(FLOAT * s.M),
    )


def step_cost(s: CrossEntropyStepShape) -> str:
    """Returns what one and two reads of the logits move."""
    return tr(
        "Two reads of the logits and one write of the gradient move {two}. One read moves {one}, the minimum. A row of {row} "
        "must then stay in shared memory.",
        two=_moved(f"{STEP}/two-kernels", s),
        one=units.bytes_(s.bytes),
        row=units.bytes_(FLOAT * s.N),
    )


def _moved(rung: str, s: CrossEntropyShape) -> str:
    found = find(rung)
    return units.bytes_(found.cost(s, found.build(s, found.default_tiles)).moved_bytes)


@cached(16)
def _examples(ladder: str):
    return layer_notes.examples(ladder, PLAIN[ladder], PRESETS[ladder])


COSTS = {FORWARD: forward_cost, BACKWARD: backward_cost, STEP: step_cost}
NOTES = {
    ladder: LadderNotes(
        cost,
        layer_notes.gain(PLAIN[ladder]),
        partial(_examples, ladder),
        mark("Recorded speed-up of our fastest kernel over the plainest:"),
    )
    for ladder, cost in COSTS.items()
}
