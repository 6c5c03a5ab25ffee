"""Sentences about the figures of attention's forward pass in training, with their numbers."""

from __future__ import annotations

from kernels.attention.lse.presets import LSE_PRESETS
from kernels.attention.lse.shape import LseShape
from kernels.i18n import mark, tr
from kernels.records.gpus import cached
from visuals import units
from visuals.charts import layer_notes
from visuals.charts.ladder_notes import LadderNotes

NAME = "attention-lse"
PLAIN = f"{NAME}/blocked"
FLOAT = 4  # bytes


def row_sums(s: LseShape) -> int:
    """Returns the bytes of L."""
    return FLOAT * s.heads * s.N


def cost(s: LseShape) -> str:
    """Returns what L adds, and what the weights would be instead."""
    return tr(
        "L is {rows}, {share} of the {bytes} that are moved at least. The weights P would be {weights}.",
        rows=units.bytes_(row_sums(s)),
        share=units.share(row_sums(s) / s.bytes),
        bytes=units.bytes_(s.bytes),
        weights=units.bytes_(FLOAT * s.heads * s.N**2),
    )


@cached(1)
def _examples():
    return layer_notes.examples(NAME, PLAIN, LSE_PRESETS)


NOTES = {
    NAME: LadderNotes(
        cost,
        layer_notes.gain(PLAIN),
        _examples,
        mark("Recorded speed-up of flash attention with L over S and P in memory:"),
    )
}
