# fmt: off
"""Attention a row at a time: a block for each query keeps the query's scores in shared memory and replaces them by the weights."""

from __future__ import annotations

import numpy as np

from kernels.attention.shape import SelfAttentionShape
from kernels.i18n import mark, tr
from kernels.model.program import Tiles
from visuals.attention.head import MAX_WHOLE, Head
from visuals.attention.views.unfused import MAX_KEYS, MOVED
from visuals.scene.compiler.view import BLOCK, SHARED_MEMORY, Bytes, PerThread, Say, Shared, View, box, step
from visuals.scene.parts import Annotation, Captions, Group

MAX_QUERIES = 8  # whose blocks are shown one by one
MAX_GROUPS = 8  # of threads, whose sums are shown
SHARED_BYTES = Bytes(mark("bytes to and from shared memory, of the blocks shown"), SHARED_MEMORY, "")
NOTE = mark("The picture shows the blocks one after the other. There is one block per query. All its threads take each step together. On a GPU many blocks run at once. All values are those of the kernel in the emulator.")
STEPS = {
    "q": step("query_row[threadIdx.x] =",
        "The block of query {query} loads row {query} of [Q](input) into shared memory, multiplied by the scale {scale}. Floats loaded: {active}."),
    "scores": step("float score = 0.0f",
        "The {BLOCK // 32} warps take the keys in turn. The lanes of a warp multiply along a row of [K](filter). Shuffles (exchanges between lanes) add their sums. "
        "The row of scores, of length {keys}, is in shared memory. The score of key {key} is {score}. These rows of [K](filter) are read for this query only.",
        to="if (lane == 0) scores[key] = score", lit="score += query_row[dim]", merge=True),
    "max": step("float m = -INFINITE", "The threads find the largest score of query {query}: m = {m}.", to="m = block_reduce<larger>", lit="m = fmaxf(m, scores[key])", merge=True),
    "exp": step("float l = 0.0f",
        "Each score in shared memory is replaced by exp(s − m). For key 0: exp({scores[0] - m}) = {exp(scores[0] - m)}. Their sum is l = {l}.",
        to="l = block_reduce<sum>", lit="l += scores[key] =", merge=True),
    "values": step("float o = 0.0f",
        "The threads form groups with one thread per column, {d} in all. Group g adds rows g, g + {groups}, … of [V](filter), times their weights. "
        "Column 0 of the first group is {o}.",
        to="partial[threadIdx.x] = o", lit="o += scores[key]", merge=True),
    "store": step("for (int group = 1; group < groups",
        Say("[O](output) is complete. Each block read [K](filter) and [V](filter) again, up to {2 * N * d} floats. S and P ({N} × {N} per head) never existed as a whole.", "others == 0 and query == N - 1"),
        "The row of scores is discarded.",
        lead=mark("The sums of the groups are added and divided by l: [O](output)[{query}, 0] = {o} / {l} = {O}. Floats written to global memory: {active}."),
        to="O[threadIdx.x] = o / l", lit="O[threadIdx.x] = o / l", merge=True),
}
OTHERS = mark("The other blocks do the same, {queries} in all. Each reads [K](filter) and [V](filter) again, up to {2 * all * d} floats. S and P ({all} × {all} per head) never existed as a whole.")


def head(s: SelfAttentionShape, tiles: Tiles) -> Head:
    """Returns what is shown of a head: the blocks of the first queries."""
    N, queries = min(s.N, MAX_KEYS), s.N if s.N <= MAX_WHOLE else MAX_QUERIES
    return Head(s, s.with_(B=1, H=1, N=N), range(queries), range(N), range(min(s.d, MAX_WHOLE)), tuple(range(MAX_QUERIES)))


def fused(head: Head, tiles: Tiles) -> View:
    """Returns the view of attention/fused, block after block."""
    (N, d), groups = (head.run.N, head.run.d), tiles["BLOCK"] // head.run.d
    keys, cols = len(head.keys), len(head.cols)
    return View(
        (
            *head.buffers("QKVO"),
            head.never_stored("query", "query", "where(thread < keys, thread, -1)", ("scores", "max", "exp", "values")),
            Shared("query_row", "input", "query_row", mark("times the scale"), of="shared", **box(N, 1, cols, d)),
            Shared("scores", "workspace", "scores", mark("later the weights"), of="shared", **box(0, 1, keys, N)),
            Shared("partial", "output", "partial", mark("one row per group"), of="shared", **box(N + d, min(groups, N, MAX_GROUPS), cols, d), during=("values", "store")),
            *(PerThread(name, "workspace", name, place=("0", "0"), part=(range(1), range(1))) for name in "ml"),
        ),
        (
            Group((("Q", "K", "V", "O"),), "global", mark("global memory")),
            Group((("SP",),)),
            Group((("query_row", "scores"), ("partial",)), "shared", mark("shared memory of the block"), aligned=True),
            Group((("m", "l"),), "registers", mark("registers"), aligned=True),
        ),
        (STEPS,),
        (*MOVED, SHARED_BYTES), group=BLOCK, others=(OTHERS,),
        names={"all": str(head.s.N), "queries": str(head.s.N * head.s.heads)},
        order=(mark("query by query"), NOTE),
    )


def pairs(head: Head, tiles: Tiles) -> Annotation:
    """Returns what is said of each pair of a query and a key."""
    i, j = (index.ravel() for index in np.meshgrid(head.queries, head.keys, indexing="ij"))
    texts = (
        tr("The score of query {0} and key {1}, later their weight, is in shared memory while block {0} runs."),
        tr("Key {1} is after query {0}. Its score is never computed."),
    )
    return Annotation("SP", Captions(texts, ((j > i) & bool(head.s.causal)).astype(int), np.stack([i, j], axis=1)))
