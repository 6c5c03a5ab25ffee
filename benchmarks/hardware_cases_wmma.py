"""Fragments of nvcuda::wmma as cases: every shape, type and layout, from global and from shared memory."""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.hardware_case import Case, unwritten
from benchmarks.hardware_cases_teaching import teaching

# By TYPE of the kernel: its name, the type in memory, and the type of the sums.
TYPES = (
    ("half", "float16", "float32"),
    ("bf16", "bfloat16", "float32"),
    ("tf32", "float32", "float32"),
    ("s8", "int8", "int32"),
    ("u8", "uint8", "int32"),
    ("double", "float64", "float64"),
)
TILES = 3
ROW, COL = 1, 0


def _stored(values: np.ndarray, by_row: int, pitch: int, dtype: str) -> np.ndarray:
    """Returns tiles as stored in memory: lines `pitch` elements apart, with zeros after each."""
    lines = values if by_row else values.swapaxes(1, 2)
    out = np.zeros((*lines.shape[:2], pitch), dtype)
    out[..., : lines.shape[2]] = lines.astype(dtype)
    return out


def _tiles(stored: np.ndarray, by_row: int, columns: int) -> np.ndarray:
    """Returns the tiles of such an array as float64 [tiles, rows, columns]: the first `columns` of each line."""
    lines = stored[..., :columns].astype(np.float64)
    return lines if by_row else lines.swapaxes(1, 2)


def _product(
    type_: int, shape: tuple[int, int, int], layouts: tuple[int, int, int], shared: int, pad: int = 0, half_sum: int = 0
) -> Case:
    """Returns the case of a product of fragments. `pad`: bytes between the lines of a tile, a multiple of 16."""
    m, n, k = shape
    kind, dtype, sums = TYPES[type_]
    sums = "float16" if half_sum else sums
    sizes, types = ((m, k), (k, n), (m, n)), (dtype, dtype, sums)
    lines = tuple(size[1] if by_row else size[0] for size, by_row in zip(sizes, layouts, strict=True))
    pitches = tuple(
        -(-along * np.dtype(t).itemsize // 16) * 16 // np.dtype(t).itemsize + pad // np.dtype(t).itemsize
        for along, t in zip(lines, types, strict=True)
    )

    def arrays() -> dict[str, np.ndarray]:
        rng = np.random.default_rng(0)
        values = (rng.integers(0 if kind == "u8" else -9, 10, (TILES, *size)) for size in sizes)
        stored = (_stored(*item) for item in zip(values, layouts, pitches, types, strict=True))
        return dict(zip("ABC", stored, strict=True))

    def cpu(A, B, C, lda, ldb, ldc):
        a, b, c = (_tiles(*item) for item in zip((A, B, C), layouts, lines, strict=True))
        C[:] = _stored(a @ b + c, layouts[2], ldc, sums)

    layout_names = "".join("row-" if by_row else "col-" for by_row in layouts)
    bytes_ = sum(a[0].nbytes for a in arrays().values()) if shared else 0
    return teaching(
        "17_wmma",
        f"wmma-{'shared' if shared else 'global'}-{kind}-m{m}n{n}k{k}-{layout_names}{sums}-pad{pad}",
        f"tiles={TILES} lda={pitches[0]} ldb={pitches[1]} ldc={pitches[2]}",
        (TILES,),
        (32,),
        ("A", "B", "C", *pitches),
        cpu,
        arrays,
        ("C",),
        "wmma_product",
        bytes_,
        WM=m,
        WN=n,
        WK=k,
        TYPE=type_,
        HALF_SUM=half_sum,
        A_ROW=layouts[0],
        B_ROW=layouts[1],
        C_ROW=layouts[2],
        SHARED=shared,
    )


# -- elements of each lane -------------------------------------------------------------------------------------
def _element(which: int, shape: tuple[int, int, int], lane: int, i: int) -> tuple[int, int]:
    """Returns (row, column) of x[i] in a lane, by tiles of mma.sync.m16n8k16 side by side or one below the other: A's
    upper and lower rows, then its right half; B's upper and lower half, then the next 8 columns; C's upper and lower
    rows, then the next 8 columns. m8n32k16 is computed transposed: A for B, rows for columns."""
    if shape[0] == 8:
        row, column = _element((1, 0, 2)[which], (shape[1], shape[0], shape[2]), lane, i)
        return column, row
    group, within = lane // 4, lane % 4
    register, second = divmod(i, 2)
    if which == 0:
        return group + 8 * (register % 2) + 16 * (register // 4), 2 * within + second + 8 * (register // 2 % 2)
    if which == 1:
        return 2 * within + second + 8 * (register % 2), group + 8 * (register // 2)
    if shape[1] == 8:
        return group + 8 * register, 2 * within + second
    return group + 8 * (register % 2), 2 * within + second + 8 * (register // 2)


def _fragment(which: int, shape: tuple[int, int, int]) -> Case:
    m, n, k = shape
    rows, columns = ((m, k), (k, n), (m, n))[which]
    dtype = "float32" if which == 2 else "float16"
    count = 16 if which < 2 else 8  # half: a fragment of 256 elements is stored twice

    def cpu(x, y, columns):
        distinct = rows * columns // 32
        for lane in range(32):
            y[:, lane] = [x[_element(which, shape, lane, i % distinct)] for i in range(count)]

    return teaching(
        "18_wmma_fragment",
        f"wmma-fragment-{('a', 'b', 'c')[which]}-m{m}n{n}k{k}",
        f"rows={rows} columns={columns}",
        (1,),
        (32,),
        ("x", "y", columns),
        cpu,
        lambda: {
            "x": np.arange(rows * columns).reshape(rows, columns).astype(dtype),
            "y": unwritten(count, 32, dtype=dtype),
        },
        WM=m,
        WN=n,
        WK=k,
        WHICH=which,
    )


SQUARE, TALL, WIDE = (16, 16, 16), (32, 8, 16), (8, 32, 16)
_STRAIGHT, _ACROSS = (ROW, COL, ROW), (COL, ROW, COL)  # along the fragments' registers, and across
_half, _s8 = partial(_product, 0), partial(_product, 3)
CASES = (
    *(
        _half(SQUARE, layouts, shared, pad)
        for layouts in ((ROW, ROW, ROW), _STRAIGHT, _ACROSS, (COL, COL, COL))
        for shared in (0, 1)
        for pad in (0, 16)
    ),
    *(_half(SQUARE, layouts, shared, 32, half_sum=1) for layouts in (_STRAIGHT, _ACROSS) for shared in (0, 1)),
    *(
        _half(shape, layouts, shared, 48)
        for shape in (TALL, WIDE)
        for layouts in (_STRAIGHT, _ACROSS)
        for shared in (0, 1)
    ),
    *(_half(shape, _ACROSS, 1, 0, half_sum=1) for shape in (TALL, WIDE)),
    *(_product(1, shape, (ROW, ROW, ROW), shared) for shape, shared in ((SQUARE, 0), (TALL, 1))),
    *(
        _product(2, (16, 16, 8), layouts, shared, pad)
        for layouts in ((ROW, ROW, ROW), (COL, COL, COL))
        for shared, pad in ((0, 0), (1, 0), (1, 16))
    ),
    *(
        _s8(shape, layouts, shared, 16 * shared)
        for shape in (SQUARE, TALL, WIDE)
        for layouts in (_STRAIGHT, _ACROSS)
        for shared in (0, 1)
    ),
    *(_s8(SQUARE, layouts, 1) for layouts in (_STRAIGHT, _ACROSS)),
    _product(4, SQUARE, _STRAIGHT, 1, 48),
    *(
        _product(5, (8, 8, 4), layouts, shared, pad)
        for layouts in (_STRAIGHT, _ACROSS)
        for shared, pad in ((0, 0), (1, 0), (1, 16))
    ),
    *(_fragment(which, SQUARE) for which in (0, 1, 2)),
    _fragment(0, TALL),
    *(_fragment(which, WIDE) for which in (1, 2)),
    _fragment(2, TALL),
)
