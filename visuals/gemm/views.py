# fmt: off
"""What the stage shows of each matrix product that loads its tiles thread by thread: its tensors, the lines that are steps, and what is
said of them. One block is shown, of it one thread or warp term by term. The others do the same in one step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernels.gemm.shape import GemmShape
from kernels.i18n import mark
from kernels.model.dtypes import ELEMENT_BYTES
from visuals.scene.compiler.view import (
    Buffer,
    Bytes,
    PerThread,
    Say,
    Shared,
    Shown,
    Step,
    View,
    Writers,
    box,
    row_of,
    step,
)
from visuals.scene.parts import Group, product
from visuals.scene.source import Mark

A, B, C = Buffer("A", "input", "A"), Buffer("B", "filter", "B"), Buffer("C", "output", "C")
C0 = Buffer("C0", "output", "C0")
SUM = PerThread("acc", "output", "sum", symbol="sum", of="sum", threads=range(1))
THREADS = Writers("who", "workspace", mark("threads"), mark("in the tile of C"), of="C")
WARPS = replace(THREADS, title=mark("warps"), per=32)
MEMORY, SHARED, REGISTERS, OF_WARP = mark("global memory"), mark("shared memory"), mark("registers of thread 0"), mark("registers of warp 0")
OTHER_BLOCKS = mark("The other blocks compute their parts of [C](output) in the same way. Blocks: {others}. [C](output) is complete.")

NAMES = {
    "last_row": "where(block_row + BM < M, block_row + BM, M) - 1", "last_col": "where(block_col + BN < N, block_col + BN, N) - 1",
    "last_k": "where(k_tile + BK < K, k_tile + BK, K) - 1", "tile": "k_tile // BK + 1", "tiles": "(K + BK - 1) // BK",
    "outside": "block_row + BM > M or block_col + BN > N",
}

# -- sentences that several kernels share ------------------------------------------------------------------
BLOCK = mark("Block 0 computes rows {block_row} to {last_row} and columns {block_col} to {last_col} of [C](output).")
STORE = (
    Say(mark("Thread 0 stores its {C.times} results to [C](output). Each is {alpha} times its [sum](output) plus {beta} times C0."), "thread == 0 and alpha != 1 and beta != 0"),
    Say(mark("Thread 0 stores its {C.times} results to [C](output). Each is its [sum](output) plus {beta} times C0."), "thread == 0 and beta != 0"),
    Say(mark("Thread 0 stores its {C.times} results to [C](output). Each is {alpha} times its [sum](output)."), "thread == 0 and alpha != 1"),
    Say(mark("Thread 0 stores its [sums](output) to [C](output). Elements: {C.times}."), "thread == 0"),
    Say(mark("The other {active} threads of the block store their [sums](output) to [C](output).")),
)
STORE_WARP = (
    Say(mark("Warp {warp} stores its results to [C](output). Each is {alpha} times its [sum](output) plus {beta} times C0."), "warp == 0 and alpha != 1 and beta != 0"),
    Say(mark("Warp {warp} stores its results to [C](output). Each is its [sum](output) plus {beta} times C0."), "warp == 0 and beta != 0"),
    Say(mark("Warp {warp} stores its results to [C](output). Each is {alpha} times its [sum](output)."), "warp == 0 and alpha != 1"),
    Say(mark("Warp {warp} stores its [sums](output) to [C](output). Elements: {sum(C.times)}."), "warp == 0"),
    Say(mark("The other warps of the block store theirs. Threads: {active}.")),
)
START_SUM = step("int block_row =", "Each of its {threads} threads keeps one [sum](output) in a register, now 0. The picture follows thread 0.", lead=BLOCK, together=True)
ZEROS = Say(mark("Its tile of {BM} × {BN} is larger than this part of [C](output): the rest is filled with zeros. Each of its {threads} threads keeps {TM} × {TN} [sums](output) in registers. The picture follows thread 0."), "outside")
START = step("int block_row =", ZEROS, "Each of its {threads} threads keeps {TM} × {TN} [sums](output) in registers. The picture follows thread 0.", lead=BLOCK, together=True)
ZERO = step(re.compile("(float|int) sum.* = "), "", together=True)
COPY_A = mark("Tile {tile} of {tiles}: the block copies columns {k_tile} to {last_k} of its rows of [A](input) to shared memory. Values read from global memory: {sum(A.times)}.")
COPY_B = mark("Tile {tile} of {tiles}: the block copies rows {k_tile} to {last_k} of its columns of [B](filter) to shared memory. Values read from global memory: {sum(B.times)}.")
READERS_A = (
    Say(mark("Then {BN // TN} threads read each of them from shared memory. Elements outside the matrix are loaded as zero."), "K % BK != 0 or M % BM != 0"),
    Say(mark("Then {BN // TN} threads read each of them from shared memory.")),
)
READERS_B = (
    Say(mark("Then {BM // TM} threads read each of them from shared memory. Elements outside the matrix are loaded as zero."), "K % BK != 0 or N % BN != 0"),
    Say(mark("Then {BM // TM} threads read each of them from shared memory.")),
)
OTHERS = (
    Say(mark("The other {active} threads of the block add these terms to their [sums](output) too, and store them to [C](output)."), "thread > 0 and any(C.times > 0)"),
    Say(mark("The other {active} threads of the block read their values of both tiles. They add the same terms to their [sums](output)."), "thread > 0"),
)
ADD_ONE = mark("k = {k_tile + k}: thread 0 reads {tile_a} from [tile_a](input) and {tile_b} from [tile_b](filter). It adds their product to its [sum](output). The [sum](output) is now {acc}. That is one multiply-add for 2 reads of shared memory.")
ADD_ALL = mark("k = {k_tile + k}: thread 0 reads {TM} values of [tile_a](input) and {TN} of [tile_b](filter) from shared memory. It multiplies all pairs and adds the products to its [sums](output). That is {TM * TN} multiply-adds for {TM + TN} reads.")
SAME_ONE = mark("k = {first - 1} to {last - 1}: thread 0 adds these terms to its [sum](output) in the same way. The [sum](output) is now {acc}. That is {last - first + 1} multiply-adds for {2 * (last - first + 1)} reads.")
SAME_ALL = mark("k = {first - 1} to {last - 1}: thread 0 adds these terms to its [sums](output) in the same way. That is {(last - first + 1) * TM * TN} multiply-adds for {(last - first + 1) * (TM + TN)} reads.")
COMPLETE = step("__syncthreads()", "Barrier: every thread of the block waits until all copies of tile {tile} are complete.", together=True)
READ = step(("__syncthreads()", 1), "Barrier: every thread waits until all threads have read tile {tile}. Only then may new values overwrite it.", together=True)


# -- one thread for each element ---------------------------------------------------------------------------
DIRECT: Mapping[str, Step] = {
    "start": step("float sum = 0.0f", "Block 0 computes rows {min(row)} to {max(row)} and columns {min(col)} to {max(col)} of [C](output). Each of its {active} threads keeps one [sum](output) in a register, now 0. The picture follows thread 0 and its warp.", together=True),
    "add": step("sum += A[",
        Say("The other {active} threads of the block do the same with {K} terms. They store their [sums](output) to [C](output).", "warp > 0"),
        "k = {k}: thread 0 reads {A} from [A](input) and {B} from [B](filter) in global memory. It adds their product to its [sum](output). The [sum](output) is now {acc}. Different values read by its warp: {max(row) - min(row) + 1} of [A](input), {max(col) - min(col) + 1} of [B](filter).",
        fold=mark("k = {first - 1} to {last - 1}: thread 0 adds these terms to its [sum](output) in the same way. The [sum](output) is now {acc}. That is {last - first + 1} multiply-adds for {2 * (last - first + 1)} reads.")),
    "store": step("C[c_index] =", *STORE_WARP),
}

# -- tiles in shared memory --------------------------------------------------------------------------------
PAIRS = step("float a[TM], b[TN]", *OTHERS, ADD_ALL, to="sum[i][j] += a[i] * b[j]", lit="sum[i][j] += a[i] * b[j]", fold=SAME_ALL)


def tiled(load_a: Mark, load_b: Mark, multiply: Step, start: Step = START, to_a: Mark = "", to_b: Mark = "", store: Mark = "C[c_index] =") -> Mapping[str, Step]:
    """Returns the steps of a loop over tiles with two barriers. Its marks: the lines that fill tile_a and tile_b, the store."""
    return {
        "start": start, "zero": ZERO,
        "load_a": step(load_a, *READERS_A, lead=COPY_A, to=to_a, lit=to_a, merge=True, together=True),
        "load_b": step(load_b, *READERS_B, lead=COPY_B, to=to_b, lit=to_b, merge=True, together=True),
        "complete": COMPLETE, "multiply": multiply, "read": READ,
        "store": step(store, *STORE, merge=True),
    }


LOADS = re.compile(r"tile_a\[.+\] ="), re.compile(r"tile_b\[.+\] =")
SHARED_TILE = tiled(*LOADS, step("sum += tile_a", *OTHERS, ADD_ONE, fold=SAME_ONE), START_SUM)
REGISTER_TILE_1D = tiled(*LOADS, step("float b = tile_b", *OTHERS, ADD_ALL, to="sum[i] += tile_a", lit="sum[i] += tile_a", fold=SAME_ALL))
REGISTER_TILE_2D = tiled(*LOADS, PAIRS)
FOURS = "float4 values = load4(A", "float4 values = load4(B"
VECTORIZED = tiled(*FOURS, PAIRS, to_a="tile_a[load_a_col + 3]", to_b="*(float4*)&tile_b[load_b_row", store="store4(C")
BANK_FREE = tiled(*FOURS, PAIRS, to_a="tile_a[load_a_col / 4][3", to_b="*(float4*)&tile_b[load_b_row", store="store4(C")

# -- copies that run ahead ---------------------------------------------------------------------------------
AHEAD = (
    Say(mark("Elements outside the matrix become zero. The copy runs while the threads go on."), "outside or K % BK != 0"),
    Say(mark("The threads wait for this first copy, because no tile can be multiplied yet."), "k_tile == 0"),
    Say(mark("The copy runs while earlier tiles are multiplied.")),
)
WAIT = mark("Each thread waits until its own copies of tile {visit} have arrived in shared memory.")
OVERWRITE = mark("Barrier: every thread of the block waits until all copies of tile {visit} are complete. All threads have then also read tile {visit - 1}. Its buffer may be overwritten.")


def copies(call: str, name: str) -> Mapping[str, Step]:
    """Returns the asynchronous copies of both tiles that a call begins."""
    return {
        f"{name}_a": step("copy_async<4>(&tile_a[", *AHEAD, lead=COPY_A, inside=call, merge=True, together=True),
        f"{name}_b": step("copy4_async<WHOLE>(&tile_b[", *AHEAD, lead=COPY_B, inside=call, merge=True, together=True),
    }


COPIES = {**copies("copy_next(stage,", "first"), **copies("copy_next(fill_stage", "next")}
DOUBLE_BUFFER: Mapping[str, Step] = {
    "start": START, "zero": ZERO, **COPIES,
    "wait": step("wait_groups<STAGES - 2>()", WAIT, together=True),
    "complete": step("__syncthreads()",
        Say("Barrier: every thread of the block waits until all copies of tile 1 are complete. A thread reads values that other threads have copied.", "visit == 1"), OVERWRITE, together=True),
    "multiply": PAIRS,
    "store": step("store4(C", *STORE, merge=True),
}
REGISTER_PIPELINE: Mapping[str, Step] = {
    "start": START, "zero": ZERO, **COPIES,
    "wait_first": step("wait_groups<STAGES - 2>()", WAIT, together=True),
    "complete_first": step("__syncthreads()", "Barrier: every thread of the block waits until all copies of tile 1 are complete. A thread reads values that other threads have copied.", together=True),
    "wait": step(("wait_groups<STAGES - 2>()", 1), "Each thread waits until its own copies of tile {tile + 1} have arrived in shared memory.", together=True),
    "complete": step(("__syncthreads()", 1), "Barrier: every thread of the block waits until all copies of tile {tile + 1} are complete. All threads have then also loaded their last values of tile {tile}. Its buffer may be overwritten.", together=True),
    "load_first": step("load_fragments(0, 0, 0)", Say("The other {active} threads load theirs.", "thread > 0"), "Thread 0 loads its values of k = 0 into registers: {TM} of [tile_a](input), {TN} of [tile_b](filter)."),
    "last": step("} else if (k_tile + BK < K) {", ""),
    "load_next": step("load_fragments(0, next_stage, 0)", *OTHERS, "Thread 0 loads its first values of tile {tile + 1} into registers, before it has multiplied those of k = {k_tile + k}."),
    "multiply": step("load_fragments((k + 1) % 2", *OTHERS,
        "k = {k_tile + k}: thread 0 has {TM} values of [tile_a](input) and {TN} of [tile_b](filter) in registers, loaded one step ahead. It multiplies all pairs and adds the products to its [sums](output). That is {TM * TN} multiply-adds for {TM + TN} reads.",
        to="sum[i][j] += a[k % 2][i]", lit="sum[i][j] += a[k % 2][i]", fold=SAME_ALL),
    "store": step("store4(C", *STORE, merge=True),
}

# -- four products in an instruction -----------------------------------------------------------------------
DP4A: Mapping[str, Step] = {
    "start": START, "zero": ZERO,
    "fetch_first": step("load_next(0)", "The threads load tile 1 of {tiles} into registers: {sum(A.times)} bytes of [A](input), {sum(B.times)} of [B](filter). Elements outside the matrices become zero.", together=True),
    "load_a": step("tile_a[place.y][place.x] =", "The threads store tile {tile} of [A](input) to shared memory. Four neighbours along k are one register.", merge=True, together=True),
    "load_b": step("*(int4*)&tile_b[tile_row]", "The threads store tile {tile} of [B](filter) to shared memory. They transpose squares of 4 × 4 bytes: four neighbours along k become one register.", merge=True, together=True),
    "complete": COMPLETE,
    "fetch": step("load_next(k_tile + BK)",
        Say("The threads load tile {tile + 1} of {tiles} into registers, while tile {tile} is multiplied: {sum(A.times)} bytes of [A](input), {sum(B.times)} of [B](filter).", "k_tile + BK < K"),
        "No tile follows: the threads set the registers of the next one to zero.", together=True),
    "multiply": step("int a[TM], b[TN]", *OTHERS,
        "k = {k_tile + 4 * k} to {k_tile + 4 * k + 3}: thread 0 reads {TM} registers of [tile_a](input) and {TN} of [tile_b](filter), each with 4 values. One __dp4a instruction does 4 multiply-adds. That is {4 * TM * TN} multiply-adds for {4 * (TM + TN)} values.",
        to="sum[i][j] = __dp4a", lit="sum[i][j] = __dp4a",
        fold=mark("k = {4 * (first - 1)} to {4 * last - 1}: thread 0 adds these terms to its [sums](output) in the same way. That is {(last - first + 1) * 4 * TM * TN} multiply-adds for {(last - first + 1) * 4 * (TM + TN)} values.")),
    "read": READ,
    "store": step("C[c_index] =", *STORE, merge=True),
}

# -- tensor cores ------------------------------------------------------------------------------------------
START_WARP = step("int block_row =",
    Say("Its tile of {BM} × {BN} is larger than this part of [C](output): the rest is filled with zeros. Each of its {threads // 32} warps keeps {WM} × {WN} [sums](output) in registers. The picture follows warp 0.", "outside"),
    "Each of its {threads // 32} warps keeps {WM} × {WN} [sums](output) in registers. The picture follows warp 0.", lead=BLOCK, together=True)
OTHER_WARPS = (
    Say(mark("The other warps of the block add these terms to their [sums](output) too, and store them to [C](output). Threads: {active}."), "warp > 0 and any(C.times > 0)"),
    Say(mark("The other warps of the block load their values of both tiles. The tensor cores add the same terms to their [sums](output). Threads: {active}."), "warp > 0"),
)
READERS_OF_A, READERS_OF_B = mark("Then {BN // WN} warps read each of them from shared memory."), mark("Then {BM // WM} warps read each of them from shared memory.")
ADD_16 = mark("k = {k_tile + k} to {k_tile + k + 15}: warp 0 loads {WM} × 16 values of [tile_a](input) and 16 × {WN} values of [tile_b](filter) into registers. The tensor cores add the product to its [sums](output). That is {WM * WN * 16} multiply-adds for {(WM + WN) * 16} values.")
SAME_16 = mark("k = {16 * (first - 1)} to {16 * last - 1}: warp 0 adds these terms in the same way. That is {(last - first + 1) * WM * WN * 16} multiply-adds for {(last - first + 1) * (WM + WN) * 16} values.")
WMMA: Mapping[str, Step] = {
    "start": START_WARP, "zero": replace(ZERO, at="wmma::fill_fragment", merge=True),
    **{
        f"load_{name}_{n}": step((re.compile(rf"load_tile<.+>\(tile_{name}"), n), readers, lead=lead, together=True)
        for name, lead, readers in (("a", COPY_A, READERS_OF_A), ("b", COPY_B, READERS_OF_B))
        for n in (0, 1)
    },
    "complete": COMPLETE,
    "multiply": step("wmma::fragment<wmma::matrix_a", *OTHER_WARPS, ADD_16, to="wmma::mma_sync(", lit="wmma::mma_sync(", fold=SAME_16),
    "read": READ,
    "spread": step("wmma::store_matrix_sync(", Say("The other warps write theirs. Threads: {active}.", "warp > 0"), "Warp 0 writes its [sums](output) to shared memory, over the tiles: which lane has which sum is not documented.", merge=True),
    "all": step(("__syncthreads()", 2), "Barrier: every thread waits until all [sums](output) are in shared memory.", together=True),
    "store": step("C[c_index] =", *STORE_WARP, merge=True),
}
MMA_SYNC: Mapping[str, Step] = {
    "start": replace(START_WARP, at="int block_col = block / group_rows"), "zero": ZERO,
    "first": step("copy_part<BM, BK>(tile_a",
        Say("No tile is left for another buffer: the block writes zeros.", "k_tile >= K"),
        Say("Tile {tile} of {tiles}: the block copies columns {k_tile} to {last_k} of its rows of [A](input) and these rows of its columns of [B](filter) to shared memory. The threads wait for this first copy, because no tile can be multiplied yet.", "k_tile == 0"),
        "Tile {tile} of {tiles}: the block copies columns {k_tile} to {last_k} of its rows of [A](input) and these rows of its columns of [B](filter) to shared memory. The copy runs while earlier tiles are multiplied.",
        to="copy_part<BK, BN>(tile_b", inside="copy_parts(stage,", each="k_tile", together=True),
    "next": step("copy_part<BM, BK>(tile_a", *OTHER_WARPS,
        Say("", "k_tile >= K"),
        Say("Warp 0 begins to copy its share of part {part + 1} of tile {tile}. The copy runs while earlier tiles are multiplied."),
        to="copy_part<BK, BN>(tile_b", inside="copy_parts(fill_stage,", merge=True),
    "wait_first": step("wait_groups<STAGES - 2>()", WAIT, together=True),
    "complete_first": step("__syncthreads()", "Barrier: every thread of the block waits until all copies of tile 1 are complete. A thread reads values that other threads have copied.", together=True),
    "load_first": step("load_fragments(fragments[0]", Say("The other warps do the same with their values. Threads: {active}.", "warp > 0"), "Warp 0 loads its values of k = 0 to 15 into registers: {WM} × 16 of [tile_a](input) and 16 × {WN} of [tile_b](filter)."),
    "wait": step(("wait_groups<STAGES - 2>()", 1), "Each thread waits until its own copies of tile {tile + 1} have arrived in shared memory.", together=True),
    "complete": step(("__syncthreads()", 1), "Barrier: every thread of the block waits until all copies of tile {tile + 1} are complete. All threads have then also loaded their last values of tile {tile}. Its buffer may be overwritten.", together=True),
    "multiply": step("load_fragments(fragments[(step + 1) % 2]", *OTHER_WARPS,
        "k = {k_tile + 16 * step} to {k_tile + 16 * step + 15}: the tensor cores multiply the values that warp 0 has loaded one step ahead. They add the product to its [sums](output): {WM * WN * 16} multiply-adds for {(WM + WN) * 16} values. Meanwhile it loads the next ones.",
        to="multiply(sum, fragments[step % 2])", lit="multiply(sum, fragments[step % 2])", fold=SAME_16),
    "wait_end": step("wait_groups<0>()", "After the loop each thread waits until none of its copies is under way.", together=True),
    "load_a": step("tile_a[swizzled<BK>(tile_row", READERS_OF_A, lead=COPY_A, merge=True, together=True),
    "load_b": step("tile_b[swizzled<BN>(tile_row", READERS_OF_B, lead=COPY_B, merge=True, together=True),
    "complete_tile": replace(COMPLETE, at=("__syncthreads()", 2)),
    "multiply_tile": step(("load_fragments(fragments[0]", 1), *OTHER_WARPS, ADD_16.replace("k_tile + k", "k_tile + 16 * step"), to="multiply(sum, fragments[0])", lit="multiply(sum, fragments[0])", fold=SAME_16),
    "read_tile": replace(READ, at=("__syncthreads()", 3)),
    "store": step("int n = block_col + col + j * 8", *STORE_WARP, to="if (both) C[c_index + 1] = c.y", merge=True),
}


# -- views -------------------------------------------------------------------------------------------------
Tiles = Mapping[str, int]
DTYPES = {"fp32": "f4", "fp16": "f2", "bf16": "bfloat16", "int8": "i1"}
STATIC, TRANSPOSED, PADDED, AHEAD_OF, BYTES, HALVES, SWIZZLED = range(7)  # layouts of the tiles in shared memory


@dataclass(frozen=True)
class Kernel:
    """The steps of a kernel, the layout of its tiles, and the rows of its registers."""

    steps: Mapping[str, Step]
    layout: int | None = None
    registers: tuple[tuple[Shown | None, ...], ...] = ((SUM,),)

    @property
    def is_of_warps(self) -> bool:
        return self.layout in (HALVES, SWIZZLED)

    @property
    def depth(self) -> int:
        """Returns how many terms are added at once."""
        return 16 if self.is_of_warps else 4 if self.layout == BYTES else 1


COLUMN_A, ONE_B, ROW_B = PerThread("a", "input", "a", threads=range(1)), PerThread("b", "filter", "b", threads=range(1)), PerThread("b", "filter", "b", **row_of(0))
PRODUCT = (None, ROW_B), (COLUMN_A, SUM)
LOADED_A = PerThread("a", "input", "a", value="A", place=("0", "where(thread == 0, 0, -1)"), part=(range(1), range(1)), during=("add", "multiply"))
LOADED_B = replace(LOADED_A, name="b", role="filter", title="b", value="B")
FROM_MATRICES = (None, LOADED_B), (LOADED_A, SUM)
FROM_TILES = (None, replace(LOADED_B, value="tile_b")), (replace(LOADED_A, value="tile_a"), SUM)
TWO_SETS = (replace(COLUMN_A, note=mark("two sets")), replace(ONE_B, note=mark("two sets"))), (SUM,)
LANES = replace(SUM, title=mark("sums"), note=mark("one column per lane"), threads=range(32), during=("multiply",))
FRAGMENTS = replace(SUM, title=mark("sums"), threads=None, during=("multiply", "multiply_tile"), place=(  # of mma.sync: where lane and register are in the warp's part
    "warp * WM + cell // (WN // 8 * 4) * 16 + cell % 4 // 2 * 8 + lane // 4", "cell // 4 % (WN // 8) * 8 + lane % 4 * 2 + cell % 2"))
KERNELS: Mapping[str, Kernel] = {
    "gemm/uncoalesced": Kernel(DIRECT, None, FROM_MATRICES), "gemm/naive": Kernel(DIRECT, None, FROM_MATRICES),
    "gemm/shared-tile": Kernel(SHARED_TILE, STATIC, FROM_TILES), "gemm/register-tile-1d": Kernel(REGISTER_TILE_1D, STATIC, ((ONE_B,), (SUM,))),
    "gemm/register-tile-2d": Kernel(REGISTER_TILE_2D, STATIC, PRODUCT), "gemm/vectorized": Kernel(VECTORIZED, TRANSPOSED, PRODUCT),
    "gemm/bank-free": Kernel(BANK_FREE, PADDED, PRODUCT), "gemm/double-buffer": Kernel(DOUBLE_BUFFER, AHEAD_OF, PRODUCT),
    "gemm/warp-tile": Kernel(DOUBLE_BUFFER, AHEAD_OF, PRODUCT), "gemm/register-pipeline": Kernel(REGISTER_PIPELINE, AHEAD_OF, TWO_SETS),
    "gemm/grouped-order": Kernel(REGISTER_PIPELINE, AHEAD_OF, TWO_SETS), "gemm/dp4a": Kernel(DP4A, BYTES),
    "gemm/wmma": Kernel(WMMA, HALVES, ((LANES,),)), "gemm/mma-sync": Kernel(MMA_SYNC, SWIZZLED, ((FRAGMENTS,),)),
}


def view(rung: str, s: GemmShape, t: Tiles, rows: int, cols: int) -> View:
    """Returns the view of a rung at tile sizes. `rows` and `cols`: how many of the block's tile are shown."""
    kernel, item = KERNELS[rung], ELEMENT_BYTES[s.dtype]
    tiles = _tiles(kernel.layout, s, t, rows, cols)
    who = WARPS if kernel.is_of_warps else THREADS
    registers = [[replace(shown, part=(range(t["WM"]), range(t["WN"]))) if shown and shown is FRAGMENTS else shown for shown in row] for row in kernel.registers]
    results = (C, C0) if s.beta else (C,)
    names = [tuple(shown.name if shown else "" for shown in row) for row in registers]
    groups = (
        Group(product("A", "B", *(shown.name for shown in results)), "global", MEMORY, table=True),
        *([Group((("tile_b",), ("tile_a",)), "shared", SHARED)] if tiles else []),
        Group(tuple(names), "registers", OF_WARP if kernel.is_of_warps else REGISTERS, table=None in kernel.registers[0]),
        *([Group((("who",),))] if rung != "gemm/wmma" else []),
    )
    readings = [Bytes(mark("values of A and B read from global memory"), "A B", "ld", per=str(item))]
    if tiles:
        readings.append(Bytes(mark("values read from shared memory"), "tile_a tile_b", "ld", per=str(item)))
    size = 32 if kernel.is_of_warps or not tiles else 1
    return View(
        (replace(A, dtype=DTYPES[s.dtype]), replace(B, dtype=DTYPES[s.dtype]), *results, *tiles, *(shown for row in registers for shown in row if shown), *([who] if rung != "gemm/wmma" else [])),
        groups, (kernel.steps,), tuple(readings), group=size, alone=size, detailed=size,
        names={**NAMES, **({} if "TN" in t else {"TN": "1"}), **({} if "TM" in t else {"TM": "1"})}, others=(OTHER_BLOCKS,),
    )


def _tiles(layout: int | None, s: GemmShape, t: Tiles, rows: int, cols: int) -> tuple[Shared, ...]:
    """Returns the tiles of A and B in shared memory."""
    if layout is None:
        return ()
    BM, BN, BK, stages = t["BM"], t["BN"], t["BK"], t.get("STAGES", 1)
    planes = min(stages, -(-s.K // BK))
    pad_a, pad_b = BM + 4 if rows == BM else rows, BN + 8 if cols == BN else cols
    a, b, of, dtype = {
        STATIC: (box(0, rows, BK, BK), box(0, BK, cols, BN), "", "f4"),
        TRANSPOSED: (box(0, BK, rows, BM), box(0, BK, cols, BN), "", "f4"),
        PADDED: ({}, box(0, BK, cols, BN), "", "f4"),
        AHEAD_OF: (box(0, BK, pad_a, BM + 4, planes), box(stages * BK * (BM + 4), BK, cols, BN, planes), "shared", "f4"),
        BYTES: (box(0, BK // 4, 4 * pad_a, 4 * (BM + 4)), box(0, BK // 4, 4 * cols, 4 * BN), "", "i1"),
        HALVES: (box(0, rows, BK + 8, BK + 8), box(BM * (BK + 8), BK, pad_b, BN + 8), "shared", DTYPES[s.dtype]),
        SWIZZLED: (box(0, rows, BK, BK, planes, (BM + BN) * BK), box(BM * BK, BK, cols, BN, planes, (BM + BN) * BK), "shared", DTYPES[s.dtype]),
    }[layout]
    plane = mark("buffer") if planes > 1 else ""
    during = tuple(kind for kind in WMMA if kind not in ("spread", "store")) if layout == HALVES else ()
    return (
        Shared("tile_a", "input", "tile_a", of=of, dtype=dtype, **a, plane=plane, during=during),
        Shared("tile_b", "filter", "tile_b", of=of, dtype=dtype, **b, plane=plane, during=during),
    )
