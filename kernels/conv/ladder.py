"""Convolution, forward, FP32, NCHW: from the definition to the library."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.conv import common, cpu, fft, fft_tiled, implicit, library, reference, winograd
from kernels.conv.common import TOLERANCE, cost, struct
from kernels.conv.presets import CONV_LAYER_PRESETS, CONV_PRESETS
from kernels.conv.shape import CONV_SINCE, EXTRA_SINCE, ConvShape, parse_conv
from kernels.i18n import mark
from kernels.libraries import cublas
from kernels.model.launch import ceil, launch
from kernels.model.program import WORKSPACE, Buffer, LibraryCall, Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, broken, index_rules
from kernels.model.rung import Ladder, Rung

BLOCKS = (256, 64, 128, 512)
TILES = (16, 8, 32)


def build_direct(s: ConvShape, tiles: Tiles) -> Program:
    block = tiles["BLOCK"]
    grid, args = (ceil(s.K * s.PQ, block), s.N), ("x", "w", "y", struct(s))
    direct = launch("conv/01_direct.cu", grid, block, args, cpu.direct)
    return Program(common.buffers(s), (direct, *common.finish(s)))


def _with_columns(s: ConvShape, tiles: Tiles, product) -> Program:
    """Returns im2col into a workspace [N, C*R*S, P*Q], then `product`: filters [K, C*R*S] x columns, per image."""
    block = tiles["BLOCK"]
    col = Buffer("col", WORKSPACE, (s.N, s.CRS, s.PQ))
    grid, args = (ceil(s.C * s.PQ, block), s.N), ("x", "col", struct(s))
    im2col = launch("conv/02_im2col.cu", grid, block, args, cpu.im2col)
    return Program((*common.buffers(s), col), (im2col, product, *common.finish(s)))


def _product_args(s: ConvShape):
    return ("w", "col", "y", np.int32(s.K), np.int32(s.PQ), np.int32(s.CRS))


def build_im2col_gemm(s: ConvShape, tiles: Tiles) -> Program:
    tile, cpu_function = tiles["TILE"], _matrices(cpu.tiled_gemm(tiles["TILE"]))
    grid = ceil(s.PQ, tile), ceil(s.K, tile), s.N
    gemm = launch("conv/03_gemm.cu", grid, (tile, tile), _product_args(s), cpu_function, {"TILE": tile})
    return _with_columns(s, tiles, gemm)


def build_im2col_cublas(s: ConvShape, tiles: Tiles) -> Program:
    cpu_function = _matrices(cpu.library_gemm)
    product = LibraryCall("cublas_sgemm", _product_args(s), cpu_function, cublas.sgemm, "product")
    return _with_columns(s, tiles, product)


def _matrices(gemm):
    """Returns a matrix product on the convolution's buffers: w reshaped to [K, C*R*S], y to [N, K, P*Q]."""

    def compute(w, col, y, rows, cols, inner):
        gemm(w.reshape(rows, inner), col, y.reshape(len(y), rows, cols), rows, cols, inner)

    return compute


def direct_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    yield from common.ungrouped_rules(s)
    if s.N > MAX_GRID_YZ:
        yield broken(f"N <= {MAX_GRID_YZ} (grid.y)", s.N)
    yield from index_rules({"K*P*Q": s.K * s.PQ, "R*S": s.R * s.S}, tiles["BLOCK"], "BLOCK")


def im2col_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    yield from direct_rules(s, tiles)
    yield from index_rules({"C*P*Q": s.C * s.PQ, "C*R*S": s.CRS}, tiles["BLOCK"], "BLOCK")
    if "TILE" in tiles and ceil(s.K, tiles["TILE"]) > MAX_GRID_YZ:
        yield broken(f"K <= {MAX_GRID_YZ}*TILE (grid.y)", s.K)


BASIC_RUNGS: tuple[Rung, ...] = (
    Rung(
        name="conv/direct",
        title=mark("direct"),
        idea=mark(
            "One thread per output pixel adds the products of its window. This is the definition, without workspace."
        ),
        build=build_direct,
        cost=cost,
        rules=direct_rules,
        tolerance=TOLERANCE,
        family="direct",
        short_title=mark("direct"),
        tiles={"BLOCK": BLOCKS},
        cpu_title=mark("direct"),
    ),
    Rung(
        name="conv/im2col-gemm",
        title=mark("im2col + our GEMM"),
        idea=mark(
            "Each window is written out as a column. Then one matrix product, tiled in shared memory, computes "
            "all outputs."
        ),
        build=build_im2col_gemm,
        cost=cost,
        rules=im2col_rules,
        tolerance=TOLERANCE,
        family="im2col",
        short_title=mark("im2col"),
        tiles={"BLOCK": BLOCKS, "TILE": TILES},
        cpu_title=mark("im2col + blocked product"),
        cpu_tiles=("TILE",),
    ),
    Rung(
        name="conv/im2col-cublas",
        title=mark("im2col + cuBLAS"),
        idea=mark("The same columns. The vendor's library computes the product."),
        build=build_im2col_cublas,
        cost=cost,
        rules=im2col_rules,
        tolerance=TOLERANCE,
        family="im2col",
        short_title=mark("im2col cuBLAS"),
        tiles={"BLOCK": BLOCKS},
        library="cuBLAS",
        cpu_title=mark("im2col + NumPy BLAS"),
    ),
)
DIRECT, *COLUMNS = BASIC_RUNGS
DIRECT_TILED, *IMPLICIT = implicit.RUNGS

LADDER = Ladder(
    name="conv",
    work=mark("direct convolution"),
    inputs=mark("input + filters"),
    matching=("R", "S", "u", "v", "dilation_h", "dilation_w", "mode", "groups", *EXTRA_SINCE),
    later_fields=CONV_SINCE,
    shape=ConvShape,
    parse=parse_conv,
    reference=reference.conv,
    presets=CONV_PRESETS | CONV_LAYER_PRESETS,
    rungs=(DIRECT, DIRECT_TILED, *COLUMNS, *IMPLICIT, *winograd.RUNGS, *fft.RUNGS, fft_tiled.RUNG, *library.RUNGS),
    swept=("toy", "resnet50-conv1-n32", *(f"resnet50-res{stage}-3x3-n32" for stage in (2, 3, 4, 5)), "vgg-conv1_2"),
)
