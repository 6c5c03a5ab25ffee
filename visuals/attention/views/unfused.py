# fmt: off
"""Attention in three launches, S, its softmax and O = P V: one thread for each element, or by tiles in shared memory."""

from __future__ import annotations

from kernels.attention.shape import SelfAttentionShape
from kernels.i18n import mark
from kernels.model.program import Tiles
from visuals.attention.head import MAX_WHOLE, Head
from visuals.scene.compiler.view import BLOCK, SHARED_MEMORY, Bytes, PerThread, Say, Shared, View, box, step
from visuals.scene.parts import Group

WARPS_NOTE = mark("The picture shows one warp after the other, launch after launch. On a GPU the warps of a launch run many at once, in any order. A launch starts when the launch before it is complete. All values are those of the kernels in the emulator.")
BLOCKS_NOTE = mark("The picture shows one block after the other, launch after launch. On a GPU the blocks of a launch run many at once, in any order. A launch starts when the launch before it is complete. All values are those of the kernels in the emulator.")
MAX_KEYS = 32  # shown of a long head
LAUNCHES = mark("launch after launch")
MOVED = Bytes(mark("bytes read from global memory"), "", "ld"), Bytes(mark("bytes written to global memory"), "", "st")
SHARED_BYTES = Bytes(mark("bytes to and from shared memory"), SHARED_MEMORY, "")
OTHERS = (
    mark("The other blocks ({others}) compute the other scores. Then [S](workspace) is complete."),
    mark("The other blocks ({others}) do the same for the other rows of [S](workspace)."),
    mark("The other blocks ({others}) compute the rest of [O](output)."),
)
MEMORY = (
    Group((("Q", "K", "V", "O"),), "global", mark("global memory")),
    Group((("S", "P"),), "workspace", mark("workspace in global memory")),
)

SCORE_OF = {"S": mark("Row {query} of [Q](input) times row {key} of [K](filter) is {sum}. It is multiplied by the scale {scale}.")}
READ_THIRD = mark("The warp reads the row a third time and writes [P](workspace) = exp([S](workspace) − m) / l.")
SOFTMAX = {
    "max": step("m = fmaxf(m, S[key])",
        "One warp computes the softmax of query {row}. It reads the row of [S](workspace), of length {keys}, and keeps the largest score: m = {m}.",
        to="m = fmaxf(m, __shfl_xor_sync", merge=True, by="row"),
    "sum": step("l += expf(S[key] - m)",
        "The warp reads the row again and adds exp([S](workspace) − m). For key 0: exp({S[row * N] - m}) = {exp(S[row * N] - m)}. The sum is l = {l}.",
        to="l += __shfl_xor_sync", merge=True, by="row"),
    "weights": step("P[key] = weight(",
        Say("For key 0: {exp(S[row * N] - m)} / {l} = {exp(S[row * N] - m) / l}. Keys after the query are hidden: their [P](workspace) is 0, and their [S](workspace) is not read.", "keys < N"),
        "For key 0: {exp(S[row * N] - m)} / {l} = {exp(S[row * N] - m) / l}.",
        lead=READ_THIRD, merge=True, by="row",
        cells={"P": mark("exp([S](workspace) − m) / l, with m = {m} and l = {l}. It is 0 if the key is hidden.")}),
}


def head(s: SelfAttentionShape, tiles: Tiles) -> Head:
    """Returns what is shown of a head: all blocks, of a long one the first block of each launch."""
    N, side = s.N, next(iter(tiles.values()))
    if N <= MAX_WHOLE:
        return Head(s, s.with_(B=1, H=1), range(N), range(N), range(min(s.d, MAX_WHOLE)), blocks=())
    keys = min(N, max(MAX_KEYS, side))
    return Head(s, s.with_(B=1, H=1, N=keys), range(MAX_WHOLE), range(min(keys, MAX_KEYS)), range(min(s.d, MAX_WHOLE)))


def naive(head: Head, tiles: Tiles) -> View:
    """Returns the view of attention/naive, a step for each warp."""
    return View(
        (*head.buffers("QKVOSP"), *_of_rows(head)),
        (*MEMORY, Group((("m", "l"),), "registers", mark("registers"), aligned=True)),
        (
            {
                "scores": step("sum += query_row[dim]",
                    "Block ({key // BLOCK}, {query // BLOCK}), warp {warp}: each active lane computes one score, [S](workspace)[{query}, {key}] to "
                    "[S](workspace)[{max(query)}, {max(key)}]. Active lanes: {active}. Row {query} of [Q](input) times row {key} of [K](filter) is {sum}. "
                    "Times the scale {scale} it is {S}.",
                    to="S[((size_t)blockIdx.z", merge=True, cells=SCORE_OF),
            },
            SOFTMAX,
            {
                "values": step("sum += weights[key]",
                    "Block ({dim // BLOCK}, {query // BLOCK}), warp {warp}: each active lane computes one element of [O](output), [O](output)[{query}, {dim}] "
                    "to [O](output)[{max(query)}, {max(dim)}]. Active lanes: {active}. Row {query} of [P](workspace) times column {dim} of [V](filter) is {O}.",
                    to="+ dim] = sum", merge=True),
            },
        ),
        MOVED, group=32, others=OTHERS, products=_product(head), order=(LAUNCHES, WARPS_NOTE),
    )


def blocked(head: Head, tiles: Tiles) -> View:
    """Returns the view of attention/blocked, block after block and tile after tile."""
    side = tiles["TILE"]
    queries, keys, cols = (min(side, len(of)) for of in (head.queries, head.keys, head.cols))

    def tile(name: str, role: str, rows: int, columns: int, pitch: int = side) -> Shared:
        return Shared(name, role, name, **box(0, rows, columns, pitch))

    return View(
        (
            *head.buffers("QKVOSP"),
            tile("tile_q", "input", queries, cols), tile("tile_k", "filter", keys, cols, side + 1),
            tile("tile_p", "workspace", queries, keys), tile("tile_v", "filter", keys, cols),
            PerThread("sum", "output", "sum", place=("thread_row", "thread_col"), part=(range(queries), range(max(keys, cols)))),
            *_of_rows(head),
        ),
        (
            *MEMORY,
            Group((("tile_q", "tile_k", "tile_p", "tile_v"),), "shared", mark("shared memory of the block")),
            Group((("sum", "m", "l"),), "registers", mark("registers")),
        ),
        (
            {
                "hidden": step("return;",
                    "Block ({block_key // TILE}, {block_query // TILE}): all of its keys are hidden from its queries, so it ends at once. Its part of [S](workspace) stays empty."),
                "load_q": step("tile_q[thread_row][thread_col] =",
                    "Block ({block_key // TILE}, {block_query // TILE}), tile {dim_tile // TILE + 1} of {(d + TILE - 1) // TILE}: the block loads its rows of [Q](input), "
                    "columns {dim_tile} to {where(dim_tile + TILE < d, dim_tile + TILE, d) - 1}, into shared memory."),
                "load_k": step("tile_k[thread_row][thread_col] =",
                    "The block also loads its rows of [K](filter), columns {dim_tile} to {where(dim_tile + TILE < d, dim_tile + TILE, d) - 1}. Each loaded float is used {TILE} times."),
                "multiply": step("sum += tile_q[thread_row][dim]",
                    "Each thread multiplies a row of tile_q by a row of tile_k. The sum of query {block_query} and key {block_key} is now {sum}.", merge=True),
                "store": step("S[((size_t)blockIdx.z",
                    "The block multiplies its sums by the scale {scale} and writes them: [S](workspace)[{query}, {key}] = {S}. Scores written: {active}.", cells=SCORE_OF),
            },
            SOFTMAX,
            {
                "load_p": step("tile_p[thread_row][thread_col] =",
                    "Block ({dim // TILE}, {query // TILE}), tile {key_tile // TILE + 1} of {(keys + TILE - 1) // TILE}: the block loads its rows of [P](workspace), "
                    "keys {key_tile} to {where(key_tile + TILE < N, key_tile + TILE, N) - 1}, into shared memory."),
                "load_v": step("tile_v[thread_row][thread_col] =",
                    "The block also loads rows {key_tile} to {where(key_tile + TILE < N, key_tile + TILE, N) - 1} of [V](filter)."),
                "multiply_o": step("sum += tile_p[thread_row][key]",
                    "Each thread multiplies a row of tile_p by a column of tile_v. The sum of query {query}, column {dim} is now {sum}.", merge=True),
                "store_o": step("O[((size_t)blockIdx.z",
                    "The block writes its sums: [O](output)[{query}, {dim}] = {O}. Elements written: {active}."),
            },
        ),
        (*MOVED, SHARED_BYTES), group=BLOCK, others=OTHERS, products=_product(head), order=(LAUNCHES, BLOCKS_NOTE),
    )


def _of_rows(head: Head) -> tuple[PerThread, ...]:
    """Returns m and l, one number of each row."""
    return tuple(PerThread(name, "workspace", name, place=("row", "0"), part=(head.queries, range(1))) for name in "ml")


def _product(head: Head) -> tuple[tuple[str, str, str], ...]:
    """Returns O as a product for the browser, if all of it is shown."""
    return (("P", "V", "O"),) if not head.blocks else ()
