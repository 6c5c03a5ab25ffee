"""Sentences about the figures of the GEMM ladder, with their numbers. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.ladders import LADDERS, find
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.preset import Preset
from kernels.records.statistics import fastest, within_spread
from visuals.charts import units
from visuals.charts.story import Row, Story, capitalized, extremes, fastest_library, recorded_at, title


def gemm_cost(s: GemmShape) -> str:
    """Returns how many bytes one thread per result would request, compared with the bytes of A and B."""
    requested_bytes = 2 * s.macs * ELEMENT_BYTES[s.dtype]
    input_bytes = ELEMENT_BYTES[s.dtype] * (s.elements["A"] + s.elements["B"])
    return (
        f"A and B take {units.bytes_(input_bytes)}. A thread for each result asks for "
        f"{units.bytes_(requested_bytes)} of them, {units.count(requested_bytes / input_bytes)} times as much: each element of A is wanted {s.N:,} times, "
        f"each of B {s.M:,} times. A tile kept close to the threads is asked for once and used many times."
    )


def library_row(rows: Mapping[str, Row]) -> Row | None:
    """Returns the row of the vendor's library at the precision of these rows; None without one."""
    return fastest_library(rows.values())


def best_kernel(rows: Mapping[str, Row]) -> Row | None:
    """Returns the fastest row that is no library's; None if there is none."""
    return fastest(row for name, row in rows.items() if not find(name).library)


def gemm_gain(rows: Mapping[str, Row]) -> str:
    """Returns the speedup over the first rung and the share of the library's speed, in sentences. `rows`: by rung name, of
    one device. "" if there is nothing to compare."""
    best, library = best_kernel(rows), library_row(rows)
    if not best:
        return ""
    name = title(best)
    first = next(row for rung, row in rows.items() if not find(rung).library)
    text = ""
    if first is not best:
        text = f"{capitalized(name)} is {first['median_ms'] / best['median_ms']:.3g} times as fast as {find(first['rung']).title}. "
    if library:
        library_name = title(library)
        if within_spread(best, library):
            text += (
                f"{capitalized(name)} and {library_name} cannot be told apart here: their spreads overlap."
            )
        else:
            text += f"{capitalized(name)} reaches {units.share(library['median_ms'] / best['median_ms'])} of the speed of {library_name}."
    return text.strip()


@cache
def gemm_examples() -> list[tuple[Preset, str]]:
    """Returns (preset, text) of the largest and the smallest share of the library's speed that our best kernel reaches. It
    uses the cold recordings at the default tile sizes."""

    def reached(s: GemmShape) -> float | None:
        rows = recorded_at(s, (rung.name for rung in LADDERS["gemm"].rungs))
        best, library = best_kernel(rows), library_row(rows)
        return library["median_ms"] / best["median_ms"] if best and library else None

    return extremes(reached, units.share, GEMM_PRESETS)


GEMM = Story(gemm_cost, gemm_gain, gemm_examples, "our best kernel, share of the library’s speed, recorded:")
