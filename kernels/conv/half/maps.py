"""Tensor maps of the FP16 convolution: what the copy engine (TMA) loads and stores, and in which boxes."""

from __future__ import annotations

from kernels.conv.half.shape import BYTES, HalfShape
from kernels.model.program import Tiles
from kernels.model.tensor_map import Im2colMap, StridedMap, TensorMap

BK = 64  # channels of a tile: a row has 128 bytes
CHUNK = 64  # filters of a box of the output: a row has 128 bytes
SIDE = 8  # rows and columns of a consumer's pixels, if its windows share a box
SWIZZLE = 128  # bytes
TYPE = "float16"


def images(tiles: Tiles) -> int:
    """Returns the images of a box of TH x TW pixels."""
    return tiles["BM"] // (tiles["TH"] * tiles["TW"])


def halo(s: HalfShape, tiles: Tiles) -> tuple[int, int]:
    """Returns the rows and columns of the input under TH x TW windows."""
    return tiles["TH"] + s.span_h - 1, tiles["TW"] + s.span_w - 1


def corners(s: HalfShape) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns (lower, upper) of the windows' corners, each (W, H): upper is counted from the last pixel."""
    lower = -s.pad_w, -s.pad_h
    return lower, (s.after[1] + 1 - s.span_w, s.after[0] + 1 - s.span_h)


# -- maps: of x [N, H, W, C], of the filters [K, R*S, C], of y [N, P, Q, K] ------------------------------
def pixels_in_boxes(s: HalfShape, tiles: Tiles) -> StridedMap:
    """Returns the map of x in boxes [images, TH, TW, BK] of the pixels under one filter tap."""
    box = BK, tiles["TW"], tiles["TH"], images(tiles)
    return StridedMap("x", TYPE, *_input(s), box, SWIZZLE, (1, s.v, s.u, 1))


def pixels_by_windows(s: HalfShape, tiles: Tiles) -> Im2colMap:
    """Returns the map of x by windows: BK channels of BM pixels under one filter tap."""
    return Im2colMap("x", TYPE, *_input(s), (BK, tiles["BM"]), SWIZZLE, (s.v, s.u), *corners(s))


def pixels_with_border(s: HalfShape, tiles: Tiles) -> TensorMap:
    """Returns the map of x in boxes of the pixels under all taps of TH x TW windows."""
    rows, columns = halo(s, tiles)
    return TensorMap("x", TYPE, *_input(s), (BK, columns, rows, images(tiles)), SWIZZLE)


def filters(s: HalfShape, count: int) -> TensorMap:
    """Returns the map of the filters in boxes [`count`, 1, BK]."""
    extents = s.C, s.R * s.S, s.K
    return TensorMap("w", TYPE, extents, _strides(extents), (BK, 1, count), SWIZZLE)


def output_boxes(s: HalfShape, rows: int, columns: int, count: int) -> TensorMap:
    """Returns the map of y in boxes [`count` images, `rows`, `columns`, CHUNK]."""
    extents = s.K, s.Q, s.P, s.N
    return TensorMap("y", TYPE, extents, _strides(extents), (CHUNK, columns, rows, count), SWIZZLE)


def output_rows(s: HalfShape, tiles: Tiles) -> TensorMap:
    """Returns the map of y as a matrix [N*P*Q, K], in boxes [BM, CHUNK]."""
    extents = s.K, s.pixels
    return TensorMap("y", TYPE, extents, _strides(extents), (CHUNK, tiles["BM"]), SWIZZLE)


def _input(s: HalfShape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns extents and strides of x."""
    extents = s.C, s.W, s.H, s.N
    return extents, _strides(extents)


def _strides(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the bytes between neighbours along each dimension of a dense tensor but the first."""
    strides = [BYTES * extents[0]]
    for extent in extents[1:-1]:
        strides.append(strides[-1] * extent)
    return tuple(strides)
