# fmt: off
"""What the stage shows of im2col: window by window how the data matrix is written, then tile by tile the product."""

from __future__ import annotations

from kernels.i18n import mark
from visuals.scene.compiler.view import BLOCK, Buffer, Bytes, PerThread, Say, Shared, View, step
from visuals.scene.parts import Group

MOST = 128  # windows that take their steps one by one

X, D = Buffer("x", "input", mark("input")), Buffer("D", "workspace", mark("data matrix (workspace)"), of="col")
W, OUT = Buffer("w", "filter", mark("filters")), Buffer("C", "output", mark("output matrix"), of="y")
TILES = Shared("tile_a", "filter", "tile_a"), Shared("tile_b", "workspace", "tile_b")
SUM = PerThread("sum", "output", mark("sums"), place=("row", "col"))
IN_SHARED, IN_REGISTERS = Group((("tile_a", "tile_b"),), "shared", mark("shared memory of a block")), Group((("sum",),), "registers", mark("registers, one sum per thread"))
MOVED = Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st")

ORDER = mark("explaining order")
ORDER_NOTE = mark("Each step copies one window, then the steps follow the tiles of the product, block after block. On the GPU, one launch fills the whole data matrix, many columns at once. A second launch computes the product, many tiles at once. All values are those of the kernels in the emulator.")
LIBRARY_NOTE = mark("Each step copies one window. On the GPU, one launch fills the whole data matrix, many columns at once. A library computes the product. All values are those of the kernel in the emulator.")
WARPS, WARPS_NOTE = mark("warp order"), mark("Each step is one store of one warp. On the GPU the warps run in any order, and many at the same time. All values are those of the kernel in the emulator.")

OTHER_WINDOWS = mark("The other blocks ({others}) copy their windows in the same way. The [data matrix](workspace) is complete.")
OTHER_TILES = mark("The other blocks ({others}) compute their tiles in the same way. The [output matrix](output) is complete.")
NAMES = {
    "column_of": "p * shape.Q + q", "first_row": "c * shape.R * shape.S",
    "last_k": "where(k_tile + TILE < inner, k_tile + TILE, inner) - 1", "across": "(cols + TILE - 1) // TILE", "block_col": "block % across", "block_row": "block // across",
}
COPY = {
    "copy": step("float value = input_pixel",
        Say("The other threads copy their windows in the same way. Windows: {active}.", "active > 1"),
        Say("Thread {window} copies the window of output row {p}, column {q} from the [input](input). It becomes column {column_of} of the [data matrix](workspace). Loads: {x.times}. Stores: {D.times}, {D.times - x.times} of them zeros of the padding.", "shape.C == 1 and x.times < D.times"),
        Say("Thread {window} copies the window of output row {p}, column {q} from the [input](input). It becomes column {column_of} of the [data matrix](workspace). Loads: {x.times}. Stores: {D.times}.", "shape.C == 1"),
        Say("Thread {window} copies the window of output row {p}, column {q} from channel {c} of the [input](input). It becomes rows {first_row} to {first_row + shape.R * shape.S - 1} of column {column_of} of the [data matrix](workspace). Loads: {x.times}. Stores: {D.times}, {D.times - x.times} of them zeros of the padding.", "x.times < D.times"),
        mark("Thread {window} copies the window of output row {p}, column {q} from channel {c} of the [input](input). It becomes rows {first_row} to {first_row + shape.R * shape.S - 1} of column {column_of} of the [data matrix](workspace). Loads: {x.times}. Stores: {D.times}."),
        to="column[(r * shape.S + s)", lit="column[(r * shape.S + s)", by=f"where(window < {MOST}, window, {MOST})", merge=True),
}
COPY_BY_WARP = {
    "store": step("float value = input_pixel",
        Say("Warp {warp} stores in rows {min(D.at) // (shape.P * shape.Q)} to {max(D.at) // (shape.P * shape.Q)} of the [data matrix](workspace), one row per channel. Active lanes: {active}. The values of {count(x)} lanes are loaded from the [input](input).", "max(c) > min(c)"),
        Say("Warp {warp} stores row {first_row + r * shape.S + s}, columns {min(column_of)} to {max(column_of)} of the [data matrix](workspace). Active lanes: {active}. Sectors (32 bytes) touched: {max(D.at) // 8 - min(D.at) // 8 + 1}, minimum {(active + 7) // 8}. All values are zeros of the padding. No lane loads from the [input](input).", "count(x) == 0"),
        mark("Warp {warp} stores row {first_row + r * shape.S + s}, columns {min(column_of)} to {max(column_of)} of the [data matrix](workspace). Active lanes: {active}. Sectors (32 bytes) touched: {max(D.at) // 8 - min(D.at) // 8 + 1}, minimum {(active + 7) // 8}. The values of {count(x)} lanes are loaded from the [input](input)."),
        to="column[(r * shape.S + s)", lit="column[(r * shape.S + s)", by="thread // 32"),
}
PRODUCT = {
    "load": step("tile_a[thread_row][thread_col] =",
        Say("Block ({block_col}, {block_row}) loads two tiles into shared memory: column {k_tile} of the [filters](filter), row {k_tile} of the [data matrix](workspace).", "last_k == k_tile"),
        mark("Block ({block_col}, {block_row}) loads two tiles into shared memory: columns {k_tile} to {last_k} of the [filters](filter), rows {k_tile} to {last_k} of the [data matrix](workspace). Elements outside of the matrices are 0."),
        to="tile_b[thread_row][thread_col] ="),
    "complete": step(("__syncthreads()", 0), "Barrier: every thread of block ({block_col}, {block_row}) waits until both tiles are complete. A thread reads values that other threads have loaded."),
    "multiply": step("sum += tile_a",
        "Block ({block_col}, {block_row}) multiplies the two tiles. Each thread adds {TILE} products to its sum. For row {row}, column {col} of the [output matrix](output), {sum.before} becomes {sum}.",
        merge=True),
    "read": step(("__syncthreads()", 1), "Barrier: every thread of block ({block_col}, {block_row}) waits until all threads have read both tiles. Only then may new values overwrite them."),
    "store": step("*C = sum", "The sums of block ({block_col}, {block_row}) have all {inner} terms. Each thread with a place in the [output matrix](output) stores its sum there: {active} of {TILE * TILE}."),
}
IM2COL = View(
    (X, D, W, OUT, *TILES, SUM), (IN_SHARED, IN_REGISTERS), (COPY, PRODUCT), MOVED,
    group=BLOCK, names=NAMES, products=(("w", "D", "C"),), others=(OTHER_WINDOWS, OTHER_TILES), order=(ORDER, ORDER_NOTE),
)
BY_WARP = View(
    (X, D, W, OUT, *TILES, SUM), (IN_SHARED, IN_REGISTERS), (COPY_BY_WARP, PRODUCT), MOVED,
    group=BLOCK, names=NAMES, products=(("w", "D", "C"),), others=(OTHER_WINDOWS, OTHER_TILES), order=(WARPS, WARPS_NOTE),
)
LIBRARY = View(
    (X, D, W, OUT), (), (COPY,), MOVED,
    group=BLOCK, names=NAMES, products=(("w", "D", "C"),), others=(OTHER_WINDOWS,), order=(ORDER, LIBRARY_NOTE),
    calls={"cublas_sgemm": mark("One call of cuBLAS multiplies the [filters](filter) by the [data matrix](workspace). How it divides the work is not shown.")},
)
VIEWS = {"explaining": IM2COL, "warps": BY_WARP, "library": LIBRARY}
