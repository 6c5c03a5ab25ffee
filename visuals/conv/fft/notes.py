"""Sentences about the figures of the FFT lesson, with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.conv import fft, fft_tiled
from kernels.conv.presets import CONV_GRID, CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.preset import Preset
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, recorded_at, title

RUNG = fft.RUNGS[0]
OURS = (RUNG.name, fft_tiled.RUNG.name)  # our FFTs
COMPARED = ("conv/direct", "conv/implicit-gemm")  # the lesson compares these with the FFT
# The purpose of the rung's steps.
PARTS = {
    mark("padding and transforming the filters"): ("fft_pad_filter", "fft_filter"),
    mark("padding and transforming the input"): ("fft_pad_input", "fft_input"),
    mark("multiplying the spectra"): ("fft_multiply",),
    mark("inverse transform and output"): ("fft_output", "fft_pick"),
}


def filter_bytes(s: ConvShape, tiles: Mapping[str, int]) -> tuple[int, int, int]:
    """Returns bytes of the filters, of the padded filters, of their spectra."""
    named = {b.name: b.nbytes for b in fft.workspace(s, fft.cut(s, tiles))}
    return 4 * s.elements["w"], named["w_padded"], named["w_spectra"]


def discarded_share(s: ConvShape) -> float:
    """Returns the share of computed pixels that strides skip: 1 - 1/(u v), except at the ends."""
    return 1 - s.PQ / ((s.padded_h - s.span_h + 1) * (s.padded_w - s.span_w + 1))


def fft_cost(s: ConvShape) -> str:
    """Returns the memory of whole transforms at this shape: the filters, and the share of the output that strides
    discard."""
    if rule := next(iter(RUNG.rules(s, RUNG.default_tiles)), ""):
        return tr("Transforms of whole images cannot run this shape: {rule}.", rule=rule)
    cut = fft.cut(s, RUNG.default_tiles)
    w, padded, spectra = filter_bytes(s, RUNG.default_tiles)
    text = tr(
        "With whole images, each filter of {R} × {S} taps becomes an array of {rows} × {columns} numbers. "
        "All filters take {bytes}, padded {padded}, as spectra {spectra}.",
        R=s.R,
        S=s.S,
        rows=cut["rows"],
        columns=cut["columns"],
        bytes=units.bytes_(w),
        padded=units.bytes_(padded),
        spectra=units.bytes_(spectra),
    )
    if s.stride != (1, 1):
        text += " " + tr(
            "The FFT computes every position, then the stride discards {share} of the pixels.",
            share=units.share(discarded_share(s)),
        )
    return text


def fft_gain(rows: Mapping[str, Row]) -> str:
    """Returns how our fastest FFT compares with the fastest other kernel, and where its time goes. `rows` are by rung
    name, from one device. Returns "" if there is nothing to compare."""
    if not (row := fastest(rows[name] for name in OURS if name in rows)):
        return ""
    parts = largest_part(rows[RUNG.name]) if RUNG.name in rows else ""
    return " ".join(filter(None, (_against(row, rows), parts, _tiling(row, rows))))


def _against(row: Row, rows: Mapping[str, Row]) -> str:
    if not (best := fastest(r for name, r in rows.items() if "fft" not in name)):
        return ""
    ratio, names = row["median_ms"] / best["median_ms"], {"ours": title(row), "name": title(best)}
    if within_spread(best, row):
        return tr("No measurable difference between {ours} and {name}: their spreads overlap.", **names)
    if ratio < 1:
        return tr(
            "{ours} is {ratio}× as fast as {name}, the fastest kernel without an FFT.",
            ratio=units.ratio(1 / ratio),
            **names,
        )
    return tr(
        "{ours} takes {ratio}× the time of {name}, the fastest kernel without an FFT.",
        ratio=units.ratio(ratio),
        **names,
    )


def part_shares(row: Row) -> dict[str, float]:
    """Returns the share of each of PARTS in the time of all steps, each timed by itself; empty if they were not
    timed."""
    times = row.get("parts_ms") or {}
    times = {name.replace("cufft_", "fft_"): ms for name, ms in times.items()}  # as NumPy's steps are named
    if not all(step in times for steps in PARTS.values() for step in steps):
        return {}
    total = sum(times.values())
    return {name: sum(times[step] for step in steps) / total for name, steps in PARTS.items()} if total else {}


def largest_part(row: Row) -> str:
    """Returns the part of the steps that takes most of the time; "" if they were not timed."""
    shares = part_shares(row)
    if not shares:
        return ""
    name = max(shares, key=shares.__getitem__)
    return tr(
        "The largest part of {ours}: {part}, {share} of the time.",
        ours=title(row),
        part=tr(name),
        share=units.share(shares[name]),
    )


def _tiling(row: Row, rows: Mapping[str, Row]) -> str:
    """Returns a comparison of cuDNN's own FFT, the faster of its two, with our fastest."""
    if not (best := fastest(r for name, r in rows.items() if "fft" in name and name not in OURS)):
        return ""
    ratio, names = (best["median_ms"] / row["median_ms"], {"ours": title(row), "name": tr(find(best["rung"]).title)})
    if ratio >= 1:
        return tr("{name} takes {ratio}× the time of {ours}.", ratio=units.ratio(ratio), **names)
    return tr("{name} takes {share} of the time of {ours}.", share=units.share(ratio), **names)


@cached(1)
def fft_examples() -> list[tuple[Preset, str]]:
    """Returns the presets at which our fastest FFT compares best and worst with the faster of direct and implicit GEMM,
    from the cold recordings at the default tile sizes."""

    def speedup(s: ConvShape) -> float | None:
        ours = fastest(recorded_at(s, OURS).values())
        others = [row["median_ms"] for row in recorded_at(s, COMPARED).values()]
        return min(others) / ours["median_ms"] if ours and others else None

    return extremes(speedup, presets=CONV_PRESETS | CONV_GRID)  # large filters are in the grid


FFT = LadderNotes(
    fft_cost,
    fft_gain,
    fft_examples,
    mark("Recorded speed-up of our fastest FFT over the faster of direct and implicit GEMM:"),
)
