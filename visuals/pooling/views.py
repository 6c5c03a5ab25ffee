# fmt: off
"""What the stage shows of each pooling kernel: its tensors, the lines that are steps, and what is said of them.

x and dx have one place on the stage, y and dy another. The first thread or warp is shown line by line, each further one in one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernels.i18n import mark
from visuals.scene.compiler.view import Buffer, Bytes, PerThread, Say, View, in_turn, step
from visuals.scene.parts import Group

MOST, MOST_WARPS = 144, 32  # threads and warps that take their steps one by one

X, Y, INDEX = Buffer("x", "input", "x"), Buffer("y", "output", "y"), Buffer("index", "workspace", "index")
DX, DY = Buffer("dx", "output", mark("dx: gradient of x")), Buffer("dy", "input", mark("dy: gradient of y"))
PATCH = PerThread("patch", "input", mark("pixels of x"), **in_turn(1))
SUMS_OF_DX = PerThread("sums", "workspace", mark("sums of dx"), **in_turn(1))
GLOBAL, REGISTERS = mark("global memory"), mark("registers")
FORWARD, BACKWARD = Group((("x",), ("y",)), "global", GLOBAL), Group((("dx",), ("dy",)), "global", GLOBAL)
FORWARD_MAX, BACKWARD_MAX = Group((("x",), ("y", "index")), "global", GLOBAL), Group((("dx",), ("dy", "index")), "global", GLOBAL)
IN_PATCH, IN_SUM, IN_SUMS = (Group(((name,),), "registers", REGISTERS) for name in ("patch", "sum", "sums"))

LOADED = (Bytes(mark("pixels loaded"), "x", "ld", per="4"),)
ADDED = (Bytes(mark("atomic additions"), "dx", "ld", per="4"), Bytes(mark("of these, to a pixel that has one already"), "dx", "ld", per="4", again=True))

NOTE = mark("On a GPU all threads of a warp run this at the same time, and the warps in an order of the scheduler’s. All values are those of the kernel in the emulator.")
ATOMIC_NOTE = mark("On a GPU all threads of a warp run this at the same time. The hardware chooses the order of atomic additions to one float. So the last digits of a sum may differ from run to run. All values are those of the kernel in the emulator.")
WINDOW, PIXEL, THREAD, WARP = mark("window"), mark("pixel"), mark("thread"), mark("warp")
BY_WINDOW, BY_PIXEL, BY_THREAD, BY_WARP = mark("window by window"), mark("pixel by pixel"), mark("thread by thread"), mark("warp by warp")
ONE_BY_ONE: dict[str, Any] = {"group": 1, "alone": MOST, "detailed": 1}
WINDOWS: dict[str, Any] = {**ONE_BY_ONE, "step_name": WINDOW, "order": (BY_WINDOW, NOTE)}
PIXELS: dict[str, Any] = {**ONE_BY_ONE, "step_name": PIXEL, "order": (BY_PIXEL, NOTE)}
THREADS: dict[str, Any] = {**ONE_BY_ONE, "step_name": THREAD, "order": (BY_THREAD, NOTE)}
WARPS: dict[str, Any] = {"group": 32, "order": (BY_WARP, NOTE)}
OTHERS = Say("The other threads do the same. Threads: {active}.", "active > 1")

# -- one thread for each window or pixel -------------------------------------------------------------------
DIVISOR = {  # of window (p, q), as pool.cuh has it: rows and columns of the window that count
    "end_h": "where(top + shape.R < shape.H + shape.pad_h, top + shape.R, shape.H + shape.pad_h)",
    "end_w": "where(left + shape.S < shape.W + shape.pad_w, left + shape.S, shape.W + shape.pad_w)",
    "first_h": "where(top > 0, top, 0)", "last_h": "where(end_h < shape.H, end_h, shape.H)",
    "first_w": "where(left > 0, left, 0)", "last_w": "where(end_w < shape.W, end_w, shape.W)",
    "divisor": "where(shape.include_pad, (end_h - top) * (end_w - left), (last_h - first_h) * (last_w - first_w))",
}
OF_OUTPUT = {"p": "(i - plane * shape.P * shape.Q) // shape.Q", "q": "i % shape.Q"}
MAX_WINDOW = View(
    (X, Y, INDEX), (FORWARD_MAX,),
    (
        {
            "compare": step("float value = x[h",
                OTHERS,
                Say("Thread {i} compares the {x.times} pixels of window ({p}, {q}). The rest is padding, which never counts. The largest is {best} in row {place // shape.W}, column {place % shape.W} of [x](input).", "i == 0 and x.times < shape.R * shape.S"),
                Say("Thread {i} compares the {x.times} pixels of window ({p}, {q}). The largest is {best} in row {place // shape.W}, column {place % shape.W} of [x](input).", "i == 0"),
                Say("Window ({p}, {q}): {best} is the largest of {x.times} pixels, more than once. The first counts: [index](workspace) = {place}.", "x.ties > 1"),
                mark("Window ({p}, {q}): of {x.times} pixels {best} is the largest. Thread {i} stores [y](output) = {best} and [index](workspace) = {place}."),
                to="if (larger(value, best))", merge=True),
            "store": step("y[i] = best",
                "Thread {i} stores [y](output) = {best} and its place [index](workspace) = {place // shape.W}·{shape.W} + {place % shape.W} = {place}. The backward pass needs the index."),
        },
    ),
    LOADED, **WINDOWS,
)
AVG_WINDOW = View(
    (X, Y), (FORWARD,),
    (
        {
            "add": step("sum += x[h * shape.W + w]",
                OTHERS,
                Say("Thread {i} adds the {x.times} pixels of window ({p}, {q}) of [x](input). The rest is padding, which adds nothing. The sum is {sum}.", "i == 0 and x.times < shape.R * shape.S"),
                Say("Thread {i} adds the {x.times} pixels of window ({p}, {q}) of [x](input): their sum is {sum}.", "i == 0"),
                mark("Window ({p}, {q}): {x.times} pixels add up to {sum}. Thread {i} stores [y](output) = {sum} / {divisor} = {y}."),
                merge=True),
            "store": step("y[i] = sum / divisor",
                Say("The padding counts in the divisor: thread {i} stores [y](output) = {sum} / {divisor} = {y}.", "shape.include_pad and (top < 0 or left < 0 or end_h > shape.H or end_w > shape.W)"),
                mark("Thread {i} divides by {divisor} and stores [y](output) = {sum} / {divisor} = {y}.")),
        },
    ),
    LOADED, names=DIVISOR, **WINDOWS,
)
ZERO = {
    "zero": step("y[i] = 0.0f", "A first kernel sets all {count} pixels of [dx](output) to 0, because additions need a sum to start from.", together=True),
}
MAX_SCATTER = View(
    (DY, INDEX, DX), (BACKWARD_MAX,),
    (
        ZERO,
        {
            "give": step("atomicAdd(dx + index[i], dy[i])",
                OTHERS,
                Say("Window ({p}, {q}) took the pixel in row {index // shape.W}, column {index % shape.W} too. Thread {i} adds to the same float, so the addition must be atomic: [dx](output) = {dx.read} + {dy} = {dx.new}.", "dx.again"),
                mark("Window ({p}, {q}) took the pixel in row {index // shape.W}, column {index % shape.W}. Thread {i} adds its gradient [dy](input) = {dy} there: [dx](output) = {dx.new}.")),
        },
    ),
    ADDED, names=OF_OUTPUT, **{**WINDOWS, "order": (BY_WINDOW, ATOMIC_NOTE)},
)
AVG_SCATTER = View(
    (DY, DX), (BACKWARD,),
    (
        ZERO,
        {
            "share": step("float share = dy[i] / divisor",
                "Each thread divides [dy](input) of its window by the number of pixels. Thread {i}: {dy} / {divisor} = {share}. Windows: {active}."),
            "give": step("atomicAdd(dx + h * shape.W + w, share)",
                Say("Pixel ({r}, {s}) of each window: {active} threads each add their share to it. Thread {i} adds to the pixel in row {h}, column {w}, which has a share already. Such atomics collide: [dx](output) = {dx.read} + {share} = {dx.new}.", "dx.again"),
                mark("Pixel ({r}, {s}) of each window: {active} threads each add their share to it. Thread {i} adds to the pixel in row {h}, column {w}: [dx](output) = {dx.new}.")),
        },
    ),
    ADDED, names=DIVISOR, order=(mark("pixel by pixel of all windows"), ATOMIC_NOTE),
)
MAX_GATHER = View(
    (DY, INDEX, DX), (BACKWARD_MAX,),
    (
        {
            "gather": step("for (int p = first_p",
                OTHERS,
                Say("No window contains the pixel in row {h}, column {w}. Thread {i} stores [dx](output) = 0.", "index.times == 0"),
                Say("The pixel in row {h}, column {w} is number {h * shape.W + w}. Windows that contain it: {index.times}. Thread {i} reads their [index](workspace). None took this pixel: [dx](output) = 0.", "dy.times == 0"),
                Say("The pixel in row {h}, column {w} is number {h * shape.W + w}. Thread {i} reads the [index](workspace) of the one window that contains it. That window took it: [dx](output) = {dx}.", "index.times == 1"),
                mark("The pixel in row {h}, column {w} is number {h * shape.W + w}. Thread {i} reads the [index](workspace) of the {index.times} windows that contain it. Windows that took it: {dy.times}. [dx](output) = {dx}."),
                to="dx[i] = sum"),
        },
    ),
    ADDED, **PIXELS,
)
AVG_GATHER = View(
    (DY, DX), (BACKWARD,),
    (
        {
            "gather": step("for (int p = first_p",
                OTHERS,
                Say("No window contains the pixel in row {h}, column {w}. Thread {i} stores [dx](output) = 0.", "dy.times == 0"),
                Say("The pixel in row {h}, column {w} is in one window. Thread {i} divides its [dy](input) and stores [dx](output) = {dx}.", "dy.times == 1"),
                mark("The pixel in row {h}, column {w} is in {dy.times} windows. Thread {i} adds their shares of [dy](input), and no other thread writes here: [dx](output) = {dx}."),
                to="dx[i] = sum"),
        },
    ),
    ADDED, **PIXELS,
)

# -- one thread for each patch -----------------------------------------------------------------------------
OUTSIDE = Say("Window ({p}, {place.q + across}) is outside of [y](output). Thread {i} computes it, but does not store it.", "place.q + across >= shape.Q")
SAME_PATCH = Say("Thread {i} does the same. Pixels loaded: {x.times}. Outputs stored: {y.times}.", "i > 0")
SAME_PIXELS = Say("Thread {i} does the same. Windows read: {dy.times}. Pixels stored: {dx.times}.", "i > 0")
STORE_PIXELS = step("store_pixels(", "Thread {i} stores the {dx.times} sums of its patch in [dx](output). No other thread writes there.")
OUTPUTS = {
    "down_here": "where(shape.P - place.p < (HIGH + STRIDE_H - 1) // STRIDE_H, shape.P - place.p, (HIGH + STRIDE_H - 1) // STRIDE_H)",
    "across_here": "where(shape.Q - place.q < (WIDE + STRIDE_W - 1) // STRIDE_W, shape.Q - place.q, (WIDE + STRIDE_W - 1) // STRIDE_W)",
}
PIXELS_OF_PATCH = {  # pixels and windows of a patch, as gather.cuh has them
    "pixels_h": "(HIGH + STRIDE_H - 1) // STRIDE_H * STRIDE_H", "pixels_w": "(WIDE + STRIDE_W - 1) // STRIDE_W * STRIDE_W",
    "row_of_patch": "place // shape.W - pixels.h", "col_of_patch": "place % shape.W - pixels.w",
    "is_in_patch": "place >= 0 and row_of_patch >= 0 and row_of_patch < pixels_h and col_of_patch >= 0 and col_of_patch < pixels_w",
    "first_p": "-(((WINDOW_H - 1) * DILATION_H - PAD_H) // STRIDE_H)", "first_q": "-(((WINDOW_W - 1) * DILATION_W - PAD_W) // STRIDE_W)",
    "p": "pixels.p + first_p + down", "q": "pixels.q + first_q + across",
    "share": "shares[down * ((PAD_W + pixels_w - 1) // STRIDE_W - first_q + 1) + across]",
}
MAX_PATCH = View(
    (X, Y, INDEX, PATCH), (FORWARD_MAX, IN_PATCH),
    (
        {
            "load": step("load_row(patch[row], x",
                OTHERS, SAME_PATCH,
                Say("Thread {i} loads {x.times} pixels of [x](input) into registers. The compiler leaves out those that none of its {down_here * across_here} windows needs. Padding becomes −∞, which is never the largest.", "STRIDE_H > WINDOW_H or STRIDE_W > WINDOW_W or DILATION_H > 1 or DILATION_W > 1"),
                mark("Thread {i} loads {x.times} pixels of [x](input) into registers. They are all that its {down_here * across_here} windows need. Padding becomes −∞, which is never the largest."),
                merge=True),
            "window": step("for (int r = 0; r < WINDOW_H",
                OUTSIDE,
                mark("Window ({p}, {place.q + across}) takes its pixels from the registers. It finds the largest of each row first, then {best[across]} as the largest of these rows."),
                to="best_place[across] = (top + row)"),
            "store": step("store_row<ACROSS, float,",
                "Thread {i} stores row {p} of its outputs: {y.times} elements of [y](output), and their places as [index](workspace)."),
        },
    ),
    LOADED, names=OUTPUTS, **THREADS,
)
AVG_PATCH = View(
    (X, Y, PATCH), (FORWARD, IN_PATCH),
    (
        {
            "load": step("load_row(patch[row], x",
                OTHERS, SAME_PATCH,
                Say("Thread {i} loads {x.times} pixels of [x](input) into registers. The compiler leaves out those that none of its {down_here * across_here} windows needs. Padding becomes 0, which adds nothing.", "STRIDE_H > WINDOW_H or STRIDE_W > WINDOW_W"),
                mark("Thread {i} loads {x.times} pixels of [x](input) into registers. They are all that its {down_here * across_here} windows need. Padding becomes 0, which adds nothing."),
                merge=True),
            "window": step("for (int r = 0; r < WINDOW_H",
                OUTSIDE,
                mark("Window ({p}, {place.q + across}) takes its pixels from the registers. Each row is added up first, then the rows. The mean is {mean[across]}."),
                to="mean[across] = __fdividef"),
            "store": step("store_row<ACROSS, float,", "Thread {i} stores row {p} of its outputs: {y.times} elements of [y](output)."),
        },
    ),
    LOADED, names=OUTPUTS, **THREADS,
)
MAX_GATHER_PATCH = View(
    (DY, INDEX, DX, SUMS_OF_DX), (BACKWARD_MAX, IN_SUMS),
    (
        {
            "start": step("float sums[PIXELS_H][PIXELS_W] = {}", OTHERS, SAME_PIXELS, mark("Thread {i} sets the sums of its patch of [dx](output) to 0. They stay in registers.")),
            "window": step("if (0 <= p && p < shape.P && 0 <= q",
                Say("Window ({p}, {q}) is outside of [dy](input). Thread {i} adds nothing.", "place < 0"),
                Say("Thread {i} loads [dy](input) and [index](workspace) of window ({p}, {q}). That window took a pixel of this patch: its sum is now {sums[row_of_patch * pixels_w + col_of_patch]}.", "is_in_patch"),
                mark("Thread {i} loads [dy](input) and [index](workspace) of window ({p}, {q}). That window took no pixel of this patch."),
                to="sums[row][col] += gradient"),
            "store": STORE_PIXELS,
        },
    ),
    ADDED, names=PIXELS_OF_PATCH, **THREADS,
)
AVG_GATHER_PATCH = View(
    (DY, DX, SUMS_OF_DX), (BACKWARD, IN_SUMS),
    (
        {
            "load": step("shares[down][across] = inside",
                OTHERS, SAME_PIXELS,
                mark("Thread {i} loads [dy](input) of each window that reaches its patch of [dx](output), before it uses the first. Windows: {dy.times}."),
                merge=True),
            "divide": step(("shares[down][across] =", 1), "Thread {i} divides each [dy](input) once, by the number of pixels of its window.", merge=True),
            "share": step("for (int row = 0; row < PIXELS_H",
                Say("Window ({p}, {q}) is outside of [dy](input). Its share is {share}.", "p < 0 or p >= shape.P or q < 0 or q >= shape.Q"),
                mark("Thread {i} adds the share {share} of window ({p}, {q}) to each pixel of its patch that the window contains."),
                to="sums[row][col] += shares[down]"),
            "store": STORE_PIXELS,
        },
    ),
    ADDED, names=PIXELS_OF_PATCH, **THREADS,
)

# -- whole planes ------------------------------------------------------------------------------------------
PLANE = View(
    (X, Y, PerThread("sum", "workspace", mark("one sum per thread"))), (FORWARD, IN_SUM),
    (
        {
            "start": step("float sum = 0.0f", "Each thread starts the [sum](workspace) of its plane at 0."),
            "pixel": step("sum += x[pixel]",
                "Each thread adds pixel {pixel} of its plane of [x](input). These pixels are {area} floats apart. The sum of thread 0 is {sum}.",
                fold=mark("Each thread adds the pixels {first - 1} to {last - 1} of its plane of [x](input), one after another.")),
            "store": step("y[plane] = sum / area", "Each thread divides by {area} and stores [y](output). Thread 0 stores {sum} / {area} = {y}."),
        },
    ),
    LOADED, threads=1024, step_name=PIXEL, order=(BY_PIXEL, NOTE),
)
SAME_WARP = Say("Warp {first // PLANES} does the same. Its first plane is {first}, its last one {where(first + PLANES < planes, first + PLANES, planes) - 1}.", "first > 0")
WARP_VIEW = View(
    (X, Y, PerThread("sums", "workspace", mark("one column per lane"), **in_turn(32))), (FORWARD, IN_SUMS),
    (
        {
            "start": step("float sums[PLANES] = {}", Say("The other warps do the same. Threads: {active}.", "active > 32"), SAME_WARP, ""),
            "load": step("sums[k] += sum_at",
                Say("Each of {active} lanes (threads of the warp) reads {VECTOR} floats of each plane, from pixel {pixel} on, and adds them to its [sums](workspace). The sum of lane 0 is {sums[0]}.", "VECTOR > 1"),
                mark("Each of {active} lanes (threads of the warp) reads one pixel of each plane, from pixel {pixel} on, and adds it to its [sums](workspace). The sum of lane 0 is {sums[0]}."),
                each="pixel"),
            "exchange": step("sums[k] += __shfl_xor_sync",
                Say("", "first + k >= planes"),
                Say("The lanes exchange the [sums](workspace) of plane 0 at distance {lane_mask}. Lanes 0 and {lane_mask} both compute {sums[0].before} + {received(sums)} = {sums[0]}.", "k == 0"),
                mark("The same five exchanges give lane 0 the sum {sums[k]} of plane {k}. It divides by {area} and stores [y](output) = {sums[k] / area}."),
                each="where(k > 0, k, -lane_mask)"),
            "store": step("y[first + k] = sums[k] / area",
                Say("", "k > 0"),
                mark("Lane 0 divides the sum of plane {k} by {area} and stores [y](output) = {y}.")),
        },
    ),
    LOADED, alone=32 * MOST_WARPS, detailed=32, **WARPS,
)
SPREAD = View(
    (DY, DX), (BACKWARD,),
    (
        {
            "warp": step("dx[i] = dy[divide(i, by_area)] / area",
                "The threads {min(i)} to {max(i)} store one pixel of [dx](output) each. Thread {i} is in plane {dy.at}: its share is [dy](input) / {area} = {dx}.")
        },
    ),
    step_name=WARP, **WARPS,
)
SPREAD_FOUR = View(
    (DY, DX), (BACKWARD,),
    (
        {
            "warp": step("float share = dy[plane] / area",
                Say("Each of {active} threads stores four pixels of [dx](output), from pixel {i} on. Only {count % 4} are left for the last one.", "any(i + 4 > count)"),
                Say("Each of {active} threads stores four pixels of [dx](output), from pixel {i} on. A plane may end within four: then they have shares of two planes or more.", "any(where(i + 4 < count, i + 3, count - 1) // area > i // area)"),
                mark("Each of {active} threads stores four pixels of [dx](output), from pixel {i} on. The first is in plane {dy.at}: its share is [dy](input) / {area} = {dx}."),
                to="dx[i + j] = shares[j]")
        },
    ),
    step_name=WARP, **WARPS,
)
VIEWS: Mapping[str, View] = {
    "max-pool/window": MAX_WINDOW, "max-pool/patch": MAX_PATCH,
    "max-pool-backward/scatter": MAX_SCATTER, "max-pool-backward/gather": MAX_GATHER, "max-pool-backward/gather-patch": MAX_GATHER_PATCH,
    "avg-pool/window": AVG_WINDOW, "avg-pool/patch": AVG_PATCH,
    "avg-pool-backward/scatter": AVG_SCATTER, "avg-pool-backward/gather": AVG_GATHER, "avg-pool-backward/gather-patch": AVG_GATHER_PATCH,
    "global-avg-pool/plane": PLANE, "global-avg-pool/warp": WARP_VIEW, "global-avg-pool/streaming": WARP_VIEW,
    "global-avg-pool-backward/pixel": SPREAD, "global-avg-pool-backward/four-pixels": SPREAD_FOUR,
}
