"""The rungs of the GEMM ladder below FP32: TF32, FP16 and BF16 on the tensor cores, INT8 by dp4a.

The reference is computed from the inputs in their type, so the tolerance covers only rounding in the sums.
The rules of a tile set name its limit as CUDA does: threads, shared memory, registers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from kernels.gemm import common
from kernels.gemm.cpu import library, tiled
from kernels.gemm.shape import GemmShape
from kernels.i18n import mark, tr
from kernels.libraries import cublas
from kernels.model.launch import ampere, ampere_for, ceil
from kernels.model.program import Program, Tiles
from kernels.model.rules import (
    MAX_REGISTERS,
    MAX_SHARED,
    REGISTERS,
    broken,
    dtype_rules,
    multiple_rules,
    register_rules,
    shared_rules,
    thread_rules,
    too_many_registers,
)
from kernels.model.rung import INT8, TENSOR_CORES, Rung

PAD = 8  # elements after each padded row in shared memory, as in the sources
HALVES = ("fp16", "bf16")
MMA_K = 16  # products that one mma.sync or wmma call adds

# TF32 has 10 bits of fraction. If the rest is truncated, each factor is off by 2^-10 of itself and a
# product by 2^-9. The sums themselves are FP32.
TF32_TOLERANCE = 2.0**-9 + 1e-5
# Tensor cores add in FP32 but truncate where the FMA units round, up to 2^-23 of the sum for every 8
# products: 6e-5 at K = 4,096 if all have one sign. One lost product of 4,096 would be 2.4e-4.
TENSOR_TOLERANCE = 1e-4
INT8_TOLERANCE = 0.0  # whole numbers, exact in any order


def tf32(x: np.ndarray) -> np.ndarray:
    """Round float32 values to the 10 bits of fraction of TF32."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def tf32_library(A: np.ndarray, B: np.ndarray, C0: np.ndarray, C: np.ndarray, *rest) -> None:
    """Compute C with NumPy's BLAS from factors rounded to TF32."""
    library(tf32(A), tf32(B), C0, C, *rest)


# -- programs -------------------------------------------------------------------------------------------
def warps(tiles: Tiles) -> int:
    return tiles["BM"] // tiles["WM"] * (tiles["BN"] // tiles["WN"])


def wmma_shared(tiles: Tiles) -> int:
    """Returns the bytes of tile_a and tile_b with padded rows, or of tile_c, which replaces them at the end."""
    BM, BN, BK = (tiles[name] for name in ("BM", "BN", "BK"))
    return max(2 * (BM * (BK + PAD) + BK * (BN + PAD)), 4 * BM * (BN + PAD))


def mma_shared(tiles: Tiles) -> int:
    """Returns the bytes of tile_a and tile_b, swizzled and not padded, STAGES times."""
    return 2 * tiles["STAGES"] * (tiles["BM"] + tiles["BN"]) * tiles["BK"]


def _tiled(s: GemmShape, source: str, threads: int, tiles: Tiles, defines: Tiles, shared: int = 0) -> Program:
    grid = ceil(s.N, tiles["BN"]), ceil(s.M, tiles["BM"])
    cpu_function = tiled(tiles["BM"], tiles["BN"], tiles["BK"])
    return common.one_launch(s, source, grid, (threads, 1), cpu_function, defines, shared, "blocked_product")


def _typed(s: GemmShape, tiles: Tiles) -> dict[str, int]:
    return {**tiles, "BF16": int(s.dtype == "bf16")}


def build_wmma(s: GemmShape, tiles: Tiles) -> Program:
    return _tiled(s, "10_wmma.cu", 32 * warps(tiles), tiles, _typed(s, tiles), wmma_shared(tiles))


def build_mma_sync(s: GemmShape, tiles: Tiles) -> Program:
    return _tiled(s, "11_mma_sync.cu", 32 * warps(tiles), tiles, _typed(s, tiles), mma_shared(tiles))


def dp4a_threads(tiles: Tiles) -> int:
    return tiles["BM"] // tiles["TM"] * (tiles["BN"] // tiles["TN"])


def build_dp4a(s: GemmShape, tiles: Tiles) -> Program:
    return _tiled(s, "12_dp4a.cu", dp4a_threads(tiles), tiles, tiles)


def build_cublas_tf32(s: GemmShape, tiles: Tiles) -> Program:
    return common.one_call(s, "cublas_gemm_tf32", tf32_library, cublas.gemm_tf32)


def build_cublas_fp16(s: GemmShape, tiles: Tiles) -> Program:
    return common.one_call(s)


# -- rules ----------------------------------------------------------------------------------------------
def copy_rules(threads: int, formulas: Mapping[str, int]) -> Iterator[str]:
    """Yields a rule for each formula whose count of copies is not divided evenly among the threads."""
    for formula, count in formulas.items():
        if threads and count % threads:
            yield broken(f"{formula} % threads == 0", f"{count} % {threads}")


def _warp_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules of wmma and mma-sync: whole fragments, a block size CUDA allows, sums in registers."""
    yield from dtype_rules(s, *HALVES)
    yield from common.extent_rules(s, tiles["BM"], tiles["BN"], tiles["BK"])
    yield from multiple_rules(tiles, ("BM", "WM"), ("BN", "WN"), ("WM", MMA_K), ("WN", MMA_K), ("BK", MMA_K))
    threads, WM, WN = 32 * warps(tiles), tiles["WM"], tiles["WN"]
    yield from thread_rules("BM/WM * BN/WN * 32", threads)
    registers = WM * WN // 32 + WM // 2 + WN // 2  # sums, and fragments of A and B
    max_registers = min(MAX_REGISTERS, REGISTERS // max(threads, 1))
    if registers > max_registers:
        yield too_many_registers("WM*WN/32 + WM/2 + WN/2", registers, max_registers, threads)


def copy_pass_rules(tiles: Tiles, ROWS: str, COLS: str) -> Iterator[str]:
    """Yields a rule if the copy passes of mma-sync do not divide a part of a tile ROWS x COLS.

    In each step of 16 products, mma-sync copies a part of the tile. In a pass, each thread copies 16 bytes.
    A pass that has more rows than the part, or does not divide it, writes beyond the part.
    """
    threads, steps, across = 32 * warps(tiles), tiles["BK"] // MMA_K, tiles[COLS] // 8
    if not (threads and steps and across):
        return  # refused by another rule
    pass_rows, part_rows = threads // across, tiles[ROWS] // steps
    if threads % across or tiles[ROWS] % steps or part_rows % pass_rows:
        yield tr(
            "{part} rows per part % {copied} rows per pass == 0, got {got}",
            part=f"{ROWS}/(BK/{MMA_K})",
            copied=f"threads/({COLS}/8)",
            got=f"{part_rows} % {pass_rows}",
        )


def wmma_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    yield from _warp_rules(s, tiles)
    BM, BN, BK = (tiles[name] for name in ("BM", "BN", "BK"))
    copies = {"BM*BK/8": BM * BK // 8, "BK*BN/8": BK * BN // 8}  # of 16 bytes each
    yield from copy_rules(32 * warps(tiles), copies)
    formula = "max(2*(BM*(BK+8) + BK*(BN+8)), 4*BM*(BN+8))"
    yield from shared_rules(formula, wmma_shared(tiles), MAX_SHARED)


def mma_sync_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    yield from _warp_rules(s, tiles)
    yield from multiple_rules(tiles, ("BK", 2 * MMA_K))  # two sets of fragments alternate: an even number of steps
    yield from copy_pass_rules(tiles, "BM", "BK")
    yield from copy_pass_rules(tiles, "BK", "BN")
    yield from shared_rules("STAGES*2*(BM+BN)*BK", mma_shared(tiles), MAX_SHARED)


def dp4a_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    yield from dtype_rules(s, "int8")
    yield from common.extent_rules(s, tiles["BM"], tiles["BN"], tiles["BK"])
    yield from multiple_rules(tiles, ("BM", "TM"), ("BN", "TN"), ("TM", 4), ("TN", 4), ("BK", 4))
    threads, BM, BN, BK = dp4a_threads(tiles), tiles["BM"], tiles["BN"], tiles["BK"]
    yield from thread_rules("BM/TM * BN/TN", threads)
    yield from register_rules(tiles, threads)
    yield from copy_rules(threads, {"BM*BK/4": BM * BK // 4, "BK*BN/16": BK * BN // 16})
    yield from shared_rules("BK*(BM + 4 + BN)", BK * (BM + 4 + BN))


def tf32_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    yield from dtype_rules(s, "fp32")


def fp16_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    yield from dtype_rules(s, *HALVES)


NO_TENSOR_CORES = mark("NumPy has no tensor cores; without them this is a blocked product in FP32")

RUNGS: tuple[Rung, ...] = (
    Rung(
        name="gemm/cublas-tf32",
        title="cuBLAS TF32",
        idea=mark(
            "The vendor's library on the tensor cores. Factors are reduced to TF32 (10 bits of fraction). Sums "
            "are FP32."
        ),
        build=build_cublas_tf32,
        cost=common.cost,
        rules=tf32_rules,
        tolerance=TF32_TOLERANCE,
        units=TENSOR_CORES,
        rounds_to="TF32",
        library="cuBLAS",
        capability=ampere,
        not_on_cpu=mark("NumPy has no TF32; without it this is NumPy’s BLAS in FP32"),
    ),
    Rung(
        name="gemm/wmma",
        title=mark("wmma: tensor cores"),
        idea=mark("A warp multiplies 16 x 16 matrices in one call, in FP16 or BF16, with FP32 sums."),
        build=build_wmma,
        cost=common.cost,
        rules=wmma_rules,
        tolerance=TENSOR_TOLERANCE,
        units=TENSOR_CORES,
        tiles={"BM": (128, 64), "BN": (128, 64), "BK": (64, 16, 32), "WM": (64, 32), "WN": (32, 64)},
        sets=({"BM": 64, "BN": 64, "BK": 16, "WM": 32}, {"BK": 32}, {"WM": 32}),
        capability=ampere_for("bf16"),
        not_on_cpu=NO_TENSOR_CORES,
    ),
    Rung(
        name="gemm/mma-sync",
        title=mark("mma.sync, with cp.async"),
        idea=mark(
            "The tensor cores' own instruction. Tiles are swizzled, ldmatrix loads the fragments, and cp.async "
            "copies later tiles ahead."
        ),
        build=build_mma_sync,
        cost=common.cost,
        rules=mma_sync_rules,
        tolerance=TENSOR_TOLERANCE,
        units=TENSOR_CORES,
        tiles={
            "BM": (256, 64, 128),
            "BN": (128, 64, 256),
            "BK": (32, 64),
            "WM": (64, 32),
            "WN": (64, 32),
            "STAGES": (4, 2, 3, 5),
            "GROUP": (8, 1, 4, 16),
        },
        sets=(
            {"BM": 64, "BN": 64, "WM": 32, "WN": 32},
            {"BM": 128, "BN": 256, "BK": 64, "STAGES": 3},
            {"STAGES": 2},
            {"GROUP": 1},
        ),
        capability=ampere,
        not_on_cpu=NO_TENSOR_CORES,
    ),
    Rung(
        name="gemm/cublas-fp16",
        title=mark("cuBLAS FP16 or BF16, FP32 sums"),
        idea=mark("The vendor's library on the tensor cores. A and B are FP16 or BF16, and sums are FP32."),
        build=build_cublas_fp16,
        cost=common.cost,
        rules=fp16_rules,
        tolerance=TENSOR_TOLERANCE,
        units=TENSOR_CORES,
        library="cuBLAS",
        capability=ampere_for("bf16"),
        cpu_title=mark("NumPy BLAS, A and B converted to FP32"),
    ),
    Rung(
        name="gemm/dp4a",
        title=mark("dp4a: INT8"),
        idea=mark("One instruction adds four INT8 products to an INT32 sum. The result is exact."),
        build=build_dp4a,
        cost=common.cost,
        rules=dp4a_rules,
        tolerance=INT8_TOLERANCE,
        units=INT8,
        tiles={"BM": (128, 64), "BN": (128, 64), "BK": (64, 16, 32), "TM": (8, 4), "TN": (8, 4)},
        sets=({"BM": 64, "BN": 64, "BK": 16}, {"BK": 32}, {"TM": 4}),
        cpu_title=mark("blocked, INT8 with INT32 sums"),
        cpu_tiles=("BM", "BN", "BK"),
    ),
)


def before_library() -> tuple[Rung, ...]:
    """Returns the rungs up to the last one of 16 bits that is no library's."""
    return RUNGS[:_LIBRARY]


def from_library() -> tuple[Rung, ...]:
    """Returns cuBLAS for 16 bits and the rungs after it."""
    return RUNGS[_LIBRARY:]


_LIBRARY = next(n for n, rung in enumerate(RUNGS) if rung.name == "gemm/cublas-fp16")
