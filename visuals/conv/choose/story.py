"""Sentences about the figures of all rungs at one shape, with the numbers in them. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kernels import records
from kernels.conv.presets import CONV_LAYER_PRESETS, CONV_PRESETS
from kernels.conv.shape import ConvShape
from kernels.ladders import LADDERS, find
from kernels.model.preset import Preset
from kernels.model.program import WORKSPACE
from kernels.records import availability
from kernels.records.statistics import fastest, within_spread
from visuals.charts import units
from visuals.charts.roofline import roof_of
from visuals.charts.story import Row, Story, capitalized, title
from visuals.conv.choose.families import FAMILIES, family
from visuals.conv.choose.race import executed_flops

LADDER = LADDERS["conv"]


def cost(s: ConvShape) -> str:
    """Returns how much memory our rungs take beside input, filters and output: those without a workspace and the
    one with the largest."""
    workspaces = {}
    for rung in availability.supported_rungs(LADDER, "cpu", s):
        workspaces[rung.title] = rung.build(s, rung.default_tiles).nbytes(WORKSPACE)
    if not any(workspaces.values()):
        return "No rung of ours that can run this shape takes memory beside input, filters and output."
    without = [title for title, nbytes in workspaces.items() if not nbytes]
    largest, max_bytes = max(workspaces.items(), key=lambda pair: pair[1])
    tensors = 4 * sum(s.elements.values())
    none = f"No workspace: {'; '.join(without)}. " if without else ""
    return (
        f"{none}{capitalized(largest)} takes the most of ours: {units.bytes_(max_bytes)}, {units.ratio(max_bytes / tensors)} times the "
        f"{units.bytes_(tensors)} of input, filters and output."
    )


def gain(rows: Mapping[str, Row]) -> str:
    """Returns what the fastest does less of, or better, than direct convolution. `rows` are by rung name, from
    one device."""
    if len(rows) < 2:
        return ""
    first = fastest(rows.values())
    shape = ConvShape(**first["shape"])
    rung = find(first["rung"])
    rate = units.rate(shape.flops, first["median_ms"])
    text = f"The first, {rung.title_on(first['engine'])}, is worth {rate} of direct convolution"
    executed = executed_flops(rung, shape, first["tiles"])
    if executed is None:
        text += "; what it executes itself the library does not say."
    elif executed == shape.flops:
        text += ", and executes just that: it does not win by doing less."
    else:
        text += (
            f" and executes {units.rate(executed, first['median_ms'])}: {units.ratio(executed / shape.flops)} times the "
            "FLOPs of direct convolution."
        )
    roof = roof_of(first, "measured")
    if roof and shape.flops / first["median_ms"] * 1e3 > roof.flops_per_s:
        peak = units.rate(roof.flops_per_s, 1e3)
        text += f" Direct convolution could not be so fast on this device: its FP32 peak is {peak}."
    others = [row for row in rows.values() if row is not first and within_spread(row, first)]
    if others:
        text += f" It cannot be told apart from {', '.join(map(title, others))}."
    return text


def predicted(s: ConvShape, engine: str) -> tuple[list[str], dict[str, list[str]]]:
    """Returns the titles of our rungs that can run a shape. With them it returns, for each figure, one cell per
    rung: FLOPs executed and memory, by the formulas."""
    rungs = availability.supported_rungs(LADDER, "cpu", s)
    costs = [rung.cost(s, rung.build(s, rung.default_tiles)) for rung in rungs]
    flops = [executed_flops(rung, s, rung.default_tiles) for rung in rungs]
    return [rung.title_on(engine) for rung in rungs], {
        "FLOPs executed": [units.count(f) for f in flops],
        "of direct convolution's": [f"{f / s.flops:.2f}×" for f in flops],
        "bytes moved, each tensor once a step": [units.bytes_(c.bytes) for c in costs],
        "workspace": [units.bytes_(c.workspace_bytes) for c in costs],
    }


@cache
def examples() -> list[tuple[Preset, str]]:
    """Returns, for each family that is fastest somewhere, the preset with its largest lead over the best of the
    other families, from the cold recordings at the default tile sizes."""
    best: dict[str, tuple[float, Preset]] = {}
    for preset in (CONV_PRESETS | CONV_LAYER_PRESETS).values():
        rows = [
            row
            for rung in LADDER.rungs
            if (row := records.recorded(rung.name, preset.shape, rung.default_tiles))
        ]
        rows.sort(key=lambda row: row["median_ms"])
        if not rows:
            continue
        winner = family(rows[0]["rung"])
        other = next((row for row in rows if family(row["rung"]) != winner), None)
        if other and (lead := other["median_ms"] / rows[0]["median_ms"]) > best.get(winner.key, (0,))[0]:
            best[winner.key] = lead, preset
    return [
        (best[key][1], f"{FAMILIES[key].title}: {best[key][1].label}, {best[key][0]:.2g}×")
        for key in FAMILIES
        if key in best
    ]


CHOOSE = Story(cost, gain, examples, "where a family leads the best of the others by most, recorded:")
