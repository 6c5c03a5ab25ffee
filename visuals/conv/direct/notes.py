"""Sentences about the figures of direct convolution, with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.conv.implicit import filter_threads
from kernels.conv.shape import ConvShape
from kernels.i18n import decimal, mark, tr
from kernels.ladders import find
from kernels.model.preset import Preset
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, recorded_at, title
from visuals.conv.part import copies_per_pixel

DIRECT, TILED = "conv/direct", "conv/direct-tiled"


def values_read(s: ConvShape) -> int:
    """Returns the number of values that the threads of conv/direct read, pixels and taps, each counted as often
    as it is read. Padding is not counted."""

    def inside(size: int, out: int, taps: int, stride: int, pad: int, dilation: int) -> int:
        """Returns the number of pairs of an output and a tap along an axis whose pixel lies within the input."""
        indices = (p * stride - pad + r * dilation for p in range(out) for r in range(taps))
        return sum(0 <= i < size for i in indices)

    rows = inside(s.H, s.P, s.R, s.u, s.pad_h, s.dilation_h)
    cols = inside(s.W, s.Q, s.S, s.v, s.pad_w, s.dilation_w)
    return s.N * s.K * s.C * (rows * cols + s.PQ * s.R * s.S)


def values_tiled(s: ConvShape) -> int:
    """Returns the number of pixels (padding included) and taps that the blocks of conv/direct-tiled load into
    shared memory."""
    tiles = find(TILED).default_tiles
    launch = find(TILED).build(s, tiles).launch()
    side, filters = tiles["TILE"], filter_threads(s, tiles) * tiles["TK"]
    patch = ((side - 1) * s.u + s.span_h) * ((side - 1) * s.v + s.span_w)
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    return blocks * s.maps * (patch + filters * s.R * s.S)


def cost(s: ConvShape) -> str:
    """Returns how many bytes the threads read, how many bytes exist, and how many a tiled block reads."""
    read_bytes, stored_bytes = 4 * values_read(s), 4 * (s.elements["x"] + s.elements["w"])
    rule = next(iter(find(TILED).rules(s, find(TILED).default_tiles)), "")
    sentences = (
        tr("Direct convolution needs no workspace (extra memory)."),
        tr(
            "Each pixel is loaded up to {loads}×: once per window and filter, at most R·S·K = {taps}×.",
            loads=decimal(f"{loads_per_pixel(s):,}"),
            taps=decimal(f"{s.R * s.S * s.K:,}"),
        ),
        tr(
            "The threads load {loaded} in total. Input and filters hold only {stored}.",
            loaded=units.bytes_(read_bytes),
            stored=units.bytes_(stored_bytes),
        ),
        tr("Caches supply part of these loads."),
        tr("The tiled kernel cannot run this shape: {rule}.", rule=rule)
        if rule
        else tr(
            "In the tiled kernel, a block loads its pixels and taps once into shared memory. All its blocks load {loaded}.",
            loaded=units.bytes_(4 * values_tiled(s)),
        ),
    )
    return " ".join(sentences)


def loads_per_pixel(s: ConvShape) -> int:
    """Returns how many threads of conv/direct load the pixel that most of them load."""
    return copies_per_pixel(s) * s.K


def gain(rows: Mapping[str, Row]) -> str:
    """Returns how much tiling gains, and how far it is from the library. `rows` are by rung name, from one
    device. Returns "" if there is nothing to compare."""
    sentences = []
    if DIRECT in rows and TILED in rows:
        sentences.append(_against(rows[TILED], rows[DIRECT]))
    ours = [rows[name] for name in (DIRECT, TILED) if name in rows]
    best, library = fastest(ours), fastest(row for name, row in rows.items() if find(name).library)
    if best and library:
        sentences.append(_against_library(best, library))
    return " ".join(sentences)


def _against(tiled: Row, direct: Row) -> str:
    ratio = direct["median_ms"] / tiled["median_ms"]
    if within_spread(tiled, direct):
        return tr("Shared memory makes no measurable difference here: the spreads of the two kernels overlap.")
    if ratio > 1:
        return tr("Staging through shared memory is faster here: {ratio}× as fast as direct.", ratio=units.ratio(ratio))
    return tr(
        "Staging through shared memory is slower here: {ratio}× the time of direct.", ratio=units.ratio(1 / ratio)
    )


def _against_library(best: Row, library: Row) -> str:
    name, ratio = title(library), best["median_ms"] / library["median_ms"]
    if within_spread(best, library):
        return tr(
            "There is no measurable difference between our better kernel and the fastest library kernel, {name}: the spreads "
            "overlap.",
            name=name,
        )
    if ratio > 1:
        return tr(
            "The fastest library kernel, {name}, is {ratio}× as fast as our better kernel.",
            name=name,
            ratio=units.ratio(ratio),
        )
    return tr(
        "No library kernel is faster here: {name} takes {ratio}× the time of our better kernel.",
        name=name,
        ratio=units.ratio(1 / ratio),
    )


@cached(8)
def examples() -> list[tuple[Preset, str]]:
    """Returns the presets at which the tiled kernel gains most and least over the plain one, from the cold
    recordings."""

    def speedup(s: ConvShape) -> float | None:
        rows = recorded_at(s, (DIRECT, TILED))
        return rows[DIRECT]["median_ms"] / rows[TILED]["median_ms"] if len(rows) == 2 else None

    return extremes(speedup)


NOTES = LadderNotes(cost, gain, examples, mark("Recorded speed of the tiled kernel, relative to direct:"))
