"""The two products of unfused attention, S = scale * Q K^T and O = P V: one thread per element, or by tiles. A step is the
cells of a warp, or the load, product or store of a block's tile. Steps are in the order of warps and blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np

from kernels.attention.shape import SelfAttentionShape
from kernels.i18n import mark, tr
from visuals.attention.parts import grid
from visuals.attention.unfused_steps import END, SOFTMAX, SOFTMAX_MARKS, Unfused, scene_of
from visuals.scene.arithmetic import matmul_in_kernel_order
from visuals.scene.parts import Group, Tensor
from visuals.scene.requests import LANES, WORD
from visuals.scene.scene import Scene


def unfused_scene(s: SelfAttentionShape, rung: str, tiles: Mapping[str, int], head: Mapping[str, np.ndarray]) -> Scene:
    """Returns the scene of attention/naive or attention/blocked. head: Q, K, V, float32 [N, d]."""
    return scene_of((Naive if rung == "attention/naive" else Blocked)(s, tiles, head), rung)


# -- one thread per element -------------------------------------------------------------------------
class Naive(Unfused):
    """One thread per element. A step of a product: the cells of a warp."""

    STEP_OWNER = "warp"
    TEMPLATES = MappingProxyType(
        {
            "scores": mark(
                "Block ({0}, {1}), warp {2}: each active lane computes one score, {S}[{4}, {5}] to {S}[{6}, {7}]. Active lanes: {3}. Row {4} "
                "of {Q} times row {5} of {K} is {8}. Times the scale {9} it is {10}."
            ),
            "rest scores": mark("The other warps compute the other scores. Scores in {S}: {0}."),
            **SOFTMAX,
            "values": mark(
                "Block ({0}, {1}), warp {2}: each active lane computes one element of {O}, {O}[{4}, {5}] to {O}[{6}, {7}]. Active lanes: {3}. "
                "Row {4} of {P} times column {5} of {V} is {8}."
            ),
            "rest values": mark("The other warps compute the rest of {O}."),
            **END,
        }
    )
    MARKS = ((0, "sum += query_row[dim]"), *SOFTMAX_MARKS, (2, "sum += weights[key]"), (2, "+ dim] = sum"))
    MARK_OF = MappingProxyType(
        {
            "scores": 0,
            "rest scores": 0,
            "max": 1,
            "sum": 2,
            "row": 3,
            "hidden row": 3,
            "rest rows": 3,
            "values": 4,
            "rest values": 4,
            "end": 5,
            "heads": 5,
        }
    )

    def scores(self) -> None:
        s, n, D, first_step = self.s, self.n, self.cols, self.r.steps
        for at, i, j in self.warps(self.rows, self.keys, self.visible_keys):
            values = n.sums[i[0], j[0]], s.factor, n.S[i[0], j[0]]
            self.warp("scores", at, i, j, values, 2 * WORD * len(i) * s.d)
            self.write("S", n.S, i, j, self.keys)
            self.r.look("Q", grid(np.unique(i[i < self.rows]), range(D), D))
            self.r.look("K", grid(np.unique(j[j < self.keys]), range(D), D))
        pairs = s.pairs // s.heads
        self.rest_of_launch("rest scores", first_step, (2 * WORD * pairs * s.d, WORD * pairs, 0), pairs)

    def values(self) -> None:
        s, n, C, D, first_step = self.s, self.n, self.keys, self.cols, self.r.steps
        for at, i, j in self.warps(self.rows, D, lambda i: np.full(i.shape, s.d)):
            self.warp("values", at, i, j, (n.O[i[0], j[0]],), 2 * WORD * int(self.visible_keys(i).sum()))
            self.write("O", n.O, i, j, D)
            keys = min(int(self.visible_keys(i[i < self.rows]).max()), C)
            self.r.look("P", grid(np.unique(i[i < self.rows]), range(keys), C))
            self.r.look("V", grid(range(keys), np.unique(j[j < D]), D))
        pairs = s.pairs // s.heads
        self.rest_of_launch("rest values", first_step, (2 * WORD * pairs * s.d, WORD * s.N * s.d, 0))

    def warps(self, rows: int, cols: int, columns_of) -> Iterator[tuple]:
        """Yields ((block's x, y, warp, its lanes), their rows, their columns) of each warp with a visible cell, in the order
        of blocks. columns_of(i): how many columns row i has."""
        side = self.tiles["BLOCK"]
        y, x = np.divmod(np.arange(side * side), side)
        for by in range(-(-rows // side)):
            for bx in range(-(-cols // side)):
                for first in range(0, side * side, LANES):
                    i, j = by * side + y[first : first + LANES], bx * side + x[first : first + LANES]
                    active = (i < self.s.N) & (j < columns_of(i))
                    if (active & (i < rows) & (j < cols)).any():
                        yield (bx, by, first // LANES, np.flatnonzero(active)), i[active], j[active]

    def warp(self, kind: str, position: tuple, i: np.ndarray, j: np.ndarray, values: tuple, read: int) -> None:
        x, y, warp, lanes = position
        mask = sum(1 << int(lane) for lane in lanes)
        step_info = {"warp": warp, "mask": mask, "read": read, "written": WORD * len(i)}
        self.r.step(kind, x, y, warp, len(i), i[0], j[0], i[-1], j[-1], *values, **step_info)

    def write(self, out: str, values: np.ndarray, i: np.ndarray, j: np.ndarray, cols: int) -> None:
        visible = (i < self.rows) & (j < cols)
        self.r.put(out, values[i[visible], j[visible]], i[visible] * cols + j[visible])


# -- tiles ------------------------------------------------------------------------------------------
class Blocked(Unfused):
    """Tiles in shared memory. A step of a product: a tile that is loaded or multiplied, or the store of a block's cells."""

    STEP_OWNER, shared = "block", True
    TEMPLATES = MappingProxyType(
        {
            "load Q": mark(
                "Block ({0}, {1}), tile {2} of {3}: the block loads its rows of {Q}, columns {4} to {5}, into shared memory."
            ),
            "load K": mark(
                "The block also loads its rows of {K}, columns {4} to {5}. Each loaded float is used {TILE} times."
            ),
            "multiply S": mark(
                "Each thread multiplies a row of tile_q by a row of tile_k. The sum of query {0} and key {1} is now {2}."
            ),
            "rest S": mark("The block does the same for its other tiles, up to column {1}. Tiles left: {0}."),
            "store S": mark(
                "The block multiplies its sums by the scale {1} and writes them: {S}[{2}, {3}] = {4}. Scores written: {0}."
            ),
            "hidden": mark(
                "Blocks whose keys are all hidden from these queries end at once. Their part of {S} stays empty. Blocks that end: {0}."
            ),
            "rest scores": mark("The other blocks compute the other scores. Scores in {S}: {0}."),
            **SOFTMAX,
            "load P": mark(
                "Block ({0}, {1}), tile {2} of {3}: the block loads its rows of {P}, keys {4} to {5}, into shared memory."
            ),
            "load V": mark("The block also loads rows {4} to {5} of {V}."),
            "multiply O": mark(
                "Each thread multiplies a row of tile_p by a column of tile_v. The sum of query {0}, column {1} is now {2}."
            ),
            "rest O": mark("The block does the same for its other tiles, up to key {1}. Tiles left: {0}."),
            "store O": mark("The block writes its sums: {O}[{1}, {2}] = {3}. Elements written: {0}."),
            "rest values": mark("The other blocks compute the rest of {O}."),
            **END,
        }
    )
    MARKS = (
        (0, "tile_q[thread_row][thread_col] ="),
        (0, "tile_k[thread_row][thread_col] ="),
        (0, "sum +="),
        (0, "S[((size_t)"),
        (0, "return;"),
        *SOFTMAX_MARKS,
        (2, "tile_p[thread_row][thread_col] ="),
        (2, "tile_v[thread_row][thread_col] ="),
        (2, "sum +="),
        (2, "O[((size_t)"),
    )
    MARK_OF = MappingProxyType(
        {
            "load Q": 0,
            "load K": 1,
            "multiply S": 2,
            "rest S": 2,
            "store S": 3,
            "hidden": 4,
            "rest scores": 3,
            "max": 5,
            "sum": 6,
            "row": 7,
            "hidden row": 7,
            "rest rows": 7,
            "load P": 8,
            "load V": 9,
            "multiply O": 10,
            "rest O": 10,
            "store O": 11,
            "rest values": 11,
            "end": 11,
            "heads": 11,
        }
    )

    @property
    def side(self) -> int:
        return self.tiles["TILE"]

    def inside(self, tile: int, extent: int) -> int:
        """Returns how many rows or columns of a tile are inside a matrix of `extent`."""
        return min(self.side, extent - tile * self.side)

    def key_tiles(self, by: int) -> int:
        """Returns the number of tiles of keys that the block of queries `by` visits."""
        return -(-int(self.visible_keys(by * self.side + self.side - 1)) // self.side)

    # -- S ------------------------------------------------------------------------------------------
    def scores(self) -> None:
        s, T, first_step = self.s, self.side, self.r.steps
        for by in range(-(-self.rows // T)):
            for bx in range(min(self.key_tiles(by), -(-self.keys // T))):
                self.block_of_S(by, bx)
            if hidden_blocks := -(-s.N // T) - self.key_tiles(by):
                self.r.step("hidden", hidden_blocks)
        queries = range(-(-s.N // T))
        tiles = np.array([self.key_tiles(by) for by in queries])
        rows, keys = np.array([self.inside(by, s.N) for by in queries]), np.minimum(tiles * T, s.N)
        read, written = WORD * s.d * int((rows * tiles + keys).sum()), WORD * int((rows * keys).sum())
        self.rest_of_launch(
            "rest scores", first_step, (read, written, int(tiles.sum()) * self._shared_bytes(s.d)), written // WORD
        )

    def _shared_bytes(self, along: int) -> int:
        """Returns the bytes of shared memory that a block moves over `along` terms: it stores two tiles at a time, and each
        thread reads two floats per product."""
        T = self.side
        return -(-along // T) * 2 * WORD * T * T * (1 + T)

    def block_of_S(self, by: int, bx: int) -> None:
        s, T, D, head = self.s, self.side, self.cols, self.head
        rows, keys = self.inside(by, s.N), self.inside(bx, s.N)
        i0, j0, tiles = by * T, bx * T, -(-s.d // T)
        visible_tiles = -(-D // T)
        for tile in range(visible_tiles):
            c0, wide = tile * T, self.inside(tile, s.d)
            args = bx, by, tile + 1, tiles, c0, c0 + wide - 1
            self.r.step("load Q", *args, read=WORD * rows * wide, shared=WORD * T * T)
            self.fill("Qs", "Q", (i0, c0), (self.rows, D))
            self.r.step("load K", *args, read=WORD * keys * wide, shared=WORD * T * T)
            self.fill("Ks", "K", (j0, c0), (self.keys, D))
            sums = matmul_in_kernel_order(
                head["Q"][i0 : self.rows, : c0 + wide], head["K"][j0 : self.keys, : c0 + wide].T, 1, "fp32"
            )
            self.r.step("multiply S", i0, j0, sums[0, 0], shared=2 * WORD * T**3)
            self.sums(sums)
        if visible_tiles < tiles:
            read = WORD * (rows + keys) * (s.d - visible_tiles * T)
            shared = self._shared_bytes(s.d) - self._shared_bytes(visible_tiles * T)
            self.r.step("rest S", tiles - visible_tiles, s.d - 1, read=read, shared=shared)
            self.sums(self.n.sums[i0 : self.rows, j0 : self.keys])
        raw = np.float32(s.factor) * self.n.sums
        self.r.step("store S", rows * keys, s.factor, i0, j0, raw[i0, j0], written=WORD * rows * keys)
        self.store("S", raw, i0, j0, self.keys)

    # -- O ------------------------------------------------------------------------------------------
    def values(self) -> None:
        s, T, first_step = self.s, self.side, self.r.steps
        for by in range(-(-self.rows // T)):
            for bx in range(-(-self.cols // T)):
                self.block_of_O(by, bx)
        queries, across = range(-(-s.N // T)), -(-s.d // T)
        keys_seen = np.array([int(self.visible_keys(by * T + T - 1)) for by in queries])
        rows, keys = (np.array([self.inside(by, s.N) for by in queries]), np.minimum(-(-keys_seen // T) * T, s.N))
        read = WORD * int((rows * keys * across + keys * s.d).sum())
        shared = across * sum(self._shared_bytes(int(n)) for n in keys_seen)
        self.rest_of_launch("rest values", first_step, (read, WORD * s.N * s.d, shared))

    def block_of_O(self, by: int, bx: int) -> None:
        s, T, C, D, n = self.s, self.side, self.keys, self.cols, self.n
        rows, wide = self.inside(by, s.N), self.inside(bx, s.d)
        i0, c0, tiles = by * T, bx * T, self.key_tiles(by)
        visible_tiles = min(tiles, -(-C // T))
        for tile in range(visible_tiles):
            j0, keys = tile * T, self.inside(tile, s.N)
            args = bx, by, tile + 1, tiles, j0, j0 + keys - 1
            self.r.step("load P", *args, read=WORD * rows * keys, shared=WORD * T * T)
            self.fill("Ps", "P", (i0, j0), (self.rows, C))
            self.r.step("load V", *args, read=WORD * keys * wide, shared=WORD * T * T)
            self.fill("Vs", "V", (j0, c0), (C, D))
            sums = matmul_in_kernel_order(n.P[i0:, : j0 + keys], self.head["V"][: j0 + keys, c0:D], 1, "fp32")
            self.r.step("multiply O", i0, c0, sums[0, 0], shared=2 * WORD * T**3)
            self.sums(sums)
        if visible_tiles < tiles:
            keys = min(tiles * T, s.N)
            read = WORD * (rows + wide) * (keys - visible_tiles * T)
            shared = self._shared_bytes(tiles * T) - self._shared_bytes(visible_tiles * T)
            self.r.step("rest O", tiles - visible_tiles, keys - 1, read=read, shared=shared)
            self.sums(n.O[i0:, c0:D])
        self.r.step("store O", rows * wide, i0, c0, n.O[i0, c0], written=WORD * rows * wide)
        self.store("O", n.O, i0, c0, D)

    # -- tensors ------------------------------------------------------------------------------------
    def sizes(self) -> dict[str, tuple[int, int]]:
        rows, keys, cols = (min(self.side, n) for n in (self.rows, self.keys, self.cols))
        return {
            "Qs": (rows, cols),
            "Ks": (keys, cols),
            "Ps": (rows, keys),
            "Vs": (keys, cols),
            "sum": (rows, max(keys, cols)),
        }

    def fill(self, target: str, source: str, start: tuple[int, int], extent: tuple[int, int]) -> None:
        """Records the load of a tile of `source` from (row, column) `start` on; elements outside are zero."""
        rows, cols = self.sizes()[target]
        row, col = start[0] + np.arange(rows)[:, None], start[1] + np.arange(cols)
        self.r.copy(target, source, np.where((row < extent[0]) & (col < extent[1]), row * extent[1] + col, -1))

    def sums(self, values: np.ndarray) -> None:
        rows, cols = self.sizes()["sum"]
        values = values[:rows, : self.side]
        self.r.put("sum", values, grid(range(len(values)), range(values.shape[1]), cols))

    def store(self, out: str, values: np.ndarray, row: int, col: int, cols: int) -> None:
        i, j = range(row, min(row + self.side, self.rows)), range(col, min(col + self.side, cols))
        self.r.put(out, values[np.ix_(i, j)], grid(i, j, cols))

    def tile_tensors(self) -> tuple[Tensor, ...]:
        roles = {"Qs": "input", "Ks": "filter", "Ps": "workspace", "Vs": "filter", "sum": "output"}
        T = self.side
        symbols = {"Qs": "tile_q", "Ks": "tile_k", "Ps": "tile_p", "Vs": "tile_v", "sum": "sum"}
        return tuple(
            Tensor(name, symbols[name], symbols[name], roles[name], 1, *size, note=self._note(size, T))
            for name, size in self.sizes().items()
        )

    @staticmethod
    def _note(size: tuple[int, int], T: int) -> str:
        whole = f"{T} × {T}"
        return whole if size == (T, T) else tr("{shown} of {all}", shown=f"{size[0]} × {size[1]}", all=whole)

    def groups(self) -> tuple[Group, ...]:
        first, square, registers = super().groups()
        return (
            first,
            square,
            Group((("Qs", "Ks", "Ps", "Vs"),), "shared", tr("shared memory of the block")),
            Group((("sum", *registers.rows[0]),), "registers", tr("registers")),
        )
