"""What the figures of the attention ladder say, in sentences with the numbers in them. Pure functions."""

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
from visuals.charts import units
from visuals.charts.story import Row, Story, extremes, recorded_at

FLASH = "attention/flash"  # so their names begin
SQUARE = ("attention/naive", "attention/blocked", "attention/cublas")  # S and P in memory
LIBRARY = "attention/library"  # so do those of PyTorch's
FLOAT = 4  # bytes


def attention_cost(s: AttentionShape) -> str:
    """What S and P take at this shape, and what flash attention pays to be without them."""
    both, there = squares(s), s.bytes
    tiles = find(FLASH if s.dtype == "fp32" else f"{FLASH}-mma").default_tiles
    Br, Bc = tiles["Br"], tiles["Bc"]
    text = (
        f"S and P take {units.bytes_(both)}, {units.ratio(both / there)} times the {units.bytes_(there)} of Q, K, V and O; each is written "
        f"once and read again. Flash attention keeps a tile of {Br} × {Bc} scores instead, {units.bytes_(FLOAT * Br * Bc)} a block. It pays twice: "
        f"K and V are fetched by every block of {Br} queries ({ceil(s.N, Br):,} a head), and O and l are multiplied by exp(old m − new m) "
        f"after every tile of {Bc} keys ({ceil(s.N, Bc):,} a query): about one multiplication for {4 * Bc} FLOPs of the products."
    )
    if s.causal:
        seen = units.share(s.pairs / s.with_(causal=0).pairs)
        text += f" Causal, queries see {seen} of the pairs: flash attention leaves out tiles of hidden keys, S and P stay N × N."
    return text


def squares(s: AttentionShape) -> int:
    """Bytes of S and P."""
    return find("attention/cublas").build(s, {}).nbytes(WORKSPACE)


def fastest(rows: Mapping[str, Row], *heads: str) -> Row | None:
    """The fastest of the rungs whose names begin so; None where none was timed."""
    told = [row for name, row in rows.items() if name.startswith(heads)]
    return min(told, key=lambda row: row["median_ms"], default=None)


def library_row(rows: Mapping[str, Row]) -> Row | None:
    """The fastest of PyTorch's, else cuBLAS with our softmax."""
    return fastest(rows, LIBRARY) or rows.get("attention/cublas")


def attention_gain(rows: Mapping[str, Row]) -> str:
    """What it buys in time to be without S and P, `rows` by rung name from one device: flash attention against the
    fastest rung that has them, why it loses if it does, and against the library. "" where there is nothing to compare."""
    if not (flash := fastest(rows, FLASH)):
        return ""
    told, name = [], _title(flash)
    if square := fastest(rows, *SQUARE):
        told.append(_against(name, flash, square, "the fastest with S and P in memory"))
        if _apart(flash, square) and flash["median_ms"] > square["median_ms"]:
            told.append(_why_it_loses(flash, square))
    library = library_row(rows)
    if library and library is not square:
        told.append(
            f"{_capital(name)} reaches {units.share(library['median_ms'] / flash['median_ms'])} of the speed of {_title(library)}."
        )
    return " ".join(told)


def _title(row: Row) -> str:
    return find(row["rung"]).title_on(row["engine"])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _apart(row: Row, other: Row) -> bool:
    """Whether their spreads do not meet."""
    return row["p20_ms"] > other["p80_ms"] or other["p20_ms"] > row["p80_ms"]


def _against(name: str, row: Row, other: Row, what: str) -> str:
    its, ratio = _title(other), other["median_ms"] / row["median_ms"]
    if not _apart(row, other):
        return f"{_capital(name)} and {its}, {what}, cannot be told apart here: their spreads overlap."
    if ratio > 1:
        return f"{_capital(name)} is {units.ratio(ratio)} times as fast as {its}, {what}."
    return f"{_capital(name)} loses here: it takes {units.ratio(1 / ratio)} times as long as {its}, {what}."


def _why_it_loses(flash: Row, square: Row) -> str:
    """What there was to save, and what the tiles cost where that was not enough."""
    s = AttentionShape(**flash["shape"])
    both, ceilings = squares(s), flash.get("ceilings") or {}
    text = f"S and P take {units.bytes_(both)}"
    if both <= ceilings.get("cache_bytes", 0):
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
        every = s.heads * ceil(s.N, tiles["Br"]) * ceil(s.N, tiles["Bc"])
        return (
            f"On the processor the tiles ({every:,} of {tiles['Br']} × {tiles['Bc']}, if none is hidden) are a handful of NumPy calls each: "
            "what a call costs is paid for every tile."
        )
    launch = find(flash["rung"]).build(s, tiles).steps[0]
    return (
        f"Its {prod(launch.grid):,} blocks walk over up to {ceil(s.N, tiles['Bc']):,} tiles of keys, one after the other, and shrink "
        "what they summed after each."
    )


@cache
def attention_examples() -> list[tuple[Preset, str]]:
    """The presets at which flash attention gains most and least (or loses) on the fastest rung with S and P, by the
    recordings made cold at the usual tile sizes."""

    def gained(s: AttentionShape) -> float | None:
        rows = recorded_at(s, [rung.name for rung in LADDERS["attention"].rungs])
        flash, square = fastest(rows, FLASH), fastest(rows, *SQUARE)
        return square["median_ms"] / flash["median_ms"] if flash and square else None

    return extremes(gained, presets=ATTENTION_PRESETS)


ATTENTION = Story(
    attention_cost,
    attention_gain,
    attention_examples,
    "flash attention, times as fast as with S and P in memory, recorded:",
)
