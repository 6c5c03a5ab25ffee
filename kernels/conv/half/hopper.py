"""The rungs of the FP16 convolution for Hopper: wgmma, with the input copied by the copy engine (TMA)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernels.conv.common import struct
from kernels.conv.half import common, cpu
from kernels.conv.half.reference import TOLERANCE
from kernels.conv.half.shape import HalfShape
from kernels.i18n import mark, tr
from kernels.model.launch import WARP, ceil, hopper, launch
from kernels.model.program import Program, Tiles
from kernels.model.rules import MAX_GRID_YZ, MAX_SHARED, max_rules, shared_rules
from kernels.model.rung import HOPPER, TENSOR_CORES, Rung
from kernels.model.tensor_map import CORNERS, MAX_BOX, MAX_OFFSET, MAX_STEP, Im2colMap, StridedMap, TensorMap

BK = 64  # channels of a tile: a row has 128 bytes
CHUNK = 64  # filters of a box of the output: a row has 128 bytes
ROWS = 64  # pixels of a consumer
WARPGROUP = 128  # threads
CLUSTER = 2  # blocks
SIDE = 8  # rows and columns of a consumer's pixels, if its windows share a box
SWIZZLE = 128  # bytes
BOX_ALIGN = 1024  # bytes
BARRIER = 8  # bytes
TYPE, BYTES = "float16", 2


# -- maps -----------------------------------------------------------------------------------------------
def _strides(channels: int, *extents: int) -> tuple[int, ...]:
    """Returns the bytes between neighbours along each dimension of a tensor, after that of its channels."""
    strides = [BYTES * channels]
    for extent in extents[:-1]:
        strides.append(strides[-1] * extent)
    return tuple(strides)


def filters_map(s: HalfShape, filters: int) -> TensorMap:
    """Returns the map of the filters [K, R*S, C], in boxes [`filters`, 1, BK]."""
    taps = s.R * s.S
    return TensorMap("w", TYPE, (s.C, taps, s.K), _strides(s.C, taps, s.K), (BK, 1, filters), SWIZZLE)


def input_boxes(s: HalfShape, tiles: Tiles) -> StridedMap:
    """Returns the map of the input [N, H, W, C], in boxes [images, TH, TW, BK] of pixels under one filter tap."""
    extents = s.W, s.H, s.N
    box = BK, tiles["TW"], tiles["TH"], images(tiles)
    return StridedMap("x", TYPE, (s.C, *extents), _strides(s.C, *extents), box, SWIZZLE, (1, s.v, s.u, 1))


def output_boxes(s: HalfShape, tiles: Tiles) -> TensorMap:
    """Returns the map of the output [N, P, Q, K], in boxes [images, TH, TW, CHUNK]."""
    extents = s.Q, s.P, s.N
    box = CHUNK, tiles["TW"], tiles["TH"], images(tiles)
    return TensorMap("y", TYPE, (s.K, *extents), _strides(s.K, *extents), box, SWIZZLE)


def input_columns(s: HalfShape, tiles: Tiles) -> Im2colMap:
    """Returns the map of the input [N, H, W, C] by windows: BK channels of BM pixels."""
    extents = s.W, s.H, s.N
    return Im2colMap(
        "x", TYPE, (s.C, *extents), _strides(s.C, *extents), (BK, tiles["BM"]), SWIZZLE,
        (s.v, s.u), *corners(s),
    )  # fmt: skip


def corners(s: HalfShape) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns (lower, upper) of the windows' corners, each (W, H): upper is counted from the last pixel."""
    lower = -s.pad_w, -s.pad_h
    return lower, (s.after[1] + 1 - s.span_w, s.after[0] + 1 - s.span_h)


def output_rows(s: HalfShape, tiles: Tiles) -> TensorMap:
    """Returns the map of the output [N*P*Q, K], in boxes [BM, CHUNK]."""
    return TensorMap("y", TYPE, (s.K, s.pixels), _strides(s.K, s.pixels), (CHUNK, tiles["BM"]), SWIZZLE)


def input_halo(s: HalfShape, tiles: Tiles) -> TensorMap:
    """Returns the map of the input [N, H, W, C], in boxes of all pixels under TH x TW windows."""
    extents, (rows, columns) = (s.W, s.H, s.N), halo(s, tiles)
    return TensorMap(
        "x", TYPE, (s.C, *extents), _strides(s.C, *extents), (BK, columns, rows, images(tiles)), SWIZZLE
    )


def output_squares(s: HalfShape) -> TensorMap:
    """Returns the map of the output [N, P, Q, K], in boxes [1, SIDE, SIDE, CHUNK]."""
    extents = s.Q, s.P, s.N
    return TensorMap("y", TYPE, (s.K, *extents), _strides(s.K, *extents), (CHUNK, SIDE, SIDE, 1), SWIZZLE)


# -- programs -------------------------------------------------------------------------------------------
def images(tiles: Tiles) -> int:
    """Returns the images of a box."""
    return tiles["BM"] // (tiles["TH"] * tiles["TW"])


def boxes(s: HalfShape, tiles: Tiles) -> int:
    """Returns the boxes of output pixels."""
    return ceil(s.Q, tiles["TW"]) * ceil(s.P, tiles["TH"]) * ceil(s.N, images(tiles))


def threads(tiles: Tiles) -> int:
    return tiles["BM"] // ROWS * WARPGROUP + WARP


def ring_bytes(tiles: Tiles) -> int:
    """Returns the bytes of STAGES tiles of pixels and filters, and of the two barriers of each stage."""
    return tiles["STAGES"] * (BYTES * BK * (tiles["BM"] + tiles["BN"]) + 2 * BARRIER)


def halo(s: HalfShape, tiles: Tiles) -> tuple[int, int]:
    """Returns the rows and columns of the input under TH x TW windows."""
    return tiles["TH"] + s.span_h - 1, tiles["TW"] + s.span_w - 1


def halo_bytes(s: HalfShape, tiles: Tiles) -> int:
    """Returns the bytes of BOXES boxes of the input, of STAGES tiles of the filters, and of two barriers for each."""
    box = ceil(input_halo(s, tiles).box_bytes, BOX_ALIGN) * BOX_ALIGN
    barriers = 2 * BARRIER * (tiles["STAGES"] + tiles["BOXES"])
    return tiles["BOXES"] * box + tiles["STAGES"] * BYTES * BK * tiles["BN"] + barriers


def _program(
    s: HalfShape,
    source: str,
    rows: int,
    tiles: Tiles,
    x: TensorMap,
    y: TensorMap,
    shared: int = 0,
    parts: int = 1,
) -> Program:
    """Returns one launch. `rows`: blocks along the output pixels; `shared`: bytes of shared memory, those of a ring by
    default; `parts`: blocks that load a tile of the filters together."""
    w = filters_map(s, tiles["BN"] // parts)
    step = launch(
        f"conv/{source}", (ceil(s.K, tiles["BN"]), rows), threads(tiles), (x, w, y, struct(s)),
        cpu.taps, tiles, shared or ring_bytes(tiles), "product_per_tap",
    )  # fmt: skip
    return Program(common.buffers(s), (step,))


def build_boxes(s: HalfShape, tiles: Tiles) -> Program:
    return _program(
        s, "41_half_boxes.cu", boxes(s, tiles), tiles, input_boxes(s, tiles), output_boxes(s, tiles)
    )


def build_im2col(s: HalfShape, tiles: Tiles) -> Program:
    rows = ceil(s.pixels, tiles["BM"])
    return _program(s, "42_half_im2col.cu", rows, tiles, input_columns(s, tiles), output_rows(s, tiles))


def build_halo(s: HalfShape, tiles: Tiles) -> Program:
    return _program(
        s,
        "43_half_halo.cu",
        boxes(s, tiles),
        tiles,
        input_halo(s, tiles),
        output_squares(s),
        halo_bytes(s, tiles),
    )


def build_halo_pair(s: HalfShape, tiles: Tiles) -> Program:
    rows = ceil(boxes(s, tiles), CLUSTER) * CLUSTER
    x, y, shared = input_halo(s, tiles), output_squares(s), halo_bytes(s, tiles)
    return _program(s, "44_half_halo_pair.cu", rows, tiles, x, y, shared, CLUSTER)


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
        yield tr("BM % (TH*TW) == 0, got {got}", got=f"{tiles['BM']} % {pixels}")
        return
    yield from ring_rules(s, tiles, boxes(s, tiles))
    for name, step in (("TH", s.u), ("TW", s.v)):
        stride = "u" if name == "TH" else "v"
        yield from max_rules(f"{name}*{stride}", tiles[name] * step, MAX_BOX)
    yield from max_rules("BM/(TH*TW)", images(tiles), MAX_BOX)


def im2col_rules(s: HalfShape, tiles: Tiles) -> Iterator[str]:
    yield from ring_rules(s, tiles, ceil(s.pixels, tiles["BM"]))
    lower, upper = corners(s)
    for name, corner in (("-pad_w", lower[0]), ("-pad_h", lower[1]), ("pad_w+extra_w-dilation_w*(S-1)", upper[0]),
                         ("pad_h+extra_h-dilation_h*(R-1)", upper[1])):  # fmt: skip
        if corner not in CORNERS:
            yield tr(
                "the copy engine needs {name} in {low} .. {high}, got {got}",
                name=name, low=CORNERS[0], high=CORNERS[-1], got=corner,
            )  # fmt: skip
    for name, offset in (("dilation_h*(R-1)", s.span_h - 1), ("dilation_w*(S-1)", s.span_w - 1)):
        yield from max_rules(name, offset, MAX_OFFSET)


def halo_rules(s: HalfShape, tiles: Tiles) -> Iterator[str]:
    pixels = tiles["TH"] * tiles["TW"]
    if tiles["BM"] % pixels:
        yield tr("BM % (TH*TW) == 0, got {got}", got=f"{tiles['BM']} % {pixels}")
        return
    yield from common.kernel_rules(s, tiles)
    yield from max_rules(tr("blocks along the output pixels (grid.y)"), boxes(s, tiles), MAX_GRID_YZ)
    for axis, step in zip("uv", s.stride, strict=True):
        yield from max_rules(axis, step, 1)
    for name, extent in zip(("TH + dilation_h*(R-1)", "TW + dilation_w*(S-1)"), halo(s, tiles), strict=True):
        yield from max_rules(name, extent, MAX_BOX)
    if s.C > BK and tiles["BOXES"] < 2:
        yield tr("BOXES >= 2 if C > {channels}, got {got}", channels=BK, got=tiles["BOXES"])
    sums, shared = BYTES * tiles["BM"] * tiles["BN"], halo_bytes(s, tiles)
    if sums > shared:
        yield tr("2*BM*BN bytes of results fit into the {shared} bytes of boxes and tiles, got {sums}",
                 shared=shared, sums=sums)  # fmt: skip
    yield from max_rules(tr("bytes of shared memory for boxes and tiles"), shared, MAX_SHARED)


NO_WGMMA = mark(
    "NumPy has no copy engine and no tensor cores; without them this is one product per filter tap"
)
TILES = {"BM": (128, 64, 192, 256), "BN": (128, 64, 256), "STAGES": (4, 3, 5, 6, 8, 2)}
HALO_TILES = {
    "BM": (128, 64, 256), "BN": (128, 64, 256), "TH": (8, 16), "TW": (16, 8), "STAGES": (4, 3, 6, 8, 10, 2), "BOXES": (2, 1),
}  # fmt: skip
SMALL = {"BM": 64, "BN": 64, "STAGES": 2}


def _rung(name: str, title: str, idea: str, build: Callable, rules: Callable, tiles, *sets: Tiles) -> Rung:
    return Rung(
        f"conv-fp16/{name}", title, idea, build, common.cost, rules, TOLERANCE, tiles, sets=sets, units=TENSOR_CORES,
        capability=hopper, last_capability=HOPPER, not_on_cpu=NO_WGMMA,
        no_scene=mark("the stage shows implicit GEMM in FP32; the lesson on Hopper shows a ring of stages"),
    )  # fmt: skip


RUNGS: tuple[Rung, ...] = (
    _rung(
        "boxes",
        mark("boxes by the copy engine"),
        mark(
            "A tile is a box of output pixels. The copy engine loads the box of input pixels under each filter tap."
        ),
        build_boxes,
        boxes_rules,
        TILES | {"TH": (8, 4, 2, 1, 16), "TW": (8, 4, 2, 1, 16)},
        SMALL | {"TH": 4, "TW": 4},
    ),
    _rung(
        "im2col",
        mark("windows by the copy engine"),
        mark(
            "The copy engine goes from window to window by itself (im2col mode). No box extends beyond the output."
        ),
        build_im2col,
        im2col_rules,
        TILES,
        SMALL,
    ),
    _rung(
        "halo",
        mark("one box for all taps"),
        mark(
            "The box under all windows of a tile is loaded once. For each tap wgmma reads a shifted part of it."
        ),
        build_halo,
        halo_rules,
        HALO_TILES,
        SMALL | {"TW": 8},
        {"BN": 64, "TW": 8},
    ),
    _rung(
        "halo-pair",
        mark("clusters share the filters"),
        mark(
            "Two blocks form a cluster. Each loads half of a tile of the filters, and the copy goes to both."
        ),
        build_halo_pair,
        halo_rules,
        HALO_TILES,
        SMALL | {"TW": 8},
        {"BN": 64, "TW": 8},
    ),
)
