"""The chapters of the lesson on im2col, as data. Every figure in them comes from the evidence of the strip."""

from __future__ import annotations

from collections.abc import Callable

from kernels.i18n import mark, tr
from kernels.records.statistics import within_spread
from pages.parts.chapters import Chapter, Evidences, Facts, Question
from visuals.charts import units
from visuals.conv.part import copies_per_pixel
from visuals.strip.evidence import Evidence
from visuals.strip.times import compared

DIRECT = "conv/direct"
FASTER, SLOWER, SAME = range(3)
ANSWERS = (mark("Faster"), mark("Slower"), mark("The same"))


def facts(evidences: Evidences) -> Facts:
    """Returns the figures of the sentences: sizes at the stage's shape, ratios at both."""
    stage = evidences["stage"]
    s = stage.shape
    matrix, x = 4 * s.N * s.CRS * s.PQ, 4 * s.elements["x"]
    found = {
        "taps": f"{s.R}×{s.S}",
        "count": units.count(s.R * s.S),
        "filters": units.count(s.K),
        "matrix": f"{units.count(s.CRS)}×{units.count(s.PQ)}",
        "weights": f"{units.count(s.K)}×{units.count(s.CRS)}",
        "outputs": f"{units.count(s.K)}×{units.count(s.PQ)}",
        "copies": units.count(copies_per_pixel(s)),
        "growth": units.ratio(matrix / x),
        "input": f"{s.H}×{s.W}",
    }
    for size, evidence in evidences.items():
        found[f"{size}_shape"] = evidence.shape_text
        found[f"{size}_result"] = _result(evidence)
        share = _workspace_share(evidence)
        found[f"{size}_workspace"] = share
    return found


def comparison(size: str) -> Callable[[Evidences], int | None]:
    """Returns a function: the index in ANSWERS of how im2col compares with direct at a size; None without both times."""

    def right(evidences: Evidences) -> int | None:
        if not (evidence := evidences.get(size)) or not (row := evidence.row):
            return None
        if not (direct := evidence.rows.get(DIRECT)):
            return None
        if within_spread(row, direct):
            return SAME
        return FASTER if row["median_ms"] < direct["median_ms"] else SLOWER

    return right


def _result(evidence: Evidence) -> str:
    """Returns the time and the comparison with direct, as in the strip; "" without both times."""
    row, direct = evidence.row, evidence.rows.get(DIRECT)
    if not row or not direct:
        return ""
    time = tr("im2col takes {time}.", time=units.time_(row["median_ms"]))
    return f"{time} {compared(row, direct, evidence)}"


def _workspace_share(evidence: Evidence) -> str:
    row = evidence.row
    if not row:
        return "–"
    return units.share(
        row["workspace_bytes"] / (row["input_bytes"] + row["output_bytes"] + row["workspace_bytes"])
    )


NUMBERS = {"picture": "numbers"}
CHAPTERS = (
    Chapter(
        mark("A window becomes a column"),
        (
            mark("A [filter](filter) slides over the [input](input). At each position it covers one window of {taps} pixels."),
            mark("im2col copies each window into one column of the [data matrix](workspace)."),
            mark("Press Play. Each step copies one window."),
        ),
        NUMBERS,
        loop=(0, 5),
        nudge=mark("Point at a pixel: all its copies light up."),
    ),
    Chapter(
        mark("A filter becomes a row"),
        (
            mark("Each [filter](filter) has {count} weights. They are written as one row."),
            mark("One [output](output) pixel is that row times one column of the [data matrix](workspace): {count} products, added up."),
            mark("The marked output pixel is spelled out beside the kernel."),
        ),
        NUMBERS,
        step=8,
        pin="y:8",
        nudge=mark("Click another output pixel to see its sum."),
    ),
    Chapter(
        mark("One matrix product"),
        (
            mark("There are {filters} [filters](filter), so {filters} rows. Together they form a matrix of {weights}."),
            mark("The [data matrix](workspace) is {matrix}. The product of the two is the whole [output](output), {outputs}."),
            mark("So a convolution becomes a matrix product (GEMM). GEMM libraries are tuned for years."),
        ),
        NUMBERS,
        step=35,
    ),
    Chapter(
        mark("How the kernel copies"),
        (
            mark("A warp is 32 threads that run together. Here each step is one store of one warp."),
            mark("32 lanes write 32 neighbouring columns of one row. Neighbouring addresses share sectors (32 bytes)."),
            mark("Few sectors per store means little wasted bandwidth. The highlighted line is the store."),
        ),
        {"order": "warps"},
        step=3,
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
        question=Question(
            mark("Your guess: on this {input} image, is im2col faster than the direct loop?"),
            ANSWERS,
            comparison("stage"),
            "{stage_result}",
        ),
        nudge=mark("The strip below shows both times. What limits the kernel at this size?"),
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
        question=Question(
            mark("Your guess: is im2col faster than the direct loop there?"), ANSWERS, comparison("real"), "{real_result}"
        ),
        nudge=mark("The direct loop loads each pixel again for every filter. A GEMM kernel loads a tile once and uses it for many filters."),
    ),
    Chapter(
        mark("Where next"),
        (
            mark("im2col trades memory for a fast matrix product."),
            mark("The lesson *implicit GEMM* keeps the product and drops the matrix: it computes each tile when it is needed."),
            mark("*Winograd* and *FFT* reduce the number of multiplications instead."),
        ),
        {},
        step=35,
        size="real",
        nudge=mark("Switch to Explore to set your own shape and press Run."),
    ),
)  # fmt: skip
