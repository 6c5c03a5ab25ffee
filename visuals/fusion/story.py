"""Sentences about the figures of the fusion ladder: what fusing saves, when it cannot pay, what a folded batch
norm is, and why a convolution or a pool begins a kernel. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache

from kernels.fusion import codegen
from kernels.fusion.common import Part
from kernels.fusion.ladder import PLANS, RUNGS, folds
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import ChainShape, Stage
from kernels.ladders import find
from kernels.model.preset import Preset
from kernels.records.statistics import fastest, within_spread
from visuals.charts import units
from visuals.charts.roofline import Roof
from visuals.charts.story import Row, Story, capitalized, extremes, recorded_at

UNFUSED, FUSED, FOLDED, LIBRARY = "fusion/unfused", "fusion/fused", "fusion/folded", "fusion/torch"
FOLD = "fold"
MIN_SHARE = 1 / 4  # share of the saved bytes in their time plus the arithmetic's: below it fusion hardly pays


# -- launches ------------------------------------------------------------------------------------------------
def parts(rung: str, s: ChainShape) -> tuple[Part, ...]:
    """Returns the launches of one of our rungs; none if it cannot run the chain. Tile sizes move no bytes."""
    tiles = find(rung).default_tiles
    return () if any(find(rung).rules(s, tiles)) else PLANS[rung](s, tiles).parts


def map_bytes_between(parts: Sequence[Part]) -> int:
    """Returns the bytes of the maps between launches, written once and read once. Folded weights do not count."""
    return sum(2 * part.writes for part in parts[:-1] if part.launch.entry != FOLD)


def saved_bytes(s: ChainShape) -> int:
    """Returns the HBM bytes that the fused chain saves."""
    return map_bytes_between(parts(UNFUSED, s)) - map_bytes_between(parts(FUSED, s))


def floor_ms(s: ChainShape, roof: Roof) -> float:
    """Returns the time of a copy of as many bytes as the chain must move."""
    return s.bytes / roof.bytes_per_s * 1e3


# -- the story -----------------------------------------------------------------------------------------------
def fusion_cost(s: ChainShape) -> str:
    """Returns the size of the maps between launches."""
    alone, fused = parts(UNFUSED, s), parts(FUSED, s)
    if not alone:
        return ""
    if len(alone) == 1:
        return "A chain of one block has no maps between launches: there is nothing to fuse."
    map_bytes = [sum(part.writes for part in launches[:-1]) for launches in (alone, fused)]
    text = f"{_launches(alone)} keep {units.bytes_(map_bytes[0])} of maps between them in memory"
    if len(fused) == len(alone):
        return f"{text}, fused or not: every block begins a kernel of its own."
    return f"{text}; {_launches(fused)}, fused, {f'keep {units.bytes_(map_bytes[1])}' if map_bytes[1] else 'none'}."


def _launches(of: Sequence[Part]) -> str:
    return f"{len(of)} launch{'es' * (len(of) > 1)}"


def fastest_ours(rows: Mapping[str, Row]) -> Row | None:
    """Returns the faster of the fused rungs."""
    return fastest(rows[name] for name in (FUSED, FOLDED) if name in rows)


def fusion_gain(rows: Mapping[str, Row]) -> str:
    """Returns how much time fusing gains. `rows` are by rung name, from one device. Returns "" if there is
    nothing to compare."""
    alone, fused, folded, library = (rows.get(name) for name in (UNFUSED, FUSED, FOLDED, LIBRARY))
    if not (alone and fused):
        return ""
    s = ChainShape(**fused["shape"])
    sentences = [_against("Fused", fused, alone, "a launch a block")]
    if len(parts(FUSED, s)) == len(s.blocks):
        sentences = ["Here nothing is fused: both run the same kernels."]
    if folded:
        sentences.append(
            _against("With batch norm folded", folded, fused, "fused") + " Its time has the fold in it."
        )
    best = fastest_ours(rows)
    if library:
        share = units.share(library["median_ms"] / best["median_ms"])
        sentences.append(f"The fastest of ours reaches {share} of the speed of {find(LIBRARY).title}.")
    ceilings = best.get("ceilings") or {}
    ms = s.bytes / ceilings["copy_bytes_per_s"] * 1e3 if ceilings else 0
    if ms * 1e3 > ceilings.get("launch_us", 0):  # otherwise launch overhead dominates
        sentences.append(
            f"A copy of the {units.bytes_(s.bytes)} that must move takes {units.time_(ms)} there: the fastest of ours takes "
            f"{units.ratio(best['median_ms'] / ms)} times as long."
        )
    return " ".join(sentences)


def _against(name: str, row: Row, other: Row, other_name: str) -> str:
    if within_spread(row, other):
        return f"{name}, it cannot be told apart from “{other_name}” here: the spreads overlap."
    ratio = other["median_ms"] / row["median_ms"]
    if ratio > 1:
        return f"{name}, it is {units.ratio(ratio)} times as fast as “{other_name}”."
    return f"{name}, it loses here: it takes {units.ratio(1 / ratio)} times as long as “{other_name}”."


@cache
def fusion_examples() -> list[tuple[Preset, str]]:
    """Returns the presets at which fusing gains most and least, from the cold recordings. If there are none, uses
    the predicted bytes."""

    def speedup(s: ChainShape) -> float | None:
        rows = recorded_at(s, (UNFUSED, FUSED))
        return rows[UNFUSED]["median_ms"] / rows[FUSED]["median_ms"] if len(rows) == 2 else None

    def fewer(s: ChainShape) -> float:
        return sum(p.bytes for p in parts(UNFUSED, s)) / sum(p.bytes for p in parts(FUSED, s))

    if found := extremes(speedup, lambda ratio: f"{units.ratio(ratio)}× as fast", FUSION_PRESETS):
        return found
    return extremes(fewer, lambda ratio: f"{units.ratio(ratio)}× fewer bytes", FUSION_PRESETS)


FUSION = Story(fusion_cost, fusion_gain, fusion_examples, "fused against a launch a block:")


# -- when it pays --------------------------------------------------------------------------------------------
def pays(s: ChainShape, roof: Roof | None) -> list[str]:
    """Returns sentences on the savings, on the time of the arithmetic, on what begins a kernel, on what is
    folded."""
    sentences = [
        _saves(s, roof),
        *(_computes(s, stage, roof) for stage in s.stages if stage.block.kind == "conv"),
    ]
    sentences += [_begins(s), _fold(s)]
    return [text for text in sentences if text]


def _saves(s: ChainShape, roof: Roof | None) -> str:
    alone, fused = parts(UNFUSED, s), parts(FUSED, s)
    fewer = len(alone) - len(fused)
    if not fewer:
        return "Nothing rides along in this chain: every block begins a kernel of its own." if alone else ""
    text = f"Fusing leaves out {fewer} launch{'es' * (fewer > 1)} and {units.bytes_(saved_bytes(s))} of maps, written and read again"
    if not roof:
        return f"{text}."
    ms, launch_us = saved_bytes(s) / roof.bytes_per_s * 1e3, roof.ceilings.get("launch_us")
    text += f": {units.time_(ms)} at the speed of a copy on {roof.device}"
    if launch_us:
        text += f", and {units.time_(fewer * launch_us / 1e3)} for the launches"
        text += ". So small a chain waits for launches, not for bytes" if ms < fewer * launch_us / 1e3 else ""
    return f"{text}."


def _computes(s: ChainShape, stage: Stage, roof: Roof | None) -> str:
    """Returns a convolution's FLOPs compared with the bytes that can be saved behind it."""
    weights = math.prod(stage.tensors["w"])
    moved = 4 * (math.prod(stage.before) + weights + math.prod(stage.after))
    intensity = stage.flops / moved
    text = f"Block {stage.at + 1}, conv: {units.ratio(intensity)} FLOP for each byte it must move"
    if not roof:
        return f"{text}."
    text += f"; on {roof.device} the ridge is at {units.ratio(roof.ridge)}. "
    if intensity < roof.ridge:
        return text + "It waits for memory as the pointwise blocks do: what fusion saves, it gains."
    arithmetic, bytes_ms = stage.flops / roof.flops_per_s, saved_bytes(s) / roof.bytes_per_s
    share = bytes_ms / (arithmetic + bytes_ms)
    text += (
        f"It waits for arithmetic: {units.time_(arithmetic * 1e3)} at the FP32 peak, against {units.time_(bytes_ms * 1e3)} for all that fusion "
        f"saves. At most {units.share(share)} of the two can be won"
    )
    return (
        f"{text}, less the slower the kernel is."
        if share > MIN_SHARE
        else f"{text}: here fusion hardly pays."
    )


def _begins(s: ChainShape) -> str:
    """Returns why a kernel ends, for the first such position in this chain."""
    groups = codegen.groups([b.kind for b in s.blocks])
    group = next((g for g in groups if g.prologue and g.core in ("maxpool", "avgpool")), None)
    if group:
        core = s.stages[group.first + len(group.prologue)]
        R, stride = core.block.R, core.block.stride
        reads_per_value = math.prod(core.after) * R * R / math.prod(core.before)
        front = " and ".join(group.kinds[: len(group.prologue)])
        return (
            f"{capitalized(front)} ride on block {core.at + 1}, {core.block.kind}: its windows of {R}×{R}, {stride} apart, read each value "
            f"{units.ratio(reads_per_value)} times, and as often {front} {'are' if len(group.prologue) > 1 else 'is'} computed. A few operations a value cost less than its way "
            "through memory."
        )
    if len(groups) < 2:
        return ""
    last, stage = groups[0], s.stages[groups[1].first]
    b, previous = stage.block, " ".join(last.kinds)
    if b.kind == "conv":
        return (
            f"Block {stage.at + 1}, conv, begins a kernel. It needs neighbours, which other threads make; to ride along it would compute "
            f"{previous} again for each of its R·R = {b.R * b.R} taps and, thread by thread, for each of its K = {b.K:,} filters: "
            f"up to {b.R * b.R * b.K:,} times."
        )
    if b.kind == "gap":
        return f"Block {stage.at + 1}, gap, begins a kernel: its warp needs a whole map, which many threads of {previous} make."
    reads_per_value = math.prod(stage.after) * b.R * b.R / math.prod(stage.before)
    text = f"Block {stage.at + 1}, {b.kind}, begins a kernel: it needs neighbours, which other threads make. "
    if reads_per_value <= 1:
        return (
            f"{text}Its windows do not overlap, so to ride along it would compute nothing twice; but one thread would make the {b.R * b.R} values "
            f"of a window one after the other, each through {previous}, where now {b.R * b.R} threads make one each."
        )
    return f"{text}To ride along it would compute {previous} for every window that holds a value, {units.ratio(reads_per_value)} times each on average."


def _fold(s: ChainShape) -> str:
    pairs = folds(s)
    if not pairs:
        return ""
    part, K = parts(FOLDED, s)[0], s.blocks[pairs[0][0]].K
    return (
        f"Folding: a convolution is linear, so batch norm behind it is another convolution, with w′ = w · gamma / √(var + eps) and "
        f"b′ = (b − mean) · gamma / √(var + eps) + beta, one of each for each of {K:,} filters. Done once, ahead of all images: "
        f"{units.bytes_(part.bytes)} moved. What it saves afterwards are three operations a value, in registers: no bytes, where the rest is fused."
    )


# -- tables ----------------------------------------------------------------------------------------------------
def launch_table(s: ChainShape) -> dict[str, dict[str, str]]:
    """Returns launches and bytes by figure, for each of our rungs that can run the chain."""
    launches = {rung.name: launch_parts for rung in RUNGS if (launch_parts := parts(rung.name, s))}
    max_bytes = map_bytes_between(launches[UNFUSED]) if launches else 0
    table = {}
    for name, launch_parts in launches.items():
        total = sum(part.bytes for part in launch_parts)
        table[name] = {
            "launches": str(len(launch_parts)),
            "read from HBM": units.bytes_(sum(part.reads for part in launch_parts)),
            "written to HBM": units.bytes_(sum(part.writes for part in launch_parts)),
            "of both, maps between launches": units.bytes_(map_bytes_between(launch_parts)),
            "handed on in registers instead": units.bytes_(max_bytes - map_bytes_between(launch_parts)),
            "times the least": units.ratio(total / s.bytes),
            "FLOP per byte": units.ratio(sum(part.flops for part in launch_parts) / total),
        }
    return table
