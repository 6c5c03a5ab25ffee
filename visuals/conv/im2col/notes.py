"""The notes on im2col: its cost, its gain, and at which presets."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr, trn
from kernels.model.preset import Preset
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, recorded_at
from visuals.conv.part import copies_per_pixel

IM2COL_GEMMS = {"conv/im2col-gemm": mark("our GEMM"), "conv/im2col-cublas": mark("the library's GEMM")}


def im2col_cost(s: ConvShape) -> str:
    """Returns the size of the data matrix at this shape, compared with the input."""
    matrix, x = 4 * s.N * s.CRS * s.PQ, 4 * s.elements["x"]
    size = tr(
        "The data matrix takes {matrix}, {ratio}× the input's {input}.",
        matrix=units.bytes_(matrix),
        ratio=units.ratio(matrix / x),
        input=units.bytes_(x),
    )
    copies = trn(
        "Each pixel is copied into up to {n} column (R·S = {taps}).",
        "Each pixel is copied into up to {n} columns (R·S = {taps}).",
        copies_per_pixel(s),
        taps=s.R * s.S,
    )
    return f"{size} {copies}"


def im2col_gain(rows: Mapping[str, Row]) -> str:
    """Returns how much time the data matrix gains. `rows` are by rung name, from one device. Returns "" if one is
    missing."""
    if not (pair := _direct_and_best(rows)):
        return ""
    direct, best = pair
    gemm, ratio = tr(IM2COL_GEMMS[best["rung"]]), direct["median_ms"] / best["median_ms"]
    if within_spread(best, direct):
        return tr(
            "There is no measurable difference between direct and im2col with {gemm}: the spreads overlap.", gemm=gemm
        )
    if ratio > 1:
        return tr("im2col with {gemm} is {ratio}× as fast as direct.", gemm=gemm, ratio=units.ratio(ratio))
    return tr(
        "At this size im2col is slower: with {gemm} it takes {ratio}× the time of direct. "
        "The copy and the extra launch cost more than the faster product saves.",
        gemm=gemm,
        ratio=units.ratio(1 / ratio),
    )


@cached(8)
def im2col_examples() -> list[tuple[Preset, str]]:
    """Returns the presets at which im2col gains most and least (or loses), from the cold recordings."""

    def speedup(s: ConvShape) -> float | None:
        pair = _direct_and_best(recorded_at(s, ("conv/direct", *IM2COL_GEMMS)))
        return pair and pair[0]["median_ms"] / pair[1]["median_ms"]

    return extremes(speedup, "{:.2g}×".format)


def _direct_and_best(rows: Mapping[str, Row]) -> tuple[Row, Row] | None:
    """Returns the row of direct and the fastest other row."""
    direct, best = (rows.get("conv/direct"), fastest(row for name, row in rows.items() if name != "conv/direct"))
    return (direct, best) if direct and best else None


IM2COL = LadderNotes(im2col_cost, im2col_gain, im2col_examples, mark("Recorded speed of im2col, relative to direct:"))
