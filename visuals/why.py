"""What the figures of a comparison say, in sentences with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from kernels import records
from kernels.ladders import find
from kernels.presets import CONV_PRESETS, Preset
from kernels.shapes import ConvShape
from visuals import figures
from visuals.scenes.im2col import copies_per_pixel

Row = Mapping


@dataclass(frozen=True)
class Story:
    """What a lesson says of its figures. `cost(shape)` of memory, `gain(rows by rung name)` of time, a
    sentence each; `examples()` gives (preset, words) to go and see."""

    cost: Callable[[Any], str]
    gain: Callable[[Mapping[str, Row]], str]
    examples: Callable[[], list[tuple[Preset, str]]]


def im2col_cost(s: ConvShape) -> str:
    """What the data matrix costs at this shape, against the input it is made from."""
    matrix, x = 4 * s.N * s.CRS * s.PQ, 4 * s.elements["x"]
    return (
        f"The data matrix takes {figures.bytes_(matrix)}, {matrix / x:.3g} times the input's {figures.bytes_(x)}: "
        f"a pixel stands in up to {copies_per_pixel(s)} columns (R·S = {s.R * s.S})."
    )


def im2col_gain(rows: Mapping[str, Row]) -> str:
    """What the data matrix buys in time, `rows` by rung name from one device; "" where one is missing."""
    if not (both := _direct_and_best(rows)):
        return ""
    direct, best = both
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


@cache
def im2col_examples() -> list[tuple[Preset, str]]:
    """The presets at which im2col wins most and least (or loses), by the recordings made cold."""
    ratios = []
    for preset in CONV_PRESETS.values():
        rows = {
            r["rung"]: r
            for r in records.recordings()
            if r["mode"] == "cold" and ConvShape(**r["shape"]) == preset.shape and _default_tiles(r)
        }
        if both := _direct_and_best(rows):
            ratios.append((both[0]["median_ms"] / both[1]["median_ms"], preset))
    ratios.sort(key=lambda pair: -pair[0])
    return [(preset, f"{preset.label}: {ratio:.2g}×") for ratio, preset in (*ratios[:2], *ratios[-2:])]


def _default_tiles(row: Row) -> bool:
    return row["tiles"] == find(row["rung"]).default_tiles


def _direct_and_best(rows: Mapping[str, Row]) -> tuple[Row, Row] | None:
    """The row of direct and the fastest of the others."""
    others = [row for name, row in rows.items() if name != "conv/direct"]
    if "conv/direct" not in rows or not others:
        return None
    return rows["conv/direct"], min(others, key=lambda row: row["median_ms"])


IM2COL = Story(im2col_cost, im2col_gain, im2col_examples)
