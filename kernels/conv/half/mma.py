"""conv-fp16/mma: implicit GEMM by mma.sync, with tiles copied by cp.async."""

from __future__ import annotations

from collections.abc import Iterator

from kernels.conv.common import struct
from kernels.conv.half import common, cpu
from kernels.conv.half.reference import TOLERANCE
from kernels.conv.half.shape import HalfShape
from kernels.i18n import mark
from kernels.model.launch import WARP, ampere, ceil, launch
from kernels.model.program import Program, Tiles
from kernels.model.rules import (
    MAX_GRID_YZ,
    MAX_REGISTERS,
    MAX_SHARED,
    REGISTERS,
    fetch_rules,
    max_rules,
    multiple_rules,
    shared_rules,
    thread_rules,
    too_many_registers,
)
from kernels.model.rung import TENSOR_CORES, Rung

HIGH_TILES, MANY = {"BM": 128, "WM": 64}, 8192  # for more than MANY output pixels
OTHER_REGISTERS = 64  # fragments, addresses and counters of a lane


def threads(tiles: Tiles) -> int:
    return tiles["BM"] // tiles["WM"] * (tiles["BN"] // tiles["WN"]) * WARP


def stages_bytes(tiles: Tiles) -> int:
    return 2 * tiles["STAGES"] * (tiles["BM"] + tiles["BN"]) * tiles["BK"]


def build(s: HalfShape, tiles: Tiles) -> Program:
    step = launch(
        "conv/40_half_implicit_gemm.cu",
        (ceil(s.K, tiles["BN"]), ceil(s.pixels, tiles["BM"])),
        threads(tiles),
        ("x", "w", "y", struct(s)),
        cpu.taps,
        tiles,
        stages_bytes(tiles),
        "product_per_tap",
    )
    return Program(common.buffers(s), (step,))


def rules(s: HalfShape, tiles: Tiles) -> Iterator[str]:
    yield from common.kernel_rules(s, tiles)
    yield from max_rules("N*P*Q/BM (grid.y)", ceil(s.pixels, tiles["BM"]), MAX_GRID_YZ)
    yield from multiple_rules(tiles, ("BM", "WM"), ("BN", "WN"))
    count = threads(tiles)
    yield from thread_rules("32*(BM/WM)*(BN/WN)", count)
    if not count:
        return
    yield from fetch_rules(tiles, count, "BM", "BK", common.PIECE)
    yield from fetch_rules(tiles, count, "BN", "BK", common.PIECE)
    registers, limit = (tiles["WM"] * tiles["WN"] // WARP + OTHER_REGISTERS, min(MAX_REGISTERS, REGISTERS // count))
    if registers > limit:
        yield too_many_registers(f"WM*WN/{WARP} + {OTHER_REGISTERS}", registers, limit, count)
    yield from shared_rules("2*STAGES*BK*(BM + BN)", stages_bytes(tiles), MAX_SHARED)


RUNG = Rung(
    name="conv-fp16/mma",
    title=mark("implicit GEMM, mma.sync"),
    idea=mark(
        "With the channels last, one copy of 16 bytes loads 8 channels of a pixel. Warps multiply on the tensor cores."
    ),
    build=build,
    cost=common.cost,
    rules=rules,
    tolerance=TOLERANCE,
    tiles={
        "BM": (64, 128, 32),
        "BN": (64, 128, 32),
        "BK": (64, 32),
        "WM": (32, 64, 16),
        "WN": (32, 64, 16),
        "STAGES": (3, 4, 2),
    },
    sets=(HIGH_TILES,),
    faster=lambda s: HIGH_TILES if s.pixels > MANY else {},
    units=TENSOR_CORES,
    capability=ampere,
    cpu_title=mark("one product per filter tap"),
    no_scene=mark("the stage shows implicit GEMM in FP32; the order of its tiles is the same"),
)
