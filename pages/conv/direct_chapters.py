"""The chapters of the lesson on direct convolution."""

from __future__ import annotations

from kernels.i18n import decimal, mark, tr
from pages.parts.chapters import LIMITS, Chapter, Question, Story, faster, nothing_limits
from visuals import units
from visuals.conv.direct.notes import loads_per_pixel
from visuals.strip.facts import Evidences, Facts, limited_by

NUMBERS = {"picture": "numbers"}


def facts(evidences: Evidences) -> Facts:
    """Returns how often a pixel is loaded at most, at both sizes, and the multiply-adds."""
    return {
        f"{size}_{name}": text
        for size, evidence in evidences.items()
        for name, text in {
            "loads": units.whole(loads_per_pixel(evidence.shape)),
            "macs": _spoken(evidence.shape.macs),
        }.items()
    }


def _spoken(count: int) -> str:
    """Returns a count for a sentence: "648", "3.7 billion"."""
    if count < 1e9:
        return units.count(count)
    return tr("{n} billion", n=decimal(f"{count / 1e9:.3g}"))


CHAPTERS = (
    Chapter(
        mark("A window slides over the image"),
        (
            mark(
                "A [filter](filter) of 3 × 3 weights is laid over the [input](input). Each weight is multiplied by the pixel below it."
            ),
            mark("The sum of the 9 products is one [output](output) pixel."),
            mark("Press Play to see the first sum grow, product by product."),
        ),
        NUMBERS,
        loop=(0, 10),
        size="real",
    ),
    Chapter(
        mark("One thread for each output pixel"),
        (
            mark("No output pixel depends on another. So each gets a thread of its own, and thousands run at once."),
            mark("Thread 1 starts one column further. Each step now shows a whole window."),
        ),
        NUMBERS,
        step=12,
        loop=(12, 22),
        size="real",
        nudge=mark("Click an output pixel: its window and its sum are shown."),
    ),
    Chapter(
        mark("Seven loops"),
        (
            mark(
                "A convolution has seven loops: images n, filters k, rows p and columns q of the output, channels c, rows r and columns s of the filter."
            ),
            mark("Threads take the place of four of them. The other three, c, r and s, run inside the thread."),
            mark("The highlighted line is the innermost one."),
        ),
        NUMBERS,
        step=4,
        size="real",
        nudge=mark("At {real_shape} the innermost line runs {real_macs} times."),
    ),
    Chapter(
        mark("All threads read the same pixels"),
        (
            mark("Windows overlap, and every filter reads the whole image again."),
            mark("A pixel is loaded up to {stage_loads} times here, and up to {real_loads} times at {real_shape}."),
        ),
        NUMBERS,
        step=32,
        size="real",
        question=Question(
            mark("What limits the kernel there?"),
            LIMITS,
            limited_by("real"),
            mark(
                "None of the three. Each multiply-add waits for two loads, which the caches mostly answer. No bar counts these. It takes {real_time}."
            ),
        ),
        holds=nothing_limits("real"),
    ),
    Chapter(
        mark("What a warp loads"),
        (
            mark("Each step is now one product of one warp: each lane loads a pixel and a weight."),
            mark("The lanes of warp 0 read neighbouring pixels of a few rows. That is nearly coalesced."),
            mark("When all lanes read one weight, a single sector is enough."),
        ),
        {"order": "warps"},
        loop=(0, 5),
        nudge=mark("On average a load takes {stage_sectors} sectors (32 bytes)."),
    ),
    Chapter(
        mark("Would sharing help?"),
        (
            mark(
                "A second version first copies a patch of the image and the weights into shared memory. All threads of a block then read from there."
            ),
            mark(
                "The stage shows its first block, which loads each pixel once. The copy costs instructions and a barrier."
            ),
        ),
        NUMBERS | {"order": "tiled"},
        step=3,
        loop=(0, 10),
        size="real",
        question=faster(
            mark("Your guess: is the version with shared memory faster at {real_shape}?"),
            "conv/direct",
            "real",
            mark("It takes {real_time_direct_tiled}, the plain loop {real_time_direct}."),
            of="conv/direct-tiled",
        ),
    ),
    Chapter(
        mark("Where next"),
        (
            mark("The direct loop needs no extra memory, but it loads a pixel many times."),
            mark("[im2col](/im2col) turns the same sums into one matrix product. For that, fast kernels exist."),
        ),
        NUMBERS,
        step=82,
        size="real",
        nudge=mark("Switch to Explore to set your own shape and run it."),
    ),
)

STORY = Story(CHAPTERS, facts)
