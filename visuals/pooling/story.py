"""Sentences about the figures of the pooling ladders, with their numbers."""

from __future__ import annotations

from kernels.i18n import mark, tr
from kernels.pooling.ladder import LADDERS
from kernels.pooling.shape import GlobalShape, PoolShape
from visuals import units
from visuals.charts.ladder_story import ladder_story

# What the minimum traffic of each ladder is made of.
_TRAFFIC = {
    "max-pool": mark("x is read once. y and the places of the maxima are written once."),
    "max-pool-backward": mark("dy and the places of the maxima are read once, dx is written once."),
    "avg-pool": mark("x is read once and y is written once."),
    "avg-pool-backward": mark("dy is read once and dx is written once."),
    "global-avg-pool": mark("x is read once. y is one number per plane."),
    "global-avg-pool-backward": mark("dx is written once. dy is one number per plane."),
}


def cost(ladder: str, s: PoolShape | GlobalShape) -> str:
    """Returns what a shape moves at least, and in how many windows a pixel is."""
    sentences = [
        tr("At least {bytes} are moved.", bytes=units.bytes_(s.bytes)),
        tr(_TRAFFIC[ladder]),
    ]
    if isinstance(s, PoolShape):
        sentences.append(
            tr(
                "Windows per pixel on average, padding included: {times}.",
                times=units.ratio(s.macs / s.pixels),
            )
        )
    return " ".join(sentences)


STORIES = {
    ladder.name: ladder_story(ladder.name, lambda s, name=ladder.name: cost(name, s)) for ladder in LADDERS
}
