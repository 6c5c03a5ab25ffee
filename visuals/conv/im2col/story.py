"""The story of im2col: its cost, its gain, and at which presets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kernels.conv.shape import ConvShape
from kernels.model.preset import Preset
from kernels.records.statistics import fastest, within_spread
from visuals.charts import units
from visuals.charts.story import Row, Story, extremes, recorded_at
from visuals.conv.part import copies_per_pixel

IM2COL_GEMMS = {"conv/im2col-gemm": "our GEMM", "conv/im2col-cublas": "the library's GEMM"}


def im2col_cost(s: ConvShape) -> str:
    """Returns the size of the data matrix at this shape, compared with the input."""
    matrix, x = 4 * s.N * s.CRS * s.PQ, 4 * s.elements["x"]
    return (
        f"The data matrix takes {units.bytes_(matrix)}, {matrix / x:.3g} times the input's {units.bytes_(x)}: "
        f"a pixel stands in up to {copies_per_pixel(s)} columns (R·S = {s.R * s.S})."
    )


def im2col_gain(rows: Mapping[str, Row]) -> str:
    """Returns how much time the data matrix gains. `rows` are by rung name, from one device. Returns "" if one is
    missing."""
    if not (pair := _direct_and_best(rows)):
        return ""
    direct, best = pair
    name = IM2COL_GEMMS[best["rung"]]
    ratio = direct["median_ms"] / best["median_ms"]
    if within_spread(best, direct):
        return f"In time it buys nothing here: with {name} the spreads of the two overlap."
    if ratio > 1:
        return f"It buys time: with {name} im2col is {units.ratio(ratio)} times as fast as direct."
    return (
        f"It loses time here: even with {name} im2col takes {units.ratio(1 / ratio)} times as long as direct. "
        "The copy and a second launch are not won back at this size."
    )


@cache
def im2col_examples() -> list[tuple[Preset, str]]:
    """Returns the presets at which im2col gains most and least (or loses), from the cold recordings."""

    def speedup(s: ConvShape) -> float | None:
        pair = _direct_and_best(recorded_at(s, ("conv/direct", *IM2COL_GEMMS)))
        return pair and pair[0]["median_ms"] / pair[1]["median_ms"]

    return extremes(speedup, "{:.2g}×".format)


def _direct_and_best(rows: Mapping[str, Row]) -> tuple[Row, Row] | None:
    """Returns the row of direct and the fastest other row."""
    direct, best = (
        rows.get("conv/direct"),
        fastest(row for name, row in rows.items() if name != "conv/direct"),
    )
    return (direct, best) if direct and best else None


IM2COL = Story(im2col_cost, im2col_gain, im2col_examples, "im2col, times as fast as direct, recorded:")
