"""Sentences about the figures of implicit GEMM, with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr
from kernels.ladders import find
from kernels.model.preset import Preset
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, recorded_at, title

PLAIN, MAGIC = "conv/implicit-gemm-plain", "conv/implicit-gemm"
COLUMNS = ("conv/im2col-cublas", "conv/im2col-gemm")
LIBRARY = ("conv/cudnn-implicit-precomp-gemm", "conv/cudnn-implicit-gemm")


def cost(s: ConvShape) -> str:
    """Returns the size of the matrix that is not stored, and how much of it exists at a time, at the default tile
    sizes."""
    matrix = 4 * s.N * s.CRS * s.PQ
    tiles = find(MAGIC).default_tiles
    once = 4 * tiles["STAGES"] * tiles["BK"] * tiles["BN"]
    sentences = (
        tr("Implicit GEMM needs no workspace (extra memory)."),
        tr("A stored data matrix would take {size}.", size=units.bytes_(matrix)),
        tr("im2col writes it once and reads it again."),
        tr(
            "A block keeps only {size} of it in shared memory: {n} tiles of {rows} × {columns} at the default tile sizes.",
            size=units.bytes_(once),
            n=tiles["STAGES"],
            rows=tiles["BK"],
            columns=tiles["BN"],
        ),
    )
    return " ".join(sentences)


def gain(rows: Mapping[str, Row]) -> str:
    """Returns how much two choices gain: no stored matrix, and division by multiplication. `rows` are by rung
    name, from one device. Returns "" if there is nothing to compare."""
    ours = [rows[name] for name in (MAGIC, PLAIN) if name in rows]
    sentences = [_divisions(*ours)] if len(ours) == 2 else []
    if best := fastest(ours):
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
        return tr("Division by multiply and shift makes no measurable difference here: the spreads overlap.")
    if ratio > 1:
        return tr(
            "Division by multiply and shift is faster: {ratio}× as fast as plain division.", ratio=units.ratio(ratio)
        )
    return tr(
        "Division by multiply and shift is slower here: {ratio}× the time of plain division.",
        ratio=units.ratio(1 / ratio),
    )


def _against(best: Row, other: Row) -> str:
    name, ratio = title(other), _time(other) / _time(best)
    if within_spread(best, other):
        return tr("There is no measurable difference between implicit GEMM and {name}: the spreads overlap.", name=name)
    if ratio > 1:
        return tr("Implicit GEMM is {ratio}× as fast as {name}.", ratio=units.ratio(ratio), name=name)
    return tr("Implicit GEMM takes {ratio}× the time of {name}.", ratio=units.ratio(1 / ratio), name=name)


@cached(8)
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


NOTES = LadderNotes(cost, gain, examples, mark("Recorded speed relative to cuDNN IMPLICIT_PRECOMP_GEMM:"))
