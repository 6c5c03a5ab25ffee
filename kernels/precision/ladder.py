"""Multiply-adds by instruction: one matrix product, computed by a warp with 128, 64, 32, 2 instructions or one.

All operands stay in registers, so the time is that of the instructions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kernels.i18n import mark
from kernels.model.launch import WARP, ampere, ceil, launch
from kernels.model.program import INPUT, OUTPUT, Buffer, Program, Tiles
from kernels.model.rules import index_rules
from kernels.model.rung import FP16, FP32, INT8, TENSOR_CORES, Cost, Ladder, Rung
from kernels.precision import cpu, reference
from kernels.precision.presets import RATE_PRESETS
from kernels.precision.shape import MAX_VALUE, K, M, N, RateShape, parse_rate

BLOCKS = (128, 256, 64)
# Multiply-adds of one instruction of a warp: the shape's product over the instructions of a turn.
INSTRUCTIONS = {"ffma": 128, "hfma2": 64, "dp4a": 32, "mma-fp16": 2, "mma-int8": 1}


def buffers(s: RateShape) -> tuple[Buffer, ...]:
    return (
        Buffer("A", INPUT, (M, K), "int8", below=MAX_VALUE + 1),
        Buffer("B", INPUT, (K, N), "int8", below=MAX_VALUE + 1),
        Buffer("C", OUTPUT, (s.warps, M, N)),
    )


def _build(source: str, cpu_function: Callable[..., None], cpu_name: str):
    def build(s: RateShape, tiles: Tiles) -> Program:
        block = tiles["BLOCK"]
        args = "A", "B", "C", np.int32(s.warps), np.int32(s.turns)
        grid = (ceil(s.warps, block // WARP),)
        step = launch(f"precision/{source}.cu", grid, block, args, cpu_function, tiles, cpu_name=cpu_name)
        return Program(buffers(s), (step,))

    return build


def cost(s: RateShape, program: Program) -> Cost:
    return Cost(s.flops, s.bytes, 0)


def rules(s: RateShape, tiles: Tiles) -> Iterator[str]:
    yield from index_rules({"warps*32": s.warps * WARP}, tiles["BLOCK"], "BLOCK")


def macs_of(rung: str) -> int:
    """Returns the multiply-adds of one instruction of a warp: "instruction-rate/ffma" -> 32."""
    return M * N * K // INSTRUCTIONS[rung.partition("/")[2]]


def _rung(name: str, title: str, idea: str, build, **facts) -> Rung:
    # Every number is exact in every format, so every result is.
    full = f"instruction-rate/{name}"
    return Rung(full, title, idea, build, cost, rules, 0.0, {"BLOCK": BLOCKS}, **facts)


LADDER = Ladder(
    name="instruction-rate",
    shape=RateShape,
    parse=parse_rate,
    reference=reference.rate,
    presets=RATE_PRESETS,
    rungs=(
        _rung(
            "ffma",
            mark("ffma: FP32"),
            mark("Each instruction adds one FP32 product for each lane: 32 multiply-adds of a warp."),
            _build("01_ffma", cpu.ffma, "outer_products"),
            units=FP32,
            cpu_title=mark("outer products in FP32"),
        ),
        _rung(
            "hfma2",
            mark("hfma2: FP16 in pairs"),
            mark("Each instruction adds two FP16 products for each lane. FP32 sums take over every 16 turns."),
            _build("02_hfma2", cpu.hfma2, "half_outer_products"),
            units=FP16,
            cpu_title=mark("outer products in FP16"),
        ),
        _rung(
            "dp4a",
            mark("dp4a: INT8 in fours"),
            mark("Each instruction adds four INT8 products for each lane to an INT32 sum."),
            _build("03_dp4a", cpu.dp4a, "groups_of_four"),
            units=INT8,
            cpu_title=mark("four products at a time in INT32"),
        ),
        _rung(
            "mma-fp16",
            mark("mma.sync: FP16"),
            mark("Each instruction multiplies two FP16 matrices for the whole warp: 2,048 multiply-adds, FP32 sums."),
            _build("04_mma_fp16", cpu.mma_fp16, "groups_of_sixteen"),
            units=TENSOR_CORES,
            capability=ampere,
            not_on_cpu=mark("a processor has no tensor cores; without them this is a product in FP32"),
        ),
        _rung(
            "mma-int8",
            mark("mma.sync: INT8"),
            mark("Each instruction multiplies two INT8 matrices for the whole warp: 4,096 multiply-adds, INT32 sums."),
            _build("05_mma_int8", cpu.mma_int8, "whole_product"),
            units=TENSOR_CORES,
            capability=ampere,
            not_on_cpu=mark("a processor has no tensor cores; without them this is a product in INT32"),
        ),
    ),
)
