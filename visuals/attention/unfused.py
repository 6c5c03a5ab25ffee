"""The two products of unfused attention, S = scale * Q K^T and O = P V: one thread per element, or by tiles. A step is the
cells of a warp, or the load, product or store of a block's tile. Steps are in the order of warps and blocks.
"""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from kernels.i18n import mark, tr
from visuals.attention.parts import grid
from visuals.attention.unfused_steps import END, SOFTMAX, SOFTMAX_MARKS, Unfused
from visuals.scene.arithmetic import matmul_in_kernel_order
from visuals.scene.parts import Group, Tensor
from visuals.scene.requests import WORD


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
