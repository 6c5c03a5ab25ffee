"""Captions of the steps of flash attention, and the kernel's line of each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from visuals.attention.parts import fill_templates
from visuals.attention.plan import Plan
from visuals.scene.recorder import StepKinds

# {0} ... are a step's numbers; names in braces are filled once per rung.
FP32 = MappingProxyType({
    "start": "The block of queries {0} to {1}, one of {2}, brings them into shared memory, each float times {FACTOR}{PADDED}. They stay. Each row "
    "begins with m = −∞, l = 0 and O = 0. We follow query {3}.",
    "K": "Tile {0} of {1}: keys {2} to {3} come from global memory into shared memory, {4} floats of {K}.",
    "K next": "Before this tile's values are added up, the next is asked for: keys {2} to {3}, {4} floats of {K}, over those that are used up.",
    "V": "Tile {0} of {1}: its values come too, {4} floats of {V}. All {ROWS} queries of the block use them: global memory is asked once.",
    "scores": "{OWNER}: the scores of the tile, in registers. Row {0} of {Q} times row {1} of {K} is {2}.",
    "mask causal": "Keys after their query are hidden: those scores become −∞, so that their weights will be 0.",
    "mask end": "There are no keys from {0} on, their rows are zeros: those scores become −∞, so that their weights will be 0.",
    "first max": "Query {0}: the largest score of its first tile is {1}. It becomes m, the running maximum.",
    "max": "Query {0}: the largest score of the tile is {1}. m was {2} and is now {3}.",
    "max hidden": "Query {0} sees no key of this tile: m stays {2}.",
    "first P": "p = {EXP}(s − m), never above 1: for key {1}, {EXP}({2}) = {3}. P goes to shared memory, for this tile alone. The factor for "
    "older sums is {EXP}(−∞) = 0: there are none.",
    "P": "p = {EXP}(s − m), never above 1: for key {1}, {EXP}({2}) = {3}. Older sums of query {0} were made with its old m: they are to shrink "
    "by {EXP}(old m − m) = {EXP}({4}) = {5}.",
    "P same": "p = {EXP}(s − m), never above 1: for key {1}, {EXP}({2}) = {3}. The maximum of query {0} is the old one: the factor for its "
    "older sums is {EXP}(0) = 1.",
    "first l": "l of query {0} is the sum of the tile's p, {3}. Each of the {LANES} threads of a row keeps a part of it.",
    "l": "l of query {0}: the older sum times the factor, plus the tile's p. {1} × {2} + {3} = {4}.",
    "shrink": "{O} so far, not divided by l yet, shrinks by the same factor: query {0}, column 0, from {1} to {2}. Now all is as if m had been "
    "known from the start.",
    "O": "P times {V} of the tile is added: {O} of query {0}, column 0, goes from {1} to {2}. The tile's scores and weights have served.",
    "rest": "The tiles that follow, {0} more up to key {1}, pass in the same way: not shown one by one. m, l and {O} are those after the last.",
    "skip": "The loop ends here: tiles {0} to {1} of {TILES}, keys {2} to {3}, are hidden from all queries of the block. They are never loaded "
    "and never multiplied.",
    "skip one": "The loop ends here: tile {0} of {TILES}, keys {2} to {3}, is hidden from all queries of the block. It is never loaded and never "
    "multiplied.",
    "total": "The {LANES} threads of a row add up their parts of l: for query {0} it is {1}.",
    "store": "Only now all is divided: {O}[{0}, 0] = {3}, which is {1} divided by l = {2}. {4} numbers go to global memory. A kernel that stores S "
    "and P writes {5} bytes more for these queries, and reads them again.",
    "others": "All {0} blocks do the same, many at the same time, on other SMs: {O} is whole. S and P, {SQUARE}, never existed.",
    "end": "{O} is whole. S and P, {SQUARE}, never existed.",
})  # fmt: skip

HALVES = MappingProxyType(FP32 | {
    "start": "The block of queries {0} to {1}, one of {2}, brings them into shared memory, as halves{PADDED}. They stay. Each row begins with m = −∞, "
    "l = 0 and O = 0 in FP32. We follow query {3}.",
    "K": "Tile {0} of {1}: keys {2} to {3} are on their way from global memory into stage {5} of shared memory, {4} halves of {K}.",
    "V": "Tile {0} of {1}: its values too, {4} halves of {V}. Nobody waits for them yet. All {ROWS} queries of the block use them.",
    "first max": "Query {0}: the largest score of its first tile, times {FACTOR}, is {1}. It becomes m, the running maximum.",
    "max": "Query {0}: the largest score of the tile, times {FACTOR}, is {1}. m was {2} and is now {3}: older sums are to shrink by "
    "2^(old m − m) = {4}.",
    "first P": "p = 2^({F} · s − m), never above 1: for key {1}, 2^({2}) = {3}, rounded to a half. P never goes to memory: mma.sync takes "
    "it from the registers in which it is made.",
    "P": "p = 2^({F} · s − m), never above 1: for key {1}, 2^({2}) = {3}, rounded to a half. P never goes to memory.",
    "P same": "p = 2^({F} · s − m), never above 1: for key {1}, 2^({2}) = {3}, rounded to a half. P never goes to memory.",
    "first l": "l of query {0} is the sum of the tile's p before they are rounded. Each of the {LANES} lanes of a row keeps a part of it: in all {4}.",
    "l": "l of query {0}: the older sum times the factor, plus the tile's p before they are rounded. From {1} to {4}.",
    "total": "The {LANES} lanes of a row add up their parts of l: for query {0} it is {1}.",
})  # fmt: skip

_OWNERS = MappingProxyType({
    "attention/flash": "Each thread multiplies one row of {Q} by one of {K}",
    "attention/flash-registers": "Each lane multiplies {TM} rows of {Q} by {TN} of {K}",
    "attention/flash-mma": "Each warp multiplies its rows of {Q} by all of {K}, 16 columns at once, on the tensor cores",
})  # fmt: skip


def _lines(**marks: str) -> Mapping[str, str]:
    """Returns a text of the kernel's line for each kind of step; several kinds share one."""
    marks |= {f"first {kind}": marks[kind] for kind in ("max", "P", "l")} | {
        "max hidden": marks["max"],
        "P same": marks["P"],
    }
    marks |= {
        "rest": "for (int key_tile",
        "skip": "for (int key_tile",
        "skip one": "for (int key_tile",
        "others": marks["store"],
        "end": marks["store"],
    }
    return MappingProxyType({kind.replace("_", " "): line for kind, line in marks.items()})


LINES = MappingProxyType({
    "attention/flash": _lines(
        start="tile_q[i / DP][dim] =", K="tile_k[i / DP][dim] =", K_next="tile_k[i / DP][dim] =", V="tile_v[i / DP][dim] =",
        scores="s += tile_q[thread_row][dim]",
        mask_causal="s = -INFINITE;", mask_end="s = -INFINITE;", max="new_m = fmaxf(new_m, m);", P="p = expf(", l="l = l * rescale + p",
        shrink="o[n] *= rescale", O="o[n] += tile_p", total="l += __shfl_xor_sync", store="= o[n] / l",
    ),
    "attention/flash-registers": _lines(
        start="*(float4*)&tile_q[row][dim] = q", K="load_tile<DP + 4>(tile_k[0], K, N", K_next="load_tile<DP + 4>(tile_k[0], K + (size_t)",
        V="load_tile<DP>(tile_v[0]",
        scores="s[i][n] += q[i].x", mask_causal="s[i][n] = -INFINITE", mask_end="s[i][n] = -INFINITE", max="m[i] = new_m",
        P="p = exp2_(", l="l[i] += p", shrink="o[i][n] *= rescale", O="o[i][n] += p[i][k]", total="l[i] += __shfl_xor_sync",
        store="store4(O, O",
    ),
    "attention/flash-mma": _lines(
        start="load_tile<Br>(tile_q", K="load_tile<Bc>(tile_k", K_next="load_tile<Bc>(tile_k", V="load_tile<Bc>(tile_v", scores="add_scores(s",
        mask_causal="hide_keys(s", mask_end="hide_keys(s", max="update_maxima(s", P="compute_weights(p", l="compute_weights(p", shrink="scale_rows(o", O="add_values(o",
        total="sum += __shfl_xor_sync", store="store_row(O",
    ),
})  # fmt: skip


def templates_of(plan: Plan, N: int, d: int, factor: float) -> StepKinds:
    """Returns the templates of a rung, each with the number of its line in `list(LINES[rung])`."""
    templates = HALVES if plan.halves else FP32
    templates = templates | {"scores": templates["scores"].replace("{OWNER}", _OWNERS[plan.rung])}
    name = "scale · log2 e" if plan.binary else "the scale"
    values = {
        "EXP": "2^" if plan.binary else "exp", "F": f"{factor:.4g}", "FACTOR": f"{name}, {factor:.4g}", "ROWS": plan.Br,
        "LANES": plan.lanes, "TN": plan.Bc // plan.lanes, "TM": plan.Br * plan.lanes // plan.threads,
        "TILES": -(-N // plan.Bc), "SQUARE": f"{N:,} × {N:,} for each head", "PADDED": f", rows filled up to {plan.DP} with zeros" if d < plan.DP else "",
    }  # fmt: skip
    kinds = list(LINES[plan.rung])
    return fill_templates(templates, {kind: kinds.index(kind) for kind in templates}, values)
