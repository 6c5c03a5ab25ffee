"""The chapters of the lesson on attention."""

from __future__ import annotations

from kernels.i18n import mark
from pages.parts.chapters import Chapter, Story, faster
from visuals.charts import units
from visuals.strip.facts import Evidences, Facts

NAIVE, FLASH = {"rung": "naive"}, {"rung": "flash"}


def facts(evidences: Evidences) -> Facts:
    """Returns the bytes of S and of all inputs at each size, as FP32."""
    found = {}
    for size, evidence in evidences.items():
        s = evidence.shape
        found[f"{size}_scores"] = units.bytes_(4 * s.heads * s.N * s.N)
        found[f"{size}_inputs"] = units.bytes_(3 * 4 * s.heads * s.N * s.d)
    return found


CHAPTERS = (
    Chapter(
        mark("Each token asks all others"),
        (
            mark("Each token has a [query](input), a [key](filter) and a value. The query is compared with every key: one dot product, one score."),
            mark("N queries and N keys give a matrix [S](workspace) of N × N scores."),
            mark("Each step is one warp that computes 32 scores."),
        ),
        NAIVE,
        loop=(0, 7),
        size="real",
        nudge=mark("Point at a score to see its query and key."),
    ),
    Chapter(
        mark("Scores become weights"),
        (
            mark("Softmax turns each row of S into weights [P](workspace) that add up to 1."),
            mark("The row is read three times: for its maximum m, for its sum l, and for the weights."),
        ),
        NAIVE,
        step=8,
        loop=(8, 13),
        size="real",
    ),
    Chapter(
        mark("A weighted mean of the values"),
        (
            mark("Row i of P says how much token i listens to each other token."),
            mark("Its [output](output) is the mean of all values, with these weights."),
        ),
        NAIVE,
        step=56,
        loop=(56, 60),
        size="real",
    ),
    Chapter(
        mark("N × N is the problem"),
        (
            mark("At {real_shape}, Q, K and V together are {real_inputs}. S alone is {real_scores}, and P is as large."),
            mark("Both are written to global memory and read back. The last version here first copies tiles into shared memory."),
        ),
        {"rung": "blocked"},
        step=3,
        size="real",
        question=faster(
            mark("Your guess: is it faster than one thread for each score?"),
            "attention/naive", "real",
            mark("It takes {real_time}. {real_against_naive}"),
        ),
        nudge=mark("See the memory bar: almost all of it is workspace."),
    ),
    Chapter(
        mark("One query at a time"),
        (
            mark("A block can keep the scores of one query in shared memory. Then S and P never go to global memory."),
            mark("But each block reads all keys and all values, for a single query."),
        ),
        {"rung": "fused"},
        loop=(0, 5),
        size="real",
        question=faster(
            mark("Your guess: is it faster than tiled products that store S and P?"),
            "attention/blocked", "real",
            mark("It takes {real_time}. {real_against_blocked} Less memory is not yet more speed."),
        ),
    ),
    Chapter(
        mark("A tile of keys for a block of queries"),
        (
            mark("Flash attention lets a block of queries share each tile of keys and values. Each tile is loaded once for all of them."),
            mark("The scores of a tile are used at once and then forgotten."),
        ),
        FLASH,
        loop=(0, 7),
        size="real",
        question=faster(
            mark("Your guess: is it faster than tiled products now?"),
            "attention/blocked", "real",
            mark("It takes {real_time}. {real_against_blocked}"),
        ),
    ),
    Chapter(
        mark("When a larger score arrives"),
        (
            mark("Softmax needs the maximum of the whole row, but the block has seen only a part of it."),
            mark("So it keeps a running maximum [m](workspace) and a running sum [l](workspace). When m grows, l and the output so far are multiplied by exp(old m − new m)."),
            mark("At the end the result is exact."),
        ),
        FLASH,
        step=11,
        loop=(11, 17),
        size="real",
        nudge=mark("Follow query 0: its m goes from 2.5 to 3."),
    ),
    Chapter(
        mark("More in registers"),
        (
            mark("This version keeps scores and outputs in registers. Each thread computes several at once, as in [tiling](/tiling)."),
            mark("Each column is one step of a block. V is copied during the scores, the next K while the values are added."),
        ),
        {"rung": "flash-registers", "order": "timeline"},
        step=8,
        loop=(3, 8),
        size="real",
        question=faster(
            mark("Your guess: is it faster than the first flash kernel?"),
            "attention/flash", "real",
            mark("It takes {real_time}. {real_against_flash}"),
        ),
    ),
    Chapter(
        mark("Tensor cores"),
        (
            mark("With FP16 inputs the two products run on tensor cores. Maximum, sum and output stay FP32."),
            mark("{real_against_library_flash}"),
            mark("{real_against_library_cudnn}"),
        ),
        {"N": "32", "d": "16", "dtype": "fp16", "rung": "flash-mma"},
        step=3,
        size="real",
        nudge=mark("Where next? [Fusion](/fusion) applies the same idea to chains of small kernels: keep values out of memory."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
