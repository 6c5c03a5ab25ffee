"""Sentences about the figures of the fusion ladder: what fusing saves, when it cannot pay, what a folded batch
norm is, and why a convolution or a pool begins a kernel. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernels.fusion import codegen
from kernels.fusion.common import Part
from kernels.fusion.ladder import PLANS, RUNGS, folds
from kernels.fusion.presets import FUSION_PRESETS
from kernels.fusion.shape import ChainShape, Stage
from kernels.i18n import decimal, mark, tr, trn
from kernels.ladders import find
from kernels.model.preset import Preset
from kernels.records.gpus import cached
from kernels.records.statistics import fastest, within_spread
from visuals import units
from visuals.charts.ladder_notes import LadderNotes, Row, extremes, recorded_at
from visuals.charts.roofline import Roof

UNFUSED, FUSED, FOLDED, LIBRARY = "fusion/unfused", "fusion/fused", "fusion/folded", "fusion/torch"
IMPLICIT = "fusion/implicit-gemm"
FOLD = "fold"
MIN_SHARE = 1 / 4  # share of the saved bytes in their time plus the arithmetic's: below it fusion hardly pays


# Why a convolution as a matrix product is faster.
PRODUCT = mark("A matrix product uses each loaded value for many sums, and the blocks in its epilogue add no traffic.")


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


# -- the notes -----------------------------------------------------------------------------------------------
def fusion_cost(s: ChainShape) -> str:
    """Returns the size of the maps between launches."""
    alone, fused = parts(UNFUSED, s), parts(FUSED, s)
    if not alone:
        return ""
    if len(alone) == 1:
        return tr("A chain of one block has no maps between launches, so there is nothing to fuse.")
    alone_bytes, fused_bytes = (units.bytes_(sum(part.writes for part in launches[:-1])) for launches in (alone, fused))
    fields = {"alone": len(alone), "alone_bytes": alone_bytes, "fused": len(fused), "fused_bytes": fused_bytes}
    if len(fused) == len(alone):
        return tr(
            "Fusion saves no memory in this chain, because every block begins its own kernel. The {alone} launches keep "
            "{alone_bytes} of maps between them.",
            **fields,
        )
    if len(fused) == 1:
        return tr(
            "The fused chain is one launch and keeps no maps in memory. With one launch per block, the {alone} launches keep "
            "{alone_bytes} of maps between them.",
            **fields,
        )
    return tr(
        "The fused chain has {fused} launches and keeps {fused_bytes} of maps between them. With one launch per block, the "
        "{alone} launches keep {alone_bytes}.",
        **fields,
    )


def fastest_ours(rows: Mapping[str, Row]) -> Row | None:
    """Returns the fastest of the fused rungs."""
    return fastest(rows[name] for name in (FUSED, FOLDED, IMPLICIT) if name in rows)


def fusion_gain(rows: Mapping[str, Row]) -> str:
    """Returns how much time fusing gains. `rows` are by rung name, from one device. Returns "" if there is
    nothing to compare."""
    names = UNFUSED, FUSED, FOLDED, IMPLICIT, LIBRARY
    alone, fused, folded, implicit, library = map(rows.get, names)
    if not (alone and fused):
        return ""
    s = ChainShape(**fused["shape"])
    sentences = [_against(fused, alone)]
    if len(parts(FUSED, s)) == len(s.blocks):
        sentences = [tr("Nothing is fused in this chain: both versions run the same kernels.")]
    if folded:
        sentences += [_against(folded, fused), tr("The time of “{name}” includes the fold.", name=_title(FOLDED))]
    if implicit:
        sentences.append(_against(implicit, fused))
        if implicit["median_ms"] < fused["median_ms"]:
            sentences.append(tr(PRODUCT))
    best = fastest_ours(rows) or fused
    if library:
        speed = library["median_ms"] / best["median_ms"]
        fields = {"share": units.share(speed), "ratio": units.ratio(speed), "library": _title(LIBRARY)}
        if fields["ratio"] == "1":
            sentences.append(tr("Our fastest version is as fast as {library}.", **fields))
        elif speed > 1:
            sentences.append(tr("Our fastest version is {ratio}× as fast as {library}.", **fields))
        else:
            sentences.append(tr("Our fastest version reaches {share} of the speed of {library}.", **fields))
    ceilings = best.get("ceilings") or {}
    ms = s.bytes / ceilings["copy_bytes_per_s"] * 1e3 if ceilings else 0
    if ms * 1e3 > ceilings.get("launch_us", 0):  # otherwise launch overhead dominates
        fields = {"bytes": units.bytes_(s.bytes), "time": units.time_(ms), "ratio": units.ratio(best["median_ms"] / ms)}
        sentences.append(tr("A copy of the minimum traffic, {bytes}, takes {time}.", **fields))
        sentences.append(
            tr("Our fastest version takes the same time as this copy.")
            if fields["ratio"] == "1"
            else tr("Our fastest version takes {ratio}× the time of this copy.", **fields)
        )
    return " ".join(sentences)


def _title(rung: str) -> str:
    return tr(find(rung).title)


def _against(row: Row, other: Row) -> str:
    """Returns a sentence that compares the time of two rungs."""
    fields = {"name": _title(row["rung"]), "other": _title(other["rung"])}
    if within_spread(row, other):
        return tr("“{name}” and “{other}” take the same time: their spreads overlap.", **fields)
    ratio = other["median_ms"] / row["median_ms"]
    if "1" in (units.ratio(ratio), units.ratio(1 / ratio)):
        return tr("“{name}” and “{other}” take nearly the same time.", **fields)
    if ratio > 1:
        return tr("“{name}” is {ratio}× as fast as “{other}”.", ratio=units.ratio(ratio), **fields)
    return tr("“{name}” is slower: {ratio}× the time of “{other}”.", ratio=units.ratio(1 / ratio), **fields)


@cached(16)
def fusion_examples() -> list[tuple[Preset, str]]:
    """Returns the presets at which fusing gains most and least, from the cold recordings. If there are none, uses
    the predicted bytes."""

    def speedup(s: ChainShape) -> float | None:
        rows = recorded_at(s, (UNFUSED, FUSED))
        return rows[UNFUSED]["median_ms"] / rows[FUSED]["median_ms"] if len(rows) == 2 else None

    def fewer(s: ChainShape) -> float:
        return sum(p.bytes for p in parts(UNFUSED, s)) / sum(p.bytes for p in parts(FUSED, s))

    if found := extremes(speedup, lambda ratio: tr("{ratio}× as fast", ratio=units.ratio(ratio)), FUSION_PRESETS):
        return found
    return extremes(fewer, lambda ratio: tr("{ratio}× fewer bytes", ratio=units.ratio(ratio)), FUSION_PRESETS)


FUSION = LadderNotes(
    fusion_cost, fusion_gain, fusion_examples, mark("The fused chain compared with one launch per block:")
)


# -- when it pays --------------------------------------------------------------------------------------------
def pays(s: ChainShape, roof: Roof | None) -> list[str]:
    """Returns paragraphs: the conclusion, which alone says what limits the chain; what fusion saves; the FLOPs of
    convolutions; what begins a kernel; what is folded."""
    conclusion, follows = _conclusion(s, roof)
    paragraphs = [
        conclusion,
        f"{follows} {_saves(s, roof)}".strip(),
        *(_intensity(stage, roof) for stage in s.stages if stage.block.kind == "conv"),
        _product(s),
        _begins(s),
        _fold(s),
    ]
    return [text for text in paragraphs if text]


@dataclass(frozen=True)
class Limits:
    """Least times on a device, in ms: of the chain with one launch per block, and what fusion saves."""

    launches: float  # overhead
    bytes: float  # at the speed of a copy
    arithmetic: float  # at the FP32 peak
    saved_launches: float
    saved_bytes: float
    convs: int  # convolutions above the ridge
    convs_ms: float  # their arithmetic

    @property
    def limit(self) -> str:
        """Returns what limits the chain: "launches" if they take longest, else "arithmetic" if a convolution is above the
        ridge, else "bytes"."""
        if self.launches > max(self.bytes, self.arithmetic):
            return "launches"
        return "arithmetic" if self.convs else "bytes"

    @property
    def max_share(self) -> float:
        """Returns the largest share of the time that fusion can save if arithmetic limits the chain."""
        return self.saved / (self.convs_ms + self.saved)

    @property
    def saved(self) -> float:
        return self.saved_launches + self.saved_bytes


def limits(s: ChainShape, roof: Roof) -> Limits:
    """Returns the least times of a chain on the device of a roof."""
    alone, fused = parts(UNFUSED, s), parts(FUSED, s)
    launch_ms = roof.ceilings.get("launch_us", 0) / 1e3
    above = [stage.flops for stage in s.stages if stage.block.kind == "conv" and intensity(stage) >= roof.ridge]
    return Limits(
        len(alone) * launch_ms,
        sum(part.bytes for part in alone) / roof.bytes_per_s * 1e3,
        sum(part.flops for part in alone) / roof.flops_per_s * 1e3,
        (len(alone) - len(fused)) * launch_ms,
        saved_bytes(s) / roof.bytes_per_s * 1e3,
        len(above),
        sum(above) / roof.flops_per_s * 1e3,
    )


def intensity(stage: Stage) -> float:
    """Returns a convolution's FLOPs per byte that it must move."""
    tensors = (stage.before, stage.tensors["w"], stage.after)
    return stage.flops / (4 * sum(map(math.prod, tensors)))


def _conclusion(s: ChainShape, roof: Roof | None) -> tuple[str, str]:
    """Returns what limits the chain on the roof's device, and what follows for fusion."""
    alone, fused = parts(UNFUSED, s), parts(FUSED, s)
    if not alone:
        return "", ""
    if len(alone) == len(fused):
        return tr("Fusion changes nothing in this chain: every block begins its own kernel."), ""
    if not roof:
        return "", ""
    found = limits(s, roof)
    fields = {
        "device": roof.device,
        "launches": _time(found.launches),
        "bytes": _time(found.bytes),
        "arithmetic": _time(found.arithmetic),
        "convs": _time(found.convs_ms),
        "saved": _time(found.saved),
        "share": units.share(found.max_share if found.convs else 0),
    }
    if found.limit == "launches":
        return tr(
            "On {device}, launch overhead limits this chain: with one launch per block, the launches take {launches}.",
            **fields,
        ), tr("Fusion saves time because it saves launches.")
    if found.limit == "bytes":
        return tr(
            "On {device}, memory limits this chain: with one launch per block, the bytes take {bytes}.", **fields
        ), tr("Fusion saves time because it saves bytes.")
    text = trn(
        "On {device}, arithmetic limits the convolution: it takes {convs} at the FP32 peak.",
        "On {device}, arithmetic limits {n} convolutions: they take {convs} at the FP32 peak.",
        found.convs,
        **fields,
    )
    most = tr(
        "The bytes and launches that fusion saves take {saved}. So fusion saves at most {share} of the time, and less if a kernel "
        "is slower than the peak.",
        **fields,
    )
    hardly = tr("Here fusion hardly saves time.")
    return text, f"{most} {hardly}" if found.max_share <= MIN_SHARE else most


def limit_times(found: Limits) -> list[tuple[str, float, str]]:
    """Returns (title, ms, text) of what can limit a chain with one launch per block."""
    each = (
        (tr("launches"), found.launches),
        (tr("bytes, at the speed of a copy"), found.bytes),
        (tr("arithmetic, at the FP32 peak"), found.arithmetic),
    )
    return [(title, ms, _time(ms)) for title, ms in each]


def _time(ms: float) -> str:
    """Format a time, without powers of ten."""
    return tr("less than 0.01 µs") if ms < 1e-5 else units.time_(ms)


def _saves(s: ChainShape, roof: Roof | None) -> str:
    """Returns the launches and the bytes that fusion saves, with their times."""
    fewer = len(parts(UNFUSED, s)) - len(parts(FUSED, s))
    if not fewer:
        return ""
    found = limits(s, roof) if roof else None
    fields = {"saved": units.bytes_(saved_bytes(s)), "launches": _time(found.saved_launches) if found else ""}
    if found and found.saved_launches:
        text = trn(
            "Fusion saves {n} launch ({launches}) and {saved} of traffic: maps that are stored and loaded again.",
            "Fusion saves {n} launches ({launches}) and {saved} of traffic: maps that are stored and loaded again.",
            fewer,
            **fields,
        )
    else:
        text = trn(
            "Fusion saves {n} launch and {saved} of traffic: maps that are stored and loaded again.",
            "Fusion saves {n} launches and {saved} of traffic: maps that are stored and loaded again.",
            fewer,
            **fields,
        )
    if not found:
        return text
    copied = tr("At the speed of a copy, this traffic takes {bytes}.", bytes=_time(found.saved_bytes))
    return f"{text} {copied}"


def _intensity(stage: Stage, roof: Roof | None) -> str:
    """Returns a convolution's FLOPs per byte, and how many a device computes in the time of a byte."""
    text = tr(
        "Block {n}, conv, computes {flop} FLOP per byte that it must move.",
        n=stage.at + 1,
        flop=units.ratio(intensity(stage)),
    )
    if not roof:
        return text
    ridge = tr(
        "In the time of one byte, {device} computes {ridge} FLOP (the ridge of its roof).",
        device=roof.device,
        ridge=units.ratio(roof.ridge),
    )
    return f"{text} {ridge}"


def _product(s: ChainShape) -> str:
    """Returns why a convolution is computed as a matrix product; "" if the chain has none."""
    if not any(block.kind == "conv" for block in s.blocks):
        return ""
    direct = tr(
        "In “{name}”, each thread loads two values for each multiply-add of its convolution.", name=_title(FUSED)
    )
    product = tr(
        "In “{name}”, the convolution is a matrix product: each value in shared memory is used for many sums. The blocks "
        "after it are applied to these sums in registers (epilogue).",
        name=_title(IMPLICIT),
    )
    return f"{direct} {product}"


def _begins(s: ChainShape) -> str:
    """Returns why a kernel ends, for the first such position in this chain."""
    groups = codegen.groups([b.kind for b in s.blocks])
    group = next((g for g in groups if g.prologue and g.core in ("maxpool", "avgpool")), None)
    if group:
        return _prologue(s, group)
    if len(groups) < 2:
        return ""
    stage, previous = s.stages[groups[1].first], " ".join(groups[0].kinds)
    b, fields = stage.block, {"n": stage.at + 1, "kind": stage.block.kind, "previous": previous}
    if b.kind == "conv":
        return tr(
            "Block {n}, conv, begins a kernel, because it needs neighbours, which other threads compute. In the same kernel, "
            "{previous} would run again for each tap (R·R = {taps}) and each filter (K = {K}): up to {times}×.",
            taps=b.R * b.R,
            K=decimal(f"{b.K:,}"),
            times=decimal(f"{b.R * b.R * b.K:,}"),
            **fields,
        )
    if b.kind == "gap":
        return tr(
            "Block {n}, gap, begins a kernel, because one warp needs a whole map. Many threads compute this map in {previous}.",
            **fields,
        )
    begins = tr(
        "Block {n}, {kind}, begins a kernel, because it needs neighbours, which other threads compute.", **fields
    )
    if b.stride >= b.R:
        reason = tr(
            "Its windows do not overlap, so nothing would be computed twice in the same kernel. But one thread would compute "
            "all {values} values of its window through {previous}, one after the other. Now {values} threads compute one each.",
            values=b.R * b.R,
            **fields,
        )
    else:
        reason = tr(
            "In the same kernel, {previous} would be computed again for every window that contains a value: {times}× on average.",
            times=units.ratio(_windows_per_value(stage)),
            **fields,
        )
    return f"{begins} {reason}"


def _prologue(s: ChainShape, group: codegen.Group) -> str:
    """Returns what it costs that pointwise blocks share the kernel of the pool after them."""
    stage = s.stages[group.first + len(group.prologue)]
    b = stage.block
    text = tr(
        "The kernel of block {n}, {kind}, also computes the blocks before it ({blocks}) on each value that it loads.",
        n=stage.at + 1,
        kind=b.kind,
        blocks=", ".join(group.kinds[: len(group.prologue)]),
    )
    if b.stride >= b.R:
        apart = tr("Its windows do not overlap, so nothing is computed twice.")
        return f"{text} {apart}"
    again = tr(
        "Its windows of {R}×{R}, {stride} apart, read each value {times}× on average, and compute these blocks as often. A few "
        "operations per value take less time than a store and a load of it.",
        R=b.R,
        stride=b.stride,
        times=units.ratio(_windows_per_value(stage)),
    )
    return f"{text} {again}"


def _windows_per_value(stage: Stage) -> float:
    """Returns how many windows contain a value on average."""
    return math.prod(stage.after) * stage.block.R**2 / math.prod(stage.before)


def _fold(s: ChainShape) -> str:
    pairs = folds(s)
    if not pairs:
        return ""
    part, K = parts(FOLDED, s)[0], s.blocks[pairs[0][0]].K
    return tr(
        "A batch norm after a convolution can be folded into it, because both are linear. The new weights are "
        "w′ = w · gamma / √(var + eps). The new bias is b′ = (b − mean) · gamma / √(var + eps) + beta. Each of the filters "
        "(K = {K}) has its own gamma, beta, mean and var. The fold runs once, before all images, and moves {bytes}. The fold saves "
        "three operations per value in registers. It saves no bytes if the rest is fused.",
        K=decimal(f"{K:,}"),
        bytes=units.bytes_(part.bytes),
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
            tr("launches"): decimal(f"{len(launch_parts):,}"),
            tr("read from HBM"): units.bytes_(sum(part.reads for part in launch_parts)),
            tr("written to HBM"): units.bytes_(sum(part.writes for part in launch_parts)),
            tr("maps between launches, in both"): units.bytes_(map_bytes_between(launch_parts)),
            tr("kept in registers instead"): units.bytes_(max_bytes - map_bytes_between(launch_parts)),
            tr("bytes moved / minimum"): f"{units.ratio(total / s.bytes)}×",
            tr("FLOP per byte"): units.ratio(sum(part.flops for part in launch_parts) / total),
        }
    return table
