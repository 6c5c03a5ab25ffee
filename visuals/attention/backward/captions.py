"""What the stage says at each step of attention's backward pass, and the line of the kernel that each step lights."""

from __future__ import annotations

from collections.abc import Mapping

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import mark, tr
from visuals.attention.backward.plan import ATOMIC, MMA, TWO, Plan
from visuals.scene.recorder import StepKinds
from visuals.scene.source import Mark

NAMES = {
    "Q": "[Q](input)",
    "K": "[K](filter)",
    "V": "[V](filter)",
    "O": "[O](input)",
    "dO": "[dO](input)",
    "P": "[P](workspace)",
    "dS": "[dS](workspace)",
    "L": "[L](input)",
    "D": "[D](workspace)",
    "dQ": "[dQ](output)",
    "dK": "[dK](output)",
    "dV": "[dV](output)",
}

DOTS = {
    "dots": mark("First launch: {D} is the row sum of {dO} times {O}, one warp per query. For query 0: {0}."),
    "zero": mark("Second launch: {dQ} is filled with zeros, because the blocks will add to it."),
}
KEYS = {
    "own": mark(
        "The block owns keys {0} to {1} and loads their rows of {K} and {V}. Its sums of dK and dV begin at 0. All {2} queries will pass by."
    ),
    "own-later": mark(
        "The block owns keys {0} to {1} and loads their rows of {K} and {V}. Earlier queries do not see its keys: it begins with query {2}."
    ),
    "load": mark("Queries {0} to {1} pass by: their rows of {Q} and {dO} are copied to shared memory."),
    "loaded": mark("All threads wait at a barrier: the rows of queries {0} to {1} are loaded."),
    "P": mark(
        "Half of the warps compute {P} again. P[{0}, {1}] = exp({2} · scale − L) = exp({3}) = {4}, with L = {5}."
    ),
    "P-there": mark("All threads wait at a barrier: the other half of the warps reads {P}."),
    "dS": mark("The other warps have computed dP = dO Vᵀ. dS[{0}, {1}] = P · (dP − D) = {2} · ({3} − {4}) = {5}."),
    "sums": mark(
        "The sums grow: dV by Pᵀ dO and dK by dSᵀ Q, over queries {0} to {1}. For key {2}: dV[{2}, 0] = {3}, dK[{2}, 0] = {4}."
    ),
    "dS-there": mark("All threads wait at a barrier: {dS} is complete."),
    "used": mark("All threads wait at a barrier: {Q} and {dO} of this tile are used."),
    "dQ": mark("All warps multiply {dS} with {K}. The part is added atomically to {dQ}: dQ[{0}, 0] = {1} + {2} = {3}."),
    "more": mark(
        "Queries {0} to {1} pass by in the same way, {2} per tile. For key {3}: dV[{3}, 0] = {4}, dK[{3}, 0] = {5}."
    ),
    "store": mark("The block stores {dV}, and {dK} times the scale {0}. dK[{1}, 0] = {0} · {2} = {3}."),
    "others": mark("The other blocks of keys do the same, {0} in all. {dK} and {dV} are complete."),
    "only": mark("{dK} and {dV} are complete."),
    "all-others": mark(
        "The other blocks of keys do the same, {0} in all. {dQ} is complete when all blocks have added their parts."
    ),
    "all": mark("{dQ}, {dK} and {dV} are complete. Neither P nor dS was ever stored in global memory."),
}
QUERIES = {
    "q-own": mark(
        "Next launch, for {dQ}: the block owns queries {0} to {1} and loads their rows of {Q} and {dO}. Now the keys pass by."
    ),
    "q-load": mark("Keys {0} to {1} pass by: their rows of {K} and {V} are copied to shared memory."),
    "q-loaded": mark("All threads wait at a barrier: the rows of keys {0} to {1} are loaded."),
    "q-P": mark("{P} is computed once more. P[{0}, {1}] = exp({2} · scale − L) = exp({3}) = {4}, with L = {5}."),
    "q-dS": mark("dP = dO Vᵀ, and dS[{0}, {1}] = P · (dP − D) = {2} · ({3} − {4}) = {5}."),
    "q-dS-there": mark("All threads wait at a barrier: {dS} is there, and {V} of this tile is used."),
    "q-dQ": mark("The sum grows by dS K over keys {0} to {1}. For query {2}: dq[0] = {3}."),
    "q-used": mark("All threads wait at a barrier: {K} of this tile is used."),
    "q-more": mark("Keys {0} to {1} pass by in the same way, {2} per tile. For query {3}: dq[0] = {4}."),
    "q-store": mark(
        "The block stores {dQ}, its sums times the scale {0}. dQ[{1}, 0] = {0} · {2} = {3}. No other block writes these rows."
    ),
    "q-others": mark(
        "The other blocks of queries do the same, {0} in all. {dQ} is complete. Neither P nor dS was ever stored in global memory."
    ),
    "q-only": mark("{dQ} is complete. Neither P nor dS was ever stored in global memory."),
}
ON_TENSOR_CORES = {  # where the kernels on tensor cores differ
    "load": mark(
        "Queries {0} to {1} pass by. cp.async copied their rows of {Q} and {dO} to shared memory ahead of their turn."
    ),
    "loaded": mark(
        "All threads wait at a barrier: the first rows are loaded. The next tile is copied while this one is used."
    ),
    "q-load": mark(
        "Keys {0} to {1} pass by. cp.async copied their rows of {K} and {V} to shared memory ahead of their turn."
    ),
    "q-loaded": mark(
        "All threads wait at a barrier: the first rows are loaded. The next tile is copied while this one is used."
    ),
    "P": mark(
        "Each warp computes Pᵀ of its own keys by mma.sync. P[{0}, {1}] = exp({2} · scale − L) = exp({3}) = {4}, with L = {5}."
    ),
    "dS": mark("The same warp computes dPᵀ = V dOᵀ. dS[{0}, {1}] = P · (dP − D) = {2} · ({3} − {4}) = {5}."),
    "sums": mark(
        "P and dS are rounded to 16 bits in registers. dV grows by Pᵀ dO, dK by dSᵀ Q. For key {2}: dV[{2}, 0] = {3}, dK[{2}, 0] = {4}."
    ),
    "used": mark("All threads wait at a barrier: the next tile is loaded, and this one is used."),
    "q-P": mark(
        "Each warp computes P of its own queries once more. P[{0}, {1}] = exp({2} · scale − L) = exp({3}) = {4}, with L = {5}."
    ),
    "q-used": mark("All threads wait at a barrier: the next tile is loaded, and this one is used."),
}

_DOTS_LINES = {"dots": (0, "if (lane == 0) D[row]")}
_OWN_KEYS = {
    "own": "load_tile<Bc>(tile_k",
    "own-later": "first_query = causal",
    "load": "load_tile<Br>(tile_q",
    "loaded": ("__syncthreads();", 0),
    "P": "tile_p[query * PITCH_P + key] =",
    "P-there": ("__syncthreads();", 1),
    "dS": "tile_ds[place] =",
    "sums": "add_columns(sums",
    "store": "store_sums(Y",
    "more": "query_tile += Br",
}
_OWN_QUERIES = {
    "q-own": "load_tile<Br>(tile_q",
    "q-load": "load_tile<Bc>(tile_k",
    "q-loaded": ("__syncthreads();", 0),
    "q-P": "visible ? p[i][n]",
    "q-dS": "p[i][n] * (dp[i][n]",
    "q-dS-there": ("__syncthreads();", 1),
    "q-dQ": "dq[i][n] += ds[i][k]",
    "q-used": ("__syncthreads();", 2),
    "q-more": "key_tile += Bc",
    "q-store": "store4(dQ",
    "q-others": "store4(dQ",
    "q-only": "store4(dQ",
}
_MMA_KEYS = {
    "own": "load_tile<Br>(tile_k",
    "own-later": "first_query = causal",
    "load": "load_tile<Bc>(tile_q",
    "P": "weight = exp2_(",
    "dS": "weight * (ds[i][n][e]",
    "sums": "add_values(dk",
    "used": ("__syncthreads();", 1),
    "more": "query_tile += Bc",
    "store": "store_rows(dK",
    "others": "store_rows(dK",
    "only": "store_rows(dK",
    "loaded": "__syncthreads();",
}
_MMA_QUERIES = {
    "q-own": "load_tile<Br>(tile_q",
    "q-load": "load_tile<Bc>(tile_k",
    "q-P": "exp2_(fmaf",
    "q-dS": "weight * (ds[i][n][e]",
    "q-dQ": "add_values(dq",
    "q-used": ("__syncthreads();", 1),
    "q-more": "key_tile += Bc",
    "q-store": "store_rows(dQ",
    "q-others": "store_rows(dQ",
    "q-only": "store_rows(dQ",
    "q-loaded": "__syncthreads();",
}
_STORED = dict.fromkeys(("others", "only", "all-others", "all"), "store_sums(Y")

Lines = Mapping[str, tuple[int, Mark]]  # kind of step: (number of the launch, its line)


def _of(launch: int, lines: Mapping[str, Mark]) -> Lines:
    return {kind: (launch, line) for kind, line in lines.items()}


LINES: Mapping[str, Lines] = {
    ATOMIC: {
        **_DOTS_LINES,
        "zero": (1, "y[i] = 0"),
        **_of(2, {**_OWN_KEYS, "dS-there": ("__syncthreads();", 2), "dQ": "atomicAdd(", **_STORED}),
    },
    TWO: {**_DOTS_LINES, **_of(1, {**_OWN_KEYS, "used": ("__syncthreads();", 2), **_STORED}), **_of(2, _OWN_QUERIES)},
    MMA: {**_DOTS_LINES, **_of(1, _MMA_KEYS), **_of(2, _MMA_QUERIES)},
}


def templates_of(plan: Plan, s: AttentionBackwardShape) -> StepKinds:
    """Returns the kinds of step of a rung in an order that numbers them, with their captions. The mark is the number itself:
    the lit lines of several files are found by `visuals.attention.backward.parts.sources_of`."""
    words = {**DOTS, **KEYS, **QUERIES} | (ON_TENSOR_CORES if plan.halves else {})
    kinds = LINES[plan.rung]
    return {kind: (n, tr(words[kind], **NAMES)) for n, kind in enumerate(kinds)}
