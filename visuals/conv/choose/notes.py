"""Sentences about the figures of all rungs at one shape, with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

from kernels import records
from kernels.conv.presets import CONV_LAYER_PRESETS, CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr
from kernels.ladders import LADDERS, find
from kernels.model.preset import Preset
from kernels.model.program import WORKSPACE
from kernels.records import availability
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, capitalized, title
from visuals.charts.roofline import roof_of
from visuals.conv.choose.families import FAMILIES, family
from visuals.conv.choose.race import executed_flops

LADDER = LADDERS["conv"]


def cost(s: ConvShape) -> str:
    """Returns how much memory our rungs take beside input, filters and output: those without a workspace and the
    one with the largest."""
    workspaces = {}
    for rung in availability.supported_rungs(LADDER, "emulator", s):
        workspaces[tr(rung.title)] = rung.build(s, rung.default_tiles).nbytes(WORKSPACE)
    if not any(workspaces.values()):
        return tr("None of our kernels that can run this shape needs a workspace.")
    without = [title for title, nbytes in workspaces.items() if not nbytes]
    largest, max_bytes = max(workspaces.items(), key=lambda pair: pair[1])
    tensors = 4 * sum(s.elements.values())
    most = tr(
        "{kernel} needs the largest workspace of ours: {bytes}, {ratio}× the {tensors} of input, filters and output.",
        kernel=capitalized(largest),
        bytes=units.bytes_(max_bytes),
        ratio=units.ratio(max_bytes / tensors),
        tensors=units.bytes_(tensors),
    )
    none = [tr("Without a workspace: {kernels}.", kernels="; ".join(without))] if without else []
    return " ".join([most, *none])


def gain(rows: Mapping[str, Row]) -> str:
    """Returns what the fastest does less of, or better, than direct convolution. `rows` are by rung name, from
    one device."""
    first = fastest(rows.values())
    if first is None or len(rows) < 2:
        return ""
    shape = ConvShape(**first["shape"])
    rung = find(first["rung"])
    ms, executed = first["median_ms"], executed_flops(rung, shape, first["tiles"])
    sentences = [
        tr(
            "The fastest is {kernel}. Its effective rate, as if it were direct convolution, is {rate}.",
            kernel=title(first),
            rate=units.rate(shape.flops, ms),
        )
    ]
    if executed is None:
        sentences.append(tr("The library does not report the FLOPs that it executes."))
    elif executed == shape.flops:
        sentences.append(tr("It executes as many FLOPs as direct convolution: it is faster without doing less work."))
    else:
        sentences.append(
            tr(
                "It executes {ratio}× the FLOPs of direct convolution, at {rate}.",
                ratio=units.ratio(executed / shape.flops),
                rate=units.rate(executed, ms),
            )
        )
    roof = roof_of(first, "measured")
    if roof and shape.flops / ms * 1e3 > roof.flops_per_s:
        sentences.append(
            tr(
                "Direct convolution cannot be that fast on this device: its FP32 peak is {peak}.",
                peak=units.rate(roof.flops_per_s, 1e3),
            )
        )
    if others := [row for row in rows.values() if row is not first and within_spread(row, first)]:
        sentences.append(
            tr("No measurable difference from {kernels}: their spreads overlap.", kernels=", ".join(map(title, others)))
        )
    return " ".join(sentences)


def predicted(s: ConvShape, engine: str) -> tuple[list[str], dict[str, list[str]]]:
    """Returns the titles of our rungs that can run a shape. With them it returns, for each figure, one cell per
    rung: FLOPs executed and memory, by the formulas."""
    rungs = availability.supported_rungs(LADDER, "emulator", s)
    costs = [rung.cost(s, rung.build(s, rung.default_tiles)) for rung in rungs]
    flops = [executed_flops(rung, s, rung.default_tiles) for rung in rungs]
    titles = [rung.title_on(engine) if engine in rung.engines else tr(rung.title) for rung in rungs]
    return titles, {
        tr("FLOPs executed"): [units.count(f) for f in flops],
        tr("FLOPs / direct convolution"): ["–" if f is None else f"{f / s.flops:.2f}×" for f in flops],
        tr("bytes moved, each tensor once per step"): [units.bytes_(c.bytes) for c in costs],
        tr("workspace"): [units.bytes_(c.workspace_bytes) for c in costs],
    }


@cached(1)
def examples() -> list[tuple[Preset, str]]:
    """Returns, for each family that is fastest somewhere, the preset with its largest lead over the best of the
    other families, from the cold recordings at the default tile sizes."""
    best: dict[str, tuple[float, Preset]] = {}
    for preset in (CONV_PRESETS | CONV_LAYER_PRESETS).values():
        rows = [row for rung in LADDER.rungs if (row := records.recorded(rung.name, preset.shape, rung.default_tiles))]
        rows.sort(key=lambda row: row["median_ms"])
        if not rows:
            continue
        winner = family(rows[0]["rung"])
        other = next((row for row in rows if family(row["rung"]) != winner), None)
        if other and (lead := other["median_ms"] / rows[0]["median_ms"]) > best.get(winner.key, (0,))[0]:
            best[winner.key] = lead, preset
    return [
        (best[key][1], f"{tr(FAMILIES[key].title)}: {tr(best[key][1].label)}, {best[key][0]:.2g}×")
        for key in FAMILIES
        if key in best
    ]


CHOOSE = LadderNotes(cost, gain, examples, mark("Largest recorded lead of each family over the others:"))
