"""conv/fft-tiled: convolution by FFT with our own transforms of small tiles and a batch of complex matrix products.

A tile of T x T pixels yields T - span + 1 right outputs each way (overlap-save, as in kernels.conv.fft). If one tile
covers a whole image, the zeros at its two ends may be the same zeros: the tile is periodic. Then a tile of 8 x 8 covers
an image of 7 x 7 with one row of padding at each side.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.conv import common, fft, fft_tiled_cpu
from kernels.conv.shape import ConvShape
from kernels.conv.winograd_cpu import round_up_to_4
from kernels.i18n import decimal, mark, tr
from kernels.model.launch import ampere, ceil, launch
from kernels.model.program import WORKSPACE, Buffer, Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, broken, index_rules, shared_rules
from kernels.model.rung import Cost, Rung

CHOSEN = 0  # FFT_TILE: the size with the lowest estimate
SIZES = (8, 16, 32)
SMS = 132  # of an H200: the parts are made for a GPU of about that size
PART_OVERHEAD = 32  # what a part costs besides its channels, in channels
FLOPS_PER_BYTE = 12.5  # FP32 arithmetic over memory bandwidth of an H200, for the estimate


def frequencies(size: int) -> int:
    """Returns the complex frequencies of a real tile that are stored: two of its columns are half as long."""
    return size * size // 2 + 2


def _axis(size: int, span: int, pad: int, extent: int, outputs: int) -> tuple[int, int]:
    """Returns (outputs of one tile, tiles) of one axis, at stride 1."""
    windows_end = outputs + span - 1  # pixels that the windows cover
    periodic = outputs <= size and pad + extent <= size and windows_end - size <= pad
    step = outputs if periodic else size - span + 1
    return step, ceil(outputs, step)


def _tiling(s: ConvShape, size: int) -> tuple[int, int, int, int]:
    """Returns (step_h, step_w, down, across) of tiles size x size."""
    step_h, down = _axis(size, s.span_h, s.pad_h, s.H, (s.P - 1) * s.u + 1)
    step_w, across = _axis(size, s.span_w, s.pad_w, s.W, (s.Q - 1) * s.v + 1)
    return step_h, step_w, down, across


def estimate(s: ConvShape, size: int) -> float:
    """Returns a relative time of tiles size x size: the bytes of all spectra, and the FLOPs of the products as bytes."""
    *_, down, across = _tiling(s, size)
    tiles, count = s.N * down * across, frequencies(size)
    return 16 * count * (s.K * s.C + tiles * (s.C + s.K)) + 8 * count * tiles * s.K * s.C / FLOPS_PER_BYTE


def size_of(s: ConvShape, tiles: Tiles) -> int:
    """Returns the side of a tile: FFT_TILE, or the size that covers the filter with the lowest estimate."""
    able = [size for size in SIZES if max(s.span_h, s.span_w) <= size]
    return tiles["FFT_TILE"] or min(able or SIZES[-1:], key=lambda size: estimate(s, size))


def cut(s: ConvShape, tiles: Tiles) -> np.void:
    """Returns how the input is cut into tiles: the kernels' `struct Tiling` (kernels/conv/cuda/fft.cuh)."""
    size = size_of(s, tiles)
    return np.array([(size, size, *_tiling(s, size))], fft.CUT_STRUCT)[0]


def tile_count(s: ConvShape, cut_struct: np.void) -> int:
    return s.N * int(cut_struct["down"]) * int(cut_struct["across"])


def block_sides(tiles: Tiles, K: int, row: int) -> tuple[int, int]:
    """Returns (BM, BN), or less if the matrices have fewer rows or columns."""
    return min(tiles["BM"], 64 * ceil(K, 64)), min(tiles["BN"], 32 * ceil(row, 32))


def terms_of_part(s: ConvShape, tiles: Tiles, blocks: int) -> int:
    """Returns the channels of a part of the sum: parts are added until the SMs have equal work.

    The estimate is the time of the busiest SM: its blocks times the channels of each, with PART_OVERHEAD.
    """
    BK = tiles["BK"]

    def terms(parts: int) -> int:
        return ceil(ceil(s.C, BK), parts) * BK

    def time(parts: int) -> int:
        return ceil(blocks * ceil(s.C, terms(parts)), SMS) * (terms(parts) + PART_OVERHEAD)

    return terms(min(range(1, 1 + max(1, min(8, s.C // (4 * BK)))), key=time))


def build(s: ConvShape, tiles: Tiles) -> Program:
    return program(s, tiles, cut(s, tiles))


def program(s: ConvShape, tiles: Tiles, cut_struct: np.void) -> Program:
    """Returns a program with spectra of filters U, of tiles V, and of outputs Z, all [frequencies, 2, rows, columns], whose input is cut
    into these tiles."""
    conv = common.struct(s)
    size = int(cut_struct["rows"])
    count, tile_total = frequencies(size), tile_count(s, cut_struct)
    row, group = round_up_to_4(tile_total), tiles_per_block(size)
    bm, bn = block_sides(tiles, s.K, row)
    across, down = ceil(row, bn), ceil(s.K, bm)
    terms = terms_of_part(s, tiles, across * down * count)
    parts = ceil(s.C, terms)
    U = Buffer("U", WORKSPACE, (count, 2, s.C, round_up_to_4(s.K)))
    V = Buffer("V", WORKSPACE, (count, 2, s.C, row))
    Z = Buffer("Z", WORKSPACE, (parts, count, 2, s.K, row))

    block, defines = group * size // 2, {"SIZE": size, "TILES": group}
    product_defines = {"BM": bm, "BN": bn, "BK": tiles["BK"], "STAGES": tiles["STAGES"]}
    extents = tuple(np.int32(n) for n in (s.K, s.C, row, count, terms))
    steps = (
        launch("conv/50_fft_tiled_filter.cu", (ceil(round_up_to_4(s.K), group), s.C), block,
               ("w", "U", conv), fft_tiled_cpu.filters(size), defines),
        launch("conv/51_fft_tiled_input.cu", (ceil(row, group), s.C), block,
               ("x", "V", conv, cut_struct), fft_tiled_cpu.inputs, defines),
        launch("conv/52_fft_tiled_product.cu", (across, down, count * parts), bm // 8 * (bn // 4),
               ("U", "V", "Z", *extents), fft_tiled_cpu.product, product_defines),
        launch("conv/53_fft_tiled_output.cu", (ceil(tile_total, group), s.K), block,
               ("Z", common.bias_name(s), "y", conv, cut_struct, common.layer(s), np.int32(parts)),
               fft_tiled_cpu.outputs, defines),
    )  # fmt: skip
    return Program((*common.buffers(s), U, V, Z), steps)


def tiles_per_block(size: int) -> int:
    """Returns the tiles that a block transforms: 32 for a whole warp, fewer if they exceed its shared memory."""
    return 32 if size <= 16 else 8


def rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    yield from common.ungrouped_rules(s)
    yield from shared_rules("8*STAGES*BK*(BM + BN)", 8 * tiles["STAGES"] * tiles["BK"] * (tiles["BM"] + tiles["BN"]))
    size = tiles["FFT_TILE"] or SIZES[-1]
    sides = (("dilation_h*(R-1)+1", s.span_h), ("dilation_w*(S-1)+1", s.span_w))
    too_large = [broken(f"{name} <= FFT_TILE ({size})", span) for name, span in sides if span > size]
    yield from too_large
    if too_large:  # no cut is possible
        return
    cut_struct = cut(s, tiles)
    size, count = int(cut_struct["rows"]), tile_count(s, cut_struct)
    row = round_up_to_4(count)
    for name, extent in (("C", s.C), ("K", s.K)):
        if extent > MAX_GRID_YZ:
            yield broken(f"{name} <= {MAX_GRID_YZ} (grid.y)", extent)
    names = {
        "K*P*Q": s.K * s.PQ,
        "H*W": s.H * s.W,
        "C*K": s.C * round_up_to_4(s.K),
        "C*N*down*across": s.C * row,
        "K*N*down*across": s.K * row,
        "N*down*across": row + tiles["BN"],
        "R*S": s.R * s.S,
        "C*R*S": s.CRS,
        "H + FFT_TILE": s.H + s.pad_h + size,
        "W + FFT_TILE": s.W + s.pad_w + size,
    }
    yield from index_rules(names, 64)
    needed = 8 * frequencies(size) * (s.C * round_up_to_4(s.K) + (s.C + s.K) * row)
    if needed > fft.MAX_WORKSPACE:
        yield tr(
            "the workspace must not exceed {limit} bytes, got {needed}",
            limit=decimal(f"{fft.MAX_WORKSPACE:,}"),
            needed=decimal(f"{needed:,}"),
        )


def cost(s: ConvShape, program: Program) -> Cost:
    """Returns the FLOPs executed: 2.5 n log2 n for a real transform of n numbers, 8 for a complex multiply-add.

    Bytes are those of common.cost.
    """
    cut_struct, tensors_cost = fft.cut_of(program.steps[1]), common.cost(s, program)
    size, count = int(cut_struct["rows"]), tile_count(s, cut_struct)
    transforms = s.K * s.C + count * (s.C + s.K)
    flops = round(2.5 * size * size * np.log2(size * size) * transforms)
    products = 8 * frequencies(size) * count * s.K * s.C
    return Cost(flops + products, tensors_cost.bytes, tensors_cost.workspace_bytes)


RUNG = Rung(
    name="conv/fft-tiled",
    title=mark("FFT in tiles"),
    idea=mark(
        "The image is cut into small tiles. One thread transforms a row or column of a tile in its registers. The "
        "products of spectra are one complex matrix product for each frequency."
    ),
    build=build,
    cost=cost,
    rules=rules,
    tolerance=fft.TOLERANCE,
    family="fft",
    short_title=mark("FFT tiles"),
    tiles={"FFT_TILE": (CHOSEN, *SIZES), "BM": (128, 64), "BN": (32, 64), "BK": (8, 16), "STAGES": (3, 2, 4)},
    sets=({"FFT_TILE": 8}, {"FFT_TILE": 16}, {"FFT_TILE": 32}),
    scale=fft.scale,
    capability=ampere,
    cpu_title=mark("FFT in tiles (NumPy)"),
    cpu_tiles=("FFT_TILE",),
)
