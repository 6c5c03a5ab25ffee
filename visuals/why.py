"""What the figures of a comparison say, in sentences with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.shapes import ConvShape
from visuals import figures
from visuals.scenes.im2col import copies_per_pixel

Row = Mapping


def im2col_cost(s: ConvShape) -> str:
    """What the data matrix costs at this shape, against the input it is made from."""
    matrix, x = 4 * s.N * s.CRS * s.PQ, 4 * s.elements["x"]
    return (
        f"The data matrix takes {figures.bytes_(matrix)}, {matrix / x:.3g} times the input's {figures.bytes_(x)}: "
        f"a pixel stands in up to {copies_per_pixel(s)} columns (R·S = {s.R * s.S})."
    )


def im2col_gain(rows: Mapping[str, Row]) -> str:
    """What the data matrix buys in time, `rows` by rung name from one device; "" where one is missing."""
    direct = rows.get("conv/direct")
    others = [r for name, r in rows.items() if name != "conv/direct"]
    if not direct or not others:
        return ""
    best = min(others, key=lambda r: r["median_ms"])
    name = {"conv/im2col-gemm": "our GEMM", "conv/im2col-cublas": "the library's GEMM"}[best["rung"]]
    ratio = direct["median_ms"] / best["median_ms"]
    if best["p20_ms"] <= direct["p80_ms"] and direct["p20_ms"] <= best["p80_ms"]:
        return f"In time it buys nothing here: with {name} the spreads of the two overlap."
    if ratio > 1:
        return f"It buys time: with {name} im2col is {ratio:.3g} times as fast as direct."
    return (
        f"It loses time here: even with {name} im2col takes {1 / ratio:.3g} times as long as direct. "
        "The copy and a second launch are not won back at this size."
    )
