"""The ladder of 8-bit products: int8 and FP8 (e4m3) on the tensor cores, C = A Bᵀ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kernels.gemm.eight_bit import library
from kernels.gemm.eight_bit.cpu import tiled
from kernels.gemm.eight_bit.presets import EIGHT_BIT_PRESETS
from kernels.gemm.eight_bit.reference import eight_bit
from kernels.gemm.eight_bit.shape import FP8, INPUT, INT8, RESULT, EightBitShape, parse_eight_bit
from kernels.gemm.hopper import BARRIER, BOX_COLS, BOX_ROWS, NO_WGMMA, SWIZZLE, WARPGROUP
from kernels.gemm.tensor_cores import copy_rules, warps
from kernels.i18n import mark, tr
from kernels.libraries import torch as torch_library
from kernels.model import fp8_sums, program
from kernels.model.launch import WARP, ampere, ceil, hopper, launch
from kernels.model.program import Arg, Buffer, LibraryCall, Program, Tiles
from kernels.model.rules import (
    MAX_GRID_YZ,
    MAX_REGISTERS,
    MAX_SHARED,
    REGISTERS,
    broken,
    dtype_rules,
    extent_multiple_rules,
    index_rules,
    multiple_rules,
    shared_rules,
    thread_rules,
    too_many_registers,
)
from kernels.model.rung import HOPPER, TENSOR_CORES, Cost, Ladder, Rung
from kernels.model.tensor_map import TensorMap

ROW = 128  # bytes of a row of a tile: k at a time
MMA_K = 32  # products that one mma.sync adds
CONSUMERS = 2  # warpgroups
TURNS_SOURCE = "gemm/32_wgmma_turns.cu"
EXACT = 0.0  # whole numbers, exact in any order
# Tensor cores cut off 33 numbers of every 32 k after 13 bits (kernels.model.fp8_sums). If all have one sign, that loses
# 2^-9 of the sum on average, and 2^-11 of the result if sums are promoted every 128 k.
TOLERANCE = {INT8: EXACT, FP8: 2.0**-9}


# -- programs -------------------------------------------------------------------------------------------
def buffers(s: EightBitShape) -> tuple[Buffer, ...]:
    """Return A [M, K] and B [N, K] of 8 bits, and C [M, N], int32 or float32."""
    A = Buffer("A", program.INPUT, (s.M, s.K), INPUT[s.dtype])
    B = Buffer("B", program.INPUT, (s.N, s.K), INPUT[s.dtype])
    return A, B, Buffer("C", program.OUTPUT, (s.M, s.N), RESULT[s.dtype])


def extents(s: EightBitShape) -> tuple[np.int32, ...]:
    return np.int32(s.M), np.int32(s.N), np.int32(s.K)


def cost(s: EightBitShape, program: Program) -> Cost:
    """Returns the FLOPs of the product and its HBM bytes if caches are perfect."""
    return Cost(s.flops, s.bytes, 0)


def map_of(buffer: str, rows: int, s: EightBitShape, box: int) -> TensorMap:
    """Returns the map of A or B, `rows` x K bytes, in boxes of `box` x ROW. The copy engine needs no type."""
    return TensorMap(buffer, "uint8", (s.K, rows), (s.K,), (ROW, box), SWIZZLE)


def map_c(s: EightBitShape) -> TensorMap:
    """Returns the map of C [M, N], 4 bytes each, in boxes of BOX_ROWS x BOX_COLS. The copy engine only copies the bits."""
    return TensorMap("C", "float32", (s.N, s.M), (4 * s.N,), (BOX_COLS, BOX_ROWS), SWIZZLE)


def mma_bytes(tiles: Tiles) -> int:
    """Returns the bytes of STAGES tiles of A and B."""
    return tiles["STAGES"] * (tiles["BM"] + tiles["BN"]) * tiles["BK"]


def ring_bytes(tiles: Tiles) -> int:
    """Returns the bytes of STAGES tiles of A and B with two barriers each, of two boxes of C for each consumer, and of a
    barrier for each consumer's turn."""
    ring = tiles["STAGES"] * (ROW * (tiles["BM"] + tiles["BN"]) + 2 * BARRIER) + CONSUMERS * BARRIER
    return ring + CONSUMERS * 2 * 4 * BOX_ROWS * BOX_COLS


def build_mma(s: EightBitShape, tiles: Tiles) -> Program:
    grid = ceil(s.N, tiles["BN"]), ceil(s.M, tiles["BM"])
    cpu_function = tiled(tiles["BM"], tiles["BN"], tiles["BK"])
    args: tuple[Arg, ...] = ("A", "B", "C", *extents(s))
    step = launch(
        "gemm/30_mma_bytes.cu",
        grid,
        WARP * warps(tiles),
        args,
        cpu_function,
        tiles,
        mma_bytes(tiles),
        "blocked_product",
    )
    return Program(buffers(s), (step,))


def _build_ring(source: str) -> Callable[[EightBitShape, Tiles], Program]:
    def build(s: EightBitShape, tiles: Tiles) -> Program:
        blocks = min(ceil(s.N, tiles["BN"]) * ceil(s.M, tiles["BM"]), tiles["BLOCKS"])
        args = (map_of("A", s.M, s, tiles["BM"]), map_of("B", s.N, s, tiles["BN"]), map_c(s), *extents(s))
        defines = {name: value for name, value in tiles.items() if name != "BLOCKS"} | {"FP8": int(s.dtype == FP8)}
        threads = (CONSUMERS + 1) * WARPGROUP
        cpu_function = tiled(tiles["BM"], tiles["BN"], ROW)
        step = launch(source, (blocks,), threads, args, cpu_function, defines, ring_bytes(tiles), "blocked_product")
        return Program(buffers(s), (step,))

    return build


def _call(routine: str, bind: Callable) -> Callable[[EightBitShape, Tiles], Program]:
    def build(s: EightBitShape, tiles: Tiles) -> Program:
        return Program(buffers(s), (LibraryCall(routine, ("A", "B", "C", *extents(s)), None, bind),))

    return build


def with_type(s: EightBitShape) -> tuple[int, int]:
    """Returns the compute capability that brought int8 (8.0) or FP8 (8.9) to mma.sync (PTX ISA, "Target ISA notes")."""
    return ampere(s) if s.dtype == INT8 else (8, 9)


def fast_scale(s: EightBitShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Returns the error scale of sums that stay in the tensor cores: with every 32 k they lose a part of what they are."""
    ref, scale = eight_bit(s, **inputs)
    return scale + s.K / fp8_sums.DEPTH * np.abs(ref)


# -- rules ----------------------------------------------------------------------------------------------
def _extent_rules(s: EightBitShape, tiles: Tiles, depth: int) -> Iterator[str]:
    for name, extent, tile in (("M", s.M, tiles["BM"]), ("N", s.N, tiles["BN"]), ("K", s.K, depth)):
        yield from index_rules({name: extent}, tile)


def mma_rules(s: EightBitShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules of mma.sync: whole fragments, a block size CUDA allows, sums in registers, whole passes of copies."""
    yield from dtype_rules(s, INT8)
    yield from _extent_rules(s, tiles, tiles["BK"])
    if ceil(s.M, tiles["BM"]) > MAX_GRID_YZ:
        yield broken(f"M <= {MAX_GRID_YZ}*BM (grid.y)", s.M)
    yield from multiple_rules(
        tiles, ("BM", "WM"), ("BN", "WN"), ("WM", 16), ("WN", 16), ("BK", 2 * MMA_K)
    )  # two sets of fragments alternate: an even number of steps
    threads, WM, WN = WARP * warps(tiles), tiles["WM"], tiles["WN"]
    yield from thread_rules("BM/WM * BN/WN * 32", threads)
    registers = WM * WN // 32 + WM // 2 + WN // 2  # sums, and fragments of A and B
    most = min(MAX_REGISTERS, REGISTERS // max(threads, 1))
    if registers > most:
        yield too_many_registers("WM*WN/32 + WM/2 + WN/2", registers, most, threads)
    parts = {f"{name}*{MMA_K}/16": tiles[name] * MMA_K // 16 for name in ("BM", "BN")}
    yield from copy_rules(threads, parts)
    yield from shared_rules("STAGES*(BM+BN)*BK", mma_bytes(tiles), MAX_SHARED)


def ring_rules(dtype: str, sharing: int):
    """Returns the rules of a kernel with wgmma for this type of A and B, whose tiles `sharing` consumers share."""

    def check(s: EightBitShape, tiles: Tiles) -> Iterator[str]:
        yield from dtype_rules(s, dtype)
        yield from extent_multiple_rules(4, N=s.N)  # rows begin at multiples of 16 bytes
        yield from extent_multiple_rules(16, K=s.K)
        yield from _extent_rules(s, tiles, ROW)
        sums = tiles["BM"] * tiles["BN"] // WARPGROUP // sharing
        if sums > 128:
            yield tr("a thread keeps at most 128 sums, got {sums}", sums=sums)
        if tiles["BN"] % tiles.get("WN", 1):
            yield broken("BN % WN == 0", f"{tiles['BN']} % {tiles['WN']}")
        yield from shared_rules("STAGES*(128*(BM+BN) + 16) + 32784", ring_bytes(tiles), MAX_SHARED)

    return check


def library_rules(dtype: str, multiple: int, rows: int = 1):
    """Returns the rules of PyTorch's call: a type, K and N in multiples, at least `rows` rows of A."""

    def check(s: EightBitShape, tiles: Tiles) -> Iterator[str]:
        yield from dtype_rules(s, dtype)
        yield from extent_multiple_rules(multiple, N=s.N, K=s.K)
        if rows > s.M:
            yield broken(f"M >= {rows}", s.M)

    return check


# -- rungs ----------------------------------------------------------------------------------------------
NO_INT8 = mark("NumPy has no tensor cores; without them this is a blocked product in INT32")
PERSISTENT = {"BM": (128, 256), "BN": (256, 128, 64), "STAGES": (4, 3), "GROUP": (8, 4, 16), "BLOCKS": (128, 132)}
TURNS = PERSISTENT | {"BM": (128, 64), "BN": (128, 256, 64), "STAGES": (6, 5, 4, 3)}
SMALL = {"BN": 64, "STAGES": 3}


def _hopper(name: str, title: str, idea: str, source: str, dtype: str, tiles, *sets: Tiles, scale=None) -> Rung:
    rules = ring_rules(dtype, 1 if source == TURNS_SOURCE else CONSUMERS)
    return Rung(
        f"gemm-8bit/{name}",
        title,
        idea,
        _build_ring(source),
        cost,
        rules,
        TOLERANCE[dtype],
        tiles,
        sets=sets,
        units=TENSOR_CORES,
        capability=hopper,
        last_capability=HOPPER,
        scale=scale,
        not_on_cpu=NO_INT8 if dtype == INT8 else NO_WGMMA,
        no_scene=NO_SCENE,
    )


def _library(name: str, title: str, idea: str, bind: Callable, dtype: str, rules, scale=None) -> Rung:
    return Rung(
        f"gemm-8bit/{name}",
        title,
        idea,
        _call(name.replace("-", "_"), bind),
        cost,
        rules,
        TOLERANCE[dtype],
        library="PyTorch",
        find_library=lambda: torch_library.find(),
        engines=("cuda",),
        units=TENSOR_CORES,
        capability=with_type,
        scale=scale,
    )


NO_SCENE = mark("its tiles, its ring and its sums are those of the 16-bit kernels, which the lesson Hopper shows")
LADDER = Ladder(
    name="gemm-8bit",
    work=mark("the product"),
    shape=EightBitShape,
    parse=parse_eight_bit,
    reference=eight_bit,
    presets=EIGHT_BIT_PRESETS,
    swept=("8bit-4096-int8", "8bit-4096-fp8"),
    rungs=(
        Rung(
            name="gemm-8bit/mma-int8",
            title=mark("mma.sync: INT8"),
            idea=mark("One instruction of a warp does 4,096 INT8 multiply-adds. Sums are INT32 and exact."),
            build=build_mma,
            cost=cost,
            rules=mma_rules,
            tolerance=TOLERANCE[INT8],
            units=TENSOR_CORES,
            tiles={
                "BM": (256, 64, 128), "BN": (128, 64, 256), "BK": (64, 128), "WM": (64, 32), "WN": (64, 32),
                "STAGES": (4, 2, 3, 5), "GROUP": (8, 1, 4, 16),
            },
            sets=({"BM": 64, "BN": 64, "WM": 32, "WN": 32},),
            capability=ampere,
            not_on_cpu=NO_INT8,
            no_scene=mark("its tiles and fragments are those of mma.sync in FP16, which the lesson tiling shows"),
        ),
        _hopper(
            "wgmma-int8",
            mark("wgmma: INT8"),
            mark("A warpgroup multiplies INT8 tiles in shared memory, 32 k at once. Blocks are persistent."),
            "gemm/31_wgmma_bytes.cu", INT8, PERSISTENT, SMALL,
        ),
        _library(
            "torch-int8", "torch._int_mm", mark("PyTorch’s INT8 product, by cuBLAS. Sums are INT32."),
            library.Int8, INT8, library_rules(INT8, 8, 17),
        ),
        _hopper(
            "wgmma-fp8",
            mark("wgmma: FP8"),
            mark("The same kernel with FP8 numbers (e4m3). The tensor cores keep about 14 bits of each sum."),
            "gemm/31_wgmma_bytes.cu", FP8, PERSISTENT, SMALL, scale=fast_scale,
        ),
        _hopper(
            "wgmma-fp8-turns",
            mark("wgmma: FP8, in turns"),
            mark("Each consumer has tiles of its own. One multiplies while the other one stores."),
            TURNS_SOURCE, FP8, TURNS, SMALL, scale=fast_scale,
        ),
        _hopper(
            "wgmma-fp8-promoted",
            mark("wgmma: FP8, FP32 sums"),
            mark("The tensor cores add only 128 products. Threads then add the result to sums in FP32."),
            "gemm/33_wgmma_promoted.cu", FP8, PERSISTENT | {"WN": (128, 64)}, SMALL | {"WN": 64},
        ),
        _library(
            "torch-fp8-fast", mark("torch._scaled_mm, fast sums"),
            mark("PyTorch’s FP8 product, by cuBLAS. Sums stay in the tensor cores (use_fast_accum)."),
            library.FastFp8, FP8, library_rules(FP8, 16), scale=fast_scale,
        ),
        _library(
            "torch-fp8", "torch._scaled_mm", mark("PyTorch’s FP8 product, by cuBLAS, with more exact sums."),
            library.Fp8, FP8, library_rules(FP8, 16),
        ),
    ),
)  # fmt: skip
