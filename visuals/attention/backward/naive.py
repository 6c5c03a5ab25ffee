"""The backward pass with P and dS in global memory as a scene: seven launches, of each the first block and then the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from kernels.attention.backward.shape import AttentionBackwardShape
from kernels.i18n import mark, tr
from kernels.ladders import find
from visuals import units
from visuals.attention.backward.captions import NAMES
from visuals.attention.backward.numbers import row_dots
from visuals.attention.backward.parts import global_group, in_global, sources_of
from visuals.attention.flash_numbers import add_product
from visuals.attention.parts import grid, scene_key
from visuals.scene.parts import Group, Reading
from visuals.scene.recorder import Recorder, matrix
from visuals.scene.requests import WORD
from visuals.scene.scene import Scene

MAX_ROWS, MAX_COLS = 16, 8
SCALED = "[scale · dS](workspace)"  # this kernel stores dS with the scale, the others apply the scale to their sums
ORDER_NOTE = mark(
    "The picture shows the first block of each launch, then all others in one step. On a GPU the blocks of a launch run many at once. Inside "
    "a block a product runs tile by tile with two barriers per tile, as on the stage of tiled products of the forward pass."
)
_KINDS = MappingProxyType({  # kind of step: (number of the launch, its line, words)
    "dots": (0, "if (lane == 0) D[row]", mark("First launch: {D} is the row sum of {dO} times {O}, one warp per query. For query 0: {0}.")),
    "scores": (1, "S[((size_t)", mark("Scores: block (0, 0) writes scale · {Q} {K}ᵀ of queries 0 to {0} and keys 0 to {0} where {P} will be. S[0, 0] = {1} · {2} = {3}.")),
    "scores-rest": (1, "S[((size_t)", mark("The other blocks write the other scores, {0} blocks per head. Blocks of hidden keys end at once.")),
    "dP": (2, "S[((size_t)", mark("The same kernel, with other matrices: block (0, 0) writes dP = {dO} {V}ᵀ where {dS} will be. dP[0, 0] = {0}.")),
    "dP-rest": (2, "S[((size_t)", mark("The other blocks write the rest of dP. N × N matrices in memory: two, {SQUARES} per head.")),
    "row": (3, "P[key] = p, dS[key] = ds", mark("The block of query 0 replaces its row. P[0, 0] = exp({0} − {1}) = {2}. scale · dS[0, 0] = scale · P · (dP − D) = {3} · {2} · ({4} − {5}) = {6}.")),
    "row-rest": (3, "P[key] = p, dS[key] = ds", mark("The blocks of all other queries do the same. {P} and {dS} are complete and stay in memory. Hidden keys have 0.")),
    "dV": (4, "sum += tile_p[query][thread_row]", mark("Block (0, 0) computes a tile of {dV} = Pᵀ dO: column 0 of {P} times column 0 of {dO} is dV[0, 0] = {0}.")),
    "dV-rest": (4, "Y[((size_t)", mark("The other blocks compute the rest of {dV}.")),
    "dK": (5, "sum += tile_p[query][thread_row]", mark("The same kernel computes {dK} = scale · dSᵀ Q from {dS}, which has the scale already: dK[0, 0] = {0}.")),
    "dK-rest": (5, "Y[((size_t)", mark("The other blocks compute the rest of {dK}.")),
    "dQ": (6, "sum += tile_p[thread_row][key]", mark("The kernel of the forward pass computes {dQ} = scale · dS K: row 0 of {dS} times column 0 of {K} is dQ[0, 0] = {0}.")),
    "dQ-rest": (6, "O[((size_t)", mark("The other blocks compute the rest of {dQ}. {P} and {dS}, {SQUARES} per head, were each written twice. {P} was read twice, {dS} three times.")),
})  # fmt: skip


def naive_scene(
    s: AttentionBackwardShape, rung: str, tiles: Mapping[str, int], head: Mapping[str, np.ndarray]
) -> Scene:
    """Returns the scene of attention-backward/naive. head: Q, K, V, dO, O float32 [N, d] and L [N]."""
    naive = Naive(s, tiles["TILE"], head)
    naive.run()
    r, rows, cols = naive.r, range(naive.rows), naive.cols
    lines = {kind: (launch, line) for kind, (launch, line, _) in _KINDS.items()}
    source, later = sources_of(r, find(rung).build(s, tiles).launches, lines)
    square, whole = (naive.rows, naive.rows), (s.N, s.N)
    labels = {"read": tr("bytes read if caches are perfect"), "written": tr("bytes written")}
    names = ("Q", "dO", "O", "L", "K", "V", "D", "dQ", "dK", "dV")
    return Scene(
        key=scene_key(s, rung, tiles),
        title=tr(find(rung).title),
        tensors=(
            *(in_global(name, s, rows, cols, head) for name in names),
            matrix("P", "workspace", square, (0, 0), whole),
            replace(matrix("dS", "workspace", square, (0, 0), whole), symbol="scale·dS", title="scale · dS"),
        ),
        groups=(global_group(s, rows, cols), Group((("P", "dS"),), "workspace", tr("workspace in global memory"))),
        steps=r.steps,
        step_name=tr("step"),
        order_name=tr("launch after launch"),
        order_note=tr(ORDER_NOTE),
        writes=r.writes(),
        reads=r.reads(),
        readings=tuple(Reading(label, r.so_far(name), "predicted") for name, label in labels.items()),
        captions=r.captions(),
        source=source,
        next_sources=later,
    )


class Naive:
    """The steps of the seven launches. Only the first rows and columns are computed, over all queries or keys."""

    def __init__(self, s: AttentionBackwardShape, side: int, head: Mapping[str, np.ndarray]):
        self.s, self.side, self.head = s, side, head
        self.rows, self.cols = min(s.N, MAX_ROWS), min(s.d, MAX_COLS)
        self.first = min(side, self.rows)  # rows of block (0, 0) that are shown
        self.scale = np.float32(s.factor)
        self.D = row_dots(head["dO"], head["O"])
        values = NAMES | {"dS": SCALED, "SQUARES": units.bytes_(2 * WORD * s.N**2)}
        words = {kind: (n, tr(text, **values)) for n, (kind, (*_, text)) in enumerate(_KINDS.items())}
        self.r = Recorder(words)

    def squares(self, rows: slice, cols: slice) -> tuple[np.ndarray, ...]:
        """Returns (sums of Q K^T, dP, P, dS) of some queries and keys, float32, dS with the scale."""
        h = self.head
        zeros = np.zeros((len(range(self.s.N)[rows]), len(range(self.s.N)[cols])), np.float32)
        sums, dP = (add_product(zeros, a[rows], b[cols].T, 1) for a, b in ((h["Q"], h["K"]), (h["dO"], h["V"])))
        P = np.exp(self.scale * sums - h["L"][rows, None])
        i, j = np.arange(self.s.N)[rows, None], np.arange(self.s.N)[cols]
        P = np.where((j > i) & bool(self.s.causal), np.float32(0), P)
        return sums, dP, P, self.scale * P * (dP - self.D[rows, None])

    def run(self) -> None:
        s, r, h, R = self.s, self.r, self.head, self.rows
        squares, flat = WORD * s.N**2, WORD * s.N * s.d
        r.step("dots", self.D[0], read=2 * flat, written=WORD * s.N)
        self.look("dO", "O")
        r.put("D", self.D[:R])
        sums, dP, P, dS = self.squares(slice(0, R), slice(0, R))
        blocks = (-(-s.N // self.side)) ** 2
        S = self.scale * sums
        r.step("scores", self.first - 1, s.factor, sums[0, 0], S[0, 0])
        self.product("scores", "P", S, "Q", "K", (blocks,), 2 * flat, self.computed())
        r.step("dP", dP[0, 0])
        self.product("dP", "dS", dP, "dO", "V", (), 2 * flat, self.computed())
        r.step("row", S[0, 0], h["L"][0], P[0, 0], s.factor, dP[0, 0], self.D[0], dS[0, 0])
        row = np.arange(R)
        r.look("L", np.array([0]))
        r.look("D", np.array([0]))
        for name, values in (("P", P), ("dS", dS)):
            r.put(name, values[0], row)
        r.step("row-rest", read=2 * squares + 2 * WORD * s.N, written=2 * squares)
        for name, values in (("P", P), ("dS", dS)):
            r.put(name, values)
        _, _, P_columns, dS_columns = self.squares(slice(0, s.N), slice(0, R))
        _, _, _, dS_rows = self.squares(slice(0, R), slice(0, s.N))
        zeros = np.zeros((R, s.d), np.float32)
        for name, weights, rows, looks in (
            ("dV", P_columns.T, h["dO"], ("P", "dO")),
            ("dK", dS_columns.T, h["Q"], ("dS", "Q")),
            ("dQ", dS_rows, h["K"], ("dS", "K")),
        ):
            result = add_product(zeros, weights, rows, max(1, -(-s.N // 4096)))[:, : self.cols]
            r.step(name, result[0, 0])
            self.product(name, name, result, *looks, (), squares + flat, np.ones(result.shape, bool), flat)

    def computed(self) -> np.ndarray:
        """Returns bool [rows, rows]: elements of blocks that do not end at once."""
        i, j = np.mgrid[: self.rows, : self.rows] // self.side * self.side
        return (j <= i + self.side - 1) | (not self.s.causal)

    def product(self, kind, out, values, left, right, args, read, computed, written=0) -> None:
        """Records what block (0, 0) writes at this step, and a step in which the others write the rest."""
        r, shape = self.r, values.shape
        self.look(left, right)
        wide = min(self.side, shape[1])
        first = np.zeros(shape, bool)
        first[: self.first, :wide] = True
        r.put(out, values[first], np.flatnonzero(first))
        r.step(f"{kind}-rest", *args, read=read, written=written or WORD * self.s.N**2)
        rest = computed & ~first
        r.put(out, values[rest], np.flatnonzero(rest))

    def look(self, *names: str) -> None:
        for name in names:
            cols = self.rows if name in ("P", "dS") else self.cols
            self.r.look(name, grid(range(self.rows), range(cols), cols))
