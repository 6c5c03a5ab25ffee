"""The last rungs of the FP32 ladder: operands that wait in registers, an order of blocks, a producer warpgroup, and the
tensor cores with three products of TF32."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from kernels.gemm import common
from kernels.gemm.cpu import tiled
from kernels.gemm.shape import GemmShape
from kernels.i18n import mark
from kernels.model.launch import ceil, hopper, launch
from kernels.model.program import Program, Tiles
from kernels.model.rules import MAX_SHARED, dtype_rules, extent_multiple_rules, max_rules, shared_rules
from kernels.model.rung import HOPPER, TENSOR_CORES, Rung
from kernels.model.tensor_map import TensorMap

BK = 32  # of a tile: a row of A has 128 bytes
WARPGROUP = 128  # threads
WARP_TILE = 64  # rows and columns that a warp of consumers computes
SWIZZLE = 128  # bytes
ARRIVALS = 2  # tiles that wait to be transposed
BARRIER = 8  # bytes
MAX_CONSUMERS = 8  # warps: each thread has 128 sums


# -- programs -------------------------------------------------------------------------------------------
def map_a(s: GemmShape, rows: int) -> TensorMap:
    """Returns the map of A [M, K], in boxes of `rows` x BK."""
    return TensorMap("A", "float32", (s.K, s.M), (4 * s.K,), (BK, rows), SWIZZLE)


def map_b(s: GemmShape, columns: int) -> TensorMap:
    """Returns the map of B [K, N], in boxes of BK x `columns`."""
    return TensorMap("B", "float32", (s.N, s.K), (4 * s.N,), (columns, BK))


def ring_bytes(tiles: Tiles) -> int:
    """Returns the bytes of ARRIVALS tiles of A, of STAGES tiles of A and B, and of their barriers."""
    BM, BN, stages = (tiles[name] for name in ("BM", "BN", "STAGES"))
    return 4 * BK * (ARRIVALS * BM + stages * (BM + BN)) + BARRIER * (2 * stages + ARRIVALS)


def split_bytes(tiles: Tiles) -> int:
    """Returns the bytes of ARRIVALS tiles of B, of STAGES tiles of A and of B twice, and of their barriers."""
    BM, BN, stages = (tiles[name] for name in ("BM", "BN", "STAGES"))
    return 4 * BK * (ARRIVALS * BN + stages * (BM + 2 * BN)) + BARRIER * (2 * stages + ARRIVALS)


def _launch(s: GemmShape, source: str, threads: int, tiles: Tiles, shared: int, cpu_function) -> Program:
    """Returns a launch of one block for each tile of C, in the order of GROUP."""
    args = (map_a(s, tiles["BM"]), map_b(s, tiles["BN"]), *common.arguments(s)[2:])
    grid = (ceil(s.M, tiles["BM"]) * ceil(s.N, tiles["BN"]),)
    step = launch(f"gemm/{source}", grid, threads, args, cpu_function, tiles, shared, "blocked_product")
    return Program(common.buffers(s), (step,))


def build_transposed_ring(s: GemmShape, tiles: Tiles) -> Program:
    consumers = tiles["BM"] // WARP_TILE * (tiles["BN"] // WARP_TILE)  # warps
    cpu_function = tiled(tiles["BM"], tiles["BN"], BK)
    threads = 32 * consumers + WARPGROUP
    return _launch(s, "22_transposed_ring.cu", threads, tiles, ring_bytes(tiles), cpu_function)


def build_tf32x3(s: GemmShape, tiles: Tiles) -> Program:
    return _launch(s, "23_tf32x3.cu", 3 * WARPGROUP, tiles, split_bytes(tiles), tf32x3)


def tf32x3(A: np.ndarray, B: np.ndarray, C0: np.ndarray, C: np.ndarray, M, N, K, alpha, beta) -> None:
    """Compute C from three products of TF32 numbers, whose sums are FP32."""
    (a, a_small), (b, b_small) = split(A), split(B)
    sums = (a_small @ b + a @ b_small + a @ b) * alpha
    C[...] = sums + beta * C0 if beta else sums


def split(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns (big, small), float32: x rounded to the 10 bits of fraction of TF32, and what is left, truncated to them."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    big = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    small = ((x - big).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)
    return big, small


# -- rules ----------------------------------------------------------------------------------------------
def rules(formula: str, shared: Callable[[Tiles], int]):
    """Returns the rules of a rung with the copy engine. `shared`: its bytes of shared memory, by the `formula`."""

    def check(s: GemmShape, tiles: Tiles) -> Iterator[str]:
        yield from dtype_rules(s, "fp32")
        yield from extent_multiple_rules(4, N=s.N, K=s.K)  # rows begin at multiples of 16 bytes
        yield from common.extent_rules(s, tiles["BM"], tiles["BN"], BK)
        sums = tiles["BM"] * tiles["BN"]
        yield from max_rules("BM*BN", sums, MAX_CONSUMERS * WARP_TILE**2)
        yield from shared_rules(formula, shared(tiles), MAX_SHARED)

    return check


RING_TILES = {"BM": (128, 256), "BN": (256, 128), "STAGES": (3, 2), "GROUP": (8, 4, 16)}
SPLIT_TILES = {"BM": (256, 128), "BN": (128,), "STAGES": (3, 2), "GROUP": (8, 4, 16)}
FORMULA = "128*(2*{extra} + STAGES*({stage})) + 8*(2*STAGES + 2)"


def transposed_ring(tolerance: float) -> Rung:
    """Returns the rung of FP32 whose producer transposes A. `tolerance`: that of the FP32 rungs."""
    return Rung(
        "gemm/transposed-ring",
        mark("producer that transposes"),
        mark("One warpgroup copies tiles and transposes A. The other warps only load operands and multiply."),
        build_transposed_ring,
        common.cost,
        rules(FORMULA.format(extra="BM", stage="BM + BN"), ring_bytes),
        tolerance,
        RING_TILES,
        sets=(),
        capability=hopper,
        last_capability=HOPPER,
        not_on_cpu=mark("a processor has no copy engine; without it this is the blocked product"),
        no_scene=mark("no scene shows a producer that changes tiles on their way; the lesson Hopper shows a ring"),
    )


def tf32x3_rung(tolerance: float) -> Rung:
    """Returns the rung of three products of TF32, as exact as FP32. `tolerance`: that of the FP32 rungs."""
    return Rung(
        "gemm/tf32x3",
        mark("3xTF32 on wgmma"),
        mark(
            "Another algorithm: each factor is a sum of two TF32 numbers. Tensor cores add three of their four products."
        ),
        build_tf32x3,
        common.cost,
        rules(FORMULA.format(extra="BN", stage="BM + 2*BN"), split_bytes),
        tolerance,
        SPLIT_TILES,
        sets=({"BM": 128, "STAGES": 2},),
        units=TENSOR_CORES,
        capability=hopper,
        last_capability=HOPPER,
        not_on_cpu=mark("NumPy has no tensor cores; without them this is three products in FP32"),
        no_scene=mark("no scene shows a factor that is split in two; the lesson Hopper shows wgmma and its ring"),
    )
