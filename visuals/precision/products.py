"""Sentences about the figures of the ladder of 8-bit products, with their numbers."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.gemm.eight_bit.shape import EightBitShape
from kernels.i18n import mark, tr
from kernels.ladders import LADDERS, find
from kernels.model.preset import Preset
from kernels.model.shape import Shape
from kernels.records.statistics import fastest
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, fastest_library, recorded_at, title

LADDER = LADDERS["gemm-8bit"]
TYPES = {"int8": "INT8", "fp8": "FP8"}


def name(shape: EightBitShape) -> str:
    """Returns a shape in a few words."""
    return f"{shape.M:,} × {shape.N:,} × {shape.K:,} {TYPES[shape.dtype]}"


def cost(s: EightBitShape) -> str:
    """Returns what a shape computes, and what it moves at least."""
    return tr(
        "{macs} multiply-adds of 8-bit numbers. A and B have {inputs}, C has {outputs}: a result takes 4 bytes, a factor 1.",
        macs=units.count(s.macs),
        inputs=units.bytes_(s.elements["A"] + s.elements["B"]),
        outputs=units.bytes_(4 * s.elements["C"]),
    )


def share_of_library(rows: Mapping[str, Row]) -> tuple[Row, Row, float] | None:
    """Returns (our fastest row, the library's, the speed as a share of the library's); None if one is missing."""
    best = fastest(row for rung, row in rows.items() if not find(rung).library)
    library = fastest_library(rows.values())
    return (best, library, library["median_ms"] / best["median_ms"]) if best and library else None


def gain(rows: Mapping[str, Row]) -> str:
    """Returns the share of the library's speed that our fastest kernel reaches; "" if a row is missing."""
    if not (found := share_of_library(rows)):
        return ""
    best, library, share = found
    return tr(
        "“{name}” reaches {share} of the speed of “{library}”.",
        name=title(best),
        share=units.share(share),
        library=title(library),
    )


def examples() -> list[tuple[Preset, str]]:
    """Returns (preset, text) of the recorded shares of the library's speed."""

    def reached(s: Shape) -> float | None:
        found = share_of_library(recorded_at(s, [rung.name for rung in LADDER.rungs]))
        return found[2] if found else None

    return extremes(reached, units.share, LADDER.presets)


PRODUCTS = LadderNotes(
    cost, gain, examples, mark("Speed of our fastest kernel as a share of the library’s speed, recorded:")
)
