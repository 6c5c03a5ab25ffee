# fmt: off
"""What the stage shows of each kernel of a fully connected layer: its tensors, the lines that are steps, and what is said of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernels.i18n import mark
from visuals.scene.compiler.view import SHARED_MEMORY, Buffer, Bytes, PerThread, Say, Shared, Step, View, box, step
from visuals.scene.parts import Group

X, W, B, Y = Buffer("x", "input", "x"), Buffer("W", "filter", "W"), Buffer("b", "filter", "b"), Buffer("y", "output", "y")
DY, DX, DW, DB = Buffer("dy", "input", "dy"), Buffer("dx", "output", "dx"), Buffer("dW", "output", "dW"), Buffer("db", "output", "db")
MEMORY, REGISTERS = mark("global memory"), mark("registers of the block’s threads")
MOVED = Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st")
SHARED_BYTES = Bytes(mark("bytes to and from shared memory"), SHARED_MEMORY, "")

# -- naive -------------------------------------------------------------------------------------------------
SUM = PerThread("sum", "output", "sum", mark("one number per thread"), during=("begin", "term"))
SUMS = Group((("sum",),), "registers", REGISTERS)
NAIVE = View(
    (X, W, B, Y, SUM), (Group((("b", "W"), ("x", "y")), "global", MEMORY, table=True), SUMS),
    (
        {
            "begin": step("float sum = 0.0f", "Block (0, 0) computes rows 0 to {max(m)} and columns 0 to {max(n)} of [y](output), one result per thread. Each sum is 0."),
            "term": step("sum += x[(size_t)m * K + k]",
                "k = {k}: each thread multiplies a number of its row of [x](input) by one of its row of [W](filter). Thread (0, 0) multiplies {x} by {W}. Its sum is now {sum}.",
                fold=mark("k = {first - 1} to {last - 1}: the threads add these terms in the same way. The sum of thread (0, 0) is now {sum}.")),
            "store": step("y[(size_t)m * N + n] =", "Each thread adds [b](filter) of its column and stores the result to [y](output). Thread (0, 0) adds b[0] = {b} to {sum} and stores {y.new}."),
        },
    ),
    MOVED, others=(mark("The other blocks ({others}) do the same for their results. [y](output) is complete."),),
)
INPUT_NAIVE = View(
    (DY, W, DX, SUM), (Group((("", "W"), ("dy", "dx")), "global", MEMORY, table=True), SUMS),
    (
        {
            "begin": step("float sum = 0.0f", "Block (0, 0) computes rows 0 to {max(m)} and columns 0 to {max(k)} of [dx](output), one result per thread. Each sum is 0."),
            "term": step("sum += dy[(size_t)m * N + n]",
                "n = {n}: each thread multiplies a number of its row of [dy](input) by one of its column of [W](filter). Thread (0, 0) multiplies {dy} by {W}. Its sum is now {sum}.",
                fold=mark("n = {first - 1} to {last - 1}: the threads add these terms in the same way. The sum of thread (0, 0) is now {sum}.")),
            "store": step("dx[(size_t)m * K + k] =", "Each thread stores its sum to [dx](output). Thread (0, 0) stores {dx.new}."),
        },
    ),
    MOVED, others=(mark("The other blocks ({others}) do the same for their results. [dx](output) is complete."),),
)
WEIGHT_NAIVE = View(
    (DY, X, DW, DB, SUM), (Group((("db", "x"), ("dy", "dW")), "global", MEMORY, table=True), SUMS),
    (
        {
            "begin": step("float sum = 0.0f", "Block (0, 0) computes rows 0 to {max(n)} and columns 0 to {max(k)} of [dW](output), one result per thread. Each sum is 0."),
            "term": step("sum += dy[(size_t)m * N + n]",
                "m = {m}: each thread multiplies a number of its column of [dy](input) by one of its column of [x](input). Thread (0, 0) multiplies {dy} by {x}. Its sum is now {sum}.",
                fold=mark("m = {first - 1} to {last - 1}: the threads add these terms in the same way. The sum of thread (0, 0) is now {sum}.")),
            "store": step("dW[(size_t)n * K + k] =", "Each thread stores its sum to [dW](output). Thread (0, 0) stores {dW.new}."),
        },
        {
            "column": step("sum += dy[(size_t)m * N + n]", "Second launch. Each active thread adds the {M} numbers of its column of [dy](input). Thread 0 stores [db](output)[0] = {db}.", to="db[n] = sum", merge=True),
        },
    ),
    MOVED, others=(mark("The other blocks ({others}) do the same for their results. [dW](output) is complete."),),
)

# -- tiles -------------------------------------------------------------------------------------------------
TRANSPOSED, STRAIGHT = mark("one row per term of the sum, transposed"), mark("one row per term of the sum, as in memory")
SHARED, OF_THREAD = mark("shared memory of the block"), mark("registers of thread 0")
TILE_SUM = PerThread("sum", "output", "sum", mark("of thread 0"), during=("zero", "multiply"), threads=range(1))
OTHERS, OTHERS_PART = mark("The other blocks ({others}) do the same for their results."), mark("The other blocks ({others}) do the same for their tiles and their parts.")
LOOP = {
    "zero": step("float sum[TM][TN] = {}", "Each thread keeps {TM} × {TN} sums in registers. All are 0. The picture shows those of thread 0."),
    "wait": step("wait_groups<STAGES - 2>()", "Each thread waits until its own copies of tile {visit} have arrived in shared memory."),
    "barrier": step("__syncthreads()", "Barrier: every thread waits until the copies of all threads for tile {visit} are complete."),
    "multiply": step("add_products(sum",
        Say("The tiles have {BK} rows. Of each, thread 0 reads {TM} floats of one tile and {TN} of the other. It adds their products to its {TM * TN} sums. The first sum is now {sum[0][0]}.", "thread == 0"),
        Say("The other threads of the block read their floats of the same tiles. They add the products to their sums."),
        by="thread > 0"),
}
THEIRS = Say(mark("The other threads of block (0, 0) store their sums."))


def parts(result: Buffer) -> Buffer:
    """Returns the parts of a result in the workspace."""
    name = f"{result.name}_parts"
    return Buffer(name, "workspace", name, mark("one row per part")) if result is DB else Buffer(name, "workspace", name, plane=mark("part"))


def adds(result: str, *say: Say) -> Mapping[str, Step]:
    """Returns the step of a launch that adds the parts of a result."""
    return {f"add_{result}": step("float sum = BIAS ? bias", *say, to="sums[i] = sum", lit="sum += parts[", by="i > 0", merge=True)}


@dataclass(frozen=True)
class Product:
    """What differs between the tiled products. `term`: the index that is summed over. `copies`: what is said of the copies of the left and the right tile. `ends`: the steps that store the block's results, and those of parts."""

    term: str
    left: Buffer
    right: Buffer
    results: tuple[Buffer, ...]
    inputs: tuple[Buffer, ...]
    corner: str
    notes: tuple[str, str]  # of the tiles
    starts: tuple[str, str]  # of a whole sum and of a part
    copies: tuple[str, str]
    ends: tuple[Mapping[str, Step], ...]
    adds: tuple[Mapping[str, Step], ...]  # a launch each
    more: Mapping[str, Step] = field(default_factory=dict)  # in the loop
    registers: tuple[PerThread, ...] = ()

    def view(self, t: Mapping[str, int], is_split: bool) -> View:
        """Returns the view of the kernel at tile sizes, `is_split` with the sum in parts."""
        outs = tuple(map(parts, self.results)) if is_split else ()
        left, right = f"tile_{self.left.name.lower()}", f"tile_{self.right.name.lower()}"
        start = t["STAGES"] * t["BK"] * (t["BM"] + 4)
        boxes = box(0, t["BK"], t["BM"], t["BM"] + 4, t["STAGES"]), box(start, t["BK"], t["BN"], t["BN"] + 4, t["STAGES"])
        tiles = tuple(
            Shared(name, of.role, name, note, of="shared", dtype="f4", plane=mark("buffer"), **at)
            for name, of, note, at in zip((left, right), (self.left, self.right), self.notes, boxes, strict=True)
        )
        registers = TILE_SUM, *(replace(shown, threads=range(t["BM"])) for shown in self.registers)
        table = Group(((self.corner, self.right.name), (self.left.name, self.results[0].name)), "global", MEMORY, table=True)
        groups = (
            table, *([Group(tuple((out.name,) for out in outs), "workspace", mark("workspace: tensors of parts"))] if outs else []),
            Group(((left,), (right,)), "shared", SHARED), Group(tuple((shown.name,) for shown in registers), "registers", REGISTERS if self.registers else OF_THREAD),
        )
        first = {"start": step("int block_row =", self.starts[is_split]), **self._copies(left, right), **LOOP, **self.more, **self.ends[is_split]}
        return View(
            (*self.inputs, *self.results, *outs, *tiles, *registers), groups, (first, *(self.adds if is_split else ())), (*MOVED, SHARED_BYTES),
            others=(OTHERS_PART if is_split else OTHERS,)
        )

    def _copies(self, left: str, right: str) -> dict[str, Step]:
        """Returns the copies of both tiles: before the loop and in it, of tiles inside the matrix and of others."""
        return {
            f"copy_{tile}_{call}_{whole}": step(re.compile(rf"<{whole}, B[MN]>\({tile}\[stage\]"), Say("", f"{self.term} >= {self.term}_end"), say, inside=f"copy_next({call}", merge=True)
            for call in ("stage", "fill_stage")
            for whole in ("true", "false")
            for tile, say in zip((left, right), self.copies, strict=True)
        }


LINEAR = Product(
    "k", X, W, (Y,), (X, W, B), "b", (TRANSPOSED, TRANSPOSED),
    (
        mark("Block (0, 0) computes rows 0 to {where(BM < M, BM, M) - 1} and columns 0 to {where(BN < N, BN, N) - 1} of [y](output)."),
        mark("The sum over k is cut into {SPLITS} parts. Block (0, 0, 0) computes the first part of rows 0 to {where(BM < M, BM, M) - 1} and columns 0 to {where(BN < N, BN, N) - 1} of [y](output)."),
    ),
    (
        mark("Tile {k // BK + 1} of {(k_end + BK - 1) // BK}, k from {k} on: the block copies its rows of [x](input) to shared memory. Rows become columns: the tile is transposed."),
        mark("Tile {k // BK + 1} of {(k_end + BK - 1) // BK}: the block copies its rows of [W](filter) too. This tile is transposed as well."),
    ),
    tuple(
        {"end": step("y += (size_t)blockIdx.z", Say("")), "store": step("for (int j = 0; j < TN; j += 4)", Say(text, "thread == 0"), THEIRS, to="{sum[i][j] + bias.x", lit="store_four(y, M, N", by="thread > 0", merge=True)}
        for text in (mark("Thread 0 adds [b](filter) to its sums and stores those inside to [y](output)."), mark("Thread 0 stores its sums to the workspace: a part of [y](output), without b."))
    ),
    (
        adds("y",
            Say("Next launch: thread 0 adds [b](filter)[0] and the {SPLITS} parts of the first element of [y](output), in their order. It stores {y.new}.", "i == 0"),
            Say("All other threads do the same. [y](output) is complete.")),
    ),
)
INPUT = Product(
    "n", DY, W, (DX,), (DY, W), "", (TRANSPOSED, STRAIGHT),
    (
        mark("Block (0, 0) computes rows 0 to {where(BM < M, BM, M) - 1} and columns 0 to {where(BN < K, BN, K) - 1} of [dx](output)."),
        mark("The sum over n is cut into {SPLITS} parts. Block (0, 0, 0) computes the first part of rows 0 to {where(BM < M, BM, M) - 1} and columns 0 to {where(BN < K, BN, K) - 1} of [dx](output)."),
    ),
    (
        mark("Tile {n // BK + 1} of {(n_end + BK - 1) // BK}, n from {n} on: the block copies its rows of [dy](input) to shared memory. Rows become columns: the tile is transposed."),
        mark("Tile {n // BK + 1} of {(n_end + BK - 1) // BK}: the block copies rows of [W](filter) to shared memory as they are."),
    ),
    tuple(
        {"end": step("dx += (size_t)blockIdx.z", Say("")), "store": step("store_four(dx, M, K", Say(text, "thread == 0"), THEIRS, by="thread > 0", merge=True)}
        for text in (mark("Thread 0 stores those of its sums that are inside to [dx](output)."), mark("Thread 0 stores its sums to the workspace: a part of [dx](output)."))
    ),
    (
        adds("dx",
            Say("Next launch: thread 0 adds the {SPLITS} parts of the first element of [dx](output), in their order. It stores {dx.new}.", "i == 0"),
            Say("All other threads do the same. [dx](output) is complete.")),
    ),
)
WEIGHT = Product(
    "m", DY, X, (DW, DB), (DY, X), "db", (STRAIGHT, STRAIGHT),
    (
        mark("Block (0, 0) computes rows 0 to {where(BM < N, BM, N) - 1} and columns 0 to {where(BN < K, BN, K) - 1} of [dW](output)."),
        mark("The sum over m is cut into {SPLITS} parts. Block (0, 0, 0) computes the first part of rows 0 to {where(BM < N, BM, N) - 1} and columns 0 to {where(BN < K, BN, K) - 1} of [dW](output)."),
    ),
    (
        mark("Tile {m // BK + 1} of {(m_end + BK - 1) // BK}, m from {m} on: the block copies rows of [dy](input) to shared memory as they are."),
        mark("Tile {m // BK + 1} of {(m_end + BK - 1) // BK}: the block copies rows of [x](input) to shared memory as they are."),
    ),
    tuple(
        {
            "end": step("dW += (size_t)blockIdx.z", Say("")),
            "store": step("store_four(dW, N, K", Say(text, "thread == 0"), THEIRS, by="thread > 0", merge=True),
            "store_db": step("db[(size_t)blockIdx.z * N + n]", also),
        }
        for text, also in (
            (mark("Thread 0 stores those of its sums that are inside to [dW](output)."), mark("Threads that store the sum of a column to [db](output): {active}.")),
            (mark("Thread 0 stores its sums to the workspace: a part of [dW](output)."), mark("Threads that store the sum of a column to the workspace, a part of [db](output): {active}.")),
        )
    ),
    (
        adds("dW",
            Say("Next launch: thread 0 adds the {SPLITS} parts of the first element of [dW](output), in their order. It stores {dW.new}.", "i == 0"),
            Say("All other threads do the same. [dW](output) is complete.")),
        adds("db",
            Say("Next launch: thread 0 adds the {SPLITS} parts of [db](output)[0] and stores {db.new}.", "i == 0"),
            Say("All other threads do the same. [db](output) is complete.")),
    ),
    {"columns": step("column_sum += tile_dy", "{active} threads of this block also add up the columns of the tile of [dy](input): parts of [db](output). Thread 0 has {column_sum}.", merge=True)},
    (PerThread("column_sum", "output", "column_sum", mark("one column per thread"), during=("zero", "columns")),),
)
NAIVES = {"linear": NAIVE, "linear-dinput": INPUT_NAIVE, "linear-dweight": WEIGHT_NAIVE}
PRODUCTS = {"linear": LINEAR, "linear-dinput": INPUT, "linear-dweight": WEIGHT}


def view(rung: str, tiles: Mapping[str, int]) -> View:
    """Returns the view of a rung at its tile sizes."""
    ladder, _, name = rung.partition("/")
    if name != "naive":
        return PRODUCTS[ladder].view(tiles, name == "split")
    *others, total = NAIVES[ladder].tensors
    return replace(NAIVES[ladder], tensors=(*others, replace(total, threads=range(tiles["BLOCK"] ** 2))))
