"""Captions of the softmax scenes: a template for each kind of step, and the kernel's line that it highlights.

In a pass {0} is its number, {1} of {2} the turn, {3} the first element. The further numbers are those of the example
thread.
"""

from __future__ import annotations

_TURN = "Pass {0}, turn {1} of {2}, from x[{3}] on: "

TEMPLATES = {
    # -- a pass that reduces ---------------------------------------------------------------------------
    "first": "Pass {0}, turn {1} of {2}: each thread takes a number of [x](input). Its first is its [m](filter): "
    "thread {4} has {7}.",
    "larger": _TURN + "thread {4} meets {5}, larger than its m, {6}: its [m](filter) is now {7}.",
    "smaller": _TURN + "no thread meets a larger number. Thread {4} meets {5} and keeps [m](filter) = {7}.",
    "add": _TURN + "thread {4} adds exp({5} − m) = {7} to its [l](workspace), now {8}. No exponent is above 0: m = {6}.",
    "add_nan": _TURN + "thread {4} meets {5} with m = {6}: exp(x − m) is NaN, and so is its [l](workspace) from now on.",
    "raw": _TURN + "thread {4} adds exp({5}) = {6} to its [l](workspace), now {7}.",
    "raw_over": _TURN + "thread {4} meets {5}. exp({5}) is beyond 3.4·10^38, where FP32 ends: it becomes ∞, and so does "
    "its [l](workspace).",
    "raw_sum_over": _TURN + "thread {4} meets {5}. exp({5}) is finite, but with it its [l](workspace) passes 3.4·10^38: ∞.",
    "raw_nan": _TURN + "thread {4} meets {5}: its [l](workspace) is NaN from now on.",
    "online_first": "Pass {0}, turn {1} of {2}: each thread takes a number of [x](input). Its first is its [m](filter), "
    "and its [l](workspace) is exp(0): thread {4} has m = {5}, l = {9}.",
    "online_grows": _TURN + "thread {4} meets {5}, larger than its m, {6}: what it has summed is rescaled. "
    "[l](workspace) = {7} · {8} + 1 = {9}, where {8} = exp(old m − new m), and [m](filter) = {5}.",
    "online_stays": _TURN + "no thread meets a larger number. Thread {4} meets {5}, its [m](filter) is {6}: "
    "[l](workspace) = {7} + exp({5} − m) = {9}.",
    "online_masked": _TURN + "every number is −∞: [m](filter) stays −∞, and [l](workspace) 0.",
    "online_nan": _TURN + "thread {4} meets {5}, its m was {6}: its [l](workspace) is NaN from now on.",
    # -- a tree in shared memory -------------------------------------------------------------------------
    "store_m": "All {0} threads put their [m](filter) into shared memory and wait for each other at the barrier.",
    "store_l": "All {0} threads put their [l](workspace) into shared memory and wait for each other at the barrier.",
    "store_ml": "All {0} threads put their [m](filter) and [l](workspace) into shared memory and wait for each other at the barrier.",
    "level_m": "{0} threads take the larger of their own [m](filter) and that of the thread {1} further on; {2} idle. "
    "Thread {3}: of {5} and {6} it keeps {7}. Then the barrier.",
    "last_m": "The last level: thread {3} alone takes the larger of {5} and {6}: {7}.",
    "level_l": "{0} threads add to their own [l](workspace) that of the thread {1} further on; {2} idle. "
    "Thread {3}: {5} + {6} = {7}. Then the barrier.",
    "last_l": "The last level: thread {3} alone adds {5} + {6} = {7}.",
    "level_ml": "{0} threads merge with the thread {1} further on; {2} idle. Thread {3}: m = {5} and {7} become "
    "[m](filter) = {9}; l = {6} and {8}, rescaled to it, add up to [l](workspace) = {10}. Then the barrier.",
    "last_ml": "The last level: thread {3} alone merges. m = {5} and {7} become [m](filter) = {9}; l = {6} and {8}, "
    "rescaled to it, add up to [l](workspace) = {10}.",
    "root_m": "All threads read cell 0: the row's maximum is [m](filter) = {0}.",
    "root_l": "All threads read cell 0: the row's sum is [l](workspace) = {0}.",
    "root_ml": "All threads read cell 0: the row's maximum is [m](filter) = {0}, its sum [l](workspace) = {1}.",
    # -- a butterfly among lanes -------------------------------------------------------------------------
    "swap_m": "Every lane exchanges its [m](filter) with the lane whose number differs in the bit worth {0}, and keeps the "
    "larger. Lanes {1} and {2}: of {3} and {4} both keep {5}.",
    "swap_l": "Every lane exchanges its [l](workspace) with the lane whose number differs in the bit worth {0}, and adds. "
    "Lanes {1} and {2}: {3} + {4} = {5}.",
    "swap_ml": "Every lane exchanges m and l with the lane whose number differs in the bit worth {0}. Lanes {1} and {2}: "
    "m = {3} and {5} become [m](filter) = {7}; l = {4} and {6}, rescaled to it, add up to [l](workspace) = {8}.",
    # -- a row in registers ------------------------------------------------------------------------------
    "load": "Turn {0} of {1}: {3} threads ask for a number of [x](input) each, from x[{2}] on, and keep it in a register. "
    "Nothing waits for it yet.",
    "load_rest": "Turn {0} of {1}: {3} threads ask for a number of [x](input) each, from x[{2}] on. The row ends there: "
    "the other {4} put −∞ into their register, whose exponential is 0.",
    "own_m": "Each thread takes the largest of the {0} it holds as its [m](filter): thread {1} has {2}. x is not read again.",
    "own_l": "Each thread replaces what it holds by exp(x − m), m = {1}, and adds it up: thread {0} has {2} first, "
    "[l](workspace) = {3} in all.",
    "parts_m": "The first lane of every warp, {0} in all, puts its [m](filter) into shared memory. Then the one barrier.",
    "parts_l": "The first lane of every warp, {0} in all, puts its [l](workspace) into shared memory. Then the one barrier.",
    "whole_m": "All threads go through what the warps left, {0} in all: the row's maximum is [m](filter) = {1}.",
    "whole_l": "All threads go through what the warps left, {0} in all: the row's sum is [l](workspace) = {1}.",
    "put": "Turn {0} of {1}: from registers to [y](output). Thread {2} writes {3} · (1 / l) = {5}, l = {4}.",
    "put_nan": "Turn {0} of {1}: from registers to [y](output). Thread {2} holds {3} and l = {4}: y is NaN.",
    # -- the results -------------------------------------------------------------------------------------
    "write": _TURN + "thread {4} writes [y](output) = exp({5} − m) / l = {8}, with m = {6} and l = {7}.",
    "write_nan": _TURN + "thread {4} has exp({5} − m) = {8} and l = {7}, with m = {6}: [y](output) is NaN.",
    "unsafe": _TURN + "thread {4} writes [y](output) = exp({5}) / l = {8}.",
    "unsafe_zero": _TURN + "thread {4} writes [y](output) = exp({5}) / ∞ = {8}. Nothing is left of the row.",
    "unsafe_nan": _TURN + "thread {4} has exp({5}) = {8} and l = {7}. {8} / {7} is NaN: that is [y](output).",
}  # fmt: skip

# A text of the kernel's line for each kind; the first line of the file that contains it.
_L = "l += expf(x[col]"
_M = "m = fmaxf(m, x[col])"
_GATHER = {"first": _M, "larger": _M, "smaller": _M, "add": _L, "add_nan": _L}
_RAW = dict.fromkeys(("raw", "raw_over", "raw_sum_over", "raw_nan"), _L)
_ONLINE = dict.fromkeys(
    ("online_first", "online_masked", "online_nan", "online_grows", "online_stays"),
    "merge(running, {x[col], 1.0f})",
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
}  # fmt: skip
