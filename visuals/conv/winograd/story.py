"""Sentences about the figures of the Winograd lesson, with the numbers in them. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

from kernels.conv.shape import ConvShape
from kernels.conv.winograd import FUSED_TILES, RUNGS, tiles_of
from kernels.ladders import find
from kernels.model.preset import Preset
from kernels.records.statistics import within_spread
from visuals.charts import units
from visuals.charts.story import Row, Story, capitalized, extremes, recorded_at, title
from visuals.conv.winograd import charts
from visuals.conv.winograd.part import why_not

BASE, NONFUSED = "conv/implicit-gemm", "conv/winograd-nonfused"
LIBRARY = "conv/cudnn-winograd-nonfused"
TRANSFORMS = ("winograd_filter", "winograd_input", "winograd_output")


def winograd_cost(s: ConvShape) -> str:
    """Returns the workspaces of the nonfused kernel at this shape, compared with input and filters; or why it
    cannot run."""
    m = find(NONFUSED).default_tiles["M"]
    if reason := why_not(s, m):
        return f"Winograd cannot run this shape: {reason}."
    work, stored = charts.work(s, m), 4 * (s.elements["x"] + s.elements["w"])
    workspace = work.U + work.V + work.Z
    return (
        f"In steps, {m}×{m}, Winograd writes out and reads again U {units.bytes_(work.U)}, V {units.bytes_(work.V)} and "
        f"Z {units.bytes_(work.Z)}, {units.ratio(workspace / stored)} times input and filters. Fused it keeps U alone."
    )


def winograd_rows(rows: Mapping[str, Row]) -> list[Row]:
    """Returns the rows of our Winograd kernels, the fastest first."""
    return sorted(
        (row for name, row in rows.items() if name.startswith("conv/winograd-")),
        key=lambda row: row["median_ms"],
    )


def executed(row: Row) -> int:
    """Returns the FLOPs that the rung of a row executes at its shape."""
    rung, s = find(row["rung"]), ConvShape(**row["shape"])
    return rung.cost(s, rung.build(s, row["tiles"])).flops


def winograd_gain(rows: Mapping[str, Row]) -> str:
    """Returns how much time fewer multiplications gain: the fastest Winograd kernel compared with implicit GEMM,
    its rates, and where its time goes if it loses. `rows` are by rung name, from one device. Returns "" if
    there is nothing to compare."""
    if not (ours := winograd_rows(rows)):
        return ""
    best, text = ours[0], ""
    name = capitalized(_title(best))
    if base := rows.get(BASE):
        text += _against(name, best, base, _title(base))
    s, executed_flops = ConvShape(**best["shape"]), executed(best)
    text += (
        f"It executes {units.count(executed_flops)} FLOPs where the definition has {units.count(s.flops)}: effective "
        f"{units.rate(s.flops, best['median_ms'])}, actual {units.rate(executed_flops, best['median_ms'])}. "
    )
    text += _share_of_transforms(best)
    if base and best["median_ms"] > base["median_ms"]:
        text += _loss_reason(best, s, executed_flops)
    if library := rows.get(LIBRARY):
        text += _against(name, best, library, _title(library))
    return text.strip()


def _title(row: Row) -> str:
    m = f" ({row['tiles']['M']}×{row['tiles']['M']})" if "M" in row["tiles"] else ""
    return title(row).replace(", fused", " (fused)") + m


def _against(name: str, row: Row, other: Row, other_name: str) -> str:
    ratio = other["median_ms"] / row["median_ms"]
    if within_spread(row, other):
        return f"{name} and {other_name} cannot be told apart here: their spreads overlap. "
    if ratio > 1:
        return f"{name} is {units.ratio(ratio)} times as fast as {other_name}. "
    return f"{name} loses here: it takes {units.ratio(1 / ratio)} times as long as {other_name}. "


def _share_of_transforms(row: Row) -> str:
    """Returns the transforms' share of the time, from the measured steps; "" if they were not measured."""
    parts = row.get("parts_ms") or {}
    if not (spent := sum(parts.get(name, 0) for name in TRANSFORMS)):
        return ""
    subject = (
        "Its transforms take" if TRANSFORMS[1] in parts else "The launch that transforms the filters takes"
    )
    return f"{subject} {units.share(spent / sum(parts.values()))} of its steps’ time. "


def _loss_reason(row: Row, s: ConvShape, executed_flops: int) -> str:
    """Returns the cost of its transforms in FLOPs or bytes, and how often their results are used."""
    m = row["tiles"].get("M") or int(row["rung"][-1])
    work = charts.work(s, m)
    if executed_flops >= s.flops:
        text = "The transforms cost more FLOPs than the products save: "
    elif row["rung"] == NONFUSED:
        text = f"The transforms have {units.ratio(work.transforms / work.moved)} FLOP for each byte they move, so memory sets their pace: "
    else:
        text = f"Its blocks, of {FUSED_TILES} tiles and {row['tiles']['BK']} filters, are {_blocks(row, s):,}, and each transforms its input anew: "
    return text + (
        f"with C = {s.C:,} and K = {s.K:,} what is transformed serves {units.ratio(s.K * s.C / (s.K + s.C))} products "
        f"for each transform of input and output (C·K / (C + K)), and {tiles_of(s, m):,} tiles share each filter’s. "
    )


def _blocks(row: Row, s: ConvShape) -> int:
    return math.prod(find(row["rung"]).build(s, row["tiles"]).steps[1].grid)


@cache
def winograd_examples() -> list[tuple[Preset, str]]:
    """Returns the presets at which Winograd gains most and least (or loses) over implicit GEMM, from the cold
    recordings."""

    def speedup(s: ConvShape) -> float | None:
        rows = recorded_at(s, (BASE, *(rung.name for rung in RUNGS)))
        return (
            rows[BASE]["median_ms"] / ours[0]["median_ms"]
            if BASE in rows and (ours := winograd_rows(rows))
            else None
        )

    return extremes(speedup)


WINOGRAD = Story(
    winograd_cost, winograd_gain, winograd_examples, "Winograd, times as fast as implicit GEMM, recorded:"
)
