"""Sentences about the figures of the GEMM ladder, with their numbers. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.shape import GemmShape
from kernels.i18n import mark, tr, trn
from kernels.ladders import LADDERS, find
from kernels.model.dtypes import ELEMENT_BYTES
from kernels.model.preset import Preset
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, capitalized, extremes, fastest_library, recorded_at, title


def gemm_cost(s: GemmShape) -> str:
    """Returns how many bytes one thread per result would request, compared with the bytes of A and B."""
    requested_bytes = 2 * s.macs * ELEMENT_BYTES[s.dtype]
    input_bytes = ELEMENT_BYTES[s.dtype] * (s.elements["A"] + s.elements["B"])
    sentences = (
        tr(
            "A and B have {inputs}. With one thread per result, the threads load {requested}: {ratio}× the size of A and B.",
            inputs=units.bytes_(input_bytes),
            requested=units.bytes_(requested_bytes),
            ratio=_times(requested_bytes / input_bytes),
        ),
        trn("Each element of A is loaded {n} time.", "Each element of A is loaded {n} times.", s.N),
        trn("Each element of B is loaded {n} time.", "Each element of B is loaded {n} times.", s.M),
        tr("A tile in shared memory or registers is loaded once and used many times."),
    )
    return " ".join(sentences)


def _times(ratio: float) -> str:
    return units.ratio(ratio) if ratio < 100 else units.count(ratio)


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
    first = next(row for rung, row in rows.items() if not find(rung).library)
    sentences = [_against_first(best, first) if first is not best else "", _against_library(best, library)]
    return " ".join(filter(None, sentences))


def _against_first(best: Row, first: Row) -> str:
    names = {"kernel": capitalized(title(best)), "other": title(first)}
    if within_spread(best, first):
        return tr(
            "{kernel} is the fastest kernel, but the difference from {other} is not measurable: their spreads overlap.",
            **names,
        )
    return tr(
        "{kernel} is {ratio}× as fast as {other}.", ratio=units.ratio(first["median_ms"] / best["median_ms"]), **names
    )


def _against_library(best: Row, library: Row | None) -> str:
    if not library:
        return ""
    names = {"kernel": capitalized(title(best)), "library": title(library)}
    if within_spread(best, library):
        return tr("{kernel} and {library} have no measurable difference: their spreads overlap.", **names)
    share = units.share(library["median_ms"] / best["median_ms"])
    return tr("{kernel} reaches {share} of the speed of {library}.", share=share, **names)


@cached(8)
def gemm_examples() -> list[tuple[Preset, str]]:
    """Returns (preset, text) of the largest and the smallest share of the library's speed that our best kernel reaches. It
    uses the cold recordings at the default tile sizes."""
    return extremes(_reached, units.share, GEMM_PRESETS)


@cached(8)
def hopper_examples() -> list[tuple[Preset, str]]:
    """Returns the same of the types that the kernels for Hopper multiply."""
    presets = {key: preset for key, preset in GEMM_PRESETS.items() if preset.shape.dtype in ("fp16", "bf16")}
    return extremes(_reached, units.share, presets)


def _reached(s: GemmShape) -> float | None:
    """Returns the share of the library's speed that our best kernel reaches at a shape; None without recordings."""
    rows = recorded_at(s, (rung.name for rung in LADDERS["gemm"].rungs))
    best, library = best_kernel(rows), library_row(rows)
    return library["median_ms"] / best["median_ms"] if best and library else None


GEMM = LadderNotes(
    gemm_cost,
    gemm_gain,
    gemm_examples,
    mark("Speed of our fastest kernel as a share of the library’s speed, recorded:"),
)
HOPPER = replace(GEMM, examples=hopper_examples)
