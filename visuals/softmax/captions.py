"""Captions of the softmax scenes: a template for each kind of step, and the kernel's line that it highlights.

In a pass {0} is its number, {1} of {2} the loop iteration, {3} the first element. The further numbers are those of the
example thread.
"""

from __future__ import annotations

from kernels.i18n import mark, tr

ITERATION = mark("Pass {0}, loop iteration {1} of {2}, from x[{3}] on.")  # begins the captions of IN_A_PASS

IN_A_PASS = {
    # -- a pass that reduces ---------------------------------------------------------------------------
    "first": mark("Each active thread reads one number of [x](input) and updates its maximum [m](filter). Thread {4} now has m = {7}."),
    "larger": mark("Thread {4} reads {5}. This is larger than its maximum {6}, so [m](filter) becomes {7}."),
    "smaller": mark("No thread reads a number above its maximum. Thread {4} reads {5} and keeps [m](filter) = {7}."),
    "add": mark("Thread {4} adds exp({5} − m) = {7} to its sum [l](workspace), now {8}. Because m = {6} is the maximum, no exponent is above 0."),
    "add_nan": mark("Thread {4} reads {5}, and m = {6}. exp(x − m) is NaN (not a number), so its sum [l](workspace) is NaN from here on."),
    "raw": mark("Thread {4} adds exp({5}) = {6} to its sum [l](workspace), now {7}."),
    "raw_over": mark("Thread {4} reads {5}. exp({5}) is beyond 3.4·10^38, the largest FP32 number. It becomes ∞ and is added to [l](workspace)."),
    "raw_sum_over": mark("Thread {4} reads {5}. exp({5}) is finite, but its sum [l](workspace) is now beyond 3.4·10^38, the largest FP32 number. It becomes ∞."),
    "raw_not_finite": mark("Thread {4} adds exp({5}) = {6}. Its sum was not finite before, so [l](workspace) stays {7}."),
    "raw_nan": mark("Thread {4} reads {5}. Its sum [l](workspace) is NaN (not a number) from here on."),
    "online_first": mark("Each active thread reads one number of [x](input). Thread {4} sets its maximum [m](filter) = {5} and its sum [l](workspace) = exp(m − m) = {9}."),
    "online_grows": mark("Thread {4} reads {5}, which is larger than its maximum {6}. Its sum is rescaled by exp(old m − new m) = {8}. [l](workspace) = {7} · {8} + 1 = {9}, and [m](filter) = {5}."),
    "online_stays": mark("No thread reads a number above its maximum. Thread {4} reads {5} and keeps [m](filter) = {6}. [l](workspace) = {7} + exp({5} − m) = {9}."),
    "online_masked": mark("Every number read is −∞. [m](filter) stays −∞, and [l](workspace) stays 0."),
    "online_nan": mark("Thread {4} reads {5}. Its maximum was {6}. Its sum [l](workspace) is NaN (not a number) from here on."),
    # -- the results -------------------------------------------------------------------------------------
    "write": mark("Thread {4} writes [y](output) = exp({5} − m) / l = {8}, with m = {6} and l = {7}."),
    "write_nan": mark("Thread {4} computes exp({5} − m) = {8} with m = {6}, and l = {7}. The result [y](output) is NaN (not a number)."),
    "unsafe": mark("Thread {4} writes [y](output) = exp({5}) / l = {8}, with l = {7}."),
    "unsafe_zero": mark("Thread {4} writes [y](output) = exp({5}) / ∞ = {8}. The infinite sum makes every finite exponential 0."),
    "unsafe_nan": mark("Thread {4} computes exp({5}) = {8}, and l = {7}. {8} / {7} is NaN (not a number): this is [y](output)."),
}  # fmt: skip
TEMPLATES = IN_A_PASS | {
    # -- a tree in shared memory -------------------------------------------------------------------------
    "store_m": mark("All {0} threads store their maximum [m](filter) in shared memory. They wait at the barrier until all have stored."),
    "store_l": mark("All {0} threads store their sum [l](workspace) in shared memory. They wait at the barrier until all have stored."),
    "store_ml": mark("All {0} threads store [m](filter) and [l](workspace) in shared memory. They wait at the barrier until all have stored."),
    "level_m": mark("{0} threads work, {2} idle. Thread t compares its [m](filter) with that of thread t + {1}. "
    "It keeps the larger. Thread {3} compares {5} with {6} and keeps {7}. Then all wait at the barrier."),
    "last_m": mark("In the last level only thread {3} works. It compares {5} with {6} and keeps [m](filter) = {7}."),
    "level_l": mark("{0} threads work, {2} idle. Thread t adds the [l](workspace) of thread t + {1} to its own. "
    "Thread {3} computes {5} + {6} = {7}. Then all wait at the barrier."),
    "last_l": mark("In the last level only thread {3} works. It computes [l](workspace) = {5} + {6} = {7}."),
    "level_ml": mark("{0} threads work, {2} idle. Thread t merges with thread t + {1}. Thread {3} keeps the larger of "
    "m = {5} and {7}: [m](filter) = {9}. It rescales l = {6} and {8} to this m and adds them: [l](workspace) = {10}. Then the barrier."),
    "last_ml": mark("In the last level only thread {3} works. It keeps the larger of m = {5} and {7}: [m](filter) = {9}. "
    "It rescales l = {6} and {8} to this m and adds them: [l](workspace) = {10}."),
    "root_m": mark("All threads read cell 0 of shared memory. The maximum of the row is [m](filter) = {0}."),
    "root_l": mark("All threads read cell 0 of shared memory. The sum of the row is [l](workspace) = {0}."),
    "root_ml": mark("All threads read cell 0 of shared memory. The row has the maximum [m](filter) = {0} and the sum [l](workspace) = {1}."),
    # -- a butterfly among lanes -------------------------------------------------------------------------
    "swap_m": mark("Lanes (threads of a warp) exchange [m](filter) in pairs, at distance {0}. Both keep the larger. "
    "Lanes {1} and {2} compare {3} with {4} and keep {5}."),
    "swap_l": mark("Lanes (threads of a warp) exchange [l](workspace) in pairs, at distance {0}. Both add the two sums. "
    "Lanes {1} and {2} compute {3} + {4} = {5}."),
    "swap_ml": mark("Lanes (threads of a warp) exchange m and l in pairs, at distance {0}. Lanes {1} and {2} keep the larger of "
    "m = {3} and {5}: [m](filter) = {7}. They rescale l = {4} and {6} to this m and add them: [l](workspace) = {8}."),
    # -- a row in registers ------------------------------------------------------------------------------
    "load": mark("Load {0} of {1}: {3} threads each load one number of [x](input) into a register, from x[{2}] on. No thread uses a number yet."),
    "load_rest": mark("Load {0} of {1}, from x[{2}] on, reaches the end of the row. Threads that load a number of [x](input): {3}. "
    "Threads that set their register to −∞: {4}. The exponential of −∞ is 0."),
    "own_m": mark("Each thread finds the largest number in its registers: its [m](filter). Thread {1} has m = {2}. x is not read again."),
    "own_l": mark("Each thread replaces its numbers by exp(x − m), with m = {1}, and adds the results. "
    "The first result of thread {0} is {2}, and its sum is [l](workspace) = {3}."),
    "parts_m": mark("The first lane of each warp stores its [m](filter) in shared memory. Warps: {0}. Then all threads wait at a barrier, the only one of this reduction."),
    "parts_l": mark("The first lane of each warp stores its [l](workspace) in shared memory. Warps: {0}. Then all threads wait at a barrier, the only one of this reduction."),
    "whole_m": mark("Each thread compares the values that the warps stored. The maximum of the row is [m](filter) = {1}."),
    "whole_l": mark("Each thread adds the values that the warps stored. The sum of the row is [l](workspace) = {1}."),
    "put": mark("Store {0} of {1}, from registers to [y](output). Thread {2} writes {3} · (1 / l) = {5}, with l = {4}."),
    "put_nan": mark("Store {0} of {1}, from registers to [y](output). Thread {2} has {3}, and l = {4}. Its y is NaN (not a number)."),
    # -- a row in several blocks ---------------------------------------------------------------------------
    "load_fours": mark("Load {0} of {1}. The row is cut into {2} parts of {3} columns, one for each block. Each thread loads four numbers of [x](input) at once into registers."),
    "load_fours_rest": mark("Load {0} of {1}. The row is cut into {2} parts of {3} columns, one for each block. Threads that load up to four numbers of [x](input) at once: {4}. Threads that set their registers to −∞: {5}."),
    "own_max": mark("Each thread finds the largest number in its registers: its [m](filter). Thread {0} of block {1} has m = {2}. x is not read again."),
    "own_exp": mark("Each thread replaces its numbers by exp(x − m), with its own maximum [m](filter), and adds them. "
    "Thread {0} of block {1} has m = {2}. Its first result is {3}, and its sum is [l](workspace) = {4}."),
    "cluster_ml": mark("The first lane of each warp stores [m](filter) and [l](workspace) in the shared memory of its block. Blocks: {0}, warps: {1}. "
    "Then all threads of the cluster wait at its barrier."),
    "fetch_ml": mark("Each warp reads [m](filter) and [l](workspace) of all warps of the cluster, also from the shared memory of the other blocks. "
    "Lane {0} reads those of warp {1} of block {2}: m = {3} and l = {4}."),
    "whole_ml": mark("The lanes of each warp merge these values in five exchanges. All threads then have the maximum of the row [m](filter) = {0} and the sum [l](workspace) = {1}."),
    "put_own": mark("Store {0} of {1}, from registers to [y](output). Thread {2} of block {3} multiplies {4} by exp(own m − m) / l = {5}. It writes {6}."),
    "put_own_nan": mark("Store {0} of {1}, from registers to [y](output). Thread {2} of block {3} multiplies {4} by exp(own m − m) / l = {5}. Its y is NaN (not a number)."),
    "part_fours": mark("First launch, loop iteration {0} of {1}. The row is cut into {2} parts of {3} columns, one for each block. Each active thread loads up to four numbers of [x](input) at once. "
    "Thread {4} of block {5} now has [m](filter) = {6} and [l](workspace) = {7}."),
    "block_ml": mark("The first lane of each warp stores [m](filter) and [l](workspace) in the shared memory of its block. Blocks: {0}, warps: {1}. "
    "Then the threads of each block wait at its barrier."),
    "store_parts": mark("Warp 0 of each block merges the values of its warps. Thread 0 stores them as part_m and part_l in global memory. Parts: {0}. "
    "Block 0 stores m = {1} and l = {2}. The first launch ends."),
    "store_words": mark("Warp 0 of each block merges the values of its warps. Thread 0 stores both as one word of 64 bits in global memory. Words: {0}. "
    "Block 0 stores m = {1} and l = {2}. Its part of x stays in registers."),
    "load_words": mark("Warp 0 of each block loads the words of all parts, again and again, until all of them are new. Words: {0}. Lane {1} has that of part {2}: m = {3} and l = {4}."),
    "whole_words": mark("The lanes of warp 0 merge these values in five exchanges. All threads of its block read the result after a barrier: [m](filter) = {0} and [l](workspace) = {1} of the row."),
    "load_again": mark("Second launch, second read of [x](input). Each active thread loads up to four numbers at once. It merges the parts while the loads run."),
    "load_next": mark("Each active thread loads up to four numbers of [x](input) for loop iteration {0} of {1}."),
    "read_parts": mark("Each warp reads [m](filter) and [l](workspace) of all parts. Parts: {0}. Lane {1} reads those of part {2}: m = {3} and l = {4}."),
    "again": mark("Loop iteration {0} of {1}. Thread {2} of block {3} writes [y](output) = exp({4} − m) · (1 / l) = {7}, with m = {5} and l = {6}."),
    "again_nan": mark("Loop iteration {0} of {1}. Thread {2} of block {3} has x = {4}, with m = {5} and l = {6}. Its y is NaN (not a number)."),
}  # fmt: skip


def template(kind: str) -> str:
    """Returns the caption template of a kind of step, in the reader's language."""
    text = tr(TEMPLATES[kind])
    return f"{tr(ITERATION)} {text}" if kind in IN_A_PASS else text


# A text of the kernel's line for each kind; the first line of the file that contains it.
_L = "l += expf(x[col]"
_M = "m = fmaxf(m, x[col])"
_GATHER = {"first": _M, "larger": _M, "smaller": _M, "add": _L, "add_nan": _L}
_RAW = dict.fromkeys(("raw", "raw_over", "raw_sum_over", "raw_not_finite", "raw_nan"), _L)
_ONLINE = dict.fromkeys(
    ("online_first", "online_masked", "online_nan", "online_grows", "online_stays"), "merge(running, {x[col], 1.0f})"
)
_SWAP = dict.fromkeys(("swap_m", "swap_l"), "value = COMBINE(value, __shfl_xor_sync")
MARKS: dict[str, dict[str, str]] = {
    "softmax/unsafe": _RAW | {
        "store_l": "partial[thread] = l;", "level_l": "partial[thread] += partial[thread + stride]", "last_l": "partial[thread] += partial[thread + stride]", "root_l": "l = partial[0];",
        "unsafe": "y[col] = ", "unsafe_zero": "y[col] = ", "unsafe_nan": "y[col] = ",
    },
    "softmax/three-pass": _GATHER | {
        "store_m": "partial[thread] = m;", "level_m": "fmaxf(partial[thread], partial[thread + stride])", "last_m": "fmaxf(partial[thread], partial[thread + stride])",
        "root_m": "m = partial[0];", "store_l": "partial[thread] = l;", "level_l": "partial[thread] += partial[thread + stride]", "last_l": "partial[thread] += partial[thread + stride]",
        "root_l": "l = partial[0];", "write": "y[col] = ", "write_nan": "y[col] = ",
    },
    "softmax/online": _ONLINE | {
        "store_ml": "partial_m[thread] = running.m", "level_ml": "merge(running, {partial_m[thread + stride]", "last_ml": "merge(running, {partial_m[thread + stride]",
        "root_ml": "float m = partial_m[0]", "write": "y[col] = ", "write_nan": "y[col] = ",
    },
    "softmax/warp-shuffle": _ONLINE | {
        "swap_ml": "__shfl_xor_sync(~0u, running.m", "write": "y[col] = ", "write_nan": "y[col] = ",
    },
    "softmax/registers": _SWAP | {
        "load": "? x[col]", "load_rest": "? x[col]", "own_m": "m = fmaxf(m, values[i])",
        "own_l": "l += values[i] = expf", "parts_m": "warp_values[threadIdx.x / 32] = value", "parts_l": "warp_values[threadIdx.x / 32] = value",
        "whole_m": "value = COMBINE(value, warp_values[warp])", "whole_l": "value = COMBINE(value, warp_values[warp])", "put": "y[col] = ",
        "put_nan": "y[col] = ",
    },
    "softmax/cluster": {
        "load_fours": "values[i] = load_four", "load_fours_rest": "values[i] = load_four", "own_max": "own.m = fmaxf(own.m",
        "own_exp": "values[i] = exp_of", "swap_ml": "all = over_warp(own)", "cluster_ml": "wait_for_cluster();",
        "fetch_ml": "load_from(warp / WARPS", "whole_ml": "all = over_warp(all)", "put_own": "store_four(y",
        "put_own_nan": "store_four(y",
    },
    "softmax/one-launch": {
        "load_fours": "values[i] = load_four", "load_fours_rest": "values[i] = load_four", "own_max": "own.m = fmaxf(own.m",
        "own_exp": "values[i] = exp_of", "swap_ml": "all = over_warp(own)", "block_ml": "__syncthreads();",
        "store_words": "store_word(part_ml + split", "load_words": "running_of(wait_for(part_ml", "whole_words": "all = of_row;",
        "put_own": "store_four(y", "put_own_nan": "store_four(y",
    },
    "softmax/split": {
        "part_fours": "values[i] = load_four", "swap_ml": "all = over_warp(own)", "block_ml": "__syncthreads();",
        "store_parts": "part_m[blockIdx.x] = all.m",
        "load_again": "values[i] = load_four", "load_next": "load_four(x, first + TURN",
        "read_parts": "merge(all, {part_m[i]", "whole_ml": "all = over_warp(all)", "again": "store_four(y",
        "again_nan": "store_four(y",
    },
}  # fmt: skip
# The kinds of steps of the second launch.
SECOND_LAUNCH = {"softmax/split": ("load_again", "load_next", "read_parts", "whole_ml", "again", "again_nan")}
