"""Attention, O = softmax(scale * Q K^T) V for each head: from three kernels with N x N matrices between them to
flash attention, and the libraries."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.attention import common as parts
from kernels.attention import cpu, decode, hopper, library, registers, revealing, tensor_cores, variants
from kernels.attention.presets import ATTENTION_PRESETS
from kernels.attention.reference import TOLERANCE
from kernels.attention.reference import attention as reference
from kernels.attention.shape import VARIANTS, AttentionShape, SelfAttentionShape, parse_attention
from kernels.i18n import mark
from kernels.libraries import cublas
from kernels.model.launch import ampere, ampere_for, ceil, launch, rung_factory
from kernels.model.program import Launch, LibraryCall, Program, Tiles
from kernels.model.rules import MAX_SHARED, shared_rules, thread_rules
from kernels.model.rung import Ladder, Rung

SOFTMAX_WARPS = 4  # in a block of kernels/attention/cuda/01_softmax.cu, one row per warp


# -- programs: S and P in HBM ---------------------------------------------------------------------------
def softmax(s: AttentionShape) -> Launch:
    rows = s.heads * s.N
    args = ("S", "P", np.int32(rows), np.int32(s.N), np.int32(s.causal))
    grid = (ceil(rows, SOFTMAX_WARPS),)
    defines = {"WARPS": SOFTMAX_WARPS} | ({"BF16": int(s.dtype == "bf16")} if s.dtype in parts.HALVES else {})
    return launch("attention/01_softmax.cu", grid, 32 * SOFTMAX_WARPS, args, cpu.softmax, defines)


def unfused(s: AttentionShape, scores, values) -> Program:
    return Program((*parts.buffers(s), *parts.square_buffers(s)), (scores, softmax(s), values))


def _products(s: AttentionShape) -> tuple[tuple, tuple]:
    """Returns the arguments of the kernels that compute scores and values."""
    N, d, causal = np.int32(s.N), np.int32(s.d), np.int32(s.causal)
    return ("Q", "K", "S", N, d, np.float32(s.factor), causal), ("P", "V", "O", N, d, causal)


def build_naive(s: AttentionShape, tiles: Tiles) -> Program:
    side = tiles["BLOCK"]
    down, across = ceil(s.N, side), ceil(s.d, side)
    for_scores, for_values = _products(s)
    return unfused(
        s,
        launch("attention/01_scores.cu", (down, down, s.heads), (side, side), for_scores, cpu.scores, tiles),
        launch("attention/01_values.cu", (across, down, s.heads), (side, side), for_values, cpu.values, tiles),
    )


def build_blocked(s: AttentionShape, tiles: Tiles) -> Program:
    side = tiles["TILE"]
    down, across = ceil(s.N, side), ceil(s.d, side)
    for_scores, for_values = _products(s)
    scores, values = cpu.scores_tiled(side), cpu.values_tiled(side)
    return unfused(
        s,
        launch("attention/02_scores_tiled.cu", (down, down, s.heads), side * side, for_scores, scores, tiles),
        launch("attention/02_values_tiled.cu", (across, down, s.heads), side * side, for_values, values, tiles),
    )


def build_cublas(s: AttentionShape, tiles: Tiles) -> Program:
    N, d = np.int32(s.N), np.int32(s.d)
    return unfused(
        s,
        LibraryCall(
            "cublas_scores", ("Q", "K", "S", N, d, np.float32(s.factor)), cpu.library_scores, cublas.scores, "scores"
        ),
        LibraryCall("cublas_values", ("P", "V", "O", N, d), cpu.library_values, cublas.values, "values"),
    )


# -- programs: nothing N x N ----------------------------------------------------------------------------
def fused_shared(s: AttentionShape, tiles: Tiles) -> int:
    return 4 * (s.N + s.d + tiles["BLOCK"])


def build_fused(s: AttentionShape, tiles: Tiles) -> Program:
    grid, shared = (s.N, s.heads), fused_shared(s, tiles)
    step = launch("attention/03_fused.cu", grid, tiles["BLOCK"], parts.arguments(s), cpu.fused, tiles, shared)
    return Program(parts.buffers(s), (step,))


def flash_padded(s: SelfAttentionShape, tiles: Tiles) -> int:
    """Returns d padded as in kernels/attention/cuda/04_flash.cu: a whole number of columns for each of Bc threads."""
    return ceil(s.d, tiles["Bc"]) * tiles["Bc"]


def flash_shared(s: AttentionShape, tiles: Tiles) -> int:
    Br, Bc, DP = tiles["Br"], tiles["Bc"], flash_padded(s, tiles)
    return 4 * ((Br + Bc) * DP + Bc * (DP + 1) + Br * Bc)


def build_flash(s: AttentionShape, tiles: Tiles) -> Program:
    Br, Bc = tiles["Br"], tiles["Bc"]
    defines = dict(tiles) | {"DP": flash_padded(s, tiles)}
    cpu_function, grid = cpu.flash(Br, Bc), (ceil(s.N, Br), s.heads)
    step = launch(
        "attention/04_flash.cu", grid, Br * Bc, parts.arguments(s), cpu_function, defines, flash_shared(s, tiles)
    )
    return Program(parts.buffers(s), (step,))


def build_registers(s: AttentionShape, tiles: Tiles) -> Program:
    Br, Bc = tiles["Br"], tiles["Bc"]
    cpu_function, grid, threads = cpu.flash(Br, Bc), (ceil(s.N, Br), s.heads), registers.threads(s, tiles)
    defines, shared = registers.defines(s, tiles), registers.shared(s, tiles)
    step = launch("attention/05_flash_registers.cu", grid, threads, parts.arguments(s), cpu_function, defines, shared)
    return Program(parts.buffers(s), (step,))


# -- rules ----------------------------------------------------------------------------------------------
def naive_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from parts.common_rules(s, tiles["BLOCK"])
    yield from parts.square_rules(s, tiles["BLOCK"], "BLOCK")


def blocked_rules(s: SelfAttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from parts.common_rules(s, tiles["TILE"])
    yield from parts.square_rules(s, tiles["TILE"], "TILE")


def cublas_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from parts.common_rules(s, dtypes=("fp32", *parts.HALVES))
    yield from parts.row_rules(s, SOFTMAX_WARPS)


def fused_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from parts.common_rules(s)
    yield from parts.head_rules(s)
    yield from shared_rules("4*(N + d + BLOCK)", fused_shared(s, tiles), MAX_SHARED)


def flash_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from parts.common_rules(s, max(tiles["Br"], tiles["Bc"]))
    yield from parts.head_rules(s)
    yield from thread_rules("Br*Bc", tiles["Br"] * tiles["Bc"])


def registers_rules(s: AttentionShape, tiles: Tiles) -> Iterator[str]:
    yield from parts.common_rules(s, max(tiles["Br"], tiles["Bc"]))
    yield from parts.head_rules(s)
    yield from registers.tile_rules(s, tiles)


attention_rung = rung_factory("attention", parts.cost, TOLERANCE)

RUNGS = (
    attention_rung(
        "naive",
        mark("naive"),
        mark(
            "Three kernels compute the scores, the softmax and the values. S and P, each N x N per head, are in "
            "HBM between them."
        ),
        build_naive,
        naive_rules,
        {"BLOCK": (16, 32, 8)},
        cpu_title=mark("scores stored, no library"),
    ),
    attention_rung(
        "blocked",
        mark("tiled products"),
        mark("The same three steps. Both products use tiles in shared memory. S and P stay in HBM."),
        build_blocked,
        blocked_rules,
        {"TILE": (32, 16, 8)},
        cpu_title=mark("scores stored, blocked products"),
        cpu_tiles=("TILE",),
    ),
    attention_rung(
        "fused",
        mark("fused, one row at a time"),
        mark(
            "One block per query keeps its row of scores in shared memory. Nothing N x N is stored, but K and V "
            "are read N times."
        ),
        build_fused,
        fused_rules,
        {"BLOCK": (256, 128)},
        cpu_title=mark("one query at a time"),
    ),
    attention_rung(
        "flash",
        mark("flash attention"),
        mark(
            "Br queries are compared with one tile of Bc keys after the other. A running maximum and sum rescale "
            "the earlier sums."
        ),
        build_flash,
        flash_rules,
        {"Br": (32, 16, 8, 4), "Bc": (32, 16, 8)},
        {"Br": 4, "Bc": 8},
        {"Br": 16, "Bc": 16},
        cpu_title=mark("flash attention, in tiles"),
        cpu_tiles=("Br", "Bc"),
    ),
    attention_rung(
        "flash-registers",
        mark("flash attention, register tiles"),
        mark(
            "As flash attention, with both products in register tiles that cp.async fills. The multiply-adds limit it."
        ),
        build_registers,
        registers_rules,
        {"Br": (128, 64, 32), "Bc": (64, 32, 16, 8), "TM": (8, 4)},
        {"Br": 32, "Bc": 8},
        {"Br": 64, "TM": 4},
        {"Bc": 32},
        capability=ampere,
        not_on_cpu=mark(
            "NumPy cannot keep tiles in registers; without that this is the same computation as flash attention"
        ),
    ),
)

CUBLAS = Rung(
    name="attention/cublas",
    title=mark("cuBLAS + our softmax"),
    idea=mark(
        "The vendor's library computes both products. Sums and S are FP32 (TF32 off), and P has V's type. If "
        "causal, it multiplies hidden pairs too."
    ),
    build=build_cublas,
    cost=parts.cost_of_all,
    rules=cublas_rules,
    tolerance=TOLERANCE,
    library="cuBLAS",
    cpu_title=mark("scores stored, NumPy BLAS"),
    capability=ampere_for(*parts.HALVES),  # its softmax rounds pairs by cvt.f16x2
)

LADDER = Ladder(
    name="attention",
    work=mark("attention"),
    shape=AttentionShape,
    parse=parse_attention,
    reference=reference,
    revealing=revealing.inputs,
    presets=ATTENTION_PRESETS,
    rungs=(*RUNGS, *tensor_cores.RUNGS, *hopper.RUNGS, *variants.RUNGS, *decode.RUNGS, CUBLAS, *library.RUNGS),
    swept=("attention-16", "attention-2048"),
    later_fields=VARIANTS,
)
