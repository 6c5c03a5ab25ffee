"""Sentences about the figures of the ladder on instructions, with their numbers."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.i18n import mark, tr, trn
from kernels.model.preset import Preset
from kernels.precision.ladder import LADDER, macs_of
from kernels.precision.presets import RATE_PRESETS
from kernels.precision.shape import RateShape
from kernels.records.statistics import fastest
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, recorded_at, title

FFMA = "instruction-rate/ffma"


def name(shape: RateShape) -> str:
    """Returns a shape in a few words."""
    warps = trn("{count} warp", "{count} warps", shape.warps, count=units.whole(shape.warps))
    turns = trn("{count} turn", "{count} turns", shape.turns, count=units.whole(shape.turns))
    return tr("{warps}, {turns}", warps=warps, turns=turns)


def rate_cost(s: RateShape) -> str:
    """Returns what a shape computes, and what it moves at least."""
    return tr(
        "{macs} multiply-adds are computed from registers. Memory moves {bytes}: A and B are read once, C is written once.",
        macs=units.count(s.macs),
        bytes=units.bytes_(s.bytes),
    )


def rate_gain(rows: Mapping[str, Row]) -> str:
    """Returns the speedup of the fastest instruction over FP32 multiply-adds; "" if one is missing."""
    best, first = fastest(rows.values()), rows.get(FFMA)
    if not best or not first or best is first:
        return ""
    return tr(
        "“{name}” is {ratio}× as fast as “{first}”. One of its instructions does {times} times as many multiply-adds.",
        name=title(best),
        first=title(first),
        ratio=units.ratio(first["median_ms"] / best["median_ms"]),
        times=units.whole(macs_of(best["rung"]) / macs_of(FFMA)),
    )


def rate_examples() -> list[tuple[Preset, str]]:
    """Returns (preset, text) of the recorded speedups over FP32 multiply-adds."""

    def gained(s: RateShape) -> float | None:
        rows = recorded_at(s, [rung.name for rung in LADDER.rungs])
        best = fastest(rows.values())
        return rows[FFMA]["median_ms"] / best["median_ms"] if best and FFMA in rows else None

    return extremes(gained, presets=RATE_PRESETS)


RATE = LadderNotes(rate_cost, rate_gain, rate_examples, mark("Recorded speed-up over FP32 multiply-adds:"))
