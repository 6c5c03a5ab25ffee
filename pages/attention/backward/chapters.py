"""The chapters of the lesson on attention's backward pass."""

from __future__ import annotations

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import mark
from kernels.ladders import find
from kernels.model.launch import ceil
from pages.parts.chapters import Chapter, Question, Story, faster
from visuals import units
from visuals.attention.backward.memory import LENGTHS, MEMORY, kept
from visuals.attention.backward.notes import ATOMIC, NAIVE, squares
from visuals.strip.facts import Evidences, Facts

REAL = {"B": "4", "H": "16", "N": "2048", "d": "64"}
HALVES = {"N": "32", "d": "16", "dtype": "fp16", "rung": "flash-mma", "Br": "128", "Bc": "32", "WM": "32"}
LONGER = 8  # times the N of the question on memory
TIMES = ("8", "16", "64")  # answers to it


def _grown(evidences: Evidences) -> int | None:
    """Returns the index in TIMES of how many times the bytes of P and dS an N needs that is LONGER times as large."""
    s = evidences["stage"].shape
    times = str(squares(s.with_(N=LONGER * s.N)) // squares(s))
    return TIMES.index(times) if times in TIMES else None


def _doubled(evidences: Evidences) -> bool:
    """Returns whether twice the N takes four times the bytes with P and dS in memory, and twice the bytes without."""
    s = evidences["stage"].shape
    grown = (kept(rung, s.with_(N=2 * s.N)) / kept(rung, s) for rung in (NAIVE, ATOMIC))
    return tuple(round(times, 2) for times in grown) == (4, 2)


def facts(evidences: Evidences) -> Facts:
    """Returns the bytes that are kept and moved at each size, as FP32, and what the launches of flash attention count."""
    found = {}
    for size, evidence in evidences.items():
        found |= {f"{size}_{name}": text for name, text in _counts(evidence.shape).items()}
    return found


def _counts(s: AttentionBackwardShape) -> Facts:
    fp32 = s.with_(dtype="fp32")
    moved = {rung: find(rung).cost(fp32, _program(rung, fp32)).moved_bytes for rung in (NAIVE, ATOMIC)}
    Br, Bc = (find(ATOMIC).default_tiles[side] for side in ("Br", "Bc"))
    return {
        "squares": units.bytes_(squares(s)),
        "square_ratio": units.ratio(squares(s) / fp32.bytes),
        "longer": units.whole(LONGER * s.N),
        "longer_squares": units.bytes_(squares(s.with_(N=LONGER * s.N))),
        "rows": units.bytes_(kept(ATOMIC, fp32)),
        "moved_naive": units.bytes_(moved[NAIVE]),
        "moved_flash": units.bytes_(moved[ATOMIC]),
        "parts": units.whole(ceil(s.N, Bc)),
        "passing": units.whole(ceil(s.N, Br)),
    }


def _program(rung: str, s: AttentionBackwardShape):
    return find(rung).build(s, find(rung).default_tiles)


CHAPTERS = (
    Chapter(
        mark("What flows back?"),
        (
            mark("Forward, an output is a mean of all values, weighted by a row of [P](workspace)."),
            mark("Backward, [dO](input) says how the loss changes with each output. A value with a large weight gets a large part of it: [dV](output) is Pᵀ dO."),
            mark("The weights came from queries and keys, so these get gradients too: [dQ](output) and [dK](output)."),
        ),
        {"rung": "naive"},
        step=8,
        loop=(8, 13),
        pin="dV:12",
        size="real",
        nudge=mark("Step back to the start: P and dS are made first, then each gradient is one matrix product."),
    ),
    Chapter(
        mark("Back through the softmax"),
        (
            mark("Each weight gets a gradient first: dP is [dO](input) times a value, as a dot product."),
            mark("But the weights of a row add up to 1, so no weight can grow alone. The scores get dS = P · (dP − D), stored here as [scale · dS](workspace)."),
            mark("[D](workspace), the row’s mean of dP weighted by P, is also the row sum of dO · O: it needs no N × N matrix."),
        ),
        {"rung": "naive"},
        step=6,
        loop=(0, 7),
        pin="dS:0",
        size="real",
        nudge=mark("If a query has a single key with weight 1, dP equals D and nothing flows back to its scores."),
    ),
    Chapter(
        mark("Two N × N matrices"),
        (
            mark("This version keeps P and dS in memory. At {real_shape} they take {real_squares}, {real_square_ratio} times all inputs and gradients."),
            mark("The launches read or write such a matrix nine times. They move at least {real_moved_naive}."),
        ),
        {"rung": "naive"},
        step=7,
        loop=(2, 13),
        size="real",
        question=Question(
            mark("P and dS take {real_squares}. Your guess: how many times as much at N = {real_longer}?"),
            TIMES,
            _grown,
            mark("{real_longer_squares}. N is 8 times as large, and both sides of the matrix grow: 8 · 8 = 64."),
        ),
    ),
    Chapter(
        mark("Memory over N"),
        (
            mark("N doubles from column to column. A filled cell is four times the bytes of the cell under it."),
            mark("So [P and dS](workspace) grow by one cell for each column. [L and D](output), two numbers for each query, grow by half a cell: {stage_rows} at this N."),
        ),
        REAL | {"rung": "naive", "TILE": "32", "order": MEMORY},
        step=LENGTHS.index(2048),
        loop=(0, len(LENGTHS) - 1),
        nudge=mark("Play to the end: the caption names the N at which an H200 is too small."),
        holds=_doubled,
    ),
    Chapter(
        mark("Compute P again"),
        (
            mark("The forward pass can keep the log-sum-exp [L](input), one number for each query. Then P = exp(S − L), and S is a product of Q and K again."),
            mark("Here a block owns one key. It computes its column of P and dS in shared memory and adds up its rows of dV and dK."),
        ),
        {"rung": "recompute"},
        step=6,
        loop=(2, 8),
        size="real",
        question=faster(
            mark("Nothing N × N is stored. Your guess: is it faster than P and dS in memory?"),
            NAIVE, "real",
            mark("It takes {real_time}. {real_against_naive} Each block reads all of Q and dO for a single key."),
        ),
        nudge=mark("In Explore of [layers](/layers), the layer “attention, with L” shows how the forward pass stores L."),
    ),
    Chapter(
        mark("Keys stay, queries pass by"),
        (
            mark("In flash attention a block owns a tile of keys. Its sums [dv](output) and [dk](output) stay in registers, while tiles of queries pass by."),
            mark("Each query passes {real_parts} blocks, so each block adds its part of [dQ](output) by atomic additions."),
            mark("At {real_shape} at least {real_moved_flash} are moved, instead of {real_moved_naive}."),
        ),
        {"rung": "flash"},
        step=15,
        loop=(6, 15),
        pin="dQ:0",
        size="real",
        question=faster(
            mark("Your guess: is it faster than P and dS in memory?"),
            NAIVE, "real",
            mark("It takes {real_time}. {real_against_naive} {real_against_library}"),
        ),
    ),
    Chapter(
        mark("Atomics, or a second kernel?"),
        (
            mark("Atomic additions come in any order, so the last bits of dQ can differ from run to run."),
            mark("Here a second kernel owns a tile of queries, and the keys pass by. Its sum [dq](output) stays in registers."),
            mark("But it computes P and dP once more: seven matrix products instead of five."),
        ),
        {"rung": "flash-two-kernels"},
        step=29,
        loop=(24, 34),
        size="real",
        question=faster(
            mark("Your guess: is it faster than atomics?"),
            ATOMIC, "real",
            mark("It takes {real_time}. {real_against_flash} But every run gives the same bits."),
        ),
    ),
    Chapter(
        mark("In 16 bits, on tensor cores"),
        (
            mark("P and dS stay in the registers of a warp, rounded to 16 bits. Tensor cores multiply them, and the sums stay FP32."),
            mark("This kernel takes {real_time}: {real_against_library_cudnn}"),
            mark("On a Hopper GPU wgmma takes {real_time_flash_wgmma}."),
        ),
        HALVES,
        step=9,
        loop=(3, 11),
        size="real",
        nudge=mark("Next, [fusion](/fusion): other chains of kernels that keep their values out of memory."),
    ),
)  # fmt: skip

STORY = Story(CHAPTERS, facts)
