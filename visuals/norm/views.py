# fmt: off
"""What the stage shows of each norm's kernels: block 0 with the first channel or row, then the other blocks in one step.

Forward and backward have the same places: x and dx on one side, y and dy on the other, and between them the threads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from kernels.i18n import mark
from visuals.scene.compiler.view import Buffer, Bytes, Number, PerThread, Say, Shared, Shown, Step, View, every, step
from visuals.scene.parts import Group

Launch = Mapping[str, Step]
FRONT, BACK = ("x", "dx"), ("y", "dy")  # the places of the tensors of the size of x
VECTORS = ("gamma", "beta"), ("mean", "invstd", "var", "invrms"), ("dgamma", "dbeta")
ROLES = {"x": "input", "dy": "input", "gamma": "filter", "beta": "filter", "y": "output", "dx": "output"}
LEVELS, A_THREAD, A_WARP = mark("one row per level of the tree"), mark("one column per thread"), mark("one value per warp")
MOVED = Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st")
SAME = mark("The same is repeated {last - first + 1} times.")
OTHERS = mark("The other blocks ({others}) do the same for their channels or rows at the same time.")
OTHER_PARTS = mark("The other blocks ({others}) do the same for their parts of all channels. The launch ends when all blocks are done.")


def inputs(*names: str) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, ROLES.get(name, "input"), name) for name in names)


def outputs(*names: str) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, ROLES.get(name, "output"), name) for name in names)


def workspace(*names: str) -> tuple[Buffer, ...]:
    return tuple(Buffer(name, "workspace", name) for name in names)


def own(**of: str) -> tuple[PerThread, ...]:
    """Returns variables of each thread, by name."""
    return tuple(PerThread(f"own_{name}", "workspace", name, A_THREAD, symbol=name, of=path) for name, path in of.items())


def tree(what: str, **of: str) -> tuple[Shared, ...]:
    """Returns shared arrays of a tree, by name: one row a level."""
    kinds = tuple(f"{kind}_{what}" for kind in ("store", "level", "root"))
    return tuple(Shared(f"shared_{name}", "workspace", name, LEVELS, name, of=array, rows=kinds[1:2], during=kinds) for name, array in of.items())


def moments(array: str, note: str, tree: bool = False) -> tuple[Shared, ...]:
    """Returns n, mean and M2 of a shared array of them."""
    names, kinds = ("n", "mean", "M2"), ("store_moments", "level_moments", "root_moments") if tree else ()
    return tuple(Shared(f"shared_{name}", "workspace", name, note, name, of=array, **every(n, 3), rows=kinds[1:2], during=kinds) for n, name in enumerate(names))


def view(tensors: tuple[Shown, ...], launches: tuple[Launch, ...], others: tuple[str, ...], *readings: Number, rows: bool = False) -> View:
    """Returns a view with the places of its tensors. `rows`: mean and deviation belong to rows of x, and are beside it."""
    names = [shown.name for shown in tensors]
    front, back = (tuple(n for n in side if n in names) for side in (FRONT, BACK))
    factors, saved, gradients = (tuple(n for n in vector if n in names) for vector in VECTORS)
    first = ((*front, *saved), factors, gradients) if rows else (front, factors, saved, gradients)
    parts = tuple((s.name,) for s in tensors if isinstance(s, Buffer) and s.name not in {*front, *back, *factors, *saved, *gradients})
    groups = (
        Group(tuple(row for row in first if row), "global", mark("global memory")),
        Group(tuple((s.name,) for s in tensors if isinstance(s, PerThread)), "registers", mark("registers of the block’s {threads} threads")),
        Group(tuple((s.name,) for s in tensors if isinstance(s, Shared)), "shared", mark("shared memory of the block")),
        Group(parts, "workspace", mark("workspace: partial results")),
        Group((back,), "global", mark("global memory")),
    )
    return View(tensors, tuple(group for group in groups if group.rows), launches, (*readings, *MOVED), others=others)


def so_far(label: str, value: str, *during: str) -> Number:
    return Number(label, value, "workspace", during)


SUM = so_far(mark("sum so far"), "sum(sum)", "sum", "both", "own_sum")
SQUARES = so_far(mark("sum of squares so far"), "sum(squares)", "squares", "both", "own_squares")
MEAN = "sum(own.n * own.mean) / sum(own.n)"
OF_WELFORD = (
    so_far(mark("n so far"), "sum(own.n)", "welford"), so_far(mark("mean so far"), MEAN, "welford"),
    so_far(mark("M2 so far"), f"sum(own.M2 + own.n * (own.mean - {MEAN}) ** 2)", "welford"),
)
OF_MERGE = (
    so_far(mark("n so far"), "all.n", "merge"), so_far(mark("mean so far"), "all.mean", "merge"), so_far(mark("M2 so far"), "all.M2", "merge"),
)
OF_GRADIENTS = so_far(mark("dbeta so far"), "sum(sum_beta)", "gradients"), so_far(mark("dgamma so far"), "sum(sum_gamma)", "gradients")
OF_ROW = so_far(mark("sum of g so far"), "sum(sum_g)", "row_gradients"), so_far(mark("sum of g · x̂ so far"), "sum(sum_gx)", "row_gradients")

# -- passes over a channel or a row ---------------------------------------------------------------------------
FIRST_PASS = mark("Pass 1, loop iteration {visit} of {visits}.")
SECOND_PASS = mark("Pass 2, loop iteration {visit} of {visits}.")
THIRD_PASS = mark("Pass 3, loop iteration {visit} of {visits}.")
ADD = step("sum += x[", "Each active thread adds one number of [x](input) to its [sum](workspace). Thread {thread} computes {sum.before} + {x} = {sum}.", lead=FIRST_PASS, fold=SAME)
ADD_DISTANCE = step("float distance = x[",
    "Thread {thread} reads {x}. Its distance from the mean is {x} − {m} = {distance}. The square is added to [squares](workspace): {squares.before} becomes {squares}.",
    to="squares += distance", lead=SECOND_PASS, fold=SAME)
ADD_SQUARE = step(re.compile(r"squares \+= x\["),
    "Each active thread adds the square of one number of [x](input). Thread {thread} reads {x}. Its [squares](workspace) grow from {squares.before} to {squares}.", lead=FIRST_PASS, fold=SAME)
ADD_BOTH = step("float value = x[",
    "Thread {thread} reads {value}, with the square {value * value}. Its [sum](workspace) grows from {sum.before} to {sum}, and its [squares](workspace) from {squares.before} to {squares}.",
    to="squares += value", lead=FIRST_PASS, fold=SAME)
ADD_WELFORD = step("own = add(own, x[",
    "Thread {thread} reads {x}, its number {own.n}. The distance from its mean was {x - own.mean.before}. The [mean](workspace) moves by {x - own.mean.before} / {own.n}, to {own.mean}. The distance from the new mean is {x - own.mean}. The product of both distances is added: [M2](workspace) = {own.M2}.",
    lead=FIRST_PASS, fold=SAME)
Y_OF_CHANNEL = step("y[at] = ",
    "Thread {thread} writes [y](output) = (x − mean) · scale + beta = ({x} − {m}) · {scale} + {shift} = {y}. The scale is gamma · invstd.", lead=SECOND_PASS, fold=SAME)
Y_OF_ROW = step("y[col] = ",
    "Thread {thread} writes [y](output) = (x − mean) · invstd · gamma + beta = ({x} − {m}) · {s} · {gamma} + {beta} = {y}.", lead=SECOND_PASS, fold=SAME)
Y_OF_RMS = step("y[col] = ", "Thread {thread} writes [y](output) = x · invrms · gamma = {x} · {s} · {gamma} = {y}.", lead=SECOND_PASS, fold=SAME)

# -- trees in shared memory -------------------------------------------------------------------------------------
LEVEL = "partial[thread] += partial[thread + stride]"
SUM_TREE = {
    "store_sum": step("partial[thread] = sum;", "All {active} threads store their [sum](workspace) in shared memory. Then all threads wait at the barrier."),
    "level_sum": step((LEVEL, 0),
        Say("{active} threads work, {idle} idle. Thread t adds the [sum](workspace) of thread t + {stride}. Thread {thread}: {shared_sum[thread]} + {shared_sum[thread + stride]} = {shared_sum.new}. Then all threads wait at the barrier.", "stride > 1"),
        Say("In the last level only thread {thread} works: {shared_sum[thread]} + {shared_sum[thread + stride]} = {shared_sum.new}. Then all threads wait at the barrier.")),
}
SQUARES_TREE = {
    "store_squares": step("partial[thread] = squares;", "All {active} threads store their [squares](workspace) in shared memory. Then all threads wait at the barrier."),
    "level_squares": step((LEVEL, 1),
        Say("{active} threads work, {idle} idle. Thread t adds the [squares](workspace) of thread t + {stride}. Thread {thread}: {shared_squares[thread]} + {shared_squares[thread + stride]} = {shared_squares.new}. Then all threads wait at the barrier.", "stride > 1"),
        Say("In the last level only thread {thread} works. Its [squares](workspace): {shared_squares[thread]} + {shared_squares[thread + stride]} = {shared_squares.new}. Then all threads wait at the barrier.")),
}
BOTH_TREE = {
    "store_both": step("partial_sum[thread] = sum", "All {active} threads store their [sum](workspace) and their [squares](workspace) in shared memory. Then all threads wait at the barrier."),
    "level_both": step("partial_sum[thread] += partial_sum[",
        Say("{active} threads work, {idle} idle. Thread t adds both sums of thread t + {stride}. Thread {thread} now has the [sum](workspace) {shared_sum.new} and the [squares](workspace) {shared_squares.new}. Then all threads wait at the barrier.", "stride > 1"),
        Say("In the last level only thread {thread} works. It has the [sum](workspace) {shared_sum.new} and the [squares](workspace) {shared_squares.new}. Then all threads wait at the barrier."),
        to="partial_squares[thread] += "),
}
MOMENTS_TREE = {
    "store_moments": step("partial[thread] = own;", "All {active} threads store n, [mean](workspace) and [M2](workspace) in shared memory. Then all threads wait at the barrier."),
    "level_moments": step("partial[thread] = merge(",
        Say("{active} threads work, {idle} idle. Thread t merges with thread t + {stride}, by Chan’s rule. Thread {thread} has n = {shared_n[thread]}, mean {shared_mean[thread]}, M2 {shared_M2[thread]}. Thread {thread + stride} has n = {shared_n[thread + stride]}, mean {shared_mean[thread + stride]}, M2 {shared_M2[thread + stride]}. Together: n = {shared_n.new}, [mean](workspace) {shared_mean.new}, [M2](workspace) {shared_M2.new}. Then all threads wait at the barrier.", "stride > 1"),
        Say("In the last level only thread {thread} works. It merges n = {shared_n[thread]}, mean {shared_mean[thread]}, M2 {shared_M2[thread]} with n = {shared_n[thread + stride]}, mean {shared_mean[thread + stride]}, M2 {shared_M2[thread + stride]}. Together: n = {shared_n.new}, [mean](workspace) {shared_mean.new}, [M2](workspace) {shared_M2.new}. Then all threads wait at the barrier.")),
}
GRADIENTS_TREE = {
    "store_gradients": step("partial_beta[thread] = sum_beta", "All {active} threads store their two [sums](workspace) in shared memory. Then all threads wait at the barrier."),
    "level_gradients": step("partial_beta[thread] += partial_beta[",
        Say("{active} threads work, {idle} idle. Thread t adds both sums of thread t + {stride}. Thread {thread} now has {shared_beta.new} for dbeta and {shared_gamma.new} for dgamma. Then all threads wait at the barrier.", "stride > 1"),
        Say("In the last level only thread {thread} works. It has {shared_beta.new} for dbeta and {shared_gamma.new} for dgamma. Then all threads wait at the barrier."),
        to="partial_gamma[thread] += "),
}
ROW_TREE = {
    "store_row_gradients": step("partial_g[thread] = sum_g", "All {active} threads store their two [sums](workspace) in shared memory. Then all threads wait at the barrier."),
    "level_row_gradients": step("partial_g[thread] += partial_g[",
        Say("{active} threads work, {idle} idle. Thread t adds both sums of thread t + {stride}. Thread {thread} now has {shared_g.new} for g and {shared_gx.new} for g · x̂. Then all threads wait at the barrier.", "stride > 1"),
        Say("In the last level only thread {thread} works. It has {shared_g.new} for g and {shared_gx.new} for g · x̂. Then all threads wait at the barrier."),
        to="partial_gx[thread] += "),
}
RMS_TREE = {
    "store_row_gradients": step("partial_gx[thread] = sum_gx", "All {active} threads store their [sum](workspace) in shared memory. Then all threads wait at the barrier."),
    "level_row_gradients": step("partial_gx[thread] += partial_gx[",
        Say("{active} threads work, {idle} idle. Thread t adds the sum of thread t + {stride}. Thread {thread}: {shared_gx[thread]} + {shared_gx[thread + stride]} = {shared_gx.new}. Then all threads wait at the barrier.", "stride > 1"),
        Say("In the last level only thread {thread} works: {shared_gx[thread]} + {shared_gx[thread + stride]} = {shared_gx.new}. Then all threads wait at the barrier.")),
}

# -- forward, one block a channel or a row --------------------------------------------------------------------------
ROOT_SUM = step("float m = partial[0] / ",
    "All threads read cell 0 of shared memory. The mean is {shared_sum} / {elements} = {m}. Then they wait at a barrier, because the array is used again.")
SAVE = re.compile(r"mean\[\w+\] = m")
ROOT_SQUARES = step("float s = inverse_std(partial[0] / ",
    "All threads read cell 0 of shared memory. The variance is {shared_squares} / {elements} = {shared_squares / elements}. invstd = 1 / √({shared_squares / elements} + {eps}) = {s}. Thread 0 stores [mean](output) = {m} and [invstd](output).", to=SAVE)
ROOT_MOMENTS = step("float m = partial[0].mean",
    "All threads read cell 0 of shared memory. The variance is M2 / n = {shared_M2} / {elements} = {shared_M2 / elements}. invstd = 1 / √({shared_M2 / elements} + {eps}) = {s}. Thread 0 stores [mean](output) = {m} and [invstd](output).", to=SAVE)
ROOT_RMS = step("float s = inverse_std(partial[0] / ",
    "All threads read cell 0 of shared memory. The mean square is {shared_squares} / {elements} = {shared_squares / elements}. invrms = 1 / √({shared_squares / elements} + {eps}) = {s}. Thread 0 stores [invrms](output).", to="invrms[row] = s")
OF_CHANNEL = (*inputs("x", "gamma", "beta"), *outputs("y", "mean", "invstd"))
OF_MEAN = so_far(mark("mean so far"), "m", "root_sum")
OF_VARIANCE = so_far(mark("variance, once computed"), "shared_squares / elements", "root_squares")
OF_MOMENTS = so_far(mark("variance, once computed"), "shared_M2 / elements", "root_moments")
OF_RMS = so_far(mark("mean of x², once computed"), "shared_squares / elements", "root_squares")
TWO_PASS_TENSORS = (*own(sum="sum", squares="squares"), *tree("sum", sum="partial"), *tree("squares", squares="partial"))


def two_pass(y: Step) -> tuple[Launch, ...]:
    return ({"sum": ADD, **SUM_TREE, "root_sum": ROOT_SUM, "squares": ADD_DISTANCE, **SQUARES_TREE, "root_squares": ROOT_SQUARES, "y": replace(y, lead=THIRD_PASS)},)


def welford(y: Step) -> tuple[Launch, ...]:
    return ({"welford": ADD_WELFORD, **MOMENTS_TREE, "root_moments": ROOT_MOMENTS, "y": y},)


WELFORD_TENSORS = (*own(n="own.n", mean="own.mean", M2="own.M2"), *moments("partial", LEVELS, tree=True))
DIFFERENCE = step("float m = partial_sum[0] / count",
    Say("The mean of x² is {shared_squares / elements}, the square of the mean {m} is {m * m}. FP32 numbers of this size are {spacing(shared_squares / elements)} apart. Their difference is {variance}, but the variance is {exact}: digits are lost. invstd = {s}.", "abs(variance - exact) > 0.001 * exact"),
    Say("The mean of x² is {shared_squares / elements}, the square of the mean {m} is {m * m}. Their difference is the variance, {variance}. In float64 it is {exact}. invstd = {s}."),
    to=SAVE)
OF_DIFFERENCE = so_far(mark("mean so far"), "m", "root_both"), so_far(mark("variance, once computed"), "variance", "root_both")
ROW = (*inputs("x", "gamma", "beta"), *outputs("y", "mean", "invstd"))
RMS_ROW = (*inputs("x", "gamma"), *outputs("y", "invrms"))

# -- a row in registers ----------------------------------------------------------------------------------------------
VALUES = PerThread("values", "workspace", mark("the row in registers"), A_THREAD)
LOAD_ONE = step("values[i] = col < N",
    Say("Load {visit} of {visits} is beyond the end of the row. All {active} threads set their register to 0.", "count(x) == 0"),
    "Load {visit} of {visits}: {count(x)} numbers of [x](input) go into registers, one for each load of a thread. No thread uses a number yet.", fold=SAME)
LOAD = step("if (col < N) load(values[i], x + col)",
    Say("Load {visit} of {visits} is beyond the end of the row. All {active} threads set their registers to 0.", "count(x) == 0"),
    "Load {visit} of {visits}: threads that load from [x](input): {count(x)}. Each loads up to {WIDTH} numbers into registers. No thread uses a number yet.", to="else clear(values[i])", fold=SAME)
OWN_SUM = step(re.compile(r"sum \+= value"), "Each thread adds the numbers in its registers. Thread {thread} has the [sum](workspace) {sum}.", merge=True)
OWN_SQUARES = step(re.compile(r"float distance = i \* 32|if \(\(i \* BLOCK \+ thread\) \* WIDTH < N\)|squares \+= value"),
    "Each thread adds the squares from its registers. Thread {thread} has the [squares](workspace) {squares}. x is not read again.", to=re.compile(r"squares \+= "), merge=True)
SWAP_ONE, STORE_ONE, ADD_ALL = "value += __shfl_xor_sync", "warp_values[threadIdx.x / 32] = value", "value = warp_values[0]"
LANES_SUM = step(SWAP_ONE,
    "The 32 lanes exchange their sums in five steps, at distance 16, 8, 4, 2 and 1. All of them then have the sum of the row, {own_sum}. The mean is {own_sum} / {elements} = {own_sum / elements}. x is not read again.",
    inside="m = sum_of_warp(sum)", merge=True, shows={"own_sum": "value"})
LANES_SQUARES = step(SWAP_ONE,
    "The 32 lanes exchange their squares in five steps, at distance 16, 8, 4, 2 and 1. All of them then have the sum of the row, {own_squares}. The mean of the squares is {own_squares} / {elements} = {own_squares / elements}.",
    inside="sum_of_warp(squares)", merge=True, shows={"own_squares": "value"})
BLOCK_SUM = {
    "exchange_sum": step(SWAP_ONE, "The lanes of each warp exchange their sums in five steps. Warp 0 has {own_sum}.", inside="m = sum_of_block(sum", merge=True, shows={"own_sum": "value"}),
    "store_sum": step(STORE_ONE, "The first lane of each warp stores the sum of its warp in shared memory. Warps: {active}. Then all threads wait at the barrier.", inside="m = sum_of_block(sum"),
    "whole_sum": step(ADD_ALL, "Each thread adds the sums of the warps. The sum of the row is {own_sum}. The mean is {own_sum} / {elements} = {own_sum / elements}.",
        to=("return value;", 1), inside="m = sum_of_block(sum", merge=True, shows={"own_sum": "value"}),
}
BLOCK_SQUARES = {
    "exchange_squares": step(SWAP_ONE, "The lanes of each warp exchange their squares in five steps. Warp 0 has {own_squares}.", inside="sum_of_block(squares", merge=True, shows={"own_squares": "value"}),
    "store_squares": step(STORE_ONE, "The first lane of each warp stores the sum of its warp in shared memory. Warps: {active}. Then all threads wait at the barrier.", inside="sum_of_block(squares"),
    "whole_squares": step(ADD_ALL, "Each thread adds the squares of the warps. The sum of the row is {own_squares}. The mean of the squares is {own_squares} / {elements} = {own_squares / elements}.",
        to=("return value;", 1), inside="sum_of_block(squares", merge=True, shows={"own_squares": "value"}),
}
SAVED = step(SAVE, "The variance is the mean of these squares. invstd = 1 / √(variance + {eps}) = {s}. Thread 0 stores [mean](output) = {m} and [invstd](output).")
LANE_SAVED = step(SAVE, "The variance is the mean of these squares. invstd = 1 / √(variance + {eps}) = {s}. Lane 0 stores [mean](output) = {m} and [invstd](output) of its row.")
LANE_SAVED_RMS = step("invrms[row] = s", "invrms = 1 / √(mean square + {eps}) = {s}. Lane 0 stores [invrms](output) of its row.")
SAVED_RMS = step("invrms[row] = s", "invrms = 1 / √(mean square + {eps}) = {s}. Thread 0 stores [invrms](output).")
PUT_ONE = step("y[col] = ", "Store {visit} of {visits}, from registers. Thread {thread} writes [y](output) = ({values[i]} − {m}) · {s} · {gamma} + {beta} = {y}.", fold=SAME)
PUT = step("load(g, gamma + col)",
    "Store {visit} of {visits}, from registers. Thread {thread} writes [y](output)[{y.at}] = ({x[y.at]} − {m}) · {s} · {gamma} + {beta} = {y}.", to="store(y + col, values[i])", fold=SAME)
PUT_RMS_ONE = step("y[col] = ", "Store {visit} of {visits}, from registers. Thread {thread} writes [y](output) = {values[i]} · {s} · {gamma} = {y}.", fold=SAME)
PUT_RMS = step("load(g, gamma + col)",
    "Store {visit} of {visits}, from registers. Thread {thread} writes [y](output)[{y.at}] = {x[y.at]} · {s} · {gamma} = {y}.", to="store(y + col, values[i])", fold=SAME)
WARP_SUMS = Shared("warp_sum", "workspace", "sum", A_WARP, "sum", of="warp_sums")
WARP_SQUARES = Shared("warp_squares", "workspace", "squares", A_WARP, "squares", of="warp_squares")

# -- backward, one block a channel or a row ----------------------------------------------------------------------------
GRADIENTS = step("sum_beta += dy[at]",
    "Thread {thread} reads dy = {dy} and x = {x}, so x̂ = {(x - m) * s}. It adds [dy](input) to its first sum: {sum_beta}. It adds dy · x̂ to its second sum: {sum_gamma}.", lead=FIRST_PASS, fold=SAME)
ROOT_GRADIENTS = step("sum_beta = partial_beta[0]",
    "All threads read cell 0. dbeta = {sum_beta} and dgamma = {sum_gamma}. Divided by {elements}, the means are {sum_beta / elements} and {sum_gamma / elements}. Thread 0 stores [dgamma](output) and [dbeta](output).",
    to="dgamma[channel] = sum_gamma")
DX = step("float xhat = (x[at] - m) * s",
    "Thread {thread} writes [dx](output) = gamma · invstd · (dy − mean of dy − x̂ · mean of dy · x̂) = {scale} · ({dy} − {mean_beta} − {xhat} · {mean_gamma}) = {dx}.",
    to="dx[at] = ", lead=SECOND_PASS, fold=SAME)
G = "float g = dy[col] * gamma[col], xhat = "
ROW_GRADIENTS = step((G, 0),
    "Thread {thread} has g = dy · gamma = {g} and x̂ = {xhat}. It adds g to its first sum: {sum_g}. It adds g · x̂ to its second sum: {sum_gx}.", to="sum_g += g", lead=FIRST_PASS, fold=SAME)
RMS_GRADIENTS = step("sum_gx += dy[col] * gamma[col]",
    "Thread {thread} has g = dy · gamma = {dy * gamma} and x̂ = {x * s}. It adds g · x̂ to its sum: {sum_gx.before} becomes {sum_gx}.", lead=FIRST_PASS, fold=SAME)
ROOT_ROW = step("float mean_g = partial_g[0]",
    "All threads read cell 0. The mean of g is {shared_g} / {elements} = {mean_g}. The mean of g · x̂ is {shared_gx} / {elements} = {mean_gx}.")
ROOT_RMS_ROW = step("float mean_gx = partial_gx[0]",
    "All threads read cell 0. The mean of g · x̂ is {shared_gx} / {elements} = {mean_gx}. No mean of g is needed, because no mean was subtracted.")
ROW_DX = step((G, 1),
    "Thread {thread} writes [dx](output) = invstd · (g − mean of g − x̂ · mean of g · x̂) = {s} · ({g} − {mean_g} − {xhat} · {mean_gx}) = {dx}.", to="dx[col] = ", lead=SECOND_PASS, fold=SAME)
ATOMIC_DX = step((G, 1),
    "Thread {thread} writes [dx](output) = {s} · ({g} − {mean_g} − {xhat} · {mean_gx}) = {dx}. It adds dy · x̂ = {dy * xhat} to dgamma[{col}] by an atomic addition. dgamma[{col}] is now {dgamma.new}.",
    to="atomicAdd(&dbeta[col]", lead=SECOND_PASS, fold=SAME)
ATOMIC_RMS_DX = step((G, 0),
    "Thread {thread} writes [dx](output) = {s} · ({g} − {xhat} · {mean_gx}) = {dx}. It adds dy · x̂ = {dy * xhat} to dgamma[{col}] by an atomic addition. dgamma[{col}] is now {dgamma.new}.",
    to="atomicAdd(&dgamma[col]", lead=SECOND_PASS, fold=SAME)
ZERO_GAMMA = {"zero_gamma": step("y[i] = 0.0f", "A launch sets the {active} sums of [dgamma](output) to 0. Atomic additions need a sum to start from.")}
ZERO_BETA = {"zero_beta": step("y[i] = 0.0f", "Another launch sets the {active} sums of [dbeta](output) to 0.")}
OTHER_SUMS = mark("The other blocks ({others}) set the other sums to 0.")
OTHER_ROWS = mark("The other blocks ({others}) do the same for their rows at the same time. [dx](output) is complete.")
OTHER_ATOMICS = mark("The other blocks ({others}) do the same for their rows. Their atomic additions go to the same addresses. [dx](output) and the sums are complete.")
TO_ROW = {"row_gradients": ROW_GRADIENTS, **ROW_TREE, "root_row": ROOT_ROW}
TO_RMS_ROW = {"row_gradients": RMS_GRADIENTS, **RMS_TREE, "root_row": ROOT_RMS_ROW}
ROW_BACKWARD = (*inputs("dy", "x", "gamma", "mean", "invstd"), *outputs("dx", "dgamma", "dbeta"))
RMS_BACKWARD = (*inputs("dy", "x", "gamma", "invrms"), *outputs("dx", "dgamma"))
ROW_SUMS = (*own(sum_g="sum_g", sum_gx="sum_gx"), *tree("row_gradients", g="partial_g", gx="partial_gx"))
RMS_SUMS = (*own(sum_gx="sum_gx"), *tree("row_gradients", gx="partial_gx"))
COLUMNS = {
    "rows_of_warps": step("float xhat = (x[at] - mean[row]) * invstd[row]",
        "The next launch: one warp per row, rows {min(row)} to {max(row)}. Each lane adds the terms of its column. In column {col} warp {warp} has {sum_gamma} for dgamma and {sum_beta} for dbeta.",
        to="sum_gamma += dy[at]", fold=SAME),
    "store_warps": step("warp_gamma[warp][lane] = sum_gamma", "All warps store their sums in shared memory. Then all threads wait at the barrier."),
    "sum_warps": step("sum_gamma += warp_gamma[other][lane]",
        "The first warp adds the sums of all eight. [dgamma](output)[{col}] = {sum_gamma} and [dbeta](output)[{col}] = {sum_beta}.", to="dgamma[col] = sum_gamma", merge=True),
}
OTHER_COLUMNS = mark("The other blocks ({others}) do the same for their columns.")

# -- several rows a block -----------------------------------------------------------------------------------------------
LOAD_ROW = step("if (col < N) load(gs[i], dy", "Block 0 loads row {row} of [dy](input) and [x](input) into registers.", to=("else clear(xhats[i])", 0), merge=True)
TERMS = step("load(gammas, gamma + col)",
    "Each thread adds dy · x̂ and dy to the sums of its columns. It adds g and g · x̂ to its sums of the row. Thread {thread} now has {sum_gamma[0][0]} for dgamma and {sum_beta[0][0]} for dbeta of its first column.", to="sum_g += gs[i][w]", merge=True)
RMS_TERMS = step("load(gammas, gamma + col)",
    "Each thread adds dy · x̂ to the sums of its columns, and g · x̂ to its sum of the row. Thread {thread} now has {sum_gamma[0][0]} for dgamma of its first column.", to="sum_gx += gs[i][w]", merge=True)
ROW_TOTALS = step("sum_g = sum_of_warp(sum_g)",
    "The lanes of each warp exchange and add both sums of the row. The first lanes store them in shared memory. After a barrier all threads add the sums of the warps. The sum of g is {sum_g}, that of g · x̂ is {sum_gx}.",
    to="sum_g += warp_g[half][warp]", merge=True)
RMS_TOTAL = step("sum_gx = sum_of_block(sum_gx",
    "The lanes of each warp exchange and add their sums. The first lanes store them in shared memory. After a barrier all threads add the sums of the warps. Divided by {elements}, the mean of g · x̂ is {mean_gx}.",
    to="float mean_gx = sum_gx / N", merge=True)
ROW_OUT = step("gs[i][w] = s * (gs[i][w] - ", "The block writes row {row} of [dx](output). Thread {thread} writes {dx} last.", to="store(dx + start + col, gs[i])", merge=True)
STORE_SUMS = step("store(partial_gamma + ", "The block stores the sums of its rows. No atomic addition was needed.", to="store(partial_beta + ", merge=True)
STORE_GAMMA = step("store(partial_gamma + ", "The block stores the sums of its rows. No atomic addition was needed.", merge=True)
OTHER_SEVERAL = mark("The other blocks ({others}) do the same for their rows. Each stores sums of its own.")
ADD_GAMMA = {"sum_gamma": step("if (col < N) sum += partial[",
    "A launch adds up the partial sums of each column, always in the same order. Parts: {parts}. A barrier separates the sums of the warps from their total. [dgamma](output)[0] = {dgamma}.", to="sums[col] = sum", merge=True)}
ADD_BETA = {"sum_beta": step("if (col < N) sum += partial[",
    "A launch adds up the partial sums of each column, always in the same order. Parts: {parts}. A barrier separates the sums of the warps from their total. [dbeta](output)[0] = {dbeta}.", to="sums[col] = sum", merge=True)}
ADD_PAIR = {"pair_gamma": step("bool inside = row < parts",
    "One launch adds up both partial sums, each by blocks of its own. Parts of a column: {parts}. A barrier separates the sums of the warps from their total. [dgamma](output)[0] = {dgamma}.", to="(blockIdx.y ? dbeta : dgamma)[col] = sum", merge=True)}
OTHER_PAIR = mark("Other blocks ({others}) of the same launch add up partial_beta in the same way. [dbeta](output) is complete.")
GAMMAS = PerThread("own_gamma", "workspace", mark("sums for dgamma"), A_THREAD, of="sum_gamma")
BETAS = PerThread("own_beta", "workspace", mark("sums for dbeta"), A_THREAD, of="sum_beta")

# -- several blocks a channel ----------------------------------------------------------------------------------------------
OWN_MOMENTS = tuple(
    replace(shown, of=f"{shown.of} {merged.of}") for shown, merged in zip(own(n="own.n", mean="own.mean", M2="own.M2"), own(n="all.n", mean="all.mean", M2="all.M2"), strict=True)
)
SHOW_OWN = {"own_n": "own.n", "own_mean": "own.mean", "own_M2": "own.M2"}
PART = {
    "load": step("if (i < end) load(values[k]",
        "Block 0 has part 0 of channel {channel}, vectors of {WIDTH} numbers from {begin} to {end - 1}. Threads that load: {count(x)}. Each loads several vectors before it uses the first.", to="else clear(values[k])", merge=True, fold=SAME),
    "own": step("float sum = 0.0f, n = 0.0f, M2 = 0.0f",
        Say("Each thread computes n, mean and M2 of its numbers: two passes over its registers. Thread {thread} has n = {own.n}, [mean](workspace) {own.mean} and [M2](workspace) {own.M2}.", pick="own.n"),
        to="own = merge(own, {n, m, M2})", merge=True, shows=SHOW_OWN),
    "exchange": step("own = merge(own, {__shfl_xor_sync(~0u, own.n",
        "The lanes of each warp merge their moments in five exchanges, by Chan’s rule. Warp 0 has n = {own_n}, [mean](workspace) {own_mean} and [M2](workspace) {own_M2}.", inside="own = merge_block(own", merge=True, shows=SHOW_OWN),
    "store": step("warp_moments[threadIdx.x / 32] = own", "The first lane of each warp stores its moments in shared memory. Warps: {active}. Then all threads wait at the barrier.", inside="own = merge_block(own"),
    "whole": step("own = warp_moments[0]", "Each thread merges the moments of the warps: n = {own_n}, mean {own_mean} and M2 {own_M2}.",
        to=("return own;", 1), inside="own = merge_block(own", merge=True, shows=SHOW_OWN),
    "part": step("partial[2 * blockIdx.x] = own.mean", "The block stores [mean](workspace) {own.mean} and [M2](workspace) {own.M2} of its part.", to="partial[2 * blockIdx.x + 1] = own.M2"),
}
APPLY = {
    "merge": step("const float* of_part = partial + 2",
        Say("The next launch begins. Each block merges the parts of its channel. Part {p} of channel {channel} has n = {n}, mean {partial[2 * (channel * parts + p)]} and M2 {partial[2 * (channel * parts + p) + 1]}.", "p == 0"),
        Say("Chan’s rule merges part {p}: n = {n}, mean {partial[2 * (channel * parts + p)]}, M2 {partial[2 * (channel * parts + p) + 1]}. Before, it was n = {all.n.before}, mean {all.mean.before}, M2 {all.M2.before}. Together: n = {all.n}, [mean](workspace) {all.mean}, [M2](workspace) {all.M2}."),
        to="all = merge(all, {(float)n", fold=SAME),
    "invstd": step("float m = all.mean, s = inverse_std(",
        "The variance is {all.M2} / {all.n} = {all.M2 / all.n}. invstd = 1 / √({all.M2 / all.n} + {eps}) = {s}. The block of part 0 stores [mean](output) = {m} and [invstd](output) of its channel.", to="mean[channel] = m"),
    "apply": step("int i = min(first + k * BLOCK, end - 1)",
        "The block writes part {part} of channel {channel} of [y](output). Thread {thread} writes [y](output)[{y.at}] = ({x[y.at]} − {m}) · {scale} + {shift} = {y}. The blocks of the last parts began first: what was read last may still be in L2.",
        to="store(y + at[k], values[k])", merge=True, fold=SAME),
}
OTHER_OUT = mark("The other blocks ({others}) do the same for their parts of all channels. [y](output) is complete.")
PART_NHWC = {
    "load": step("if (pixel < end && inside)",
        Say("Block 0 has part 0, pixels {begin} to {end - 1}. A thread has one channel and goes down the pixels. Threads that load: {count(x)}.", "WIDTH == 1"),
        "Block 0 has part 0, pixels {begin} to {end - 1}. A thread has {WIDTH} channels side by side and goes down the pixels. Threads that load: {count(x)}.", to="clear(values[k])", merge=True, fold=SAME),
    "own": step("float sum = 0.0f, M2 = 0.0f",
        "Each thread computes n, mean and M2 of each of its channels. Thread {thread}, channel {channel}: n = {own[0].n}, mean {own[0].mean} and M2 {own[0].M2}.", to="own[w] = merge(own[w]", merge=True),
    "store": step("of_thread[w] = own[w]", "All threads store the moments of their channels in shared memory. Then all threads wait at the barrier.", merge=True),
    "level": step(re.compile(r"of_thread\[w\] =$"),
        "{active} threads work, {idle} idle. Thread rows below {stride} merge with the row that is {stride} further down, by Chan’s rule. Channel {channel} of thread {thread}: n = {shared_n.new}. Then all threads wait at the barrier.", to="merge(of_thread[w], of_thread[stride", each="stride"),
    "part": step("size_t at = 2 * ((size_t)(channel + w) * parts + part)", "The first row of threads stores [mean](workspace) and [M2](workspace) of each channel of the part.", to="partial[at] = of_thread[w].mean", merge=True),
}
MERGE_NHWC = {
    "merge": step("own = merge(own, {(float)n",
        "The next launch begins, with a warp per channel. Each active lane takes a part of channel {channel}. Lane {thread} has n = {own.n}, [mean](workspace) {own.mean} and [M2](workspace) {own.M2}.", fold=SAME),
    "exchange": step("own = merge(own, {__shfl_xor_sync(~0u, own.n", "The lanes merge their parts in five exchanges, by Chan’s rule. All lanes have n = {own_n}, [mean](workspace) {own_mean} and [M2](workspace) {own_M2}.",
        inside="own = merge_warp(own)", merge=True, shows=SHOW_OWN),
    "invstd": step("mean[channel] = own.mean",
        "The variance is {own.M2} / {own.n} = {own.M2 / own.n}. Lane 0 stores [mean](output) = {mean} and [invstd](output) = 1 / √({own.M2 / own.n} + {eps}) = {invstd} of channel {channel}.", to="invstd[channel] = "),
}
APPLY_NHWC = {
    "factors": step("m[w] = mean[channel + w]", "The last launch begins. Each thread loads mean, invstd, gamma and beta of its channels.", to="scale[w] = ", merge=True),
    "apply": step("int pixel = min(first + k * TY, end - 1)",
        "Block 0 writes part {part} of [y](output). Thread {thread} writes [y](output)[{y.at}] = ({x[y.at]} − {mean[y.at % C]}) · {invstd[y.at % C]} · {gamma[y.at % C]} + {beta[y.at % C]} = {y}. What was read last comes first: it may still be in L2.", to="store(y + (size_t)(first", merge=True, fold=SAME),
}
OTHER_MERGES = mark("The other blocks ({others}) do the same for their channels. [mean](output) and [invstd](output) are complete.")
PART_BACK = {
    "load": step("if (i < end) load(dys[k]",
        "Block 0 has part 0 of channel {channel}, vectors of {WIDTH} numbers from {begin} to {end - 1}. Threads that load [dy](input) and [x](input): {count(dy)}.", to="else clear(dys[k])", merge=True, fold=SAME),
    "gradients": step("sum_beta += dys[k][w]",
        "Each thread adds dy to its first sum and dy · x̂ to its second sum. Thread {thread} has {sum_beta} and {sum_gamma}.", to="sum_gamma += dys[k][w]", merge=True),
    "total_beta": step("sum_beta = sum_of_block(sum_beta", "The lanes of each warp exchange and add their sums of dy. The first lanes store them in shared memory. After a barrier all threads add the sums of the warps.", merge=True),
    "total_gamma": step("sum_gamma = sum_of_block(sum_gamma", "The same follows for the sums of dy · x̂, with a barrier of its own.", merge=True),
    "part": step("partial[2 * blockIdx.x] = sum_beta", "The block stores the sum of dy, {sum_beta}, and that of dy · x̂, {sum_gamma}.", to="partial[2 * blockIdx.x + 1] = sum_gamma"),
}
APPLY_BACK = {
    "sum_parts": step("const float* of_part = partial + 2",
        Say("The next launch begins. Each thread adds up the {parts} parts of its channel. With part {p}, channel {channel} has dbeta = {sum_beta} and dgamma = {sum_gamma}.", "p == 0"),
        Say("With part {p}, channel {channel} has dbeta = {sum_beta} and dgamma = {sum_gamma}."), to="sum_beta += of_part[0]", fold=SAME),
    "store": step("dgamma[channel] = sum_gamma", "The block of part 0 stores [dgamma](output) = {sum_gamma} and [dbeta](output) = {sum_beta} of its channel."),
    "apply": step("int i = min(first + k * BLOCK, end - 1)",
        "The block writes part {part} of channel {channel} of [dx](output). Thread {thread} writes [dx](output)[{dx.at}] = {scale} · ({dy[dx.at]} − {mean_beta} − {(x[dx.at] - m) * s} · {mean_gamma}) = {dx}.", to="store(dx + at[k], dys[k])", merge=True, fold=SAME),
}
OTHER_DX = mark("The other blocks ({others}) do the same for their parts of all channels. [dx](output) is complete.")
PART_BACK_NHWC = {
    "load": step("if (first + k * TY < end && inside)",
        Say("Block 0 has part 0, pixels {begin} to {end - 1}. A thread has one channel and goes down the pixels. Threads that load [dy](input) and [x](input): {count(dy)}.", "WIDTH == 1"),
        "Block 0 has part 0, pixels {begin} to {end - 1}. A thread has {WIDTH} channels side by side and goes down the pixels. Threads that load [dy](input) and [x](input): {count(dy)}.", to="clear(dys[k])", merge=True, fold=SAME),
    "gradients": step("sum_beta[w] += dys[k][w]",
        "Each thread adds dy and dy · x̂ to two sums of each of its channels. Thread {thread}, channel {channel}: {sum_beta[0]} and {sum_gamma[0]}.", to="sum_gamma[w] += dys[k][w]", merge=True),
    "store": step("beta[w] = sum_beta[w]", "All threads store the sums of their channels in shared memory. Then all threads wait at the barrier.", merge=True),
    "level": step("beta[w] += beta[stride",
        "{active} threads work, {idle} idle. Thread rows below {stride} add the sums of the row that is {stride} further down. Then all threads wait at the barrier.", to="gamma[w] += gamma[stride", each="stride"),
    "part": step("size_t at = (size_t)part * C + channel + w", "The first row of threads stores the sums of each channel of the part.", to="partial_gamma[at] = gamma[w]", merge=True),
}
APPLY_BACK_NHWC = {
    "factors": step("m[w] = mean[channel + w]", "The last launch begins. Each thread loads the factors and the two means of its channels. Thread {thread}, channel {channel}: {mean_beta[0]} and {mean_gamma[0]}.", to="mean_gamma[w] = ", merge=True),
    "apply": step("int pixel = min(first + k * TY, end - 1)", "Block 0 writes part {part} of [dx](output). Thread {thread} writes [dx](output)[{dx.at}] = {gamma[dx.at % C] * invstd[dx.at % C]} · ({dy[dx.at]} − {dbeta[dx.at % C] / pixels} − {(x[dx.at] - mean[dx.at % C]) * invstd[dx.at % C]} · {dgamma[dx.at % C] / pixels}) = {dx}.", to="store(dx + at, dys[k])", merge=True, fold=SAME),
}
MAPS_BACKWARD = (*inputs("dy", "x", "gamma", "mean", "invstd"), *outputs("dx", "dgamma", "dbeta"))
NHWC_SUMS = Shared("shared_beta", "workspace", mark("sums of dy"), of="betas"), Shared("shared_gamma", "workspace", mark("sums of dy · x̂"), of="gammas")
NHWC_BACKWARD = (*MAPS_BACKWARD, *workspace("partial_gamma", "partial_beta"), *NHWC_SUMS)

# -- inference -----------------------------------------------------------------------------------------------------------------
FORMULA = {"formula": step("int channel = NHWC",
    "Block {block}: thread {thread} reads x = {x} and four numbers of channel {channel}. [y](output) = {gamma} · ({x} − {mean}) / √({var} + {eps}) + {beta} = {y}.", to="y[i] = ", by="block")}
FOLD = {"fold": step("float scale = gamma[channel] / sqrtf(",
    "Channel {channel}: scale = gamma / √(var + {eps}) = {gamma} / √({var} + {eps}) = {scale}. shift = beta − mean · scale = {beta} − {mean} · {scale} = {folded.new}.", to="folded[C + channel] = ", by="thread", fold=SAME)}
SCALE_SHIFT = {"scale_shift": step(("int i = min(first + k * BLOCK, vectors - 1)", 0),
    "Block {block} computes {16 * BLOCK} numbers at most, each with one multiply-add. The last of thread {thread} is [y](output)[{y.at}] = {folded[where(NHWC, y.at % C, y.at // of_map % C)]} · {x[y.at]} + {folded[C + where(NHWC, y.at % C, y.at // of_map % C)]} = {y}.", to="store(y + (size_t)i * WIDTH", merge=True, by="block")}
INFERENCE = (*inputs("x", "gamma", "beta", "mean", "var"), *outputs("y"))
OTHER_BLOCKS = mark("The other blocks ({others}) do the same at the same time.")

VIEWS: Mapping[str, View] = {
    "batch-norm/two-pass": view((*OF_CHANNEL, *TWO_PASS_TENSORS), two_pass(Y_OF_CHANNEL), (OTHERS,), SUM, OF_MEAN, SQUARES, OF_VARIANCE),
    "batch-norm/welford": view((*OF_CHANNEL, *WELFORD_TENSORS), welford(Y_OF_CHANNEL), (OTHERS,), *OF_WELFORD, OF_MOMENTS),
    "batch-norm/sums": view(
        (*OF_CHANNEL, *own(sum="sum", squares="squares"), *tree("both", sum="partial_sum", squares="partial_squares")),
        ({"both": ADD_BOTH, **BOTH_TREE, "root_both": DIFFERENCE, "y": Y_OF_CHANNEL},), (OTHERS,), SUM, SQUARES, *OF_DIFFERENCE,
    ),
    "batch-norm/split": view(
        (*OF_CHANNEL, *workspace("partial"), *OWN_MOMENTS, *moments("warp_moments", A_WARP)),
        (PART, APPLY), (OTHER_PARTS, OTHER_OUT), *OF_MERGE,
    ),
    "batch-norm/split-nhwc": view((*OF_CHANNEL, *workspace("partial"), *OWN_MOMENTS, *moments("column", "")), (PART_NHWC, MERGE_NHWC, APPLY_NHWC), (OTHER_PARTS, OTHER_MERGES, OTHER_OUT)),
    "batch-norm-inference/formula": view(INFERENCE, (FORMULA,), (OTHER_BLOCKS,)),
    "batch-norm-inference/folded": view((*INFERENCE, *workspace("folded")), (FOLD, SCALE_SHIFT), (OTHER_BLOCKS, OTHER_BLOCKS)),
    "batch-norm-backward/two-pass": view(
        (*MAPS_BACKWARD, *own(sum_beta="sum_beta", sum_gamma="sum_gamma"), *tree("gradients", beta="partial_beta", gamma="partial_gamma")),
        ({"gradients": GRADIENTS, **GRADIENTS_TREE, "root_gradients": ROOT_GRADIENTS, "dx": DX},), (OTHERS,), *OF_GRADIENTS,
    ),
    "batch-norm-backward/split": view(
        (*MAPS_BACKWARD, *workspace("partial"), *own(sum_beta="sum_beta", sum_gamma="sum_gamma"),
         *(Shared(name, "workspace", name, A_WARP) for name in ("warp_beta", "warp_gamma"))),
        (PART_BACK, APPLY_BACK), (OTHER_PARTS, OTHER_DX),
    ),
    "batch-norm-backward/split-nhwc": view(NHWC_BACKWARD, (PART_BACK_NHWC, ADD_GAMMA, ADD_BETA, APPLY_BACK_NHWC), (OTHER_PARTS, OTHER_COLUMNS, OTHER_COLUMNS, OTHER_DX)),
    "batch-norm-backward/split-nhwc-one-sum": view(NHWC_BACKWARD, (PART_BACK_NHWC, ADD_PAIR, APPLY_BACK_NHWC), (OTHER_PARTS, OTHER_PAIR, OTHER_DX)),
    "layer-norm/three-reads": view((*ROW, *TWO_PASS_TENSORS), two_pass(Y_OF_ROW), (OTHERS,), SUM, OF_MEAN, SQUARES, OF_VARIANCE, rows=True),
    "layer-norm/welford": view((*ROW, *WELFORD_TENSORS), welford(Y_OF_ROW), (OTHERS,), *OF_WELFORD, OF_MOMENTS, rows=True),
    "layer-norm/warp": view((*ROW, VALUES, *own(sum="sum", squares="squares")),
        ({"load": LOAD_ONE, "own_sum": OWN_SUM, "lanes_sum": LANES_SUM, "own_squares": OWN_SQUARES, "lanes_squares": LANES_SQUARES, "saved": LANE_SAVED, "put": PUT_ONE},), (OTHERS,), rows=True),
    "layer-norm/registers": view((*ROW, VALUES, *own(sum="sum", squares="squares"), WARP_SUMS, WARP_SQUARES),
        ({"load": LOAD, "own_sum": OWN_SUM, **BLOCK_SUM, "own_squares": OWN_SQUARES, **BLOCK_SQUARES, "saved": SAVED, "put": PUT},), (OTHERS,), SUM, SQUARES, rows=True),
    "layer-norm-backward/atomics": view((*ROW_BACKWARD, *ROW_SUMS), (ZERO_GAMMA, ZERO_BETA, {**TO_ROW, "dx": ATOMIC_DX}), (OTHER_SUMS, OTHER_SUMS, OTHER_ATOMICS), *OF_ROW, rows=True),
    "layer-norm-backward/columns": view(
        (*ROW_BACKWARD, *ROW_SUMS, *(Shared(name, "workspace", name) for name in ("warp_gamma", "warp_beta"))),
        ({**TO_ROW, "dx": ROW_DX}, COLUMNS), (OTHER_ROWS, OTHER_COLUMNS), *OF_ROW, rows=True),
    "layer-norm-backward/registers": view(
        (*ROW_BACKWARD, *workspace("partial_gamma", "partial_beta"), GAMMAS, BETAS, *(Shared(name, "workspace", name, A_WARP) for name in ("warp_g", "warp_gx"))),
        ({"load": LOAD_ROW, "terms": TERMS, "totals": ROW_TOTALS, "dx": ROW_OUT, "store": STORE_SUMS}, ADD_GAMMA, ADD_BETA), (OTHER_SEVERAL, OTHER_COLUMNS, OTHER_COLUMNS), rows=True),
    "rms-norm/two-reads": view((*RMS_ROW, *own(squares="squares"), *tree("squares", squares="partial")),
        ({"squares": ADD_SQUARE, **SQUARES_TREE, "level_squares": replace(SQUARES_TREE["level_squares"], at=LEVEL), "root_squares": ROOT_RMS, "y": Y_OF_RMS},), (OTHERS,), SQUARES, OF_RMS, rows=True),
    "rms-norm/warp": view((*RMS_ROW, VALUES, *own(squares="squares")),
        ({"load": LOAD_ONE, "own_squares": OWN_SQUARES, "lanes_squares": LANES_SQUARES, "saved": LANE_SAVED_RMS, "put": PUT_RMS_ONE},), (OTHERS,), rows=True),
    "rms-norm/registers": view((*RMS_ROW, VALUES, *own(squares="squares"), WARP_SQUARES),
        ({"load": LOAD, "own_squares": OWN_SQUARES, **BLOCK_SQUARES, "saved": SAVED_RMS, "put": PUT_RMS},), (OTHERS,), SQUARES, rows=True),
    "rms-norm-backward/atomics": view((*RMS_BACKWARD, *RMS_SUMS), (ZERO_GAMMA, {**TO_RMS_ROW, "dx": ATOMIC_RMS_DX}), (OTHER_SUMS, OTHER_ATOMICS), OF_ROW[1], rows=True),
    "rms-norm-backward/registers": view(
        (*RMS_BACKWARD, *workspace("partial_gamma"), GAMMAS, Shared("warp_gx", "workspace", "warp_gx", A_WARP)),
        ({"load": LOAD_ROW, "terms": RMS_TERMS, "totals": RMS_TOTAL, "dx": ROW_OUT, "store": STORE_GAMMA}, ADD_GAMMA), (OTHER_SEVERAL, OTHER_COLUMNS), rows=True),
}
