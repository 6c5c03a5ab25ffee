"""Captions of the norm scenes: a template for each kind of step, and the line of the kernel that it lights.

In a pass {0} is its number, {1} of {2} the loop iteration. The further numbers are those of thread 0.
"""

from __future__ import annotations

from kernels.i18n import mark, tr

ITERATION = mark("Pass {0}, loop iteration {1} of {2}.")  # begins the captions of IN_A_PASS
BARRIER = mark("Then all threads wait at the barrier.")  # ends the captions of BEFORE_A_BARRIER

IN_A_PASS = {
    # -- sums ------------------------------------------------------------------------------------------
    "sum": mark("Each active thread adds one number of [x](input) to its [sum](workspace). Thread 0 computes {4} + {3} = {5}."),
    "squares": mark("Thread 0 reads {3}. Its distance from the mean is {3} − {4} = {5}. The square is added to [squares](workspace): {6} becomes {7}."),
    "rms_squares": mark("Each active thread adds the square of one number of [x](input). Thread 0 reads {3}. Its [squares](workspace) grow from {4} to {5}."),
    "both": mark("Thread 0 reads {3}, with the square {4}. Its [sum](workspace) grows from {5} to {7}, and its [squares](workspace) from {6} to {8}."),
    "welford": mark("Thread 0 reads {3}, its number {5}. The distance from its mean was {4}. The [mean](workspace) moves by {4} / {5}, to {6}. "
    "The distance from the new mean is {8}. The product of both distances is added: [M2](workspace) = {7}."),
    "gradients": mark("Thread 0 reads dy = {3} and x = {4}, so x̂ = {5}. It adds [dy](input) to its first sum: {8}. It adds dy · x̂ to its second sum: {9}."),
    "row_gradients": mark("Thread 0 has g = dy · gamma = {3} and x̂ = {4}. It adds g to its first sum: {7}. It adds g · x̂ to its second sum: {8}."),
    "rms_gradients": mark("Thread 0 has g = dy · gamma = {3} and x̂ = {4}. It adds g · x̂ to its sum: {5} becomes {6}."),
    # -- results ---------------------------------------------------------------------------------------
    "y": mark("Thread 0 writes [y](output) = (x − mean) · invstd · gamma + beta = ({3} − {4}) · {5} · {6} + {7} = {8}."),
    "rms_y": mark("Thread 0 writes [y](output) = x · invrms · gamma = {3} · {4} · {5} = {6}."),
    "dx": mark("Thread 0 writes [dx](output) = gamma · invstd · (dy − mean of dy − x̂ · mean of dy · x̂) = {7} · ({3} − {5} − {4} · {6}) = {8}."),
    "row_dx": mark("Thread 0 writes [dx](output) = invstd · (g − mean of g − x̂ · mean of g · x̂) = {7} · ({3} − {5} − {4} · {6}) = {8}."),
    "row_dx_atomic": mark("Thread 0 writes [dx](output) = {7} · ({3} − {5} − {4} · {6}) = {8}. It adds dy · x̂ = {10} to dgamma[{9}] by an atomic "
    "addition. dgamma[{9}] is now {11}."),
    "rms_dx_atomic": mark("Thread 0 writes [dx](output) = {6} · ({3} − {4} · {5}) = {7}. It adds dy · x̂ = {9} to dgamma[{8}] by an atomic addition. "
    "dgamma[{8}] is now {10}."),
}  # fmt: skip
BEFORE_A_BARRIER = {
    "store_sum": mark("All {0} threads store their [sum](workspace) in shared memory."),
    "store_squares": mark("All {0} threads store their [squares](workspace) in shared memory."),
    "store_both": mark("All {0} threads store their [sum](workspace) and their [squares](workspace) in shared memory."),
    "store_moments": mark("All {0} threads store n, [mean](workspace) and [M2](workspace) in shared memory."),
    "store_gradients": mark("All {0} threads store their two [sums](workspace) in shared memory."),
    "store_row_gradients": mark("All {0} threads store their two [sums](workspace) in shared memory."),
    "store_rms_gradients": mark("All {0} threads store their [sum](workspace) in shared memory."),
    "level_sum": mark("{0} threads work, {2} idle. Thread t adds the [sum](workspace) of thread t + {1}. Thread 0: {3} + {4} = {5}."),
    "level_squares": mark("{0} threads work, {2} idle. Thread t adds the [squares](workspace) of thread t + {1}. Thread 0: {3} + {4} = {5}."),
    "level_both": mark("{0} threads work, {2} idle. Thread t adds both sums of thread t + {1}. Thread 0 now has the [sum](workspace) {7} and the [squares](workspace) {8}."),
    "level_moments": mark("{0} threads work, {2} idle. Thread t merges with thread t + {1}, by Chan’s rule. Thread 0 has n = {3}, mean {4}, M2 {5}. "
    "Thread {1} has n = {6}, mean {7}, M2 {8}. Together: n = {9}, [mean](workspace) {10}, [M2](workspace) {11}."),
    "level_gradients": mark("{0} threads work, {2} idle. Thread t adds both sums of thread t + {1}. Thread 0 now has {7} for dbeta and {8} for dgamma."),
    "level_row_gradients": mark("{0} threads work, {2} idle. Thread t adds both sums of thread t + {1}. Thread 0 now has {7} for g and {8} for g · x̂."),
    "level_rms_gradients": mark("{0} threads work, {2} idle. Thread t adds the sum of thread t + {1}. Thread 0: {3} + {4} = {5}."),
    "last_sum": mark("In the last level only thread 0 works: {3} + {4} = {5}."),
    "last_squares": mark("In the last level only thread 0 works. Its [squares](workspace): {3} + {4} = {5}."),
    "last_both": mark("In the last level only thread 0 works. It has the [sum](workspace) {7} and the [squares](workspace) {8}."),
    "last_moments": mark("In the last level only thread 0 works. It merges n = {3}, mean {4}, M2 {5} with n = {6}, mean {7}, M2 {8}. "
    "Together: n = {9}, [mean](workspace) {10}, [M2](workspace) {11}."),
    "last_gradients": mark("In the last level only thread 0 works. It has {7} for dbeta and {8} for dgamma."),
    "last_row_gradients": mark("In the last level only thread 0 works. It has {7} for g and {8} for g · x̂."),
    "last_rms_gradients": mark("In the last level only thread 0 works: {3} + {4} = {5}."),
    "exchange_sum": mark("The lanes of each warp exchange their sums in five steps. Warp 0 has {1}. The first lane of each warp stores the sum of its warp in shared memory."),
    "exchange_squares": mark("The lanes of each warp exchange their squares in five steps. Warp 0 has {1}. The first lane of each warp stores the sum of its warp in shared memory."),
}  # fmt: skip
TEMPLATES = IN_A_PASS | BEFORE_A_BARRIER | {
    # -- numbers of a unit -------------------------------------------------------------------------------
    "mean": mark("All threads read cell 0 of shared memory. The mean is {0} / {1} = {2}. Then they wait at a barrier, because the array is used again."),
    "mean_registers": mark("Each thread divides the sum by the number of elements. The mean is {0} / {1} = {2}. x is not read again."),
    "invstd": mark("The variance is {0} / {1} = {2}. invstd = 1 / √({2} + {4}) = {3}. Thread 0 stores [mean](output) and [invstd](output)."),
    "invstd_moments": mark("All threads read cell 0 of shared memory. The variance is M2 / n = {0} / {1} = {2}. invstd = 1 / √({2} + {4}) = {3}. "
    "Thread 0 stores [mean](output) and [invstd](output)."),
    "invrms": mark("The mean square is {0} / {1} = {2}. invrms = 1 / √({2} + {4}) = {3}. Thread 0 stores [invrms](output)."),
    "difference": mark("The mean of x² is {0}, the square of the mean {1} is {2}. Their difference is the variance, {4}. In float64 it is {5}. invstd = {6}."),
    "difference_lost": mark("The mean of x² is {0}, the square of the mean {1} is {2}. FP32 numbers of this size are {3} apart. Their difference is {4}, but "
    "the variance is {5}: digits are lost. invstd = {6}."),
    "saved_gradients": mark("All threads read cell 0. dbeta = {0} and dgamma = {1}. Divided by {2}, the means are {3} and {4}. Thread 0 stores [dgamma](output) and [dbeta](output)."),
    "row_means": mark("All threads read cell 0. The mean of g is {0} / {2} = {3}. The mean of g · x̂ is {1} / {2} = {4}."),
    "rms_means": mark("All threads read cell 0. The mean of g · x̂ is {0} / {1} = {2}. No mean of g is needed, because no mean was subtracted."),
    # -- a row in registers ------------------------------------------------------------------------------
    "load": mark("Load {0} of {1}: {2} numbers of [x](input) go into registers, {3} for each load of a thread. No thread uses a number yet."),
    "own_sum": mark("Each thread adds the numbers in its registers. Thread 0 has the [sum](workspace) {0}."),
    "own_squares": mark("Each thread adds the squares from its registers. Thread 0 has the [squares](workspace) {0}. x is not read again."),
    "whole_sum": mark("Each thread adds the sums of the warps. Warps: {0}. The sum of the row is {1}."),
    "whole_squares": mark("Each thread adds the squares of the warps. Warps: {0}. The sum of the row is {1}."),
    "lanes_sum": mark("The 32 lanes exchange their sums in five steps, at distance 16, 8, 4, 2 and 1. All of them then have the sum of the row, {1}."),
    "lanes_squares": mark("The 32 lanes exchange their squares in five steps, at distance 16, 8, 4, 2 and 1. All of them then have the sum of the row, {1}."),
    "put": mark("Store {0} of {1}, from registers. Thread 0 writes [y](output) = ({2} − {3}) · {4} · {5} + {6} = {7}."),
    "rms_put": mark("Store {0} of {1}, from registers. Thread 0 writes [y](output) = {2} · {3} · {4} = {5}."),
    # -- other blocks ------------------------------------------------------------------------------------
    "others": mark("The other blocks do the same for their channels or rows at the same time. There are {0} more."),
    "repeat": mark("The same is repeated {0} times."),
    "other_row": mark("The block of row {0} does the same at the same time. The first [dx](output) of its row is {1}."),
    "other_row_atomic": mark("The block of row {0} does the same. Its first [dx](output) is {1}. Its atomic additions go to the same addresses: "
    "dgamma[0] has the terms of {2} rows now, {3}."),
    "stored": mark("The sums are complete in memory."),
    "zero_dgamma": mark("A launch sets the {0} sums of [dgamma](output) to 0. Atomic additions need a sum to start from."),
    "zero_dbeta": mark("Another launch sets the {0} sums of [dbeta](output) to 0."),
    # -- several blocks per channel ------------------------------------------------------------------------
    "part": mark("Block {0} reads its part of channel 0: {1} numbers. Its threads load up to 16 each and merge their moments. After a barrier the block stores [mean](workspace) {2} and [M2](workspace) {3}."),
    "part_nhwc": mark("A block reads its part of {4} channels: pixels {5} to {6}. Each thread goes down its own channels. The block merges its threads, with a barrier at each level. For channel 0 it stores [mean](workspace) {2} and [M2](workspace) {3}."),
    "other_parts": mark("The blocks of the other channels store their parts at the same time. Other channels: {0}. The launch ends when all blocks are done."),
    "merge_first": mark("The next launch begins. It merges the parts of channel 0. Part {0} has n = {4}, mean {5} and M2 {6}."),
    "merge": mark("Chan’s rule merges part {0}: n = {4}, mean {5}, M2 {6}. Before, it was n = {1}, mean {2}, M2 {3}. Together: n = {7}, [mean](workspace) {8}, [M2](workspace) {9}."),
    "invstd_parts": mark("The variance is {0} / {1} = {2}. invstd = 1 / √({2} + {4}) = {3}. [mean](output) and [invstd](output) of each channel are stored."),
    "apply_y": mark("A block writes part {0} of [y](output). Its first number is ({1} − {2}) · {3} · {4} + {5} = {6}. What was read last comes first: it may still be in L2."),
    "part_gradients": mark("A block reads part {0} of [dy](input) and [x](input), {1} numbers of each channel. After a barrier it stores sums. Channel 0: the sum of dy, {2}, and that of dy · x̂, {3}."),
    "sum_parts": mark("The next launch begins. Each thread adds up the {0} parts of its channel. Channel 0 has dbeta = {1} and dgamma = {2}. Part 0 stores them."),
    "apply_dx": mark("A block writes part {0} of [dx](output). Its first number is {5} · ({1} − {3} − {2} · {4}) = {6}."),
    "sum_gamma": mark("A launch adds up the partial sums of each column, always in the same order. Parts: {0}. A barrier separates the sums of the warps from their total. [dgamma](output)[0] = {1}."),
    "sum_beta": mark("A launch adds up the partial sums of each column, always in the same order. Parts: {0}. A barrier separates the sums of the warps from their total. [dbeta](output)[0] = {1}."),
    "pair_gamma": mark("One launch adds up both partial sums, each by blocks of its own. Parts of a column: {0}. A barrier separates the sums of the warps from their total. [dgamma](output)[0] = {1}."),
    "pair_beta": mark("Other blocks of the same launch add up partial_beta in the same way. Parts of a column: {0}. [dbeta](output)[0] = {1}."),
    # -- inference ---------------------------------------------------------------------------------------
    "formula": mark("Block {0}, one of {1}: thread 0 reads x = {2} and four numbers of channel {3}. [y](output) = {4} · ({2} − {6}) / √({7} + 0.00001) + {5} = {8}."),
    "fold": mark("Channel {0}: scale = gamma / √(var + 0.00001) = {1} / √({2} + 0.00001) = {5}. shift = beta − mean · scale = {3} − {4} · {5} = {6}."),
    "fold_others": mark("The threads of the other {0} channels fold their numbers at the same time."),
    "scale_shift": mark("Block {0}, one of {1}, computes {7} numbers, each with one multiply-add. The first: [y](output) = {4} · {2} + {5} = {6}, with scale and shift of channel {3}."),
    "other_blocks": mark("The other {0} blocks do the same at the same time."),
    # -- several rows a block ----------------------------------------------------------------------------
    "row_of_block": mark("Block {0} loads row {1} into registers. After a barrier all threads have the sums of the row. The block writes [dx](output), first {2}. Thread 0 adds dy · x̂ = {3} to its sum of column 0: {4}."),
    "store_sums": mark("Each of the {0} blocks stores the sums of its rows. No atomic addition was needed."),
    "rows_of_warps": mark("The second launch: one warp per row, rows {0} to {1}. Each lane adds the terms of its column. In column 0 warp 0 has {2} for dgamma and {3} for dbeta."),
    "sum_warps": mark("After a barrier the first warp adds the sums of all eight. [dgamma](output)[0] = {0} and [dbeta](output)[0] = {1}."),
}  # fmt: skip


# Kinds of which a long run is shortened.
REPEATED = (
    *IN_A_PASS,
    "load",
    "put",
    "rms_put",
    "part",
    "part_nhwc",
    "merge",
    "apply_y",
    "apply_dx",
    "part_gradients",
    "fold",
    "formula",
    "scale_shift",
    "other_row",
    "other_row_atomic",
    "row_of_block",
    "rows_of_warps",
)


def template(kind: str) -> str:
    """Returns the caption template of a kind of step, in the reader's language."""
    text = tr(TEMPLATES[kind])
    if kind in BEFORE_A_BARRIER:
        return f"{text} {tr(BARRIER)}"
    return f"{tr(ITERATION)} {text}" if kind in IN_A_PASS else text


_TREE = ("partial[thread] += partial[thread + stride]", 0), ("partial[thread] += partial[thread + stride]", 1)


def _tree(what: str, store, level) -> dict:
    return {f"store_{what}": store, f"level_{what}": level, f"last_{what}": level}


_Y = dict.fromkeys(("y", "others"), "y[at] = ")
_ROW_Y = dict.fromkeys(("y", "rms_y", "others"), "y[col] = ")
_BACKWARD_TREE = _tree("row_gradients", "partial_g[thread] = sum_g", "partial_gx[thread] += partial_gx")
_ROW_DX = dict.fromkeys(("row_dx", "other_row"), "dx[col] = ")
_BY_PART = dict.fromkeys(("apply_dx", "others"), "store(dx + at")
_REGISTERS = {
    "load": "load(values[i], x + col)",
    "own_squares": "squares += ",
    "put": "store(y + col",
    "rms_put": "store(y + col",
    "others": "store(y + col",
}
# By file: a text of the line that each kind of step lights; (text, n) is the n-th such line.
MARKS: dict[str, dict[str, str | tuple[str, int]]] = {
    "01_bn_two_pass": {
        "sum": "sum += x[offset", **_tree("sum", "partial[thread] = sum;", _TREE[0]), "mean": "float m = partial[0]",
        "squares": "squares += distance", **_tree("squares", "partial[thread] = squares;", _TREE[1]),
        "invstd": "mean[channel] = m", **_Y,
    },
    "02_bn_welford": {
        "welford": "own = add(own", **_tree("moments", "partial[thread] = own;", "merge(partial[thread], partial"),
        "invstd_moments": "mean[channel] = m", **_Y,
    },
    "03_bn_sums": {
        "both": "sum += value, squares +=", **_tree("both", "partial_sum[thread] = sum", "partial_sum[thread] += partial_sum"),
        "difference": "variance = fmaxf(", "difference_lost": "variance = fmaxf(", **_Y,
    },
    "04_bn_partial": {"part": "own = merge_block", "other_parts": "partial[2 * blockIdx.x] = own.mean"},
    "05_bn_apply": {
        "merge_first": "all = merge(all", "merge": "all = merge(all", "invstd_parts": "mean[channel] = m",
        "apply_y": "store(y + at[k]", "others": "store(y + at[k]",
    },
    "06_bn_partial_nhwc": {"part_nhwc": "own[w] = merge(own[w]", "other_parts": "partial[at] = of_thread[w].mean"},
    "07_bn_merge": {"merge_first": "own = merge(own, {(float)n", "merge": "own = merge(own, {(float)n", "invstd_parts": "invstd[channel] = inverse_std"},
    "08_bn_apply_nhwc": {"apply_y": "store(y + ", "others": "store(y + "},
    "09_bn_formula": {"formula": "y[i] = ", "other_blocks": "y[i] = "},
    "10_bn_fold": {"fold": "folded[C + channel] = ", "fold_others": "folded[C + channel] = "},
    "11_bn_scale_shift": {"scale_shift": "values[k][w] = folded[own]", "other_blocks": "values[k][w] = folded[own]"},
    "12_bn_backward": {
        "gradients": "sum_beta += dy[at]", **_tree("gradients", "partial_beta[thread] = sum_beta", "partial_beta[thread] += "),
        "saved_gradients": "dgamma[channel] = sum_gamma", "dx": "dx[at] = ", "others": "dx[at] = ",
    },
    "13_bn_backward_partial": {"part_gradients": "sum_gamma += dys[k][w]", "other_parts": "partial[2 * blockIdx.x] = sum_beta"},
    "14_bn_backward_apply": {"sum_parts": "sum_beta += of_part[0]", **_BY_PART},
    "15_bn_backward_partial_nhwc": {"part_gradients": "sum_gamma[w] += dys[k][w]", "other_parts": "partial_gamma[at] = gamma[w]"},
    "16_bn_backward_apply_nhwc": {**_BY_PART},
    "17_sum_partials": {"sum_gamma": "sum += of_warp[other]", "sum_beta": "sum += of_warp[other]"},
    "31_sum_partials_pair": {"pair_gamma": "sum += of_warp[other]", "pair_beta": "sum += of_warp[other]"},
    "18_ln_three_reads": {
        "sum": "sum += x[col]", **_tree("sum", "partial[thread] = sum;", _TREE[0]), "mean": "float m = partial[0]",
        "squares": "squares += distance", **_tree("squares", "partial[thread] = squares;", _TREE[1]),
        "invstd": "mean[row] = m", **_ROW_Y,
    },
    "19_ln_welford": {
        "welford": "own = add(own", **_tree("moments", "partial[thread] = own;", "merge(partial[thread], partial"),
        "invstd_moments": "mean[row] = m", **_ROW_Y,
    },
    "20_ln_warp": {
        "load": "? x[col]", "own_sum": "sum += values[i]", "lanes_sum": "sum_of_warp(sum)", "mean_registers": "sum_of_warp(sum)",
        "own_squares": "squares += distance", "lanes_squares": "sum_of_warp(squares)", "invstd": "mean[row] = m",
        "put": "y[col] = ", "others": "y[col] = ",
    },
    "21_ln_registers": {
        **_REGISTERS, "own_sum": "sum += value", "exchange_sum": "sum_of_block(sum", "whole_sum": "sum_of_block(sum",
        "mean_registers": "sum_of_block(sum", "exchange_squares": "sum_of_block(squares", "whole_squares": "sum_of_block(squares",
        "own_squares": "squares += (value - m)", "invstd": "mean[row] = m",
    },
    "22_rms_two_reads": {
        "rms_squares": "squares += x[col]", **_tree("squares", "partial[thread] = squares;", _TREE[0]), "invrms": "invrms[row] = s",
        **_ROW_Y,
    },
    "23_rms_warp": {
        "load": "? x[col]", "own_squares": "squares += values[i]", "lanes_squares": "sum_of_warp(squares)", "invrms": "invrms[row] = s",
        "rms_put": "y[col] = ", "others": "y[col] = ",
    },
    "24_rms_registers": {
        **_REGISTERS, "exchange_squares": "sum_of_block(squares", "whole_squares": "sum_of_block(squares", "invrms": "invrms[row] = s",
    },
    "25_ln_backward_atomics": {
        "row_gradients": "sum_g += g", **_BACKWARD_TREE, "row_means": "float mean_g = ", "row_dx_atomic": "atomicAdd(&dgamma[col]",
        "other_row_atomic": "atomicAdd(&dgamma[col]", "stored": "atomicAdd(&dbeta[col]",
    },
    "26_ln_backward_rows": {"row_gradients": "sum_g += g", **_BACKWARD_TREE, "row_means": "float mean_g = ", **_ROW_DX},
    "27_ln_backward_columns": {"rows_of_warps": "sum_gamma += dy[at]", "sum_warps": "dgamma[col] = sum_gamma"},
    "28_ln_backward_registers": {"row_of_block": "sum_gamma[i][w] += gs", "store_sums": "store(partial_gamma"},
    "29_rms_backward_atomics": {
        "rms_gradients": "sum_gx += dy[col]", **_tree("rms_gradients", "partial_gx[thread] = sum_gx", "partial_gx[thread] += partial_gx"),
        "rms_means": "float mean_gx = ", "rms_dx_atomic": "atomicAdd(&dgamma[col]", "other_row_atomic": "atomicAdd(&dgamma[col]",
        "stored": "atomicAdd(&dgamma[col]",
    },
    "30_rms_backward_registers": {"row_of_block": "sum_gamma[i][w] += gs", "store_sums": "store(partial_gamma"},
    "00_zero": {"zero_dgamma": "y[i] = 0.0f", "zero_dbeta": "y[i] = 0.0f"},
}  # fmt: skip
