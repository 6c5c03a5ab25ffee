"""The tiles of the GEMM ladder and their layout in shared memory. The arithmetic and the tile sizes are those of kernels/gemm/cuda."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from kernels.gemm.shape import GemmShape
from kernels.i18n import tr
from kernels.ladders import find
from visuals.gemm.swizzle import RUNGS as HOPPER
from visuals.scene import why_not as scene_why_not
from visuals.scene.source import Mark


@dataclass(frozen=True)
class Layout:
    """The layout of a tile in a shared array of `rows` x `cols`. `at` [tile's rows, tile's columns] are its cells in that
    array; other cells are never stored. The array begins at byte `start` of `buffer`. The tile of the next stage begins
    `stride` bytes later."""

    rows: int
    cols: int
    at: np.ndarray
    buffer: str
    start: int = 0
    stride: int = 0
    item: int = 4  # bytes of an element


@dataclass(frozen=True)
class Plan:
    """One rung at given tile sizes. An owner is a thread or a whole warp: it has the sums of TM x TN elements of the block's tile. `depth`
    terms are added at once. As and Bs are None if threads read global memory. Otherwise shared memory contains tiles of `stages` steps along
    K at a time."""

    file: str
    tiles: Mapping[str, int]
    BM: int
    BN: int
    BK: int
    TM: int
    TN: int
    marks: tuple[Mark, ...]  # of the lines that begin, load A, load B, multiply, loop, store
    As: Layout | None = None
    Bs: Layout | None = None
    stages: int = 1
    depth: int = 1
    owner: str = "thread"

    @property
    def threads(self) -> int:
        return self.BM // self.TM * (self.BN // self.TN) * (32 if self.owner == "warp" else 1)

    def grid(self, s: GemmShape) -> tuple[int, int]:
        """Returns the number of blocks along N and along M."""
        return -(-s.N // self.BN), -(-s.M // self.BM)

    def inside(self, s: GemmShape) -> tuple[int, int]:
        """Returns how many rows and columns of the tile of block 0 are inside C."""
        return min(self.BM, s.M), min(self.BN, s.N)


def _pitched(rows: int, cols: int, pitch: int, buffer: str, **options) -> Layout:
    """Returns the layout of a row-major tile whose rows begin `pitch` elements apart."""
    return Layout(rows, pitch, np.arange(rows)[:, None] * pitch + np.arange(cols), buffer, **options)


def _plain(rows: int, cols: int, buffer: str, **options) -> Layout:
    return _pitched(rows, cols, cols, buffer, **options)


def _transposed(rows: int, cols: int, pitch: int, buffer: str, **options) -> Layout:
    """Returns the layout of a column-major tile whose columns begin `pitch` elements apart."""
    at = np.arange(rows)[:, None] + np.arange(cols) * pitch
    return Layout(cols, pitch, at, buffer, **options)


# -- the rungs -------------------------------------------------------------------------------------
def _lines(*patterns: str) -> tuple[re.Pattern, ...]:
    return tuple(re.compile(p) for p in patterns)


# Marks of most sources: sums begin, tile_a and tile_b are filled, terms added, the loop, the store.
_LINES = _lines(
    r"(float|int) sum", r"tile_a\[.+\] =", r"tile_b\[.+\] =", r"sum.* \+=", r"for \(int k", r"(C\[\w+\] =|store4\()"
)
_ASYNC = (_LINES[0], *_lines(r"async.*&tile_a\[", r"async.*&tile_b\["), *_LINES[3:])


def _direct(file: str, t: Mapping[str, int]) -> Plan:
    return Plan(f"gemm/{file}", t, t["BLOCK"], t["BLOCK"], 1, 1, 1, (_LINES[0], "", "", *_LINES[3:]))


def _uncoalesced(t: Mapping[str, int]) -> Plan:
    return _direct("01_uncoalesced.cu", t)


def _naive(t: Mapping[str, int]) -> Plan:
    return _direct("02_naive.cu", t)


def _shared_tile(t: Mapping[str, int]) -> Plan:
    return _tiled("03_shared_tile.cu", t)


def _register_tile_1d(t: Mapping[str, int]) -> Plan:
    return _tiled("04_register_tile_1d.cu", t)


def _register_tile_2d(t: Mapping[str, int]) -> Plan:
    return _tiled("05_register_tile_2d.cu", t)


def _vectorized(t: Mapping[str, int]) -> Plan:
    return _tiled("06_vectorized.cu", t, _transposed(t["BM"], t["BK"], t["BM"], "tile_a"))


def _bank_free(t: Mapping[str, int]) -> Plan:
    BM, k = t["BM"], np.arange(t["BK"])
    cols = 4 * BM + 128 // t["BK"]  # four rows and their padding
    As = Layout(t["BK"] // 4, cols, np.arange(BM)[:, None] + k // 4 * cols + k % 4 * BM, "tile_a")
    return _tiled("07_bank_free.cu", t, As)


def _double_buffer(t: Mapping[str, int]) -> Plan:
    BM, BN, BK = t["BM"], t["BN"], t["BK"]
    size = BK * (BM + 4) * 4
    As = _transposed(BM, BK, BM + 4, "shared", stride=size)
    Bs = _plain(BK, BN, "shared", start=t["STAGES"] * size, stride=BK * BN * 4)
    return replace(_tiled("08_double_buffer.cu", t, As, Bs, _ASYNC), stages=t["STAGES"])


def _warp_tile(t: Mapping[str, int]) -> Plan:
    return replace(_double_buffer(t), file="gemm/09_warp_tile.cu")


def _register_pipeline(t: Mapping[str, int]) -> Plan:
    return replace(_warp_tile(t), file="gemm/20_register_pipeline.cu")


def _grouped_order(t: Mapping[str, int]) -> Plan:
    return replace(_register_pipeline(t), file="gemm/21_grouped_order.cu")


def _wmma(t: Mapping[str, int]) -> Plan:
    BM, BN, BK = t["BM"], t["BN"], t["BK"]
    As = _pitched(BM, BK, BK + 8, "shared", item=2)
    Bs = _pitched(BK, BN, BN + 8, "shared", start=BM * (BK + 8) * 2, item=2)
    filled = _lines(r"load_tile<.+>\(tile_a", r"load_tile<.+>\(tile_b")
    marks = ("wmma::fill_fragment", *filled, "wmma::mma_sync", *_LINES[4:])
    return _by_warps("10_wmma.cu", t, marks, As, Bs)


def _mma_sync(t: Mapping[str, int]) -> Plan:
    BM, BN, BK = t["BM"], t["BN"], t["BK"]
    stage = (BM + BN) * BK * 2
    marks = (_LINES[0], "copy_part<BM, BK>(tile_a", "copy_part<BK, BN>(tile_b", "multiply(sum", *_LINES[4:])
    As = _swizzled(BM, BK, "shared", stride=stage, item=2)
    Bs = _swizzled(BK, BN, "shared", start=BM * BK * 2, stride=stage, item=2)
    return _by_warps("11_mma_sync.cu", t, marks, As, Bs, stages=t["STAGES"])


def _swizzled(rows: int, cols: int, buffer: str, **options) -> Layout:
    """Returns the layout of rows of 16-bit elements whose groups of eight are permuted as by `swizzled` in mma.cuh."""
    row, col = np.arange(rows)[:, None], np.arange(cols)
    pieces = cols // 8
    swizzle = row // max(1, 8 // pieces) % min(pieces, 8)
    return Layout(rows, cols, row * cols + (col // 8 ^ swizzle) * 8 + col % 8, buffer, **options)


def _dp4a(t: Mapping[str, int]) -> Plan:
    BM, BN, BK = t["BM"], t["BN"], t["BK"]
    marks = (*_LINES[:3], "__dp4a(a", *_LINES[4:])
    m, k, n = np.arange(BM)[:, None], np.arange(BK), np.arange(BN)
    As = Layout(BK // 4, (BM + 4) * 4, (k // 4 * (BM + 4) + m) * 4 + k % 4, "tile_a", item=1)
    Bs = Layout(BK // 4, BN * 4, (k[:, None] // 4 * BN + n) * 4 + k[:, None] % 4, "tile_b", item=1)
    return replace(_tiled("12_dp4a.cu", t, As, Bs, marks), depth=4)


def _by_warps(file: str, t: Mapping[str, int], marks: tuple[Mark, ...], As: Layout, Bs: Layout, **options) -> Plan:
    """Returns the plan of warps. Each has the sums of WM x WN elements; tensor cores add 16 terms at once."""
    BM, BN, WM, WN = (t[name] for name in ("BM", "BN", "WM", "WN"))
    return Plan(f"gemm/{file}", t, BM, BN, t["BK"], WM, WN, marks, As, Bs, depth=16, owner="warp", **options)


def _tiled(
    file: str,
    t: Mapping[str, int],
    As: Layout | None = None,
    Bs: Layout | None = None,
    marks: tuple[Mark, ...] = _LINES,
) -> Plan:
    """Returns the plan of threads. Tiles are row-major unless As and Bs say otherwise."""
    BM, BN, BK, TM, TN = (t.get(name, 1) for name in ("BM", "BN", "BK", "TM", "TN"))
    As, Bs = As or _plain(BM, BK, "tile_a"), Bs or _plain(BK, BN, "tile_b")
    return Plan(f"gemm/{file}", t, BM, BN, BK, TM, TN, marks, As, Bs)


PLANS: dict[str, Callable[[Mapping[str, int]], Plan]] = {
    "gemm/uncoalesced": _uncoalesced,
    "gemm/naive": _naive,
    "gemm/shared-tile": _shared_tile,
    "gemm/register-tile-1d": _register_tile_1d,
    "gemm/register-tile-2d": _register_tile_2d,
    "gemm/vectorized": _vectorized,
    "gemm/bank-free": _bank_free,
    "gemm/double-buffer": _double_buffer,
    "gemm/warp-tile": _warp_tile,
    "gemm/register-pipeline": _register_pipeline,
    "gemm/grouped-order": _grouped_order,
    "gemm/wmma": _wmma,
    "gemm/mma-sync": _mma_sync,
    "gemm/dp4a": _dp4a,
}


def plan_of(shape: GemmShape, rung: str, tiles: Mapping[str, int]) -> Plan:
    """Returns the plan of a rung at a shape. Missing tile sizes are the rung's defaults."""
    plan = PLANS[rung](find(rung).default_tiles | dict(tiles))
    if rung == "gemm/mma-sync" and (shape.K % 8 or shape.N % 8):  # rows not aligned to 16 bytes: no asynchronous copies
        marks = (plan.marks[0], "tile_a[swizzled", "tile_b[swizzled", *plan.marks[3:])
        return replace(plan, stages=1, marks=marks)
    return plan


def why_not(shape: GemmShape, rung: str, tiles: Mapping[str, int]) -> str:
    """Returns why a rung has no scene of this kind at a shape; "" if it has one."""
    if rung in HOPPER:
        elsewhere = tr(
            "{title}: the lesson Hopper shows its copies, its sums and its blocks.", title=tr(find(rung).title)
        )
        return scene_why_not.broken_rule(rung, shape, tiles) or elsewhere
    return scene_why_not.why_not(rung, shape, tiles, PLANS)
