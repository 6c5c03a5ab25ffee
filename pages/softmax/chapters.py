"""The chapters of the lesson on softmax."""

from __future__ import annotations

from kernels.i18n import mark
from pages.parts.chapters import LIMITS, Chapter, Question, Story, faster
from visuals import units
from visuals.strip.facts import Evidences, Facts, limited_by


def facts(evidences: Evidences) -> Facts:
    """Returns the bytes of x at the real size."""
    return {f"{size}_x": units.bytes_(4 * e.shape.elements) for size, e in evidences.items()}


def read_again_from_a_cache(evidences: Evidences) -> bool | None:
    """Returns whether three passes load bytes faster than memory copies them, so that some come from a cache, and two passes
    take longer all the same; None if one was not measured."""
    rows = evidences["real"].rows
    three, two = rows.get("softmax/three-pass"), rows.get("softmax/online")
    if not three or not two:
        return None
    bytes_per_s = three["predicted_bytes"] / three["median_ms"] * 1e3
    return bytes_per_s > three["ceilings"]["copy_bytes_per_s"] and two["median_ms"] > three["median_ms"]


CHAPTERS = (
    Chapter(
        mark("Numbers become weights"),
        (
            mark("Softmax turns a row of [numbers](input) into positive [weights](output) that add up to 1. The largest number gets the largest weight."),
            mark("y = exp(x) / l, with [l](workspace) the sum of all exponentials. This kernel reads the row once for the sum, and again for the results."),
        ),
        {"rung": "unsafe"},
        loop=(0, 14),
        size="real",
    ),
    Chapter(
        mark("Too large for FP32"),
        (
            mark("exp grows fast. Above 88.72 its result is larger than any FP32 number and becomes infinity."),
            mark("Then the sum is infinite, and infinity divided by infinity is not a number (NaN). This row has such numbers: watch the results."),
        ),
        {"rung": "unsafe", "logits": "large"},
        step=4,
        loop=(4, 14),
        size="real",
        nudge=mark("Subtract one number from the whole row and the weights stay the same, so the kernel can subtract the maximum."),
    ),
    Chapter(
        mark("Three passes"),
        (
            mark("The first pass finds the [maximum m](filter), the second adds exp(x − m), the third writes the weights."),
            mark("No exponent is above 0 now, so nothing overflows. But the row is read three times."),
        ),
        {"rung": "three-pass"},
        loop=(0, 24),
        size="real",
        question=faster(
            mark("The row is read once more than before. Your guess: is it slower than the kernel without the maximum?"),
            "softmax/unsafe", "real",
            mark("It takes {real_time}. {real_against_unsafe}"),
        ),
    ),
    Chapter(
        mark("A tree, not a queue"),
        (
            mark("Each thread has a maximum of its own, and the block needs one."),
            mark("Half of the threads compare with the other half, then a quarter, and so on: 8 values take 3 rounds. After each round all threads wait at a barrier."),
        ),
        {"rung": "three-pass"},
        step=5,
        loop=(5, 9),
        size="real",
    ),
    Chapter(
        mark("Correct the sum on the way"),
        (
            mark("Maximum and sum can be found together. When a larger number arrives, the sum so far was computed with the wrong maximum."),
            mark("One factor corrects it: exp(old m − new m). Flash attention uses the same trick."),
        ),
        {"rung": "online"},
        step=2,
        holds=read_again_from_a_cache,
        size="real",
        question=faster(
            mark("Two passes instead of three, but more exponentials. Your guess: is it faster?"),
            "softmax/three-pass", "real",
            mark("It takes {real_time}. {real_against_three_pass} The row is short: the read that is saved comes from a cache, and it costs less than the added arithmetic."),
        ),
    ),
    Chapter(
        mark("Lanes exchange registers"),
        (
            mark("The 32 lanes of a warp can exchange values of registers without shared memory and without a barrier."),
            mark("Five exchanges, at distance 16, 8, 4, 2 and 1, give every lane the result. One warp takes one row."),
        ),
        {"rung": "warp-shuffle"},
        readable=("m",),
        step=2,
        loop=(2, 6),
        size="real",
    ),
    Chapter(
        mark("Read the row once"),
        (
            mark("This kernel loads the row into registers and keeps it there. Maximum, sum and results all come from registers."),
            mark("x is read once and y written once. Fewer bytes are not possible."),
        ),
        {"rung": "registers"},
        loop=(0, 21),
        size="real",
        question=faster(
            mark("Your guess: is it faster than three passes?"),
            "softmax/three-pass", "real",
            mark("It takes {real_time}. {real_against_three_pass}"),
        ),
    ),
    Chapter(
        mark("One row, several blocks"),
        (
            mark("A long row has too many numbers for the registers of one block. A cluster is a group of blocks that run at the same time and reach each other’s shared memory."),
            mark("Each block keeps a part of the row. After one barrier, each warp reads [m](filter) and [l](workspace) of all blocks, and x is read only once."),
        ),
        {"rung": "cluster"},
        readable=("warp_m", "warp_l"),
        step=8,
        loop=(7, 11),
        size="real",
        question=faster(
            mark("Take long rows now: {real_shape}. Your guess: is it faster than PyTorch’s softmax?"),
            "softmax/library", "real",
            mark("It takes {real_time}. {real_against_library}"),
        ),
        nudge=mark("Rows of any length: “split over blocks” merges parts in a second launch, “many blocks, one launch” in the same."),
    ),
    Chapter(
        mark("What is left to gain?"),
        (
            mark("Softmax does little arithmetic for each number that it reads. At {real_shape}, x alone is {real_x}."),
        ),
        {"rung": "registers"},
        step=4,
        size="real",
        question=Question(mark("What limits it?"), LIMITS, limited_by("real"), mark("It uses {real_memory} of the memory bandwidth.")),
        nudge=mark("Next, [layers](/layers) has a loss made of softmax, and in [attention](/attention) the row never goes to memory."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
