"""GEMM, C = alpha * A x B + beta * C0, row-major: from three loops to the tensor cores and the library."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernels.gemm import common, cpu, hopper, hopper_fp32, tensor_cores
from kernels.gemm.presets import GEMM_PRESETS
from kernels.gemm.reference import gemm
from kernels.gemm.shape import GemmShape, parse_gemm
from kernels.i18n import mark, tr
from kernels.model.launch import ampere, ceil, rung_factory
from kernels.model.program import Program, Tiles
from kernels.model.rules import (
    MAX_SHARED,
    dtype_rules,
    fetch_rules,
    multiple_rules,
    register_rules,
    shared_rules,
    thread_rules,
)
from kernels.model.rung import Ladder, Rung

BLOCKS = (32, 16, 8)

# The error of a float32 sum grows at worst with its length. 1e-5 of the sum of absolute products is
# above the errors measured at K = 65,536 terms.
TOLERANCE = 1e-5


# -- programs -------------------------------------------------------------------------------------------
def build_uncoalesced(s: GemmShape, tiles: Tiles) -> Program:
    side = tiles["BLOCK"]
    grid = ceil(s.M, side), ceil(s.N, side)
    return common.one_launch(s, "01_uncoalesced.cu", grid, (side, side), cpu.definition, tiles)


def build_naive(s: GemmShape, tiles: Tiles) -> Program:
    side = tiles["BLOCK"]
    grid = ceil(s.N, side), ceil(s.M, side)
    return common.one_launch(s, "02_naive.cu", grid, (side, side), cpu.definition, tiles)


def tiled(source: str, shared: Callable[[Tiles], int] = lambda tiles: 0):
    """Returns the builder of a kernel whose block computes BM x BN of C, and each thread TM x TN of that.

    `shared` returns the bytes of dynamic shared memory.
    """

    def build(s: GemmShape, tiles: Tiles) -> Program:
        grid = ceil(s.N, tiles["BN"]), ceil(s.M, tiles["BM"])
        cpu_function = cpu.tiled(tiles["BM"], tiles["BN"], tiles["BK"])
        return common.one_launch(
            s, source, grid, (threads(tiles), 1), cpu_function, tiles, shared(tiles), "blocked_product"
        )

    return build


def threads(tiles: Tiles) -> int:
    return tiles["BM"] // tiles.get("TM", 1) * (tiles["BN"] // tiles.get("TN", 1))


def stages_bytes(tiles: Tiles) -> int:
    """Returns the bytes of tile_a (transposed and padded) and tile_b, STAGES times."""
    return 4 * tiles["STAGES"] * tiles["BK"] * (tiles["BM"] + 4 + tiles["BN"])


def build_cublas(s: GemmShape, tiles: Tiles) -> Program:
    return common.one_call(s)


# -- rules ----------------------------------------------------------------------------------------------
def uncoalesced_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    yield from dtype_rules(s, "fp32")
    transposed_shape = s.with_(M=s.N, N=s.M)  # its grid.y runs along N
    yield from common.extent_rules(
        transposed_shape, tiles["BLOCK"], tiles["BLOCK"], rows="BLOCK", names=("N", "M", "K")
    )


def naive_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    yield from dtype_rules(s, "fp32")
    yield from common.extent_rules(s, tiles["BLOCK"], tiles["BLOCK"], rows="BLOCK")


def block_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules of every kernel whose block computes BM x BN of C."""
    yield from dtype_rules(s, "fp32")
    depth = tiles["BK"] * tiles.get("STAGES", 1)
    yield from common.extent_rules(s, tiles["BM"], tiles["BN"], depth)
    threads_as = f"{'(BM/TM)' if 'TM' in tiles else 'BM'}*{'(BN/TN)' if 'TN' in tiles else 'BN'}"
    yield from multiple_rules(tiles, *((f"B{t[1]}", t) for t in ("TM", "TN") if t in tiles))
    yield from thread_rules(threads_as, threads(tiles))


def scalar_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules if tiles are loaded float by float, neither transposed nor padded."""
    yield from block_rules(s, tiles)
    yield from _register_rules(tiles)
    yield from fetch_rules(tiles, threads(tiles), "BM", "BK", 1)
    yield from fetch_rules(tiles, threads(tiles), "BK", "BN", 1)
    yield from shared_rules("4*BK*(BM + BN)", 4 * tiles["BK"] * (tiles["BM"] + tiles["BN"]))


def vector_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules if tiles are loaded four floats at a time, A transposed and padded by 32 floats in all."""
    yield from block_rules(s, tiles)
    yield from multiple_rules(tiles, ("TM", 4), ("TN", 4))
    yield from _register_rules(tiles)
    yield from fetch_rules(tiles, threads(tiles), "BM", "BK", 4)
    yield from fetch_rules(tiles, threads(tiles), "BK", "BN", 4)
    yield from shared_rules("4*BK*(BM + BN) + 128", 4 * tiles["BK"] * (tiles["BM"] + tiles["BN"]) + 128)


def async_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    """Yields the rules for STAGES tiles, A loaded float by float, B four floats at a time."""
    yield from block_rules(s, tiles)
    yield from multiple_rules(tiles, ("TM", 4), ("TN", 4))
    yield from _register_rules(tiles)
    yield from fetch_rules(tiles, threads(tiles), "BM", "BK", 1)
    yield from fetch_rules(tiles, threads(tiles), "BK", "BN", 4)
    yield from shared_rules("4*STAGES*BK*(BM + 4 + BN)", stages_bytes(tiles), MAX_SHARED)


def warp_tile_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    WM, WN, TM, TN = (tiles[name] for name in ("WM", "WN", "TM", "TN"))
    yield from multiple_rules(tiles, ("BM", "WM"), ("BN", "WN"), ("WM", "TM"), ("WN", "TN"))
    if WM * WN != 32 * TM * TN:
        yield tr(
            "WM*WN == 32*TM*TN (32 lanes per warp), got {left} and {right}", left=f"{WM}*{WN}", right=f"32*{TM}*{TN}"
        )
    elif WM // TM % 2:
        yield tr("WM/TM % 2 == 0 (lanes in pairs), got {got}", got=f"{WM}/{TM}")
    yield from async_rules(s, tiles)


def _register_rules(tiles: Tiles) -> Iterator[str]:
    yield from register_rules({"TM": 1, "TN": 1} | dict(tiles), threads(tiles))


def cublas_rules(s: GemmShape, tiles: Tiles) -> Iterator[str]:
    yield from dtype_rules(s, "fp32")


# Defaults are the fastest measured at 4096 on an H200. One of the other sets is small enough to follow in the animation.
SQUARE = {"BM": (128, 64, 32), "BN": (128, 64, 32), "BK": (16, 8, 32), "TM": (8, 4), "TN": (8, 4)}
DEEP = SQUARE | {"BK": (32, 16, 8)}
SMALL = {"BM": 32, "BN": 32, "BK": 8, "TM": 4, "TN": 4}
MIDDLE = {"BM": 64, "BN": 64, "BK": 16, "TM": 4, "TN": 4}


WARP_TILES = {
    "BM": (128, 64, 32, 256),
    "BN": (256, 128, 64, 32),
    "BK": (16, 8, 32),
    "WM": (64, 32),
    "WN": (64, 32, 16),
    "TM": (8, 4),
    "TN": (16, 8, 4),
    "STAGES": (3, 2, 4),
}
SMALL_WARPS = SMALL | {"WM": 32, "WN": 16, "STAGES": 2}


NO_REGISTERS = mark("NumPy cannot keep sums in registers; without that this is the blocked product")
fp32_rung = rung_factory("gemm", common.cost, TOLERANCE)

FP32_RUNGS = (
    fp32_rung(
        "uncoalesced",
        mark("uncoalesced"),
        mark("One thread per element of C. A warp reads down a column: 32 sectors for 32 floats."),
        build_uncoalesced,
        uncoalesced_rules,
        {"BLOCK": BLOCKS},
        not_on_cpu=mark("a processor has no coalescing; without it this is the naive loop"),
    ),
    fp32_rung(
        "naive",
        mark("naive, coalesced"),
        mark("One thread per element of C. A warp reads along a row: 4 sectors for 32 floats."),
        build_naive,
        naive_rules,
        {"BLOCK": BLOCKS},
        cpu_title=mark("naive loop (NumPy einsum)"),
    ),
    fp32_rung(
        "shared-tile",
        mark("shared-memory tile"),
        mark("A block loads tiles of A and B into shared memory once. Its threads use each value many times."),
        tiled("03_shared_tile.cu"),
        scalar_rules,
        {"BM": (32, 16, 8), "BN": (32, 16, 8), "BK": (32, 16, 8)},
        cpu_title=mark("blocked, BLAS in each block"),
        cpu_tiles=("BM", "BN", "BK"),
    ),
    fp32_rung(
        "register-tile-1d",
        mark("register tile, 1-D"),
        mark("Each thread keeps TM sums in registers. A float of B is read once and used TM times."),
        tiled("04_register_tile_1d.cu"),
        scalar_rules,
        {"BM": (64, 32, 128), "BN": (64, 32, 128), "BK": (16, 8, 32), "TM": (16, 8, 4)},
        {"BM": 32, "BN": 32, "BK": 8, "TM": 4},
        {"BK": 8, "TM": 8},
        not_on_cpu=NO_REGISTERS,
    ),
    fp32_rung(
        "register-tile-2d",
        mark("register tile, 2-D"),
        mark("Each thread keeps TM x TN sums. It reads TM + TN floats of shared memory for TM * TN multiply-adds."),
        tiled("05_register_tile_2d.cu"),
        scalar_rules,
        SQUARE,
        SMALL,
        MIDDLE,
        {"BK": 8},
        not_on_cpu=NO_REGISTERS,
    ),
    fp32_rung(
        "vectorized",
        mark("vectorized"),
        mark(
            "Each load reads four floats. A is transposed while it is copied, so that its columns can be read in "
            "fours too."
        ),
        tiled("06_vectorized.cu"),
        vector_rules,
        DEEP,
        SMALL,
        MIDDLE,
        {"BK": 16},
        not_on_cpu=mark("NumPy has no loads of four numbers per thread; without them this is the blocked product"),
    ),
    fp32_rung(
        "bank-free",
        mark("without bank conflicts"),
        mark(
            "Tiles are padded, and the elements of a thread are spread. The lanes of a warp then access "
            "different banks of shared memory."
        ),
        tiled("07_bank_free.cu"),
        vector_rules,
        DEEP,
        SMALL,
        MIDDLE,
        {"BK": 16},
        not_on_cpu=mark("a processor has no shared-memory banks; without them this is the blocked product"),
    ),
    fp32_rung(
        "double-buffer",
        mark("double buffer"),
        mark("cp.async loads the next tiles while the current tiles are multiplied. There is one barrier per step."),
        tiled("08_double_buffer.cu", stages_bytes),
        async_rules,
        SQUARE | {"STAGES": (3, 2, 4)},
        SMALL | {"STAGES": 2},
        MIDDLE,
        {"STAGES": 2},
        capability=ampere,
        not_on_cpu=mark("a processor has no cp.async; without it this is the blocked product"),
    ),
    fp32_rung(
        "warp-tile",
        mark("warp tile"),
        mark(
            "Each warp computes a nearly square tile, with its lanes in pairs. A load from tile_b then takes "
            "half the time."
        ),
        tiled("09_warp_tile.cu", stages_bytes),
        warp_tile_rules,
        WARP_TILES,
        SMALL_WARPS,
        MIDDLE | {"WM": 32, "WN": 32, "TM": 8},
        {"BN": 128, "WN": 32, "TN": 8},
        capability=ampere,
        not_on_cpu=mark("a processor has no warps; without them this is the blocked product"),
    ),
    fp32_rung(
        "register-pipeline",
        mark("operands loaded ahead"),
        mark(
            "The operands of the next step are loaded into registers before they are needed, also across the barrier."
        ),
        tiled("20_register_pipeline.cu", stages_bytes),
        warp_tile_rules,
        WARP_TILES,
        SMALL_WARPS,
        capability=ampere,
        not_on_cpu=NO_REGISTERS,
    ),
    fp32_rung(
        "grouped-order",
        mark("grouped order of blocks"),
        mark("Blocks that run together form a compact part of C. They share rows of A and columns of B."),
        tiled("21_grouped_order.cu", stages_bytes),
        warp_tile_rules,
        WARP_TILES | {"GROUP": (8, 4, 16)},
        SMALL_WARPS | {"GROUP": 4},
        capability=ampere,
        not_on_cpu=mark("a processor has no blocks that run together; without them this is the blocked product"),
    ),
)

CUBLAS = Rung(
    name="gemm/cublas",
    title=mark("cuBLAS FP32"),
    idea=mark(
        "The vendor's library, FP32 throughout (TF32 off). It adds in place: if beta is not 0, C0 is copied first."
    ),
    build=build_cublas,
    cost=common.cost,
    rules=cublas_rules,
    tolerance=TOLERANCE,
    library="cuBLAS",
    cpu_title=mark("NumPy BLAS"),
)

LADDER = Ladder(
    name="gemm",
    work=mark("the product"),
    shape=GemmShape,
    parse=parse_gemm,
    reference=gemm,
    presets=GEMM_PRESETS,
    rungs=(
        *FP32_RUNGS,
        hopper_fp32.transposed_ring(TOLERANCE),
        CUBLAS,
        hopper_fp32.tf32x3_rung(TOLERANCE),
        *tensor_cores.before_library(),
        *hopper.RUNGS,
        *tensor_cores.from_library(),
    ),
    swept=("square-4096", "square-4096-fp16", "square-4096-int8"),
)
