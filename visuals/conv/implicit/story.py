"""Sentences about the figures of implicit GEMM, with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

from kernels.conv.shape import ConvShape
from kernels.ladders import find
from kernels.model.preset import Preset
from kernels.records.statistics import fastest, within_spread
from visuals.charts import units
from visuals.charts.story import Row, Story, extremes, recorded_at, title

PLAIN, MAGIC = "conv/implicit-gemm-plain", "conv/implicit-gemm"
COLUMNS = ("conv/im2col-cublas", "conv/im2col-gemm")
LIBRARY = ("conv/cudnn-implicit-precomp-gemm", "conv/cudnn-implicit-gemm")


def cost(s: ConvShape) -> str:
    """Returns the size of the matrix that is not stored, and how much of it exists at a time, at the default tile
    sizes."""
    matrix = 4 * s.N * s.CRS * s.PQ
    tiles = find(MAGIC).default_tiles
    once = 4 * tiles["STAGES"] * tiles["BK"] * tiles["BN"]
    return (
        f"No workspace: the data matrix would take {units.bytes_(matrix)}, written once and read again. Of it a block has "
        f"{units.bytes_(once)} in shared memory at a time, {tiles['STAGES']} tiles of {tiles['BK']} × {tiles['BN']} at the usual sizes."
    )


def gain(rows: Mapping[str, Row]) -> str:
    """Returns how much two choices gain: no stored matrix, and division by multiplication. `rows` are by rung
    name, from one device. Returns "" if there is nothing to compare."""
    ours = [rows[name] for name in (MAGIC, PLAIN) if name in rows]
    sentences = [_divisions(*ours)] if len(ours) == 2 else []
    if ours:
        best = fastest(ours)
        others = [_first(COLUMNS, rows), fastest(rows[name] for name in LIBRARY if name in rows)]
        sentences += [_against(best, other) for other in others if other]
    return " ".join(sentences)


def _time(row: Row) -> float:
    return row["median_ms"]


def _first(names: tuple[str, ...], rows: Mapping[str, Row]) -> Row | None:
    return next((rows[name] for name in names if name in rows), None)


def _divisions(magic: Row, plain: Row) -> str:
    ratio = _time(plain) / _time(magic)
    if within_spread(magic, plain):
        return "Dividing by multiplication and shift buys nothing here: the spreads overlap."
    if ratio > 1:
        return f"Dividing by multiplication and shift makes it {units.ratio(ratio)} times as fast."
    return (
        f"Dividing by multiplication and shift loses here: it takes {units.ratio(1 / ratio)} times as long."
    )


def _against(best: Row, other: Row) -> str:
    name, ratio = title(other), _time(other) / _time(best)
    if within_spread(best, other):
        return f"Implicit GEMM and {name} cannot be told apart: their spreads overlap."
    if ratio > 1:
        return f"Implicit GEMM is {units.ratio(ratio)} times as fast as {name}."
    return f"Implicit GEMM takes {units.ratio(1 / ratio)} times as long as {name}."


@cache
def examples() -> list[tuple[Preset, str]]:
    """Returns the presets at which the rung is nearest to the library's implicit GEMM (or faster) and farthest
    from it, from the cold recordings. Uses the hot recordings if there are no cold ones of both rungs."""
    return extremes(partial(_share_of_library, mode="cold"), units.share) or extremes(
        partial(_share_of_library, mode="hot"), units.share
    )


def _share_of_library(s: ConvShape, mode: str) -> float | None:
    """Returns the rung's speed divided by the library's if both were recorded."""
    rows = recorded_at(s, (MAGIC, LIBRARY[0]), mode)
    return _time(rows[LIBRARY[0]]) / _time(rows[MAGIC]) if len(rows) == 2 else None


STORY = Story(
    cost,
    gain,
    examples,
    "share of the speed of cuDNN’s implicit GEMM with indices computed before, recorded:",
)
