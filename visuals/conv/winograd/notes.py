"""Sentences about the figures of the Winograd lesson, with the numbers in them. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from kernels.conv.shape import ConvShape
from kernels.conv.winograd import FUSED_TILES, RUNGS, tiles_of
from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import find
from kernels.model.preset import Preset
from kernels.records.gpus import cached
from kernels.records.statistics import within_spread
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, capitalized, extremes, recorded_at, title
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
        return tr("Winograd cannot run this shape: {reason}.", reason=reason)
    work, stored = charts.work(s, m), 4 * (s.elements["x"] + s.elements["w"])
    workspace = work.U + work.V + work.Z
    return " ".join(
        (
            tr(
                "Winograd in steps ({m}×{m}) needs {bytes} of workspace, {ratio}× the bytes of input and filters.",
                m=m,
                bytes=units.bytes_(workspace),
                ratio=units.ratio(workspace / stored),
            ),
            tr(
                "It writes and reads U {U}, V {V} and Z {Z}.",
                **{name: units.bytes_(getattr(work, name)) for name in "UVZ"},
            ),
            tr("The fused kernels store only U."),
        )
    )


def winograd_rows(rows: Mapping[str, Row]) -> list[Row]:
    """Returns the rows of our Winograd kernels, the fastest first."""
    return sorted(
        (row for name, row in rows.items() if name.startswith("conv/winograd-")), key=lambda row: row["median_ms"]
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
    best, sentences = ours[0], []
    name = capitalized(_title(best))
    if base := rows.get(BASE):
        sentences.append(_against(name, best, base, _title(base)))
    s, executed_flops = ConvShape(**best["shape"]), executed(best)
    sentences += [
        tr(
            "It executes {executed} FLOPs; direct convolution executes {direct}.",
            executed=units.count(executed_flops),
            direct=units.count(s.flops),
        ),
        tr(
            "Its actual rate is {actual}. Its effective rate, as if it were direct convolution, is {effective}.",
            effective=units.rate(s.flops, best["median_ms"]),
            actual=units.rate(executed_flops, best["median_ms"]),
        ),
        _share_of_transforms(best),
    ]
    if base and best["median_ms"] > base["median_ms"]:
        sentences += _loss_reason(best, s, executed_flops)
    if library := rows.get(LIBRARY):
        sentences.append(_against(name, best, library, _title(library)))
    return " ".join(filter(None, sentences))


def _title(row: Row) -> str:
    m = f" ({row['tiles']['M']}×{row['tiles']['M']})" if "M" in row["tiles"] else ""
    return title(row).replace(", fused", " (fused)") + m


def _against(name: str, row: Row, other: Row, other_name: str) -> str:
    ratio = other["median_ms"] / row["median_ms"]
    if within_spread(row, other):
        return tr(
            "No measurable difference between {name} and {other}: their spreads overlap.",
            name=_title(row),
            other=other_name,
        )
    if ratio > 1:
        return tr("{name} is {ratio}× as fast as {other}.", name=name, ratio=units.ratio(ratio), other=other_name)
    return tr("{name} takes {ratio}× the time of {other}.", name=name, ratio=units.ratio(1 / ratio), other=other_name)


def _share_of_transforms(row: Row) -> str:
    """Returns the transforms' share of the time, from the measured steps; "" if they were not measured."""
    parts = row.get("parts_ms") or {}
    if not (spent := sum(parts.get(name, 0) for name in TRANSFORMS)):
        return ""
    share = units.share(spent / sum(parts.values()))
    if TRANSFORMS[1] in parts:
        return tr("Its transforms take {share} of the time of all steps.", share=share)
    return tr("The launch that transforms the filters takes {share} of the time of all steps.", share=share)


def _loss_reason(row: Row, s: ConvShape, executed_flops: int) -> list[str]:
    """Returns the cost of its transforms in FLOPs or bytes, and how often their results are used."""
    m = row["tiles"].get("M") or int(row["rung"][-1])
    work = charts.work(s, m)
    if executed_flops >= s.flops:
        cost = tr("The transforms cost more FLOPs than the products save.")
    elif row["rung"] == NONFUSED:
        cost = tr(
            "The transforms execute {ratio} FLOP per byte that they move, so memory bandwidth limits them.",
            ratio=units.ratio(work.transforms / work.moved),
        )
    else:
        cost = trn(
            "It runs {n} block of {tiles} tiles and {BK} filters.",
            "It runs {n} blocks of {tiles} tiles and {BK} filters, and each block transforms its input again.",
            _blocks(row, s),
            tiles=FUSED_TILES,
            BK=row["tiles"]["BK"],
        )
    return [
        cost,
        tr(
            "With C = {C} and K = {K}, each transform of input and output is used in {ratio} products, C·K / (C + K).",
            C=decimal(f"{s.C:,}"),
            K=decimal(f"{s.K:,}"),
            ratio=units.ratio(s.K * s.C / (s.K + s.C)),
        ),
        trn(
            "Each filter transform is used by {n} tile.", "Each filter transform is used by {n} tiles.", tiles_of(s, m)
        ),
    ]


def _blocks(row: Row, s: ConvShape) -> int:
    return math.prod(find(row["rung"]).build(s, row["tiles"]).launch(1).grid)


@cached(1)
def winograd_examples() -> list[tuple[Preset, str]]:
    """Returns the presets at which Winograd gains most and least (or loses) over implicit GEMM, from the cold
    recordings."""

    def speedup(s: ConvShape) -> float | None:
        rows = recorded_at(s, (BASE, *(rung.name for rung in RUNGS)))
        return (
            rows[BASE]["median_ms"] / ours[0]["median_ms"] if BASE in rows and (ours := winograd_rows(rows)) else None
        )

    return extremes(speedup)


WINOGRAD = LadderNotes(
    winograd_cost, winograd_gain, winograd_examples, mark("Recorded speed-up of Winograd over implicit GEMM:")
)
