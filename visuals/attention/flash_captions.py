"""Captions of the steps of flash attention, and the kernel's line of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kernels.attention.shape import SelfAttentionShape
from kernels.i18n import mark, tr
from visuals.attention.parts import fill_templates
from visuals.attention.plan import LSE, Plan
from visuals.scene.recorder import StepKinds
from visuals.scene.source import Mark

# {0} ... are a step's numbers; names in braces are filled once per rung.
FP32 = MappingProxyType({
    "start": mark("The block of queries {0} to {1} loads its rows of {Q} into shared memory, multiplied by {FACTOR}.{PADDED} Each row "
    "starts with m = −∞, l = 0 and O = 0. The captions follow query {3}."),
    "K": mark("Tile {0} of {1}: the block loads keys {2} to {3} from global memory into shared memory. Floats of {K} loaded: {4}."),
    "K-next": mark("The copy of keys {2} to {3} of the next tile starts before this tile's values are added. It overwrites the keys of this tile. "
    "Floats of {K} copied: {4}."),
    "V": mark("Tile {0} of {1}: the block also loads the values of these keys. Floats of {V} loaded: {4}. All queries of the block use the tile. "
    "It is loaded once per block."),
    "barrier": mark("Barrier: every thread of the block waits until all copies of tile {0} are complete."),
    "barrier-done": mark("Barrier: every thread waits until all threads have used tile {0}. Only then may new keys and values overwrite it."),
    "mask-causal": mark("Keys after their query are hidden. Their scores become −∞, so their weights become 0."),
    "mask-end": mark("Keys {0} and later do not exist. Their rows in the tile are zeros. Their scores become −∞, so their weights become 0."),
    "first-max": mark("Query {0}: the largest score of its first tile is {1}. This is m, the running maximum."),
    "max": mark("Query {0}: the largest score of this tile is {1}. The running maximum m was {2} and is now {3}."),
    "max-hidden": mark("Query {0} sees no key of this tile. Its m stays {2}."),
    "first-P": mark("The weights are p = {EXP}(s − m), at most 1. For key {1}: {EXP}({2}) = {3}. P is in shared memory for this tile only. "
    "There are no older sums: their factor is {EXP}(−∞) = 0."),
    "P": mark("The weights are p = {EXP}(s − m), at most 1. For key {1}: {EXP}({2}) = {3}. The older sums of query {0} used its old m. "
    "Their factor is {EXP}(old m − m) = {EXP}({4}) = {5}."),
    "P-same": mark("The weights are p = {EXP}(s − m), at most 1. For key {1}: {EXP}({2}) = {3}. The maximum of query {0} has not changed. "
    "The factor of its older sums is {EXP}(0) = 1."),
    "first-l": mark("l of query {0} is the sum of its p in this tile: {3}. Each of the {LANES} threads of a row holds a part of it."),
    "l": mark("l of query {0} is the older sum times the factor, plus the p of this tile: {1} × {2} + {3} = {4}."),
    "shrink": mark("The earlier sums in {O} are multiplied by the same factor. Query {0}, column 0: from {1} to {2}. They now match the new maximum. "
    "{O} is divided by l only at the end."),
    "O": mark("P of this tile times {V} is added to {O}. Query {0}, column 0: from {1} to {2}. The scores and weights of this tile are no longer "
    "needed."),
    "rest": mark("The block processes {0} more tiles in the same way, up to key {1}. They are not shown one by one. m, l and {O} are now those "
    "after the last tile."),
    "rest-one": mark("The block processes one more tile in the same way, up to key {1}. Its steps are not shown. m, l and {O} are now those after "
    "this tile."),
    "skip": mark("The loop ends here. Tiles {0} to {1} of {TILES}, keys {2} to {3}, are hidden from all queries of the block. They are not loaded "
    "and not multiplied."),
    "skip-one": mark("The loop ends here. Tile {0} of {TILES}, keys {2} to {3}, is hidden from all queries of the block. It is not loaded and not "
    "multiplied."),
    "total": mark("The {LANES} threads of a row add their parts of l. For query {0}: l = {1}."),
    "store": mark("Now {O} is divided by l: {O}[{0}, 0] = {1} / {2} = {3}. Numbers written to global memory: {4}. Storing S and P "
    "would write {5} bytes more, and read them again."),
    "others": mark("All {0} blocks do the same, many at once on different SMs (multiprocessors). {O} is complete. S and P ({SQUARE} per head) never existed as a whole."),
    "end": mark("{O} is complete. S and P ({SQUARE} per head) never existed as a whole."),
})  # fmt: skip

REGISTERS = MappingProxyType(
    FP32
    | {
        "barrier": mark(
            "Barrier: every thread waits until {K} of tile {0} is complete, and until all threads have used the values before it."
        ),
        "barrier-done": mark(
            "Barrier: every thread waits until {V} and P of tile {0} are complete, and until all threads have used its keys."
        ),
    }
)

HALVES = MappingProxyType(FP32 | {
    "barrier": mark("Barrier: every thread waits until {Q} and tile {0} are complete in shared memory."),
    "barrier-done": mark("Barrier: every thread waits until all warps have used tile {0}, and until the copy of the next one is complete."),
    "barrier-last": mark("Barrier: every thread waits until all warps have used tile {0}."),
    "start": mark("The block of queries {0} to {1} loads its rows of {Q} into shared memory, as 16-bit numbers.{PADDED} Each row starts "
    "with m = −∞, l = 0 and O = 0 in FP32. The captions follow query {3}."),
    "K": mark("Tile {0} of {1}: the copy of keys {2} to {3} from global memory to buffer {5} of shared memory starts. 16-bit numbers of {K} "
    "copied: {4}."),
    "V": mark("Tile {0} of {1}: the copy of its values starts too. 16-bit numbers of {V} copied: {4}. The threads wait for both copies only before "
    "they use the tile. It is loaded once per block."),
    "first-max": mark("Query {0}: the largest score of its first tile, times {FACTOR}, is {1}. This is m, the running maximum."),
    "max": mark("Query {0}: the largest score of this tile, times {FACTOR}, is {1}. The running maximum m was {2} and is now {3}. The factor of the "
    "older sums is 2^(old m − m) = {4}."),
    "first-P": mark("The weights are p = 2^({F} · s − m), at most 1. For key {1}: 2^({2}) = {3}, rounded to 16 bits. P stays in registers: "
    "mma.sync reads it there."),
    "P": mark("The weights are p = 2^({F} · s − m), at most 1. For key {1}: 2^({2}) = {3}, rounded to 16 bits. P stays in registers."),
    "P-same": mark("The weights are p = 2^({F} · s − m), at most 1. For key {1}: 2^({2}) = {3}, rounded to 16 bits. P stays in registers."),
    "first-l": mark("l of query {0} is the sum of its p in this tile, before rounding: {4}. Each of the {LANES} lanes of a row holds a part of it."),
    "l": mark("l of query {0} is the older sum times the factor, plus the p of this tile before rounding. It changes from {1} to {4}."),
    "total": mark("The {LANES} lanes of a row add their parts of l. For query {0}: l = {1}."),
})  # fmt: skip

LSE_STEP = mark(
    "The first lane of a row stores [L](output) = (m + log2 l) · ln 2, the logarithm of the sum of exponentials. m is kept for powers of "
    "2. For query {0}: ({1} + {2}) · 0.6931 = {3}. Numbers written: {4}."
)

# Whole rows are stored in shared memory, but at most the columns of Q are drawn.
PADDED = mark("Columns up to {DP} are filled with zeros (not drawn).")

_SCORES_IN_REGISTERS = mark(
    "Each lane (thread of a warp) computes {TM} × {TN} of the scores of the tile and keeps them in registers. The score of query {0} "
    "and key {1} is {2}."
)
_SCORES = MappingProxyType(
    {
        "attention/flash": mark(
            "Each thread computes one of the scores of the tile, a row of {Q} times a row of {K}. It keeps the score in a register. "
            "The score of query {0} and key {1} is {2}."
        ),
        "attention/flash-registers": _SCORES_IN_REGISTERS,
        LSE: _SCORES_IN_REGISTERS,
        "attention/flash-mma": mark(
            "Each warp computes its rows of the scores of the tile on the tensor cores, 16 columns of {Q} and {K} at a time. It "
            "keeps them in registers. The score of query {0} and key {1} is {2}, before it is multiplied by {FACTOR}."
        ),
    }
)


def _lines(**marks: Mark) -> Mapping[str, Mark]:
    """Returns a text of the kernel's line for each kind of step; several kinds share one."""
    marks |= {f"first-{kind}": marks[kind] for kind in ("max", "P", "l")} | {
        "max-hidden": marks["max"],
        "P-same": marks["P"],
    }
    marks |= {
        "rest": "for (int key_tile",
        "rest-one": "for (int key_tile",
        "skip": "for (int key_tile",
        "skip-one": "for (int key_tile",
        "others": marks["store"],
        "end": marks["store"],
    }
    return MappingProxyType({kind.replace("_", "-"): line for kind, line in marks.items()})


LINES = MappingProxyType({
    "attention/flash": _lines(
        barrier=("__syncthreads();", 0), barrier_done=("__syncthreads();", 1),
        start="tile_q[i / DP][dim] =", K="tile_k[i / DP][dim] =", K_next="tile_k[i / DP][dim] =", V="tile_v[i / DP][dim] =",
        scores="s += tile_q[thread_row][dim]",
        mask_causal="s = -INFINITE;", mask_end="s = -INFINITE;", max="new_m = fmaxf(new_m, m);", P="p = expf(", l="l = l * rescale + p",
        shrink="o[n] *= rescale", O="o[n] += tile_p", total="l += __shfl_xor_sync", store="= o[n] / l",
    ),
    "attention/flash-registers": _lines(
        barrier=("__syncthreads();", 0), barrier_done=("__syncthreads();", 1),
        start="*(float4*)&tile_q[row][dim] = q", K="load_tile<DP + 4>(tile_k[0], K, N", K_next="load_tile<DP + 4>(tile_k[0], K + (size_t)",
        V="load_tile<DP>(tile_v[0]",
        scores="s[i][n] += q[i].x", mask_causal="s[i][n] = -INFINITE", mask_end="s[i][n] = -INFINITE", max="m[i] = new_m",
        P="p = exp2_(", l="l[i] += p", shrink="o[i][n] *= rescale", O="o[i][n] += p[i][k]", total="l[i] += __shfl_xor_sync",
        store="store4(O, O",
    ),
    "attention/flash-mma": _lines(
        barrier=("__syncthreads();", 0), barrier_done=("__syncthreads();", 1), barrier_last=("__syncthreads();", 1),
        start="load_tile<Br>(tile_q", K="load_tile<Bc>(tile_k", K_next="load_tile<Bc>(tile_k", V="load_tile<Bc>(tile_v", scores="add_scores(s",
        mask_causal="hide_keys(s", mask_end="hide_keys(s", max="update_maxima(s", P="compute_weights(p", l="compute_weights(p", shrink="scale_rows(o", O="add_values(o",
        total="sum += __shfl_xor_sync", store="store_row(O",
    ),
})  # fmt: skip


LINES = MappingProxyType({**LINES, LSE: {**LINES["attention/flash-registers"], "L": "L[query] ="}})


def templates_of(plan: Plan, s: SelfAttentionShape, factor: float) -> StepKinds:
    """Returns the templates of a rung at a shape, each with the number of its line in `list(LINES[rung])`."""
    templates = (HALVES if plan.halves else REGISTERS if plan.binary else FP32) | {"scores": _SCORES[plan.rung]}
    if plan.rung == LSE:
        templates |= {"L": LSE_STEP}
    scale = "|scale|" if plan.halves and s.factor < 0 else "scale"  # the sign goes to Q
    values = {
        "EXP": "2^" if plan.binary else "exp",
        "F": f"{factor:.4g}",
        "LANES": plan.lanes,
        "TN": plan.Bc // plan.lanes,
        "FACTOR": f"{scale} · log2 e = {factor:.4g}" if plan.binary else f"scale = {factor:.4g}",
        "TM": plan.Br * plan.lanes // plan.threads,
        "TILES": -(-s.N // plan.Bc),
        "SQUARE": f"{s.N:,} × {s.N:,}",
        "PADDED": " " + tr(PADDED, DP=plan.DP) if s.d < plan.DP else "",
    }
    kinds = list(LINES[plan.rung])
    return fill_templates(templates, {kind: kinds.index(kind) for kind in templates}, values)
