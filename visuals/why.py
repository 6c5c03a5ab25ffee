"""What the figures of a comparison say, in sentences with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from kernels import records
from kernels.ladders import find
from kernels.presets import CONV_PRESETS, Preset
from kernels.shapes import ConvShape
from visuals import charts, figures, roofline
from visuals.scenes.im2col import copies_per_pixel

Row = Mapping
IM2COL_GEMMS = {"conv/im2col-gemm": "our GEMM", "conv/im2col-cublas": "the library's GEMM"}
LESS_EXACT = ("gemm/cublas-tf32",)  # ten bits of each factor: no measure for FP32


@dataclass(frozen=True)
class Story:
    """What a lesson says of its figures. `cost(shape)` of memory, `gain(rows by rung name)` of time, a
    sentence each; `examples()` gives (preset, words) to go and see."""

    cost: Callable[[Any], str]
    gain: Callable[[Mapping[str, Row]], str]
    examples: Callable[[], list[tuple[Preset, str]]]
    examples_are: str  # what those words tell


def shares(titled: Sequence[tuple[str, Row]]) -> dict[str, list[str]]:
    """Of (title, row) pairs measured together, a column by name: what each reaches of the library's speed, of its
    roof, of the FP32 peak, and what of its time so many launches of nothing take. What was not measured is left out."""
    told = {}
    if library := fastest_library([row for _, row in titled]):
        told["of the fastest library's speed"] = [
            library["median_ms"] / row["median_ms"] for _, row in titled
        ]
    dots = [roofline.Dot(n, title, row, "measured") for n, (title, row) in enumerate(titled, 1)]
    if (roof := roofline.roof_of(titled[0][1], "measured")) and all(
        roofline.stands(row) for _, row in titled
    ):
        told["of its roof"] = [
            None if roofline.units(dot.row) else dot.rate / roof.bound(dot.intensity) for dot in dots
        ]
        told["of the FP32 peak"] = [dot.rate / roof.flops_per_s for dot in dots]
    if charts.launch_ms(titled[0][1]):
        told[f"{charts.launch_word(titled[0][1])} of nothing"] = [
            charts.launch_ms(row) / row["median_ms"] for _, row in titled
        ]
    return {
        name: ["–" if part is None else figures.share(part) for part in parts] for name, parts in told.items()
    }


def fastest_library(rows: Iterable[Row]) -> Row | None:
    """The fastest row of a library's rung that computes as exactly as the others are asked to; None where there is
    none."""
    exact = (row for row in rows if find(row["rung"]).library and row["rung"] not in LESS_EXACT)
    return min(exact, key=lambda row: row["median_ms"], default=None)


def factor(here: Sequence[tuple[str, Row]], there: Sequence[tuple[str, Row]]) -> str:
    """The fastest (title, row) measured here against the fastest recorded at this shape; "" where one is missing or
    both are of one device."""
    if not (here and there):
        return ""
    (name, row), (other_name, other) = (min(rows, key=lambda r: r[1]["median_ms"]) for rows in (here, there))
    if row["device"] == other["device"] or row["shape"] != other["shape"] or row["mode"] != other["mode"]:
        return ""
    took = row["median_ms"] / other["median_ms"]
    said = f"{figures.ratio(took)} times as long as" if took >= 1 else f"{figures.ratio(took)} of the time of"
    return (
        f"The fastest here, {name} ({figures.time_(row['median_ms'])} on {row['device']}), takes {said} the fastest "
        f"recorded on {other['device']}, {other_name} ({figures.time_(other['median_ms'])})."
    )


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
    name = IM2COL_GEMMS[best["rung"]]
    ratio = direct["median_ms"] / best["median_ms"]
    if best["p20_ms"] <= direct["p80_ms"] and direct["p20_ms"] <= best["p80_ms"]:
        return f"In time it buys nothing here: with {name} the spreads of the two overlap."
    if ratio > 1:
        return f"It buys time: with {name} im2col is {figures.ratio(ratio)} times as fast as direct."
    return (
        f"It loses time here: even with {name} im2col takes {figures.ratio(1 / ratio)} times as long as direct. "
        "The copy and a second launch are not won back at this size."
    )


@cache
def im2col_examples() -> list[tuple[Preset, str]]:
    """The presets at which im2col wins most and least (or loses), by the recordings made cold."""

    def gained(s: ConvShape) -> float | None:
        both = _direct_and_best(recorded_at(s, ("conv/direct", *IM2COL_GEMMS)))
        return both and both[0]["median_ms"] / both[1]["median_ms"]

    return extremes(gained, "{:.2g}×".format)


def recorded_at(shape: Any, rungs: Iterable[str], mode: str = "cold") -> dict[str, Row]:
    """By rung name the recordings at this shape and the usual tile sizes, of those rungs that have one."""
    rows = {name: records.recorded(name, shape, find(name).default_tiles, mode) for name in rungs}
    return {name: row for name, row in rows.items() if row}


def times(ratio: float) -> str:
    return f"{figures.ratio(ratio)}×"


def extremes(
    ratio: Callable[[Any], float | None],
    words: Callable[[float], str] = times,
    presets: Mapping[str, Preset] = CONV_PRESETS,
) -> list[tuple[Preset, str]]:
    """The two presets where `ratio(shape)` is largest and the two where it is smallest, each with it in `words`;
    None is a shape of which it cannot be told."""
    found = [(told, preset) for preset in presets.values() if (told := ratio(preset.shape)) is not None]
    found.sort(key=lambda pair: -pair[0])
    chosen = found if len(found) <= 4 else (*found[:2], *found[-2:])
    return [(preset, f"{preset.label}: {words(told)}") for told, preset in chosen]


def _direct_and_best(rows: Mapping[str, Row]) -> tuple[Row, Row] | None:
    """The row of direct and the fastest of the others."""
    others = [row for name, row in rows.items() if name != "conv/direct"]
    if "conv/direct" not in rows or not others:
        return None
    return rows["conv/direct"], min(others, key=lambda row: row["median_ms"])


IM2COL = Story(im2col_cost, im2col_gain, im2col_examples, "im2col, times as fast as direct, recorded:")
