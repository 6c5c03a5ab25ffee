# fmt: off
"""What the stage shows of each softmax kernel: its tensors, the lines that are steps, and what is said of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from kernels.i18n import mark
from visuals.scene.compiler.view import Buffer, Bytes, Number, PerThread, Say, Shared, View, every, step
from visuals.scene.parts import Group

X, Y = Buffer("x", "input", "x"), Buffer("y", "output", mark("y = softmax(x)"))
M = PerThread("m", "filter", mark("m, largest so far"), mark("one column per thread"))
L = PerThread("l", "workspace", mark("l, sum so far"), mark("one column per thread"))
EXCHANGED = mark("one row after each exchange")
LEVELS = mark("one row per level, all in the same cells of shared memory")
OF_WARPS = mark("one value per warp")

MEMORY = Group((("x",), ("y",)), "global", mark("global memory"))
REGISTERS = mark("registers of the block’s {threads} threads")
SHARED = mark("shared memory of the block")

MOVED = (Bytes(mark("bytes of x read"), "x", "ld"), Bytes(mark("passes over x"), "x", "ld", per="4 * N"), Bytes(mark("bytes of y written"), "y", "st"))
SUM_OF_BOTH = "sum(where(m == -inf, l, l * exp(m - max(m))))"


def so_far(*during: str, m: str = "max(m)", l: str = SUM_OF_BOTH) -> tuple[Number, ...]:  # noqa: E741
    """Returns the readings of m and l of all numbers that the threads have read; m="": without m."""
    largest = Number(mark("m so far"), m, "filter", during, float("-inf"))
    return (*((largest,) if m else ()), Number(mark("l so far"), l, "workspace", during))


# -- passes over x -----------------------------------------------------------------------------------------
FIRST_PASS = mark("Pass 1, loop iteration {visit} of {visits}, from x[{min(col)}] on.")
SECOND_PASS = mark("Pass 2, loop iteration {visit} of {visits}, from x[{min(col)}] on.")
THIRD_PASS = mark("Pass 3, loop iteration {visit} of {visits}, from x[{min(col)}] on.")
GATHER = step("running = merge(running, {x[col]",
    Say("Thread {thread} reads {x}. Its maximum was {m.before}. Its sum [l](workspace) is NaN (not a number) from here on.", "isnan(l) and not isnan(l.before)", "x"),
    Say("Every number read is −∞. [m](filter) stays −∞, and [l](workspace) stays 0.", "max(m) == -inf"),
    Say("Each active thread reads one number of [x](input). Thread {thread} sets its maximum [m](filter) = {m} and its sum [l](workspace) = exp(m − m) = {l}.", "max(m.before) == -inf and m > -inf", "x"),
    Say("Thread {thread} reads {x}, which is larger than its maximum {m.before}. Its sum is rescaled by exp(old m − new m) = {exp(m.before - m)}. [l](workspace) = {l.before} · {exp(m.before - m)} + 1 = {l}, and [m](filter) = {m}.", "m > m.before and not isnan(l)", "x"),
    Say("No thread reads a number above its maximum. Thread {thread} reads {x} and keeps [m](filter) = {m}. [l](workspace) = {l.before} + exp({x} − m) = {l}.", "not isnan(l)", "x"),
    Say("Thread {thread} reads {x}. Its sum [l](workspace) was NaN (not a number) before, and stays NaN."),
    lead=FIRST_PASS)
MAXIMUM = step("m = fmaxf(m, x[col])",
    Say("Each active thread reads one number of [x](input) and updates its maximum [m](filter). Thread {thread} now has m = {m}.", "max(m.before) == -inf", "x"),
    Say("Thread {thread} reads {x}. This is larger than its maximum {m.before}, so [m](filter) becomes {m}.", "m > m.before", "x"),
    Say("No thread reads a number above its maximum. Thread {thread} reads {x} and keeps [m](filter) = {m}.", pick="x"),
    lead=FIRST_PASS)
SUM = step("l += expf(x[col] - m)",
    Say("Thread {thread} reads {x}, and m = {m}. exp(x − m) is NaN (not a number), so its sum [l](workspace) is NaN from here on.", "isnan(exp(x - m))"),
    Say("Thread {thread} adds exp({x} − m) = {exp(x - m)} to its sum [l](workspace), now {l}. Because m = {m} is the maximum, no exponent is above 0.", pick="x"),
    lead=SECOND_PASS)
UNSAFE_SUM = step("l += expf(x[col])",
    Say("Thread {thread} reads {x}. exp({x}) is beyond 3.4·10^38, the largest FP32 number. It becomes ∞ and is added to [l](workspace).", "isinf(exp(x))"),
    Say("Thread {thread} reads {x}. Its sum [l](workspace) is NaN (not a number) from here on.", "isnan(x)"),
    Say("Thread {thread} reads {x}. exp({x}) is finite, but its sum [l](workspace) is now beyond 3.4·10^38, the largest FP32 number. It becomes ∞.", "isfinite(l.before) and isinf(l)"),
    Say("Thread {thread} adds exp({x}) = {exp(x)}. Its sum was not finite before, so [l](workspace) stays {l}.", "x == max(x) and not isfinite(l)"),
    Say("Thread {thread} adds exp({x}) = {exp(x)} to its sum [l](workspace), now {l}.", pick="x"),
    lead=FIRST_PASS)
RESULT = step("y[col] = ",
    Say("Thread {thread} computes exp({x} − m) = {exp(x - m)} with m = {m}, and l = {l}. The result [y](output) is NaN (not a number).", "isnan(y)"),
    Say("Thread {thread} writes [y](output) = exp({x} − m) / l = {y}, with m = {m} and l = {l}.", pick="y"),
    lead=SECOND_PASS)
UNSAFE_RESULT = step("y[col] = ",
    Say("Thread {thread} computes exp({x}) = {exp(x)}, and l = {l}. {exp(x)} / {l} is NaN (not a number): this is [y](output).", "isnan(y)"),
    Say("Thread {thread} writes [y](output) = exp({x}) / ∞ = {y}. The infinite sum makes every finite exponential 0.", "isinf(l)"),
    Say("Thread {thread} writes [y](output) = exp({x}) / l = {y}, with l = {l}.", pick="y"),
    lead=SECOND_PASS)

# -- trees in shared memory ----------------------------------------------------------------------------------
PARTIAL_L = Shared("partial_l", "workspace", mark("partial, for l"), LEVELS, "partial", of="partial", rows=("level_l",), during=("store_l", "level_l", "root_l"))
TREE_L = {
    "store_l": step("partial[thread] = l;", "All {active} threads store their sum [l](workspace) in shared memory. They wait at the barrier until all have stored."),
    "level_l": step("partial[thread] += partial[thread + stride]",
        Say("{active} threads work, {idle} idle. Thread t adds the [l](workspace) of thread t + {stride} to its own. Thread {thread} computes {partial_l[thread]} + {partial_l[thread + stride]} = {partial_l.new}. Then all wait at the barrier.", "stride > 1"),
        Say("In the last level only thread {thread} works. It computes [l](workspace) = {partial_l[thread]} + {partial_l[thread + stride]} = {partial_l.new}."),
        cells={"partial_l": mark("The sum of {partial_l[thread]} and {partial_l[thread + stride]}.")}),
    "root_l": step("l = partial[0];", "All threads read cell 0 of shared memory. The sum of the row is [l](workspace) = {l}."),
}
TREE_M = {
    "store_m": step("partial[thread] = m;", "All {active} threads store their maximum [m](filter) in shared memory. They wait at the barrier until all have stored."),
    "level_m": step(re.compile(r"partial\[thread\] =$"),
        Say("{active} threads work, {idle} idle. Thread t compares its [m](filter) with that of thread t + {stride}. It keeps the larger. Thread {thread} compares {partial_m[thread]} with {partial_m[thread + stride]} and keeps {partial_m.new}. Then all wait at the barrier.", "stride > 1"),
        Say("In the last level only thread {thread} works. It compares {partial_m[thread]} with {partial_m[thread + stride]} and keeps [m](filter) = {partial_m.new}."),
        cells={"partial_m": mark("The larger of {partial_m[thread]} and {partial_m[thread + stride]}.")}),
    "root_m": step("m = partial[0];", "All threads read cell 0 of shared memory. The maximum of the row is [m](filter) = {m}."),
}
MERGED_M = mark("The larger of {m.before} and {partial_m}.")
MERGED_L = mark("The sum of {l.before} and {partial_l}, each first rescaled to the larger m.")

UNSAFE = View(
    (X, Y, L, PARTIAL_L),
    (MEMORY, Group((("l",),), "registers", REGISTERS), Group((("partial_l",),), "shared", SHARED)),
    ({"sum": UNSAFE_SUM, **TREE_L, "result": UNSAFE_RESULT},), (*so_far("sum", m="", l="sum(l)"), *MOVED),
)
THREE_PASS = View(
    (X, Y, M, L, replace(PARTIAL_L, name="partial_m", role="filter", title=mark("partial, for m"), rows=("level_m",), during=tuple(TREE_M)), PARTIAL_L),
    (MEMORY, Group((("m", "l"),), "registers", REGISTERS), Group((("partial_m", "partial_l"),), "shared", SHARED)),
    ({"maximum": MAXIMUM, **TREE_M, "sum": SUM, **TREE_L, "result": replace(RESULT, lead=THIRD_PASS)},),
    (*so_far("maximum")[:1], *so_far("sum", m="", l="sum(l)"), *MOVED),
)
ONLINE = View(
    (
        X, Y, replace(M, of="running.m m"), replace(L, of="running.l l"), Shared("partial_m", "filter", "partial_m", LEVELS, rows=("level",)),
        Shared("partial_l", "workspace", "partial_l", LEVELS, rows=("level",)),
    ),
    (MEMORY, Group((("m", "l"),), "registers", REGISTERS), Group((("partial_m", "partial_l"),), "shared", SHARED)),
    (
        {
            "gather": GATHER,
            "store": step("partial_m[thread] = running.m, partial_l",
                "All {active} threads store [m](filter) and [l](workspace) in shared memory. They wait at the barrier until all have stored."),
            "level": step("merge(running, {partial_m[thread + stride]",
                Say("{active} threads work, {idle} idle. Thread t merges with thread t + {stride}. Thread {thread} keeps the larger of m = {m.before} and {partial_m}: [m](filter) = {m}. It rescales l = {l.before} and {partial_l} to this m and adds them: [l](workspace) = {l}. Then the barrier.", "stride > 1"),
                Say("In the last level only thread {thread} works. It keeps the larger of m = {m.before} and {partial_m}: [m](filter) = {m}. It rescales l = {l.before} and {partial_l} to this m and adds them: [l](workspace) = {l}."),
                cells={"partial_m": MERGED_M, "partial_l": MERGED_L}),
            "root": step("float m = partial_m[0]", "All threads read cell 0 of shared memory. The row has the maximum [m](filter) = {m} and the sum [l](workspace) = {l}."),
            "result": RESULT,
        },
    ),
    (*so_far("gather"), *MOVED),
)

# -- butterflies -----------------------------------------------------------------------------------------------
SWAP = step("__shfl_xor_sync(~0u, running.m",
    "Lanes (threads of a warp) exchange m and l in pairs, at distance {lane_mask}. Lanes {lane} and {lane ^ lane_mask} keep the larger of m = {m.before} and {other_m}: [m](filter) = {m}. They rescale l = {l.before} and {other_l} to this m and add them: [l](workspace) = {l}.",
    to="running = merge(running, {other_m", cells={"m": mark("The larger of {m.before} and {other_m}."), "l": mark("The sum of {l.before} and {other_l}, each first rescaled to the larger m.")})
WARP_SHUFFLE = View(
    (X, Y, replace(M, of="running.m", note=EXCHANGED, rows=("swap",)), replace(L, of="running.l", note=EXCHANGED, rows=("swap",))),
    (MEMORY, Group((("m",), ("l",)), "registers", mark("registers of lanes 0 to 31 of the warp"))),
    ({"gather": GATHER, "swap": SWAP, "result": RESULT},), (*so_far("gather"), *MOVED), threads=32,
)
VALUES = PerThread("values", "input", mark("the row in registers"), mark("one row per register"))
OVER_M, OVER_L = "m = over_block<max_of>", "l = over_block<sum_of>"
SWAP_ONE, STORE_ONE, MERGE_ALL = "value = COMBINE(value, __shfl_xor_sync", "warp_values[threadIdx.x / 32] = value", "value = warp_values[0]"
BLOCK_M = {
    "swap_m": step(SWAP_ONE,
        "Lanes (threads of a warp) exchange [m](filter) in pairs, at distance {lane_mask}. Both keep the larger. Lanes {lane} and {lane ^ lane_mask} compare {m.before} with {received(m)} and keep {m}.",
        inside=OVER_M, shows={"m": "value"}, cells={"m": mark("The larger of {m.before} and {received(m)}.")}),
    "parts_m": step(STORE_ONE,
        "The first lane of each warp stores its [m](filter) in shared memory. Warps: {active}. Then all threads wait at a barrier, the only one of this reduction.",
        inside=OVER_M),
    "whole_m": step(MERGE_ALL,
        "Each thread compares the values that the warps stored. The maximum of the row is [m](filter) = {m}.",
        to="return value;", inside=OVER_M, merge=True, shows={"m": "value"}),
}
BLOCK_L = {
    "swap_l": step(SWAP_ONE,
        "Lanes (threads of a warp) exchange [l](workspace) in pairs, at distance {lane_mask}. Both add the two sums. Lanes {lane} and {lane ^ lane_mask} compute {l.before} + {received(l)} = {l}.",
        inside=OVER_L, shows={"l": "value"}, cells={"l": mark("The sum of {l.before} and {received(l)}.")}),
    "parts_l": step(STORE_ONE,
        "The first lane of each warp stores its [l](workspace) in shared memory. Warps: {active}. Then all threads wait at a barrier, the only one of this reduction.",
        inside=OVER_L),
    "whole_l": step(MERGE_ALL,
        "Each thread adds the values that the warps stored. The sum of the row is [l](workspace) = {l}.",
        to="return value;", inside=OVER_L, merge=True, shows={"l": "value"}),
}
IN_REGISTERS = View(
    (
        X, Y, VALUES, replace(M, note=EXCHANGED, rows=("swap_m", "whole_m")), replace(L, note=EXCHANGED, rows=("swap_l", "whole_l")),
        Shared("warp_m", "filter", "warp_m", OF_WARPS), Shared("warp_l", "workspace", "warp_l", OF_WARPS),
    ),
    (MEMORY, Group((("values",), ("m",), ("l",)), "registers", REGISTERS), Group((("warp_m", "warp_l"),), "shared", SHARED)),
    (
        {
            "load": step("values[i] = col < N ? x[col]",
                Say("Load {visit} of {visits} is beyond the end of the row. All {active} threads set their register to −∞. The exponential of −∞ is 0.", "count(x) == 0"),
                Say("Load {visit} of {visits}, from x[{min(col)}] on, reaches the end of the row. Threads that load a number of [x](input): {count(x)}. Threads that set their register to −∞: {threads - count(x)}. The exponential of −∞ is 0.", "count(x) < threads"),
                Say("Load {visit} of {visits}: {active} threads each load one number of [x](input) into a register, from x[{min(col)}] on. No thread uses a number yet.")),
            "own_m": step("m = fmaxf(m, values[i])",
                Say("Each thread finds the largest number in its registers: its [m](filter). Thread {thread} has m = {m}. x is not read again.", pick="m"),
                merge=True),
            **BLOCK_M,
            "own_l": step("l += values[i] = expf",
                Say("Each thread replaces its numbers by exp(x − m), with m = {m}, and adds the results. The first result of thread {thread} is {values[0]}, and its sum is [l](workspace) = {l}.", pick="l"),
                merge=True),
            **BLOCK_L,
            "put": step("y[col] = values[i]",
                Say("Store {visit} of {visits}, from registers to [y](output). Thread {thread} has {values[i]}, and l = {l}. Its y is NaN (not a number).", "isnan(y)"),
                Say("Store {visit} of {visits}, from registers to [y](output). Thread {thread} writes {values[i]} · (1 / l) = {y}, with l = {l}.", pick="y")),
        },
    ),
    (*so_far("own_m")[:1], *so_far("own_l", m="", l="sum(l)"), *MOVED),
)

# -- a row in several blocks -----------------------------------------------------------------------------------
EXCHANGES = ("swap", "merge", "whole")
M_OF_BLOCK = replace(M, of="own.m", note=EXCHANGED, rows=EXCHANGES)
L_OF_BLOCK = replace(L, of="own.l", note=EXCHANGED, rows=EXCHANGES)
WARP_M = Shared("warp_m", "filter", "warp_m", OF_WARPS, of="of_warp", **every(0, 2))
WARP_L = Shared("warp_l", "workspace", "warp_l", OF_WARPS, of="of_warp", **every(1, 2))
OF_BLOCK = mark("registers of block {block}")
OF_BLOCKS = Group((("warp_m", "warp_l"),), "shared", mark("shared memory, one row per block"))
WORKSPACE = Group((("part_m", "part_l"),), "workspace", mark("workspace in global memory"))
CUT = mark("Load {visit} of {visits}. The row is cut into {blocks} parts of {max(part.end - part.start)} columns, one for each block.")
FIRST_LAUNCH = mark("First launch, loop iteration {visit} of {visits}. The row is cut into {blocks} parts of {max(part.end - part.start)} columns, one for each block.")
SHOW_ALL, SHOW_PART = {"m": "all.m", "l": "all.l"}, {"m": "part.m", "l": "part.l"}
EXPONENTIALS = {
    "load": step("values[i] = load_four",
        Say("Each thread loads four numbers of [x](input) at once into registers.", "count(x) == threads"),
        Say("Threads that load up to four numbers of [x](input) at once: {count(x)}. Threads that set their registers to −∞: {threads - count(x)}."),
        lead=CUT),
    "own_max": step("own.m = fmaxf(own.m",
        Say("Each thread finds the largest number in its registers: its [m](filter). Thread {thread} of block {block} has m = {m}. x is not read again.", pick="m"),
        merge=True),
    "own_exp": step("values[i] = exp_of",
        Say("Each thread replaces its numbers by exp(x − m), with its own maximum [m](filter), and adds them. Thread {thread} of block {block} has m = {m}. Its first result is {values[0]}, and its sum is [l](workspace) = {l}.", pick="m"),
        to="own.l += sum_of(values[i]);", merge=True),
}
SWAP_OWN = replace(SWAP, at="__shfl_xor_sync(~0u, part.m", to="part = merge(part, {other_m", inside="over_warp(own)", shows=SHOW_PART)
STORED = mark("The first lane of each warp stores [m](filter) and [l](workspace) in the shared memory of its block. Blocks: {blocks}, warps: {active}.")
STORE_WARPS = step("of_warp[thread / 32] = all", "Then the threads of each block wait at its barrier.", lead=STORED)
WHOLE = step("__shfl_xor_sync(~0u, part.m",
    "The lanes of each warp merge these values in five exchanges. All threads then have the maximum of the row [m](filter) = {m} and the sum [l](workspace) = {l}.",
    to="return part;", inside="over_warp(all)", merge=True, shows=SHOW_PART)
PUT_OWN = step("store_four(y, first",
    Say("Store {visit} of {visits}, from registers to [y](output). Thread {thread} of block {block} multiplies its numbers by exp(own m − m) / l = {factor}. Its y is NaN (not a number).", "isnan(y.largest)"),
    Say("Store {visit} of {visits}, from registers to [y](output). Thread {thread} of block {block} multiplies {y.largest / factor} by exp(own m − m) / l = {factor}. It writes {y.largest}.", pick="y.largest"))
PART_M, PART_L = Buffer("part_m", "filter", "part_m", mark("one value per part")), Buffer("part_l", "workspace", "part_l")

CLUSTER = View(
    (X, Y, VALUES, M_OF_BLOCK, L_OF_BLOCK, WARP_M, WARP_L), (MEMORY, Group((("values",), ("m",), ("l",)), "registers", OF_BLOCK), OF_BLOCKS),
    (
        {
            **EXPONENTIALS,
            "swap": SWAP_OWN,
            "store": step("of_warp[thread / 32] = all", "Then all threads of the cluster wait at its barrier.", lead=STORED),
            "merge": step("float2 m_l = load_from",
                Say("Each warp reads [m](filter) and [l](workspace) of all warps of the cluster, also from the shared memory of the other blocks. Lane {lane} reads those of warp {warp % (BLOCK // 32)} of block {warp // (BLOCK // 32)}: m = {m_l.x} and l = {m_l.y}.", pick="m_l.x"),
                to="all = merge(all, {m_l.x", merge=True, shows=SHOW_ALL),
            "whole": WHOLE,
            "put": PUT_OWN,
        },
    ),
    (*so_far("own_max")[:1], *so_far("own_exp", m=""), *MOVED),
)
SPLIT = View(
    (X, Y, M_OF_BLOCK, L_OF_BLOCK, WARP_M, WARP_L, PART_M, PART_L), (MEMORY, WORKSPACE, Group((("m",), ("l",)), "registers", OF_BLOCK), OF_BLOCKS),
    (
        {
            "gather": step("values[i] = load_four",
                Say("Each active thread loads up to four numbers of [x](input) at once. Thread {thread} of block {block} now has [m](filter) = {m} and [l](workspace) = {l}.", pick="x.largest"),
                lead=FIRST_LAUNCH, to="own.l += sum_of(exp_of", each="first"),
            "swap": SWAP_OWN,
            "store": STORE_WARPS,
            "parts": step("all = thread < WARPS",
                "Warp 0 of each block merges the values of its warps. Thread 0 stores them as part_m and part_l in global memory. Parts: {blocks}. Block 0 stores m = {part_m.new} and l = {part_l.new}. The first launch ends.",
                to="part_m[blockIdx.x] = all.m"),
        },
        {
            "again": step("values[i] = load_four(x, first + i",
                "Second launch, second read of [x](input). Each active thread loads up to four numbers at once. It merges the parts while the loads run.",
                merge=True),
            "merge": step("all = merge(all, {part_m[i]",
                Say("Each warp reads [m](filter) and [l](workspace) of all parts. Parts: {blocks}. Lane {lane} reads those of part {i}: m = {part_m} and l = {part_l}.", pick="part_m"),
                merge=True, shows=SHOW_ALL),
            "whole": WHOLE,
            "put": step("store_four(y, first",
                Say("Loop iteration {visit} of {visits}. Thread {thread} of block {block} computes exp(x − m) · (1 / l) with m = {all.m} and l = {all.l}. Its y is NaN (not a number).", "isnan(y.largest)"),
                Say("Loop iteration {visit} of {visits}. Thread {thread} of block {block} writes [y](output) = exp(x − m) · (1 / l), with m = {all.m} and l = {all.l}. Its largest is {y.largest}.", pick="y.largest"),
                to="exp_of(values[i], all.m), inverse_l", each="first"),
            "next": step("load_four(x, first + TURN",
                Say("Each active thread loads up to four numbers of [x](input) for loop iteration {visit + 1} of {visits}.", "count(x) > 0"),
                Say("After the last loop iteration the threads have no columns left to load. They set their registers to −∞."),
                each="first"),
        },
    ),
    (*so_far("gather"), *MOVED),
)
ONE_LAUNCH = View(
    (
        *(X, Y, VALUES, M_OF_BLOCK, L_OF_BLOCK, WARP_M, WARP_L), replace(PART_M, of="part_ml", dtype="f4", **every(0, 2)),
        replace(PART_L, of="part_ml", dtype="f4", **every(1, 2), note=mark("its sign says which launch stored it")),
    ),
    (MEMORY, WORKSPACE, Group((("values",), ("m",), ("l",)), "registers", OF_BLOCK), OF_BLOCKS),
    (
        {
            **EXPONENTIALS,
            "swap": SWAP_OWN,
            "store": STORE_WARPS,
            "parts": step("all = thread < WARPS",
                "Warp 0 of each block merges the values of its warps. Thread 0 stores both as one word of 64 bits in global memory. Words: {blocks}. Block 0 stores m = {part_m.new} and l = {abs(part_l.new)}. Its part of x stays in registers.",
                to="store_word(part_ml + split"),
            "merge": step("all = merge(all, running_of(wait_for",
                Say("Warp 0 of each block loads the words of all parts, again and again, until all of them are new. Words: {blocks}. Lane {lane} has that of part {i}: m = {part_m.read} and l = {abs(part_l.read)}.", pick="part_m.read"),
                merge=True, shows=SHOW_ALL),
            "whole": step("all = of_row;",
                "The lanes of warp 0 merge these values in five exchanges. All threads of its block read the result after a barrier: [m](filter) = {m} and [l](workspace) = {l} of the row.",
                shows=SHOW_ALL),
            "put": PUT_OWN,
        },
    ),
    (*so_far("own_max")[:1], *so_far("own_exp", m=""), *MOVED),
)
VIEWS: Mapping[str, View] = {
    "softmax/unsafe": UNSAFE, "softmax/three-pass": THREE_PASS, "softmax/online": ONLINE, "softmax/warp-shuffle": WARP_SHUFFLE,
    "softmax/registers": IN_REGISTERS, "softmax/cluster": CLUSTER, "softmax/split": SPLIT, "softmax/one-launch": ONE_LAUNCH,
}
