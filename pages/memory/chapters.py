"""The chapters of the lesson on threads and memory: who computes what, and what a warp's access costs."""

from __future__ import annotations

from kernels import records
from kernels.i18n import mark
from kernels.memory.shape import AddShape, StrideShape
from pages.parts.chapters import Chapter, Question, Story, faster
from visuals import units
from visuals.strip.facts import Evidences, Facts, fact_is

SECTORS = ("4", "8", "16", "32")
LANES = 32  # of a warp
THREADS = {"topic": "threads", "M": "8", "N": "14"}  # 3 warps and a half, whose numbers can be read
COALESCING, BANKS = {"topic": "coalescing"}, {"topic": "banks"}


def facts(evidences: Evidences) -> Facts:
    """Returns how many elements the last warp of the sum on the stage has, and how many of its lanes have none; and the
    recorded time of the real loads with stride 1."""
    shape, real = evidences["stage"].shape, evidences.get("real")
    left = shape.M * shape.N % LANES if isinstance(shape, AddShape) else 0
    found = {"stage_left": str(left), "stage_idle": str(LANES - left)} if left else {}
    if real and isinstance(real.shape, StrideShape):
        row = records.recorded(real.rung.name, real.shape.with_(stride=1), real.rung.default_tiles | dict(real.tiles))
        found["real_stride_1"] = units.time_(row["median_ms"]) if row else ""
    return found


CHAPTERS = (
    Chapter(
        mark("Thousands of threads, one program"),
        (
            mark("This kernel adds two matrices, with one thread for each element of [C](output). All run the same code, and each computes its i, the element’s number, from its block and its place there."),
            mark("32 threads are a warp: each step of Play is one. Warps form blocks, which form a grid, and a block runs on one SM, one of the GPU’s processors."),
        ),
        THREADS,
        loop=(0, 3),
        size="real",
        nudge=mark("The stage shows {stage_shape} elements, the strip below {real_shape}: the strip’s figures were measured there."),
    ),
    Chapter(
        mark("Lanes without work"),
        (
            mark("All 32 lanes of a warp execute the same instruction at the same time. The last warp has only {stage_left} elements left, so the line with “if” switches its other {stage_idle} lanes off."),
            mark("When lanes take different branches, both branches run, one after the other. That is divergence."),
        ),
        THREADS,
        step=3,
        size="real",
        nudge=mark("The margin of that line counts it: the share of its branches at which a warp’s lanes diverge."),
    ),
    Chapter(
        mark("Two branches, two passes"),
        (
            mark("Here even lanes take one branch and odd lanes the other. Time runs down: each cell is the line that a lane runs."),
            mark("In the first pass the odd lanes are masked: their cells stay empty. In the second pass the even lanes wait: each branch uses half of the warp."),
        ),
        {"topic": "divergence", "branches": "lanes"},
        step=4,
        loop=(0, 6),
        size="real",
        question=faster(
            mark("Your guess: is it slower than a version whose warps take one branch each?"),
            "branch/warps", "real",
            mark("It takes {real_time}, with one branch per warp {real_time_warps}."),
        ),
        nudge=mark("In Explore, choose “warps”: no lane waits."),
    ),
    Chapter(
        mark("Memory comes in sectors"),
        (
            mark("A warp’s 32 loads are one request. Memory answers it in sectors of 32 bytes, 8 neighbouring floats."),
            mark("Here neighbouring lanes read neighbouring floats. No byte is wasted: the load is coalesced."),
        ),
        COALESCING | {"stride": "1"},
        step=0,
        question=Question(
            mark("Your guess: how many sectors does this load need?"),
            SECTORS,
            fact_is("stage_sectors", *SECTORS),
            mark("{stage_sectors}: 32 floats of 4 bytes are 128 bytes."),
            hides=("counts",),
        ),
    ),
    Chapter(
        mark("A stride wastes bytes"),
        (
            mark("Now lane i reads x[8 · i]. Each float is in a sector of its own."),
            mark("The memory system still moves whole sectors. Of the 32 bytes of each, only 4 are used."),
        ),
        COALESCING | {"stride": "8"},
        step=0,
        loop=(0, 8),
        question=Question(
            mark("Your guess: how many sectors does the load need now?"),
            SECTORS,
            fact_is("stage_sectors", *SECTORS),
            mark("{stage_sectors} sectors for 32 floats. {real_shape}: {real_time}, with stride 1 {real_stride_1}."),
            hides=("counts",),
        ),
        nudge=mark("In Explore, set stride to 2, 4 and 16: from which stride on does the load need no more sectors?"),
    ),
    Chapter(
        mark("The same sum, turned by 90°"),
        (
            mark("Back to the sum of two matrices, now in blocks of 16 × 16 threads."),
            mark("Here neighbouring threads take neighbouring rows. Their elements are a whole row apart in memory."),
        ),
        THREADS | {"mapping": "matrix-transposed"},
        size="real",
        question=faster(
            mark("Your guess: is it faster than the version whose neighbours take neighbouring columns?"),
            "add/matrix", "real",
            mark("It takes {real_time}. {real_against_matrix}"),
            of="add/matrix-transposed",
        ),
        nudge=mark("The caption shows why: how many sectors a warp loads, and the fewest possible."),
    ),
    Chapter(
        mark("Shared memory has banks"),
        (
            mark("Shared memory is on the chip. It has 32 banks, and word w, of 4 bytes, is in bank w mod 32."),
            mark("Each bank delivers one word at a time. With stride 4, lane i reads word 4 · i: 8 banks hold all these words, 4 each, so the read takes 4 passes, a bank conflict."),
        ),
        BANKS | {"stride": "4", "row": "32"},
        step=1,
        loop=(1, 4),
        size="real",
        nudge=mark("In Explore, set stride to 3: why is there no conflict?"),
    ),
    Chapter(
        mark("One unused word"),
        (
            mark("The same read, but each row of the table now has 33 words. The last one is never used."),
            mark("It shifts each row by one bank."),
        ),
        BANKS | {"stride": "4", "row": "33"},
        step=0,
        size="real",
        question=faster(
            mark("Your guess: is it faster than without the extra word?"),
            "banks/plain", "real",
            mark("It takes {real_time}. {real_against_plain}"),
            of="banks/padded",
        ),
        nudge=mark("Padding is no cure-all: at stride 3 it creates the conflict that was not there."),
    ),
    Chapter(
        mark("From an index to an address"),
        (
            mark("Memory is one line of bytes, but a tensor of images has four axes: image n, channel c, row h, column w."),
            mark("NCHW stores each channel as a whole, NHWC all channels of a pixel together."),
            mark("This kernel turns NCHW into NHWC. Its threads take neighbours along w, so only their loads are coalesced."),
        ),
        {"topic": "layout"},
        loop=(0, 12),
        size="real",
        question=faster(
            mark("Your guess: is it faster than with neighbours along c, which coalesces only the stores?"),
            "layout/along-c", "real",
            mark("It takes {real_time}. {real_against_along_c} A scattered load can hit the L1 cache. A store goes to L2."),
        ),
        nudge=mark("Next, [tiling](/tiling) uses all of this."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
