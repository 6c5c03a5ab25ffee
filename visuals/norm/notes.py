"""Sentences about the figures of the norm ladders, with their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernels.i18n import mark, tr
from kernels.ladders import LADDERS, find
from kernels.model.shape import Shape
from kernels.norm.maps_ladder import BATCH_NORM, BATCH_NORM_BACKWARD, BATCH_NORM_INFERENCE
from kernels.norm.rows_ladder import LAYER_NORM, LAYER_NORM_BACKWARD, RMS_NORM, RMS_NORM_BACKWARD
from kernels.norm.shape import FLOAT, MapsShape, RowsShape
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts import bandwidth
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, fastest_library, recorded_at, title

# The plainest rung of each ladder: the others are compared with it.
PLAINEST = {
    BATCH_NORM.name: "batch-norm/two-pass",
    BATCH_NORM_INFERENCE.name: "batch-norm-inference/formula",
    BATCH_NORM_BACKWARD.name: "batch-norm-backward/two-pass",
    LAYER_NORM.name: "layer-norm/three-reads",
    LAYER_NORM_BACKWARD.name: "layer-norm-backward/atomics",
    RMS_NORM.name: "rms-norm/two-reads",
    RMS_NORM_BACKWARD.name: "rms-norm-backward/atomics",
}
# What each ladder moves: sentences with the bytes of so many tensors of the size of x.
COSTS = {
    BATCH_NORM.name: mark(
        "x has {one}. Two passes over x for the statistics and one for the result move {four}. With the statistics in one "
        "pass it is {three}. This is the minimum for a channel that no cache holds: its mean is known only when all of it "
        "was read."
    ),
    BATCH_NORM_INFERENCE.name: mark(
        "x has {one}. x is read once and y is written once: {two}. The numbers of a channel come from a cache."
    ),
    BATCH_NORM_BACKWARD.name: mark(
        "x has {one}. dy and x are read for the two sums of a channel, and again for dx. With dx that is {five}."
    ),
    LAYER_NORM.name: mark(
        "x has {one}. Three reads of x and one write of y move {four}. Two reads move {three}. One read moves {two}, the "
        "minimum: the row stays in registers."
    ),
    LAYER_NORM_BACKWARD.name: mark(
        "x has {one}. dy and x read once and dx written once are {three}, the minimum. With dy and x read twice it is "
        "{five}. With sums by columns in a launch of their own it is {seven}."
    ),
    RMS_NORM.name: mark(
        "x has {one}. Two reads of x and one write of y move {three}. One read moves {two}, the minimum: the row stays in "
        "registers."
    ),
    RMS_NORM_BACKWARD.name: mark(
        "x has {one}. dy and x read once and dx written once are {three}, the minimum. With dy and x read twice it is "
        "{five}."
    ),
}
TENSORS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "seven": 7}


def cost_of(ladder: str) -> Callable[[MapsShape | RowsShape], str]:
    """Returns the function that says what the kernels of a ladder move at a shape."""

    def cost(s: MapsShape | RowsShape) -> str:
        x = FLOAT * s.elements
        return tr(COSTS[ladder], **{name: units.bytes_(count * x) for name, count in TENSORS.items()})

    return cost


def best_own(rows: Mapping[str, Row]) -> Row | None:
    """Returns the fastest row of our own kernels; None if there is none."""
    return fastest(row for name, row in rows.items() if not find(name).library)


def gain_of(ladder: str) -> Callable[[Mapping[str, Row]], str]:
    """Returns the function that says how much faster the fastest kernel of a ladder is. It returns "" if there is nothing
    to compare."""

    def gain(rows: Mapping[str, Row]) -> str:
        best, plainest = best_own(rows), rows.get(PLAINEST[ladder])
        if not best or not plainest:
            return ""
        return " ".join([_speed(best, plainest), *_library(best, rows), *_useful(best)])

    return gain


def _speed(best: Row, plainest: Row) -> str:
    name, plain = title(best), title(plainest)
    if best is plainest:
        return tr("“{name}” is the fastest of our kernels at this size.", name=name)
    if within_spread(best, plainest):
        return tr("“{name}” and “{plain}” take the same time: their spreads overlap.", name=name, plain=plain)
    ratio = units.ratio(plainest["median_ms"] / best["median_ms"])
    return tr("“{name}” is {ratio}× as fast as “{plain}”.", name=name, ratio=ratio, plain=plain)


def _library(best: Row, rows: Mapping[str, Row]) -> list[str]:
    library = fastest_library(rows.values())
    if not library:
        return []
    speed = library["median_ms"] / best["median_ms"]
    fields = {"name": title(best), "library": title(library), "ratio": units.ratio(speed), "share": units.share(speed)}
    if fields["ratio"] == "1":
        return [tr("“{name}” is as fast as {library}.", **fields)]
    if speed > 1:
        return [tr("“{name}” is {ratio}× as fast as {library}.", **fields)]
    return [tr("“{name}” reaches {share} of the speed of {library}.", **fields)]


def _useful(best: Row) -> list[str]:
    """Returns a sentence on a copy of the bytes that the fastest kernel must move, if the time of a copy was measured."""
    ceilings = best.get("ceilings") or {}
    if not ceilings:
        return []
    moved = bandwidth.bytes_of(best)
    ms = moved / ceilings["copy_bytes_per_s"] * 1e3
    if ms * 1e3 <= ceilings.get("launch_us", 0):  # then launch overhead dominates
        return []
    return [
        tr(
            "A copy of the {bytes} that it must move takes {time}. This is {share} of its time.",
            bytes=units.bytes_(moved),
            time=units.time_(ms),
            share=units.share(ms / best["median_ms"]),
        )
    ]


def examples_of(ladder: str) -> Callable[[], list]:
    """Returns the function that finds the presets with the largest and the smallest recorded speed-up."""

    def gained(s: Shape) -> float | None:
        rows = recorded_at(s, [rung.name for rung in LADDERS[ladder].rungs])
        best = best_own(rows)
        plainest = rows.get(PLAINEST[ladder])
        return plainest["median_ms"] / best["median_ms"] if best and plainest else None

    return lambda: extremes(gained, presets=LADDERS[ladder].presets)


NOTES = {
    ladder: LadderNotes(
        cost_of(ladder),
        gain_of(ladder),
        examples_of(ladder),
        mark("Recorded speed-up of our fastest kernel over the plainest:"),
    )
    for ladder in PLAINEST
}
