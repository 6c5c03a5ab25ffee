"""Sentences about the figures of the attention ladder, with their numbers. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from math import prod

from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.shape import AttentionShape
from kernels.ladders import LADDERS, find
from kernels.model.launch import ceil
from kernels.model.preset import Preset
from kernels.model.program import WORKSPACE
from kernels.records.statistics import fastest, within_spread
from visuals.charts import units
from visuals.charts.story import Row, Story, capitalized, extremes, recorded_at, title

FLASH = "attention/flash"  # prefix of the names of its rungs
SQUARE = ("attention/naive", "attention/blocked", "attention/cublas")  # S and P in memory
LIBRARY = "attention/library"  # prefix of PyTorch's
FLOAT = 4  # bytes


def attention_cost(s: AttentionShape) -> str:
    """Returns the bytes of S and P at this shape, and the extra work of flash attention, in sentences."""
    square_bytes, io_bytes = squares(s), s.bytes
    tiles = find(FLASH if s.dtype == "fp32" else f"{FLASH}-mma").default_tiles
    Br, Bc = tiles["Br"], tiles["Bc"]
    text = (
        f"S and P take {units.bytes_(square_bytes)}, {units.ratio(square_bytes / io_bytes)} times the {units.bytes_(io_bytes)} of Q, K, V and O; each is written "
        f"once and read again. Flash attention keeps a tile of {Br} × {Bc} scores instead, {units.bytes_(FLOAT * Br * Bc)} a block. It pays twice: "
        f"K and V are fetched by every block of {Br} queries ({ceil(s.N, Br):,} a head), and O and l are multiplied by exp(old m − new m) "
        f"after every tile of {Bc} keys ({ceil(s.N, Bc):,} a query): about one multiplication for {4 * Bc} FLOPs of the products."
    )
    if s.causal:
        visible_share = units.share(s.pairs / s.with_(causal=0).pairs)
        text += f" Causal, queries see {visible_share} of the pairs: flash attention leaves out tiles of hidden keys, S and P stay N × N."
    return text


def squares(s: AttentionShape) -> int:
    """Returns the bytes of S and P."""
    return find("attention/cublas").build(s, {}).nbytes(WORKSPACE)


def fastest_of(rows: Mapping[str, Row], *prefixes: str) -> Row | None:
    """Returns the fastest row of the rungs with such a prefix; None if none was timed."""
    return fastest(row for name, row in rows.items() if name.startswith(prefixes))


def library_row(rows: Mapping[str, Row]) -> Row | None:
    """Returns the fastest of PyTorch's rows, else that of cuBLAS with our softmax; None without either."""
    return fastest_of(rows, LIBRARY) or rows.get("attention/cublas")


def attention_gain(rows: Mapping[str, Row]) -> str:
    """Returns sentences that compare flash attention with the fastest rung that stores S and P, and with the library. If it
    is slower, they say why. `rows`: by rung name, of one device. "" without flash attention."""
    if not (flash := fastest_of(rows, FLASH)):
        return ""
    sentences, name = [], title(flash)
    if square := fastest_of(rows, *SQUARE):
        sentences.append(_compared(name, flash, square, "the fastest with S and P in memory"))
        if not within_spread(flash, square) and flash["median_ms"] > square["median_ms"]:
            sentences.append(_explain_loss(flash, square))
    library = library_row(rows)
    if library and library is not square:
        sentences.append(
            f"{capitalized(name)} reaches {units.share(library['median_ms'] / flash['median_ms'])} of the speed of {title(library)}."
        )
    return " ".join(sentences)


def _compared(name: str, row: Row, other: Row, what: str) -> str:
    other_name, ratio = title(other), other["median_ms"] / row["median_ms"]
    if within_spread(row, other):
        return (
            f"{capitalized(name)} and {other_name}, {what}, cannot be told apart here: their spreads overlap."
        )
    if ratio > 1:
        return f"{capitalized(name)} is {units.ratio(ratio)} times as fast as {other_name}, {what}."
    return f"{capitalized(name)} loses here: it takes {units.ratio(1 / ratio)} times as long as {other_name}, {what}."


def _explain_loss(flash: Row, square: Row) -> str:
    """Returns what flash attention can save at most here, and what its tiles cost."""
    s = AttentionShape(**flash["shape"])
    square_bytes, ceilings = squares(s), flash.get("ceilings") or {}
    text = f"S and P take {units.bytes_(square_bytes)}"
    if square_bytes <= ceilings.get("cache_bytes", 0):
        text += f" and fit in its caches ({units.bytes_(ceilings['cache_bytes'])}): they need not reach memory, and little is saved."
    elif ceilings and square.get("predicted_bytes"):
        ms = (square["predicted_bytes"] - flash["predicted_bytes"]) / ceilings["copy_bytes_per_s"] * 1e3
        text += f"; to move them takes {units.time_(ms)} at the speed of a copy there: {units.share(ms / square['median_ms'])} of that time, all there is to save."
    else:
        text += "."
    return f"{text} {_tiles_cost(flash, s)}"


def _tiles_cost(flash: Row, s: AttentionShape) -> str:
    tiles = flash["tiles"]
    if flash["engine"] == "cpu":
        all_tiles = s.heads * ceil(s.N, tiles["Br"]) * ceil(s.N, tiles["Bc"])
        return (
            f"On the processor the tiles ({all_tiles:,} of {tiles['Br']} × {tiles['Bc']}, if none is hidden) are a handful of NumPy calls each: "
            "what a call costs is paid for every tile."
        )
    launch = find(flash["rung"]).build(s, tiles).steps[0]
    return (
        f"Its {prod(launch.grid):,} blocks walk over up to {ceil(s.N, tiles['Bc']):,} tiles of keys, one after the other, and shrink "
        "what they summed after each."
    )


@cache
def attention_examples() -> list[tuple[Preset, str]]:
    """Returns (preset, text) of the largest and the smallest speedup of flash attention over the fastest rung with S and P.
    It uses the cold recordings at the default tile sizes."""

    def gained(s: AttentionShape) -> float | None:
        rows = recorded_at(s, [rung.name for rung in LADDERS["attention"].rungs])
        flash, square = fastest_of(rows, FLASH), fastest_of(rows, *SQUARE)
        return square["median_ms"] / flash["median_ms"] if flash and square else None

    return extremes(gained, presets=ATTENTION_PRESETS)


ATTENTION = Story(
    attention_cost,
    attention_gain,
    attention_examples,
    "flash attention, times as fast as with S and P in memory, recorded:",
)
