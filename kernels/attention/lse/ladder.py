"""Attention's forward pass in training: O, and L, the logarithm of each row's sum of exponentials.

The backward pass (kernels.attention.backward) computes the weights again from L. The kernels are those of the forward
pass with one more store for each query.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.attention import common as attention
from kernels.attention import ladder as forward
from kernels.attention import registers, revealing
from kernels.attention.lse import common, cpu, library
from kernels.attention.lse.presets import LSE_PRESETS
from kernels.attention.lse.reference import attention_lse
from kernels.attention.lse.shape import LseShape, parse_lse
from kernels.i18n import mark
from kernels.model.launch import ampere, ceil, launch, rung_factory
from kernels.model.program import Launch, Program, Tiles
from kernels.model.rung import Ladder

WARPS = 4  # in a block of kernels/attention/cuda/13_softmax_lse.cu, one row per warp


def build_blocked(s: LseShape, tiles: Tiles) -> Program:
    side = tiles["TILE"]
    down, across = ceil(s.N, side), ceil(s.d, side)
    N, d, causal = np.int32(s.N), np.int32(s.d), np.int32(s.causal)
    steps = (
        launch(
            "attention/02_scores_tiled.cu",
            (down, down, s.heads),
            side * side,
            ("Q", "K", "S", N, d, np.float32(s.factor), causal),
            cpu.scores(side),
            tiles,
        ),
        _softmax(s),
        launch(
            "attention/02_values_tiled.cu",
            (across, down, s.heads),
            side * side,
            ("P", "V", "O", N, d, causal),
            cpu.values(side),
            tiles,
        ),
    )
    return Program((*common.buffers(s), *attention.square_buffers(s)), steps)


def _softmax(s: LseShape) -> Launch:
    rows = s.heads * s.N
    args = "S", "P", "L", np.int32(rows), np.int32(s.N), np.int32(s.causal)
    source = "attention/13_softmax_lse.cu"
    return launch(source, (ceil(rows, WARPS),), 32 * WARPS, args, cpu.softmax, {"WARPS": WARPS})


def build_registers(s: LseShape, tiles: Tiles) -> Program:
    Br, Bc = tiles["Br"], tiles["Bc"]
    args = *common.TENSORS, np.int32(s.N), np.int32(s.d), np.float32(s.factor), np.int32(s.causal)
    step = launch(
        "attention/14_flash_registers_lse.cu",
        (ceil(s.N, Br), s.heads),
        registers.threads(s, tiles),
        args,
        cpu.flash(Br, Bc),
        registers.defines(s, tiles),
        registers.shared(s, tiles),
        cpu_name="flash_lse",
    )
    return Program(common.buffers(s), (step,))


def blocked_rules(s: LseShape, tiles: Tiles) -> Iterator[str]:
    yield from forward.blocked_rules(s, tiles)
    yield from attention.row_rules(s, WARPS)


rung = rung_factory("attention-lse", attention.cost, attention.TOLERANCE)
RUNGS = (
    rung(
        "blocked",
        mark("S and P in memory"),
        mark("Three launches, with S and P in memory between them. The softmax stores L of each row too."),
        build_blocked,
        blocked_rules,
        {"TILE": (32, 16, 8)},
        cpu_title=mark("weights stored, all heads at once"),
        cpu_tiles=("TILE",),
    ),
    rung(
        "flash-registers",
        mark("flash attention with L"),
        mark("Flash attention with register tiles. At the end it stores one more number for each query."),
        build_registers,
        forward.registers_rules,
        {"Br": (128, 64, 32), "Bc": (64, 32, 16, 8), "TM": (8, 4)},
        {"Br": 32, "Bc": 8},
        {"Br": 64, "TM": 4},
        {"Bc": 32},
        capability=ampere,
        cpu_title=mark("flash attention with row sums, in tiles"),
        cpu_tiles=("Br", "Bc"),
    ),
)

LADDER = Ladder(
    name="attention-lse",
    work=mark("attention"),
    shape=LseShape,
    parse=parse_lse,
    reference=attention_lse,
    revealing=revealing.inputs,
    presets=LSE_PRESETS,
    rungs=(*RUNGS, library.LIBRARY),
    swept=("lse-toy", "lse-2048"),
)
