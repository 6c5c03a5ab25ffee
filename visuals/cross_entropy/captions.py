"""The steps of the cross-entropy scenes: for each rung, its kinds of steps with the lines that they light, and the captions.

Numbers are filled in as {0}, {1} ...; the steps say which.
"""

from __future__ import annotations

from kernels.i18n import mark
from visuals.scene.launch_scene import StepKind

CAPTIONS = {
    # -- a row -------------------------------------------------------------------------------------------
    "start": mark("Block 0 has row 0. All threads read its label {0} and the logit at that column: [x](input)[0, {0}] = {1}."),
    "start_g": mark("Block 0 has row 0. All threads read its label {0}, the logit [x](input)[0, {0}] = {1} and the weight g[0] = {2}."),
    "max": mark("First read of [x](input), columns {0} to {1}. Thread {2} reads {3}. Its maximum [m](filter) is now {4}."),
    "sum": mark("Second read of [x](input), columns {0} to {1}. Thread {2} adds exp({3} − m) to its sum [l](workspace), now {4}."),
    "fours": mark("Columns {0} to {1} of [x](input): each active thread loads four floats at once. Thread {2} raises its maximum [m](filter) to {3}. Its sum [l](workspace) for this m is {4}."),
    "kept_fours": mark("Columns {0} to {1} of [x](input): each active thread loads four floats and keeps them in shared memory. It adds them to [m](filter) and [l](workspace). Thread {2} now has m = {3} and l = {4}."),
    "singles": mark("Columns before and after the multiples of 16 bytes: {0}. Threads load them one by one. Thread {1} now has m = {2} and l = {3}."),
    "kept_singles": mark("Columns before and after the multiples of 16 bytes: {0}. Threads load and keep them one by one. Thread {1} now has m = {2} and l = {3}."),
    # -- over the block ------------------------------------------------------------------------------------
    "exchange_m": mark("The lanes of each warp exchange [m](filter) in five steps. All lanes of warp 0 then have m = {0}."),
    "exchange_l": mark("The lanes of each warp exchange and add [l](workspace) in five steps. All lanes of warp 0 then have l = {0}."),
    "exchange_ml": mark("The lanes of each warp merge their parts in five steps. Each sum is rescaled to the larger maximum. All lanes of warp 0 then have m = {0} and l = {1}."),
    "barrier_m": mark("Each warp stores its [m](filter) in shared memory. Barrier: all threads wait until every warp has stored its part. Warps: {0}."),
    "barrier_l": mark("Each warp stores its [l](workspace) in shared memory. Barrier: all threads wait until every warp has stored its part. Warps: {0}."),
    "barrier_ml": mark("Each warp stores [m](filter) and [l](workspace) in shared memory. Barrier: all threads wait until every warp has stored its part. Warps: {0}."),
    "merge_m": mark("All threads read the parts of the warps. The maximum of the row is [m](filter) = {0}."),
    "merge_l": mark("All threads read the parts of the warps. The sum of the row is [l](workspace) = {0}."),
    "merge_ml": mark("All threads read the parts of the warps. The row has the maximum [m](filter) = {0} and the sum [l](workspace) = {1}."),
    # -- results of a row ----------------------------------------------------------------------------------
    "store": mark("Thread 0 stores [lse](output) = m + log(l) = {0} and [loss](output) = log(l) − (x[label] − m) = {1}."),
    "store_lse": mark("Thread 0 stores [lse](output) = m + log(l) = {0}."),
    "store_loss": mark("Thread 0 stores [loss](output) = log(l) − (x[label] − m) = {0}."),
    "others": mark("The other blocks ({0}) do the same for their rows. [loss](output) and [lse](output) are complete."),
    "others_loss": mark("The other blocks ({0}) do the same for their rows. [loss](output) and [dx](output) are complete."),
    # -- three launches --------------------------------------------------------------------------------------
    "softmax": mark("Third read of [x](input), columns {0} to {1}. Thread {2} stores [p](workspace) = exp({3} − m) / l = {4}."),
    "others_p": mark("The other blocks ({0}) do the same for their rows. [p](workspace) has as many numbers as x."),
    "log": mark("Second launch. Block {0} reads elements {1} to {2} of [p](workspace). Thread 0 stores [log_p](workspace) = log({3}) = {4}."),
    "others_log": mark("The other blocks ({0}) do the same. [log_p](workspace) has as many numbers as x."),
    "pick": mark("Third launch. Each thread has a row. Thread 0 reads label {0} and stores [loss](output) = −[log_p](workspace)[0, {0}] = {1}."),
    # -- parts of rows ---------------------------------------------------------------------------------------
    "start_part": mark("Row 0 is cut into {0} parts of {1} columns. Block 0 has the first part. It does not need the label."),
    "store_part": mark("Thread 0 stores the maximum {0} and the sum {1} of its part."),
    "others_part": mark("The other blocks ({0}) do the same for their parts, of all rows."),
    "merge_part": mark("Second launch, thread 0 has row 0. It merges part {0}: m = {1}, l = {2}. Its row now has [m](filter) = {3} and [l](workspace) = {4}."),
    "store_parts": mark("Thread 0 reads x[0, {0}] = {1}. It stores [lse](output) = {2} and [loss](output) = {3}."),
    "others_rows": mark("The other threads ({0}) do the same for their rows. [loss](output) and [lse](output) are complete."),
    # -- gradient --------------------------------------------------------------------------------------------
    "element": mark("Block {0} has elements {1} to {2}. Thread 0 finds row {3} and column {4} by a division. It stores [dx](output) = (exp({5} − lse) − onehot) · g = {6}."),
    "others_element": mark("The other blocks ({0}) do the same. [dx](output) is complete."),
    "piece": mark("Block {0} has a piece of row {1}, columns {2} to {3}. Each active thread loads four floats of [x](input) and stores four of [dx](output). Thread {4} computes (exp({5} − lse) − onehot) · g = {6}."),
    "start_dx": mark("Block 0 has row 0. All threads read its label {0}, the saved [lse](input) = {1} and g = {2}."),
    "dx_fours": mark("Columns {0} to {1}: each active thread loads four floats of [x](input) and stores four of [dx](output). Thread {2} computes (exp({3} − lse) − onehot) · g = {4}."),
    "dx_singles": mark("Columns before and after the multiples of 16 bytes: {0}. Column {1} has [dx](output) = {2}."),
    "others_dx": mark("The other blocks ({0}) do the same for their rows. [dx](output) is complete."),
    "again_fours": mark("Second read of [x](input), columns {0} to {1}. Thread {2} stores [dx](output) = exp({3} − m) · g / l − onehot · g = {4}."),
    "again_singles": mark("Second read of the other columns ({0}). Column {1} has [dx](output) = {2}."),
    "from_fours": mark("Columns {0} to {1} come from shared memory: each thread reads what it kept. Thread {2} stores [dx](output) = exp({3} − m) · g / l − onehot · g = {4}."),
    "from_singles": mark("The other columns ({0}) come from shared memory too. Column {1} has [dx](output) = {2}."),
    "start_second": mark("Second launch. Block 0 has row 0. All threads read its label {0}, the stored lse = {1} and g = {2}."),
}  # fmt: skip

_BLOCK_M = {"exchange_m": "m = over_block", "barrier_m": "m = over_block", "merge_m": "m = over_block"}
_BLOCK_L = {"exchange_l": "l = over_block", "barrier_l": "l = over_block", "merge_l": "l = over_block"}
_BLOCK_ML = dict.fromkeys(("exchange_ml", "barrier_ml", "merge_ml"), "part = over_block")
_ROW, _PICKED = "row = blockIdx.x", "picked = x["
_ONLINE = {"fours": "l += sum_of_exp(values[i], m)", "singles": "part = merge(part,", **_BLOCK_ML}
_DX = {"dx_fours": "dx4[four] = {gradient(values[i].x", "dx_singles": "dx[col] = gradient(x[col], col)"}
_STEP = {"start_g": _PICKED, "store_loss": "loss[row] =", "others_loss": _ROW}

# By rung: for each of its launches, the line that each kind of step lights.
LINES: dict[str, tuple[dict[str, str], ...]] = {
    "cross-entropy/unfused": (
        {
            "max": "m = fmaxf(m, x[col])",
            **_BLOCK_M,
            "sum": "l += expf(x[col] - m)",
            **_BLOCK_L,
            "softmax": "p[col] = expf",
            "store_lse": "lse[row] =",
            "others_p": _ROW,
        },
        {"log": "log_p[i] = logf(p[i])", "others_log": ")blockIdx.x * BLOCK"},
        {"pick": "loss[row] = -log_p"},
    ),
    "cross-entropy/two-pass": (
        {
            "start": _PICKED,
            "max": "m = fmaxf(m, x[col])",
            **_BLOCK_M,
            "sum": "l += expf(x[col] - m)",
            **_BLOCK_L,
            "store": "loss[row] =",
            "others": _ROW,
        },
    ),
    "cross-entropy/online": ({"start": _PICKED, **_ONLINE, "store": "loss[row] =", "others": _ROW},),
    "cross-entropy/split": (
        {
            "start_part": "count = min(length",
            **_ONLINE,
            "store_part": "part_m[blockIdx.x] =",
            "others_part": "row = blockIdx.x / SPLITS",
        },
        {"merge_part": "all = merge(all,", "store_parts": "loss[row] =", "others_rows": "row = blockIdx.x * BLOCK"},
    ),
    "cross-entropy-backward/elements": ({"element": "dx[i] =", "others_element": "i = (size_t)blockIdx"},),
    "cross-entropy-backward/rows": ({"start_dx": "row_lse = lse", **_DX, "others_dx": _ROW},),
    "cross-entropy-backward/pieces": (
        {"piece": "*(float4*)(dx + col) = {", "others_element": "row = blockIdx.x / pieces"},
    ),
    "cross-entropy-step/two-kernels": (
        {"start": _PICKED, **_ONLINE, "store": "loss[row] =", "others": _ROW},
        {"start_second": "row_lse = lse", **_DX, "others_dx": _ROW},
    ),
    "cross-entropy-step/fused": (
        {
            **_STEP,
            **_ONLINE,
            "again_fours": "dx4[four] = {gradient(values[i].x",
            "again_singles": "dx[col] = gradient(x[col], col)",
        },
    ),
    "cross-entropy-step/shared-row": (
        {
            **_STEP,
            "kept_fours": "kept4[four] = values[i]",
            "kept_singles": "kept_others[i] =",
            **_BLOCK_ML,
            "from_fours": "dx4[four] = {gradient(value.x",
            "from_singles": "dx[col] = gradient(kept_others[i], col)",
        },
    ),
}


def kinds(rung: str) -> dict[str, StepKind]:
    """Returns the kinds of steps of a rung by name."""
    return {
        name: StepKind(launch, line, CAPTIONS[name])
        for launch, lines in enumerate(LINES[rung])
        for name, line in lines.items()
    }
