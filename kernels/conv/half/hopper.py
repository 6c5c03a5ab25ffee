"""The rungs of the FP16 convolution for Hopper: wgmma, with the input copied by the copy engine (TMA)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernels.conv.common import struct
from kernels.conv.half import common, cpu, maps
from kernels.conv.half.maps import BK, SIDE
from kernels.conv.half.reference import TOLERANCE
from kernels.conv.half.shape import BYTES, HalfShape
from kernels.i18n import mark, tr
from kernels.model.launch import WARP, ceil, hopper, launch
from kernels.model.program import Arg, Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, MAX_SHARED, broken, max_rules, shared_rules
from kernels.model.rung import HOPPER, TENSOR_CORES, Rung
from kernels.model.tensor_map import CORNERS, MAX_BOX, MAX_OFFSET, MAX_STEP, TensorMap

ROWS = 64  # pixels of a consumer
WARPGROUP = 128  # threads
BOX_ALIGN = 1024  # bytes
BARRIER, FLOAT = 8, 4  # bytes


# -- programs -------------------------------------------------------------------------------------------
def boxes(s: HalfShape, tiles: Tiles) -> int:
    """Returns the boxes of output pixels."""
    return ceil(s.Q, tiles["TW"]) * ceil(s.P, tiles["TH"]) * ceil(s.N, maps.images(tiles))


def threads(tiles: Tiles) -> int:
    return tiles["BM"] // ROWS * WARPGROUP + WARP


def ring_bytes(tiles: Tiles) -> int:
    """Returns the bytes of STAGES tiles of pixels and filters, and of the two barriers of each stage."""
    return tiles["STAGES"] * (BYTES * BK * (tiles["BM"] + tiles["BN"]) + 2 * BARRIER)


def halo_bytes(s: HalfShape, tiles: Tiles) -> int:
    """Returns the bytes of BOXES boxes of the input, of STAGES tiles of the filters, and of two barriers for each."""
    box = ceil(maps.pixels_with_border(s, tiles).box_bytes, BOX_ALIGN) * BOX_ALIGN
    barriers = 2 * BARRIER * (tiles["STAGES"] + tiles["BOXES"])
    return tiles["BOXES"] * box + tiles["STAGES"] * BYTES * BK * tiles["BN"] + barriers


def _program(
    s: HalfShape, source: str, grid: tuple[int, ...], tiles: Tiles, x: TensorMap, y: Arg, shared: int
) -> Program:
    """Returns one launch. `shared`: bytes of shared memory."""
    args = x, maps.filters(s, tiles["BN"]), y, struct(s)
    step = launch(f"conv/{source}", grid, threads(tiles), args, cpu.taps, tiles, shared, "product_per_tap")
    return Program(common.buffers(s), (step,))


def build_boxes(s: HalfShape, tiles: Tiles) -> Program:
    grid = ceil(s.K, tiles["BN"]), boxes(s, tiles)
    x = maps.pixels_in_boxes(s, tiles)
    y = maps.output_boxes(s, tiles["TH"], tiles["TW"], maps.images(tiles))
    return _program(s, "41_half_boxes.cu", grid, tiles, x, y, ring_bytes(tiles))


def build_im2col(s: HalfShape, tiles: Tiles) -> Program:
    grid = ceil(s.K, tiles["BN"]), ceil(s.pixels, tiles["BM"])
    x, y = maps.pixels_by_windows(s, tiles), maps.output_rows(s, tiles)
    return _program(s, "42_half_im2col.cu", grid, tiles, x, y, ring_bytes(tiles))


def build_halo(s: HalfShape, tiles: Tiles) -> Program:
    grid = ceil(s.K, tiles["BN"]), boxes(s, tiles)
    x, y = maps.pixels_with_border(s, tiles), maps.output_boxes(s, SIDE, SIDE, 1)
    return _program(s, "43_half_halo.cu", grid, tiles, x, y, halo_bytes(s, tiles))


def build_halo_split(s: HalfShape, tiles: Tiles) -> Program:
    grid = ceil(s.K, tiles["BN"]), boxes(s, tiles), tiles["SPLIT"]
    shared = max(halo_bytes(s, tiles), FLOAT * tiles["BM"] * tiles["BN"])
    return _program(s, "44_half_halo_split.cu", grid, tiles, maps.pixels_with_border(s, tiles), "y", shared)


# -- rules ----------------------------------------------------------------------------------------------
def ring_rules(s: HalfShape, tiles: Tiles, rows: int) -> Iterator[str]:
    """Yields the rules of both rungs. `rows`: blocks along the output pixels."""
    yield from common.kernel_rules(s, tiles)
    yield from max_rules(tr("blocks along the output pixels (grid.y)"), rows, MAX_GRID_YZ)
    for axis, step in zip("uv", s.stride, strict=True):
        yield from max_rules(axis, step, MAX_STEP)
    yield from shared_rules("STAGES*(128*(BM+BN) + 16)", ring_bytes(tiles), MAX_SHARED)


def boxes_rules(s: HalfShape, tiles: Tiles) -> Iterator[str]:
    pixels = tiles["TH"] * tiles["TW"]
    if tiles["BM"] % pixels:
        yield broken("BM % (TH*TW) == 0", f"{tiles['BM']} % {pixels}")
        return
    yield from ring_rules(s, tiles, boxes(s, tiles))
    yield from max_rules("TH*u", tiles["TH"] * s.u, MAX_BOX)
    yield from max_rules("TW*v", tiles["TW"] * s.v, MAX_BOX)
    yield from max_rules("BM/(TH*TW)", maps.images(tiles), MAX_BOX)


def im2col_rules(s: HalfShape, tiles: Tiles) -> Iterator[str]:
    yield from ring_rules(s, tiles, ceil(s.pixels, tiles["BM"]))
    (left, top), (right, bottom) = maps.corners(s)
    corners = {
        "-pad_w": left,
        "-pad_h": top,
        "pad_w+extra_w-dilation_w*(S-1)": right,
        "pad_h+extra_h-dilation_h*(R-1)": bottom,
    }
    for name, corner in corners.items():
        if corner not in CORNERS:
            yield tr(
                "the copy engine needs {name} in {low} .. {high}, got {got}",
                name=name,
                low=CORNERS[0],
                high=CORNERS[-1],
                got=corner,
            )
    yield from max_rules("dilation_h*(R-1)", s.span_h - 1, MAX_OFFSET)
    yield from max_rules("dilation_w*(S-1)", s.span_w - 1, MAX_OFFSET)


def halo_rules(s: HalfShape, tiles: Tiles) -> Iterator[str]:
    pixels = tiles["TH"] * tiles["TW"]
    if tiles["BM"] % pixels:
        yield broken("BM % (TH*TW) == 0", f"{tiles['BM']} % {pixels}")
        return
    yield from common.kernel_rules(s, tiles)
    yield from max_rules(tr("blocks along the output pixels (grid.y)"), boxes(s, tiles), MAX_GRID_YZ)
    for axis, step in zip("uv", s.stride, strict=True):
        yield from max_rules(axis, step, 1)
    for name, extent in zip(("TH + dilation_h*(R-1)", "TW + dilation_w*(S-1)"), maps.halo(s, tiles), strict=True):
        yield from max_rules(name, extent, MAX_BOX)
    if s.C > BK and tiles["BOXES"] < 2:
        yield broken(tr("BOXES >= 2 if C > {channels}", channels=BK), tiles["BOXES"])
    shared = halo_bytes(s, tiles)
    yield from max_rules(tr("bytes of results, 2*BM*BN"), BYTES * tiles["BM"] * tiles["BN"], shared)
    yield from max_rules(tr("bytes of shared memory for boxes and tiles"), shared, MAX_SHARED)


def halo_split_rules(s: HalfShape, tiles: Tiles) -> Iterator[str]:
    yield from halo_rules(s, tiles)
    yield from max_rules("SPLIT", tiles["SPLIT"], ceil(s.C, BK))
    yield from max_rules(tr("bytes of sums, 4*BM*BN"), FLOAT * tiles["BM"] * tiles["BN"], MAX_SHARED)


NO_WGMMA = mark("NumPy has no copy engine and no tensor cores; without them this is one product per filter tap")
# Defaults and sets are those that were fastest at some layer of ResNet-50 on an H100.
TILES = {"BM": (128, 64, 192, 256), "BN": (64, 128, 256), "STAGES": (4, 3, 5, 6, 8, 2)}
HALO_TILES = {
    "BM": (128, 64, 256),
    "BN": (64, 128, 256),
    "TH": (8, 16),
    "TW": (8, 16),
    "STAGES": (4, 3, 6, 8, 10, 2),
    "BOXES": (2, 1),
}
SPLIT_TILES = HALO_TILES | {"BM": (64, 128, 256), "STAGES": (6, 4, 3, 8, 10, 2), "SPLIT": (2, 4, 8)}


# Which of them at a shape. At batch 32, res5 has 1,568 output pixels, res4 6,272 and res3 25,088.
FEW, MANY = 2048, 8192
BOXES_BETWEEN = {"BN": 128, "STAGES": 3, "TH": 4, "TW": 4}  # of maps whose sides are no multiple of 8
BOXES_SMALL = {"STAGES": 6, "TH": 2, "TW": 2}
LOW_TILES = {"BM": 64, "BN": 128}


def faster_boxes(s: HalfShape) -> Tiles:
    # A box of 8 x 8 pixels would extend beyond a smaller map. A tile of 2 x 2 pixels takes 32 images.
    if s.P < 8 and s.Q < 8 and s.N >= 32:
        return BOXES_SMALL
    exact = s.P % 4 == s.Q % 4 == 0 and (s.P % 8 or s.Q % 8)
    return BOXES_BETWEEN if exact and s.K >= 128 and s.pixels > MANY else {}


def faster_im2col(s: HalfShape) -> Tiles:
    if s.K >= 256 and s.pixels <= FEW:
        return LOW_TILES | {"STAGES": 8}
    if s.K >= 256 and s.pixels <= MANY:
        return {"BM": 64, "BN": 256, "STAGES": 5}
    return {"BM": 192, "BN": 128, "STAGES": 5} if s.K >= 128 and s.pixels > MANY else {}


def faster_halo(s: HalfShape) -> Tiles:
    if s.K >= 256 and s.pixels <= MANY:
        return LOW_TILES | ({"STAGES": 10} if s.pixels <= FEW else {})
    if s.pixels <= MANY:
        return {}
    return {"BN": 128, "STAGES": 3} if s.K >= 128 else {"STAGES": 6, "BOXES": 1} if s.C <= BK else {}


def faster_halo_split(s: HalfShape) -> Tiles:
    if s.K >= 128 and s.pixels > FEW // 2:
        return {"BM": 128, "BN": 128}
    return {"SPLIT": 8} if s.C >= 512 else {"SPLIT": 4} if s.C >= 256 and s.K >= 128 else {}


def _rung(name: str, title: str, idea: str, build: Callable, rules: Callable, faster, tiles, *sets: Tiles) -> Rung:
    return Rung(
        f"conv-fp16/{name}",
        title,
        idea,
        build,
        common.cost,
        rules,
        TOLERANCE,
        tiles,
        sets=sets,
        faster=faster,
        units=TENSOR_CORES,
        capability=hopper,
        last_capability=HOPPER,
        not_on_cpu=NO_WGMMA,
        no_scene=mark("the stage shows implicit GEMM in FP32; the lesson on Hopper shows a ring of stages"),
    )


RUNGS: tuple[Rung, ...] = (
    _rung(
        "boxes",
        mark("boxes by the copy engine"),
        mark("A tile is a box of output pixels. The copy engine loads the box of input pixels under each filter tap."),
        build_boxes,
        boxes_rules,
        faster_boxes,
        TILES | {"TH": (8, 4, 2, 1, 16), "TW": (8, 4, 2, 1, 16)},
        BOXES_BETWEEN,
        BOXES_SMALL,
    ),
    _rung(
        "im2col",
        mark("windows by the copy engine"),
        mark("The copy engine computes the window of each pixel (its mode im2col). No box extends beyond the output."),
        build_im2col,
        im2col_rules,
        faster_im2col,
        TILES,
        {"BM": 192, "BN": 128, "STAGES": 5},
        {"BM": 64, "BN": 256, "STAGES": 5},
        LOW_TILES | {"STAGES": 8},
    ),
    _rung(
        "halo",
        mark("one box for all taps"),
        mark("The box under all windows of a tile is loaded once. For each tap wgmma reads a shifted part of it."),
        build_halo,
        halo_rules,
        faster_halo,
        HALO_TILES,
        {"STAGES": 6, "BOXES": 1},
        {"BN": 128, "STAGES": 3},
        LOW_TILES,
        LOW_TILES | {"STAGES": 10},
    ),
    _rung(
        "halo-split",
        mark("clusters share the channels"),
        mark("The blocks of a cluster compute one tile. Each adds other channels, and they read each other's sums."),
        build_halo_split,
        halo_split_rules,
        faster_halo_split,
        SPLIT_TILES,
        {"SPLIT": 4},
        {"SPLIT": 8},
        {"BM": 128, "BN": 128},
    ),
)
