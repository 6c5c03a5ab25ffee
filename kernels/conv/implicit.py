"""Convolution without a data matrix in memory: direct from shared memory, and as an implicit matrix product."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.conv import common, cpu
from kernels.conv.common import TOLERANCE
from kernels.conv.shape import ConvShape
from kernels.i18n import mark, tr
from kernels.model.fast_division import magic
from kernels.model.launch import WARP, ampere, ceil, launch
from kernels.model.program import Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, MAX_SHARED, index_rules, max_rules, shared_rules
from kernels.model.rung import Rung

MAX_THREADS = 256  # in a block of direct-tiled
PIECE = 4  # adjacent rows and columns of a thread's sums
FILTER_LANES = 8  # values of k that a warp copies at a time: KA in implicit.cuh
PART = 1536  # terms that implicit-gemm adds in one partial sum: implicit.cuh

DIVISORS = ("area", "S", "pixels", "Q")
DIVISORS_STRUCT = np.dtype(
    [(f"{name}_{part}", kind) for name in DIVISORS for part, kind in (("multiplier", "u4"), ("shift", "i4"))]
)


# -- direct-tiled -----------------------------------------------------------------------------------------
def filter_threads(s: ConvShape, tiles: Tiles) -> int:
    """Returns the threads of a block along the filters: as many as allowed, no more than a group needs."""
    across = tiles["TILE"] * tiles["TILE"] // tiles["TP"]
    return max(1, min(ceil(s.filters, tiles["TK"]), MAX_THREADS // across))


def direct_shared(s: ConvShape, tiles: Tiles) -> int:
    """Returns the bytes of shared memory: the patch under the block's pixels and the taps of its filters.

    CHUNK maps of each are stored.
    """
    patch_rows = (tiles["TILE"] - 1) * s.u + s.span_h
    patch_columns = (tiles["TILE"] - 1) * s.v + s.span_w
    taps = s.R * s.S * (filter_threads(s, tiles) * tiles["TK"] + PIECE)
    return 4 * min(tiles["CHUNK"], s.maps) * (taps + patch_rows * patch_columns)


def build_direct_tiled(s: ConvShape, tiles: Tiles) -> Program:
    tile, z = tiles["TILE"], filter_threads(s, tiles)
    filters = z * tiles["TK"]
    step = launch(
        "conv/04_direct_tiled.cu",
        (ceil(s.P, tile) * ceil(s.Q, tile), s.groups * ceil(s.filters, filters), s.N),
        (tile, tile // tiles["TP"], z),
        ("x", "w", common.bias_name(s), "y", common.struct(s), common.layer(s)),
        cpu.direct_tiled(filters, tile, tiles["CHUNK"]),
        tiles,
        direct_shared(s, tiles),
    )
    return Program(common.buffers(s), (step,))


def direct_tiled_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    tile = tiles["TILE"]
    yield from common.multiple_rules(tiles, ("TILE", tiles["TP"]))
    yield from max_rules(tr("TILE*TILE/TP threads"), tile * tile // tiles["TP"], MAX_THREADS)
    yield from max_rules("N (grid.z)", s.N, MAX_GRID_YZ)
    blocks = s.groups * ceil(s.filters, filter_threads(s, tiles) * tiles["TK"])
    yield from max_rules(tr("blocks along the filters (grid.y)"), blocks, MAX_GRID_YZ)
    yield from index_rules({"P*Q": (s.P + tile) * (s.Q + tile)}, 0)
    for (name, extent), stride in zip(common.padded_sides(s), s.stride, strict=True):
        yield from index_rules({name: extent}, 2 * tile * stride)
    yield from max_rules(tr("bytes of shared memory for patch and taps"), direct_shared(s, tiles), MAX_SHARED)


# -- implicit-gemm ----------------------------------------------------------------------------------------
def threads(tiles: Tiles) -> int:
    return tiles["BM"] // tiles["TM"] * (tiles["BN"] // tiles["TN"])


def warp_tile(tiles: Tiles) -> tuple[int, int]:
    """Returns the rows and columns of a warp's sums, with the lane layout of implicit.cuh."""
    across = 8 if tiles["TN"] < tiles["TM"] else 4
    return WARP // across * tiles["TM"], across * tiles["TN"]


def implicit_shared(tiles: Tiles) -> int:
    return 4 * tiles["STAGES"] * tiles["BK"] * (tiles["BM"] + PIECE + tiles["BN"])


def divisors(s: ConvShape) -> np.void:
    """Returns the kernel's `struct Divisors`: multipliers and shifts to divide by R*S, S, P*Q and Q."""
    magics = (magic(d) for d in (s.R * s.S, s.S, s.PQ, s.Q))
    return np.array([tuple(v for m in magics for v in (m.multiplier, m.shift))], DIVISORS_STRUCT)[0]


def build_implicit_plain(s: ConvShape, tiles: Tiles) -> Program:
    return _implicit("05_implicit_gemm_plain.cu", s, tiles)


def build_implicit(s: ConvShape, tiles: Tiles) -> Program:
    return _implicit("06_implicit_gemm.cu", s, tiles, divisors(s))


def _implicit(source: str, s: ConvShape, tiles: Tiles, *extra_args: np.void) -> Program:
    step = launch(
        f"conv/{source}",
        (ceil(s.N * s.PQ, tiles["BN"]), ceil(s.filters, tiles["BM"]), s.groups),
        threads(tiles),
        ("x", "w", common.bias_name(s), "y", common.struct(s), common.layer(s), *extra_args),
        cpu.implicit_gemm(tiles["BM"], tiles["BN"], tiles["BK"]),
        tiles,
        implicit_shared(tiles),
    )
    return Program(common.buffers(s), (step,))


def implicit_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    BM, BN, BK = (tiles[name] for name in ("BM", "BN", "BK"))
    yield from tile_rules(tiles)
    yield from max_rules("groups (grid.z)", s.groups, MAX_GRID_YZ)
    yield from max_rules(tr("K/groups/BM blocks (grid.y)"), ceil(s.filters, BM), MAX_GRID_YZ)
    yield from index_rules({"N*C*H*W": s.elements["x"]}, 0)
    yield from index_rules({"N*P*Q": s.N * s.PQ}, BN)
    yield from index_rules({"K/groups": s.filters}, BM)
    yield from index_rules({"C/groups*R*S": s.CRS}, PART + tiles["STAGES"] * BK)


def tile_rules(tiles: Tiles) -> Iterator[str]:
    """Yields the rules on tiles: whole warps, one tile per warp, whole rounds of copies.

    Each warp copies a row of the data matrix.
    """
    BM, BK = tiles["BM"], tiles["BK"]
    down, across = warp_tile(tiles)
    yield from common.multiple_rules(tiles, ("BM", down), ("BN", across), ("BN", WARP))
    count = threads(tiles)
    if count % WARP == 0 and BK % (count // WARP):
        yield tr("BK % warps == 0 (each warp copies a row), got {got}", got=f"{BK} % {count // WARP}")
    elif BM * FILTER_LANES % count:
        yield tr(
            "{lanes}*BM % threads == 0 (filters are copied in whole rounds), got {got}",
            lanes=FILTER_LANES,
            got=f"{FILTER_LANES}*{BM} % {count}",
        )
    yield from shared_rules("4*STAGES*BK*(BM + 4 + BN)", implicit_shared(tiles), MAX_SHARED)


DIRECT_TILES = {"TILE": (16, 8, 32), "TK": (8, 4, 1), "TP": (4, 2, 1), "CHUNK": (4, 1, 2, 8)}
IMPLICIT_TILES = {
    "BM": (64, 128, 32),
    "BN": (64, 128, 32),
    "BK": (16, 8),
    "TM": (4, 8),
    "TN": (8, 4),
    "STAGES": (3, 2, 4),
}

# BM, BN, BK, TM, TN, STAGES: the fastest sizes at some layer, and the best sizes of GEMM kernels.
IMPLICIT_SETS = tuple(
    dict(zip(IMPLICIT_TILES, sizes, strict=True))
    for sizes in (
        (64, 64, 16, 8, 4, 3),
        (64, 64, 16, 8, 8, 3),
        (64, 128, 16, 8, 8, 3),
        (128, 128, 16, 8, 8, 3),
        (64, 32, 16, 4, 4, 3),
        (32, 64, 16, 4, 4, 3),
        (32, 32, 16, 4, 4, 4),
    )
)
# TILE, TK, TP, CHUNK: for small maps, and for one map per filter (depthwise).
DIRECT_SETS = tuple(
    dict(zip(DIRECT_TILES, sizes, strict=True))
    for sizes in ((8, 8, 2, 8), (16, 4, 4, 4), (16, 8, 2, 4), (8, 1, 2, 1), (16, 1, 4, 1))
)

RUNGS: tuple[Rung, ...] = (
    Rung(
        name="conv/direct-tiled",
        title=mark("direct, tiled"),
        idea=mark(
            "A patch of the input and the filters' taps are in shared memory. Each thread computes several outputs."
        ),
        build=build_direct_tiled,
        cost=common.cost,
        rules=direct_tiled_rules,
        tolerance=TOLERANCE,
        family="direct",
        short_title=mark("direct tiled"),
        tiles=DIRECT_TILES,
        cpu_title=mark("direct, blocked"),
        cpu_tiles=tuple(DIRECT_TILES),
        sets=DIRECT_SETS,
    ),
    Rung(
        name="conv/implicit-gemm-plain",
        title=mark("implicit GEMM, plain divisions"),
        idea=mark("The data matrix is built tile by tile in shared memory. Its indices are split with / and %."),
        build=build_implicit_plain,
        cost=common.cost,
        rules=implicit_rules,
        tolerance=TOLERANCE,
        family="implicit",
        short_title=mark("implicit plain"),
        tiles=IMPLICIT_TILES,
        sets=(IMPLICIT_SETS[0], IMPLICIT_SETS[3]),
        capability=ampere,
        not_on_cpu=mark("NumPy divides one way only, so this is the same computation as implicit GEMM"),
    ),
    Rung(
        name="conv/implicit-gemm",
        title=mark("implicit GEMM"),
        idea=mark("As with plain divisions, but each division by a known constant becomes a multiply and a shift."),
        build=build_implicit,
        cost=common.cost,
        rules=implicit_rules,
        tolerance=TOLERANCE,
        family="implicit",
        short_title=mark("implicit GEMM"),
        tiles=IMPLICIT_TILES,
        sets=IMPLICIT_SETS,
        capability=ampere,
        cpu_title=mark("implicit GEMM"),
        cpu_tiles=("BM", "BN", "BK"),
    ),
)
