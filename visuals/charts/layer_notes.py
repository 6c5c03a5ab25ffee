"""Sentences on the measured times of a layer's ladder: our fastest kernel beside the plainest one, the library and a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kernels.i18n import tr
from kernels.ladders import LADDERS, find
from kernels.model.preset import Preset
from kernels.model.shape import Shape
from kernels.records.statistics import fastest, within_ratio, within_spread
from visuals import units
from visuals.charts import bandwidth
from visuals.charts.ladder_notes import Row, extremes, fastest_library, recorded_at, title


def best_of_ours(rows: Mapping[str, Row]) -> Row | None:
    """Returns the fastest row of a kernel of ours; None if there is none. `rows`: by rung name, of one device."""
    return fastest(row for name, row in rows.items() if not find(name).library)


def gain(plain: str) -> Callable[[Mapping[str, Row]], str]:
    """Returns a function of a ladder's rows by rung name that compares our fastest kernel with the rung `plain`, with the
    fastest library and with a copy of the minimum traffic. The function returns "" if there is nothing to compare."""

    def sentences(rows: Mapping[str, Row]) -> str:
        best, first = best_of_ours(rows), rows.get(plain)
        if not best or not first:
            return ""
        return " ".join([_against_plain(best, first), *_against_library(best, rows), *_against_copy(best)])

    return sentences


def _against_plain(best: Row, first: Row) -> str:
    fields = {"name": units.named(title(best), first=True), "plain": units.named(title(first))}
    if best is first:
        return tr("{name} is the fastest of our kernels at this size.", **fields)
    if within_ratio(best, first):
        return tr("{name} and {plain} take the same time, within 5 %.", **fields)
    if within_spread(best, first):
        return tr("{name} and {plain} take the same time: their spreads overlap.", **fields)
    fields["ratio"] = units.ratio(first["median_ms"] / best["median_ms"])
    return tr("{name} is {ratio}× as fast as {plain}.", **fields)


def _against_library(best: Row, rows: Mapping[str, Row]) -> list[str]:
    library = fastest_library(rows.values())
    if not library:
        return []
    speed = library["median_ms"] / best["median_ms"]
    fields = {
        "name": units.named(title(best), first=True),
        "library": title(library),
        "ratio": units.ratio(speed),
        "share": units.share(speed),
    }
    if within_ratio(best, library):
        return [tr("{name} is as fast as {library}, within 5 %.", **fields)]
    if speed > 1:
        return [tr("{name} is {ratio}× as fast as {library}.", **fields)]
    return [tr("{name} reaches {share} of the speed of {library}.", **fields)]


def _against_copy(best: Row) -> list[str]:
    """Returns a sentence on the share of the time in which a copy moves the shape's minimum traffic, if memory is what limits
    the shape."""
    ceilings, shape = best.get("ceilings") or {}, _shape(best)
    if not ceilings or shape.flops > shape.bytes:  # more operations than bytes: arithmetic counts too
        return []
    minimum = min(shape.bytes, bandwidth.bytes_of(best) or shape.bytes)
    ms = minimum / ceilings["copy_bytes_per_s"] * 1e3
    if ms * 1e3 <= ceilings.get("launch_us", 0):  # then launch overhead dominates
        return []
    fields = {"bytes": units.bytes_(minimum), "time": units.time_(ms), "share": units.share(ms / best["median_ms"])}
    return [tr("A copy that moves {bytes}, the minimum, takes {time}: {share} of this time.", **fields)]


def _shape(row: Row) -> Shape:
    return LADDERS[row["rung"].partition("/")[0]].shape(**row["shape"])


def examples(ladder: str, plain: str, presets: Mapping[str, Preset]) -> list[tuple[Preset, str]]:
    """Returns (preset, text) of the largest and the smallest speedup of our fastest kernel over `plain`, from the cold
    recordings at the default tile sizes."""

    def gained(shape: Shape) -> float | None:
        rows = recorded_at(shape, [rung.name for rung in LADDERS[ladder].rungs])
        best = best_of_ours(rows)
        return rows[plain]["median_ms"] / best["median_ms"] if best and plain in rows else None

    return extremes(gained, presets=presets)
