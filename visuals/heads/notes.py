"""Sentences about the figures of the copies between rows of tokens and heads, with their numbers."""

from __future__ import annotations

from functools import partial

from kernels.heads.ladder import MERGE, SPLIT
from kernels.heads.presets import presets
from kernels.heads.shape import HeadsShape
from kernels.i18n import decimal, mark, tr
from kernels.records.gpus import cached
from visuals import units
from visuals.charts import layer_notes
from visuals.charts.ladder_notes import LadderNotes


def cost(s: HeadsShape) -> str:
    """Returns what is moved, and why nothing is computed."""
    return tr(
        "{numbers} numbers are read once and written once: {bytes}. Nothing is computed: each number gets another address.",
        numbers=decimal(f"{s.elements:,}"),
        bytes=units.bytes_(s.bytes),
    )


@cached(4)
def _examples(ladder: str):
    return layer_notes.examples(ladder, f"{ladder}/elements", presets(ladder))


NOTES = {
    ladder: LadderNotes(
        cost,
        layer_notes.gain(f"{ladder}/elements"),
        partial(_examples, ladder),
        mark("Recorded speed-up of our fastest kernel over the plainest:"),
    )
    for ladder in (SPLIT, MERGE)
}
