# fmt: off
"""What the stage shows of flash attention's backward pass: a tile of keys stays, and queries pass by; then queries stay, and keys pass by.

P and dS of a tile, and the sums of the gradients, are in the cells of their queries and keys, whichever thread has them.
"""

from __future__ import annotations

import numpy as np

from kernels.attention.backward import ladder, tensor_cores
from kernels.attention.tensor_cores import PAD, padded
from kernels.i18n import mark, tr
from kernels.model.dtypes import INPUT_DTYPE
from kernels.model.launch import ceil
from kernels.model.program import Tiles
from visuals.attention.backward.views import DOTS, GLOBAL, MOVED, ORDER, OTHER_DOTS, SHARED_BYTES, Head, Launch
from visuals.scene.compiler.view import Bytes, PerThread, Say, Shared, View, box, step
from visuals.scene.parts import Annotation, Captions, Group

MAX_QUERIES, MAX_KEYS = 16, 32  # of a tile, that are shown
ZERO: Launch = {"zero": step("y[i] = 0", "Second launch: [dQ](output) is filled with zeros, because the blocks will add to it.")}
ADDED = Bytes(mark("bytes added to dQ by atomics of the followed block"), "dQ", "ld")


# -- in FP32 -------------------------------------------------------------------------------------------------
OF_KEYS: Launch = {
    "own": step("load_tile<Bc>(tile_k",
        "The block owns keys {block_key} to {where(block_key + Bc < N, block_key + Bc, N) - 1}. It copies their rows of [K](filter) and [V](filter) to shared memory.",
        to="load_tile<Bc>(tile_v"),
    "first": step("load_queries(first_query)",
        Say("Earlier queries do not see the keys of the block: it begins with query {first_query}. Rows of [Q](input) and [dO](input) are copied to shared memory.", "first_query > 0"),
        mark("All {N} queries will pass by. The first rows of [Q](input) and [dO](input) are copied to shared memory.")),
    "begin": step("float sums[TK][TD] = {}", "Half of the warps will add to [dv](output), the others to [dk](output). These sums stay in registers and begin at 0."),
    "loaded": step("float row[TQ]",
        "Half of the warps load [L](input), the others [D](workspace). Then all threads wait at a barrier: the rows of queries {query_tile} to {last_query} are loaded.",
        to=("__syncthreads();", 0), lit=("__syncthreads();", 0)),
    "products": step("multiply_rows(s, left, right)",
        "Half of the warps multiply rows of [Q](input) and [K](filter), the others rows of [dO](input) and [V](filter). For query {query_tile} and key {block_key}: QKᵀ = {s[0][0]}, dP = {other_s}."),
    "P": step("int query = lane_of_8() + 8 * i",
        Say("Half of the warps compute [P](workspace) again. P[{query_tile + query}, {block_key + key}] = exp({own_s} · scale − L) = exp({own_s * scale - row[i]}) = {p}, with L = {row[i]}.", "visible and query_tile + query < N and block_key + key < N"),
        mark("Half of the warps compute [P](workspace) again. The keys are hidden from these queries: 0."),
        to="tile_p[query * PITCH_P + key] =", lit="tile_p[query * PITCH_P + key] =", merge=True, by="role"),
    "P_there": step(("__syncthreads();", 1), Say("", "role == 1"), "All threads wait at a barrier: the other half of the warps reads [P](workspace).", by="role"),
    "dS": step("int place = (lane_of_8()",
        Say("The other warps read P. dS[{query_tile + place_query}, {block_key + place_key}] = P · (dP − D) = {Ps.read} · ({own_s} − {row[i]}) = {Ps.read * (own_s - row[i])}.", "place_query < most_queries and place_key < most_keys and Ps.read > 0"),
        Say("The other warps read P and compute [dS](workspace) = P · (dP − D). For query {query_tile + place_query} and key {block_key + place_key}, dP − D = {own_s} − {row[i]}."),
        to="tile_ds[place] =", lit="tile_ds[place] =", merge=True, by="role"),
    "sums": step("add_columns(sums",
        Say("The first half of the warps adds Pᵀ dO over queries {query_tile} to {last_query}. For key {block_key}: [dv](output)[0] = {sums[0][0]}.", "role == 0"),
        Say("The other warps add dSᵀ Q over the same queries. For key {block_key}: [dk](output)[0] = {sums[0][0]}."), merge=True, by="role"),
    "used": step(("__syncthreads();", 2), Say("", "role == 0"), "All threads wait at a barrier: [dS](workspace) is complete, and all have used these rows of [Q](input) and [dO](input).", by="role"),
    "next": step("load_queries(query_tile + Br)", Say("", "query_tile + Br >= N"), "Rows of [Q](input) and [dO](input) of the next queries, from {query_tile + Br} on, are copied to shared memory."),
    "store": step("store_sums(Y, sums",
        "The block stores [dV](output), and [dK](output) times the scale {scale}. dK[{block_key}, 0] = {scale} · {other_sum} = {scale * other_sum}. P and dS were never in global memory."),
}


PARTS_OF_DQ: Launch = {
    "dQ": step("float dq[TR][TD] = {}",
        Say("All warps multiply [dS](workspace) with [K](filter). They add the part atomically to [dQ](output): dQ[{dQ.at // d}, {dQ.at % d}] = {dQ.read} + {dQ.new - dQ.read} = {dQ.new}.", "dQ.at >= 0"),
        mark("All warps multiply [dS](workspace) with [K](filter). They add the part atomically to [dQ](output)."),
        to="atomicAdd(", lit="atomicAdd("),
}
OF_QUERIES: Launch = {
    "q_own": step("load_tile<Br>(tile_q",
        "Next launch, for [dQ](output): the block owns queries {block_query} to {where(block_query + Br < N, block_query + Br, N) - 1}. It copies their rows of [Q](input) and [dO](input) to shared memory.", to="load_tile<Br>(tile_do"),
    "q_first": step("load_tile<Bc>(tile_k, K, N, d)", "Now the keys pass by: the first rows of [K](filter) and [V](filter) are copied to shared memory.", to="load_tile<Bc>(tile_v, V, N, d)"),
    "q_begin": step("float dq[TM][TD] = {}", "Each thread loads [L](input) and [D](workspace) of its queries. Its sums [dq](output) begin at 0.", to="row_d[i] = query < N"),
    "q_loaded": step("wait_groups<0>()", "All threads wait at a barrier: the rows of keys {key_tile} to {last_key} are loaded.", to=("__syncthreads();", 0), lit=("__syncthreads();", 0)),
    "q_product": step("multiply_rows(p, tile_q", "Rows of [Q](input) times rows of [K](filter): for query {block_query} and key {key_tile} this is {p[0][0]}."),
    "q_P": step("int key = key_tile + lane_col",
        Say("[P](workspace) is computed once more. P[{block_query}, {key_tile}] = exp({p[0][0].before} · scale − L) = {p[0][0]}, with L = {L[block_query]}.", "p[0][0] > 0"),
        mark("[P](workspace) is computed once more."), to="p[i][n] = visible ?", lit="p[i][n] = visible ?", merge=True),
    "q_dS": step("multiply_rows(dp, tile_do",
        "dP = dO Vᵀ, and dS[{block_query}, {key_tile}] = P · (dP − D) = {p[0][0]} · ({dp[0][0]} − {row_d[0]}) = {p[0][0] * (dp[0][0] - row_d[0])}.", to="p[i][n] * (dp[i][n]", lit="p[i][n] * (dp[i][n]"),
    "q_dS_there": step(("__syncthreads();", 1), "All threads wait at a barrier: [dS](workspace) is complete, and all have used these rows of [V](filter)."),
    "q_next_v": step("load_tile<Bc>(tile_v, V + next", Say("", "key_tile + Bc >= key_end"), "Rows of [V](filter) of the next keys, from {key_tile + Bc} on, are copied to shared memory."),
    "q_dQ": step("for (int key = 0; key < Bc; key += 4)", "The sum grows by dS K over keys {key_tile} to {last_key}. For query {block_query}: dq[0] = {dq[0][0]}.", to="dq[i][n] += ds[i][k]", lit="dq[i][n] += ds[i][k]"),
    "q_used": step(("__syncthreads();", 2), "All threads wait at a barrier: all have used these rows of [K](filter)."),
    "q_next_k": step("load_tile<Bc>(tile_k, K + next", Say("", "key_tile + Bc >= key_end"), "Rows of [K](filter) of the next keys are copied to shared memory."),
    "q_store": step("store4(dQ, dQ", "The block stores [dQ](output), its sums times the scale {scale}. dQ[{block_query}, 0] = {scale} · {dq[0][0]} = {scale * dq[0][0]}. No other block writes these rows.", merge=True),
}
OTHERS_ATOMIC = mark("The other blocks of keys ({others}) do the same. [dQ](output) is complete when all blocks have added their parts. Neither P nor dS was ever stored in global memory.")
OTHER_KEYS = mark("The other blocks of keys ({others}) do the same. [dK](output) and [dV](output) are complete.")
OTHER_QUERIES = mark("The other blocks of queries ({others}) do the same. [dQ](output) is complete. Neither P nor dS was ever stored in global memory.")


def names(head: Head, tiles: Tiles) -> dict[str, str]:
    """Returns what the kernels compute without a variable: lanes as in flash_backward.cuh, the last rows of a tile, the score of the last place
    in the loop, and the numbers of the first thread of the other half of the warps."""
    keys, pitch = ladder.warp_keys(head.s, tiles), tiles["Bc"] + 4  # pitch: of P and dS
    other = 32 * (tiles["Bc"] // keys)
    return {
        "lane_of_4": "lane // 16 * 2 + lane % 2", "lane_of_8": "lane // 2 % 8",
        "last_query": "where(query_tile + Br < N, query_tile + Br, N) - 1", "last_key": "where(key_tile + Bc < N, key_tile + Bc, N) - 1",
        "own_s": f"s[i * {keys // 4} + n]", "other_s": f"at(s[0][0], {other})", "other_sum": f"at(sums[0][0], {other})",
        "place_query": f"place // {pitch}", "place_key": f"place % {pitch}", "most_queries": str(MAX_QUERIES), "most_keys": str(MAX_KEYS),
    }


def flash(head: Head, tiles: Tiles) -> View:
    launch = {**OF_KEYS, **PARTS_OF_DQ}
    return View(
        (*head.tensors(), *_tiles(head, tiles), *_squares(head, tiles), *_sums_of_keys(head, tiles)),
        (
            GLOBAL, Group((("Qs", "dOs", "Ks", "Vs"), ("Ps", "dSs")), "shared", mark("shared memory of the block")),
            Group((("dv", "dk"),), "registers", mark("registers of the block’s threads: sums so far")),
        ),
        (DOTS, ZERO, launch), (*MOVED, ADDED, SHARED_BYTES), others=(OTHER_DOTS, "", OTHERS_ATOMIC), order=ORDER, names=names(head, tiles),
    )


def two_kernels(head: Head, tiles: Tiles) -> View:
    Br, Bc, columns, R, C = tiles["Br"], tiles["Bc"], ladder.padded(head.s) // 8, min(tiles["Br"], head.s.N, MAX_QUERIES), min(tiles["Bc"], head.s.N, MAX_KEYS)
    start = 2 * (Br + Bc) * (ladder.padded(head.s) + 4)
    of_queries = (
        PerThread("q_P", "workspace", "P", mark("of queries"), "P", of="p", during=("q_product", "q_P"), place=(f"thread_row + cell // {Bc // 8} * 4", f"lane_col + cell % {Bc // 8} * 8"), part=(range(R), range(C))),
        Shared("q_dSs", "workspace", "dS", mark("of queries"), "dS", of="shared", dtype="f4", during=tuple(OF_QUERIES), **box(start, R, C, Bc + 8)),
        PerThread("dq", "output", "dq", place=(f"thread_row + cell // {columns} * 4", f"4 * lane_col + cell % {columns} // 4 * 32 + cell % 4"), part=(range(R), head.cols)),
    )
    return View(
        (*head.tensors(), *_tiles(head, tiles), *_squares(head, tiles, tuple(OF_KEYS)), *_sums_of_keys(head, tiles), *of_queries),
        (
            GLOBAL, Group((("Qs", "dOs", "Ks", "Vs"), ("Ps", "dSs", "q_dSs")), "shared", mark("shared memory of the block")),
            Group((("dv", "dk", "dq", "q_P"),), "registers", mark("registers of the block’s threads: sums so far")),
        ),
        (DOTS, OF_KEYS, OF_QUERIES), (*MOVED, SHARED_BYTES), others=(OTHER_DOTS, OTHER_KEYS, OTHER_QUERIES), order=ORDER, names=names(head, tiles),
    )


def squares_explained(head: Head, tiles: Tiles) -> tuple[Annotation, ...]:
    """Returns what is said of the elements of P and dS in shared memory: the rows that each is computed from."""
    rows, keys, cols = min(tiles["Br"], head.s.N, MAX_QUERIES), min(tiles["Bc"], head.s.N, MAX_KEYS), len(head.cols)
    i, j = (index.ravel() for index in np.mgrid[:rows, :keys])
    left, right = (index[:, None] * cols + np.arange(cols) for index in (i, j))
    kind, args = np.zeros(i.size, int), np.stack([i, j], axis=1)
    of_P = tr("exp of row {0} of [tile_q](input) times row {1} of [tile_k](filter), times the scale, minus [L](input). 0 if the key is hidden.")
    of_dS = tr("[P](workspace) times the difference of dP and [D](workspace). dP is row {0} of [tile_do](input) times row {1} of [tile_v](filter).")
    return (
        Annotation("Ps", Captions((of_P,), kind, args), {"Qs": left, "Ks": right}),
        Annotation("dSs", Captions((of_dS,), kind, args), {"dOs": left, "Vs": right, "Ps": (i * keys + j)[:, None]}),
    )


def _tiles(head: Head, tiles: Tiles) -> tuple[Shared, ...]:
    """Returns the tiles of Q, dO, K and V in shared memory, at the same places in both kernels."""
    Br, Bc, pitch = tiles["Br"], tiles["Bc"], ladder.padded(head.s) + 4
    firsts = (("Q", "input", 0, Br), ("dO", "input", Br, Br), ("K", "filter", 2 * Br, Bc), ("V", "filter", 2 * Br + Bc, Bc))
    return tuple(
        Shared(f"{n}s", role, f"tile_{n.lower()}", symbol=f"tile_{n.lower()}", of="shared", dtype="f4", **box(first * pitch, min(rows, head.s.N, MAX_KEYS), len(head.cols), pitch))
        for n, role, first, rows in firsts
    )


def _squares(head: Head, tiles: Tiles, during: tuple[str, ...] = ()) -> tuple[Shared, ...]:
    """Returns the tiles of P and dS in shared memory."""
    Br, Bc = tiles["Br"], tiles["Bc"]
    first, pitch, R, C = 2 * (Br + Bc) * (ladder.padded(head.s) + 4), Bc + 4, min(Br, head.s.N, MAX_QUERIES), min(Bc, head.s.N, MAX_KEYS)
    return tuple(
        Shared(f"{n}s", "workspace", n, symbol=n, of="shared", dtype="f4", during=during, **box(first + i * Br * pitch, R, C, pitch)) for i, n in enumerate(("P", "dS"))
    )


def _sums_of_keys(head: Head, tiles: Tiles) -> tuple[PerThread, ...]:
    """Returns the sums of dV, of half of the warps, and of dK, of the others."""
    columns, keys = ladder.padded(head.s) // 8, range(min(tiles["Bc"], head.s.N, MAX_KEYS))
    row, column = f"warp_key + 4 * lane_of_4 + cell // {4 * columns} * 16 + cell // {columns} % 4", f"4 * lane_of_8 + cell % {columns} // 4 * 32 + cell % 4"
    return tuple(
        PerThread(n, "output", n, of="sums", place=(f"where(role == {role}, {row}, -1)", column), part=(keys, head.cols)) for role, n in enumerate(("dv", "dk"))
    )


# -- on tensor cores -----------------------------------------------------------------------------------------
MMA_KEYS: Launch = {
    "own": step("load_tile<Br>(tile_k",
        "The block owns keys {block_key} to {where(block_key + Br < N, block_key + Br, N) - 1}. cp.async copies their rows of [K](filter) and [V](filter) to shared memory.", to="load_tile<Br>(tile_v"),
    "first": step("load_pass(stage, first_query",
        Say("Earlier queries do not see the keys of the block: it begins with query {first_query}. Rows of [Q](input) and [dO](input) are copied to the first stages.", "first_query > 0"),
        mark("All {N} queries will pass by. Their first rows of [Q](input) and [dO](input) are copied to shared memory, in up to {STAGES} stages."), merge=True),
    "arrived": step("wait_groups<STAGES - 2>()", "All threads wait at a barrier: the first rows are loaded.", to=("__syncthreads();", 0), lit=("__syncthreads();", 0)),
    "begin": step("Own k(tile_k", "Each warp loads its own rows of [K](filter) and [V](filter) into registers if they fit. Its sums [dv](output) and [dk](output) begin at 0.", to="Values dk = {}"),
    "load": step("load_pass(fill_stage",
        Say("cp.async copies the rows of [Q](input) and [dO](input) of queries from {query_tile + (STAGES - 1) * Bc} on, ahead of their turn.", "query_tile + (STAGES - 1) * Bc < N"),
        mark("No queries are left to copy ahead.")),
    "products": step("k.multiply(p, q)",
        "Queries from {query_tile} on pass by. Each warp computes Sᵀ = K Qᵀ and dPᵀ = V dOᵀ of its own keys by mma.sync. For query {query_tile} and key {warp_key}: S = {p[0][0][0]}, dP = {ds[0][0][0]}.", to="v.multiply(ds, out)"),
    "P": step("for (int n = 0; n < Bc / 8; ++n)",
        "P[{query_tile}, {warp_key}] = exp({p[0][0][0].before} · scale − L) = {p[0][0][0]}, with L = {L[query_tile]}. dS[{query_tile}, {warp_key}] = P · (dP − D) = {p[0][0][0]} · ({ds[0][0][0].before} − {D[query_tile]}) = {ds[0][0][0]}.",
        to="weight * (ds[i][n][e]", lit="weight = exp2_("),
    "sums": step("for (int n = 0; n < Bc / 16; ++n)",
        "P and dS are rounded to 16 bits in registers. [dv](output) grows by Pᵀ dO, [dk](output) by dSᵀ Q. For key {warp_key}: dv[0] = {dv[0][0][0]}, dk[0] = {dk[0][0][0]}.", to="add_values(dk", lit="add_values(dk"),
    "used": step(("wait_groups<STAGES - 2>()", 1), "All threads wait at a barrier: the next tile is loaded, and this one is used.", to=("__syncthreads();", 1), lit=("__syncthreads();", 1)),
    "store": step("store_rows(dK + rows", "The block stores [dV](output), and [dK](output) times the scale {scale}, rounded to 16 bits. dK[{warp_key}, 0] = {scale} · {dk[0][0][0]} = {scale * dk[0][0][0]}.", to="store_rows(dV + rows"),
}
MMA_QUERIES: Launch = {
    "q_own": step("load_tile<Br>(tile_q",
        "Next launch, for [dQ](output): the block owns queries {block_query} to {where(block_query + Br < N, block_query + Br, N) - 1}. cp.async copies their rows of [Q](input) and [dO](input) to shared memory.", to="load_tile<Br>(tile_do"),
    "q_first": step("load_pass(stage, stage * Bc)", "Now the keys pass by: their first rows of [K](filter) and [V](filter) are copied to shared memory, in up to {STAGES} stages.", merge=True),
    "q_rows": step("for (int i = 0; i < BANDS; ++i)", "Each thread loads [L](input) and [D](workspace) of its queries.", to="row_d[i][lower] ="),
    "q_arrived": step("wait_groups<STAGES - 2>()", "All threads wait at a barrier: the first rows are loaded.", to=("__syncthreads();", 0), lit=("__syncthreads();", 0)),
    "q_begin": step("Own q(tile_q", "Each warp loads its own rows of [Q](input) and [dO](input) into registers if they fit. Its sums [dq](output) begin at 0.", to="Values dq = {}"),
    "q_load": step("load_pass(fill_stage",
        Say("cp.async copies the rows of [K](filter) and [V](filter) of keys from {key_tile + (STAGES - 1) * Bc} on, ahead of their turn.", "key_tile + (STAGES - 1) * Bc < key_end"),
        mark("No keys are left to copy ahead.")),
    "q_products": step("q.multiply(p, k)",
        "Keys from {key_tile} on pass by. Each warp computes S = Q Kᵀ and dP = dO Vᵀ of its own queries by mma.sync. For query {warp_query} and key {key_tile}: S = {p[0][0][0]}, dP = {ds[0][0][0]}.", to="out.multiply(ds, v)"),
    "q_P": step(("for (int i = 0; i < BANDS; ++i)", 1),
        "With L = {L[warp_query]}, P[{warp_query}, {key_tile}] = exp({p[0][0][0]} · scale − L) = {exp(p[0][0][0] * scale - L[warp_query])}. dS[{warp_query}, {key_tile}] = P · (dP − D) = {ds[0][0][0]}, with D = {row_d[0][0]}.",
        to="weight * (ds[i][n][e]", lit="exp2_(fmaf"),
    "q_dQ": step("for (int n = 0; n < Bc / 16; ++n)", "dS is rounded to 16 bits in registers. The sum grows by dS K. For query {warp_query}: [dq](output)[0] = {dq[0][0][0]}.", to="add_values(dq", lit="add_values(dq"),
    "q_used": step(("wait_groups<STAGES - 2>()", 1), "All threads wait at a barrier: the next tile is loaded, and this one is used.", to=("__syncthreads();", 1), lit=("__syncthreads();", 1)),
    "q_store": step("store_rows(dQ", "The block stores [dQ](output), its sums times the scale {scale}, rounded to 16 bits. dQ[{warp_query}, 0] = {scale} · {dq[0][0][0]} = {scale * dq[0][0][0]}. No other block writes these rows."),
}


def mma(head: Head, tiles: Tiles) -> View:
    s, Br, pitch = head.s, tiles["Br"], padded(head.s) + PAD
    own, cols = range(min(Br, s.N, MAX_QUERIES)), head.cols

    def tile(name: str, launch: Launch, first: int, note: str = "") -> Shared:
        """Returns the first rows of a tile in shared memory, from row `first` on."""
        matrix = name.rstrip("s0123456789_")
        role, title = "input" if matrix in ("Q", "dO") else "filter", f"tile_{matrix.lower()}"
        return Shared(name, role, title, note, title, of="shared", dtype=INPUT_DTYPE[s.dtype], during=tuple(launch), **box(first * pitch, len(own), len(cols), pitch))

    def passing(left: str, right: str, launch: Launch, kind: int) -> tuple[tuple[Shared, Shared], ...]:
        """Returns the tiles that pass by, of each stage."""
        rows = tensor_cores.passing_rows(s, kind, tiles)
        stages = range(min(tiles["STAGES"], ceil(s.N, rows)))  # that are filled
        notes, firsts = [tr("stage {n}", n=n) for n in stages], [2 * (Br + n * rows) for n in stages]
        return tuple((tile(f"{left}s_{n}", launch, firsts[n], notes[n]), tile(f"{right}s_{n}", launch, firsts[n] + rows, notes[n])) for n in stages)

    def fragments(name: str, role: str, title: str, launch: Launch, width: int, columns: range, turned: bool = False) -> PerThread:
        """Returns a matrix in the registers of the lanes, as mma.sync has it, of `width` columns. `turned`: rows are columns."""
        row, column = f"warp_row + cell // {width // 2} * 16 + cell % 4 // 2 * 8 + lane // 4", f"cell % {width // 2} // 4 * 8 + lane % 4 * 2 + cell % 2"
        place, part = ((column, row), (columns, own)) if turned else ((row, column), (own, columns))
        return PerThread(name, role, title, symbol=title, of={"P": "p", "dS": "ds"}.get(title, title), during=tuple(launch), place=place, part=part)

    queries, keys = (tensor_cores.passing_rows(s, kind, tiles) for kind in (tensor_cores.KEYS, tensor_cores.QUERIES))
    squares = tuple(fragments(f"{n}s", "workspace", n, MMA_KEYS, queries, range(min(queries, s.N, MAX_QUERIES)), turned=True) for n in ("P", "dS"))
    sums = tuple(fragments(n, "output", n, MMA_KEYS, padded(s), cols) for n in ("dv", "dk"))
    of_queries = fragments("q_dSs", "workspace", "dS", MMA_QUERIES, keys, range(min(keys, s.N, MAX_KEYS))), fragments("dq", "output", "dq", MMA_QUERIES, padded(s), cols)
    own_keys, own_queries = (tile("Ks", MMA_KEYS, 0), tile("Vs", MMA_KEYS, Br)), (tile("Qs", MMA_QUERIES, 0), tile("dOs", MMA_QUERIES, Br))
    (first, *more), (q_first, *q_more) = passing("Q", "dO", MMA_KEYS, tensor_cores.KEYS), passing("K", "V", MMA_QUERIES, tensor_cores.QUERIES)
    pass_keys, pass_queries = ((*own_keys, *first), *more), ((*own_queries, *q_first), *q_more)
    groups = (
        ("shared", mark("shared memory of a block of keys"), pass_keys), ("registers", mark("registers of a block of keys"), (squares, sums)),
        ("shared", mark("shared memory of a block of queries"), pass_queries), ("registers", mark("registers of a block of queries"), (of_queries,)),
    )
    return View(
        (*head.tensors(), *(shown for *_, found in groups for row in found for shown in row)),
        (GLOBAL, *(Group(tuple(tuple(shown.name for shown in row) for row in found), space, title) for space, title, found in groups)),
        (DOTS, MMA_KEYS, MMA_QUERIES), (*MOVED, SHARED_BYTES), others=(OTHER_DOTS, OTHER_KEYS, OTHER_QUERIES), order=ORDER,
    )


VIEWS = {"attention-backward/flash": flash, "attention-backward/flash-two-kernels": two_kernels, "attention-backward/flash-mma": mma}
