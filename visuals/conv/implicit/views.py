# fmt: off
"""What the stage shows of implicit GEMM: block 0, tile by tile. Both kernels have the same steps: only their index arithmetic differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernels.conv.implicit import PIECE
from kernels.conv.shape import ConvShape
from kernels.i18n import mark
from visuals.scene.compiler.view import Buffer, Bytes, PerThread, Say, Shared, Step, View, box, step
from visuals.scene.parts import Group

Tiles = Mapping[str, int]

ORDER = mark("explaining order")
ORDER_NOTE = mark("The steps show block 0. Each step copies or multiplies one whole tile with all threads, or is a barrier. On the GPU, copies and products overlap. Warps alternate, and many blocks run at the same time. All values are those of the kernel in the emulator.")
OTHERS = mark("The other blocks ({others}) compute their parts of the [output](output) in the same way.")
NAMES = {
    "filters_here": "where(shape.K < BM, shape.K, BM)", "columns_here": "where(shape.N * shape.P * shape.Q < BN, shape.N * shape.P * shape.Q, BN)",
    "terms": "shape.C * shape.R * shape.S", "tiles": "(terms + BK - 1) // BK", "tile": "k_tile // BK + 1", "last_k": "where(k_tile + BK < terms, k_tile + BK, terms) - 1",
    "outside": "(100 * (BM * BN - filters_here * columns_here) + BM * BN // 2) // (BM * BN)", "last_ahead": "where(visit + STAGES - 1 < tiles, visit + STAGES - 1, tiles)",
}
START = mark("Block 0 computes the [output](output) of filters 0 to {filters_here - 1}, columns 0 to {columns_here - 1}.")
ONE_WINDOW = mark("Each thread finds the window of its column of the [data matrix](workspace) once. This takes two divisions.")
WINDOWS = mark("Each thread finds the windows of its {BN // 32} columns of the [data matrix](workspace) once. This takes two divisions per column.")
ONE_OUTSIDE = mark("{outside} % of its {BM} × {BN} sums are outside the [output](output): they are computed but not stored. Each thread finds the window of its column of the [data matrix](workspace) once. This takes two divisions.")
OUTSIDE = mark("{outside} % of its {BM} × {BN} sums are outside the [output](output): they are computed but not stored. Each thread finds the windows of its {BN // 32} columns of the [data matrix](workspace) once. This takes two divisions per column.")
STORED = mark("The block stores its {sum(y.times)} sums in the [output](output). The [data matrix](workspace) was never in global memory.")
FILTERS = mark("Tile {tile} of {tiles}: the threads start to copy columns {k_tile} to {last_k} of the [filters](filter) into buffer {stage} of shared memory. Values: {sum(w.times)}. The copy is transposed.")
OUTSIDE_FILTERS = mark("Tile {tile} of {tiles}: the threads start to copy columns {k_tile} to {last_k} of the [filters](filter) into buffer {stage} of shared memory. Values: {sum(w.times)}. The copy is transposed. The {BK * BM - sum(w.times)} elements outside the [filters](filter) become zero.")
PIXELS = mark("Tile {tile} of {tiles}: the threads start to copy rows {k_tile} to {last_k} of the [data matrix](workspace) into buffer {stage}. Row {k_tile} is tap c = {k_tile // (shape.R * shape.S)}, r = {k_tile % (shape.R * shape.S) // shape.S}, s = {k_tile % shape.S}. [Pixels](input) copied directly from the input: {sum(x.times)}. Zeros: {BK * BN - sum(x.times)}.")
PIXELS_LATER = mark("Tile {tile} of {tiles}: the threads start to copy rows {k_tile} to {last_k} of the [data matrix](workspace) into buffer {stage}. Row {k_tile} is tap c = {k_tile // (shape.R * shape.S)}, r = {k_tile % (shape.R * shape.S) // shape.S}, s = {k_tile % shape.S}. [Pixels](input) copied directly from the input: {sum(x.times)}. Zeros: {BK * BN - sum(x.times)}. The iteration that begins now does not wait for this copy.")
PRODUCTS = mark("Iteration {visit}: tile {visit} is in buffer {read_stage}. Each thread adds {BK} products to each of its {TM * TN} [sums](output). That is {TM * TN * BK} multiply-adds for {(TM + TN) * BK} values read from shared memory.")


NOTHING = Say("", "max(y.times) == 0")
NO_TILE = Say(mark("No tile is left for buffer {stage}: the threads fill it with zeros."), "k_tile >= terms")


def copies(call: str, name: str, *pixels: str) -> Iterator[tuple[str, Step]]:
    """Yields the asynchronous copies of both tiles that a call begins. `pixels`: what is said last."""
    yield f"{name}_filters", step("load_filters(tile_a", NO_TILE, Say(OUTSIDE_FILTERS, "sum(w.times) < BK * BM"), FILTERS, inside=call, merge=True)
    yield f"{name}_pixels", step("copy_async<4>(tile_b", Say("", "k_tile >= terms"), *pixels, inside=call, merge=True)


STEPS: Mapping[str, Step] = {
    "start": step("windows[j] = find_window(",
        Say(ONE_OUTSIDE, "outside > 0 and BN == 32"), Say(OUTSIDE, "outside > 0"), Say(ONE_WINDOW, "BN == 32"), WINDOWS, lead=START, merge=True),
    **dict(copies("load_tiles(i,", "first", PIXELS)),
    "wait": step("wait_groups<", "Each thread waits until its own copies of tile {visit} have arrived in shared memory."),
    "complete": step("__syncthreads()",
        Say("Barrier: every thread of the block waits until all copies of tile {visit} are complete. A thread reads values that other threads have copied.", "visit == 1"),
        "Barrier: every thread of the block waits until all copies of tile {visit} are complete. All threads have then also read tile {visit - 1}. Its buffer may be overwritten."),
    **dict(copies("load_tiles(fill_stage,", "next", PIXELS_LATER)),
    "multiply": step("multiply(sum, stages",
        Say("No other tile is being copied.", "visit >= tiles"),
        Say("Meanwhile, tile {visit + 1} is being copied.", "last_ahead == visit + 1"),
        Say("Meanwhile, tiles {visit + 1} to {last_ahead} are being copied."), lead=PRODUCTS),
    "store": step("store<4>(", NOTHING, STORED, merge=True), "store_one": step("store<1>(", NOTHING, STORED, merge=True),
}


def view(s: ConvShape, tiles: Tiles) -> View:
    """Returns the view at a shape and tile sizes. Of a tile that is larger than the product, only what is in it is shown: the rest is
    zeros, or copies of the last column."""
    stages, BK, pitch = range(tiles["STAGES"]), tiles["BK"], tiles["BM"] + PIECE
    size, columns = BK * (pitch + tiles["BN"]), s.N * s.PQ
    filters, across = min(tiles["BM"], s.K), min(tiles["BN"], columns)
    tensors = (
        Buffer("x", "input", mark("input")),
        Buffer("w", "filter", mark("filters"), shape=(s.K, s.CRS)),
        Buffer("y", "output", mark("output"), shape=(s.K, columns)),
        *(Shared(f"As{n}", "filter", mark("filter tile"), mark("transposed"), "tile_a", of="stages", dtype="f4", **box(n * size, BK, filters, pitch)) for n in stages),
        *(Shared(f"Bs{n}", "input", mark("data tile"), "", "tile_b", of="stages", dtype="f4", **box(n * size + BK * pitch, BK, across, tiles["BN"])) for n in stages),
        PerThread("mine", "workspace", mark("windows"), mark("row, column, offset: computed once"), "window", of="windows", threads=range(1)),
        PerThread("acc", "output", mark("sums"), "", "sum", of="sum", threads=range(1)),
    )
    groups = (
        Group((("x",),), "global"), Group((("w", "y"),), "global"),
        Group(tuple((f"As{n}", f"Bs{n}") for n in stages), "shared", mark("shared memory of the block: a row for each buffer")),
        Group((("mine", "acc"),), "registers", mark("registers of thread 0")),
    )
    values = Bytes(mark("pixels copied to shared memory"), "x", "ld", per="4"), Bytes(mark("values read from shared memory"), " ".join(f"{name}{n}" for name in ("As", "Bs") for n in stages), "ld", per="4")
    return View(tensors, groups, (STEPS,), values, names=NAMES, others=(OTHERS,), order=(ORDER, ORDER_NOTE))
