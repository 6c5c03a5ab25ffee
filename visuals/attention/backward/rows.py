"""The backward pass a row at a time as a scene: a block owns one key and computes its column of P and dS again, in shared
memory. A second launch does the same for the row of each query."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import mark, tr
from kernels.ladders import find
from visuals.attention.backward.captions import NAMES
from visuals.attention.backward.numbers import fma, row_dots
from visuals.attention.backward.parts import global_group, in_global, sources_of, tile
from visuals.attention.parts import grid, scene_key
from visuals.scene.parts import Group, Reading, Tensor
from visuals.scene.recorder import Recorder
from visuals.scene.requests import WORD
from visuals.scene.scene import Scene

MAX_ROWS, MAX_COLS, MAX_GROUPS = 32, 8, 8
ORDER_NOTE = mark(
    "The picture shows the first key and the last one, then one query. All threads of a block take each step together. On a GPU many blocks "
    "run at once."
)
_KINDS = MappingProxyType({  # kind of step: (number of the launch, its line, words)
    "dots": (0, "if (lane == 0) D[row]", mark("First launch: {D} is the row sum of {dO} times {O}, one warp per query. For query 0: {0}.")),
    "own": (1, "key_row[threadIdx.x] = K", mark("The block owns key {0} and loads its row of {K} and of {V} into shared memory.")),
    "own-there": (1, "__syncthreads();", mark("All threads wait at a barrier: the rows of key {0} are loaded.")),
    "column": (1, "weights[query] = p", mark("Each warp takes a query and computes {P} and {dS} again. For query {1}: P = exp({2} − {3}) = {4}, dS = {4} · ({5} − {6}) = {7}.")),
    "column-there": (1, ("__syncthreads();", 1), mark("All threads wait at a barrier: the columns of {P} and {dS} are complete.")),
    "sums": (1, "dv = weighted_sum(", mark("Each group has {0} threads, one per column. Group g adds rows g, g + {1}, … of {dO} and {Q}, times P and dS. The first group has {2} for dV[{3}, 0].")),
    "sums-there": (1, ("__syncthreads();", 2), mark("All threads wait at a barrier: the sums of all groups are in shared memory.")),
    "store": (1, "dV[row + threadIdx.x] =", mark("The sums of the groups are added and stored: {dV}[{0}, 0] = {1}, and {dK}[{0}, 0] = {2} · {3} = {4}.")),
    "others": (1, "dV[row + threadIdx.x] =", mark("The other blocks do the same, {0} in all. Each reads {Q} and {dO} again. {dK} and {dV} are complete.")),
    "q-own": (2, "query_row[threadIdx.x] = Q", mark("Next launch, for {dQ}: the block owns query {0} and loads its row of {Q} and of {dO}.")),
    "q-own-there": (2, "__syncthreads();", mark("All threads wait at a barrier: the rows of query {0} are loaded.")),
    "row": (2, "gradients[key] = p", mark("Each warp takes a key and computes {dS} once more. For key {1}: P = exp({2} − {3}) = {4}, dS = {4} · ({5} − {6}) = {7}.")),
    "row-there": (2, ("__syncthreads();", 1), mark("All threads wait at a barrier: the row of {dS} is complete.")),
    "q-sums": (2, "partial[threadIdx.x] = weighted_sum", mark("Each group has {0} threads, one per column. Group g adds rows g, g + {1}, … of {K}, times dS. The first group has {2}.")),
    "q-sums-there": (2, ("__syncthreads();", 2), mark("All threads wait at a barrier: the sums of all groups are in shared memory.")),
    "q-store": (2, "dQ[row + threadIdx.x] =", mark("The sums of the groups are added and stored: {dQ}[{0}, 0] = {1} · {2} = {3}.")),
    "q-others": (2, "dQ[row + threadIdx.x] =", mark("The other blocks do the same, {0} in all. {dQ} is complete. P and dS never existed as a whole.")),
})  # fmt: skip


def rows_scene(s: AttentionBackwardShape, rung: str, tiles: Mapping[str, int], head: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of attention-backward/recompute. head: Q, K, V, dO, O float32 [N, d] and L [N]."""
    rows = Rows(s, tiles["BLOCK"], head)
    rows.run()
    r = rows.r
    lines = {kind: (launch, line) for kind, (launch, line, _) in _KINDS.items()}
    source, later = sources_of(r, find(rung).build(s, tiles).launches, lines)
    labels = {"read": tr("bytes loaded by the followed blocks"), "written": tr("bytes of gradients stored")}
    return Scene(
        key=scene_key(s, rung, tiles),
        title=tr(find(rung).title),
        tensors=rows.tensors(),
        groups=rows.groups(),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr("explaining order"),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        reads=r.reads(),
        readings=tuple(Reading(label, r.so_far(name), "predicted") for name, label in labels.items()),
        captions=r.captions(),
        source=source,
        next_sources=later,
    )


class Rows:
    """The steps of two blocks of keys and of one of queries."""

    def __init__(self, s: AttentionBackwardShape, block: int, head: Mapping[str, np.ndarray]):
        self.s, self.head, self.count = s, head, block // s.d
        self.rows, self.cols = min(s.N, MAX_ROWS), min(s.d, MAX_COLS)
        self.groups_shown = min(self.count, s.N, MAX_GROUPS)
        self.scale = np.float32(s.factor)
        self.D = row_dots(head["dO"], head["O"])
        words = {kind: (n, tr(text, **NAMES)) for n, (kind, (*_, text)) in enumerate(_KINDS.items())}
        self.r = Recorder(words)

    def run(self) -> None:
        s, r, N = self.s, self.r, self.s.N
        r.step("dots", self.D[0])
        r.look("dO", np.arange(self.rows * self.cols))
        r.look("O", np.arange(self.rows * self.cols))
        r.put("D", self.D[: self.rows])
        followed = sorted({0, N - 1 if self.rows >= N else 0})
        for key in followed:
            self.key(key)
        r.step("others", N * s.heads)
        for key in set(range(self.rows)) - set(followed):
            dV, dK = (x.sum(axis=0, dtype=np.float32) for x in self.of_key(key)[-2:])
            self.store({"dV": dV, "dK": self.scale * dK}, key)
        query = self.rows - 1 if s.causal else 0
        self.query(query)
        r.step("q-others", N * s.heads)
        for other in set(range(self.rows)) - {query}:
            self.store({"dQ": self.scale * self.of_query(other)[-1].sum(axis=0, dtype=np.float32)}, other)

    # -- numbers ------------------------------------------------------------------------------------
    def of_key(self, key: int) -> tuple:
        """Returns (queries, scores, P, dP, dS, parts of dV, parts of dK) of a key; parts are float32 [groups, d]."""
        head, queries = self.head, np.arange(key if self.s.causal else 0, self.s.N)
        products = row_dots(head["Q"][queries], np.broadcast_to(head["K"][key], (len(queries), self.s.d)))
        scores = self.scale * products
        P = np.exp(scores - head["L"][queries])
        dP = row_dots(head["dO"][queries], np.broadcast_to(head["V"][key], (len(queries), self.s.d)))
        dS = P * (dP - self.D[queries])
        parts = (self.parts(P, head["dO"][queries]), self.parts(dS, head["Q"][queries]))
        return (queries, scores, P, dP, dS, *parts)

    def of_query(self, query: int) -> tuple:
        """Returns (keys, scores, P, dP, dS, parts of dQ) of a query."""
        head, keys = self.head, np.arange(query + 1 if self.s.causal else self.s.N)
        scores = self.scale * row_dots(head["K"][keys], np.broadcast_to(head["Q"][query], (len(keys), self.s.d)))
        P = np.exp(scores - head["L"][query])
        dP = row_dots(head["V"][keys], np.broadcast_to(head["dO"][query], (len(keys), self.s.d)))
        dS = P * (dP - self.D[query])
        return keys, scores, P, dP, dS, self.parts(dS, head["K"][keys])

    def parts(self, weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Returns the groups' sums, float32 [groups, d]: group g adds rows g, g + groups, ..."""
        sums = np.zeros((self.count, self.s.d), np.float32)
        for first in range(0, len(rows), self.count):
            some = rows[first : first + self.count]
            sums[: len(some)] = fma(weights[first : first + len(some), None], some, sums[: len(some)])
        return sums

    # -- a block ------------------------------------------------------------------------------------
    def key(self, key: int) -> None:
        r, s, cols = self.r, self.s, self.cols
        queries, scores, P, dP, dS, dV, dK = self.of_key(key)
        r.step("own", key, read=2 * WORD * s.d)
        r.copy("key", "K", grid([key], range(cols), cols))
        r.copy("value", "V", grid([key], range(cols), cols))
        r.step("own-there", key)
        first = int(queries[0])
        args = key, first, scores[0], self.head["L"][first], P[0], dP[0], self.D[first], dS[0]
        r.step("column", *args, read=len(queries) * (2 * WORD * s.d + 2 * WORD))
        self.column({"weights": P, "gradients": dS}, queries)
        self.look(("Q", "dO"), queries)
        r.step("column-there")
        r.step("sums", s.d, self.count, dV[0, 0], key, read=len(queries) * 2 * WORD * s.d)
        self.look(("Q", "dO"), queries)
        r.put("partV", dV[: self.groups_shown, :cols])
        r.put("partK", dK[: self.groups_shown, :cols])
        r.step("sums-there")
        dV_row, dK_row = (x.sum(axis=0, dtype=np.float32) for x in (dV, dK))
        args = key, dV_row[0], s.factor, dK_row[0], self.scale * dK_row[0]
        r.step("store", *args, written=2 * WORD * s.d)
        for name in ("partV", "partK"):
            r.look(name, np.arange(self.groups_shown * cols))
        self.store({"dV": dV_row, "dK": self.scale * dK_row}, key)

    def query(self, query: int) -> None:
        r, s, cols = self.r, self.s, self.cols
        keys, scores, P, dP, dS, dQ = self.of_query(query)
        r.step("q-own", query, read=2 * WORD * s.d + 2 * WORD)
        r.copy("key", "Q", grid([query], range(cols), cols))
        r.copy("value", "dO", grid([query], range(cols), cols))
        r.step("q-own-there", query)
        args = query, 0, scores[0], self.head["L"][query], P[0], dP[0], self.D[query], dS[0]
        r.step("row", *args, read=len(keys) * 2 * WORD * s.d)
        self.column({"gradients": dS}, keys)
        self.look(("K", "V"), keys)
        r.step("row-there")
        r.step("q-sums", s.d, self.count, dQ[0, 0], read=len(keys) * WORD * s.d)
        self.look(("K",), keys)
        r.put("partV", dQ[: self.groups_shown, :cols])
        r.step("q-sums-there")
        total = dQ.sum(axis=0, dtype=np.float32)
        r.step("q-store", query, s.factor, total[0], self.scale * total[0], written=WORD * s.d)
        r.look("partV", np.arange(self.groups_shown * cols))
        self.store({"dQ": self.scale * total}, query)

    def column(self, values: Mapping[str, np.ndarray], places: np.ndarray) -> None:
        """Records P or dS of the shown queries or keys in shared memory."""
        visible = places[places < self.rows]
        for name, column in values.items():
            self.r.put(name, column[: len(visible)], visible)

    def look(self, names: tuple[str, ...], rows: np.ndarray) -> None:
        for name in names:
            self.r.look(name, grid(rows[rows < self.rows], range(self.cols), self.cols))

    def store(self, values: Mapping[str, np.ndarray], row: int) -> None:
        for name, whole in values.items():
            self.r.put(name, whole[: self.cols], grid([row], range(self.cols), self.cols))

    # -- tensors ------------------------------------------------------------------------------------
    def tensors(self) -> tuple[Tensor, ...]:
        s, rows, cols, head = self.s, range(self.rows), self.cols, self.head
        names = ("Q", "dO", "O", "L", "K", "V", "D", "dQ", "dK", "dV")
        note = tr("one row per group, {shown} of {all}", shown=self.groups_shown, all=self.count)
        return (
            *(in_global(name, s, rows, cols, head) for name in names),
            tile("weights", "weights", "workspace", (1, self.rows), tr("a column of P")),
            tile("gradients", "gradients", "workspace", (1, self.rows), tr("a column or a row of dS")),
            tile("key", tr("own row"), "filter", (1, cols), tr("of K, later of Q")),
            tile("value", tr("own row"), "filter", (1, cols), tr("of V, later of dO")),
            tile("partV", "partial", "output", (self.groups_shown, cols), note),
            tile("partK", "partial", "output", (self.groups_shown, cols), tr("for dK")),
        )

    def groups(self) -> tuple[Group, ...]:
        shared = (("key", "value"), ("weights", "gradients"), ("partV", "partK"))
        return (
            global_group(self.s, range(self.rows), self.cols),
            Group(shared, "shared", tr("shared memory of the block")),
        )
