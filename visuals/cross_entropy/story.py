"""Sentences about the figures of the cross-entropy ladders, with their numbers."""

from __future__ import annotations

from kernels.cross_entropy.ladder import LADDERS
from kernels.cross_entropy.shape import CrossEntropyShape
from kernels.i18n import mark, tr
from visuals import units
from visuals.charts.ladder_story import ladder_story

# What the minimum traffic of each ladder is made of.
_TRAFFIC = {
    "cross-entropy": mark("x is read once. Loss and log-sum-exp are two numbers per row."),
    "cross-entropy-backward": mark("x is read once and dx is written once."),
    "cross-entropy-step": mark(
        "x is read once and dx is written once. In two kernels x is read a second time."
    ),
}


def cost(ladder: str, s: CrossEntropyShape) -> str:
    """Returns what a shape moves at least."""
    fields = {"bytes": units.bytes_(s.bytes), "x": units.bytes_(4 * s.elements)}
    least = tr("At least {bytes} are moved. The logits x have {x}.", **fields)
    return f"{least} {tr(_TRAFFIC[ladder])}"


STORIES = {
    ladder.name: ladder_story(ladder.name, lambda s, name=ladder.name: cost(name, s)) for ladder in LADDERS
}
