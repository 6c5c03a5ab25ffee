# fmt: off
"""What the stage shows of each cross-entropy kernel: block 0 with row 0, then the other rows in one step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kernels.i18n import mark
from visuals.scene.compiler.view import Buffer, Bytes, PerThread, Say, Shared, Step, View, every, step
from visuals.scene.parts import Group

X, LABELS = Buffer("x", "input", "x"), Buffer("labels", "filter", "labels")
LSE, LOSS = Buffer("lse", "output", mark("lse, log-sum-exp")), Buffer("loss", "output", "loss")
SAVED, G, DX = replace(LSE, role="input"), Buffer("g", "filter", mark("g, weight of a row")), Buffer("dx", "output", "dx")
P, LOG_P = Buffer("p", "workspace", mark("p = softmax(x)")), Buffer("log_p", "workspace", "log_p")
PART_M, PART_L = Buffer("part_m", "workspace", "part_m"), Buffer("part_l", "workspace", "part_l")
M = PerThread("m", "filter", mark("m, largest so far"), mark("one column per thread"), of="m part.m all.m")
L = PerThread("l", "workspace", mark("l, sum so far"), mark("one column per thread"), of="l part.l all.l")
WARP_M = Shared("warp_m", "filter", "warp_m", mark("one value per warp"), of="of_warp", **every(0, 2))
WARP_L = Shared("warp_l", "workspace", "warp_l", mark("one value per warp"), of="of_warp", **every(1, 2))
KEPT = Shared("kept", "input", mark("the row, kept"), mark("as long as a row"), dtype="f4")
OF_ROWS = ("labels", "g"), ("lse", "loss")
REGISTERS = Group((("m",), ("l",)), "registers", mark("registers of the block’s {threads} threads"))
MOVED = Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st")


def view(tensors: tuple, launches: tuple[Mapping[str, Step], ...], others: tuple[str, ...], *readings: Bytes, group: int = 0) -> View:
    """Returns a view with those regions of memory that it has tensors of."""
    names = {shown.name for shown in tensors}
    regions = (
        Group((("x",), ("dx",), *OF_ROWS), "global", mark("global memory")),
        Group((("p",), ("log_p",), ("part_m", "part_l")), "workspace", mark("workspace in global memory")),
        REGISTERS,
        Group((("warp_m", "warp_l"), ("kept",)), "shared", mark("shared memory of the block")),
    )
    rows = [tuple(row for row in (tuple(n for n in row if n in names) for row in region.rows) if row) for region in regions]
    groups = tuple(replace(region, rows=kept) for region, kept in zip(regions, rows, strict=True) if kept)
    return View(tensors, groups, launches, (*MOVED, *readings), group=group, others=others)


# -- a row -------------------------------------------------------------------------------------------------
START = step("picked = x[labels[row]]", "Block 0 has row 0. All threads read its label {labels} and the logit at that column: [x](input)[0, {labels}] = {picked}.")
START_G = step("int label = labels[row]",
    "Block 0 has row 0. All threads read its label {label}, the logit [x](input)[0, {label}] = {x} and the weight g[0] = {g}.", to="picked = x[label]")
MAXIMUM = step("m = fmaxf(m, x[col])",
    Say("First read of [x](input), columns {min(col)} to {max(col)}. Thread {thread} reads {x}. Its maximum [m](filter) is now {m}.", pick="x"))
SUM = step("l += expf(x[col] - m)",
    Say("Second read of [x](input), columns {min(col)} to {max(col)}. Thread {thread} adds exp({x} − m) to its sum [l](workspace), now {l}.", pick="x"))
FOURS = step("values[i] = four < fours ? x4[four]",
    Say("Columns {before + 4 * min(first)} to {max(x.at) // 4 * 4 + 3} of [x](input): each active thread loads up to {LOADS} times four floats at once. Thread {thread} now has the maximum [m](filter) = {m}. Its sum [l](workspace) for this m is {l}.", "LOADS > 1", "x.largest"),
    Say("Columns {before + 4 * min(first)} to {max(x.at) // 4 * 4 + 3} of [x](input): each active thread loads four floats at once. Thread {thread} now has the maximum [m](filter) = {m}. Its sum [l](workspace) for this m is {l}.", pick="x.largest"),
    to="l += sum_of_exp(values[i], m)", each="first")
SINGLES = step("part = merge(part, {x[i < before",
    Say("Columns before and after the multiples of 16 bytes: {count(x)}. Threads load them one by one. Thread {thread} now has m = {m} and l = {l}.", pick="x"),
    merge=True)
KEPT_FOURS = replace(FOURS, to="if (four < fours) kept4[four] = values[i]", cases=(
    Say("Columns {before + 4 * min(first)} to {max(x.at) // 4 * 4 + 3} of [x](input): each active thread loads up to {LOADS} times four floats and keeps them in shared memory. It adds them to [m](filter) and [l](workspace). Thread {thread} now has m = {m} and l = {l}.", "LOADS > 1", "x.largest"),
    Say("Columns {before + 4 * min(first)} to {max(x.at) // 4 * 4 + 3} of [x](input): each active thread loads four floats and keeps them in shared memory. It adds them to [m](filter) and [l](workspace). Thread {thread} now has m = {m} and l = {l}.", pick="x.largest"),
))
KEPT_SINGLES = step("kept_others[i] = x[",
    Say("Columns before and after the multiples of 16 bytes: {count(x)}. Threads load and keep them one by one. Thread {thread} now has m = {m} and l = {l}.", pick="x"),
    to="part = merge(part, {kept_others[i], 1.0f}", merge=True)

# -- over the block ------------------------------------------------------------------------------------------
SWAP, STORE, MERGE = "other_m = __shfl_xor_sync(~0u, part.m", "of_warp[threadIdx.x / 32] = part", "part = of_warp[0]"
BLOCK_M = {
    "exchange_m": step(SWAP,
        "The lanes of each warp exchange [m](filter) in five steps. All lanes of warp 0 then have m = {m}.",
        to="part = merge(part, {other_m", inside="m = over_block", merge=True, shows={"m": "part.m"}),
    "barrier_m": step(STORE, "Each warp stores its [m](filter) in shared memory. Barrier: all threads wait until every warp has stored its part. Warps: {active}.", inside="m = over_block"),
    "merge_m": step(MERGE, "All threads read the parts of the warps. The maximum of the row is [m](filter) = {m}.",
        to="return part;", inside="m = over_block", merge=True, shows={"m": "part.m"}),
}
BLOCK_L = {
    "exchange_l": step(SWAP,
        "The lanes of each warp exchange and add [l](workspace) in five steps. All lanes of warp 0 then have l = {l}.",
        to="part = merge(part, {other_m", inside="l = over_block", merge=True, shows={"l": "part.l"}),
    "barrier_l": step(STORE, "Each warp stores its [l](workspace) in shared memory. Barrier: all threads wait until every warp has stored its part. Warps: {active}.", inside="l = over_block"),
    "merge_l": step(MERGE, "All threads read the parts of the warps. The sum of the row is [l](workspace) = {l}.",
        to="return part;", inside="l = over_block", merge=True, shows={"l": "part.l"}),
}
SHOW_PART = {"m": "part.m", "l": "part.l"}
BLOCK_ML = {
    "exchange_ml": step(SWAP,
        "The lanes of each warp merge their parts in five steps. Each sum is rescaled to the larger maximum. All lanes of warp 0 then have m = {m} and l = {l}.",
        to="part = merge(part, {other_m", inside="part = over_block", merge=True, shows=SHOW_PART),
    "barrier_ml": step(STORE,
        "Each warp stores [m](filter) and [l](workspace) in shared memory. Barrier: all threads wait until every warp has stored its part. Warps: {active}.",
        inside="part = over_block"),
    "merge_ml": step(MERGE,
        "All threads read the parts of the warps. The row has the maximum [m](filter) = {m} and the sum [l](workspace) = {l}.",
        to="return part;", inside="part = over_block", merge=True, shows=SHOW_PART),
}

# -- results of a row ------------------------------------------------------------------------------------------
STORED = step("lse[row] = ", "Thread 0 stores [lse](output) = m + log(l) = {lse} and [loss](output) = log(l) − (x[label] − m) = {loss}.", to="loss[row] = ")
STORED_LOSS = step("loss[row] = ", "Thread 0 stores [loss](output) = log(l) − (x[label] − m) = {loss}.")
ONLINE = {"start": START, "fours": FOURS, "singles": SINGLES, **BLOCK_ML, "store": STORED}
OTHERS = mark("The other blocks ({others}) do the same for their rows. [loss](output) and [lse](output) are complete.")
OTHERS_DX = mark("The other blocks ({others}) do the same for their rows. [dx](output) is complete.")
OTHERS_BOTH = mark("The other blocks ({others}) do the same for their rows. [loss](output) and [dx](output) are complete.")
OTHERS_ELEMENTS = mark("The other blocks ({others}) do the same. [dx](output) is complete.")

# -- gradient --------------------------------------------------------------------------------------------------
DX_FOURS = step("if (first + i * BLOCK < fours) values[i] = x4[",
    Say("Columns {before + 4 * min(first)} to {max(dx.at)}: each active thread loads up to {LOADS} times four floats of [x](input) and stores [dx](output) of them. Thread {thread} computes column {dx.at}: (exp({x} − lse) − onehot) · g = {dx}.", "LOADS > 1", "abs(dx)"),
    Say("Columns {before + 4 * min(first)} to {max(dx.at)}: each active thread loads four floats of [x](input) and stores four of [dx](output). Thread {thread} computes column {dx.at}: (exp({x} − lse) − onehot) · g = {dx}.", pick="abs(dx)"),
    to="gradient(values[i].w, col + 3)", each="first")
DX_SINGLES = step("dx[col] = gradient(x[col], col)",
    Say("Columns before and after the multiples of 16 bytes: {count(x)}. Column {col} has [dx](output) = {dx}.", pick="col"), merge=True)
ROWS = {
    "start_dx": step("int label = labels[row]", "Block 0 has row 0. All threads read its label {label}, the saved [lse](input) = {row_lse} and g = {row_g}.", to="row_lse = lse[row]"),
    "dx_fours": DX_FOURS,
    "dx_singles": DX_SINGLES,
}
AGAIN_FOURS = replace(DX_FOURS, cases=(
    Say("Second read of [x](input), columns {before + 4 * min(first)} to {max(dx.at)}. Thread {thread} computes column {dx.at}: [dx](output) = exp({x} − m) · g / l − onehot · g = {dx}.", pick="abs(dx)"),
))
AGAIN_SINGLES = replace(DX_SINGLES, cases=(Say("Second read of the other columns ({count(x)}). Column {col} has [dx](output) = {dx}.", pick="col"),))
FROM_FOURS = step("float4 value = kept4[four]",
    Say("Columns {before + 4 * min(four)} to {max(dx.at)} come from shared memory: each thread reads what it kept. Thread {thread} computes column {dx.at}: [dx](output) = exp({kept} − m) · g / l − onehot · g = {dx}.", pick="abs(dx)"),
    to="gradient(value.w, col + 3)", each="four")
FROM_SINGLES = step("dx[col] = gradient(kept_others[i], col)",
    Say("The other columns ({count(kept)}) come from shared memory too. Column {col} has [dx](output) = {dx}.", pick="col"), merge=True)

UNFUSED = view(
    (X, LABELS, LOSS, LSE, P, LOG_P, M, L, replace(WARP_M, of="warp_m"), replace(WARP_L, of="warp_l")),
    (
        {
            "max": MAXIMUM, **BLOCK_M, "sum": SUM, **BLOCK_L,
            "softmax": step("p[col] = expf", "Third read of [x](input), columns {min(col)} to {max(col)}. Thread {thread} stores [p](workspace) = exp({x} − m) / l = {p}."),
            "store_lse": step("lse[row] = ", "Thread 0 stores [lse](output) = m + log(l) = {lse}."),
        },
        {"log": step("log_p[i] = logf(p[i])", "Second launch. Block {block} reads elements {min(p.at)} to {max(p.at)} of [p](workspace). Thread {thread} stores [log_p](workspace) = log({p}) = {log_p}.")},
        {"pick": step("loss[row] = -log_p", "Third launch. Each thread has a row. Thread {thread} reads label {labels} and stores [loss](output) = −[log_p](workspace)[{row}, {labels}] = {loss}.")},
    ),
    (
        mark("The other blocks ({others}) do the same for their rows. [p](workspace) has as many numbers as x."),
        mark("The other blocks ({others}) do the same. [log_p](workspace) has as many numbers as x."),
        mark("The other blocks ({others}) do the same for their rows. [loss](output) is complete."),
    ),
)
TWO_PASS = view(
    (X, LABELS, LOSS, LSE, M, L, replace(WARP_M, of="warp_m"), replace(WARP_L, of="warp_l")),
    ({"start": START, "max": MAXIMUM, **BLOCK_M, "sum": SUM, **BLOCK_L, "store": STORED},), (OTHERS,),
)
SPLIT = view(
    (X, LABELS, LOSS, LSE, PART_M, PART_L, M, L, WARP_M, WARP_L),
    (
        {
            "start_part": step("int length = ", "Row 0 is cut into {SPLITS} parts of {length} columns. Block 0 has the first part. It does not need the label.", to="count = min(length"),
            "fours": FOURS, "singles": SINGLES, **BLOCK_ML,
            "store_part": step("part_m[blockIdx.x] =", "Thread 0 stores the maximum {part_m} and the sum {part_l} of its part.", to="part_l[blockIdx.x] ="),
        },
        {
            "start_row": step("picked = x[", "Second launch. Each thread has a row. Thread {thread} reads its label {labels} and the logit [x](input)[{row}, {labels}] = {picked}."),
            "merge_part": step("all = merge(all, {part_m[i]",
                "Each thread merges part {split} of its row. Thread {thread} reads m = {part_m} and l = {part_l}. Its row now has [m](filter) = {m} and [l](workspace) = {l}."),
            "store_parts": step("lse[row] = all.m", "Each thread stores two numbers of its row. Thread {thread} stores [lse](output) = {lse} and [loss](output) = {loss}.", to="loss[row] ="),
        },
    ),
    (mark("The other blocks ({others}) do the same for their parts, of all rows."), OTHERS),
)
ELEMENTS = view(
    (X, LABELS, SAVED, G, DX),
    ({"element": step("int row = i / N, col",
        "Block {block} has elements {min(i)} to {max(i)}. Thread {thread} finds row {row} and column {col} by a division. It stores [dx](output) = (exp({x} − lse) − onehot) · g = {dx}.",
        to="dx[i] = ")},),
    (OTHERS_ELEMENTS,), group=1024,
)
PIECES = view(
    (X, LABELS, SAVED, G, DX),
    ({"piece": step("if (col >= 0 && col + 4 <= N) values[i]",
        Say("Block {block} has a piece of row {row}, columns {where(min(first) < 0, 0, min(first))} to {max(dx.at) - N * row}. Each active thread handles up to {4 * LOADS} of them: four at once, or one by one at an end of the row. Thread {thread} computes column {dx.at - N * row}: [dx](output) = (exp({x} − lse) − onehot) · g = {dx}.", pick="abs(dx)"),
        to="dx[j] = gradient(x[j], j)", merge=True)},),
    (OTHERS_ELEMENTS,), group=1024,
)
FORWARD = (X, LABELS, LOSS, LSE, M, L, WARP_M, WARP_L)
BOTH = X, LABELS, G, LOSS, DX
LOSS_STEPS = {"start_g": START_G, "fours": FOURS, "singles": SINGLES, **BLOCK_ML, "store_loss": STORED_LOSS}

VIEWS: Mapping[str, View] = {
    "cross-entropy/unfused": UNFUSED,
    "cross-entropy/two-pass": TWO_PASS,
    "cross-entropy/online": view(FORWARD, (ONLINE,), (OTHERS,)),
    "cross-entropy/split": SPLIT,
    "cross-entropy-backward/elements": ELEMENTS,
    "cross-entropy-backward/rows": view((X, LABELS, SAVED, G, DX), (ROWS,), (OTHERS_DX,)),
    "cross-entropy-backward/pieces": PIECES,
    "cross-entropy-step/two-kernels": view(
        (*BOTH, LSE, *FORWARD[4:]),
        (ONLINE, {**ROWS, "start_dx": replace(ROWS["start_dx"], cases=(
            Say("Second launch. Block 0 has row 0. All threads read its label {label}, the stored [lse](output) = {row_lse} and g = {row_g}."),
        ))}),
        (OTHERS, OTHERS_DX),
    ),
    "cross-entropy-step/fused": view(
        (*BOTH, *FORWARD[4:]), ({**LOSS_STEPS, "again_fours": AGAIN_FOURS, "again_singles": AGAIN_SINGLES},), (OTHERS_BOTH,)),
    "cross-entropy-step/shared-row": view(
        (*BOTH, *FORWARD[4:], KEPT),
        ({**LOSS_STEPS, "fours": KEPT_FOURS, "singles": KEPT_SINGLES, "from_fours": FROM_FOURS, "from_singles": FROM_SINGLES},), (OTHERS_BOTH,),
        Bytes(mark("bytes written to the kept row"), "kept", "st"), Bytes(mark("bytes read from the kept row"), "kept", "ld"),
    ),
}
