# fmt: off
"""Flash attention: a block keeps its queries and iterates over tiles of keys. Each row has a running maximum m and sum l."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from kernels.attention import ladder, tensor_cores
from kernels.attention import registers as register_tiles
from kernels.attention.shape import SelfAttentionShape
from kernels.i18n import mark, tr
from kernels.model.launch import ceil
from kernels.model.program import Tiles
from visuals.attention.head import MAX_WHOLE, Head
from visuals.attention.views.fused import SHARED_BYTES
from visuals.attention.views.unfused import MOVED
from visuals.scene.compiler.view import BLOCK, PerThread, Say, Shared, Step, View, box, step
from visuals.scene.parts import Annotation, Captions, Group, Sum

MAX_TILES, MAX_KEYS = 4, 48  # run of a long head; at least two tiles
MAX_ROWS, MAX_HALF_ROWS = 4, 2  # of a block's queries, so that numbers fit the stage; tiles of 16-bit numbers are wider
MAX_COLS, FIRST_COLS = 8, 4  # a longer row is shown by its first columns
NOTE = mark("The picture follows the first block, and the last one too if a small head is causal. All threads of the block take each step together. On a GPU the warps of a block take turns, and many blocks run at once. All values are those of the kernel in the emulator.")
OTHERS = mark("All {blocks_in_all} blocks do the same, many at once on different SMs (multiprocessors). [O](output) is complete. S and P ({queries} × {all} per head) never existed as a whole.")


# -- what is shown ------------------------------------------------------------------------------------------
def head(s: SelfAttentionShape, tiles: Tiles) -> Head:
    """Returns what is shown of a head: its first block, of a small causal one the last too. A long one is run at a few tiles of keys, if causal
    at one more than the block that is followed needs."""
    Br, Bc, N = tiles["Br"], tiles["Bc"], s.N
    most = MAX_ROWS if s.dtype == "fp32" else MAX_HALF_ROWS
    cols = range(s.d if s.d <= MAX_COLS else FIRST_COLS)
    if N <= MAX_WHOLE:
        inside = min(Br, N)
        blocks = ceil(N, Br)
        first = inside - min(inside, most) if s.causal and blocks == 1 else 0
        followed = (0, blocks - 1) if s.causal and blocks > 1 else (0,)
        return Head(s, s.with_(B=1, H=1), range(N), range(N), cols, followed, range(first, min(first + most, inside)))
    count = max(2, min(MAX_TILES, MAX_KEYS // Bc))
    run = s.with_(B=1, H=1, N=min(N, (count + s.causal) * Bc))
    blocks = [b for b in range(ceil(run.N, Br)) if not s.causal or b * Br + Br <= count * Bc or b == 0]
    block = blocks[-1] if s.causal else 0
    inside = min(Br, run.N - block * Br)
    first = inside - min(inside, most) if s.causal else 0
    rows = range(first, min(first + most, inside))
    queries = range(block * Br + rows.start, block * Br + rows.stop)
    return Head(s, run, queries, range(min(run.N, count * Bc)), cols, (block,), rows)


def reversed_head(s: SelfAttentionShape, tiles: Tiles) -> Head:
    """Returns the same of a kernel whose first block has the last queries, if causal."""
    found = head(s, tiles)
    last = ceil(found.run.N, tiles["Br"]) - 1
    return replace(found, blocks=tuple(last - block for block in found.blocks)) if s.causal else found


def pairs(head: Head, tiles: Tiles) -> Annotation:
    """Returns what is said of each pair of a query and a key: its tile."""
    i, j = (index.ravel() for index in np.meshgrid(head.queries, head.keys, indexing="ij"))
    tile, after = j // tiles["Bc"], (j > i) & bool(head.s.causal)
    last = i // tiles["Br"] * tiles["Br"] + tiles["Br"] - 1  # query of the block
    skipped = after & (last < head.s.N) & (tile * tiles["Bc"] > last)
    texts = (
        tr("Query {0} and key {1} are in tile {2}. Their score and weight exist only while the block processes this tile."),
        tr("Key {1} is after query {0}. It is hidden in tile {2}."),
        tr("Key {1} is after all queries of the block. All of tile {2} is hidden, so the block skips it."),
    )
    return Annotation("SP", Captions(texts, after.astype(int) + skipped, np.stack([i, j, tile + 1], axis=1)))


def sums(head: Head, tiles: Tiles) -> tuple[Sum, ...]:
    """Returns the scores as sums for the browser, if none is hidden and all columns are shown."""
    rows, keys, cols = len(head.rows), tiles["Bc"], len(head.cols)
    if head.s.causal or head.run.N % keys or cols < head.s.d:
        return ()
    row, key = (index.ravel() for index in np.mgrid[:rows, :keys])
    cells, factors = ((of[:, None] * cols + np.arange(cols)).ravel() for of in (key, row))
    return (Sum("s", "tile_k", np.arange(0, rows * keys * cols + 1, cols), cells, factors, "tile_q"),)


# -- what all kernels say -----------------------------------------------------------------------------------
NAMES = {
    "first_stop": "where(key_begin + Bc < M, key_begin + Bc, M)", "stage_key": "key_begin + stage * Bc",
    "rows": "where(block_query + Br < N, Br, N - block_query)",
    "last_key": "where(key_tile + Bc < M, key_tile + Bc, M) - 1",
    "tile": "(key_tile - key_begin) // Bc + 1", "tiles": "(key_end - key_begin + Bc - 1) // Bc", "all_tiles": "(M - key_begin + Bc - 1) // Bc",
    # keys that a query of the block sees, and the bytes that S and P of its queries would take
    "seen": "where(causal, block_query + (rows + 1) / 2, all)", "more": "4 * rows * (seen + all)",
}
ALL_KEYS = {"M": "N", "key_begin": "0"}  # of kernels whose tiles begin with key 0, with as many keys as queries
START = mark("The block of queries {block_query} to {block_query + rows - 1} loads its rows of [Q](input) into shared memory, multiplied by {FACTOR}.")
PADDED = mark("Columns up to {DP} are filled with zeros (not drawn).")
EMPTY = mark("Each row starts with m = −∞, l = 0 and O = 0. The captions follow query {query}.")
SKIP = (
    Say("The loop ends here. Tile {all_tiles}, keys {key_tile} to {M - 1}, is hidden from all queries of the block. It is not loaded and not multiplied.", "key_tile >= key_end and tiles + 1 == all_tiles"),
    Say("The loop ends here. Tiles {tiles + 1} to {all_tiles}, keys {key_tile} to {M - 1}, are hidden from all queries of the block. They are not loaded and not multiplied.", "key_tile >= key_end and tiles < all_tiles"),
    Say(""),
)
HIDDEN = mark("Keys after their query are hidden. Their scores become −∞, so their weights become 0.")
MISSING = mark("Keys {M} and later do not exist. Their rows in the tile are zeros. Their scores become −∞, so their weights become 0.")
NO_KEY = mark("Query {query} sees no key of this tile. Its m stays {new_m}.")
FIRST_MAX = mark("Query {query}: the largest score of its first tile is {largest}. This is m, the running maximum.")
NEXT_MAX = mark("Query {query}: the largest score of this tile is {largest}. The running maximum m was {old_m} and is now {new_m}.")
ADD_VALUES = mark("P of this tile times [V](filter) is added to [O](output). Query {query}, column 0: from {o_before} to {o_now}. The scores and weights of this tile are no longer needed.")
SHRINK = mark("The earlier sums in [O](output) are multiplied by the same factor. Query {query}, column 0: from {o_before} to {o_now}. They now match the new maximum. [O](output) is divided by l only at the end.")
STORE = mark("Now [O](output) is divided by l: [O](output)[{query}, 0] = {o_now} / {total} = {o_now / total}. Numbers written to global memory: {rows * d}. Storing S and P would write {more} bytes more, and read them again.")
STORE_LAST = mark("Now [O](output) is divided by l: [O](output)[{query}, 0] = {o_now} / {total} = {o_now / total}. Numbers written to global memory: {rows * d}. [O](output) is complete. S and P ({queries} × {all} per head) never existed as a whole.")
LOADED = mark("Barrier: every thread of the block waits until all copies of tile {tile} are complete.")
USED = mark("Barrier: every thread waits until all threads have used tile {tile}. Only then may new keys and values overwrite it.")


def view(head: Head, tensors: tuple, shared: tuple[str, ...], steps: Mapping[str, Step], names: dict[str, str], others: int = 0) -> View:
    """Returns the view of a kernel: what is in shared memory, and what is in registers, s to o."""
    of_row = [tensor.name for tensor in tensors if isinstance(tensor, PerThread) and not tensor.hollow]
    bound = {"followed": f"where(rows < {head.rows.stop}, rows, {head.rows.stop}) - 1" if head.s.causal else str(head.rows.start)}
    counts = {"all": str(head.s.keys), "queries": str(head.s.N), "blocks_in_all": f"(({head.s.N} + Br - 1) // Br) * {head.s.heads}"}
    return View(
        (*head.buffers("QKVO"), *tensors),
        (
            Group((("Q", "K", "V", "O"),), "global", mark("global memory")),
            Group((("SP",),)),
            Group((shared,), "shared", mark("shared memory of the block")),
            Group((tuple(of_row),), "registers", mark("registers, one row per query"), aligned=True),
        ),
        (steps,), (*MOVED, SHARED_BYTES), group=BLOCK, others=(OTHERS,), names=NAMES | bound | counts | names, order=(mark("explaining order"), NOTE),
    )


def of_rows(head: Head, name: str, row: str, column: str = "0", count: int = 1, role: str = "workspace", **fields: Any) -> PerThread:
    """Returns a variable of the followed rows with so many columns."""
    return PerThread(name, role, name, place=(row, column), part=(head.rows, range(count)), **fields)


def parts_of_l(head: Head, row: str, *during: str) -> PerThread:
    """Returns l of the followed rows, the sum of the parts of a row's threads."""
    return of_rows(head, "l", row, during=during, adds=True)


def rows_of(head: Head, name: str, role: str, first: int, rows: range, cols: int, pitch: int, **fields: Any) -> Shared:
    """Returns rows of a matrix that begins at an element of shared memory."""
    fields = {"title": name, "dtype": "f4"} | fields
    return Shared(name, role, of="shared", **box(first + rows.start * pitch, len(rows), cols, pitch), **fields)


# -- a thread for each score of a tile ----------------------------------------------------------------------
ROW = "thread_row == followed and thread_col == 0"
FLASH = {
    "start": step("tile_q[i / DP][dim] =",
        Say("Columns up to {DP} are filled with zeros (not drawn). Each row starts with m = −∞, l = 0 and O = 0. The captions follow query {query}.", f"{ROW} and d < DP"),
        Say("Each row starts with m = −∞, l = 0 and O = 0. The captions follow query {query}.", ROW),
        lead=mark("The block of queries {block_query} to {block_query + rows - 1} loads its rows of [Q](input) into shared memory, multiplied by scale = {scale}."),
        to="float o[COLS] = {}", merge=True),
    "skip": step("for (int key_tile =", *SKIP),
    "load": step("tile_k[i / DP][dim] =",
        "Tile {tile} of {tiles}: the block loads keys {key_tile} to {last_key} and their values from global memory into shared memory. Floats of [K](filter) and of [V](filter) "
        "loaded: {(last_key - key_tile + 1) * d} each. All queries of the block use the tile. It is loaded once per block.",
        to="tile_v[i / DP][dim] =", merge=True),
    "barrier": step(("__syncthreads();", 0), LOADED),
    "scores": step("float s = 0.0f",
        Say("Each thread computes one of the scores of the tile, a row of [Q](input) times a row of [K](filter). It keeps the score in a register. The score of query {query} and key {key} is {s}.", ROW),
        to="s += tile_q[thread_row][dim]", lit="s += tile_q[thread_row][dim]", merge=True,
        cells={"s": mark("Row {thread_row} of [tile_q](input) times row {thread_col} of [tile_k](filter): {s}.")}),
    "mask": step("s = -INFINITE", Say(MISSING, "key >= M"), HIDDEN),
    "max": step("float new_m = s", Say(NO_KEY, f"{ROW} and largest == -inf"), Say(FIRST_MAX, f"{ROW} and key_tile == key_begin"), Say(NEXT_MAX, ROW),
        to="new_m = fmaxf(new_m, m)", lit="new_m = fmaxf(new_m, m)", merge=True, shows={"m": "new_m"}),
    "weights": step("float base = new_m",
        Say("There are no older sums: their factor is exp(−∞) = 0.", f"{ROW} and key_tile == key_begin"),
        Say("The maximum of query {query} has not changed. The factor of its older sums is exp(0) = 1.", f"{ROW} and m == new_m"),
        Say("The older sums of query {query} used its old m. Their factor is exp(old m − m) = exp({m - new_m}) = {rescale}.", ROW),
        lead=mark("The weights are p = exp(s − m), at most 1. For key {key}: exp({s - new_m}) = {p}."), to="float rescale", lit="float rescale"),
    "l": step("l = l * rescale + p",
        Say("l of query {query} is the sum of its p in this tile: {row_l}. Each of the {Bc} threads of a row holds a part of it.", f"{ROW} and key_tile == key_begin"),
        Say("l of query {query} is the older sum times the factor, plus the p of this tile: {row_before} × {rescale} + {row_p} = {row_l}. Each thread holds a part of it.", ROW),
        lead=mark("Each thread stores its p in shared memory, for this tile only."),
        to="tile_p[thread_row][thread_col] = p"),
    "shrink": step("o[n] *= rescale", Say("", "key_tile == key_begin"), Say(SHRINK, ROW), merge=True),
    "values": step("o[n] += tile_p", Say(ADD_VALUES, ROW), merge=True),
    "used": step(("__syncthreads();", 1), USED),
    "total": step("l += __shfl_xor_sync", Say("The {Bc} threads of a row add their parts of l. For query {query}: l = {l}.", ROW), merge=True),
    "store": step("O[(size_t)query * d + dim] = o[n] / l", Say(STORE_LAST, f"{ROW} and blocks_in_all == 1"), Say(STORE, ROW), merge=True),
}


def flash(head: Head, tiles: Tiles) -> View:
    """Returns the view of attention/flash."""
    Br, Bc, DP, cols, R = tiles["Br"], tiles["Bc"], ladder.flash_padded(head.s, tiles), len(head.cols), head.rows
    keys = Br * DP
    values = keys + Bc * (DP + 1)
    weights = values + Bc * DP
    row, col = "thread_row", "thread_col"
    tensors = (
        head.never_stored("s", "block_query + thread_row", "key_tile + thread_col", ("scores", "mask", "max", "weights", "l", "shrink", "values")),
        rows_of(head, "tile_q", "input", 0, R, cols, DP), rows_of(head, "tile_k", "filter", keys, range(Bc), cols, DP + 1),
        rows_of(head, "tile_v", "filter", values, range(Bc), cols, DP), rows_of(head, "tile_p", "workspace", weights, R, Bc, Bc),
        of_rows(head, "s", row, col, Bc), of_rows(head, "m", row), of_rows(head, "rescale", row), parts_of_l(head, row, "start", "l"),
        of_rows(head, "o", row, f"thread_col + {Bc} * cell", cols, "output", note=mark("sum so far")),
    )
    names = {
        "query": "block_query + thread_row", "key": "key_tile + thread_col", "old_m": "m.before", "o_before": "o[0].before", "o_now": "o[0]", "total": "l",
        "largest": "max(where(thread_row == followed, s, -inf))", "row_p": "sum(where(thread_row == followed, p, 0))",
        "row_l": "sum(where(thread_row == followed, l, 0))", "row_before": "sum(where(thread_row == followed, l.before, 0))",
    }
    return view(head, tensors, ("tile_q", "tile_k", "tile_v", "tile_p"), FLASH, names | ALL_KEYS)


# -- register tiles: a lane has TM rows ---------------------------------------------------------------------
FIRST_LANE = "thread_row + 4 * mine == followed and lane_col == 0"
LANE = "i == mine and thread_row + 4 * mine == followed and lane_col == 0"  # the first lane of the row that is followed
OTHER_ROWS = Say("", "i != mine")  # of the lanes: they belong to the step before
REGISTERS = {
    "start": step("float4 q = load4(Q",
        Say("Columns up to {DP} are filled with zeros (not drawn). Each row starts with m = −∞, l = 0 and O = 0. The captions follow query {query}.", f"{FIRST_LANE} and d < DP"),
        Say("Each row starts with m = −∞, l = 0 and O = 0. The captions follow query {query}.", FIRST_LANE),
        lead=mark("The block of queries {block_query} to {block_query + rows - 1} loads its rows of [Q](input) into shared memory, multiplied by scale · log2 e = {factor}."),
        to="m[i] = -INFINITE", lit="*(float4*)&tile_q[row][dim] = q", merge=True),
    "keys": step(re.compile(r"load_tile<DP \+ 4>\(tile_k\[0\], K(, N| \+ \(size_t\)key_begin)"),
        "Tile 1 of {tiles}: the copy of keys {key_begin} to {first_stop - 1} from global memory to shared memory starts. Floats of [K](filter) copied: {(first_stop - key_begin) * d}."),
    "skip": step("for (int key_tile =", *SKIP),
    "barrier": step(("__syncthreads();", 0), "Barrier: every thread waits until [K](filter) of tile {tile} is complete, and until all threads have used the values before it."),
    "load": step("load_tile<DP>(tile_v[0]",
        "The copy of the values of keys {key_tile} to {last_key} starts. It goes on while the scores are computed. Floats of [V](filter) copied: {(last_key - key_tile + 1) * d}."),
    "scores": step("float s[TM][TN] = {}",
        Say("Each lane (thread of a warp) computes {TM} × {Bc // 8} of the scores of the tile and keeps them in registers. The score of query {query} and key {key} is {score}.", FIRST_LANE),
        to="s[i][n] += q[i].w * k.w", lit="s[i][n] += q[i].x", merge=True),
    "mask": step("s[i][n] = -INFINITE", Say(MISSING, "key_tile + Bc > M"), HIDDEN, merge=True),
    "max": step("float new_m = m[i]", OTHER_ROWS,
        Say(NO_KEY, f"{LANE} and new_m == -inf"),
        Say("Query {query}: the largest score of its first tile is {new_m}. This is m, the running maximum. There are no older sums: their factor is 2^(−∞) = 0.", f"{LANE} and key_tile == key_begin"),
        Say("Query {query}: no score of this tile is larger than its running maximum m = {new_m}. The factor of its older sums is 2^0 = 1.", f"{LANE} and rescale == 1"),
        Say("Query {query}: the running maximum m was {old_m} and is now {new_m}, the largest score of this tile. The factor of its older sums is 2^(old m − m) = {rescale}. Its l is multiplied by it.", LANE),
        to="l[i] *= rescale", lit="m[i] = new_m", merge=True),
    "weights": step("float p = exp2_(s[i][n] - base)", OTHER_ROWS,
        Say("The weights are p = 2^(s − m), at most 1. For key {key + Bc - 8}: 2^({last_score - base}) = {p}. P is in shared memory for this tile only. With them l of query {query} is {row_l}. Each of the 8 lanes of a row holds a part of it.", LANE),
        to="lane_col + 8 * n] = p", merge=True),
    "shrink": step("o[i][n] *= rescale", OTHER_ROWS, Say("", "key_tile == key_begin"), Say(SHRINK, LANE), merge=True),
    "used": step(("__syncthreads();", 1), "Barrier: every thread waits until [V](filter) and P of tile {tile} are complete, and until all threads have used its keys."),
    "next": step("load_tile<DP + 4>(tile_k[0], K + (size_t)(key_tile",
        "The copy of the keys of tile {tile + 1} starts before this tile's values are added. It overwrites the keys of this tile."),
    "values": step("*(float4*)p[i] =", Say(ADD_VALUES, FIRST_LANE), to="o[i][n] += p[i][k] * v[n]", lit="o[i][n] += p[i][k] * v[n]", merge=True),
    "total": step("l[i] += __shfl_xor_sync", OTHER_ROWS, Say("The 8 lanes of a row add their parts of l. For query {query}: l = {total}.", LANE), merge=True),
    "store": step("store4(O, O", OTHER_ROWS, Say(STORE_LAST, f"{LANE} and blocks_in_all == 1"), Say(STORE, LANE), merge=True),
}


def registers_head(s: SelfAttentionShape, tiles: Tiles) -> Head:
    """Returns what is shown of a head: rows that a warp's lanes have at once."""
    found = reversed_head(s, tiles)
    rows = range((found.rows.stop - 1) // 4 * 4, found.rows.stop) if s.causal else found.rows
    queries = found.queries if s.N <= MAX_WHOLE else found.queries[-len(rows) :]
    return replace(found, rows=rows, queries=queries)


def registers(head: Head, tiles: Tiles, steps: Mapping[str, Step] = REGISTERS, bound: Mapping[str, str] = ALL_KEYS) -> View:
    """Returns the view of attention/flash-registers. `steps` and `bound`: of a kernel with other lines and names."""
    Br, Bc, R, cols = tiles["Br"], tiles["Bc"], head.rows, len(head.cols)
    defines = register_tiles.defines(head.s, tiles)
    DP, TM, TN, TD = defines["DP"], defines["TM"], Bc // 8, defines["DP"] // 8
    keys = Br * (DP + 4)
    values = keys + Bc * (DP + 4)
    weights = values + Bc * DP
    followed = R.stop - 1 if head.s.causal else R.start
    mine = followed % (4 * TM) // 4
    row = "thread_row + 4 * cell"
    score_row, score_col = f"thread_row + 4 * (cell // {TN})", f"lane_col + 8 * (cell % {TN})"
    tensors = (
        head.never_stored("s", f"block_query + {score_row}", f"key_tile + {score_col}", ("scores", "mask", "max", "weights", "shrink", "used")),
        rows_of(head, "tile_q", "input", 0, R, cols, DP + 4), rows_of(head, "tile_k", "filter", keys, range(Bc), cols, DP + 4),
        rows_of(head, "tile_v", "filter", values, range(Bc), cols, DP), rows_of(head, "tile_p", "workspace", weights, R, Bc, Bc + 8),
        of_rows(head, "s", score_row, score_col, Bc), of_rows(head, "m", row), of_rows(head, "rescale", "thread_row + 4 * i"),
        parts_of_l(head, row, "start", "max", "weights"),
        of_rows(head, "o", f"thread_row + 4 * (cell // {TD})", f"4 * lane_col + 32 * (cell % {TD} // 4) + cell % 4", cols, "output", note=mark("sum so far")),
    )
    names = {
        "query": f"block_query + thread_row + 4 * {mine}", "key": "key_tile + lane_col", "mine": str(mine), "score": f"s[{mine}][0]", "old_m": f"m[{mine}].before",
        "last_score": f"s[{mine}][{TN - 1}]", "o_before": f"o[{mine}][0].before", "o_now": f"o[{mine}][0]", "total": f"l[{mine}]",
        "row_l": f"sum(where(thread_row + {4 * mine} == followed, l[{mine}], 0))",
    }
    return view(head, tensors, ("tile_q", "tile_k", "tile_v", "tile_p"), steps, {**names, **bound})


# -- tensor cores: fragments --------------------------------------------------------------------------------
OF_LANE = "warp_row + lane // 4"  # its first row; the lane has rows 8 apart, and pairs of columns 8 apart
MMA_ROW = f"{OF_LANE} + 16 * band + 8 * mine == followed and lane % 4 == 0"
OTHER_LANE_ROWS = Say("", "i != band or lower != mine")
LATER_KEYS = Say("", "n > 0")  # belong to the step before
MMA = {
    "start": step("load_tile<Br>(tile_q",
        "The block of queries {block_query} to {block_query + rows - 1} loads its rows of [Q](input) into shared memory, as 16-bit numbers. The captions follow query {block_query + followed}."),
    "load": step("load_keys(stage, ",
        "Tile {stage + 1} of {tiles}: the copy of keys {stage_key} to {where(stage_key + Bc < M, stage_key + Bc, M) - 1} and of their values, from global memory to buffer {stage} of shared memory, starts. "
        "It is loaded once per block.", each="stage"),
    "barrier": step(("__syncthreads();", 0), "Barrier: every thread waits until [Q](input) and tile 1 are complete in shared memory."),
    "empty": step("Values o = {};", Say("Each row starts with m = −∞, l = 0 and O = 0 in FP32.", "d == DP"), "Each row starts with m = −∞, l = 0 and O = 0 in FP32. Columns up to {DP} are zeros (not drawn).", to="m[i][0] = m[i][1] = -INFINITE", merge=True),
    "skip": step("for (int key_tile =", *SKIP),
    "next": step("load_keys(fill_stage", Say("", "key_tile + (STAGES - 1) * Bc >= key_end"),
        "The copy of tile {tile + STAGES - 1} to buffer {fill_stage} starts. The threads wait for it only before they use it."),
    "scores": step("if (!HELD) load_queries(q[0]",
        Say("Each warp computes its rows of the scores of the tile on the tensor cores, 16 columns of [Q](input) and [K](filter) at a time. It keeps them in registers. "
            "The score of query {query} and key {key} is {score}, before it is multiplied by |scale| · log2 e = {factor}.", MMA_ROW),
        to="tile_k + read_stage * STAGE + k * 16", lit="add_scores(s, q", merge=True),
    "mask": step("hide_keys(s, min_keys", Say(MISSING, "key_tile + Bc > M"), HIDDEN),
    "max": step("update_maxima(s, factor",
        Say("Query {query}: the largest score of its first tile, times {factor}, is {m_now}. This is m, the running maximum.", f"{MMA_ROW} and key_tile == key_begin"),
        Say("Query {query}: the running maximum m was {old_m} and is now {m_now}. The factor of the older sums is 2^(old m − m) = {rescale_now}.", MMA_ROW)),
    "shrink": step("scale_rows(o, rescale)", Say("", "key_tile == key_begin"),
        Say("The earlier sums in [O](output) and the parts of l are multiplied by the same factor. Query {query}, column 0: from {o_before} to {o_now}. They now match the new maximum. [O](output) is divided by l only at the end.", MMA_ROW),
        to="l[i][0] *= rescale", merge=True),
    "weights": step("compute_weights(p, s", LATER_KEYS,
        Say("The weights are p = 2^({factor} · s − m), at most 1, rounded to 16 bits, for 16 keys at a time. P stays in registers: mma.sync reads it there. l of query {query} is the sum of its p before rounding. "
            "Each of the 4 lanes of a row holds a part of it. After 16 keys l is {row_l}.", MMA_ROW)),
    "values": step("add_values(o, p", LATER_KEYS,
        Say("P times [V](filter) is added to [O](output), 16 keys at a time. The first 16 change query {query}, column 0 from {o_before} to {o_now}. The scores and weights of this tile are no longer needed.", MMA_ROW)),
    "used": step(("__syncthreads();", 1),
        Say("Barrier: every thread waits until all warps have used tile {tile}.", "key_tile + Bc >= key_end"),
        "Barrier: every thread waits until all warps have used tile {tile}, and until the copy of the next one is complete."),
    "total": step("sum += __shfl_xor_sync(~0u, sum, 1)", OTHER_LANE_ROWS,
        Say("The 4 lanes of a row add their parts of l. For query {query}: l = {sum}.", MMA_ROW), to="sum += __shfl_xor_sync(~0u, sum, 2)", merge=True),
    "store": step("store_row(O", OTHER_LANE_ROWS, Say(STORE_LAST, f"{MMA_ROW} and blocks_in_all == 1"), Say(STORE, MMA_ROW)),
}


def mma(head: Head, tiles: Tiles, steps: Mapping[str, Step] = MMA, bound: Mapping[str, str] = ALL_KEYS) -> View:
    """Returns the view of attention/flash-mma. `steps` and `bound`: of a kernel with other lines and names."""
    Br, Bc, R, cols = tiles["Br"], tiles["Bc"], head.rows, len(head.cols)
    DP, stages = tensor_cores.padded(head.s), tiles["STAGES"]
    pitch = DP + tensor_cores.PAD
    dtype = {"fp16": "f2", "bf16": "bfloat16"}[head.s.dtype]
    band = (R.stop - 1 if head.s.causal else R.start) % tensor_cores.warp_rows(head.s, tiles)
    i, mine = band // 16, band % 16 // 8
    row = f"{OF_LANE} + cell // 2 * 16 + cell % 2 * 8"

    def fragment(columns: int) -> tuple[str, str]:
        """Returns the row and the column of each sum in a lane's fragments."""
        return f"{OF_LANE} + cell // {columns // 2} * 16 + cell % 4 // 2 * 8", f"cell // 4 % {columns // 8} * 8 + lane % 4 * 2 + cell % 2"

    def buffer(name: str, stage: int) -> Shared:
        at = Br * pitch + (2 * stage + (name == "tile_v")) * Bc * pitch
        return rows_of(head, f"{name}_{stage}", "filter", at, range(Bc), cols, pitch, title=f"{name} {stage}", symbol=name, dtype=dtype)

    score_row, score_col = fragment(Bc)
    copies = tuple(buffer(name, stage) for stage in range(stages) for name in ("tile_k", "tile_v"))
    tensors = (
        head.never_stored("s", f"block_query + {score_row}", f"key_tile + {score_col}", ("scores", "mask", "max", "shrink", "weights", "values")),
        rows_of(head, "tile_q", "input", 0, R, cols, pitch, dtype=dtype), *copies,
        of_rows(head, "s", score_row, score_col, Bc), of_rows(head, "m", row), of_rows(head, "rescale", row), parts_of_l(head, row, "empty", "shrink", "weights"),
        of_rows(head, "o", *fragment(DP), cols, "output", note=mark("sum so far")),
    )
    first = f"{i}][0][{2 * mine}]"
    names = {
        "query": f"block_query + {OF_LANE} + {16 * i + 8 * mine}", "key": "key_tile + lane % 4 * 2", "band": str(i), "mine": str(mine), "score": f"s[{first}",
        "old_m": f"m[{i}][{mine}].before", "m_now": f"m[{i}][{mine}]", "rescale_now": f"rescale[{i}][{mine}]",
        "o_before": f"o[{first}.before", "o_now": f"o[{first}", "total": "sum",
        "row_l": f"sum(where({OF_LANE} + {16 * i + 8 * mine} == followed, l[{i}][{mine}], 0))",
    }
    return view(head, tensors, ("tile_q", *(tensor.name for tensor in copies)), steps, {**names, **bound})
