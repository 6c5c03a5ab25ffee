"""What the figures of a comparison say, in sentences with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.ladders import find
from kernels.model.preset import Preset
from visuals.charts import bars, roofline, units

Row = Mapping


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
    if bars.launch_ms(titled[0][1]):
        told[f"{bars.launch_word(titled[0][1])} of nothing"] = [
            bars.launch_ms(row) / row["median_ms"] for _, row in titled
        ]
    return {
        name: ["–" if part is None else units.share(part) for part in parts] for name, parts in told.items()
    }


def fastest_library(rows: Iterable[Row]) -> Row | None:
    """The fastest row of a library's rung that computes as exactly as the others are asked to; None where there is
    none."""
    rungs = ((row, find(row["rung"])) for row in rows)
    exact = (row for row, rung in rungs if rung.library and not rung.rounds_to)
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
    said = f"{units.ratio(took)} times as long as" if took >= 1 else f"{units.ratio(took)} of the time of"
    return (
        f"The fastest here, {name} ({units.time_(row['median_ms'])} on {row['device']}), takes {said} the fastest "
        f"recorded on {other['device']}, {other_name} ({units.time_(other['median_ms'])})."
    )


def recorded_at(shape: Any, rungs: Iterable[str], mode: str = "cold") -> dict[str, Row]:
    """By rung name the recordings at this shape and the usual tile sizes, of those rungs that have one."""
    rows = {name: records.recorded(name, shape, find(name).default_tiles, mode) for name in rungs}
    return {name: row for name, row in rows.items() if row}


def times(ratio: float) -> str:
    return f"{units.ratio(ratio)}×"


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
