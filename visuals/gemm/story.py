"""What the figures of the GEMM ladder say, in sentences with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS, find
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.preset import Preset
from visuals.charts import units
from visuals.charts.story import Row, Story, extremes, fastest_library, recorded_at

# The library at the same precision as the kernels of ours that take the type. There is none for int8 here.


def gemm_cost(s: GemmShape) -> str:
    """What a thread for each result would ask of memory, against what there is."""
    asked = 2 * s.macs * ELEMENT_BYTES[s.dtype]
    there = ELEMENT_BYTES[s.dtype] * (s.elements["A"] + s.elements["B"])
    return (
        f"A and B take {units.bytes_(there)}. A thread for each result asks for "
        f"{units.bytes_(asked)} of them, {units.count(asked / there)} times as much: each element of A is wanted {s.N:,} times, "
        f"each of B {s.M:,} times. A tile kept close to the threads is asked for once and used many times."
    )


def library_row(rows: Mapping[str, Row]) -> Row | None:
    """Returns the row of the vendor's library at the precision of these rows; None without one."""
    return fastest_library(rows.values())


def best_own(rows: Mapping[str, Row]) -> Row | None:
    """The fastest of the kernels that stand on the page."""
    return min(
        (row for name, row in rows.items() if not find(name).library),
        key=lambda row: row["median_ms"],
        default=None,
    )


def gemm_gain(rows: Mapping[str, Row]) -> str:
    """What the ladder buys, `rows` by rung name from one device; "" where there is nothing to compare."""
    best, library = best_own(rows), library_row(rows)
    if not best:
        return ""
    name = find(best["rung"]).title_on(best["engine"])
    first = next(row for rung, row in rows.items() if not find(rung).library)
    text = ""
    if first is not best:
        text = f"{_capital(name)} is {first['median_ms'] / best['median_ms']:.3g} times as fast as {find(first['rung']).title}. "
    if library:
        words = find(library["rung"]).title_on(library["engine"])
        if best["p20_ms"] <= library["p80_ms"] and library["p20_ms"] <= best["p80_ms"]:
            text += f"{_capital(name)} and {words} cannot be told apart here: their spreads overlap."
        else:
            text += f"{_capital(name)} reaches {units.share(library['median_ms'] / best['median_ms'])} of the speed of {words}."
    return text.strip()


def _capital(text: str) -> str:
    """As a sentence begins; a name with a dot in it, as mma.sync, stays."""
    return text if "." in text.split()[0] else text[:1].upper() + text[1:]


@cache
def gemm_examples() -> list[tuple[Preset, str]]:
    """The presets at which our best kernel comes nearest to the library and stays farthest from it, by the
    recordings made cold at the usual tile sizes."""

    def reached(s: GemmShape) -> float | None:
        rows = recorded_at(s, (rung.name for rung in LADDERS["gemm"].rungs))
        best, library = best_own(rows), library_row(rows)
        return library["median_ms"] / best["median_ms"] if best and library else None

    return extremes(reached, units.share, GEMM_PRESETS)


GEMM = Story(gemm_cost, gemm_gain, gemm_examples, "our best kernel, share of the library’s speed, recorded:")
