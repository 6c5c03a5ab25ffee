"""The chapters of the lesson on im2col, as data. Every figure in them comes from the evidence of the strip."""

from __future__ import annotations

from kernels.i18n import mark
from pages.parts.chapters import Chapter, Story, faster
from visuals import units
from visuals.charts.ladder_notes import recorded_at
from visuals.conv.part import copies_per_pixel
from visuals.strip.facts import Evidences, Facts

DIRECT, DIRECT_TILED = "conv/direct", "conv/direct-tiled"
PIXEL = 8  # the output pixel that chapters mark
# Steps of the toy shape: 36 columns; then for each of 3 blocks the loads, a barrier, the product, a barrier and the store.
LOADED, LAST_STORED = 36, 50


def facts(evidences: Evidences) -> Facts:
    """Returns the sizes of the matrices at the stage's shape, and where the marked pixel is."""
    stage = evidences["stage"]
    s, tiles = stage.shape, {**stage.rung.default_tiles, **stage.tiles}
    row, col = divmod(PIXEL, s.Q)
    matrix, x = 4 * s.N * s.CRS * s.PQ, 4 * s.elements["x"]
    return _direct_tiled(evidences) | {
        "taps": f"{s.R}×{s.S}",
        "count": units.count(s.R * s.S),
        "filters": units.count(s.K),
        "matrix": f"{units.count(s.CRS)}×{units.count(s.PQ)}",
        "weights": f"{units.count(s.K)}×{units.count(s.CRS)}",
        "outputs": f"{units.count(s.K)}×{units.count(s.PQ)}",
        "copies": units.count(copies_per_pixel(s)),
        "growth": units.ratio(matrix / x),
        "input": f"{s.H}×{s.W}",
        "plane": f"{s.P}×{s.Q}",
        "pixels": units.count(s.PQ),
        "pixel": str(PIXEL),
        "row": str(row),
        "column": str(col),
        "tile": str(tiles.get("TILE", "")),
    }


def _direct_tiled(evidences: Evidences) -> Facts:
    """Returns the recorded time of direct convolution with shared memory at the real size."""
    if "real" not in evidences:
        return {}
    row = recorded_at(evidences["real"].shape, (DIRECT_TILED,)).get(DIRECT_TILED)
    return {"direct_tiled": units.time_(row["median_ms"])} if row else {}


NUMBERS = {"picture": "numbers"}
SMALL = NUMBERS | {"H": "4", "W": "4"}  # few enough columns to print every number
SMALL_PIXEL, SMALL_STORED = 2, 8  # the output pixel that a chapter marks, the step that stores it
CHAPTERS = (
    Chapter(
        mark("A window becomes a column"),
        (
            mark("A [filter](filter) slides over the [input](input). At each position it covers one window of {taps} pixels."),
            mark("im2col copies each window into one column of the [data matrix](workspace). Press Play: each step copies one window."),
        ),
        SMALL,
        loop=(0, 3),
        readable=("x", "D"),
        nudge=mark("Point at a pixel: all its copies light up."),
    ),
    Chapter(
        mark("A filter becomes a row"),
        (
            mark("Each [filter](filter) has {count} weights. They are written as one row."),
            mark("One [output](output) pixel is that row times one column of the [data matrix](workspace): {count} products, added up."),
            mark("The sum of the marked output pixel is spelled out below the kernel."),
        ),
        SMALL,
        step=SMALL_STORED,
        pin=f"C:{SMALL_PIXEL}",
        readable=("w", "D"),
        nudge=mark("Click another output pixel to see its sum."),
    ),
    Chapter(
        mark("One matrix product"),
        (
            mark("There are {filters} [filters](filter). As rows they form a matrix of {weights}."),
            mark("The [data matrix](workspace) is {matrix}. The product of the two is the whole [output](output), {outputs}: a convolution becomes a matrix product, a GEMM."),
        ),
        NUMBERS,
        step=LAST_STORED,
        nudge=mark("GEMM kernels of libraries were tuned for years, and with im2col a convolution can use them."),
    ),
    Chapter(
        mark("Tile by tile"),
        (
            mark("Now the second kernel runs: each block of threads computes up to {tile}×{tile} numbers of the [output](output)."),
            mark("The block loads one tile of the [filters](filter) and one of the [data matrix](workspace) into shared memory. All threads wait at a barrier until both are complete, then add their product to the sums."),
            mark("Each thread keeps its sum in a register and stores it at the end."),
        ),
        NUMBERS,
        step=LOADED,
        loop=(LOADED, LAST_STORED),
        readable=("sum",),
        nudge=mark("[Tiling](/tiling) shows how such a kernel becomes fast."),
    ),
    Chapter(
        mark("From rows to pictures"),
        (
            mark("The [output matrix](output) has one row per [filter](filter), with {pixels} numbers in the order of the picture."),
            mark("So each row already is one [output](output) plane of {plane}. No kernel runs and no byte moves."),
            mark("Only the index changes: column {pixel} is now row {row}, column {column}."),
        ),
        NUMBERS,
        step=LAST_STORED,
        pin=f"y:{PIXEL}",
        readable=("y",),
        nudge=mark("Click another output pixel: the panel shows both of its indices."),
    ),
    Chapter(
        mark("How the kernel copies"),
        (
            mark("A warp is 32 threads that run together. Here each step is one store of one warp: its lanes write up to 32 neighbouring columns of one row."),
            mark("Neighbouring addresses share sectors (32 bytes). Few sectors per store means little wasted bandwidth."),
        ),
        {"order": "warps"},
        step=2,
        nudge=mark("The highlighted line is the store."),
    ),
    Chapter(
        mark("The copy has a price"),
        (
            mark("Each [input](input) pixel is under up to {copies} windows, so it is copied up to {copies} times."),
            mark("The [data matrix](workspace) is {growth}× as large as the input. It takes {stage_workspace} of all memory in use."),
            mark("Writing it, reading it back and a second launch take time."),
        ),
        {},
        step=9,
        question=faster(
            mark("Your guess: on this {input} image, is im2col faster than the direct loop?"),
            DIRECT, "stage",
            mark("im2col takes {stage_time}. {stage_against_direct}"),
        ),
        nudge=mark("The strip below shows both times: what limits the kernel at this size?"),
    ),
    Chapter(
        mark("At a real size"),
        (
            mark("Now a layer of a real network: {real_shape}. The strip below shows its recorded times."),
            mark("The copy still costs memory: {real_workspace} of all memory in use is the data matrix."),
        ),
        {},
        step=20,
        size="real",
        question=faster(
            mark("Your guess: is im2col faster than the direct loop there?"),
            DIRECT, "real",
            mark("im2col with our simple GEMM takes {real_time}. {real_against_direct} But direct with shared memory takes only {direct_tiled}."),
        ),
        nudge=mark("The direct loop loads a pixel again for every filter, but a GEMM kernel uses a loaded tile for many filters."),
    ),
    Chapter(
        mark("Where next"),
        (
            mark("im2col trades memory for a matrix product. With our simple GEMM it takes {real_time}, with cuBLAS {real_time_im2col_cublas}."),
            mark("[Implicit GEMM](/implicit) keeps the product and drops the matrix: it computes each tile when it is needed."),
            mark("[Winograd](/winograd) and [FFT](/fft) reduce the number of multiplications instead."),
        ),
        {},
        step=LAST_STORED,
        size="real",
        nudge=mark("Switch to Explore to set your own shape and run it."),
    ),
)  # fmt: skip
STORY = Story(CHAPTERS, facts)
