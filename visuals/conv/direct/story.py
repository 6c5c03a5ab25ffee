"""Sentences about the figures of direct convolution, with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kernels.conv.implicit import filter_threads
from kernels.conv.shape import ConvShape
from kernels.ladders import find
from kernels.model.preset import Preset
from kernels.records.statistics import fastest, within_spread
from visuals.charts import units
from visuals.charts.story import Row, Story, extremes, recorded_at, title
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
    launch = find(TILED).build(s, tiles).steps[0]
    side, filters = tiles["TILE"], filter_threads(s, tiles) * tiles["TK"]
    patch = ((side - 1) * s.u + s.span_h) * ((side - 1) * s.v + s.span_w)
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    return blocks * s.maps * (patch + filters * s.R * s.S)


def cost(s: ConvShape) -> str:
    """Returns how many bytes the threads read, how many bytes exist, and how many a tiled block reads."""
    read_bytes, stored_bytes = 4 * values_read(s), 4 * (s.elements["x"] + s.elements["w"])
    rule = next(iter(find(TILED).rules(s, find(TILED).default_tiles)), "")
    tiled = (
        f"{units.bytes_(4 * values_tiled(s))} in all." if not rule else f"but here a rule forbids it: {rule}."
    )
    return (
        f"No workspace. But each pixel is asked for up to {copies_per_pixel(s) * s.K:,} times (R·S·K = {s.R * s.S * s.K:,}): "
        f"{units.bytes_(read_bytes)} in all, where input and filters hold {units.bytes_(stored_bytes)}. The caches answer what they "
        "can. Tiled, a block brings each pixel of its patch into shared memory once for all its filters, its taps too: "
        f"{tiled}"
    )


def gain(rows: Mapping[str, Row]) -> str:
    """Returns how much tiling gains, and how far it is from the library. `rows` are by rung name, from one
    device. Returns "" if there is nothing to compare."""
    sentences = []
    if DIRECT in rows and TILED in rows:
        sentences.append(_against(rows[TILED], rows[DIRECT]))
    ours = [rows[name] for name in (DIRECT, TILED) if name in rows]
    best, library = fastest(ours), fastest(row for name, row in rows.items() if find(name).library)
    if best and library:
        ratio = best["median_ms"] / library["median_ms"]
        sentences.append(
            f"The fastest of the libraries', {title(library)}, is {units.ratio(ratio)} times as fast as the better of the two."
            if ratio > 1
            else f"No library is as fast here: {title(library)} takes {units.ratio(1 / ratio)} times as long."
        )
    return " ".join(sentences)


def _against(tiled: Row, direct: Row) -> str:
    ratio = direct["median_ms"] / tiled["median_ms"]
    if within_spread(tiled, direct):
        return "Patch and taps in shared memory buy nothing here: the spreads of the two overlap."
    if ratio > 1:
        return f"Patch and taps in shared memory make it {units.ratio(ratio)} times as fast."
    return f"Patch and taps in shared memory lose here: it takes {units.ratio(1 / ratio)} times as long."


@cache
def examples() -> list[tuple[Preset, str]]:
    """Returns the presets at which the tiled kernel gains most and least over the plain one, from the cold
    recordings."""

    def speedup(s: ConvShape) -> float | None:
        rows = recorded_at(s, (DIRECT, TILED))
        return rows[DIRECT]["median_ms"] / rows[TILED]["median_ms"] if len(rows) == 2 else None

    return extremes(speedup)


STORY = Story(cost, gain, examples, "tiled, times as fast as direct, recorded:")
