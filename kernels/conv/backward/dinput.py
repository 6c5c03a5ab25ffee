"""The gradient of convolution's input: direct, GEMM + col2im, and an implicit product by phases.

Transposed convolution is the same computation under other names (kernels/conv/backward/transpose.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

import numpy as np

from kernels.conv import implicit
from kernels.conv.backward import common, cpu
from kernels.conv.common import layer, struct, ungrouped_rules
from kernels.conv.shape import ConvShape
from kernels.i18n import tr
from kernels.model.launch import ceil, launch
from kernels.model.program import INPUT, OUTPUT, WORKSPACE, Buffer, Launch, Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, index_rules, max_rules
from kernels.model.zero import zero

PHASES = np.dtype(
    [(name, np.int32) for name in ("across", "tap_step_h", "tap_step_w", "output_step_h", "output_step_w")]
)


@dataclass(frozen=True)
class Names:
    """The names of the buffers: gradient of the output [N,K,P,Q], filters [K,C/groups,R,S], result [N,C,H,W]."""

    gradient: str = "dy"
    filters: str = "w"
    result: str = "dx"

    def buffers(self, s: ConvShape) -> tuple[Buffer, ...]:
        return (
            Buffer(self.gradient, INPUT, s.y_shape),
            Buffer(self.filters, INPUT, s.w_shape),
            Buffer(self.result, OUTPUT, s.x_shape),
        )


NAMES = Names()


def build_direct(s: ConvShape, tiles: Tiles, names: Names = NAMES) -> Program:
    args = names.gradient, names.filters, names.result, struct(s), layer(s)
    grid = ceil(s.C * s.H * s.W, tiles["BLOCK"]), s.N
    step = launch("conv/20_dinput_direct.cu", grid, tiles["BLOCK"], args, cpu.dinput_direct)
    return Program(names.buffers(s), (step,))


# -- GEMM + col2im ---------------------------------------------------------------------------------------
def _product(s: ConvShape, tile: int, names: Names) -> Launch:
    """Returns the launch that computes col [N, C*R*S, P*Q] = w [K, C*R*S] transposed x dy [N, K, P*Q]."""
    args = names.filters, names.gradient, "col", np.int32(s.CRS), np.int32(s.PQ), np.int32(s.K)
    grid = ceil(s.PQ, tile), ceil(s.CRS, tile), s.N
    function = cpu.gemm_transposed(tile)
    return launch("conv/21_gemm_transposed.cu", grid, (tile, tile), args, function, {"TILE": tile})


def build_gemm_atomics(s: ConvShape, tiles: Tiles, names: Names = NAMES) -> Program:
    grid, args = (ceil(s.C * s.PQ, tiles["BLOCK"]), s.N), ("col", names.result, struct(s))
    add = launch("conv/22_col2im_atomics.cu", grid, tiles["BLOCK"], args, cpu.col2im_scatter, cpu_name="col2im_scatter")
    steps = zero(names.result, s.elements["x"]), _product(s, tiles["TILE"], names), add
    return Program((*names.buffers(s), _columns(s)), steps)


def build_gemm_gather(s: ConvShape, tiles: Tiles, names: Names = NAMES) -> Program:
    grid, args = (ceil(s.C * s.H * s.W, tiles["BLOCK"]), s.N), ("col", names.result, struct(s))
    gather = launch("conv/23_col2im_gather.cu", grid, tiles["BLOCK"], args, cpu.col2im_gather)
    return Program((*names.buffers(s), _columns(s)), (_product(s, tiles["TILE"], names), gather))


def _columns(s: ConvShape) -> Buffer:
    return Buffer("col", WORKSPACE, (s.N, s.CRS, s.PQ))


def gemm_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    yield from ungrouped_rules(s)
    yield from common.image_rules(s, tiles)
    yield from index_rules({"C*P*Q": s.C * s.PQ, "C*R*S": s.CRS}, tiles["BLOCK"], "BLOCK")
    yield from max_rules(tr("C*R*S/TILE blocks (grid.y)"), ceil(s.CRS, tiles["TILE"]), MAX_GRID_YZ)


# -- implicit GEMM by phases -----------------------------------------------------------------------------
def phase_steps(s: ConvShape) -> np.void:
    """Returns the kernel's `struct Phases`: how many phases a row of pixels has, and how far apart their taps are.

    Taps r and r + step belong to one phase if step * dilation is a multiple of the stride. The smallest such step is
    stride / gcd(stride, dilation). One step then goes back dilation / gcd(stride, dilation) outputs.
    """
    common_h, common_w = gcd(s.u, s.dilation_h), gcd(s.v, s.dilation_w)
    values = (min(s.v, s.W), s.u // common_h, s.v // common_w, s.dilation_h // common_h, s.dilation_w // common_w)
    return np.array([values], PHASES)[0]


def phase_count(s: ConvShape) -> int:
    """Returns the number of phases: pixels with the same remainders by the stride. A small input has fewer."""
    return min(s.u, s.H) * min(s.v, s.W)


def build_implicit(s: ConvShape, tiles: Tiles, names: Names = NAMES) -> Program:
    columns = s.N * ceil(s.H, s.u) * ceil(s.W, s.v)  # of the first phase, the largest
    step = launch(
        "conv/24_dinput_implicit_gemm.cu",
        (ceil(columns, tiles["BN"]), ceil(s.maps, tiles["BM"]), s.groups * phase_count(s)),
        implicit.threads(tiles),
        (names.gradient, names.filters, names.result, struct(s), layer(s), phase_steps(s)),
        cpu.dinput_implicit_gemm(tiles["BM"], tiles["BN"], tiles["BK"]),
        tiles,
        implicit.implicit_shared(tiles),
    )
    return Program(names.buffers(s), (step,))


def implicit_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    BM, BN, BK = (tiles[name] for name in ("BM", "BN", "BK"))
    yield from common.plain_rules(s, tiles)
    yield from implicit.tile_rules(tiles)
    yield from max_rules(tr("groups*phases (grid.z)"), s.groups * phase_count(s), MAX_GRID_YZ)
    yield from max_rules(tr("C/groups/BM blocks (grid.y)"), ceil(s.maps, BM), MAX_GRID_YZ)
    yield from index_rules({"N*K*P*Q": s.elements["y"], "K*C/groups*R*S": s.elements["w"], "H*W": s.H * s.W}, 0)
    yield from index_rules({"N*H*W": s.N * s.H * s.W}, BN)
    yield from index_rules({"C/groups": s.maps}, BM)
    yield from index_rules({"K/groups*R*S": s.filters * s.R * s.S}, implicit.PART + tiles["STAGES"] * BK)
