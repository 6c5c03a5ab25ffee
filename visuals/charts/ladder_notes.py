"""Sentences on the figures of a comparison, with their numbers. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernels import records
from kernels.conv.presets import CONV_PRESETS
from kernels.i18n import tr
from kernels.ladders import find
from kernels.model.preset import Preset
from kernels.model.row import Row
from kernels.model.shape import Shape
from kernels.records.statistics import fastest
from visuals import units
from visuals.charts import bars, roofline
from visuals.units import capitalized as capitalized


@dataclass(frozen=True)
class LadderNotes:
    """The sentences of a lesson on its figures: `cost(shape)` on memory, `gain(rows by rung name)` on time.
    `examples()` returns (preset, label) of presets to look at."""

    cost: Callable[[Any], str]
    gain: Callable[[Mapping[str, Row]], str]
    examples: Callable[[], list[tuple[Preset, str]]]
    examples_label: str  # what the labels of the examples mean


def shares(titled: Sequence[tuple[str, Row]]) -> dict[str, list[str]]:
    """Returns columns by name for (title, row) pairs measured together: each row's share of the library's speed, of its
    roof and of the FP32 peak, and the share of launch overhead in its time. What was not measured is left out."""
    columns = {}
    if library := fastest_library([row for _, row in titled]):
        columns[tr("speed, relative to the fastest library")] = [
            library["median_ms"] / row["median_ms"] for _, row in titled
        ]
    dots = [roofline.Dot(n, title, row, "measured") for n, (title, row) in enumerate(titled, 1)]
    if (roof := roofline.roof_of(titled[0][1], "measured")) and all(roofline.has_intensity(row) for _, row in titled):
        columns[tr("rate, relative to the roof")] = [
            None if roofline.row_units(dot.row) else dot.share_of(roof) for dot in dots
        ]
        columns[tr("rate, relative to the FP32 peak")] = [dot.rate / roof.flops_per_s for dot in dots]
    if bars.launch_ms(titled[0][1]):
        columns[bars.overhead_name(titled[0][1])] = [bars.launch_ms(row) / row["median_ms"] for _, row in titled]
    return {name: ["–" if part is None else units.share(part) for part in parts] for name, parts in columns.items()}


def fastest_library(rows: Iterable[Row]) -> Row | None:
    """Returns the fastest row of a library's rung that is as exact as the other rungs; None if there is none."""
    rungs = ((row, find(row["rung"])) for row in rows)
    return fastest(row for row, rung in rungs if rung.library and not rung.rounds_to)


def title(row: Row) -> str:
    """Returns the title of a row's rung on its engine."""
    return find(row["rung"]).title_on(row["engine"])


def device_comparison(here: Sequence[tuple[str, Row]], there: Sequence[tuple[str, Row]]) -> str:
    """Returns a sentence that compares the fastest (title, row) measured here with the fastest recorded at this shape;
    "" if one is missing, or if both are of one device."""
    if not (here and there):
        return ""
    (name, row), (other_name, other) = (min(rows, key=lambda r: r[1]["median_ms"]) for rows in (here, there))
    if row["device"] == other["device"] or row["shape"] != other["shape"] or row["mode"] != other["mode"]:
        return ""
    fields = {
        "name": units.named(name, first=True),
        "time": units.time_(row["median_ms"]),
        "device": row["device"],
        "other": units.named(other_name),
        "other_time": units.time_(other["median_ms"]),
        "other_device": other["device"],
        "ratio": units.ratio(row["median_ms"] / other["median_ms"]),
    }
    return tr(
        "{name} is fastest on {device}: {time}. That is {ratio}× the time of {other} on {other_device} ({other_time}, recorded).",
        **fields,
    )


def recorded_at(shape: Shape, rungs: Iterable[str], mode: str = "cold") -> dict[str, Row]:
    """Returns, by rung name, the recordings at this shape and the tile sizes for it, of the rungs that have one."""
    rows = {name: records.recorded(name, shape, find(name).tiles_at(shape), mode) for name in rungs}
    return {name: row for name, row in rows.items() if row}


def times(ratio: float) -> str:
    return f"{units.ratio(ratio)}×"


def extremes(
    ratio: Callable[[Any], float | None],
    format_value: Callable[[float], str] = times,
    presets: Mapping[str, Preset] = CONV_PRESETS,
) -> list[tuple[Preset, str]]:
    """Returns the two presets with the largest and the two with the smallest `ratio(shape)`, each with its label and
    formatted ratio. A ratio of None means unknown; such presets are left out."""
    found = [(value, preset) for preset in presets.values() if (value := ratio(preset.shape)) is not None]
    found.sort(key=lambda pair: -pair[0])
    chosen = found if len(found) <= 4 else (*found[:2], *found[-2:])
    return [(preset, f"{preset.label}: {format_value(value)}") for value, preset in chosen]
