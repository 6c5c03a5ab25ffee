"""Winograd convolution, 3x3 with stride 1: fused in one kernel, and in steps around a batch of products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from kernels.conv import common, winograd_cpu, winograd_matrices
from kernels.conv.common import struct
from kernels.conv.shape import ConvShape
from kernels.conv.winograd_cpu import R, round_up_to_4
from kernels.i18n import mark, tr
from kernels.model.launch import WARP, ampere, ceil, launch
from kernels.model.program import WORKSPACE, Arg, Buffer, Launch, Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, broken, index_rules
from kernels.model.rung import Cost, Rung

FUSED_TILES = 32  # output tiles per block, as in 08_winograd_fused.cu
WARPS = {2: 8, 4: 12}  # divide the positions evenly, and divide evenly among an SM's four schedulers
SMS = 132  # of an H200: the parts are made for a GPU of about that size
PART_OVERHEAD = 40  # what a part costs besides its channels, in channels: storing the sums, adding them once more
MAX_PARTS, MIN_TERMS = 4, 64
FILTER_BLOCK = (32, 8)  # filters x channels, as in 07_winograd_filter.cu


# The measured |out - ref| / scale is below 2e-7 for every tile, from one channel to 512: the scale already grows
# with the transforms. One lost tap of 512 channels is above 7e-6 of it.
TOLERANCE = 5e-7
# Relative L2 error on normal random data. Measured at C = 64 and 512: 2.7e-7 and 7.1e-7 (M = 2), 1.6e-6 and 4.2e-6
# (M = 4), 3.0e-6 and 8.2e-6 (M = 6).
MAX_ERROR = {2: 3e-6, 4: 2e-5, 6: 4e-5}


def tiles_of(s: ConvShape, m: int) -> int:
    """Returns the number of output tiles m x m that cover all maps."""
    return s.N * ceil(s.P, m) * ceil(s.Q, m)


def positions(m: int) -> int:
    return (m + R - 1) ** 2


# -- programs -------------------------------------------------------------------------------------------
def _filters(s: ConvShape, m: int) -> tuple[Buffer, Launch]:
    """Returns the buffer of the transformed filters and the launch that computes them."""
    row, (across, down) = round_up_to_4(s.K), FILTER_BLOCK
    grid, args = (ceil(row, across), ceil(s.C, down)), ("w", "U", struct(s))
    step = launch("conv/07_winograd_filter.cu", grid, across * down, args, winograd_cpu.filters(m), {"M": m})
    return Buffer("U", WORKSPACE, (positions(m), s.C, row)), step


def build_fused(m: int):
    def build(s: ConvShape, tiles: Tiles) -> Program:
        U, transform = _filters(s, m)
        bk, bc, warps = tiles["BK"], tiles["BC"], WARPS[m]
        defines = {"M": m, "BK": bk, "BC": bc, "WARPS": warps}
        fused = launch(
            "conv/08_winograd_fused.cu",
            (ceil(tiles_of(s, m), FUSED_TILES), ceil(s.K, bk)),
            WARP * warps,
            ("x", "U", "y", struct(s)),
            winograd_cpu.fused(m, bc),
            defines,
            shared=8 * positions(m) * bc * (bk + FUSED_TILES),
        )
        return Program((*common.buffers(s), U), (transform, fused, *common.finish(s)))

    return build


def build_nonfused(s: ConvShape, tiles: Tiles) -> Program:
    """Returns a program with U [T*T, C, fours(K)], V [T*T, C, fours(tiles)], Z [T*T, K, fours(tiles)]."""
    U, transform = _filters(s, tiles["M"])
    workspace, steps = nonfused_steps(s, tiles)
    return Program((*common.buffers(s), U, *workspace), (transform, *steps, *common.finish(s)))


def nonfused_steps(
    s: ConvShape, tiles: Tiles, x: str = "x", y: str = "y"
) -> tuple[tuple[Buffer, Buffer], tuple[Launch, ...]]:
    """Returns the buffers V and Z, and the launches from the input x and the transformed filters U to the output y.

    Z[p] = U[p]^T V[p].
    """
    m, block = tiles["M"], tiles["BLOCK"]
    count, row, args = positions(m), round_up_to_4(tiles_of(s, m)), struct(s)
    terms = terms_of_part(s, tiles)
    parts = ceil(s.C, terms)
    V, Z = Buffer("V", WORKSPACE, (count, s.C, row)), Buffer("Z", WORKSPACE, (parts * count, s.K, row))
    product_defines = {name: tiles[name] for name in ("M", "BM", "BN", "BK", "STAGES")}

    def launch_per_tile(name: str, channels: int, arguments: tuple[Arg, ...], cpu_function) -> Launch:
        """Returns a launch with one thread for each tile of each channel."""
        grid = (ceil(channels * row, block),)
        return launch(f"conv/09_{name}.cu", grid, block, arguments, cpu_function, {"M": m, "BLOCK": block})

    grid = ceil(row, tiles["BN"]), ceil(s.K, tiles["BM"]), count * parts
    product = launch(
        "conv/09_winograd_product.cu",
        grid,
        threads(tiles),
        ("U", "V", "Z", args, np.int32(terms)),
        winograd_cpu.product,
        product_defines,
    )
    before = launch_per_tile("winograd_input", s.C, (x, "V", args), winograd_cpu.inputs(m))
    after = launch_per_tile("winograd_output", s.K, ("Z", y, args, np.int32(parts)), winograd_cpu.outputs(m))
    return (V, Z), (before, product, after)


def terms_of_part(s: ConvShape, tiles: Tiles) -> int:
    """Returns the channels of a part of the product: parts are added until the SMs have equal work.

    The estimate is the time of the busiest SM: its blocks times the channels of each, with PART_OVERHEAD.
    """
    BK, row = tiles["BK"], round_up_to_4(tiles_of(s, tiles["M"]))
    blocks = ceil(row, tiles["BN"]) * ceil(s.K, tiles["BM"]) * positions(tiles["M"])

    def terms(parts: int) -> int:
        return ceil(ceil(s.C, BK), parts) * BK

    def time(parts: int) -> int:
        return ceil(blocks * ceil(s.C, terms(parts)), SMS) * (terms(parts) + PART_OVERHEAD)

    return terms(min(range(1, 1 + max(1, min(MAX_PARTS, s.C // MIN_TERMS))), key=time))


def threads(tiles: Tiles) -> int:
    """Returns the threads of a block of the product, each with 8 x 8 sums."""
    return tiles["BM"] // 8 * (tiles["BN"] // 8)


# -- rules: each yields a sentence for each rule that a shape or a choice of tiles breaks ----------------
def shape_rules(s: ConvShape, m: int) -> Iterator[str]:
    if (s.R, s.S) != (R, R):
        yield tr("R and S must be 3, got {R} and {S}", R=s.R, S=s.S)
    if s.stride != (1, 1):
        yield tr("stride must be 1 in both axes (the tiles overlap only then), got {u} and {v}", u=s.u, v=s.v)
    if s.dilation != (1, 1):
        yield tr("dilation must be 1 in both axes, got {down} and {across}", down=s.dilation_h, across=s.dilation_w)
    yield from common.ungrouped_rules(s)
    yield from common.finish_rules(s)
    if ceil(s.C, FILTER_BLOCK[1]) > MAX_GRID_YZ:
        yield broken(f"C <= {MAX_GRID_YZ}*{FILTER_BLOCK[1]} (grid.y)", s.C)
    # The last tile may end up to m + 1 pixels beyond the map.
    yield from index_rules({"P + 2*M": s.P + 2 * m, "Q + 2*M": s.Q + 2 * m, "K": s.K + FILTER_BLOCK[0]}, 0)


def fused_rules(m: int):
    def rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
        yield from shape_rules(s, m)
        if ceil(s.K, tiles["BK"]) > MAX_GRID_YZ:
            yield broken(f"K <= {MAX_GRID_YZ}*BK (grid.y)", s.K)
        yield from index_rules(
            {tr("{formula} tiles", formula=f"N*ceil(P/{m})*ceil(Q/{m})"): tiles_of(s, m)}, FUSED_TILES
        )

    return rules


def nonfused_rules(s: ConvShape, tiles: Tiles) -> Iterator[str]:
    yield from shape_rules(s, tiles["M"])
    if ceil(s.K, tiles["BM"]) > MAX_GRID_YZ:
        yield broken(f"K <= {MAX_GRID_YZ}*BM (grid.y)", s.K)
    row, margin = round_up_to_4(tiles_of(s, tiles["M"])), max(tiles["BLOCK"], tiles["BN"])
    counts = {tr("{name} × output tiles", name=name): maps * row for name, maps in (("C", s.C), ("K", s.K))}
    yield from index_rules(counts, margin)


# -- cost -----------------------------------------------------------------------------------------------
def flops(s: ConvShape, m: int, input_transforms: int = 1) -> int:
    """Returns the FLOPs executed: three transforms and one multiply-add for each position, tile, filter and channel.

    The input is transformed `input_transforms` times. `s.flops` are the effective FLOPs, those of direct convolution.
    """
    t, tiles = winograd_matrices.derive(m, R), tiles_of(s, m)
    flops_of = {name: winograd_matrices.operations_2d(X).flops for name, X in (("AT", t.AT), ("G", t.G), ("BT", t.BT))}
    return (
        2 * positions(m) * tiles * s.K * s.C
        + flops_of["G"] * s.K * s.C
        + flops_of["BT"] * tiles * s.C * input_transforms
        + flops_of["AT"] * tiles * s.K
    )


def cost(s: ConvShape, program: Program) -> Cost:
    """Returns the FLOPs executed, and bytes as for every rung of the ladder.

    The fused kernel transforms the input once for every BK filters: once for each block along grid.y.
    """
    tensors_cost = common.cost(s, program)
    main = program.launch(1)  # after the filters' transform
    m = dict(main.defines)["M"]
    return Cost(flops(s, m, main.grid[1]), tensors_cost.bytes, tensors_cost.workspace_bytes)


def scale(m: int | None = None) -> Callable[[ConvShape, Tiles, Mapping[str, np.ndarray]], np.ndarray]:
    """Returns a function for the error scale of F(m x m, 3 x 3). If m is None, m is the tile size M."""

    def error_scale(s: ConvShape, tiles: Tiles, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        spread = winograd_cpu.error_scale(s, m or tiles["M"], inputs["x"], inputs["w"])
        return spread + np.abs(inputs["b"].astype("float64"))[:, None, None] if s.bias else spread

    return error_scale


NONFUSED_TILES = {"M": (4, 2, 6), "BLOCK": (128, 256), "BM": (64, 128), "BN": (64, 128), "BK": (16,), "STAGES": (3, 2)}

RUNGS = (
    Rung(
        name="conv/winograd-2x2",
        title=mark("Winograd 2×2, fused"),
        idea=mark(
            "16 multiplications instead of 36 for 2×2 outputs. One kernel transforms tiles, multiplies them and "
            "transforms the products back. A small launch before it transforms the filters."
        ),
        build=build_fused(2),
        cost=cost,
        rules=fused_rules(2),
        tolerance=TOLERANCE,
        family="winograd",
        short_title=mark("Winograd 2×2"),
        tiles={"BK": (64, 32), "BC": (8, 4)},
        cpu_title=mark("Winograd 2×2, image by image"),
        cpu_tiles=("BC",),
        scale=scale(2),
        capability=ampere,
    ),
    Rung(
        name="conv/winograd-4x4",
        title=mark("Winograd 4×4, fused"),
        idea=mark(
            "36 multiplications instead of 144 for 4×4 outputs, by the same kernel. But 36 positions limit a "
            "block to 32 filters, and the error grows."
        ),
        build=build_fused(4),
        cost=cost,
        rules=fused_rules(4),
        tolerance=TOLERANCE,
        family="winograd",
        short_title=mark("Winograd 4×4"),
        tiles={"BK": (32,), "BC": (8, 4)},
        cpu_title=mark("Winograd 4×4, image by image"),
        cpu_tiles=("BC",),
        scale=scale(4),
        capability=ampere,
    ),
    Rung(
        name="conv/winograd-nonfused",
        title=mark("Winograd in steps"),
        idea=mark(
            "Filters and input are transformed to matrices. One matrix product per position of a tile follows, "
            "then the transform back. The steps need a workspace between them."
        ),
        build=build_nonfused,
        cost=cost,
        rules=nonfused_rules,
        tolerance=TOLERANCE,
        family="winograd",
        short_title=mark("Winograd steps"),
        tiles=NONFUSED_TILES,
        sets=({"M": 2}, {"M": 6}, {"BLOCK": 256}, {"BN": 128}, {"BM": 128}, {"STAGES": 2}),
        scale=scale(),
        capability=ampere,
        cpu_title=mark("Winograd in steps"),
        cpu_tiles=("M",),
    ),
)
