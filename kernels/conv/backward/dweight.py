"""The gradient of convolution's filters: direct, im2col + GEMM, and an implicit product whose sum is split."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.conv import cpu as conv_cpu
from kernels.conv import implicit
from kernels.conv.backward import common, cpu
from kernels.conv.common import layer, multiple_rules, struct, ungrouped_rules
from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from kernels.model.fast_division import magic
from kernels.model.launch import WARP, ceil, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, Launch, Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, MAX_SHARED, index_rules, max_rules, shared_rules
from kernels.model.zero import zero

DIVISORS = np.dtype(
    [(f"{name}_{part}", kind) for name in ("pixels", "Q") for part, kind in (("multiplier", "u4"), ("shift", "i4"))]
)
SMS = 132  # of an H200: the parts are made for a GPU of about that size
MAX_TERMS = 4096  # that a block adds in one sum: a longer one would lose its last bits
# What a part costs besides its terms, in terms: filling the pipeline, storing the sums, adding them once more.
PART_OVERHEAD = 128
SUM_BLOCK = 256


def buffers(s: ConvShape) -> tuple[Buffer, ...]:
    """Returns x [N,C,H,W], dy [N,K,P,Q] and dw [K,C/groups,R,S]."""
    return Buffer("x", INPUT, s.x_shape), Buffer("dy", INPUT, s.y_shape), Buffer("dw", OUTPUT, s.w_shape)


def build_direct(s: ConvShape, tiles: Tiles) -> Program:
    args = "x", "dy", "dw", struct(s), layer(s)
    grid = (ceil(s.elements["w"], tiles["BLOCK"]),)
    step = launch("conv/25_dweight_direct.cu", grid, tiles["BLOCK"], args, cpu.dweight_direct)
    return Program(buffers(s), (step,))


def direct_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    yield from common.plain_rules(s, tiles)
    yield from index_rules({"K*C/groups*R*S": s.elements["w"]}, tiles["BLOCK"], "BLOCK")


# -- im2col + GEMM ---------------------------------------------------------------------------------------
def build_gemm(s: ConvShape, tiles: Tiles) -> Program:
    """Returns im2col into a workspace [N, C*R*S, P*Q], then the sum over n of dy[n] [K, P*Q] x columns[n] transposed."""
    tile, block = tiles["TILE"], tiles["BLOCK"]
    grid, args = (ceil(s.C * s.PQ, block), s.N), ("x", "col", struct(s))
    im2col = launch("conv/02_im2col.cu", grid, block, args, conv_cpu.im2col)
    extents = (np.int32(n) for n in (s.K, s.CRS, s.PQ, s.N))
    grid, args = (ceil(s.CRS, tile), ceil(s.K, tile)), ("dy", "col", "dw", *extents)
    product = launch("conv/26_gemm_sum.cu", grid, (tile, tile), args, cpu.gemm_sum(tile), {"TILE": tile})
    return Program((*buffers(s), Buffer("col", WORKSPACE, (s.N, s.CRS, s.PQ))), (im2col, product))


def gemm_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    yield from ungrouped_rules(s)
    yield from common.plain_rules(s, tiles)
    yield from max_rules("N (grid.y)", s.N, MAX_GRID_YZ)
    yield from index_rules({"C*P*Q": s.C * s.PQ, "C*R*S": s.CRS, "R*S": s.R * s.S}, tiles["BLOCK"], "BLOCK")
    yield from max_rules(tr("K/TILE blocks (grid.y)"), ceil(s.K, tiles["TILE"]), MAX_GRID_YZ)


# -- implicit GEMM, the sum split ------------------------------------------------------------------------
def terms_of_part(s: ConvShape, tiles: Tiles) -> int:
    """Returns how many output pixels a block adds, a multiple of BK: the choice with the smallest estimated time.

    The tiles of the gradient are few, so the sum over N*P*Q is cut into parts until the SMs of an H200 have equal
    work. The estimate is the time of the busiest SM: its rounds of blocks times the terms of each, with
    PART_OVERHEAD.
    """
    inner, BK = s.N * s.PQ, tiles["BK"]
    blocks = ceil(s.CRS, tiles["BN"]) * ceil(s.filters, tiles["BM"]) * s.groups
    resident = resident_blocks(tiles)
    fewest = ceil(inner, MAX_TERMS)
    most = max(fewest, min(ceil(inner, 4 * BK), MAX_GRID_YZ // s.groups, 8 * SMS))

    def terms(parts: int) -> int:
        return ceil(ceil(inner, BK), parts) * BK

    def estimate(parts: int) -> int:
        rounds, rest = divmod(ceil(blocks * ceil(inner, terms(parts)), SMS), resident)
        busy = rounds * resident + (max(rest, ceil(3 * resident, 4)) if rest else 0)
        return busy * (terms(parts) + PART_OVERHEAD)

    return terms(min(range(fewest, most + 1), key=estimate))


def resident_blocks(tiles: Tiles) -> int:
    """Returns how many blocks share an SM, as RESIDENT in implicit.cuh. With less than about three quarters of them an
    SM waits for memory."""
    room = 384 if tiles["TM"] * tiles["TN"] > 32 else 512
    return max(1, room // implicit.threads(tiles))


def build_atomics(s: ConvShape, tiles: Tiles) -> Program:
    step = _implicit("27_dweight_atomics.cu", s, tiles, "dw", terms_of_part(s, tiles))
    return Program(buffers(s), (zero("dw", s.elements["w"]), step))


def build_implicit(s: ConvShape, tiles: Tiles) -> Program:
    """Returns the parts, then their sum; without a second step if there is one part."""
    terms, count = terms_of_part(s, tiles), s.elements["w"]
    parts = ceil(s.N * s.PQ, terms)
    target = "parts" if parts > 1 else "dw"
    step = _implicit("28_dweight_implicit_gemm.cu", s, tiles, target, terms)
    if parts == 1:
        return Program(buffers(s), (step,))
    args = "parts", "dw", np.int32(count), np.int32(parts)
    grid, defines = (ceil(count, SUM_BLOCK),), {"BLOCK": SUM_BLOCK}
    added = launch("conv/29_sum_parts.cu", grid, SUM_BLOCK, args, cpu.sum_parts, defines)
    return Program((*buffers(s), Buffer("parts", WORKSPACE, (parts, *s.w_shape))), (step, added))


def _implicit(source: str, s: ConvShape, tiles: Tiles, target: str, terms: int) -> Launch:
    magics = (magic(s.PQ), magic(s.Q))
    divisors = np.array([tuple(v for m in magics for v in (m.multiplier, m.shift))], DIVISORS)[0]
    grid = ceil(s.CRS, tiles["BN"]), ceil(s.filters, tiles["BM"]), s.groups * ceil(s.N * s.PQ, terms)
    return launch(
        f"conv/{source}",
        grid,
        implicit.threads(tiles),
        ("x", "dy", target, struct(s), layer(s), divisors, np.int32(terms)),
        cpu.dweight_parts(tiles["BN"], tiles["BK"], adds="atomics" in source),
        tiles,
        dweight_shared(tiles),
    )


def dweight_shared(tiles: Tiles) -> int:
    return 4 * tiles["STAGES"] * tiles["BK"] * (tiles["BM"] + tiles["BN"] + 2 * implicit.PIECE)


def implicit_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    BM, BN, BK = (tiles[name] for name in ("BM", "BN", "BK"))
    yield from common.plain_rules(s, tiles)
    yield from _tile_rules(tiles)
    if any(tiles[name] % size for name, size in zip(("BM", "BN"), implicit.warp_tile(tiles), strict=True)):
        return  # without whole warps the parts have no meaning
    yield from max_rules(tr("groups*parts (grid.z)"), s.groups * ceil(s.N * s.PQ, MAX_TERMS), MAX_GRID_YZ)
    yield from max_rules(tr("K/groups/BM blocks (grid.y)"), ceil(s.filters, BM), MAX_GRID_YZ)
    yield from index_rules({"N*C*H*W": s.elements["x"], "N*K*P*Q": s.elements["y"]}, 0)
    yield from index_rules({"K*C/groups*R*S": s.elements["w"]}, SUM_BLOCK)
    yield from index_rules({"N*P*Q": s.N * s.PQ}, (1 + tiles["STAGES"]) * BK + MAX_TERMS)
    yield from index_rules({"K/groups": s.filters}, BM)
    yield from index_rules({"C/groups*R*S": s.CRS}, BN)


def _tile_rules(tiles: Tiles) -> Iterator[str]:
    """Yields the rules on tiles: whole warps, one tile per warp, whole rounds of copies of both tiles."""
    down, across = implicit.warp_tile(tiles)
    yield from multiple_rules(tiles, ("BM", down), ("BN", across))
    count = implicit.threads(tiles)
    rows = count // implicit.FILTER_LANES
    if count % WARP == 0 and count:
        for name in ("BM", "BN"):
            if tiles[name] % rows:
                yield tr(
                    "{name} % (threads/{lanes}) == 0 (copied in whole rounds), got {got}",
                    name=name,
                    lanes=implicit.FILTER_LANES,
                    got=f"{tiles[name]} % {rows}",
                )
    formula = "4*STAGES*BK*(BM + BN + 8)"
    yield from shared_rules(formula, dweight_shared(tiles), MAX_SHARED)
