"""Captions of the pooling scenes: for each kind of step the line of the kernel that it lights, and a template.

In the scenes of windows {0}, {1} are the row and column of the window, or of the pixel.
"""

from __future__ import annotations

from kernels.i18n import mark

Kinds = dict[str, tuple[str, str]]  # kind of step: (text of the line that is lit, template)

ZERO: Kinds = {
    "zero": (
        "y[i] = 0.0f",
        mark("A first kernel sets all {0} pixels of [dx](output) to 0, because additions need a sum to start from."),
    )
}

_MAX_LINE, _STORE_MAX = "larger(value,", "y[i] = best,"
MAX_WINDOW: Kinds = {
    "compare": (_MAX_LINE, mark("Thread {2} compares the {3} pixels of window ({0}, {1}). The largest is {4} in row {5}, column {6} of [x](input).")),
    "compare_pad": (_MAX_LINE, mark("Thread {2} compares the {3} pixels of window ({0}, {1}). The rest is padding, which never counts. The largest is {4} in row {5}, column {6} of [x](input).")),
    "store": (_STORE_MAX, mark("Thread {2} stores [y](output) = {4} and its place [index](workspace) = {5}·{7} + {6} = {8}. The backward pass needs the index.")),
    "window": (_STORE_MAX, mark("Window ({0}, {1}): of {3} pixels {4} is the largest. Thread {2} stores [y](output) = {4} and [index](workspace) = {8}.")),
    "window_tie": (_STORE_MAX, mark("Window ({0}, {1}): {4} is the largest of {3} pixels, more than once. The first counts: [index](workspace) = {8}.")),
    "plane": (_STORE_MAX, mark("The threads of plane {0} do the same with their {1} windows.")),
}  # fmt: skip

_ADD_LINE, _STORE_AVG = "sum += x[h * shape.W + w]", "y[i] = sum / divisor"
AVG_WINDOW: Kinds = {
    "add": (_ADD_LINE, mark("Thread {2} adds the {3} pixels of window ({0}, {1}) of [x](input): their sum is {4}.")),
    "add_pad": (
        _ADD_LINE,
        mark(
            "Thread {2} adds the {3} pixels of window ({0}, {1}) of [x](input). The rest is padding, which adds nothing. The sum is {4}."
        ),
    ),
    "store": (_STORE_AVG, mark("Thread {2} divides by {5} and stores [y](output) = {4} / {5} = {6}.")),
    "store_pad": (
        _STORE_AVG,
        mark("The padding counts in the divisor: thread {2} stores [y](output) = {4} / {5} = {6}."),
    ),
    "window": (
        _STORE_AVG,
        mark("Window ({0}, {1}): {3} pixels add up to {4}. Thread {2} stores [y](output) = {4} / {5} = {6}."),
    ),
    "plane": (_STORE_AVG, mark("The threads of plane {0} do the same with their {1} windows.")),
}

_ATOMIC = "atomicAdd(dx + index[i], dy[i])"
MAX_SCATTER: Kinds = {
    "give": (
        _ATOMIC,
        mark(
            "Window ({0}, {1}) took the pixel in row {3}, column {4}. Thread {2} adds its gradient [dy](input) = {5} there: [dx](output) = {7}."
        ),
    ),
    "collide": (
        _ATOMIC,
        mark(
            "Window ({0}, {1}) took the pixel in row {3}, column {4} too. Thread {2} adds to the same float, so the addition must be atomic: [dx](output) = {6} + {5} = {7}."
        ),
    ),
    "plane": (_ATOMIC, mark("The threads of plane {0} do the same with their {1} outputs.")),
}

_ATOMICS = "atomicAdd(dx + h * shape.W + w, share)"
AVG_SCATTER: Kinds = {
    "give": (
        _ATOMICS,
        mark(
            "Thread {2} divides [dy](input) = {3} of window ({0}, {1}) by {4}. It adds the share {5} to each of the {6} pixels of its window in [dx](output)."
        ),
    ),
    "collide": (
        _ATOMICS,
        mark(
            "Thread {2} adds the share {3} / {4} = {5} to the {6} pixels of window ({0}, {1}) in [dx](output). Another thread has added to {7} of these pixels before. Such atomics collide."
        ),
    ),
    "plane": (_ATOMICS, mark("The threads of plane {0} do the same with their {1} outputs.")),
}

_MAX_SUM, _STORE_DX = "sum += dy[p * shape.Q + q]", "dx[i] = sum"
MAX_GATHER: Kinds = {
    "taken": (
        _MAX_SUM,
        mark(
            "The pixel in row {0}, column {1} is number {5}. Thread {2} reads the [index](workspace) of the {3} windows that contain it. Windows that took it: {4}. [dx](output) = {6}."
        ),
    ),
    "one": (
        _MAX_SUM,
        mark(
            "The pixel in row {0}, column {1} is number {5}. Thread {2} reads the [index](workspace) of the one window that contains it. That window took it: [dx](output) = {6}."
        ),
    ),
    "none": (
        _STORE_DX,
        mark(
            "The pixel in row {0}, column {1} is number {5}. Windows that contain it: {3}. Thread {2} reads their [index](workspace). None took this pixel: [dx](output) = 0."
        ),
    ),
    "outside": (
        _STORE_DX,
        mark("No window contains the pixel in row {0}, column {1}. Thread {2} stores [dx](output) = 0."),
    ),
    "plane": (_STORE_DX, mark("The threads of plane {0} do the same with their {1} pixels.")),
}

_AVG_SUM = "sum += dy[p * shape.Q + q] / divisor"
AVG_GATHER: Kinds = {
    "shares": (
        _AVG_SUM,
        mark(
            "The pixel in row {0}, column {1} is in {3} windows. Thread {2} adds their shares of [dy](input), and no other thread writes here: [dx](output) = {4}."
        ),
    ),
    "one": (
        _AVG_SUM,
        mark(
            "The pixel in row {0}, column {1} is in one window. Thread {2} divides its [dy](input) and stores [dx](output) = {4}."
        ),
    ),
    "outside": (
        _STORE_DX,
        mark("No window contains the pixel in row {0}, column {1}. Thread {2} stores [dx](output) = 0."),
    ),
    "plane": (_STORE_DX, mark("The threads of plane {0} do the same with their {1} pixels.")),
}

_LOAD, _STORE_ROW = "load_row(patch[row], x", "store_row<ACROSS, float,"
MAX_PATCH: Kinds = {
    "load": (
        _LOAD,
        mark(
            "Thread {0} loads {1} pixels of [x](input) into registers. They are all that its {2} windows need. Padding becomes −∞, which is never the largest."
        ),
    ),
    "window": (
        "larger(row_best,",
        mark(
            "Window ({0}, {1}) takes its pixels from the registers. It finds the largest of each row first, then {2} as the largest of these rows."
        ),
    ),
    "store": (
        _STORE_ROW,
        mark(
            "Thread {0} stores row {1} of its outputs: {2} elements of [y](output), and their places as [index](workspace)."
        ),
    ),
    "thread": (_STORE_ROW, mark("Thread {0} does the same. Pixels loaded: {1}. Outputs stored: {2}.")),
}
AVG_PATCH: Kinds = {
    "load": (
        _LOAD,
        mark(
            "Thread {0} loads {1} pixels of [x](input) into registers. They are all that its {2} windows need. Padding becomes 0, which adds nothing."
        ),
    ),
    "window": (
        "sum += row_sum",
        mark(
            "Window ({0}, {1}) takes its pixels from the registers. Each row is added up first, then the rows. The mean is {2}."
        ),
    ),
    "store": (_STORE_ROW, mark("Thread {0} stores row {1} of its outputs: {2} elements of [y](output).")),
    "thread": (_STORE_ROW, mark("Thread {0} does the same. Pixels loaded: {1}. Outputs stored: {2}.")),
}

_STORE_PIXELS = "store_pixels("
MAX_GATHER_PATCH: Kinds = {
    "took": (
        "sums[row][col] += gradient",
        mark(
            "Thread {0} loads [dy](input) and [index](workspace) of window ({1}, {2}). That window took a pixel of this patch: its sum is now {3}."
        ),
    ),
    "other": (
        "place == (pixels.h + row)",
        mark(
            "Thread {0} loads [dy](input) and [index](workspace) of window ({1}, {2}). That window took no pixel of this patch."
        ),
    ),
    "store": (
        _STORE_PIXELS,
        mark("Thread {0} stores the {1} sums of its patch in [dx](output). No other thread writes there."),
    ),
    "thread": (_STORE_PIXELS, mark("Thread {0} does the same. Windows read: {2}. Pixels stored: {1}.")),
}
AVG_GATHER_PATCH: Kinds = {
    "share": (
        "sums[row][col] += shares",
        mark(
            "Thread {0} divides [dy](input) of window ({1}, {2}) once. Pixels of the patch in that window: {4}. Each gets the share {3}."
        ),
    ),
    "store": (
        _STORE_PIXELS,
        mark("Thread {0} stores the {1} sums of its patch in [dx](output). No other thread writes there."),
    ),
    "thread": (_STORE_PIXELS, mark("Thread {0} does the same. Windows read: {2}. Pixels stored: {1}.")),
}

GLOBAL_PLANE: Kinds = {
    "start": ("sum = 0.0f", mark("Each thread starts the [sum](workspace) of its plane at 0.")),
    "pixel": (
        "sum += x[pixel]",
        mark(
            "Each thread adds pixel {0} of its plane of [x](input). These pixels are {1} floats apart. The sum of thread 0 is {2}."
        ),
    ),
    "folded": (
        "sum += x[pixel]",
        mark("Each thread adds the pixels {0} to {1} of its plane of [x](input), one after another."),
    ),
    "store": (
        "y[plane] = sum / area",
        mark("Each thread divides by {0} and stores [y](output). Thread 0 stores {1} / {0} = {2}."),
    ),
}
GLOBAL_WARP: Kinds = {
    "load": ("sums[k] += sum_at", mark("Each of {0} lanes (threads of the warp) reads {1} floats of each plane, from pixel {2} on, and adds them to its [sums](workspace). The sum of lane 0 is {3}.")),
    "load_one": ("sums[k] += sum_at", mark("Each of {0} lanes (threads of the warp) reads one pixel of each plane, from pixel {2} on, and adds it to its [sums](workspace). The sum of lane 0 is {3}.")),
    "exchange": ("__shfl_xor_sync", mark("The lanes exchange the [sums](workspace) of plane {0} at distance {1}. Lanes 0 and {1} both compute {2} + {3} = {4}.")),
    "store": ("y[first + k] = sums[k] / area", mark("Lane 0 divides the sum of plane {0} by {1} and stores [y](output) = {2}.")),
    "plane": ("y[first + k] = sums[k] / area", mark("The same five exchanges give lane 0 the sum {1} of plane {0}. It divides by {2} and stores [y](output) = {3}.")),
    "warp": ("y[first + k] = sums[k] / area", mark("Warp {0} does the same. Its first plane is {1}, its last one {2}.")),
}  # fmt: skip
GLOBAL_SPREAD: Kinds = {
    "warp": (
        "dx[i] = dy[divide(i, by_area)] / area",
        mark(
            "The threads {0} to {1} store one pixel of [dx](output) each. Thread {0} is in plane {2}: its share is [dy](input) / {3} = {4}."
        ),
    )
}
GLOBAL_FOUR: Kinds = {
    "warp": (
        "*(float4*)(dx + i) = make_float4",
        mark(
            "Each of {0} threads stores four pixels of [dx](output), from pixel {1} on. The first is in plane {2}: its share is [dy](input) / {3} = {4}."
        ),
    ),
    "straddle": (
        "share = dy[++plane] / area",
        mark(
            "Each of {0} threads stores four pixels of [dx](output), from pixel {1} on. A plane may end within four: then they have shares of two planes or more."
        ),
    ),
}
